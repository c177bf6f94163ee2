/** A worker of scripts/sim.mjs: runs the plans that it is sent, one by one, and reports on each. */

import { drawPlan, type Plan, type PlanLimits } from "./plan.js";
import { type Report, simulate } from "./simulator.js";

export interface Job {
  readonly seed: number;
  readonly limits?: PlanLimits;
  /** Instead of the one that the seed draws. */
  readonly plan?: Plan;
  /** Runs it twice, and compares. */
  readonly twice?: boolean;
}

export async function runJob({
  seed,
  limits = {},
  plan = drawPlan(seed, limits),
  twice = false,
}: Job): Promise<Report> {
  const report = await simulate(plan);
  if (!twice) return report;
  const again = await simulate(plan);
  if (again.hash === report.hash) return report;
  const violations = [...report.violations, `two runs of one seed differ: ${report.hash} and ${again.hash}`];
  return { ...report, violations };
}

if (process.send !== undefined) {
  process.on("message", (job: Job) => {
    runJob(job).then(
      (report) => process.send!(report),
      (error: unknown) => {
        throw error;
      },
    );
  });
}
