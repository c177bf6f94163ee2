/** Inspects segments and their indexes: against the runs that the snapshot names, or on their own where it is lost. */

import { getU32, getU64 } from "../api/integers.js";
import type { RecordCursor } from "../storage/batch.js";
import { align8 } from "../storage/bytes.js";
import { crc32 } from "../storage/crc32.js";
import type { Disk } from "../storage/disk.js";
import { decodeIndex, type Run, SEGMENT_HEADER_BYTES, type Segment, segmentHeaderProblem } from "../storage/segment.js";
import type { Stream } from "../storage/stream.js";
import { indexPath } from "../storage/stream-reader.js";
import { type Findings, guarded } from "./inspect-report.js";
import { FileWindow, paddingProblem, walkRecords, walkStretch } from "./inspect-window.js";

/** Bytes before the entries of an index. */
const INDEX_HEADER_BYTES = 32;

/** A run, and whose it is. */
export interface OwnedRun {
  readonly run: Run;
  readonly stream: Stream;
  readonly queue: string;
  /** Records below this offset are no longer needed: their damage costs nothing. */
  readonly neededFrom: number;
  checkRecord(record: RecordCursor): string | undefined;
  /** These offsets stand here, or their loss has been reported. */
  covers(from: number, to: number): void;
}

export interface SegmentInspection {
  readonly disk: Disk;
  /** Undefined when varve.json does not say it. */
  readonly directoryId: string | undefined;
  readonly findings: Findings;
}

/** Checks a segment and the runs that stand in it. */
export async function inspectSegment(
  inspection: SegmentInspection,
  segment: Segment,
  runs: readonly OwnedRun[],
): Promise<void> {
  const { disk, findings } = inspection;
  const sorted = [...runs].sort((a, b) => a.run.position - b.run.position);
  let done = 0;
  const check = async () => {
    const file = disk.openFile(segment.path, "read");
    try {
      const window = new FileWindow(file, (bytes) => findings.progress(bytes));
      if (!(await checkHeader(inspection, window, segment, sorted))) {
        // Reading refuses the whole file.
        for (const { run, covers } of sorted) covers(run.first, run.next);
        return;
      }
      let end = SEGMENT_HEADER_BYTES;
      for (; done < sorted.length; done++) {
        const owned = sorted[done]!;
        const { run, queue } = owned;
        if (run.position < end || run.position + run.bytes > segment.bytes) {
          const reason = `the snapshot places a run at bytes ${run.position} to ${run.position + run.bytes}, which are not its own`;
          findings.problem(segment.path, run.position, reason, queue, [run.first, run.next - 1]);
          owned.covers(run.first, run.next);
          continue;
        }
        end = run.position + run.bytes;
        await checkRun(inspection, window, owned);
      }
      if (window.size > segment.bytes) {
        const rest = window.size - segment.bytes;
        findings.note(`${segment.path}: ${rest} bytes behind the end, of a checkpoint that was not completed`);
      }
    } finally {
      file.close();
    }
  };
  await guarded(findings, segment.path, check, (reason) => {
    // Every queue is told what it has lost.
    for (const { run, queue, covers } of sorted.slice(done)) {
      findings.problem(segment.path, undefined, reason, queue, [run.first, run.next - 1]);
      covers(run.first, run.next);
    }
    if (sorted.length === 0) findings.problem(segment.path, undefined, reason);
  });
}

/** False when the header is not this segment's. */
async function checkHeader(
  { findings, directoryId }: SegmentInspection,
  window: FileWindow,
  segment: Segment,
  runs: readonly OwnedRun[],
): Promise<boolean> {
  // The first run's reader finds that the file is too short.
  if (window.size < SEGMENT_HEADER_BYTES && runs.length > 0) return true;
  const at = await window.at(0, Math.min(SEGMENT_HEADER_BYTES, window.size));
  const header = window.buffer.subarray(at, at + Math.min(SEGMENT_HEADER_BYTES, window.size));
  const own = segment.sharedId === 0 ? runs[0] : undefined;
  const id = directoryId ?? header.toString("hex", 32, 48);
  let reason = segmentHeaderProblem(header, own?.stream.id ?? 0, id);
  if (reason === undefined && own !== undefined && getU64(header, 24) !== own.run.first) {
    reason = `begins at offset ${getU64(header, 24)}, not ${own.run.first}`;
  }
  if (reason === undefined) return true;
  const cost =
    own === undefined && runs.length > 0 ? `${reason}; none of the ${runs.length} runs in it can be read` : reason;
  findings.problem(segment.path, 0, cost, own?.queue, own && [own.run.first, own.run.next - 1]);
  return false;
}

async function checkRun(inspection: SegmentInspection, window: FileWindow, owned: OwnedRun): Promise<void> {
  const { findings } = inspection;
  const { run, stream, queue, neededFrom } = owned;
  const { path, sharedId } = run.segment;
  const index = sharedId === 0 ? readIndex(inspection, run, queue) : undefined;
  const stretch = {
    position: run.position,
    end: run.position + run.bytes,
    streamId: stream.id,
    firstOffset: run.first,
    nextOffset: run.next,
  };
  let count = 0;
  let lastTimestamp = run.firstTimestamp;
  let damaged = false;
  for await (const found of walkStretch(window, stretch)) {
    if ("damage" in found) {
      damaged = true;
      const { position, end, offsets, reason } = found.damage;
      index?.skip(end);
      if (offsets !== undefined) owned.covers(offsets[0], offsets[1] + 1);
      if (offsets !== undefined && offsets[1] < neededFrom) {
        findings.note(`${path} at ${position}: ${reason}; its records are no longer needed`);
      } else {
        findings.problem(path, position, reason, queue, offsets);
      }
      continue;
    }
    const { header, position, at } = found.batch;
    const offsets = [header.baseOffset, header.baseOffset + header.span - 1] as const;
    const early = header.timestamp < lastTimestamp ? "its records are older than those before" : undefined;
    const reason = walkRecords(window.buffer, at, header, (record) => {
      lastTimestamp = record.timestamp;
      return owned.checkRecord(record);
    });
    if ((reason ?? early) !== undefined) findings.problem(path, position, (reason ?? early)!, queue, offsets);
    const padding = await paddingProblem(window, found.batch);
    if (padding !== undefined) findings.problem(path, position + header.bytes, padding, queue);
    owned.covers(header.baseOffset, header.baseOffset + header.span);
    index?.pass(header.baseOffset, position, header.timestamp);
    count += header.count;
  }
  findings.records += count;
  if (!damaged) {
    const against = (what: string, found: number, named: number) => {
      findings.problem(path, run.position, `the run has ${what} ${found}, against ${named} in the snapshot`, queue);
    };
    if (count !== run.count) against("a number of records of", count, run.count);
    else if (lastTimestamp !== run.lastTimestamp) against("a last timestamp of", lastTimestamp, run.lastTimestamp);
  }
  const wrong = index?.wrong();
  if (wrong !== undefined) findings.problem(indexPath(run.segment), wrong, `leads to no batch; ${INDEX_COST}`, queue);
}

const INDEX_COST = "no record is lost, the index can be removed and is derived again when needed";

/** Holds the entries of an index against the batches as they come by. */
class IndexCheck {
  readonly #entries: readonly number[];
  #at = 0;
  #wrong: number | undefined;

  constructor(entries: readonly number[]) {
    this.#entries = entries;
  }

  /** An intact batch. */
  pass(offset: number, position: number, timestamp: number): void {
    const entries = this.#entries;
    if (this.#at === 0 && entries[1] !== position) this.#note();
    while (this.#at < entries.length && entries[this.#at + 1]! <= position) {
      const [entryOffset, entryPosition, entryTimestamp] = entries.slice(this.#at, this.#at + 3);
      if (entryPosition !== position || entryOffset !== offset || entryTimestamp !== timestamp) this.#note();
      this.#at += 3;
    }
  }

  /** What stands before `position` cannot be read: it may be what the index says. */
  skip(position: number): void {
    while (this.#at < this.#entries.length && this.#entries[this.#at + 1]! < position) this.#at += 3;
  }

  /** Byte of the first entry that is wrong. */
  wrong(): number | undefined {
    if (this.#at < this.#entries.length) this.#note();
    return this.#wrong;
  }

  #note(): void {
    this.#wrong ??= INDEX_HEADER_BYTES + this.#at * 8;
  }
}

/** The index of a run, when there is a sound one that is meant for it. */
function readIndex({ disk, findings }: SegmentInspection, run: Run, queue: string): IndexCheck | undefined {
  const path = indexPath(run.segment);
  if (disk.size(path) === undefined) return undefined;
  const buffer = disk.readFile(path);
  findings.progress(buffer.length);
  const reason = indexProblem(buffer);
  if (reason !== undefined) {
    findings.problem(path, 0, `${reason}; ${INDEX_COST}`, queue);
    return undefined;
  }
  const index = decodeIndex(buffer, run);
  if (index === undefined) findings.note(`${path}: out of date, and not used`);
  return index && new IndexCheck(index.entries);
}

/** Why a buffer is no index; undefined when it is one. */
export function indexProblem(buffer: Buffer): string | undefined {
  if (buffer.length < INDEX_HEADER_BYTES || (buffer.length - INDEX_HEADER_BYTES) % 24 !== 0) {
    return `${buffer.length} bytes are no whole number of index entries`;
  }
  if (buffer.toString("latin1", 0, 8) !== "VARVEIDX") return "no index magic";
  if (crc32(buffer, 12, buffer.length) !== getU32(buffer, 8)) return "index checksum does not match";
  if (getU32(buffer, 12) !== 1) return `index version ${getU32(buffer, 12)} is not known`;
  return undefined;
}

/** Checks a segment of which no snapshot says what it holds. Damage that nothing intact follows may be unfinished work. */
export async function inspectLoneSegment(
  { disk, findings, directoryId }: SegmentInspection,
  path: string,
  queue: string | undefined,
): Promise<void> {
  await guarded(findings, path, async () => {
    const file = disk.openFile(path, "read");
    try {
      const window = new FileWindow(file, (bytes) => findings.progress(bytes));
      const at = await window.at(0, SEGMENT_HEADER_BYTES);
      if (at < 0) {
        findings.problem(path, 0, "shorter than a segment header", queue);
        return;
      }
      const header = window.buffer.subarray(at, at + SEGMENT_HEADER_BYTES);
      const id = directoryId ?? header.toString("hex", 32, 48);
      const named = getU32(header, 16);
      const reason = segmentHeaderProblem(header, named, id);
      if (reason !== undefined) findings.problem(path, 0, reason, queue);
      const streamId = reason === undefined && named !== 0 ? named : undefined;
      const end = align8(window.size);
      const stretch = { position: SEGMENT_HEADER_BYTES, end, streamId, firstOffset: 0 };
      for await (const found of walkStretch(window, { ...stretch, nextOffset: Number.POSITIVE_INFINITY })) {
        if ("damage" in found) {
          const { damage } = found;
          if (damage.end < end) findings.problem(path, damage.position, damage.reason, queue, damage.offsets);
          else findings.note(`${path} at ${damage.position}: ${damage.reason}; nothing intact follows`);
          continue;
        }
        const { batch } = found;
        const { baseOffset, span, count } = batch.header;
        const wrong = walkRecords(window.buffer, batch.at, batch.header, () => undefined);
        if (wrong !== undefined)
          findings.problem(path, batch.position, wrong, queue, [baseOffset, baseOffset + span - 1]);
        else findings.records += count;
      }
    } finally {
      file.close();
    }
  });
}
