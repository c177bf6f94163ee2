/**
 * The parts of the real world, one after another. Arguments: `--seed N`, `--scale X`, `--at-most S` and the names of parts
 * (all of them by default). One line each; exit code 1, and the folder kept, when something was wrong.
 */

import { rmSync } from "node:fs";
import { parseArgs } from "node:util";
import { awake } from "../support/awake.js";
import { Seeded } from "../support/seeded.js";
import { daemon } from "./daemon.js";
import { faults } from "./faults.js";
import { full } from "./full.js";
import { kill } from "./kill.js";
import { descriptors, files } from "./limits.js";
import { power } from "./power.js";
import { makeFolder, type Outcome, type Stage } from "./rounds.js";

const PARTS: Readonly<Record<string, (stage: Stage) => Promise<Outcome>>> = {
  kill,
  daemon,
  power,
  full,
  files,
  descriptors,
  faults,
};

/** Of the time that is left, what the parts of many rounds may have. The others are soon over. */
const SHARES: Readonly<Record<string, number>> = { kill: 0.45, daemon: 0.4, power: 0.7 };

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { seed: { type: "string" }, scale: { type: "string", default: "1" }, "at-most": { type: "string" } },
});
const seed = values.seed === undefined ? Date.now() % 2 ** 32 : Number(values.seed);
const scale = Number(values.scale);
const atMostSeconds = Number(values["at-most"] ?? Number.POSITIVE_INFINITY);
const endMs = performance.now() + 1000 * atMostSeconds;
const chosen = positionals.length > 0 ? positionals : Object.keys(PARTS);
const strange = chosen.find((name) => PARTS[name] === undefined);
if (strange !== undefined || !Number.isSafeInteger(seed) || !(scale > 0) || !(atMostSeconds > 0)) {
  console.error(`usage: [--seed N] [--scale X] [--at-most S] [${Object.keys(PARTS).join(" | ")}] ...`);
  process.exit(2);
}

for (const name of chosen) {
  const folder = makeFolder(name);
  const startedMs = performance.now();
  const untilMs = startedMs + (endMs - startedMs) * (SHARES[name] ?? 1);
  const stage: Stage = { random: new Seeded(seed), folder, scale, isTimeUp: () => performance.now() >= untilMs };
  try {
    const outcome = await awake(() => (PARTS[name] as (stage: Stage) => Promise<Outcome>)(stage));
    rmSync(folder, { recursive: true, force: true });
    const seconds = ((performance.now() - startedMs) / 1000).toFixed(0);
    if ("skipped" in outcome) console.log(`SKIPPED ${name}: ${outcome.skipped}`);
    else console.log(`${name}: ${outcome.line}; 0 violations; ${seconds} s, seed ${seed}`);
    // `.ci/run` looks for this.
    if ("leftOut" in outcome) console.log(`the time was up; left out, ${outcome.leftOut}`);
  } catch (error) {
    process.exitCode = 1;
    console.log(`FAILED ${name}: npm run world -- --seed ${seed} ${name}   (${folder} is kept)`);
    console.log(error instanceof Error ? (error.stack ?? error.message) : error);
  }
}
process.exit();
