import type { Plan, Round } from "./plan.js";
import { simulate } from "./simulator.js";

/**
 * The smallest plan that can be found, by leaving things out, which still fails in the same way. What is left is written
 * to a schedule file, which repeats the failure when seeds have come to mean other plans.
 */
export async function minimize(plan: Plan, progress: (plan: Plan) => void = () => {}): Promise<Plan> {
  const kind = await failureOf(plan);
  if (kind === undefined) throw new Error("this plan does not fail");
  let best = plan;
  const attempt = async (candidate: Plan): Promise<boolean> => {
    if ((await failureOf(candidate)) !== kind) return false;
    best = candidate;
    progress(best);
    return true;
  };
  for (let again = true; again; ) {
    again = false;
    for (let at = best.rounds.length - 1; at >= 0 && best.rounds.length > 1; at--) {
      again = (await attempt({ ...best, rounds: best.rounds.toSpliced(at, 1) })) || again;
    }
    for (let at = 0; at < best.rounds.length; at++) {
      const { steps } = best.rounds[at]!;
      for (let length = steps.length; length >= 1; length = Math.floor(length / 2)) {
        for (let from = 0; from + length <= (best.rounds[at]?.steps.length ?? 0); ) {
          const round = best.rounds[at]!;
          const shorter: Round = { ...round, steps: round.steps.toSpliced(from, length) };
          if (await attempt({ ...best, rounds: best.rounds.with(at, shorter) })) again = true;
          else from += length;
        }
      }
      const round = best.rounds[at]!;
      if (round.faults.length > 0) {
        again = (await attempt({ ...best, rounds: best.rounds.with(at, { ...round, faults: [] }) })) || again;
      }
    }
  }
  return best;
}

/** What the first violation says, without its numbers; undefined when there is none. */
async function failureOf(plan: Plan): Promise<string | undefined> {
  const { violations } = await simulate(plan);
  return violations[0]?.split("\n")[0]?.replaceAll(/\d+(?:\.\d+)?/g, "#");
}
