/** What was added to plans after their seeds had come to mean something: drawn apart, so that the others go on meaning that. */

import type { PaceRules } from "./model-pace.js";
import type { Plan, Round, Step, TaskRules } from "./plan.js";
import type { SimRandom } from "./sim-random.js";

/** How often each is drawn. */
const FEATURE_WEIGHTS = {
  flow: 8,
  bring: 8,
  result: 4,
  progress: 4,
  status: 3,
  list: 2,
  bury: 2,
  spread: 5,
  // So that flows and what they bring come to an end.
  dequeueBatch: 4,
  ackBatch: 3,
} as const;

export type FeatureKind = keyof typeof FEATURE_WEIGHTS;

/** The part of plans that has them. */
const CHANCE = 0.4;

export function withFeatures(plan: Plan, random: SimRandom): Plan {
  if (!random.chance(CHANCE)) return plan;
  const tasks = plan.tasks.map((rules) => (random.chance(0.6) ? { ...rules, ...drawRules(random) } : rules));
  const kinds = Object.keys(FEATURE_WEIGHTS) as FeatureKind[];
  const bag = kinds.flatMap((kind) => {
    return Array.from({ length: Math.ceil(FEATURE_WEIGHTS[kind] * random.pick([0.2, 1, 2])) }, () => kind);
  });
  const density = random.pick([0.2, 0.5, 1]);
  const rounds = plan.rounds.map((round): Round => {
    const steps = [...round.steps];
    for (let left = Math.ceil(steps.length * density); left > 0; left--) {
      steps.splice(random.below(steps.length + 1), 0, drawStep(random.pick(bag), random, plan));
    }
    return { ...round, steps };
  });
  return { ...plan, tasks, rounds };
}

function drawRules(random: SimRandom): Pick<TaskRules, "resultTtl" | "pace"> {
  const pace: PaceRules = {
    ...(random.chance(0.4) ? { concurrency: random.pick([1, 2, 5]) } : {}),
    ...(random.chance(0.4) ? { rate: { limit: random.pick([1, 3, 10]), per: random.pick([50, 1000]) } } : {}),
    ...(random.chance(0.3) ? { concurrencyPerKey: 2 } : {}),
    ...(random.chance(0.3) ? { lookAhead: random.pick([1, 3]) } : {}),
    ...(random.chance(0.3) ? { ageing: random.pick([100, 5000]) } : {}),
  };
  return { pace, resultTtl: random.pick([0, 1000, 3_600_000]) };
}

function drawStep(kind: FeatureKind, random: SimRandom, { rounds }: Plan): Step {
  const like = random.pick(rounds[0]!.steps);
  return {
    kind,
    queue: random.below(1000),
    pick: random.below(1_000_000),
    count: random.pick([1, 2, 3, 8]),
    size: random.pick([0, 20, 1000, 8000]),
    mode: like.mode,
    ms: random.chance(0.5) ? 0 : random.pick([1, 100, 1000]),
    next: random.pick([0, 0, -1, 1, 20, 300]),
  };
}
