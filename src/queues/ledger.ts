/**
 * One reader's durable progress over a stream of tasks: a cursor, and the outstanding tasks, which have been delivered
 * or postponed and are not done. Everything behind the cursor that is not outstanding is done; a task that was scheduled
 * may be done before the cursor gets to it, and is kept in mind until then. So memory follows the work in flight, never
 * the backlog.
 *
 *   leased    handed out; comes back when its time is up, or with the end of the session that holds it
 *   waiting   for its time: scheduled, or in backoff after a failure
 *   ready     its time has come; delivered before what is at the cursor
 *   returned  given back to the head undone; delivered before what is ready, the last one first
 *   blocked   behind other tasks with its order key
 *
 * Changes are made by the operations of consumer.ts, once they are in the log.
 */

import type { Failure } from "../api/contract.js";
import { type Linked, LinkedTable } from "../api/linked-table.js";
import { type Decoder, type Encoder, MalformedError } from "../storage/bytes.js";
import type { OrderKeys } from "./order.js";
import { TimeHeap } from "./time-heap.js";

/** On disk, `Done` excepted: append, never renumber. */
export const TaskPhase = { Done: 0, Leased: 1, Waiting: 2, Ready: 3, Returned: 4, Blocked: 5 } as const;
export type TaskPhase = (typeof TaskPhase)[keyof typeof TaskPhase];

/** Failures that are kept with a task. */
export const FAILURES_MAX = 16;

export class Outstanding implements Linked<Outstanding> {
  readonly ledger: Ledger;
  readonly offset: number;
  /** `Done` as well while it is not in the ledger yet. */
  phase: TaskPhase = TaskPhase.Done;
  attempt = 0;
  /** Deliveries allowed: 0 for the queue's rule, else one more than the number (1: unlimited). */
  limit = 0;
  /** Elapsed time when the lease ends (Infinity: with its session) or the task is due; wall clock time if `wall`. */
  at = 0;
  /** Due by the wall clock. */
  wall = false;
  /** The wall clock time at which a relative delay was expected to end; for the time that the directory is closed. */
  wallAt = 0;
  /** Elapsed time when the lease began or the task became ready. */
  since = 0;
  /** Signed. */
  tokenHigh = 0;
  tokenLow = 0;
  /** Payload bytes; 0 until they are known, which is when it is first delivered. */
  bytes = 0;
  failures: Failure[] | undefined;
  /** What its worker said last of how far it has got, as JSON. */
  progress: string | undefined;
  /** What stands for its order key (order.ts); 0: it has none, or has no place in the order. */
  order = 0;
  /** Blocked until the cursor has passed it. */
  isAhead = false;
  /** Claimed by an operation that is not yet in the log; no other may touch it. */
  reserved = false;
  /** Place in the heap of its clock; -1 when in none. */
  heapIndex = -1;
  // For the table of the outstanding tasks.
  before: Outstanding | undefined;
  behind: Outstanding | undefined;
  inSlot: Outstanding | undefined;
  // For the list of the leased ones.
  leasedBefore: Outstanding | undefined;
  leasedBehind: Outstanding | undefined;

  constructor(ledger: Ledger, offset: number) {
    this.ledger = ledger;
    this.offset = offset;
  }

  get key(): number {
    return this.offset;
  }

  addFailure(failure: Failure): void {
    this.failures ??= [];
    this.failures.push(failure);
    if (this.failures.length > FAILURES_MAX) this.failures.shift();
  }
}

/** The tasks that are handed out, longest first. No Set, for the reason that `LinkedTable` is no Map. */
class Leases implements Iterable<Outstanding> {
  size = 0;
  #first: Outstanding | undefined;
  #last: Outstanding | undefined;

  /** The one that was handed out first. */
  get first(): Outstanding | undefined {
    return this.#first;
  }

  /** @param task that is not here */
  add(task: Outstanding): void {
    task.leasedBefore = this.#last;
    if (this.#last === undefined) this.#first = task;
    else this.#last.leasedBehind = task;
    this.#last = task;
    this.size++;
  }

  /** @param task that is here */
  delete(task: Outstanding): void {
    const { leasedBefore, leasedBehind } = task;
    if (leasedBefore === undefined) this.#first = leasedBehind;
    else leasedBefore.leasedBehind = leasedBehind;
    if (leasedBehind === undefined) this.#last = leasedBefore;
    else leasedBehind.leasedBefore = leasedBefore;
    task.leasedBefore = undefined;
    task.leasedBehind = undefined;
    this.size--;
  }

  *[Symbol.iterator](): Generator<Outstanding, void, void> {
    for (let task = this.#first; task !== undefined; task = task.leasedBehind) yield task;
  }
}

export class Ledger {
  /** Number of the lane whose tasks these are. */
  readonly lane: number;
  /** The next task never delivered. */
  cursor: number;
  readonly outstanding = new LinkedTable<Outstanding>();
  /** Tasks whose time has come, in the order in which it came. */
  readonly ready = new Set<Outstanding>();
  /** Tasks given back to the head; the last one comes first. */
  readonly returned: Outstanding[] = [];
  /** Tasks that wait for others with their order key. */
  readonly blocked = new Set<Outstanding>();
  /** Who keeps that order, if anybody. */
  orders: OrderKeys | undefined;
  /** Tasks handed out, longest first. */
  readonly leased = new Leases();
  /** By the end of the lease / by due time, elapsed / by due time, wall clock. */
  readonly byLease = new TimeHeap<Outstanding>();
  readonly byElapsed = new TimeHeap<Outstanding>();
  readonly byWall = new TimeHeap<Outstanding>();
  /** Offsets from the cursor on that it will pass over: cancelled or postponed before it gets there. */
  readonly ahead = new Set<number>();
  /** Below this, a record that says that its task waits for its time is not believed: a repair has lost its due time. */
  marksFrom = 0;
  /** Grows whenever a task that had been handed out or postponed can be delivered again. */
  comebacks = 0;
  /** Payload bytes of all tasks that were taken, less those of tasks that were given back. */
  takenBytes = 0;

  constructor(lane: number, cursor: number) {
    this.lane = lane;
    this.cursor = cursor;
  }

  /** Waiting for their time. */
  get waiting(): number {
    return this.byElapsed.size + this.byWall.size;
  }

  /** The lowest offset that is not done. */
  get lowest(): number {
    let lowest = this.cursor;
    for (let task = this.outstanding.oldest; task !== undefined; task = task.behind) {
      if (task.offset < lowest) lowest = task.offset;
    }
    return lowest;
  }

  /** Whether any task with an offset in [from, to) is not done. */
  hasUndone(from: number, to: number): boolean {
    return to > this.cursor || this.hasOutstanding(from, to);
  }

  /** Whether any task with an offset in [from, to) is outstanding. */
  hasOutstanding(from: number, to: number): boolean {
    if (this.outstanding.size === 0) return false;
    if (this.outstanding.size < to - from) {
      for (let task = this.outstanding.oldest; task !== undefined; task = task.behind) {
        if (task.offset >= from && task.offset < to) return true;
      }
      return false;
    }
    for (let offset = from; offset < to; offset++) if (this.outstanding.has(offset)) return true;
    return false;
  }

  /** Moves the cursor up to `offset`, past tasks that are outstanding or not there. */
  advance(offset: number): void {
    if (offset <= this.cursor) return;
    if (this.ahead.size === 0) {
      // As in most queues.
    } else if (offset - this.cursor < this.ahead.size) {
      for (let at = this.cursor; at < offset; at++) this.ahead.delete(at);
    } else {
      for (const at of this.ahead) if (at < offset) this.ahead.delete(at);
    }
    this.cursor = offset;
  }

  /** Sets the cursor, backwards too. */
  rewind(offset: number): void {
    this.cursor = offset;
    this.ahead.clear();
  }

  /** How many offsets below `offset` the cursor will pass over. */
  aheadBelow(offset: number): number {
    let count = 0;
    if (offset - this.cursor < this.ahead.size) {
      for (let at = this.cursor; at < offset; at++) if (this.ahead.has(at)) count++;
    } else {
      for (const at of this.ahead) if (at < offset) count++;
    }
    return count;
  }

  /** Takes in a task whose time has come, and that waited for it elsewhere. */
  ripened(offset: number, since: number): void {
    const task = new Outstanding(this, offset);
    this.outstanding.add(task);
    this.#makeReady(task, since);
  }

  /** Has a task that is not leased wait until another time. */
  postpone(task: Outstanding, at: number, wall: boolean, wallAt: number): void {
    if (task.order !== 0) this.orders?.leave(task);
    this.#leave(task);
    this.#wait(task, at, wall, wallAt);
  }

  /**
   * Hands a task out: one from the cursor, or one that is outstanding and ready.
   * @param leaseMs 0: until its session ends
   */
  deliver(task: Outstanding, elapsedMs: number, leaseMs: number): void {
    if (task.phase !== TaskPhase.Done) {
      this.#leave(task);
    } else {
      this.outstanding.add(task);
      this.advance(task.offset + 1);
    }
    this.takenBytes += task.bytes;
    task.phase = TaskPhase.Leased;
    task.since = elapsedMs;
    task.at = elapsedMs + leaseMs;
    task.wall = false;
    this.leased.add(task);
    if (leaseMs === 0) task.at = Number.POSITIVE_INFINITY;
    else this.byLease.add(task);
  }

  /** Hands a task out and is done with it. */
  take(task: Outstanding): void {
    if (task.phase !== TaskPhase.Done) {
      this.finish(task);
    } else {
      this.takenBytes += task.bytes;
      this.advance(task.offset + 1);
    }
  }

  extend(task: Outstanding, at: number): void {
    if (task.phase === TaskPhase.Done) return;
    task.at = at;
    if (task.heapIndex < 0) this.byLease.add(task);
    else this.byLease.move(task);
  }

  /** Gives a task back, to be delivered again after `delayMs`. */
  release(task: Outstanding, elapsedMs: number, wallMs: number, delayMs: number): void {
    this.#takeBack(task);
    if (delayMs > 0) this.#wait(task, elapsedMs + delayMs, false, wallMs + delayMs);
    else this.#makeReady(task, elapsedMs);
  }

  /** Takes a task back undone, as if it had not been handed out: to the head, or behind the ready ones. */
  giveBack(task: Outstanding, elapsedMs: number, toHead: boolean): void {
    if (task.phase === TaskPhase.Done) return;
    this.#takeBack(task);
    task.attempt--;
    if (toHead) this.#makeReturned(task, elapsedMs);
    else this.#makeReady(task, elapsedMs);
  }

  /** Nothing is left to be done for one that has ended with the group or cursor that it was for. */
  finish(task: Outstanding): void {
    if (task.phase === TaskPhase.Done) return;
    if (task.phase !== TaskPhase.Leased) this.takenBytes += task.bytes;
    this.#leave(task);
    task.phase = TaskPhase.Done;
    this.outstanding.delete(task);
    if (task.order !== 0) this.orders?.finished(task);
  }

  /** Has a task wait that could be handed out, if it were not for others with its order key. */
  block(task: Outstanding): void {
    this.#leave(task);
    task.phase = TaskPhase.Blocked;
    this.blocked.add(task);
  }

  /** The same for one that the cursor has come to. */
  blockFresh(task: Outstanding, elapsedMs: number): void {
    this.outstanding.add(task);
    this.advance(task.offset + 1);
    task.phase = TaskPhase.Blocked;
    task.since = elapsedMs;
    this.blocked.add(task);
  }

  unblock(task: Outstanding): void {
    this.#leave(task);
    this.#makeReady(task, task.since);
  }

  /** Takes a ready task out of the order, for an operation on its way to the log. */
  hold(task: Outstanding): void {
    if (task.phase !== TaskPhase.Returned) this.ready.delete(task);
    else if (this.returned[this.returned.length - 1] === task) this.returned.pop();
    else this.#leave(task);
  }

  /** Puts it back to its end of the order, as the operation could not be made. */
  unhold(task: Outstanding): void {
    this.comebacks++;
    if (task.phase === TaskPhase.Returned) this.returned.push(task);
    else this.ready.add(task);
  }

  /** Is done with everything below an offset that is not handed out. */
  clear(offset: number): void {
    for (const task of [...this.outstanding]) {
      if (task.offset < offset && task.phase !== TaskPhase.Leased) this.finish(task);
    }
    this.advance(offset);
  }

  /** Makes waiting tasks ready whose time has come. Not logged: it follows from the clock. */
  ripen(elapsedMs: number, wallMs: number): void {
    for (let task = this.byElapsed.first; task !== undefined && task.at <= elapsedMs; task = this.byElapsed.first) {
      this.#leave(task);
      this.#makeReady(task, task.at);
    }
    for (let task = this.byWall.first; task !== undefined && task.at <= wallMs; task = this.byWall.first) {
      this.#leave(task);
      this.#makeReady(task, elapsedMs);
    }
  }

  /** Leases that are up and that no operation has claimed. */
  expired(elapsedMs: number): Outstanding[] {
    const expired: Outstanding[] = [];
    this.byLease.visitUpTo(elapsedMs, (task) => {
      if (!task.reserved) expired.push(task);
    });
    return expired.sort((a, b) => a.at - b.at);
  }

  /** After the directory was closed for `closedMs` of wall clock time: leases stood still, delays did not. */
  resume(lastElapsedMs: number, nowWallMs: number): void {
    for (const task of this.outstanding) {
      if (task.phase !== TaskPhase.Waiting || task.wall) continue;
      const remaining = Math.min(Math.max(0, task.wallAt - nowWallMs), Math.max(0, task.at - lastElapsedMs));
      task.at = lastElapsedMs + remaining;
      task.wallAt = nowWallMs + remaining;
      this.byElapsed.move(task);
    }
  }

  /**
   * Takes back what was held by sessions that are over: to the head, or behind the ready ones, in the order in which they
   * were handed out. Not logged: it follows from the restart. One that has had its last attempt gets a lease that is up.
   */
  endSessions(elapsedMs: number, isExhausted: (task: Outstanding) => boolean, toHead: boolean): void {
    const held = [...this.leased].filter((task) => task.at === Number.POSITIVE_INFINITY);
    const before = this.returned.splice(0);
    for (const task of held) {
      if (isExhausted(task)) {
        this.extend(task, elapsedMs);
      } else {
        this.#takeBack(task);
        if (toHead) this.#makeReturned(task, elapsedMs);
        else this.#makeReady(task, elapsedMs);
      }
    }
    const back = this.returned.splice(0);
    this.returned.push(...mergeReturned(before, back));
  }

  encode(output: Encoder): void {
    output.varint(this.cursor);
    output.varint(this.takenBytes);
    output.varint(this.outstanding.size);
    // Leases and ready tasks in the order in which they came.
    for (const task of this.leased) encodeTask(output, task);
    for (const task of this.ready) encodeTask(output, task);
    const returned = new Set(this.returned);
    for (const task of returned) encodeTask(output, task);
    for (const task of this.outstanding) {
      // Waiting; or ready, but just taken out of the order by an operation that is not yet in the log.
      if (task.phase !== TaskPhase.Leased && !this.ready.has(task) && !returned.has(task)) encodeTask(output, task);
    }
    output.varint(this.marksFrom);
    output.varint(this.ahead.size);
    for (const offset of this.ahead) output.varint(offset);
  }

  static decode(lane: number, input: Decoder): Ledger {
    const ledger = new Ledger(lane, input.varint());
    ledger.takenBytes = input.varint();
    for (let count = input.varint(); count > 0; count--) ledger.#restore(decodeTask(ledger, input));
    ledger.marksFrom = input.varint();
    for (let count = input.varint(); count > 0; count--) ledger.ahead.add(input.varint());
    return ledger;
  }

  #restore(task: Outstanding): void {
    if (this.outstanding.has(task.offset)) throw new MalformedError(`task ${task.offset} stands twice`);
    this.outstanding.add(task);
    if (task.phase === TaskPhase.Ready) {
      this.ready.add(task);
    } else if (task.phase === TaskPhase.Returned) {
      this.returned.push(task);
    } else if (task.phase === TaskPhase.Leased) {
      this.leased.add(task);
      if (task.at !== Number.POSITIVE_INFINITY) this.byLease.add(task);
    } else if (task.phase === TaskPhase.Blocked) {
      this.blocked.add(task);
    } else {
      (task.wall ? this.byWall : this.byElapsed).add(task);
    }
  }

  #wait(task: Outstanding, at: number, wall: boolean, wallAt: number): void {
    task.phase = TaskPhase.Waiting;
    task.at = at;
    task.wall = wall;
    task.wallAt = wallAt;
    (wall ? this.byWall : this.byElapsed).add(task);
  }

  #makeReady(task: Outstanding, since: number): void {
    this.comebacks++;
    task.phase = TaskPhase.Ready;
    task.since = since;
    task.wall = false;
    this.ready.add(task);
  }

  #makeReturned(task: Outstanding, since: number): void {
    this.comebacks++;
    task.phase = TaskPhase.Returned;
    task.since = since;
    task.wall = false;
    this.returned.push(task);
  }

  #takeBack(task: Outstanding): void {
    if (task.phase === TaskPhase.Leased) this.takenBytes -= task.bytes;
    this.#leave(task);
    task.tokenHigh = 0;
    task.tokenLow = 0;
  }

  /** Takes a task out of the phase that it is in. */
  #leave(task: Outstanding): void {
    if (task.phase === TaskPhase.Ready) {
      this.ready.delete(task);
    } else if (task.phase === TaskPhase.Returned) {
      const at = this.returned.lastIndexOf(task);
      if (at >= 0) this.returned.splice(at, 1);
    } else if (task.phase === TaskPhase.Leased) {
      this.leased.delete(task);
      if (task.heapIndex >= 0) this.byLease.remove(task);
    } else if (task.phase === TaskPhase.Blocked) {
      this.blocked.delete(task);
    } else {
      (task.wall ? this.byWall : this.byElapsed).remove(task);
    }
  }
}

/** On disk, with the phase. */
const WALL_FLAG = 128;
const SESSION_FLAG = 64;
const PROGRESS_FLAG = 32;
const ORDER_FLAG = 16;

function encodeTask(output: Encoder, task: Outstanding): void {
  output.varint(task.offset);
  const session = task.at === Number.POSITIVE_INFINITY;
  const progress = task.progress === undefined ? 0 : PROGRESS_FLAG;
  const order = task.order === 0 ? 0 : ORDER_FLAG;
  output.u8(task.phase | (task.wall ? WALL_FLAG : 0) | (session ? SESSION_FLAG : 0) | progress | order);
  output.varint(task.attempt);
  output.varint(task.limit);
  output.varint(session ? 0 : Math.ceil(task.at));
  output.varint(Math.ceil(task.wallAt));
  // Its time may have come while the directory was closed, before any elapsed time there is.
  output.varint(Math.max(0, Math.floor(task.since)));
  output.u32(task.tokenHigh);
  output.u32(task.tokenLow);
  output.varint(task.bytes);
  encodeFailures(output, task.failures);
  if (task.progress !== undefined) output.string(task.progress);
  if (task.order !== 0) output.varint(task.order);
}

function decodeTask(ledger: Ledger, input: Decoder): Outstanding {
  const task = new Outstanding(ledger, input.varint());
  const phase = input.u8();
  task.wall = (phase & WALL_FLAG) !== 0;
  const known = Object.values(TaskPhase).find((each) => each === (phase & (ORDER_FLAG - 1)));
  if (known === undefined) throw new MalformedError(`task phase ${phase} is not known`);
  task.phase = known;
  task.attempt = input.varint();
  task.limit = input.varint();
  const at = input.varint();
  task.at = (phase & SESSION_FLAG) === 0 ? at : Number.POSITIVE_INFINITY;
  task.wallAt = input.varint();
  task.since = input.varint();
  task.tokenHigh = input.u32() | 0;
  task.tokenLow = input.u32() | 0;
  task.bytes = input.varint();
  task.failures = decodeFailures(input);
  if ((phase & PROGRESS_FLAG) !== 0) task.progress = input.string();
  if ((phase & ORDER_FLAG) !== 0) task.order = input.varint();
  return task;
}

export function encodeFailures(output: Encoder, failures: readonly Failure[] | undefined): void {
  output.varint(failures?.length ?? 0);
  for (const failure of failures ?? []) {
    output.varint(failure.attempt);
    output.varint(failure.at);
    output.string(failure.error);
  }
}

export function decodeFailures(input: Decoder): Failure[] | undefined {
  const count = input.varint();
  if (count === 0) return undefined;
  return Array.from({ length: count }, () => ({ attempt: input.varint(), at: input.varint(), error: input.string() }));
}

/**
 * Puts tasks that come back to the head with a restart among those that are there, the next one last: each before those behind
 * it in the queue, so that first in is first out, and behind others, which the next life may have given back meanwhile.
 */
export function mergeReturned(returned: readonly Outstanding[], back: readonly Outstanding[]): Outstanding[] {
  const last = [...back].sort((a, b) => b.offset - a.offset);
  const merged: Outstanding[] = [];
  for (let index = returned.length - 1; index >= 0; index--) {
    const task = returned[index]!;
    while (last.length > 0 && last[last.length - 1]!.offset < task.offset) merged.push(last.pop()!);
    merged.push(task);
  }
  while (last.length > 0) merged.push(last.pop()!);
  return merged.reverse();
}
