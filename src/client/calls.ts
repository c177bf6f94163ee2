/**
 * The calls of a client that have not been answered, by their ids and in the order in which they were made.
 *
 * Not a Map. Its table is replaced by another each time that it has been filled, and leads to that one: once one of them is among the old objects
 * of V8's heap, so are, until those are collected, all tables that come after it, and every call that ever stood there as one was replaced. Here
 * nothing leads on from what is over.
 *
 * Invariants
 * - A call's links lead to calls that are in here, and to nothing once it is not.
 * - There are at least half as many slots as calls, and, beyond the fewest, at most eight times as many.
 */

import type { Pending } from "./pending.js";

const SLOTS_MIN = 64;

export class Calls implements Iterable<Pending> {
  /** By the lowest bits of the id; several calls there are linked (`inSlot`). A power of two. */
  #slots: (Pending | undefined)[] = emptySlots(SLOTS_MIN);
  #size = 0;
  #oldest: Pending | undefined;
  #newest: Pending | undefined;

  get size(): number {
    return this.#size;
  }

  get(id: number): Pending | undefined {
    let call = this.#slots[id & (this.#slots.length - 1)];
    while (call !== undefined && call.id !== id) call = call.inSlot;
    return call;
  }

  /** @param call whose id no other one has */
  add(call: Pending): void {
    call.before = this.#newest;
    if (this.#newest === undefined) this.#oldest = call;
    else this.#newest.behind = call;
    this.#newest = call;
    this.#size++;
    if (this.#size > 2 * this.#slots.length) this.#resize(4 * this.#slots.length);
    else this.#place(call);
  }

  /** False when it is not here. */
  delete(call: Pending): boolean {
    if (!this.#displace(call)) return false;
    const { before, behind } = call;
    if (before === undefined) this.#oldest = behind;
    else before.behind = behind;
    if (behind === undefined) this.#newest = before;
    else behind.before = before;
    call.before = undefined;
    call.behind = undefined;
    this.#size--;
    const { length } = this.#slots;
    if (length > SLOTS_MIN && this.#size * 8 < length) this.#resize(length / 4);
    return true;
  }

  /** Those that are here now, the oldest first, as long as they are. */
  *[Symbol.iterator](): Generator<Pending, void, void> {
    const calls: Pending[] = [];
    for (let call = this.#oldest; call !== undefined; call = call.behind) calls.push(call);
    for (const call of calls) if (this.get(call.id) === call) yield call;
  }

  /** The sequence number of the oldest one that this client has named. */
  get oldestSequence(): number | undefined {
    let call = this.#oldest;
    while (call !== undefined && call.sequence === 0) call = call.behind;
    return call?.sequence;
  }

  #place(call: Pending): void {
    const slot = call.id & (this.#slots.length - 1);
    call.inSlot = this.#slots[slot];
    this.#slots[slot] = call;
  }

  #displace(call: Pending): boolean {
    const slot = call.id & (this.#slots.length - 1);
    const first = this.#slots[slot];
    if (first === call) {
      this.#slots[slot] = call.inSlot;
    } else {
      let previous = first;
      while (previous !== undefined && previous.inSlot !== call) previous = previous.inSlot;
      if (previous === undefined) return false;
      previous.inSlot = call.inSlot;
    }
    call.inSlot = undefined;
    return true;
  }

  #resize(slots: number): void {
    this.#slots = emptySlots(slots);
    for (let call = this.#oldest; call !== undefined; call = call.behind) this.#place(call);
  }
}

function emptySlots(count: number): (Pending | undefined)[] {
  return new Array<Pending | undefined>(count).fill(undefined);
}
