/**
 * A task queue: a stream of tasks, the ledger of its receivers, and a stream of dead letters.
 *
 * Every change is one operation of a commit. It is staged (checked, and what it touches reserved), logged, and only
 * then applied; `replay` repeats exactly what `apply` did.
 *
 *   op            fields                                                         effect
 *   Configure     JSON                                                           the queue's rules
 *   Schedule      n { offset, delay, wall clock due (0: relative) }              new tasks wait for their time
 *   Deliver       lease, n { offset, attempt, limit, token high, low }           handed out
 *   Ack           n { offset }                                                   done
 *   Release       offset, delay, error                                           failed: waits, then ready again
 *   Extend        offset, lease                                                  the lease ends later
 *   Bury          offset                                                         done here; its dead letter is in the same commit
 *   Exhume        n { dead offset }                                              dead letters gone: redriven in the same commit, or purged
 *   Purge         dead offset                                                    all dead letters below are gone
 */

import type { Durability, TaskStats } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import type { TaskConfig } from "../api/options.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import type { Operation } from "../engine/operation.js";
import { FIRST_QUEUE_OP, type LogTime, type QueueState } from "../engine/queue-state.js";
import { type RecordCursor, type RecordParts, recordBytesMax } from "../storage/batch.js";
import { type Decoder, type Encoder, MalformedError, VARINT_BYTES_MAX } from "../storage/bytes.js";
import type { Timer } from "../storage/clock.js";
import { isNoDescriptor } from "../storage/disk.js";
import type { Stream } from "../storage/stream.js";
import { StreamReader } from "../storage/stream-reader.js";
import { FAILURES_MAX, Ledger, Outstanding, TaskPhase } from "./ledger.js";
import { decodeTaskAttributes, encodeTaskAttributes, type TaskAttributes } from "./task-record.js";
import { LeasedTask, type TaskToken } from "./task-token.js";

/** On disk: append, never renumber. */
export const TaskOp = {
  Configure: FIRST_QUEUE_OP,
  Schedule: FIRST_QUEUE_OP + 1,
  Deliver: FIRST_QUEUE_OP + 2,
  Ack: FIRST_QUEUE_OP + 3,
  Release: FIRST_QUEUE_OP + 4,
  Extend: FIRST_QUEUE_OP + 5,
  Bury: FIRST_QUEUE_OP + 6,
  Exhume: FIRST_QUEUE_OP + 7,
  Purge: FIRST_QUEUE_OP + 8,
} as const;

const LEASE_EXPIRED = "lease expired";
/** A wall clock that may be set is looked at this often while tasks wait for it. */
const WALL_CHECK_MS = 1000;
const DELIVERY_BYTES_MAX = 3 * VARINT_BYTES_MAX + 8;
/** A release with an error text of 1 KiB. */
export const RELEASE_BYTES_MAX = OPERATION_HEADER_BYTES + 3 * VARINT_BYTES_MAX + 1024;
export const SETTLE_BYTES_MAX = OPERATION_HEADER_BYTES + 3 * VARINT_BYTES_MAX;

/** Why a task is a dead letter, as its reason begins. */
export type DeathCause = "attempts exhausted" | "discarded";

/** Someone who wants tasks. */
export interface Receiver {
  readonly max: number;
  readonly leaseMs: number;
  readonly durability: Durability;
  /** Goes on waiting while there is nothing. */
  readonly waits: boolean;
  resolve(tasks: LeasedTask[]): void;
  reject(error: Error): void;
}

export class TaskState implements QueueState {
  readonly kind = 2;
  readonly id: number;
  readonly name: string;
  readonly streams: readonly Stream[];
  readonly tasks: Stream;
  readonly deadTasks: Stream;
  readonly ledger: Ledger;
  /** Dead letters above the head of their stream that are gone. */
  readonly exhumed: Set<number>;
  config: TaskConfig;

  #engine!: Engine;
  #reader: StreamReader | undefined;
  /** For tasks that are delivered again, which stand anywhere. */
  #againReader: StreamReader | undefined;
  /** Behind the last task taken from the cursor; what is between is in an operation that is not yet in the log. */
  #taken = 0;
  readonly #receivers = new Set<Receiver>();
  #loading = false;
  /** The task whose time of enqueue was asked for last. */
  #looked = { offset: -1, timestamp: 0 };
  #exclusive: Promise<unknown> = Promise.resolve();
  #timer: Timer | undefined;
  #timerAt = Number.POSITIVE_INFINITY;
  readonly #serve = () => this.#serveReceivers();

  private constructor(
    id: number,
    name: string,
    streams: Stream[],
    config: TaskConfig,
    ledger: Ledger,
    exhumed: Set<number>,
  ) {
    this.id = id;
    this.name = name;
    this.streams = streams;
    this.tasks = streams[0]!;
    this.deadTasks = streams[1]!;
    this.config = config;
    this.ledger = ledger;
    this.exhumed = exhumed;
    this.tasks.isNeeded = (from, to) => this.ledger.hasUndone(from, to);
  }

  static create(id: number, name: string, streams: Stream[], config: Buffer): TaskState {
    return new TaskState(id, name, streams, parseConfig(config.toString("utf8")), new Ledger(0), new Set());
  }

  static restore(id: number, name: string, streams: Stream[], input: Decoder): TaskState {
    const config = parseConfig(input.string());
    const ledger = Ledger.decode(input);
    const exhumed = new Set<number>();
    for (let count = input.varint(); count > 0; count--) exhumed.add(input.varint());
    return new TaskState(id, name, streams, config, ledger, exhumed);
  }

  /** Connects the state to the engine that it lives in. Further calls do nothing. */
  attach(engine: Engine): void {
    if (this.#engine !== undefined) return;
    this.#engine = engine;
    this.#reader = new StreamReader(this.tasks, engine, this.ledger.cursor);
    this.#againReader = new StreamReader(this.tasks, engine, this.ledger.cursor);
    this.#onTime();
  }

  // ---------------------------------------------------------------------------------------------------- for the engine

  get count(): number {
    return this.ready + this.ledger.waiting + this.ledger.leased.size;
  }

  encode(output: Encoder): void {
    output.string(JSON.stringify(this.config));
    this.ledger.encode(output);
    output.varint(this.exhumed.size);
    for (const offset of this.exhumed) output.varint(offset);
  }

  addStream(stream: Stream): void {
    throw new MalformedError(`a task queue has no stream ${stream.folder}`);
  }

  neededFrom(stream: Stream): number {
    return stream === this.tasks ? this.ledger.lowest : stream.head;
  }

  resume(last: LogTime, now: LogTime): void {
    this.ledger.resume(last.elapsedMs, now.wallMs);
  }

  close(error: Error): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    for (const receiver of this.#receivers) receiver.reject(error);
    this.#receivers.clear();
  }

  replay(code: number, input: Decoder, time: LogTime): void {
    const { ledger } = this;
    if (code === TaskOp.Deliver) {
      const leaseMs = input.varint();
      for (let count = input.varint(); count > 0; count--) {
        const offset = input.varint();
        const task = ledger.outstanding.get(offset) ?? new Outstanding(offset);
        task.attempt = input.varint();
        task.limit = input.varint();
        task.tokenHigh = input.u32();
        task.tokenLow = input.u32();
        ledger.deliver(task, time.elapsedMs, leaseMs);
      }
    } else if (code === TaskOp.Ack) {
      for (let count = input.varint(); count > 0; count--) ledger.finish(this.#outstanding(input.varint()));
    } else if (code === TaskOp.Release) {
      const task = this.#outstanding(input.varint());
      const delayMs = input.varint();
      this.#release(task, delayMs, input.string(), time);
    } else if (code === TaskOp.Extend) {
      const task = this.#outstanding(input.varint());
      ledger.extend(task, time.elapsedMs + input.varint());
    } else if (code === TaskOp.Bury) {
      ledger.finish(this.#outstanding(input.varint()));
    } else if (code === TaskOp.Schedule) {
      for (let count = input.varint(); count > 0; count--) {
        const offset = input.varint();
        const delayMs = input.varint();
        this.schedule(offset, delayMs, input.varint(), time);
      }
    } else if (code === TaskOp.Exhume) {
      for (let count = input.varint(); count > 0; count--) this.exhumed.add(input.varint());
      this.#trimDead();
    } else if (code === TaskOp.Purge) {
      this.purgeBelow(input.varint());
    } else if (code === TaskOp.Configure) {
      this.config = parseConfig(input.string());
    } else {
      throw new MalformedError(`operation ${code} of a task queue is not known`);
    }
  }

  #outstanding(offset: number): Outstanding {
    const task = this.ledger.outstanding.get(offset);
    if (task === undefined) throw new MalformedError(`task ${offset} of queue ${this.name} is not outstanding`);
    return task;
  }

  // --------------------------------------------------------------------------------------------------- applied changes

  schedule(offset: number, delayMs: number, wallDueMs: number, time: LogTime): void {
    if (wallDueMs > 0) this.ledger.schedule(offset, wallDueMs, true, wallDueMs);
    else this.ledger.schedule(offset, time.elapsedMs + delayMs, false, time.wallMs + delayMs);
  }

  /** After live scheduling: the timer may have to go off earlier. */
  scheduleChanged(): void {
    this.#arm();
  }

  #release(task: Outstanding, delayMs: number, error: string, time: LogTime): void {
    task.addFailure({ attempt: task.attempt, at: time.wallMs, error });
    this.ledger.release(task, time.elapsedMs, time.wallMs, delayMs);
  }

  /** Runs redrives and purges one after another: each must see what the one before it left. */
  exclusively<T>(run: () => Promise<T>): Promise<T> {
    const result = this.#exclusive.then(run, run);
    this.#exclusive = result;
    return result;
  }

  exhume(offsets: readonly number[]): void {
    for (const offset of offsets) this.exhumed.add(offset);
    this.#trimDead();
  }

  purgeBelow(offset: number): void {
    this.deadTasks.trimTo(offset);
    for (const each of this.exhumed) if (each < offset) this.exhumed.delete(each);
    this.#trimDead();
  }

  /** Lets go of the beginning of the dead letters once all of it is gone. */
  #trimDead(): void {
    let { head } = this.deadTasks;
    head = this.deadTasks.skipGaps(head);
    while (this.exhumed.delete(head)) head = this.deadTasks.skipGaps(head + 1);
    this.deadTasks.trimTo(Math.min(head, this.deadTasks.next));
  }

  // ------------------------------------------------------------------------------------------------------- receiving

  /** Hands tasks to a receiver, now or when there are some. */
  receive(receiver: Receiver): void {
    if (this.#receivers.size === 0 && !this.#loading) {
      const outcome = this.#deliverTo(receiver);
      if (outcome === "delivered") return;
      if (outcome === "none" && !receiver.waits) {
        receiver.resolve([]);
        return;
      }
    }
    this.#receivers.add(receiver);
  }

  /** Ends a receiver's wait without a task, unless one is on its way to it. */
  forget(receiver: Receiver): void {
    if (this.#receivers.delete(receiver)) receiver.resolve([]);
  }

  /** Called when there may be something for those who wait. */
  wakeReceivers(): void {
    this.#engine.wake(this.#serve);
  }

  #serveReceivers(): void {
    for (const receiver of this.#receivers) {
      if (this.#loading) return;
      let outcome: "delivered" | "none" | "load";
      try {
        outcome = this.#deliverTo(receiver);
      } catch (error) {
        this.#receivers.delete(receiver);
        receiver.reject(error as Error);
        continue;
      }
      if (outcome === "delivered") {
        this.#receivers.delete(receiver);
      } else if (outcome === "none" && !receiver.waits) {
        this.#receivers.delete(receiver);
        receiver.resolve([]);
      } else {
        if (outcome === "load") return;
        // Nothing for this one, so nothing for those behind it, but they may not want to wait.
      }
    }
  }

  /** Stages the delivery of what is ready and in memory, at most what the receiver wants. */
  #deliverTo(receiver: Receiver): "delivered" | "none" | "load" {
    if (this.ready === 0) return "none";
    const engine = this.#engine;
    const max = Math.min(receiver.max, this.ready);
    engine.begin(0, 0, OPERATION_HEADER_BYTES + 2 * VARINT_BYTES_MAX + max * DELIVERY_BYTES_MAX, true);
    const tasks: LeasedTask[] = [];
    const outcome = this.#claim(max, tasks);
    if (tasks.length === 0) return outcome;
    const output = engine.operation(TaskOp.Deliver, this.id);
    output.varint(receiver.leaseMs);
    output.varint(tasks.length);
    let highest = 0;
    for (const { task } of tasks) {
      output.varint(task.offset);
      output.varint(task.attempt);
      output.varint(task.limit);
      output.u32(task.tokenHigh);
      output.u32(task.tokenLow);
      if (task.offset > highest) highest = task.offset;
    }
    engine.endOperation();
    // What is not yet visible in the directory's mode is not shown by way of a delivery either.
    const durability = highest >= this.tasks.visible ? engine.options.durability : receiver.durability;
    engine.add(new Delivery(this, tasks, receiver, durability));
    return "delivered";
  }

  /** Takes ready tasks: those delivered before first, then from the cursor on. */
  #claim(max: number, into: LeasedTask[]): "none" | "load" {
    const { ledger } = this;
    while (into.length < max && ledger.ready.size > 0) {
      const task = ledger.ready.values().next().value!;
      const reader = this.#againReader!;
      reader.seek(task.offset);
      let found: "record" | "end" | "load";
      try {
        found = reader.next(task.offset + 1);
        if (found === "end") throw this.#missing(task.offset);
      } catch (error) {
        if (into.length > 0) return "none"; // those come first; the error is met again
        this.#setAside(task, error as Error);
        throw error;
      }
      if (found === "load") return this.#load(reader, into, task);
      ledger.ready.delete(task);
      into.push(this.#claimed(task, reader.record, decodeTaskAttributes(reader.record.attributes())));
    }
    const reader = this.#reader!;
    if (this.#taken < ledger.cursor) this.#taken = ledger.cursor;
    while (into.length < max) {
      reader.seek(this.#taken);
      let found: "record" | "end" | "load";
      try {
        found = reader.next(this.tasks.next);
      } catch (error) {
        if (into.length > 0) return "none";
        this.#passDamage(error);
        throw error;
      }
      if (found === "load") return this.#load(reader, into, undefined);
      if (found === "end") break;
      const { record } = reader;
      const { offset } = record;
      this.#taken = offset + 1;
      if (ledger.ahead.has(offset)) continue;
      const task = new Outstanding(offset);
      const attributes = decodeTaskAttributes(record.attributes());
      task.limit = attributes.limit;
      into.push(this.#claimed(task, record, attributes));
    }
    return "none";
  }

  #claimed(task: Outstanding, record: RecordCursor, { origin }: TaskAttributes): LeasedTask {
    const { random } = this.#engine;
    task.reserved = true;
    task.attempt++;
    task.tokenHigh = random.uint32();
    task.tokenLow = random.uint32();
    return new LeasedTask(this, task, record, origin);
  }

  /** Fetches what a reader needs from disk, then serves again. `again` is the task that it is for, if delivered before. */
  #load(reader: StreamReader, claimed: readonly LeasedTask[], again: Outstanding | undefined): "load" {
    // With tasks in hand there is no hurry, except to read on.
    if (this.#loading || (claimed.length > 0 && again !== undefined)) return "load";
    this.#loading = true;
    reader.load().then(
      () => {
        this.#loading = false;
        this.#serveReceivers();
      },
      (error: Error) => {
        this.#loading = false;
        // One receiver is told of damage; the next ones get what stands behind it.
        const [receiver] = this.#receivers;
        if (receiver !== undefined) {
          this.#receivers.delete(receiver);
          receiver.reject(error);
        }
        if (again !== undefined) this.#setAside(again, error);
        else this.#passDamage(error);
        this.#serveReceivers();
      },
    );
    return "load";
  }

  /** A task whose record cannot be read must not stand in the way of others: it waits. */
  #setAside(task: Outstanding, error: Error): void {
    if (this.ledger.outstanding.get(task.offset) !== task || task.reserved) return;
    // Want of a file descriptor says nothing about the task.
    if (isNoDescriptor(error.cause)) return;
    this.ledger.ready.delete(task);
    task.reserved = true;
    this.#engine.logger.error({ queue: this.name, task: task.offset, error }, "a task cannot be read");
    const delayMs = Math.max(WALL_CHECK_MS, this.config.backoff.maxMs);
    const reason = `cannot be read: ${error.message}`.slice(0, 256);
    if (!this.#stageReleaseOf(task, delayMs, reason)) this.ledger.ready.add(task);
  }

  #passDamage(error: unknown): void {
    if (!(error instanceof VarveError) || error.code !== "ERR_CORRUPT") return;
    const { to } = error.details;
    if (typeof to === "number" && to > this.#taken) this.#taken = to;
  }

  #missing(offset: number): VarveError {
    return new VarveError(
      "ERR_CORRUPT",
      `task ${offset} of queue ${this.name} is outstanding but its record is missing`,
      {
        details: { queue: this.name, from: offset, to: offset + 1 },
      },
    );
  }

  /** After a delivery has been logged. */
  delivered(tasks: readonly LeasedTask[], leaseMs: number): void {
    const { elapsedMs } = this.#engine.entryTime;
    for (const { task } of tasks) {
      task.reserved = false;
      this.ledger.deliver(task, elapsedMs, leaseMs);
    }
    this.#arm();
  }

  // -------------------------------------------------------------------------------------------------------- settling

  /** The task that a token proves the lease of, reserved for the caller. */
  claimLease(token: TaskToken): Outstanding {
    const task = this.ledger.outstanding.get(token.offset);
    if (task === undefined) throw staleLease(token, "it is settled already");
    const same = task.tokenHigh === token.high && task.tokenLow === token.low && task.attempt === token.attempt;
    if (!same || task.phase !== TaskPhase.Leased) {
      throw staleLease(
        token,
        "its lease ended, and the task was given to someone else or is waiting for its next delivery",
      );
    }
    if (task.reserved) throw staleLease(token, "another call is settling it already");
    task.reserved = true;
    return task;
  }

  stageAck(tasks: readonly Outstanding[]): void {
    const output = this.#engine.operation(TaskOp.Ack, this.id);
    output.varint(tasks.length);
    for (const task of tasks) output.varint(task.offset);
    this.#engine.endOperation();
  }

  acked(tasks: readonly Outstanding[]): void {
    for (const task of tasks) this.ledger.finish(task);
  }

  stageRelease(task: Outstanding, delayMs: number, error: string): void {
    const output = this.#engine.operation(TaskOp.Release, this.id);
    output.varint(task.offset);
    output.varint(delayMs);
    output.string(error);
    this.#engine.endOperation();
  }

  released(task: Outstanding, delayMs: number, error: string): void {
    task.reserved = false;
    this.#release(task, delayMs, error, this.#engine.entryTime);
    if (delayMs === 0) this.wakeReceivers();
    this.#arm();
  }

  stageExtend(task: Outstanding, leaseMs: number): void {
    const output = this.#engine.operation(TaskOp.Extend, this.id);
    output.varint(task.offset);
    output.varint(leaseMs);
    this.#engine.endOperation();
  }

  extended(task: Outstanding, leaseMs: number): void {
    task.reserved = false;
    this.ledger.extend(task, this.#engine.entryTime.elapsedMs + leaseMs);
    this.#arm();
  }

  stageBury(task: Outstanding, letter: RecordParts): void {
    this.#engine.append(this.deadTasks, letter);
    const output = this.#engine.operation(TaskOp.Bury, this.id);
    output.varint(task.offset);
    this.#engine.endOperation();
  }

  buried(task: Outstanding): void {
    this.ledger.finish(task);
  }

  /** Whether a task that fails now has had its last attempt. */
  isExhausted(task: Outstanding): boolean {
    const limit = task.limit === 0 ? this.config.maxAttempts : task.limit - 1;
    return limit > 0 && task.attempt >= limit;
  }

  /** Wait before the next attempt of a task that has just failed. */
  backoffMs(task: Outstanding): number {
    const { initialMs, maxMs, factor, jitter } = this.config.backoff;
    const wait = Math.min(maxMs, initialMs * factor ** (task.attempt - 1));
    const variation = 1 + jitter * ((2 * this.#engine.random.uint32()) / 2 ** 32 - 1);
    return Math.round(Math.min(maxMs, wait * variation));
  }

  /** The dead letter of a task, from its record: what it was, and why it died. */
  letterOf(task: Outstanding, error: string, cause: DeathCause): Promise<RecordParts> {
    return this.#atRecord(task.offset, (record) => this.#letter(task, record, error, cause));
  }

  #letter(task: Outstanding, record: RecordCursor, error: string, cause: DeathCause): RecordParts {
    const attributes = decodeTaskAttributes(record.attributes());
    const { wallMs } = this.#engine.time();
    const failures = [
      ...(attributes.failures ?? []),
      ...(task.failures ?? []),
      { attempt: task.attempt, at: wallMs, error },
    ];
    const death = {
      id: String(attributes.origin?.offset ?? task.offset),
      enqueuedAt: attributes.origin?.timestamp ?? record.timestamp,
      diedAt: wallMs,
      attempts: task.attempt,
      reason: `${cause}: ${error}`,
    };
    const kept: TaskAttributes = {
      limit: attributes.limit,
      failures: failures.slice(-FAILURES_MAX),
      death,
      origin: undefined,
    };
    const headers = record.headers();
    return { payload: record.payload(), key: record.key(), headers, attributes: encodeTaskAttributes(kept) };
  }

  /** When the task at an offset was enqueued: exactly, unless its record cannot be read. Looks only once for each. */
  async #timestampAt(offset: number): Promise<number> {
    if (this.#looked.offset === offset) return this.#looked.timestamp;
    let timestamp: number;
    try {
      timestamp = await this.#atRecord(offset, (record) => record.timestamp);
    } catch {
      timestamp = this.tasks.timestampAt(offset);
    }
    this.#looked = { offset, timestamp };
    return timestamp;
  }

  /** Has a record used in the turn in which it is found: the memory that it stands in may be taken away after that. */
  async #atRecord<T>(offset: number, use: (record: RecordCursor) => T): Promise<T> {
    const reader = new StreamReader(this.tasks, this.#engine, offset);
    for (;;) {
      const found = reader.next(offset + 1);
      if (found === "record" && reader.record.offset === offset) return use(reader.record);
      if (found === "end") throw this.#missing(offset);
      await reader.load();
    }
  }

  /** Moves a task, reserved by the caller, to the dead letters. Resolves when that is committed. */
  bury(
    task: Outstanding,
    error: string,
    durability: Durability,
    cause: DeathCause = "attempts exhausted",
  ): Promise<void> {
    return this.#engine.finishing(this.#bury(task, error, durability, cause));
  }

  async #bury(task: Outstanding, error: string, durability: Durability, cause: DeathCause): Promise<void> {
    const engine = this.#engine;
    let letter: RecordParts;
    try {
      letter = await this.letterOf(task, error, cause);
    } catch (failure) {
      task.reserved = false;
      throw failure;
    }
    await new Promise<void>((resolve, reject) => {
      try {
        engine.begin(recordBytesMax(letter), 1, SETTLE_BYTES_MAX, true);
        this.stageBury(task, letter);
      } catch (failure) {
        task.reserved = false;
        throw failure;
      }
      engine.add({
        durability,
        apply: () => this.buried(task),
        settle: resolve,
        fail: (failure) => {
          task.reserved = false;
          reject(failure);
        },
      });
    });
  }

  // ------------------------------------------------------------------------------------------------------------ time

  /** Sees to it that the timer goes off when the next lease ends or the next task is due. */
  #arm(notBefore = 0): void {
    const { byLease, byElapsed, byWall } = this.ledger;
    let at = Math.min(byLease.first?.at ?? Number.POSITIVE_INFINITY, byElapsed.first?.at ?? Number.POSITIVE_INFINITY);
    const engine = this.#engine;
    if (byWall.first !== undefined) {
      const wait = Math.min(WALL_CHECK_MS, Math.max(0, byWall.first.at - engine.clock.wallMs()));
      at = Math.min(at, engine.elapsedMs() + wait);
    }
    at = Math.max(at, notBefore);
    if (at >= this.#timerAt || engine.closed) return;
    this.#timer?.cancel();
    this.#timerAt = at;
    this.#timer = engine.clock.setTimer(Math.max(0, at - engine.elapsedMs()), () => {
      this.#timer = undefined;
      this.#timerAt = Number.POSITIVE_INFINITY;
      // If the event loop stood still, acks that arrived meanwhile are read before their leases are ended.
      engine.clock.defer(() => this.#onTime());
    });
  }

  #onTime(): void {
    const engine = this.#engine;
    if (engine.closed || engine.failure !== undefined) return;
    const now = engine.elapsedMs();
    this.ledger.ripen(now, engine.clock.wallMs());
    let ended = true;
    for (const task of this.ledger.expired(now)) ended = this.#expire(task) && ended;
    this.#serveReceivers();
    // What could not be ended, for want of disk space, is tried again, but not at once.
    this.#arm(ended ? 0 : now + WALL_CHECK_MS);
  }

  /** Ends a lease that is up. False if that cannot be logged now. */
  #expire(task: Outstanding): boolean {
    const engine = this.#engine;
    const durability = engine.options.durability;
    task.reserved = true;
    if (this.isExhausted(task)) {
      this.bury(task, LEASE_EXPIRED, durability).catch((error: Error) => this.#postpone(task, error));
      return true;
    }
    // It has waited for a whole lease; no further wait.
    return this.#stageReleaseOf(task, 0, LEASE_EXPIRED);
  }

  /** A task that cannot be moved to the dead letters stays, and is tried again later. */
  #postpone(task: Outstanding, error: Error): void {
    const engine = this.#engine;
    if (engine.closed || engine.failure !== undefined || task.phase !== TaskPhase.Leased) return;
    engine.logger.error(
      { queue: this.name, task: task.offset, error },
      "a dead task cannot be moved to the dead letters",
    );
    task.reserved = true;
    this.#stageReleaseOf(
      task,
      Math.max(WALL_CHECK_MS, this.config.backoff.maxMs),
      `cannot be buried: ${error.message}`.slice(0, 256),
    );
  }

  #stageReleaseOf(task: Outstanding, delayMs: number, error: string): boolean {
    const engine = this.#engine;
    try {
      engine.begin(0, 0, RELEASE_BYTES_MAX, true);
      this.stageRelease(task, delayMs, error);
    } catch (failure) {
      task.reserved = false;
      engine.logger.error({ queue: this.name, error: failure }, "an expired lease cannot be ended now");
      return false;
    }
    engine.add({
      durability: engine.options.durability,
      apply: () => this.released(task, delayMs, error),
      settle() {},
      fail() {
        task.reserved = false;
      },
    });
    return true;
  }

  // ----------------------------------------------------------------------------------------------------------- stats

  /** Tasks that could be delivered now. */
  get ready(): number {
    const { ledger, tasks } = this;
    const from = Math.max(ledger.cursor, this.#taken);
    const ahead = ledger.ahead.size - ledger.aheadBelow(from);
    return Math.max(0, tasks.recordsBetween(from, tasks.next) - ahead) + ledger.ready.size;
  }

  get deadCount(): number {
    const { head, visible } = this.deadTasks;
    return Math.max(0, this.deadTasks.recordsBetween(head, visible) - this.exhumed.size);
  }

  async stats(engine: Engine): Promise<TaskStats> {
    const { ledger, tasks, deadTasks } = this;
    const elapsed = engine.elapsedMs();
    const wall = engine.clock.wallMs();
    ledger.ripen(elapsed, wall);
    const ready = this.ready;
    const [again] = ledger.ready;
    const [longest] = ledger.leased;
    const dues: number[] = [];
    if (ledger.byElapsed.first !== undefined) dues.push(ledger.byElapsed.first.at - elapsed);
    if (ledger.byWall.first !== undefined) dues.push(ledger.byWall.first.at - wall);
    const dead = this.deadCount;
    const stats = {
      kind: "task" as const,
      name: this.name,
      ready,
      scheduled: ledger.waiting,
      leased: ledger.leased.size,
      dead,
      oldestLeaseAge: longest === undefined ? 0 : Math.max(0, Math.round(elapsed - longest.since)),
      nextDueIn: dues.length === 0 ? undefined : Math.max(0, Math.ceil(Math.min(...dues))),
      oldestDeadAge: dead === 0 ? 0 : Math.max(0, wall - deadTasks.timestampAt(deadTasks.head)),
      waiters: this.#receivers.size,
      bytes: tasks.bytes + deadTasks.bytes,
    };
    let oldestReadyAge = again === undefined ? 0 : elapsed - again.since;
    if (ready > ledger.ready.size) {
      let offset = tasks.skipGaps(Math.max(ledger.cursor, this.#taken));
      while (ledger.ahead.has(offset)) offset++;
      oldestReadyAge = Math.max(oldestReadyAge, wall - (await this.#timestampAt(offset)));
    }
    return { ...stats, oldestReadyAge: Math.max(0, Math.round(oldestReadyAge)) };
  }
}

/** A delivery on its way through the log. */
class Delivery implements Operation {
  readonly durability: Durability;
  readonly #state: TaskState;
  readonly #tasks: LeasedTask[];
  readonly #receiver: Receiver;

  constructor(state: TaskState, tasks: LeasedTask[], receiver: Receiver, durability: Durability) {
    this.durability = durability;
    this.#state = state;
    this.#tasks = tasks;
    this.#receiver = receiver;
  }

  apply(): void {
    this.#state.delivered(this.#tasks, this.#receiver.leaseMs);
  }

  settle(): void {
    this.#receiver.resolve(this.#tasks);
  }

  fail(error: Error): void {
    this.#receiver.reject(error);
  }
}

function staleLease(token: TaskToken, reason: string): VarveError {
  return new VarveError(
    "ERR_STALE_LEASE",
    `task ${token.offset}, attempt ${token.attempt}: ${reason}. Nothing was changed; drop the result of this attempt.`,
    { details: { id: String(token.offset), attempt: token.attempt } },
  );
}

function parseConfig(text: string): TaskConfig {
  try {
    return Object.freeze(JSON.parse(text)) as TaskConfig;
  } catch {
    throw new MalformedError("the queue's configuration is not JSON");
  }
}
