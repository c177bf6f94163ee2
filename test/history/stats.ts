/** Numbers of queues, against what clients know: bounds that hold whatever was under way. */

import type { Report } from "./anomalies.js";
import type { LogFacts, TaskFacts } from "./facts.js";
import type { KnownLog } from "./logs.js";
import { countBelow, LargestBefore, sorted } from "./search.js";

type Numbers = Readonly<Record<string, number | null>>;

/** Anything that is not a number of something, or of milliseconds. */
function strange(stats: Numbers): string | undefined {
  for (const [name, value] of Object.entries(stats)) {
    // JSON knows neither NaN nor Infinity.
    if (value === null || value < 0) return `${name} is ${value}`;
  }
  return undefined;
}

/** Payloads that can have been there by a time, and that were told to be by a time. */
class Counts {
  readonly #sent: readonly number[];
  readonly #told: readonly number[];

  constructor({ sent }: LogFacts | TaskFacts) {
    const all = [...sent.values()].filter(({ stoodFor }) => !stoodFor);
    const possible = all.filter(({ commit }) => commit.call.outcome !== "refused");
    this.#sent = sorted(possible.map(({ commit }) => commit.call.invoke));
    const sure = all.filter(({ commit, optional }) => commit.call.outcome === "ok" && !optional);
    this.#told = sorted(sure.map(({ commit }) => commit.call.return));
  }

  most(time: number): number {
    return countBelow(this.#sent, time);
  }

  least(time: number): number {
    return countBelow(this.#told, time);
  }
}

export function judgeLogStats(log: KnownLog, report: Report): void {
  const { facts } = log;
  const counts = new Counts(facts);
  const earlier = new LargestBefore(facts.stats.map(({ return: at, stats }) => [at, stats?.next ?? 0]));
  for (const { stats, invoke, return: at } of facts.stats) {
    if (stats === undefined) continue;
    const { head, next, count } = stats as Record<string, number | undefined>;
    const wrong = ((): string | undefined => {
      const odd = strange(stats);
      if (odd !== undefined) return odd;
      if (head === undefined || next === undefined || count === undefined) return undefined;
      if (head > next || count > next - head) return `${count} records from ${head} up to ${next}`;
      if (count > counts.most(at)) return `${count} records, and only ${counts.most(at)} were sent`;
      const known = log.end.before(invoke, -1) + 1;
      if (next < known) return `the next offset is ${next}, and ${known - 1} was there`;
      if (next < earlier.before(invoke, 0)) return `the next offset is ${next}, and was ${earlier.before(invoke, 0)}`;
      const trimmed = log.trims.before(at, 0);
      if (head > trimmed) return `it begins at ${head}, and nothing from ${trimmed} on was removed`;
      return undefined;
    })();
    if (wrong !== undefined) report("absurd-stats", at, `${facts.name}: ${wrong}`);
  }
}

export function judgeTaskStats(queue: TaskFacts, report: Report): void {
  const counts = new Counts(queue);
  const acks: number[] = [];
  for (const { deliveries } of queue.sent.values()) {
    let first = Number.POSITIVE_INFINITY;
    for (const { settles } of deliveries) {
      for (const { kind, call } of settles) {
        if (kind === "ack" && call.outcome !== "refused") first = Math.min(first, call.invoke);
      }
    }
    if (first < Number.POSITIVE_INFINITY) acks.push(first);
  }
  acks.sort((a, b) => a - b);
  for (const { stats, invoke, return: at } of queue.stats) {
    if (stats === undefined) continue;
    const odd = strange(stats);
    if (odd !== undefined) {
      report("absurd-stats", at, `${queue.name}: ${odd}`);
      continue;
    }
    const { ready = 0, scheduled = 0, leased = 0, blocked = 0, dead = 0 } = stats as Record<string, number | undefined>;
    const there = ready + scheduled + leased + blocked + dead;
    const most = counts.most(at);
    const least = counts.least(invoke) - countBelow(acks, at);
    if (there > most) report("absurd-stats", at, `${queue.name}: ${there} tasks, and only ${most} were sent`);
    if (there < least) report("absurd-stats", at, `${queue.name}: ${there} tasks, and at least ${least} are not done`);
  }
}
