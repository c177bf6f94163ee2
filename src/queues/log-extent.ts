import type { Stream } from "../storage/stream.js";

/** What is kept or removed as a whole: a run of a segment, or a batch that is still only in the log. */
export interface Unit {
  readonly first: number;
  readonly next: number;
  readonly bytes: number;
  /** Time of its newest record. */
  readonly newest: number;
}

/** How many bytes the records of a log have from an offset on, about: units are divided evenly over their offsets. */
export class LogExtent {
  readonly #stream: Stream;
  /** Bytes from the head up to `#end`; good as long as what stands before that is as it was. */
  #bytes = 0;
  #end = 0;
  #runs = -1;
  #rewrites = 0;
  #runsNext = 0;
  /** Base offset of the oldest batch in the log. */
  #oldest: number | undefined;

  constructor(stream: Stream) {
    this.#stream = stream;
  }

  /** Bytes of the records that can be read. Costs next to nothing, except once after each checkpoint. */
  get bytes(): number {
    const { runs, recent, rewrites, next } = this.#stream;
    const oldest = recent[0]?.wal.batches.baseOf(recent[0].rows[0]!);
    const runsNext = runs[runs.length - 1]?.next ?? 0;
    const changed = this.#runs !== runs.length || this.#runsNext !== runsNext || this.#rewrites !== rewrites;
    if (changed || this.#oldest !== oldest) {
      this.#runs = runs.length;
      this.#rewrites = rewrites;
      this.#runsNext = runsNext;
      this.#oldest = oldest;
      this.#bytes = this.bytesFrom(this.#stream.head);
    } else if (this.#end < next) {
      this.#bytes += this.#stream.recentBytesFrom(this.#end);
    }
    this.#end = next;
    return this.#bytes;
  }

  bytesFrom(offset: number): number {
    let bytes = 0;
    for (const unit of this.unitsFrom(offset)) bytes += bytesOf(unit, offset, unit.next);
    return Math.round(bytes);
  }

  /** Before the head is moved to an offset. */
  leave(offset: number): void {
    let { bytes } = this;
    const { head } = this.#stream;
    for (const unit of this.unitsFrom(head)) {
      if (unit.first >= offset) break;
      bytes -= bytesOf(unit, head, offset);
    }
    this.#bytes = Math.max(0, bytes);
  }

  /** The units from the one with an offset on, in order. */
  *unitsFrom(offset: number): Generator<Unit> {
    const { runs, recent } = this.#stream;
    const run = this.#stream.runFor(offset);
    if (run !== undefined) {
      for (let at = runs.indexOf(run); at < runs.length; at++) {
        const { first, next, bytes, lastTimestamp } = runs[at]!;
        yield { first, next, bytes, newest: lastTimestamp };
      }
    }
    for (const { wal, rows } of recent) {
      const { batches } = wal;
      for (let index = batches.indexBehind(rows, offset); index < rows.length; index++) {
        const row = rows[index]!;
        const newest = batches.timestampOf(row);
        yield { first: batches.baseOf(row), next: batches.nextOf(row), bytes: batches.bytesOf(row), newest };
      }
    }
  }
}

/** Bytes of a unit's records in [from, to), about. */
export function bytesOf({ first, next, bytes }: Unit, from: number, to: number): number {
  if (from <= first && to >= next) return bytes;
  return (bytes * Math.max(0, Math.min(to, next) - Math.max(from, first))) / (next - first);
}
