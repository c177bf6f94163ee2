import { ok } from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

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

function youngBytes(how: string): number {
  const module = new URL("./heap.js", import.meta.url).href;
  return Number(
    execFileSync(process.execPath, ["--input-type=module", "-e", ALLOCATE, module, how], { encoding: "utf8" }),
  );
}

test("the space for young objects does not grow with the work", () => {
  const small = youngBytes("small");
  const usual = youngBytes("usual");
  ok(small * 4 <= usual, `${small} bytes of young objects, ${usual} when V8 is left to itself`);
});
