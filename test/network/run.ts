/**
 * Rounds, one after another. Arguments: `--seed N` (of the first round; each has the next), `--rounds N`, `--jobs N`,
 * `--at-most SECONDS` (no round begins later, and each way has its share of that), `--keep`, and the ways by which clients come to
 * the queues (all of them by default). Exit code 1, and the histories kept, when something was wrong.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { awake } from "../support/awake.js";
import { isWay, playWay, WAYS, type Way } from "./ways.js";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seed: { type: "string" },
    rounds: { type: "string", default: "200" },
    jobs: { type: "string", default: "2" },
    "at-most": { type: "string", default: "Infinity" },
    keep: { type: "boolean", default: false },
  },
});
const first = values.seed === undefined ? Date.now() % 2 ** 32 : Number(values.seed);
const rounds = Number(values.rounds);
const jobs = Number(values.jobs);
const atMostMs = Number(values["at-most"]) * 1000;
const chosen = (positionals.length > 0 ? positionals : WAYS).filter(isWay);
if (
  chosen.length < positionals.length ||
  ![first, rounds, jobs].every(Number.isSafeInteger) ||
  !(rounds > 0 && jobs > 0 && atMostMs > 0)
) {
  console.error(`usage: [--seed N] [--rounds N] [--jobs N] [--at-most SECONDS] [--keep] [${WAYS.join(" | ")}] ...`);
  process.exit(2);
}

type Total = Record<"rounds" | "calls" | "unknown" | "faults" | "violations" | "failures", number>;

const SHOWN_MAX = 10;
const FAILURES_MAX = 10;

for (const [index, way] of chosen.entries()) {
  const startedMs = performance.now();
  const total: Total = { calls: 0, unknown: 0, faults: 0, rounds: 0, violations: 0, failures: 0 };
  const endMs = startedMs + (atMostMs - startedMs) / (chosen.length - index);
  let next = 0;
  const job = async (): Promise<void> => {
    while (next < rounds && total.failures < FAILURES_MAX && performance.now() < endMs) {
      await play(way, (first + next++) % 2 ** 32, total);
    }
  };
  await awake(() => Promise.all(Array.from({ length: jobs }, job)));
  const seconds = ((performance.now() - startedMs) / 1000).toFixed(0);
  console.log(
    `${way}: ${total.rounds} rounds, ${total.faults} kills, pauses and starts, ${total.calls} calls, ${total.unknown} of ` +
      `unknown outcome; ${total.violations} violations; ${seconds} s, from seed ${first} on`,
  );
  if (next < rounds && total.failures < FAILURES_MAX)
    console.log(`the time was up; left out, rounds: ${rounds - next}`);
}
process.exit();

async function play(way: Way, seed: number, total: Total): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), `varve-network-${way}-`));
  const problems: string[] = [];
  try {
    const { calls, unknown, faults, anomalies } = await playWay(way, seed, folder);
    total.calls += calls;
    total.unknown += unknown;
    total.faults += faults;
    for (const { kind, at, what } of anomalies) problems.push(`${kind} at ${at.toFixed(1)}: ${what}`);
  } catch (error) {
    problems.push(error instanceof Error ? (error.stack ?? error.message) : String(error));
  }
  total.rounds++;
  total.violations += problems.length;
  if (problems.length === 0) {
    if (values.keep) console.log(`seed ${seed}: ${folder}`);
    else rmSync(folder, { recursive: true, force: true });
    return;
  }
  total.failures++;
  process.exitCode = 1;
  console.log(`FAILED ${way}: npm run network -- --seed ${seed} --rounds 1 ${way}   (${folder} is kept)`);
  for (const problem of problems.slice(0, SHOWN_MAX)) console.log(`  ${problem}`);
  if (problems.length > SHOWN_MAX) console.log(`  and ${problems.length - SHOWN_MAX} more`);
}
