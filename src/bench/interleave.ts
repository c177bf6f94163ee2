import { Probe } from "./measure.js";

/** Something to be timed against others: a workload on varve, a bare loop over system calls, another store. */
export interface Contestant {
  readonly name: string;
  /** Handles about this many messages and resolves to how many it did; ends early when the probe says so. */
  run(messages: number, probe: Probe): number | Promise<number>;
  /** Comes to rest after a round, outside the measured time: what it left behind must not slow down the others. */
  settle?(): void | Promise<void>;
}

/** One contestant's measured rounds. */
export interface Timing {
  readonly messages: number;
  readonly seconds: number;
  /** Messages per second, round by round. */
  readonly rates: readonly number[];
  readonly probe: Probe;
}

export interface InterleaveOptions {
  readonly rounds: number;
  /** A round of a contestant ends at its first recorded operation after this much time. */
  readonly roundLimitMs: number;
  /** Messages that a contestant is asked for in a round. */
  readonly messages: (contestant: Contestant) => number;
  /** Called before each contestant's turn, outside the measured time, to leave all of them the same conditions. */
  readonly prepare?: (contestant: Contestant) => void;
  readonly onRound?: (contestant: Contestant, round: number) => void;
  readonly onLap?: () => void;
}

/** Part of a round's messages that the warm-up handles. */
const WARMUP_SHARE = 0.5;

/**
 * Runs all contestants once to warm up and then round by round, so that whatever else the machine is doing hits all of
 * them alike. Every other round goes backwards: none of them always follows the same one.
 */
export async function interleave<C extends Contestant>(
  contestants: readonly C[],
  options: InterleaveOptions,
): Promise<Map<C, Timing>> {
  const states = contestants.map((contestant) => ({
    contestant,
    probe: new Probe(options.onLap),
    messages: 0,
    seconds: 0,
    rates: [] as number[],
  }));
  for (let round = 0; round <= options.rounds; round++) {
    const warmup = round === 0;
    for (const state of round % 2 === 0 ? states : [...states].reverse()) {
      options.onRound?.(state.contestant, round);
      const asked = options.messages(state.contestant) * (warmup ? WARMUP_SHARE : 1);
      options.prepare?.(state.contestant);
      state.probe.begin(options.roundLimitMs);
      const startedMs = performance.now();
      const done = await state.contestant.run(Math.max(1, Math.round(asked)), state.probe);
      const seconds = (performance.now() - startedMs) / 1000;
      if (warmup) {
        state.probe.reset();
      } else {
        state.messages += done;
        state.seconds += seconds;
        state.rates.push(done / seconds);
      }
      await state.contestant.settle?.();
    }
  }
  return new Map(states.map(({ contestant, ...timing }) => [contestant, timing]));
}

/** Round by round how many times as fast the first is as the second. */
export function ratios(fast: Timing, slow: Timing): number[] {
  return fast.rates.map((rate, round) => rate / (slow.rates[round] ?? Number.NaN));
}

/**
 * Keeps `loops` loops busy, each with one operation at a time, until `operations` are done or the time is over.
 * Resolves to the number of operations done. Only one operation in `every` is timed.
 */
export async function drive(
  loops: number,
  operations: number,
  every: number,
  probe: Probe,
  operation: (loop: number) => Promise<unknown>,
): Promise<number> {
  let left = operations;
  let stopped = false;
  const loop = async (index: number): Promise<void> => {
    try {
      while (left > 0 && !stopped) {
        left -= 1;
        if (left % every === 0) {
          const startedMs = performance.now();
          await operation(index);
          if (probe.lap(startedMs)) stopped = true;
        } else {
          await operation(index);
        }
      }
    } catch (error) {
      stopped = true;
      throw error;
    }
  };
  await Promise.all(Array.from({ length: Math.min(loops, operations) }, (_, index) => loop(index)));
  return operations - left;
}
