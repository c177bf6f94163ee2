/**
 * A worker of scripts/mutants.mjs, run from a tree with one mutant, or with none: tries what is to find the fault, and says
 * how that went. Each seed is announced before it is run, so that the parent notices one that never ends.
 */

import { flipEveryByte, fullPlan } from "../sim/every-byte.js";
import { endAtEveryCall, FAULTS, failEveryCall, type Sweep, smallPlan } from "../sim/exhaustive.js";
import { drawPlan } from "../sim/plan.js";
import { simulate } from "../sim/simulator.js";
import type { Killer } from "./mutant.js";

export interface Hunt {
  readonly killer: Exclude<Killer, { by: "test" }>;
  /** For the simulator: tried in this order until one fails, or all of them, to see that none does. */
  readonly seeds: readonly number[];
}

export type Finding =
  | { readonly kind: "trying"; readonly seed: number }
  | { readonly kind: "found"; readonly seed: number; readonly what: string }
  | { readonly kind: "clean" };

/** Calls that are passed over between two that are tried: a mutant shows long before the last call. */
const STRIDE = 3;
/** Bytes of the log, and of segments, that are flipped. */
const FLIPS = 2000;

let current = 0;

function say(finding: Finding): void {
  process.send!(finding);
}

function found(what: string): void {
  say({ kind: "found", seed: current, what });
}

/** What goes wrong, in words; undefined when nothing does. */
async function failure({ killer }: Hunt, seed: number): Promise<string | undefined> {
  switch (killer.by) {
    case "simulator":
      return (await simulate(drawPlan(seed))).violations[0];
    case "ends":
      return firstOf(await endAtEveryCall(smallPlan(seed, 8), STRIDE));
    case "faults":
      return firstOf(await failEveryCall(smallPlan(seed, 8), FAULTS, STRIDE));
    case "flips":
      return (await flipEveryByte(fullPlan(seed), FLIPS)).unnoticed[0];
  }
}

function firstOf({ failures }: Sweep): string | undefined {
  return failures[0]?.report.violations[0];
}

async function hunt(job: Hunt): Promise<void> {
  const seeds = job.killer.by === "simulator" ? job.seeds : [job.killer.seed];
  for (const seed of seeds) {
    current = seed;
    say({ kind: "trying", seed });
    const what = await failure(job, seed).catch((error: unknown) => String(error));
    if (what === undefined) continue;
    found(what);
    return;
  }
  say({ kind: "clean" });
}

// What the mutant breaks may be met outside of any call.
process.on("uncaughtException", (error) => {
  found(`uncaught: ${error}`);
  process.disconnect();
});
process.on("message", (job: Hunt) => {
  void hunt(job).finally(() => process.disconnect());
});
