import type { Run } from "./segment.js";
import type { WalFile } from "./wal.js";

/** Batches of a stream that so far stand only in one log file: rows of its table, in order; at least one. */
export interface Recent {
  readonly wal: WalFile;
  /** A plain list: it is short where streams are many, and of small integers, which the garbage collector passes over. */
  readonly rows: number[];
}

/** Offsets that were skipped after an unclean stop: `from` .. `to` - 1 never held a record that counts. */
export interface Gap {
  readonly from: number;
  readonly to: number;
}

/** When a segment is given up for a new one before it is full, so that it can be removed in time. */
export interface SegmentRoll {
  readonly bytes: number;
  readonly records: number;
  /** Between the times of its first and its last record. */
  readonly ageMs: number;
}

const NO_ROLL: SegmentRoll = {
  bytes: Number.POSITIVE_INFINITY,
  records: Number.POSITIVE_INFINITY,
  ageMs: Number.POSITIVE_INFINITY,
};

/**
 * An append-only sequence of records with increasing offsets. Its older batches stand in segments (runs), the newer
 * ones in the log (recent); a checkpoint moves them over.
 *
 *      head          runs                    recent              next
 *       |------------------------------|------------------------|
 *       trimmed below                                           offsets not yet given out
 *
 * Invariants
 * - Runs and recent batches are in offset order and do not overlap; offsets missing between them hold nothing.
 * - `visible` <= `next` <= `staged`. What readers are shown ends at `visible`: committed in the directory's mode.
 */
export class Stream {
  readonly id: number;
  /** Folder of its own segments. */
  readonly directory: string;
  /** The name of that folder below the queue's; empty when it is the queue's. */
  readonly folder: string;
  /** Readers get nothing below this. */
  head: number;
  /** Offset behind the last record that is in the log. */
  next: number;
  visible: number;
  /** Offset behind the last record that was encoded, in the log or about to be. */
  staged: number;
  lastTimestamp: number;
  /** Payload bytes of all records that were ever encoded; never falls. */
  payloadBytes = 0;
  /** Bytes of the batches that are still there. */
  bytes = 0;
  gaps: Gap[];
  runs: Run[] = [];
  /** Times that runs have been replaced by rewritten ones in this life. */
  rewrites = 0;
  /** Runs have been rewritten: not every offset of theirs has a record. */
  hasHoles = false;
  /** Runs that end at or below this take no further batches. */
  sealedTo = 0;
  /** Below this, compaction has left no key twice. */
  cleanTo = 0;
  /** Time of the oldest tombstone below `cleanTo`; 0 when there is none. */
  tombstonesFrom = 0;
  /** By log file, oldest first. */
  recent: Recent[] = [];
  roll: SegmentRoll = NO_ROLL;
  /** Set when the stream's queue has been deleted: what readers are told. */
  deleted: Error | undefined;
  /** Called when `visible` has grown. */
  onVisible: (() => void) | undefined;
  /** Whether any record with an offset in [from, to) is still needed; the queue knows. */
  isNeeded: (from: number, to: number) => boolean = () => true;

  /** @param queueDirectory folder of the queue */
  constructor(
    id: number,
    queueDirectory: string,
    folder: string,
    head = 0,
    next = 0,
    lastTimestamp = 0,
    gaps: Gap[] = [],
  ) {
    this.id = id;
    this.directory = folder === "" ? queueDirectory : `${queueDirectory}/${folder}`;
    this.folder = folder;
    this.head = head;
    this.next = next;
    this.visible = next;
    this.staged = next;
    this.lastTimestamp = lastTimestamp;
    this.gaps = gaps;
  }

  /** Adds a batch that has been written to the log: a row of the file's table. */
  add(wal: WalFile, row: number): void {
    const { batches } = wal;
    const last = this.recent[this.recent.length - 1];
    if (last?.wal === wal) last.rows.push(row);
    else this.recent.push({ wal, rows: [row] });
    const next = batches.nextOf(row);
    const timestamp = batches.timestampOf(row);
    this.next = next;
    this.bytes += batches.bytesOf(row);
    if (this.staged < next) this.staged = next;
    if (this.lastTimestamp < timestamp) this.lastTimestamp = timestamp;
  }

  /** Batches that end at or below an offset stand in a run now: they are no longer looked for in the log. */
  forgetRecent(to: number): void {
    let gone = 0;
    for (const { wal, rows } of this.recent) {
      const count = wal.batches.indexBehind(rows, to);
      if (count < rows.length) {
        rows.splice(0, count);
        break;
      }
      gone++;
    }
    this.recent.splice(0, gone);
  }

  /** The batches that are left of the oldest of its log files, which are about to be reused, are not needed. */
  dropRecent(files: ReadonlySet<WalFile>): void {
    let gone = 0;
    for (const { wal, rows } of this.recent) {
      if (!files.has(wal)) break;
      for (const row of rows) this.bytes -= wal.batches.bytesOf(row);
      gone++;
    }
    this.recent.splice(0, gone);
  }

  show(offset: number): void {
    if (offset <= this.visible) return;
    this.visible = offset;
    this.onVisible?.();
  }

  /** Goes on past offsets that may have been given out and lost. */
  skip(count: number): void {
    this.gaps.push({ from: this.next, to: this.next + count });
    this.next += count;
    this.staged = this.next;
    this.visible = this.next;
  }

  /** Notes that nothing stands in [from, to) any more. */
  addGap(gap: Gap): void {
    this.gaps = withGap(this.gaps, gap);
  }

  trimTo(offset: number): void {
    if (offset <= this.head) return;
    this.head = offset;
    // One in the midst of a run is needed for as long as the run is, to tell how many of its offsets have records.
    const from = Math.min(offset, this.runs[0]?.first ?? offset);
    this.gaps = this.gaps.filter((gap) => gap.to > from);
  }

  /** Offsets in [from, to) that were given to records; those that have been removed since count as well. */
  recordsBetween(from: number, to: number): number {
    let records = Math.max(0, to - from);
    for (const gap of this.gaps) {
      records -= Math.max(0, Math.min(gap.to, to) - Math.max(gap.from, from));
    }
    return records;
  }

  /**
   * Records in [from, to). Exact, except where a bound cuts a run that records have been removed from: then they are
   * taken to be spread evenly. Reads nothing.
   */
  recordsLeft(from: number, to: number): number {
    if (!this.hasHoles) return this.recordsBetween(from, to);
    let records = 0;
    let at = from;
    for (let index = firstEndingBehind(this.runs, from); index < this.runs.length; index++) {
      const run = this.runs[index]!;
      if (run.first >= to) break;
      const start = Math.max(at, run.first);
      const end = Math.min(run.next, to);
      const whole = start === run.first && end === run.next;
      records += whole ? run.count : this.#recordsOfPart(run, start, end);
      at = run.next;
    }
    return records + this.recordsBetween(Math.max(at, this.runs[this.runs.length - 1]?.next ?? 0), to);
  }

  #recordsOfPart(run: Run, from: number, to: number): number {
    const part = this.recordsBetween(from, to);
    // As it was written first, but for records that were below the head by then.
    if (run.segment.edition === 0) return part;
    const given = this.recordsBetween(run.first, run.next);
    return run.count >= given ? part : Math.round((run.count * part) / given);
  }

  /** The first record offset at or above one, jumping over gaps. */
  skipGaps(offset: number): number {
    let at = offset;
    for (const gap of this.gaps) if (at >= gap.from && at < gap.to) at = gap.to;
    return at;
  }

  /** About when the record at an offset was committed; 0 when there is none. Reads nothing. */
  timestampAt(offset: number): number {
    const run = this.runFor(offset);
    if (run === undefined) {
      const recent = this.recentFor(offset);
      return recent === undefined ? 0 : recent.wal.batches.timestampOf(rowFor(recent, offset));
    }
    const part = Math.max(0, offset - run.first) / Math.max(1, run.next - run.first);
    return Math.floor(run.firstTimestamp + part * (run.lastTimestamp - run.firstTimestamp));
  }

  /** An offset at or before the first record of a time, near it. Reads nothing. */
  offsetBefore(timestamp: number): number {
    for (let at = this.recent.length - 1; at >= 0; at--) {
      const { wal, rows } = this.recent[at]!;
      const row = rows.findLast((each) => wal.batches.timestampOf(each) < timestamp);
      if (row !== undefined) return wal.batches.baseOf(row);
    }
    const run = this.runs.findLast((each) => each.firstTimestamp < timestamp);
    return run === undefined ? this.head : (run.index?.offsetBefore(timestamp) ?? run.first);
  }

  /** The run that holds an offset or else the next one behind it; undefined when all runs end below it. */
  runFor(offset: number): Run | undefined {
    const at = firstEndingBehind(this.runs, offset);
    return this.runs[at];
  }

  /** Offset behind the newest batch in the log; undefined when there is none. */
  get recentEnd(): number | undefined {
    const last = this.recent[this.recent.length - 1];
    return last?.wal.batches.nextOf(last.rows[last.rows.length - 1]!);
  }

  /** Those of the log file with the batch that holds an offset or else the next one behind it: `rowFor` says which. */
  recentFor(offset: number): Recent | undefined {
    for (const recent of this.recent) {
      if (recent.wal.batches.nextOf(recent.rows[recent.rows.length - 1]!) > offset) return recent;
    }
    return undefined;
  }

  /** Bytes of the batches in the log that begin at or above an offset. Costs little where they are few. */
  recentBytesFrom(offset: number): number {
    let bytes = 0;
    for (let at = this.recent.length - 1; at >= 0; at--) {
      const { wal, rows } = this.recent[at]!;
      for (let index = rows.length - 1; index >= 0; index--) {
        const row = rows[index]!;
        if (wal.batches.baseOf(row) < offset) return bytes;
        bytes += wal.batches.bytesOf(row);
      }
    }
    return bytes;
  }

  /** Takes away the runs that end at or below an offset. */
  dropRunsBelow(offset: number): Run[] {
    const keep = firstEndingBehind(this.runs, offset);
    const dropped = keep === 0 ? [] : this.runs.splice(0, keep);
    for (const run of dropped) this.bytes -= run.bytes;
    return dropped;
  }
}

/** The row of the batch that holds an offset or else of the next one behind it, which is among these. */
export function rowFor({ wal, rows }: Recent, offset: number): number {
  return rows[wal.batches.indexBehind(rows, offset)]!;
}

/** Gaps, in order, with one more; what touches becomes one. */
export function withGap(gaps: readonly Gap[], { from, to }: Gap): Gap[] {
  const merged = { from, to };
  const before: Gap[] = [];
  const behind: Gap[] = [];
  for (const gap of gaps) {
    if (gap.to < from) before.push(gap);
    else if (gap.from > to) behind.push(gap);
    else {
      merged.from = Math.min(merged.from, gap.from);
      merged.to = Math.max(merged.to, gap.to);
    }
  }
  return [...before, merged, ...behind];
}

function firstEndingBehind(items: readonly { readonly next: number }[], offset: number): number {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (items[middle]!.next <= offset) low = middle + 1;
    else high = middle;
  }
  return low;
}
