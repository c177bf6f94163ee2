/**
 * What is found by a number and kept in its order, as in a Map, where much comes and goes.
 *
 * The table of a Map is replaced by another each time that it has been filled, and leads to that one: once one of them is among the old objects of
 * V8's heap so are, until those are collected, all tables that come after it, and whatever stood there as one was replaced. Most of what comes
 * and goes is then taken for old, and collecting it takes as long as all the rest. Here nothing leads on from what has been taken out.
 *
 * Invariants
 * - The links of an entry lead to entries that are in here, and to nothing once it is not.
 * - There are at least half as many slots as entries and, beyond the fewest, at most eight times as many.
 */

import { type InList, LinkedList } from "./linked-list.js";

/** An entry: it stands in one table at a time. The links are the table's. */
export interface Linked<E> extends InList<E> {
  /** A whole number. */
  readonly key: number;
  /** Another one in the same slot. */
  inSlot: E | undefined;
}

const SLOTS_MIN = 8;

export class LinkedTable<E extends Linked<E>> implements Iterable<E> {
  /** By the lowest bits of the key. A power of two. */
  #slots: (E | undefined)[] = emptySlots(SLOTS_MIN);
  readonly #inOrder = new LinkedList<E>();

  get size(): number {
    return this.#inOrder.size;
  }

  /** The one that was added first. */
  get oldest(): E | undefined {
    return this.#inOrder.oldest;
  }

  get(key: number): E | undefined {
    let entry = this.#slots[key & (this.#slots.length - 1)];
    while (entry !== undefined && entry.key !== key) entry = entry.inSlot;
    return entry;
  }

  has(key: number): boolean {
    return this.get(key) !== undefined;
  }

  /** @param entry whose key no other one has */
  add(entry: E): void {
    this.#inOrder.add(entry);
    if (this.size > 2 * this.#slots.length) this.#resize(4 * this.#slots.length);
    else this.#place(entry);
  }

  /** False when it is not here. */
  delete(entry: E): boolean {
    if (!this.#displace(entry)) return false;
    this.#inOrder.delete(entry);
    const { length } = this.#slots;
    if (length > SLOTS_MIN && this.size * 8 < length) this.#resize(length / 4);
    return true;
  }

  /** The oldest first. Of those that have been walked past any may be taken out meanwhile, but none that comes. */
  [Symbol.iterator](): Generator<E, void, void> {
    return this.#inOrder[Symbol.iterator]();
  }

  *keys(): Generator<number, void, void> {
    for (const { key } of this.#inOrder) yield key;
  }

  #place(entry: E): void {
    const slot = entry.key & (this.#slots.length - 1);
    entry.inSlot = this.#slots[slot];
    this.#slots[slot] = entry;
  }

  #displace(entry: E): boolean {
    const slot = entry.key & (this.#slots.length - 1);
    const first = this.#slots[slot];
    if (first === entry) {
      this.#slots[slot] = entry.inSlot;
    } else {
      let previous = first;
      while (previous !== undefined && previous.inSlot !== entry) previous = previous.inSlot;
      if (previous === undefined) return false;
      previous.inSlot = entry.inSlot;
    }
    entry.inSlot = undefined;
    return true;
  }

  #resize(slots: number): void {
    this.#slots = emptySlots(slots);
    for (const entry of this.#inOrder) this.#place(entry);
  }
}

function emptySlots<E>(count: number): (E | undefined)[] {
  return new Array<E | undefined>(count).fill(undefined);
}
