import type { Engine } from "../../src/engine/engine.js";
import type { QueueState } from "../../src/engine/queue-state.js";
import { offsetsToSkip } from "../../src/engine/recovery.js";
import { Wake } from "../../src/engine/wake.js";
import type { Consumer } from "../../src/queues/consumer.js";
import { GroupType } from "../../src/queues/group.js";
import type { Lane } from "../../src/queues/lane.js";
import { mergeReturned, Outstanding, TaskPhase } from "../../src/queues/ledger.js";
import { LogState } from "../../src/queues/log-state.js";
import type { Scheduled } from "../../src/queues/scheduled.js";
import { TaskState } from "../../src/queues/task-state.js";
import { Encoder } from "../../src/storage/bytes.js";
import type { Stream } from "../../src/storage/stream.js";

/** No run goes on for so long. */
const LONG_MS = 100_000_000;
/** Stands for the requests that are remembered; no queue has this id. */
const REQUESTS = 0;
/** The state of a queue that is not there: not made yet, or deleted. */
const GONE = "not there";
/** Offsets that an engine passes over when it may have lost some, with log files as small as those of a run. */
const PASSED_OVER = offsetsToSkip(256 * 1024);

/** Stream id -> where it ended. */
type Ends = ReadonlyMap<number, number>;
const NO_ENDS: Ends = new Map();

/** A queue as of the entry that made it so, and of all that follow until the next. */
interface StateAt {
  readonly lsn: number;
  readonly state: string;
  readonly ends: Ends;
}

/**
 * Watches an engine from inside and keeps what its state was after every entry of the log. What a recovery finds must be
 * one of these: commits 1 to k, for one k, over all queues.
 */
export class Witness {
  /** Queue id -> its states, by the log sequence number that made them. */
  readonly #states = new Map<number, StateAt[]>();
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
    const noting = new Map<Wake, Wake>();
    engine.wake = (woken) => {
      const noted =
        noting.get(woken) ??
        new Wake(() => {
          this.#note(engine);
          woken.callback();
        });
      noting.set(woken, noted);
      wake(noted);
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
      const before = states.findLast((each) => each.lsn <= engine.lsn);
      const expected = before?.state;
      const entry = engine.catalog.byId(id);
      let state: string | undefined;
      try {
        if (id === REQUESTS) state = encoded(engine.catalog.requests);
        else state = entry === undefined ? GONE : describe(engine.catalog.load(entry), before?.ends);
      } catch (error) {
        if (!damaged(error)) throw error;
        continue;
      }
      if (state !== (expected ?? GONE)) {
        const what = id === REQUESTS ? "requests" : `queue ${id} ${entry?.name}`;
        differences.push(`${what} at entry ${engine.lsn}:\n  was ${expected}\n  is  ${state}`);
      }
    }
    return differences;
  }

  #note(engine: Engine): void {
    if (engine.lsn === this.#lsn) return;
    this.#lsn = engine.lsn;
    for (const [id, states] of this.#states) {
      if (id === REQUESTS || engine.catalog.byId(id) !== undefined || states.at(-1)!.state === GONE) continue;
      states.push({ lsn: engine.lsn, state: GONE, ends: NO_ENDS });
    }
    for (const queue of engine.catalog.loaded()) {
      this.#noteState(queue.id, engine.lsn, describe(queue), () => {
        return new Map(queue.streams.map(({ id, next }) => [id, next]));
      });
    }
    this.#noteState(REQUESTS, engine.lsn, encoded(engine.catalog.requests), () => NO_ENDS);
  }

  #noteState(id: number, lsn: number, state: string, ends: () => typeof NO_ENDS): void {
    const states = this.#states.get(id);
    if (states?.at(-1)?.state === state) return;
    const at = { lsn, state, ends: ends() };
    if (states === undefined) this.#states.set(id, [at]);
    else states.push(at);
  }
}

/**
 * A queue's state in words, without what passes by itself as time does.
 * @param ends where its streams ended before a recovery that may have passed over offsets
 */
function describe(queue: QueueState, ends: Ends = NO_ENDS): string {
  if (queue instanceof LogState) return describeLog(queue, ends);
  if (!(queue instanceof TaskState)) throw new Error(`queue ${queue.name} is of no known kind`);
  const { consumer, scheduled, config, recurrence } = queue;
  const cursors = [...queue.cursors.byName.values()].map((cursor) => {
    return `${cursor.number} ${cursor.cursorName} ${describeConsumer(cursor.consumer, ends)}`;
  });
  const parts = [
    describeConsumer(consumer, ends, [], scheduled),
    JSON.stringify(config),
    `cursors ${cursors.join("; ")}`,
  ];
  // Keys that stand for nothing any more go when there is a reason to look.
  const keys = config.dedupe.windowMs < LONG_MS ? "pass" : encoded(queue.dedupe);
  const others = `flows ${encoded(queue.flows)}, outcomes ${encoded(queue.outcomes)}`;
  return `task ${parts.join(", ")}, schedules ${encoded(recurrence.table)}, keys ${keys}, ${others}`;
}

function describeLog({ stream, groups, config }: LogState, ends: Ends): string {
  const all = [...groups.values()].map((group) => {
    const { groupId, name } = group;
    if (group.type === GroupType.exclusive) return `${groupId} ${name} ${encoded(group)}`;
    const { consumer, rules } = group;
    const { ledger } = consumer.lane(0);
    const goes = [...ledger.outstanding].filter((task) => task.offset < stream.head && isBack(task, consumer));
    const lost = group.lost + goes.length;
    return `${groupId} ${name} lost ${lost}, ${describeConsumer(consumer, ends, goes)}, ${JSON.stringify(rules)}`;
  });
  return `log ${stream.head}..${endIn(ends, stream)}, ${JSON.stringify(config)}, groups ${all.join("; ")}`;
}

/** @param gone what is lost with the end of the sessions that hold it */
function describeConsumer(
  consumer: Consumer,
  ends: Ends,
  gone: readonly Outstanding[] = [],
  scheduled?: Scheduled,
): string {
  const { lanes, dead } = consumer;
  const letters = dead.stream === undefined ? "none" : `${dead.stream.head}..${endIn(ends, dead.stream)}`;
  const exhumed = sorted(dead.exhumed).join();
  const each = lanes.map((lane) => describeLane(lane, consumer, ends, gone, scheduled));
  return `${each.join(" | ")}, dead ${letters} without ${exhumed}`;
}

function describeLane(
  { number, stream, ledger }: Lane,
  consumer: Consumer,
  ends: Ends,
  gone: readonly Outstanding[],
  scheduled: Scheduled | undefined,
): string {
  const tasks = [...ledger.outstanding].filter((task) => !gone.includes(task));
  // That a task has become ready is not logged: it follows from the clock.
  const from = Math.max(stream.head, scheduled?.lowest(number) ?? Number.POSITIVE_INFINITY);
  for (let offset = stream.skipGaps(from); offset < stream.next; offset = stream.skipGaps(offset + 1)) {
    if (scheduled?.has(number, offset) !== true) continue;
    tasks.push(Object.assign(new Outstanding(ledger, offset), { phase: TaskPhase.Waiting }));
  }
  tasks.sort((a, b) => a.offset - b.offset);
  const isLeased = (task: Outstanding) => task.phase === TaskPhase.Leased && !isBack(task, consumer);
  const endOf = (task: Outstanding) => (consumer.isExhausted(task) ? "its end" : task.at);
  const outstanding = tasks.map((task) => {
    const failures = task.failures?.length ?? 0;
    const lease = isLeased(task) ? `leased ${task.tokenHigh}.${task.tokenLow} until ${endOf(task)}` : "";
    return `${task.offset}:${task.attempt}/${task.limit}-${failures} ${lease}`;
  });
  // What sessions hold comes back with the end of this life.
  const sessions = tasks.filter((task) => task.phase === TaskPhase.Leased && !isLeased(task));
  const back = mergeReturned(ledger.returned, sessions).map(({ offset }) => offset);
  const end = endIn(ends, stream);
  const cursor = Math.min(ledger.cursor, end);
  const isThere = (offset: number) => ledger.outstanding.has(offset) || scheduled?.has(number, offset) === true;
  const done = sorted([...ledger.ahead].filter((offset) => !isThere(offset)));
  return `${number}: ${cursor} of ${end} without ${done}, ${outstanding.join("; ")}, first ${back}`;
}

/** A session's end gives back what may be delivered again; the lease of what may not is up at once. */
function isBack(task: Outstanding, consumer: Consumer): boolean {
  return task.phase === TaskPhase.Leased && task.at === Number.POSITIVE_INFINITY && !consumer.isExhausted(task);
}

function encoded(state: { encode(output: Encoder): void }): string {
  const output = new Encoder(64);
  state.encode(output);
  return output.buffer.toString("hex", 0, output.position);
}

function sorted(numbers: Iterable<number>): number[] {
  return [...numbers].sort((a, b) => a - b);
}

/** Where a stream ended at an earlier time, if nothing has come since but offsets that were passed over; else where it ends. */
function endIn(ends: Ends, stream: Stream): number {
  const { id, next } = stream;
  const before = ends.get(id) ?? next;
  const passedOver = (next - before) % PASSED_OVER === 0 && stream.skipGaps(before) === next;
  return passedOver ? before : next;
}
