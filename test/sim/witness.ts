import type { Engine } from "../../src/engine/engine.js";
import type { QueueState } from "../../src/engine/queue-state.js";
import { Outstanding, TaskPhase } from "../../src/queues/ledger.js";
import { LogState } from "../../src/queues/log-state.js";
import { TaskState } from "../../src/queues/task-state.js";
import type { Stream } from "../../src/storage/stream.js";

/**
 * Watches an engine from inside and keeps what its state was after every entry of the log. What a recovery finds must be
 * one of these: commits 1 to k, for one k, over all queues.
 */
export class Witness {
  /** Queue id -> its states, by the log sequence number that made them. */
  readonly #states = new Map<number, { lsn: number; state: string }[]>();
  #lsn = 0;
  /** Entries of this life, and up to where each says that the log was durable. */
  #vouchers: { readonly lsn: number; readonly watermark: number }[] = [];

  /** Another that knows what this one knows. */
  clone(): Witness {
    const copy = new Witness();
    for (const [id, states] of this.#states) copy.#states.set(id, states);
    copy.#lsn = this.#lsn;
    copy.#vouchers = this.#vouchers;
    return copy;
  }

  /** Starts to watch an engine that has just been opened; what it holds now is what was recovered. */
  watch(engine: Engine): void {
    this.#states.clear();
    this.#lsn = -1;
    this.#vouchers = [];
    for (const entry of engine.catalog.entries) engine.catalog.load(entry);
    this.#note(engine);
    const flush = engine.flush.bind(engine);
    engine.flush = () => {
      const { lsn, durableLsn: watermark } = engine;
      flush();
      if (engine.lsn > lsn) this.#vouchers.push({ lsn: engine.lsn, watermark });
      this.#note(engine);
    };
    // What is woken after an entry may stage the next one at once; the state in between is the one that counts.
    const wake = engine.wake.bind(engine);
    engine.wake = (callback) => {
      wake(() => {
        this.#note(engine);
        callback();
      });
    };
  }

  /** The entry up to which the log must be read back, or be called damaged, if all entries up to `lsn` are there but one. */
  vouchedLsn(lsn: number): number {
    return Math.max(0, ...this.#vouchers.filter((each) => each.lsn <= lsn).map((each) => each.watermark));
  }

  /**
   * The states as of an entry which a recovered engine does not have, in words.
   * @param damaged the queue may be passed over because it is known to be damaged
   */
  differences(engine: Engine, damaged: (error: unknown) => boolean = () => false): string[] {
    const differences: string[] = [];
    if (engine.lsn > this.#lsn) return [];
    for (const [id, states] of this.#states) {
      const expected = states.findLast((each) => each.lsn <= engine.lsn)?.state;
      const entry = engine.catalog.byId(id);
      let state: string | undefined;
      try {
        state = entry === undefined ? undefined : describe(engine.catalog.load(entry));
      } catch (error) {
        if (!damaged(error)) throw error;
        continue;
      }
      if (state !== expected) {
        differences.push(`queue ${id} ${entry?.name} at entry ${engine.lsn}:\n  was ${expected}\n  is  ${state}`);
      }
    }
    return differences;
  }

  #note(engine: Engine): void {
    if (engine.lsn === this.#lsn) return;
    this.#lsn = engine.lsn;
    for (const queue of engine.catalog.loaded()) {
      const state = describe(queue);
      const states = this.#states.get(queue.id);
      if (states === undefined) this.#states.set(queue.id, [{ lsn: engine.lsn, state }]);
      else if (states[states.length - 1]!.state !== state) states.push({ lsn: engine.lsn, state });
    }
  }
}

/** A queue's state in words, without what passes by itself as time does. */
export function describe(queue: QueueState): string {
  if (queue instanceof LogState) return `log ${queue.stream.head}..${end(queue.stream)}`;
  if (!(queue instanceof TaskState)) throw new Error(`queue ${queue.name} is of no known kind`);
  const { ledger, tasks, deadTasks, exhumed, config, scheduled } = queue;
  // That a task has become ready is not logged: it follows from the clock.
  const waiting: Outstanding[] = [];
  for (let offset = tasks.head; offset < end(tasks); offset++) {
    if (scheduled.has(0, offset))
      waiting.push(Object.assign(new Outstanding(ledger, offset), { phase: TaskPhase.Waiting }));
  }
  const outstanding = [...ledger.outstanding.values(), ...waiting]
    .sort((a, b) => a.offset - b.offset)
    .map((task) => {
      const failures = task.failures?.length ?? 0;
      const lease = task.phase === TaskPhase.Leased ? `leased ${task.tokenHigh}.${task.tokenLow} until ${task.at}` : "";
      return `${task.offset}:${task.attempt}/${task.limit}-${failures} ${lease}`;
    });
  const dead = `${deadTasks.head}..${end(deadTasks)} without ${[...exhumed].sort((a, b) => a - b).join()}`;
  const rules = `${config.leaseMs} ${config.maxAttempts} ${JSON.stringify(config.backoff)}`;
  const cursor = tasks.skipGaps(ledger.cursor) >= tasks.next ? end(tasks) : ledger.cursor;
  const done = [...ledger.ahead].filter((offset) => !ledger.outstanding.has(offset)).sort((a, b) => a - b);
  return `task ${cursor} of ${end(tasks)} without ${done}, ${outstanding.join("; ")}, dead ${dead}, ${rules}`;
}

/** Where a stream ends, without offsets that were passed over since. */
function end(stream: Stream): number {
  let { next } = stream;
  for (const gap of stream.gaps.toReversed()) if (gap.to === next) next = gap.from;
  return next;
}
