/** Every end and every fault at every disk call of a small workload. */

import { drawPlan, EVERY_END, type Fault, type Plan, type Round } from "./plan.js";
import { SimRandom } from "./sim-random.js";
import { type Report, Simulator, simulate } from "./simulator.js";

export interface Sweep {
  readonly runs: number;
  /** Runs whose first life left what that of another had left: they were not gone on with. */
  readonly known: number;
  readonly failures: readonly { readonly plan: Plan; readonly report: Report }[];
}

const FAILURES_MAX = 5;

const FAULT = { sticky: false, written: 0, reverted: false, short: false };
/** What each call meets in turn: fails, fails for good and keeps nothing, finds the disk full, takes a part. */
export const FAULTS: readonly Omit<Fault, "call">[] = [
  { ...FAULT, errno: "EIO" },
  { ...FAULT, errno: "EIO", sticky: true, written: 1_000_000, reverted: true },
  { ...FAULT, errno: "ENOSPC", written: 8 },
  { ...FAULT, errno: "EIO", written: 5, short: true },
];

/** A workload of one round, then a second one for whatever is to be met on the way back. */
export function smallPlan(seed: number, steps: number): Plan {
  const plan = drawPlan(seed, { rounds: 2, steps });
  const quiet = { haltAtCall: 0, faults: [], fromOpen: false, capacityBytes: 0, downMs: 10 };
  const [first, second] = plan.rounds.map(({ astray: _, haltOn: __, ...round }) => round) as [Round, Round];
  return {
    ...plan,
    rounds: [
      { ...first, ...quiet, close: true },
      { ...second, ...quiet, steps: second.steps.slice(0, 3) },
    ],
  };
}

/**
 * Ends the process at every disk call of the first round, from opening to closing, in every way. Each recovery is itself
 * ended at one of its calls, drawn anew. What several ends leave alike is recovered once.
 * @param stride looks only at every so many calls
 */
export async function endAtEveryCall(plan: Plan, stride = 1): Promise<Sweep> {
  const random = new SimRandom(plan.seed);
  const known = new Set<string>();
  const [first, second] = plan.rounds as [Round, Round];
  return await sweep(stride, async (call) => {
    const reports: [Plan, Report, boolean][] = [];
    for (const end of EVERY_END) {
      const again: Round = { ...second, haltAtCall: random.between(1, 50), end: random.pick(EVERY_END) };
      const rounds = [{ ...first, haltAtCall: call, haltWritten: random.pick([0, 512, 100_000]), end }, again, second];
      const trial = { ...plan, rounds };
      const simulator = new Simulator(trial, undefined);
      simulator.otherEnds = 0;
      simulator.known = known;
      const report = await simulator.run();
      reports.push([trial, report, report.halted[0]!]);
    }
    return reports;
  });
}

/** Fails every disk call of the first round in turn. */
export async function failEveryCall(plan: Plan, faults: readonly Omit<Fault, "call">[], stride = 1): Promise<Sweep> {
  const [first, second] = plan.rounds as [Round, Round];
  return await sweep(stride, async (call) => {
    const reports: [Plan, Report, boolean][] = [];
    for (const fault of faults) {
      const trial = { ...plan, rounds: [{ ...first, faults: [{ ...fault, call }] }, second] };
      const report = await simulate(trial, undefined, 0);
      reports.push([trial, report, report.faults > 0]);
    }
    return reports;
  });
}

async function sweep(
  stride: number,
  at: (call: number) => Promise<[plan: Plan, report: Report, met: boolean][]>,
): Promise<Sweep> {
  const failures: { plan: Plan; report: Report }[] = [];
  let runs = 0;
  let known = 0;
  // A call that cannot fail (a close) ends nothing; several in a row that were not met are past the end.
  for (let call = 1, missed = 0; missed < 5 && failures.length < FAILURES_MAX; call += stride) {
    const trials = await at(call);
    runs += trials.length;
    known += trials.filter(([, report]) => report.halted.length === 1).length;
    missed = trials.some(([, , met]) => met) ? 0 : missed + 1;
    for (const [plan, report] of trials) if (report.violations.length > 0) failures.push({ plan, report });
  }
  return { runs, known, failures };
}
