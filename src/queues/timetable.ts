/**
 * Tasks that were enqueued for later, in bounded memory: those that come due soonest stand in memory, the others in blocks
 * of a stream. Ten million of them are a few thousand block descriptions.
 *
 *   memory      a heap by due time, at most ENTRIES_MAX
 *   blocks      at most BLOCK_ENTRIES_MAX each, grouped into buckets that widen with distance (a timing wheel): what is due
 *               within a minute by the second, what is due in months by the season. A block that comes near is read back
 *               into memory; if it was a coarse one, most of it goes out again in finer ones.
 *
 * There are two clocks, so two wheels: delays run on the directory's elapsed time plus the time that it was closed, and
 * moments on the wall clock.
 *
 * Invariants
 * - An entry is at any time in exactly one place: in memory, or in one listed block, where it may be struck out.
 * - What goes out and what comes back is decided by operations in the log; that an entry is popped because it is due is
 *   not, since it follows from the clock.
 */

import { Decoder, Encoder, MalformedError } from "../storage/bytes.js";
import { TimeHeap } from "./time-heap.js";

/** Entries of one wheel in memory, beyond which the later ones go out. */
export const ENTRIES_MAX = 32_768;
/** How many stay when the others go out; when fewer are left, due blocks are read back. */
export const ENTRIES_KEPT = 4096;
export const BLOCK_ENTRIES_MAX = 4096;
/** A bucket with fewer is made one block with the next. */
const BLOCK_ENTRIES_MIN = 256;
/** A block is read back this long before its first entry is due. */
export const LEAD_MS = 2000;
/** Width of the finest buckets; each level is WIDENING times wider, and holds what is due within WIDENING of its buckets. */
const FINEST_MS = 1024;
const WIDENING = 64;

/** Which clock an entry waits for. On disk: append, never renumber. */
export const WheelClock = { Elapsed: 0, Wall: 1 } as const;
export type WheelClock = (typeof WheelClock)[keyof typeof WheelClock];

export interface TimetableEntry {
  readonly due: number;
  readonly offset: number;
}

/** A block of entries in the stream of blocks. */
export class Block {
  /** Of the record that holds it. */
  readonly offset: number;
  /** Entries that are not struck out. */
  count: number;
  readonly firstDue: number;
  readonly lastDue: number;
  readonly lowest: number;
  readonly highest: number;
  /** Offsets of entries that were cancelled or rescheduled. */
  struck: Set<number> | undefined;
  /** Being read back. */
  loading = false;
  heapIndex = -1;

  constructor(offset: number, count: number, firstDue: number, lastDue: number, lowest: number, highest: number) {
    this.offset = offset;
    this.count = count;
    this.firstDue = firstDue;
    this.lastDue = lastDue;
    this.lowest = lowest;
    this.highest = highest;
  }

  get at(): number {
    return this.firstDue;
  }
}

/** Entries that go out to one block. */
export interface Outgoing {
  readonly count: number;
  /** As a block holds them. */
  readonly bytes: Buffer;
}

/** A block that entries have gone out to. */
export interface SpilledBlock {
  /** Of its record. */
  readonly offset: number;
  readonly count: number;
}

export class Wheel {
  // A binary heap by due time, then offset; sorted entries are one as well.
  #dues = new Float64Array(64);
  #offsets = new Float64Array(64);
  #size = 0;
  #isSorted = true;
  readonly #blocks = new Map<number, Block>();
  readonly #byDue = new TimeHeap<Block>();
  #spilled = 0;

  /** Entries in all. */
  get size(): number {
    return this.#size + this.#spilled;
  }

  get inMemory(): number {
    return this.#size;
  }

  get blockCount(): number {
    return this.#blocks.size;
  }

  /** When the first entry in memory is due. */
  get firstDue(): number | undefined {
    return this.#size === 0 ? undefined : this.#dues[0];
  }

  get firstOffset(): number | undefined {
    return this.#size === 0 ? undefined : this.#offsets[0];
  }

  /** The block whose first entry is due first. */
  get firstBlock(): Block | undefined {
    return this.#byDue.first;
  }

  /** When the first entry of all is due, or a little before that. */
  get nextDue(): number | undefined {
    const inMemory = this.firstDue;
    const spilled = this.firstBlock?.firstDue;
    return inMemory === undefined || spilled === undefined ? (inMemory ?? spilled) : Math.min(inMemory, spilled);
  }

  blocks(): Iterable<Block> {
    return this.#blocks.values();
  }

  block(offset: number): Block | undefined {
    return this.#blocks.get(offset);
  }

  /** Entries that are due; those in blocks count when the whole block is. */
  dueCount(now: number): number {
    let count = 0;
    this.#byDue.visitUpTo(now, (block) => {
      if (block.lastDue <= now) count += block.count;
    });
    for (const pending = [0]; pending.length > 0; ) {
      const index = pending.pop()!;
      if (index >= this.#size || this.#dues[index]! > now) continue;
      count++;
      pending.push(2 * index + 1, 2 * index + 2);
    }
    return count;
  }

  add(due: number, offset: number): void {
    if (this.#size === this.#dues.length) this.#grow();
    this.#isSorted = false;
    let index = this.#size++;
    while (index > 0) {
      const above = (index - 1) >> 1;
      if (!this.#before(due, offset, above)) break;
      this.#move(above, index);
      index = above;
    }
    this.#dues[index] = due;
    this.#offsets[index] = offset;
  }

  /** Takes the first entry if it is due. */
  popDue(now: number): TimetableEntry | undefined {
    if (this.#size === 0 || this.#dues[0]! > now) return undefined;
    return this.#removeAt(0);
  }

  has(offset: number): boolean {
    return this.#find(offset) >= 0;
  }

  /** Takes an entry out of memory. False when it is not there. */
  remove(offset: number): boolean {
    const index = this.#find(offset);
    if (index < 0) return false;
    this.#removeAt(index);
    return true;
  }

  /** The block that is to be read back next; none while memory holds plenty that comes first. */
  get nextToLoad(): Block | undefined {
    const block = this.firstBlock;
    if (block === undefined || block.loading) return undefined;
    return this.#size < ENTRIES_KEPT || this.#dues[0]! > block.firstDue ? block : undefined;
  }

  /** The same, if the time for it has come. */
  blockToLoad(now: number): Block | undefined {
    const block = this.nextToLoad;
    return block !== undefined && block.firstDue <= now + LEAD_MS ? block : undefined;
  }

  /** What is to go out now: everything but the first ENTRIES_KEPT, in order; nothing while there is room. */
  outgoing(now: number): Outgoing[] {
    if (this.#size <= ENTRIES_MAX) return [];
    this.#sort();
    const groups: Outgoing[] = [];
    let start = ENTRIES_KEPT;
    while (start < this.#size) {
      const bucket = bucketOf(this.#dues[start]!, now);
      let end = start + 1;
      while (end < this.#size && end - start < BLOCK_ENTRIES_MAX) {
        if (end - start >= BLOCK_ENTRIES_MIN && bucketOf(this.#dues[end]!, now) !== bucket) break;
        end++;
      }
      groups.push({ count: end - start, bytes: this.#encoded(start, end) });
      start = end;
    }
    return groups;
  }

  // ----------------------------------------------------------------------------- changes that are operations in the log

  /** The last entries have gone out, in order, to these blocks. */
  spill(blocks: readonly SpilledBlock[]): void {
    this.#sort();
    let kept = this.#size;
    for (const { count } of blocks) kept -= count;
    if (kept < 0) throw new MalformedError("more scheduled tasks go out than there are");
    let start = kept;
    for (const { offset, count } of blocks) {
      const end = start + count;
      let lowest = Number.POSITIVE_INFINITY;
      let highest = 0;
      for (let index = start; index < end; index++) {
        lowest = Math.min(lowest, this.#offsets[index]!);
        highest = Math.max(highest, this.#offsets[index]!);
      }
      this.#list(new Block(offset, count, this.#dues[start]!, this.#dues[end - 1]!, lowest, highest));
      start = end;
    }
    this.#size = kept;
  }

  /** A block has come back; those of its entries that are not struck out are in memory again. */
  unspill(blockOffset: number, entries: readonly TimetableEntry[]): void {
    const block = this.#blocks.get(blockOffset);
    if (block === undefined) throw new MalformedError(`there is no block of scheduled tasks at ${blockOffset}`);
    this.#unlist(block);
    for (const { due, offset } of entries) if (block.struck?.has(offset) !== true) this.add(due, offset);
  }

  /** Strikes an entry out of the block that it was last seen in, or takes it out of memory if it has come back since. */
  strike(blockOffset: number, offset: number): boolean {
    const block = this.#blocks.get(blockOffset);
    if (block === undefined) return this.remove(offset);
    block.struck ??= new Set();
    if (block.struck.has(offset)) return false;
    block.struck.add(offset);
    block.count--;
    this.#spilled--;
    if (block.count === 0) this.#unlist(block);
    return true;
  }

  clear(): void {
    this.#size = 0;
    for (const block of [...this.#blocks.values()]) this.#unlist(block);
  }

  // ------------------------------------------------------------------------------------------------------ for the queue

  /** The lowest offset of all entries, or less; Infinity when there is none. */
  get lowest(): number {
    let lowest = Number.POSITIVE_INFINITY;
    for (let index = 0; index < this.#size; index++) lowest = Math.min(lowest, this.#offsets[index]!);
    for (const block of this.#blocks.values()) lowest = Math.min(lowest, block.lowest);
    return lowest;
  }

  /** Whether an entry with an offset in [from, to) may be there. */
  mayHold(from: number, to: number): boolean {
    for (let index = 0; index < this.#size; index++) {
      const offset = this.#offsets[index]!;
      if (offset >= from && offset < to) return true;
    }
    for (const block of this.#blocks.values()) if (block.lowest < to && block.highest >= from) return true;
    return false;
  }

  /** The first record of the stream of blocks that is still needed; Infinity when none is. */
  get lowestBlock(): number {
    let lowest = Number.POSITIVE_INFINITY;
    for (const offset of this.#blocks.keys()) lowest = Math.min(lowest, offset);
    return lowest;
  }

  /** The entries in memory, by due time. */
  *entries(): Generator<TimetableEntry> {
    this.#sort();
    for (let index = 0; index < this.#size; index++) {
      yield { due: this.#dues[index]!, offset: this.#offsets[index]! };
    }
  }

  encode(output: Encoder): void {
    this.#sort();
    output.varint(this.#size);
    const bytes = this.#encoded(0, this.#size);
    output.varint(bytes.length);
    output.bytes(bytes);
    output.varint(this.#blocks.size);
    for (const { offset, count, firstDue, lastDue, lowest, highest, struck } of this.#blocks.values()) {
      output.varint(offset);
      output.varint(count);
      output.varint(firstDue);
      output.varint(lastDue - firstDue);
      output.varint(lowest);
      output.varint(highest - lowest);
      output.varint(struck?.size ?? 0);
      for (const each of struck ?? []) output.varint(each);
    }
  }

  static decode(input: Decoder): Wheel {
    const wheel = new Wheel();
    const count = input.varint();
    const entries = decodeEntries(input.bytes(input.varint()));
    if (entries.length !== count) throw new MalformedError("scheduled tasks are missing");
    for (const { due, offset } of entries) wheel.add(due, offset);
    for (let left = input.varint(); left > 0; left--) {
      const offset = input.varint();
      const size = input.varint();
      const firstDue = input.varint();
      const lastDue = firstDue + input.varint();
      const lowest = input.varint();
      const block = new Block(offset, size, firstDue, lastDue, lowest, lowest + input.varint());
      for (let struck = input.varint(); struck > 0; struck--) {
        block.struck ??= new Set();
        block.struck.add(input.varint());
      }
      if (wheel.#blocks.has(offset)) throw new MalformedError(`the block at ${offset} stands twice`);
      wheel.#list(block);
    }
    return wheel;
  }

  // ------------------------------------------------------------------------------------------------------------ private

  #list(block: Block): void {
    this.#blocks.set(block.offset, block);
    this.#byDue.add(block);
    this.#spilled += block.count;
  }

  #unlist(block: Block): void {
    this.#blocks.delete(block.offset);
    this.#byDue.remove(block);
    this.#spilled -= block.count;
  }

  #sort(): void {
    if (this.#isSorted) return;
    const dues = this.#dues;
    const offsets = this.#offsets;
    const order = new Uint32Array(this.#size).map((_, index) => index);
    order.sort((a, b) => dues[a]! - dues[b]! || offsets[a]! - offsets[b]!);
    this.#dues = new Float64Array(dues.length);
    this.#offsets = new Float64Array(dues.length);
    for (let index = 0; index < order.length; index++) {
      this.#dues[index] = dues[order[index]!]!;
      this.#offsets[index] = offsets[order[index]!]!;
    }
    this.#isSorted = true;
  }

  /** Sorted entries: n { due - the one before, offset - the one before (zigzag) }. */
  #encoded(start: number, end: number): Buffer {
    const output = new Encoder(64 + (end - start) * 8);
    let due = 0;
    let offset = 0;
    for (let index = start; index < end; index++) {
      const step = this.#offsets[index]! - offset;
      output.varint(this.#dues[index]! - due);
      output.varint(step < 0 ? -2 * step - 1 : 2 * step);
      due = this.#dues[index]!;
      offset = this.#offsets[index]!;
    }
    return output.view();
  }

  #find(offset: number): number {
    for (let index = 0; index < this.#size; index++) if (this.#offsets[index] === offset) return index;
    return -1;
  }

  #removeAt(index: number): TimetableEntry {
    const removed = { due: this.#dues[index]!, offset: this.#offsets[index]! };
    this.#isSorted = false;
    const last = --this.#size;
    const due = this.#dues[last]!;
    const offset = this.#offsets[last]!;
    if (last === index) return removed;
    let at = index;
    // The last entry takes the place, up or down from which it belongs.
    while (at > 0 && this.#before(due, offset, (at - 1) >> 1)) {
      this.#move((at - 1) >> 1, at);
      at = (at - 1) >> 1;
    }
    for (;;) {
      let below = 2 * at + 1;
      if (below >= last) break;
      if (below + 1 < last && this.#before(this.#dues[below + 1]!, this.#offsets[below + 1]!, below)) below++;
      if (this.#before(due, offset, below)) break;
      this.#move(below, at);
      at = below;
    }
    this.#dues[at] = due;
    this.#offsets[at] = offset;
    return removed;
  }

  #before(due: number, offset: number, index: number): boolean {
    const other = this.#dues[index]!;
    return due < other || (due === other && offset < this.#offsets[index]!);
  }

  #move(from: number, to: number): void {
    this.#dues[to] = this.#dues[from]!;
    this.#offsets[to] = this.#offsets[from]!;
  }

  #grow(): void {
    const dues = new Float64Array(this.#dues.length * 2);
    const offsets = new Float64Array(dues.length);
    dues.set(this.#dues);
    offsets.set(this.#offsets);
    this.#dues = dues;
    this.#offsets = offsets;
  }
}

/** A number for the bucket that a due time falls into, seen from now. */
function bucketOf(due: number, now: number): number {
  let level = 0;
  let width = FINEST_MS;
  while (due - now >= width * WIDENING) {
    width *= WIDENING;
    level++;
  }
  return Math.floor(due / width) * 16 + level;
}

/** The entries of a block. */
export function decodeEntries(bytes: Buffer): TimetableEntry[] {
  const input = new Decoder(bytes);
  const entries: TimetableEntry[] = [];
  let due = 0;
  let offset = 0;
  while (!input.done) {
    due += input.varint();
    const step = input.varint();
    offset += step % 2 === 0 ? step / 2 : -(step + 1) / 2;
    if (offset < 0) throw new MalformedError("a scheduled task has a negative offset");
    entries.push({ due, offset });
  }
  return entries;
}
