import { ok } from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

/** Prints the bytes that the space for young objects has: at once, after a collection that leaves as little as can be, and after that. */
const REST = `
  import { getHeapSnapshot, getHeapSpaceStatistics } from "node:v8";
  import { setImmediate as turn } from "node:timers/promises";
  const { keepHeapSmall } = await import(process.argv[1]);
  const bytes = () => getHeapSpaceStatistics().find(({ space_name }) => space_name === "new_space").space_size;
  keepHeapSmall();
  const first = bytes();
  getHeapSnapshot().destroy();
  const least = bytes();
  let last = least;
  for (let turns = 0; turns < 10_000 && last < first; turns++) {
    await turn();
    last = bytes();
  }
  console.log(JSON.stringify({ first, least, last }));
`;

/** Allocates objects of which many live for a while, and prints the bytes that the young ones took up at most. */
const ALLOCATE = `
  import { getHeapSpaceStatistics } from "node:v8";
  const { keepHeapSmall } = await import(process.argv[1]);
  if (process.argv[2] === "small") keepHeapSmall();
  let kept = [];
  let most = 0;
  for (let index = 0; index < 3_000_000; index++) {
    kept.push({ index });
    if (kept.length < 50_000) continue;
    kept = [];
    most = Math.max(most, getHeapSpaceStatistics().find(({ space_name }) => space_name === "new_space").space_size);
  }
  console.log(most);
`;

function printed(script: string, ...more: string[]): string {
  const module = new URL("./heap.js", import.meta.url).href;
  return execFileSync(process.execPath, ["--input-type=module", "-e", script, module, ...more], { encoding: "utf8" });
}

function youngBytes(how: string): number {
  return Number(printed(ALLOCATE, how));
}

test("the space for young objects does not grow with the work", () => {
  const small = youngBytes("small");
  const usual = youngBytes("usual");
  ok(small * 4 <= usual, `${small} bytes of young objects, ${usual} when V8 is left to itself`);
});

test("the space for young objects is given back to a process that has rested", () => {
  const { first, least, last } = JSON.parse(printed(REST));
  ok(least < first, `${least} bytes of ${first} are left of it`);
  ok(last >= first, `${last} bytes after that`);
});

test("a lower limit that Node was started with is kept", () => {
  const module = new URL("./heap.js", import.meta.url).href;
  const script = `const { keepHeapSmall } = await import(${JSON.stringify(module)}); keepHeapSmall();`;
  execFileSync(process.execPath, ["--max-semi-space-size=1", "--input-type=module", "-e", script], { timeout: 60_000 });
});
