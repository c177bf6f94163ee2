/**
 * Hands out the records of one or more lanes under leases: to the receivers of a task queue, of a cursor over one, or of
 * a shared group over a log. Who receives what is in delivery.ts; here is what becomes of it.
 *
 * Every change is one operation of a commit. It is staged (checked, and what it touches reserved), logged, and only
 * then applied; `replay` repeats exactly what `apply` did. All operations begin with the consumer's number; where a lane
 * is told, it comes next.
 *
 *   op            fields                                                          effect
 *   Deliver       lane, passed, lease, n { offset, attempt * 4 + ordered * 2 + fresh, order if ordered, limit, bytes, token }
 *                                                                                 handed out; lease 0: while its session lasts
 *   Ack           lane, n { offset }                                              done
 *   Release       lane, offset, delay, error                                      failed: waits, then ready again
 *   Extend        lane, offset, lease                                             the lease ends later
 *   Bury          lane, offset                                                    done here; its dead letter is in the same commit
 *   Exhume        n { dead offset }                                               dead letters gone: redriven in the same commit, or purged
 *   Purge         dead offset                                                     all dead letters below are gone
 *   Take          lane, passed, n { offset, bytes * 2 + fresh }                   handed out and done
 *   Discard       lane, passed, n { offset, bytes * 2 + fresh }                   its time was over; done
 *   Block         lane, passed, n { offset, limit, bytes, order }                 comes behind others with its order key
 *   GiveBack      lane, to, n { offset }                                          undone, to the head (0) or behind the ready ones (1)
 *   Pass          lane, passed, offset                                            the cursor passes tasks that wait for their time
 *
 * A fresh task is one that the cursor came to; `passed` is how many it passed on the way whose records say that they wait
 * for their time.
 */

import type { Durability } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import type { ConsumerConfig } from "../api/options.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { FIRST_QUEUE_OP, type LogTime } from "../engine/queue-state.js";
import { type IdentifiedCommit, requestBytes } from "../engine/requests.js";
import { type RecordCursor, type RecordParts, recordBytesMax } from "../storage/batch.js";
import { type Decoder, type Encoder, MalformedError, VARINT_BYTES_MAX } from "../storage/bytes.js";
import type { Timer } from "../storage/clock.js";
import { isNoDescriptor } from "../storage/disk.js";
import type { Stream } from "../storage/stream.js";
import { DeadState } from "./dead-state.js";
import { Delivery } from "./delivery.js";
import type { Flows } from "./flows.js";
import type { Lane } from "./lane.js";
import { Outstanding, TaskPhase } from "./ledger.js";
import type { OrderKeys } from "./order.js";
import type { Redriven } from "./outcomes.js";
import type { Pace } from "./pace.js";
import type { Ending } from "./results.js";
import { type DeathCause, letterOf, type TaskAttributes, takenLetter } from "./task-record.js";
import type { LeasedTask, TaskToken } from "./task-token.js";
import type { WallGuard } from "./wall-guard.js";

/** On disk: append, never renumber. The same for every kind of queue that has consumers. */
export const ConsumerOp = {
  Deliver: FIRST_QUEUE_OP + 2,
  Ack: FIRST_QUEUE_OP + 3,
  Release: FIRST_QUEUE_OP + 4,
  Extend: FIRST_QUEUE_OP + 5,
  Bury: FIRST_QUEUE_OP + 6,
  Exhume: FIRST_QUEUE_OP + 7,
  Purge: FIRST_QUEUE_OP + 8,
  Take: FIRST_QUEUE_OP + 9,
  GiveBack: FIRST_QUEUE_OP + 10,
  Discard: FIRST_QUEUE_OP + 11,
  Block: FIRST_QUEUE_OP + 13,
  Pass: FIRST_QUEUE_OP + 63,
} as const;

const CONSUMER_OPS: ReadonlySet<number> = new Set(Object.values(ConsumerOp));

export function isConsumerOp(code: number): boolean {
  return CONSUMER_OPS.has(code);
}

const LEASE_EXPIRED = "lease expired";
/** A wall clock that may be set is looked at this often while tasks wait for it. */
const WALL_CHECK_MS = 1000;
/** A release with an error text of 1 KiB. */
export const RELEASE_BYTES_MAX = OPERATION_HEADER_BYTES + 5 * VARINT_BYTES_MAX + 1024;
export const SETTLE_BYTES_MAX = OPERATION_HEADER_BYTES + 5 * VARINT_BYTES_MAX;
/** Tasks waiting for their time that the cursor passes before that is noted by itself. */
const PASSED_UNNOTED = 4096;
/** Tasks of one commit when what sessions hold is given back at a close. */
const GIVEN_BACK_AT_ONCE = 1000;

/** A record for what has become of a task. */
export interface Successor {
  readonly stream: Stream;
  readonly parts: RecordParts;
  readonly applied: () => void;
  /** It is staged, or never will be. */
  readonly decided?: () => void;
}

/** What is noted, in the same commit, when dead letters become tasks again. */
export interface Redriving {
  bytesMax(count: number): number;
  stage(tasks: readonly Redriven[]): void;
  applied(tasks: readonly Redriven[]): void;
}

/** The queue that a consumer belongs to. */
export interface ConsumerHost {
  readonly id: number;
  readonly name: string;
  /** What the consumer follows; may change at any time. */
  readonly rules: ConsumerConfig;
  /** Sees to it that a consumer has a stream for its dead letters. Not between `begin` and `add`: it may need a commit. */
  openDead(consumer: Consumer): void;
  /** The same for the lane that a dead letter goes back to when it is redriven; `lane` is the one that it died in. */
  openLane(consumer: Consumer, lane: number): Lane;
  /** Tasks that waited have been handed out or are gone; called when that has been applied. */
  handedOut?(): void;
  /** The numbers of its lanes are priorities. */
  readonly prioritized?: boolean;
  /** Nothing is handed out. */
  readonly paused?: boolean;
  /** Caps the life of every task; 0: no cap. */
  readonly ttlMs?: number;
  /** Of the wall clock, by which the life of a task is measured. */
  readonly guard?: WallGuard;
  /** A task gains one priority per so much waiting; 0: none. */
  readonly ageingMs?: number;
  /** Keeps the order of tasks that have a key for that. */
  readonly orders?: OrderKeys;
  /** Absent: tasks are handed out as fast as they are asked for. */
  readonly pace?: Pace | undefined;
  /**
   * The record that takes the place of a task whose time is over, if any, and whom to tell when it is there. May make
   * commits of its own.
   */
  expired?(
    consumer: Consumer,
    task: Outstanding,
    record: RecordCursor,
    attributes: TaskAttributes,
  ): Successor | undefined;
  /** What sessions held when they ended goes behind the ready ones, and not to the head. */
  readonly takesBackAtTail?: boolean;
  /** Before anything is given away: there may be others to be served first. */
  serveOthers?(): void;
  /** Whether `taskEnded` has anything to do. */
  readonly isWatching?: boolean;
  /** A task has left the consumer for good, in life or in replay. */
  taskEnded?(task: Outstanding, how: Ending): void;
  /** Tasks that wait for others to be done. */
  readonly flows?: Flows;
  /** Notes where dead letters stand that are tasks again; absent where nobody asks. */
  readonly redriving?: Redriving;
  /** Why there is no such host any more. */
  readonly gone?: Error | undefined;
  /** A task has come back undone, in life or in replay: the host may finish it. */
  takenBack?(task: Outstanding): void;
}

export class Consumer {
  readonly number: number;
  readonly host: ConsumerHost;
  readonly dead: DeadState;
  readonly delivery: Delivery;
  /** Since the directory was opened. */
  readonly counts = {
    delivered: 0,
    acked: 0,
    nacked: 0,
    released: 0,
    discarded: 0,
    died: 0,
    deadDropped: 0,
    redriven: 0,
  };
  /** The most urgent first. */
  readonly lanes: Lane[] = [];
  #engine!: Engine;
  #timer: Timer | undefined;
  #timerAt = Number.POSITIVE_INFINITY;
  #ended = false;
  /** Who is told when it ends. */
  readonly #endListeners = new Set<(error: Error) => void>();

  constructor(number: number, host: ConsumerHost, deadStream: Stream | undefined) {
    this.number = number;
    this.host = host;
    this.dead = new DeadState(deadStream);
    this.delivery = new Delivery(this);
  }

  /** Connects the consumer to the engine that it lives in. */
  attach(engine: Engine): void {
    this.#engine = engine;
    for (const lane of this.lanes) lane.attach(engine);
    this.delivery.attach(engine);
    if (this.host.orders !== undefined) this.host.orders.readied = () => this.delivery.wake();
    this.#onTime();
  }

  addLane(lane: Lane): void {
    this.lanes.push(lane);
    if (this.#engine !== undefined) lane.attach(this.#engine);
    this.lanes.sort((a, b) => b.number - a.number);
  }

  lane(number: number): Lane {
    const lane = this.findLane(number);
    if (lane === undefined)
      throw new MalformedError(`consumer ${this.number} of ${this.host.name} has no lane ${number}`);
    return lane;
  }

  /** Called for each task. */
  findLane(number: number): Lane | undefined {
    for (const lane of this.lanes) if (lane.ledger.lane === number) return lane;
    return undefined;
  }

  /** Tasks that could be delivered now / wait for their time / are handed out. */
  get ready(): number {
    let ready = 0;
    for (const lane of this.lanes) ready += lane.ready;
    return ready;
  }

  get waiting(): number {
    let waiting = 0;
    for (const { ledger } of this.lanes) waiting += ledger.waiting;
    return waiting;
  }

  /** Upper bound for what can be handed out now without reading back any tasks that waited for their time. */
  get deliverable(): number {
    let most = 0;
    for (const { deliverable } of this.lanes) most += deliverable;
    return most;
  }

  /** Set when its queue or group has been deleted: what callers are told. */
  get deleted(): Error | undefined {
    return this.lanes[0]?.stream.deleted ?? this.host.gone;
  }

  /** Tasks that come behind others with their order key. */
  get blocked(): number {
    // Those on their way to the log are nowhere else.
    let blocked = this.host.orders?.comingBlocked ?? 0;
    for (const { ledger } of this.lanes) blocked += ledger.blocked.size;
    return blocked;
  }

  get leased(): number {
    // Those on their way to the log are nowhere else.
    let leased = this.delivery.leasing;
    for (const { ledger } of this.lanes) leased += ledger.leased.size;
    return leased;
  }

  resume(last: LogTime, now: LogTime): void {
    for (const { ledger } of this.lanes) {
      ledger.resume(last.elapsedMs, now.wallMs);
      ledger.endSessions(last.elapsedMs, (task) => this.isExhausted(task), this.#takesBackToHead);
    }
    this.host.orders?.settle();
  }

  get #takesBackToHead(): boolean {
    return this.host.takesBackAtTail !== true;
  }

  close(error: Error): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.delivery.close(error);
    this.#ended = true;
    for (const listener of this.#endListeners) listener(error);
    this.#endListeners.clear();
    // What a queue held that is deleted needs not be given back.
    if (this.#engine?.closed === true && this.#engine.failure === undefined) this.#endSessions();
  }

  /** Calls back when the consumer is closed, for whatever reason; returns what ends the wait for that. */
  onEnd(callback: (error: Error) => void): () => void {
    this.#endListeners.add(callback);
    return () => {
      this.#endListeners.delete(callback);
    };
  }

  replay(code: number, input: Decoder, time: LogTime): void {
    if (code === ConsumerOp.Exhume) {
      this.dead.exhume(Array.from({ length: input.varint() }, () => input.varint()));
      return;
    }
    if (code === ConsumerOp.Purge) {
      this.dead.purgeBelow(input.varint());
      this.host.flows?.allLettersGone();
      return;
    }
    const lane = this.lane(input.varint());
    const { ledger } = lane;
    if (code === ConsumerOp.Deliver) {
      lane.aside -= input.varint();
      const leaseMs = input.varint();
      const count = input.varint();
      for (let left = count; left > 0; left--) {
        const offset = input.varint();
        const attempt = input.varint();
        const task = this.#handedOut(lane, offset, attempt % 2 === 1, time);
        task.attempt = Math.floor(attempt / 4);
        const order = attempt % 4 < 2 ? 0 : input.varint();
        task.limit = input.varint();
        task.bytes = input.varint();
        task.tokenHigh = input.u32() | 0;
        task.tokenLow = input.u32() | 0;
        ledger.deliver(task, time.elapsedMs, leaseMs);
        if (order === 0) continue;
        task.order = order;
        this.host.orders?.handedOut(task);
      }
      this.host.pace?.handedOut(count, time.elapsedMs);
    } else if (code === ConsumerOp.Ack) {
      for (let count = input.varint(); count > 0; count--)
        this.#finish(this.#outstanding(lane, input.varint()), "done");
    } else if (code === ConsumerOp.Release) {
      const offset = input.varint();
      // One that could not be read may never have been handed out.
      if (!ledger.outstanding.has(offset)) lane.scheduled?.ripenUntil(lane.number, offset, lane, time);
      // Of a log, it may have been removed meanwhile.
      const task = ledger.outstanding.get(offset);
      const delayMs = input.varint();
      if (task !== undefined) this.#release(task, delayMs, input.string(), time);
    } else if (code === ConsumerOp.Extend) {
      const task = this.#outstanding(lane, input.varint());
      ledger.extend(task, time.elapsedMs + input.varint());
    } else if (code === ConsumerOp.Bury) {
      this.#finish(this.#outstanding(lane, input.varint()), "dead");
    } else if (code === ConsumerOp.Take || code === ConsumerOp.Discard) {
      lane.aside -= input.varint();
      const count = input.varint();
      if (code === ConsumerOp.Take) this.host.pace?.handedOut(count, time.elapsedMs);
      for (let left = count; left > 0; left--) {
        const offset = input.varint();
        const bytes = input.varint();
        const task = this.#handedOut(lane, offset, bytes % 2 === 1, time);
        task.bytes = Math.floor(bytes / 2);
        ledger.take(task);
        this.ended(task, code === ConsumerOp.Take ? "done" : "expired");
      }
    } else if (code === ConsumerOp.Block) {
      lane.aside -= input.varint();
      for (let count = input.varint(); count > 0; count--) {
        const task = this.#fresh(lane, input.varint());
        task.limit = input.varint();
        task.bytes = input.varint();
        task.order = input.varint();
        this.host.orders?.block(task, time.elapsedMs);
      }
    } else if (code === ConsumerOp.Pass) {
      lane.aside -= input.varint();
      ledger.advance(input.varint());
    } else {
      const toHead = input.varint() === 0;
      for (let count = input.varint(); count > 0; count--) {
        const task = this.#outstanding(lane, input.varint());
        ledger.giveBack(task, time.elapsedMs, toHead);
        this.host.takenBack?.(task);
      }
    }
  }

  /** A task that was handed out, when the log is repeated. */
  #handedOut(lane: Lane, offset: number, fresh: boolean, time: LogTime): Outstanding {
    const { ledger } = lane;
    if (fresh) return this.#fresh(lane, offset);
    if (!ledger.outstanding.has(offset)) lane.scheduled?.ripenUntil(lane.number, offset, lane, time);
    // A trim of the log that came just before it took the record from the group.
    if (lane.ofLog && !ledger.outstanding.has(offset)) return new Outstanding(ledger, offset);
    return this.#outstanding(lane, offset);
  }

  /** One that the cursor had come to. */
  #fresh({ ledger }: Lane, offset: number): Outstanding {
    if (!ledger.outstanding.has(offset)) return new Outstanding(ledger, offset);
    throw new MalformedError(`task ${offset} of queue ${this.host.name} is outstanding already`);
  }

  #outstanding(lane: Lane, offset: number): Outstanding {
    const task = lane.ledger.outstanding.get(offset);
    if (task === undefined) throw new MalformedError(`task ${offset} of queue ${this.host.name} is not outstanding`);
    return task;
  }

  /** Starts one of the consumer's operations. */
  operation(code: number): Encoder {
    const output = this.#engine.operation(code, this.host.id);
    output.varint(this.number);
    return output;
  }

  #operation(code: number, task: Outstanding): Encoder {
    const output = this.operation(code);
    output.varint(task.ledger.lane);
    return output;
  }

  // -------------------------------------------------------------------------------------------------------- settling

  /** The task that a token proves the lease of, reserved for the caller. */
  claimLease(token: TaskToken): Outstanding {
    if (this.deleted !== undefined) throw this.deleted;
    const task = this.findLane(token.lane)?.ledger.outstanding.get(token.offset);
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

  /** The task of a delivery, while its lease holds and nobody is settling it. */
  leasedAs({ lane: number, offset, high, low }: Pick<TaskToken, "lane" | "offset" | "high" | "low">) {
    const lane = this.findLane(number);
    const task = lane?.ledger.outstanding.get(offset);
    if (lane === undefined || task === undefined || task.phase !== TaskPhase.Leased || task.reserved) return undefined;
    return task.tokenHigh === high && task.tokenLow === low ? { lane, task } : undefined;
  }

  /** The tasks of several tokens, reserved; all of them or none. */
  claimLeases(tokens: readonly TaskToken[]): Outstanding[] {
    const tasks: Outstanding[] = [];
    try {
      for (const token of tokens) tasks.push(this.claimLease(token));
    } catch (error) {
      giveUp(tasks);
      throw error;
    }
    return tasks;
  }

  stageAck(tasks: readonly Outstanding[]): void {
    this.host.flows?.stageDone(tasks);
    this.#stageOffsets(ConsumerOp.Ack, undefined, tasks);
  }

  acked(tasks: readonly Outstanding[]): void {
    this.counts.acked += tasks.length;
    this.host.flows?.done(tasks);
    const isWatched = this.host.isWatching === true;
    for (const task of tasks) {
      task.ledger.finish(task);
      if (isWatched) this.host.taskEnded?.(task, "done");
    }
    this.#freed();
  }

  /** Leases have ended: there may be room for others. */
  #freed(): void {
    if (this.delivery.isHeldBack) this.delivery.wake();
  }

  #finish(task: Outstanding, how: Ending): void {
    task.ledger.finish(task);
    this.ended(task, how);
  }

  /** A task has left for good. */
  ended(task: Outstanding, how: Ending): void {
    const { host } = this;
    if (host.isWatching === true) host.taskEnded?.(task, how);
  }

  /** Stages an operation on several tasks: one for each lane that they are in. */
  #stageOffsets(code: number, field: number | undefined, tasks: readonly Outstanding[]): void {
    if (this.lanes.length === 1) {
      this.#stageOffsetsOf(code, field, tasks);
      return;
    }
    for (const { ledger } of this.lanes) {
      const own = tasks.filter((task) => task.ledger === ledger);
      if (own.length > 0) this.#stageOffsetsOf(code, field, own);
    }
  }

  /** The same for tasks of one lane. */
  #stageOffsetsOf(code: number, field: number | undefined, tasks: readonly Outstanding[]): void {
    const output = this.#operation(code, tasks[0]!);
    if (field !== undefined) output.varint(field);
    output.varint(tasks.length);
    for (const task of tasks) output.varint(task.offset);
    this.#engine.endOperation();
  }

  /** Upper bound for an operation on several tasks. */
  offsetsBytesMax(count: number): number {
    const lanes = Math.min(count, this.lanes.length);
    const flowBytes = this.host.flows?.bytesMax(count) ?? 0;
    return lanes * (OPERATION_HEADER_BYTES + 4 * VARINT_BYTES_MAX) + count * VARINT_BYTES_MAX + flowBytes;
  }

  stageRelease(task: Outstanding, delayMs: number, error: string): void {
    const output = this.#operation(ConsumerOp.Release, task);
    output.varint(task.offset);
    output.varint(delayMs);
    output.string(error);
    this.#engine.endOperation();
  }

  released(task: Outstanding, delayMs: number, error: string): void {
    task.reserved = false;
    this.counts.nacked++;
    this.#release(task, delayMs, error, this.#engine.entryTime);
    if (delayMs === 0) this.delivery.wake();
    else this.#freed();
    this.arm();
  }

  #release(task: Outstanding, delayMs: number, error: string, time: LogTime): void {
    if (task.phase === TaskPhase.Done) return;
    task.addFailure({ attempt: task.attempt, at: time.wallMs, error });
    task.ledger.release(task, time.elapsedMs, time.wallMs, delayMs);
    this.host.takenBack?.(task);
  }

  stageGiveBack(tasks: readonly Outstanding[], toHead: boolean): void {
    this.#stageOffsets(ConsumerOp.GiveBack, toHead ? 0 : 1, tasks);
  }

  /** In the order of `stageGiveBack`: lane by lane. */
  givenBack(tasks: readonly Outstanding[], toHead: boolean): void {
    const { elapsedMs } = this.#engine.entryTime;
    this.counts.released += tasks.length;
    for (const task of tasks) {
      task.reserved = false;
      task.ledger.giveBack(task, elapsedMs, toHead);
      this.host.takenBack?.(task);
    }
    this.delivery.wake();
  }

  stageExtend(task: Outstanding, leaseMs: number): void {
    const output = this.#operation(ConsumerOp.Extend, task);
    output.varint(task.offset);
    output.varint(leaseMs);
    this.#engine.endOperation();
  }

  extended(task: Outstanding, leaseMs: number): void {
    task.reserved = false;
    task.ledger.extend(task, this.#engine.entryTime.elapsedMs + leaseMs);
    this.arm();
  }

  /** Sees to it that there is a stream for dead letters. Adding it may be when a deletion of the group takes effect. */
  openDead(): void {
    this.host.openDead(this);
    if (this.deleted !== undefined) throw this.deleted;
  }

  /** After `openDead`. */
  stageBury(task: Outstanding, letter: RecordParts | undefined): void {
    if (letter !== undefined) this.#engine.append(this.dead.stream!, letter);
    const output = this.#operation(ConsumerOp.Bury, task);
    output.varint(task.offset);
    this.#engine.endOperation();
  }

  buried(task: Outstanding): void {
    this.counts.died++;
    this.#finish(task, "dead");
    this.#freed();
  }

  /** Whether a task that fails now has had its last attempt. */
  isExhausted(task: Outstanding): boolean {
    const limit = task.limit === 0 ? this.host.rules.maxAttempts : task.limit - 1;
    return limit > 0 && task.attempt >= limit;
  }

  /** Wait before the next attempt of a task that has just failed. */
  backoffMs(task: Outstanding): number {
    const { initialMs, maxMs, factor, jitter } = this.host.rules.backoff;
    const wait = Math.min(maxMs, initialMs * factor ** (task.attempt - 1));
    const variation = 1 + jitter * ((2 * this.#engine.random.uint32()) / 2 ** 32 - 1);
    return Math.round(Math.min(maxMs, wait * variation));
  }

  /**
   * The dead letter of a task, from its record: what it was, and why it died. Undefined when a log no longer has the record,
   * as a later one supersedes it: then the task is done.
   */
  async letterOf(task: Outstanding, error: string, cause: DeathCause): Promise<RecordParts | undefined> {
    const lane = this.lane(task.ledger.lane);
    const make = (record: RecordCursor) => {
      return letterOf(task, record, lane.attributes(record), error, cause, this.#engine.time().wallMs);
    };
    if (lane.ofLog) return (await lane.atRecordLeft(task.offset, make))?.used;
    return await lane.atRecord(task.offset, make);
  }

  /** Moves a task, reserved by the caller, to the dead letters. Resolves when that is committed. */
  bury(
    task: Outstanding,
    error: string,
    durability: Durability,
    cause: DeathCause = "attempts exhausted",
    request?: IdentifiedCommit,
  ): Promise<void> {
    return this.#engine.finishing(this.#bury(task, error, durability, cause, request));
  }

  async #bury(
    task: Outstanding,
    error: string,
    durability: Durability,
    cause: DeathCause,
    request: IdentifiedCommit | undefined,
  ): Promise<void> {
    const engine = this.#engine;
    let letter: RecordParts | undefined;
    try {
      letter = await this.letterOf(task, error, cause);
      if (this.deleted !== undefined) throw this.deleted;
      if (task.phase === TaskPhase.Done) throw takenAway(task);
    } catch (failure) {
      task.reserved = false;
      throw failure;
    }
    await new Promise<void>((resolve, reject) => {
      try {
        if (letter !== undefined) this.openDead();
        engine.begin(
          letter === undefined ? 0 : recordBytesMax(letter),
          letter === undefined ? 0 : 1,
          SETTLE_BYTES_MAX + requestBytes(request),
          true,
        );
        this.stageBury(task, letter);
      } catch (failure) {
        task.reserved = false;
        throw failure;
      }
      const operation = {
        durability,
        apply: () => this.buried(task),
        settle: resolve,
        fail: (failure: Error) => {
          task.reserved = false;
          reject(failure);
        },
      };
      engine.add(operation, request);
    });
  }

  /**
   * Makes a dead letter of a task that is done already, from what its receiver got: it was acknowledged as it was handed
   * out, and turned out to be unusable.
   */
  buryTaken(task: LeasedTask, error: string): Promise<void> {
    const engine = this.#engine;
    const letter = takenLetter(task, error, engine.time().wallMs);
    return new Promise((resolve, reject) => {
      this.openDead();
      engine.begin(recordBytesMax(letter), 1, 0, true);
      engine.append(this.dead.stream!, letter);
      engine.add({
        durability: engine.options.durability,
        apply: () => {
          this.counts.died++;
        },
        settle: resolve,
        fail: reject,
      });
    });
  }

  /** A task whose record cannot be read must not stand in the way of others: it waits. */
  setAside(task: Outstanding, error: Error): void {
    if (task.phase === TaskPhase.Done || task.reserved || this.deleted !== undefined) return;
    // Want of a file descriptor says nothing about the task.
    if (isNoDescriptor(error.cause)) return;
    task.reserved = true;
    task.ledger.hold(task);
    this.#engine.logger.error({ queue: this.host.name, task: task.offset, error }, "a task cannot be read");
    const delayMs = Math.max(WALL_CHECK_MS, this.host.rules.backoff.maxMs);
    const reason = `cannot be read: ${error.message}`.slice(0, 256);
    if (!this.#stageReleaseOf(task, delayMs, reason)) task.ledger.unhold(task);
  }

  // ------------------------------------------------------------------------------------------------------------ time

  /** Sees to it that the timer goes off when the next lease ends or the next task is due. */
  arm(notBefore = 0): void {
    const engine = this.#engine;
    let at = Number.POSITIVE_INFINITY;
    for (const { ledger } of this.lanes) {
      const { byLease, byElapsed, byWall } = ledger;
      at = Math.min(at, byLease.first?.at ?? at, byElapsed.first?.at ?? at);
      if (byWall.first === undefined) continue;
      const wait = Math.min(WALL_CHECK_MS, Math.max(0, byWall.first.at - engine.clock.wallMs()));
      at = Math.min(at, engine.elapsedMs() + wait);
    }
    for (const { scheduled, number, hasRoom } of this.lanes) {
      if (scheduled === undefined || scheduled.size === 0) continue;
      const now = engine.elapsedMs();
      at = Math.min(at, scheduled.nextAt(number, hasRoom, now, engine.clock.wallMs()));
      if (scheduled.waitsForWall(number)) at = Math.min(at, now + WALL_CHECK_MS);
    }
    at = Math.max(Math.min(at, this.delivery.heldUntil), notBefore);
    if (at >= this.#timerAt || engine.closed || this.#ended) return;
    this.#timer?.cancel();
    this.#timerAt = at;
    this.#timer = engine.clock.setTimer(Math.max(0, at - engine.elapsedMs()), () => {
      this.#timer = undefined;
      this.#timerAt = Number.POSITIVE_INFINITY;
      // If the event loop stood still, acks that arrived meanwhile are read before their leases are ended.
      engine.clock.defer(() => this.#onTime());
    });
  }

  /** Makes tasks ready whose time has come. */
  ripen(): void {
    const engine = this.#engine;
    for (const { ledger } of this.lanes) ledger.ripen(engine.elapsedMs(), engine.clock.wallMs());
    this.#ripenScheduled();
  }

  #ripenScheduled(): void {
    const engine = this.#engine;
    for (const lane of this.lanes) {
      lane.scheduled?.ripen(lane.number, lane, engine.elapsedMs(), engine.clock.wallMs());
    }
  }

  /** Takes in more of the tasks whose time has come, where those that were taken in run out. */
  refill(): void {
    for (const { scheduled, runsOut } of this.lanes) {
      if (scheduled === undefined || scheduled.size === 0 || !runsOut) continue;
      this.#ripenScheduled();
      return;
    }
  }

  /** Whether tasks whose time has come are being read back. */
  get isFetching(): boolean {
    const engine = this.#engine;
    return this.lanes.some(({ scheduled, number }) => {
      if (scheduled === undefined || scheduled.size === 0) return false;
      return scheduled.isLoadingDue(number, engine.elapsedMs(), engine.clock.wallMs());
    });
  }

  /** Notes that the cursors have passed many tasks that wait for their time, which no delivery has noted. */
  pass(): void {
    const engine = this.#engine;
    for (const lane of this.lanes) {
      const passable = lane.passable(PASSED_UNNOTED);
      if (passable === undefined) continue;
      engine.begin(0, 0, SETTLE_BYTES_MAX, true);
      const { to, passed } = passable;
      const output = this.operation(ConsumerOp.Pass);
      output.varint(lane.number);
      output.varint(passed);
      output.varint(to);
      engine.endOperation();
      lane.noteAllPassed();
      engine.add({
        durability: "async",
        apply: () => lane.ledger.advance(to),
        settle() {},
        fail() {},
      });
    }
  }

  #onTime(): void {
    const engine = this.#engine;
    if (engine.closed || engine.failure !== undefined || this.#ended) return;
    const now = engine.elapsedMs();
    this.ripen();
    let ended = true;
    for (const { ledger } of this.lanes) {
      for (const task of ledger.expired(now)) ended = this.#expire(task) && ended;
    }
    this.delivery.serve();
    // What could not be ended, for want of disk space, is tried again, but not at once.
    this.arm(ended ? 0 : now + WALL_CHECK_MS);
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
      { queue: this.host.name, task: task.offset, error },
      "a dead task cannot be moved to the dead letters",
    );
    task.reserved = true;
    this.#stageReleaseOf(
      task,
      Math.max(WALL_CHECK_MS, this.host.rules.backoff.maxMs),
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
      engine.logger.error({ queue: this.host.name, error: failure }, "an expired lease cannot be ended now");
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

  /** At the close: what sessions hold goes back, as after a crash. If it cannot, the next open sees to it. */
  #endSessions(): void {
    for (const { ledger } of this.lanes) {
      const held = [...ledger.leased].filter((task) => task.at === Number.POSITIVE_INFINITY && !task.reserved);
      if (this.#takesBackToHead) held.sort((a, b) => b.offset - a.offset);
      for (let at = 0; at < held.length; at += GIVEN_BACK_AT_ONCE) {
        if (!this.#stageGiveBackOf(held.slice(at, at + GIVEN_BACK_AT_ONCE))) return;
      }
    }
  }

  #stageGiveBackOf(tasks: readonly Outstanding[]): boolean {
    const engine = this.#engine;
    try {
      engine.begin(0, 0, this.offsetsBytesMax(tasks.length), true);
    } catch {
      return false;
    }
    for (const task of tasks) task.reserved = true;
    const toHead = this.#takesBackToHead;
    this.stageGiveBack(tasks, toHead);
    engine.add({
      durability: engine.options.durability,
      apply: () => this.givenBack(tasks, toHead),
      settle() {},
      fail() {
        giveUp(tasks);
      },
    });
    return true;
  }
}

/** Gives back what was reserved for an operation that is not made. */
export function giveUp(tasks: readonly Outstanding[]): void {
  for (const task of tasks) task.reserved = false;
}

function staleLease({ offset, attempt }: Pick<TaskToken, "offset" | "attempt">, reason: string): VarveError {
  return new VarveError(
    "ERR_STALE_LEASE",
    `task ${offset}, attempt ${attempt}: ${reason}. Nothing was changed; drop the result of this attempt.`,
    { details: { id: String(offset), attempt } },
  );
}

/** While its record was being read. */
function takenAway(task: Outstanding): VarveError {
  return staleLease(task, "its group was moved to another place meanwhile");
}
