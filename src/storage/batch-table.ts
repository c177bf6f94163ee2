/**
 * The batches that stand in one log file and not yet in a segment: a row for each, in the order of the file.
 *
 * Columns of numbers, not an object for each batch: there are up to tens of thousands, and each lives until a checkpoint
 * has moved it. As objects they were most of what the garbage collector had to copy, and later to mark.
 *
 *   column       of a row
 *   base, next   its first offset, and the one behind its last
 *   count        its records
 *   bytes        its length, without the zeros that pad it
 *   timestamp    that of its first record
 *   position     where it stands in the log file
 *   start        where it stands in the block that it was encoded in
 *   fill         1 + index in `#fills` of that block, as it was then; 0 when it is not kept in memory
 *   stream       index in `#streams`
 *
 * Invariants
 * - Rows below `length` are in the log; those behind are of the entry being staged, and none of them has a position yet.
 * - A row that is in the log never changes. Rows are only given up all together, when no stream has one any more.
 * - Positions rise from row to row; of the rows of one stream, offsets rise, and time stamps never fall.
 */

import type { Block } from "./memory.js";
import type { Stream } from "./stream.js";

/** Rows that there is room for at first; it is doubled as often as it takes. */
const FIRST_ROWS = 256;

/** What describes a batch, wherever it stands. */
export interface BatchExtent {
  readonly stream: Stream;
  readonly base: number;
  readonly next: number;
  readonly count: number;
  readonly bytes: number;
  readonly timestamp: number;
}

/** A block while it holds what was encoded there in one go. */
interface Fill {
  readonly block: Block;
  readonly life: number;
}

export class BatchTable {
  /** Rows that are in the log. */
  length = 0;
  /** Rows in all. */
  #end = 0;
  #rows = FIRST_ROWS;
  #base = new Float64Array(FIRST_ROWS);
  #next = new Float64Array(FIRST_ROWS);
  #timestamp = new Float64Array(FIRST_ROWS);
  #position = new Float64Array(FIRST_ROWS);
  #count = new Uint32Array(FIRST_ROWS);
  #bytes = new Uint32Array(FIRST_ROWS);
  #start = new Uint32Array(FIRST_ROWS);
  #fill = new Uint32Array(FIRST_ROWS);
  #stream = new Uint32Array(FIRST_ROWS);
  /** In the order in which they were filled. */
  #fills: Fill[] = [];
  /** A stream stands here once, but for those of its batches that were staged before the first of them was in the log. */
  #streams: Stream[] = [];

  /** Rows of the entry that is being staged. */
  get staged(): number {
    return this.#end - this.length;
  }

  /**
   * Adds a batch of the entry that is being staged.
   * @param block where it was encoded, unless that is not kept
   * @param start where it stands in there
   */
  stage(batch: BatchExtent, block: Block | undefined, start: number): void {
    const row = this.#end;
    if (row === this.#rows) this.#grow();
    this.#base[row] = batch.base;
    this.#next[row] = batch.next;
    this.#count[row] = batch.count;
    this.#bytes[row] = batch.bytes;
    this.#timestamp[row] = batch.timestamp;
    this.#start[row] = start;
    this.#fill[row] = block === undefined ? 0 : this.#fillOf(block);
    this.#stream[row] = this.#indexOf(batch.stream);
    this.#end++;
  }

  /** The staged rows are in the log now, so much further on there than in their block. */
  commit(shift: number): void {
    for (let row = this.length; row < this.#end; row++) this.#position[row] = this.#start[row]! + shift;
    this.length = this.#end;
  }

  /** Takes the staged rows back: they were not written. */
  discard(): void {
    this.#end = this.length;
  }

  /** Adds a batch that was found in the log. Returns its row. */
  add(batch: BatchExtent, position: number): number {
    const row = this.#end;
    this.stage(batch, undefined, 0);
    this.#position[row] = position;
    this.length = this.#end;
    return row;
  }

  /** Gives all rows up. Their memory is kept: fresh memory is slow at first touch. */
  clear(): void {
    this.length = 0;
    this.#end = 0;
    this.#fills = [];
    this.#streams = [];
  }

  streamOf(row: number): Stream {
    return this.#streams[this.#stream[row]!]!;
  }

  baseOf(row: number): number {
    return this.#base[row]!;
  }

  nextOf(row: number): number {
    return this.#next[row]!;
  }

  countOf(row: number): number {
    return this.#count[row]!;
  }

  bytesOf(row: number): number {
    return this.#bytes[row]!;
  }

  timestampOf(row: number): number {
    return this.#timestamp[row]!;
  }

  positionOf(row: number): number {
    return this.#position[row]!;
  }

  /** The block in memory that holds the batch; undefined when none does any more. */
  blockOf(row: number): Block | undefined {
    const fill = this.#fill[row]!;
    if (fill === 0) return undefined;
    const { block, life } = this.#fills[fill - 1]!;
    return block.life === life ? block : undefined;
  }

  /** Where the batch stands in its block. */
  startOf(row: number): number {
    return this.#start[row]!;
  }

  /**
   * Index in an ascending list of rows of one stream: the first that ends behind an offset.
   * @param guess where it stands, most likely
   */
  indexBehind(rows: readonly number[], offset: number, guess = 0): number {
    const next = this.#next;
    const isBehind = guess < rows.length && next[rows[guess]!]! > offset;
    if (isBehind && (guess === 0 || next[rows[guess - 1]!]! <= offset)) return guess;
    let low = 0;
    let high = rows.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (next[rows[middle]!]! <= offset) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #fillOf(block: Block): number {
    const last = this.#fills[this.#fills.length - 1];
    if (last?.block === block && last.life === block.life) return this.#fills.length;
    return this.#fills.push({ block, life: block.life });
  }

  #indexOf(stream: Stream): number {
    const before = this.#end - 1;
    if (before >= 0 && this.streamOf(before) === stream) return this.#stream[before]!;
    const recent = stream.recent[stream.recent.length - 1];
    if (recent?.wal.batches === this) return this.#stream[recent.rows[0]!]!;
    return this.#streams.push(stream) - 1;
  }

  #grow(): void {
    this.#rows *= 2;
    this.#base = larger(Float64Array, this.#base);
    this.#next = larger(Float64Array, this.#next);
    this.#timestamp = larger(Float64Array, this.#timestamp);
    this.#position = larger(Float64Array, this.#position);
    this.#count = larger(Uint32Array, this.#count);
    this.#bytes = larger(Uint32Array, this.#bytes);
    this.#start = larger(Uint32Array, this.#start);
    this.#fill = larger(Uint32Array, this.#fill);
    this.#stream = larger(Uint32Array, this.#stream);
  }
}

function larger<Column extends Float64Array | Uint32Array>(
  type: new (length: number) => Column,
  column: Column,
): Column {
  const copy = new type(2 * column.length);
  copy.set(column);
  return copy;
}
