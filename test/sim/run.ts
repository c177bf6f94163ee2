/** A worker of scripts/sim.mjs: does what it is sent, job by job, and reports on each. */

import { flipBits } from "./bit-flips.js";
import { flipEveryByte, fullPlan } from "./every-byte.js";
import { endAtEveryCall, FAULTS, failEveryCall, smallPlan } from "./exhaustive.js";
import { drawPlan, type Plan, type PlanLimits } from "./plan.js";
import { type Report, simulate } from "./simulator.js";

export interface Job {
  readonly seed: number;
  readonly limits?: PlanLimits;
  /** Instead of the one that the seed draws. */
  readonly plan?: Plan;
  /** Runs it twice, and compares. */
  readonly twice?: boolean;
  /** The share of lives that are recovered from a second end as well; all of them when not given. */
  readonly otherEnds?: number;
}

/** A small workload of which every call is tried, or every byte of what it leaves. */
export interface SweepJob {
  readonly sweep: "ends" | "faults" | "flips";
  readonly seed: number;
  readonly steps: number;
  /** For flips: bytes of the log, and of segments, at most. */
  readonly bytes: number;
}

export interface SweepReport extends Pick<SweepJob, "sweep" | "seed"> {
  readonly runs: number;
  /** Flips that were noticed; the others changed nothing. */
  readonly noticed: number;
  readonly failures: readonly { readonly what: string; readonly plan: Plan }[];
}

/** Of the bits that are flipped before a whole opening, one in about so many bytes. */
const OPENED_STRIDE_BYTES = 4000;

export async function runJob({
  seed,
  limits = {},
  plan = drawPlan(seed, limits),
  twice = false,
  otherEnds,
}: Job): Promise<Report> {
  const report = await simulate(plan, undefined, otherEnds);
  if (!twice) return report;
  const again = await simulate(plan, undefined, otherEnds);
  if (again.hash === report.hash) return report;
  const violations = [...report.violations, `two runs of one seed differ: ${report.hash} and ${again.hash}`];
  return { ...report, violations };
}

async function runSweep({ sweep, seed, steps, bytes }: SweepJob): Promise<SweepReport> {
  if (sweep === "flips") {
    const plan = fullPlan(seed);
    const every = await flipEveryByte(plan, bytes);
    const opened = await flipBits(plan, OPENED_STRIDE_BYTES);
    const failures = [...every.unnoticed, ...opened.unnoticed].map((what) => ({ what, plan }));
    return { sweep, seed, runs: every.tried, noticed: every.noticed, failures };
  }
  const plan = smallPlan(seed, steps);
  const { runs, failures } = sweep === "ends" ? await endAtEveryCall(plan) : await failEveryCall(plan, FAULTS);
  const told = failures.map((failure) => ({ what: failure.report.violations[0]!, plan: failure.plan }));
  return { sweep, seed, runs, noticed: 0, failures: told };
}

if (process.send !== undefined) {
  process.on("message", (job: Job | SweepJob) => {
    const done: Promise<Report | SweepReport> = "sweep" in job ? runSweep(job) : runJob(job);
    done.then(
      (report) => process.send!(report),
      (error: unknown) => {
        throw error;
      },
    );
  });
}
