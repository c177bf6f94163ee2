/**
 * Ways to look at files of which nothing is trusted: a bounded view that never reads past the end, batches and records
 * that are checked before they are believed, and the search for the next intact thing behind damage.
 */

import { getU32 } from "../api/integers.js";
import {
  BATCH_HEADER_BYTES,
  type BatchHeader,
  batchFileBytes,
  batchIsIntact,
  RecordCursor,
  readBatchHeader,
} from "../storage/batch.js";
import { MalformedError } from "../storage/bytes.js";
import type { DiskFile } from "../storage/disk.js";
import {
  ENTRY_HEADER_BYTES,
  type EntryHeader,
  entryBytes,
  entryIsIntact,
  readEntryHeader,
} from "../storage/wal-format.js";

const WINDOW_BYTES = 1024 * 1024;
const ALIGN_BYTES = 8;
/** Length, flags and a timestamp. */
const RECORD_BYTES_MIN = 6;
const RECORD_FLAGS_KNOWN = 15;

/** A sliding view of a file. */
export class FileWindow {
  readonly size: number;
  buffer = Buffer.allocUnsafeSlow(WINDOW_BYTES);
  readonly #file: DiskFile;
  readonly #onRead: (bytes: number) => void;
  #start = 0;
  #end = 0;
  /** How far the file has been read; what is read again is not progress. */
  #furthest = 0;

  constructor(file: DiskFile, onRead: (bytes: number) => void = () => {}) {
    this.#file = file;
    this.#onRead = onRead;
    this.size = file.size();
  }

  /** Index in `buffer` of file position `position` with `length` bytes behind it, or -1 past the end of the file. */
  async at(position: number, length: number): Promise<number> {
    if (position + length > this.size) return -1;
    if (position < this.#start || position + length > this.#end) {
      if (length > this.buffer.length) this.buffer = Buffer.allocUnsafeSlow(length);
      const read = await this.#file.read(this.buffer, 0, this.buffer.length, position);
      this.#start = position;
      this.#end = position + read;
      if (this.#end > this.#furthest) {
        this.#onRead(this.#end - Math.max(this.#furthest, position));
        this.#furthest = this.#end;
      }
      if (read < length) return -1;
    }
    return position - this.#start;
  }

  /** Bytes of the file that `buffer` holds from index `at` on. */
  filled(at: number): number {
    return this.#end - this.#start - at;
  }
}

/** Where batches of one stream should stand, one behind another. */
export interface Stretch {
  readonly position: number;
  readonly end: number;
  /** Undefined where batches of any stream may stand. */
  readonly streamId: number | undefined;
  readonly firstOffset: number;
  /** One more than the last. */
  readonly nextOffset: number;
}

export interface FoundBatch {
  readonly header: BatchHeader;
  readonly position: number;
  /** Where it stands in `window.buffer`, until the next read. */
  readonly at: number;
}

/** A part of a stretch that holds no intact batch. */
export interface Damage {
  readonly position: number;
  /** Where the next intact batch stands, or the end of the stretch. */
  readonly end: number;
  /** Whose batch it was, and the first and last offset that may have stood there; as far as it can be told. */
  readonly streamId: number | undefined;
  readonly offsets: readonly [number, number] | undefined;
  readonly reason: string;
}

export type Finding = { readonly batch: FoundBatch } | { readonly damage: Damage };

/** Everything in a stretch, in order: its intact batches, and the damage between them. */
export async function* walkStretch(window: FileWindow, stretch: Stretch): AsyncGenerator<Finding> {
  let { position, firstOffset: offset } = stretch;
  while (position < stretch.end) {
    const found = await batchAt(window, stretch, position, offset);
    if (typeof found !== "string") {
      yield { batch: found };
      position += batchFileBytes(found.header.bytes);
      // Where several streams share a stretch, nothing is known of the next one's offsets.
      if (stretch.streamId !== undefined) offset = found.header.baseOffset + found.header.span;
      continue;
    }
    const suspect = await headerAt(window, position);
    const next = await findBatch(window, stretch, position + ALIGN_BYTES, offset);
    const end = next?.position ?? stretch.end;
    const nextOffset =
      stretch.streamId === undefined ? stretch.nextOffset : (next?.header.baseOffset ?? stretch.nextOffset);
    // The header is believed where all that can be checked of it fits.
    const believed =
      suspect !== undefined &&
      position + batchFileBytes(suspect.bytes) === end &&
      isPlausible(suspect, stretch, offset) &&
      suspect.baseOffset + suspect.span <= nextOffset;
    if (believed) {
      const { streamId, baseOffset, span } = suspect;
      yield { damage: { position, end, streamId, offsets: [baseOffset, baseOffset + span - 1], reason: found } };
    } else {
      const known = stretch.streamId !== undefined && Number.isFinite(nextOffset);
      const offsets = known ? ([offset, nextOffset - 1] as const) : undefined;
      yield { damage: { position, end, streamId: stretch.streamId, offsets, reason: found } };
    }
    position = end;
    if (stretch.streamId !== undefined && Number.isFinite(nextOffset)) offset = nextOffset;
  }
  const { end, streamId, nextOffset } = stretch;
  if (streamId !== undefined && offset < nextOffset && Number.isFinite(nextOffset)) {
    const reason = `ends at offset ${offset}, not at ${nextOffset}`;
    yield { damage: { position: end, end, streamId, offsets: [offset, nextOffset - 1], reason } };
  }
}

function isPlausible(header: BatchHeader, stretch: Stretch, offset: number): boolean {
  return (
    (stretch.streamId === undefined || header.streamId === stretch.streamId) &&
    header.baseOffset >= offset &&
    header.baseOffset + header.span <= stretch.nextOffset
  );
}

async function headerAt(window: FileWindow, position: number): Promise<BatchHeader | undefined> {
  const at = await window.at(position, BATCH_HEADER_BYTES);
  return at < 0 ? undefined : readBatchHeader(window.buffer, at, at + BATCH_HEADER_BYTES);
}

/** The intact batch at a position, or why there is none. */
async function batchAt(
  window: FileWindow,
  stretch: Stretch,
  position: number,
  offset: number,
): Promise<FoundBatch | string> {
  if (position + BATCH_HEADER_BYTES > window.size) return `the file ends at byte ${window.size}`;
  const header = await headerAt(window, position);
  if (header === undefined) return "no batch begins here";
  if (position + header.bytes > stretch.end) return `the batch reaches past byte ${stretch.end}, where it should end`;
  if (position + header.bytes > window.size) return `the file ends at byte ${window.size}, within a batch`;
  const at = await window.at(position, header.bytes);
  if (at < 0 || !batchIsIntact(window.buffer, at, header.bytes)) return "the checksum of the batch does not match";
  if (stretch.streamId !== undefined && header.streamId !== stretch.streamId) {
    return `a batch of stream ${header.streamId} stands where stream ${stretch.streamId} should be`;
  }
  if (!isPlausible(header, stretch, offset)) {
    return `the batch holds offsets ${header.baseOffset} to ${header.baseOffset + header.span - 1}, which do not belong here`;
  }
  return { header, position, at };
}

async function findBatch(
  window: FileWindow,
  stretch: Stretch,
  from: number,
  offset: number,
): Promise<FoundBatch | undefined> {
  for (
    let position = from;
    position + BATCH_HEADER_BYTES <= Math.min(stretch.end, window.size);
    position += ALIGN_BYTES
  ) {
    const header = await headerAt(window, position);
    if (header === undefined || !isPlausible(header, stretch, offset)) continue;
    const found = await batchAt(window, stretch, position, offset);
    if (typeof found !== "string") return found;
  }
  return undefined;
}

/**
 * Walks the records of an intact batch to its end. Returns why they are not what the format says, or what the visitor
 * finds wrong with one of them.
 */
export function walkRecords(
  buffer: Buffer,
  at: number,
  header: BatchHeader,
  visit: (record: RecordCursor) => string | undefined,
): string | undefined {
  const record = new RecordCursor();
  record.enter(buffer, at, header.count, header.baseOffset, header.timestamp);
  const end = at + header.bytes;
  let { timestamp, baseOffset } = header;
  try {
    for (let index = 0; index < header.count; index++) {
      const start = record.end;
      const where = `record ${index + 1} of ${header.count}`;
      if (start + RECORD_BYTES_MIN > end) return `${where} begins at the end of the batch`;
      const bytes = getU32(buffer, start);
      if (bytes < RECORD_BYTES_MIN || start + bytes > end) return `${where} says that it has ${bytes} bytes`;
      if ((buffer[start + 4]! & ~RECORD_FLAGS_KNOWN) !== 0)
        return `${where} has flags ${buffer[start + 4]}, not all known`;
      record.next();
      if (record.offset < baseOffset) return `${where} has offset ${record.offset}, not one behind its predecessor's`;
      if (record.timestamp < timestamp) return `${where} has an earlier timestamp than its predecessor`;
      baseOffset = record.offset + 1;
      ({ timestamp } = record);
      const reason = visit(record);
      if (reason !== undefined) return `${where}: ${reason}`;
    }
  } catch (error) {
    if (error instanceof MalformedError) return error.message;
    throw error;
  }
  if (record.end !== end) return `${end - record.end} bytes behind the last record`;
  if (baseOffset > header.baseOffset + header.span) return `the last offset is ${baseOffset - 1}, against its header`;
  return undefined;
}

/** The zeros that fill a batch up to a multiple of 8 are under no checksum. */
export async function paddingProblem(window: FileWindow, batch: FoundBatch): Promise<string | undefined> {
  const { bytes } = batch.header;
  const length = batchFileBytes(bytes) - bytes;
  if (length === 0) return undefined;
  const at = await window.at(batch.position + bytes, length);
  if (at < 0) return "the padding behind the batch is missing";
  for (let index = at; index < at + length; index++) {
    if (window.buffer[index] !== 0) return "the padding behind the batch is not zero; no record is affected";
  }
  return undefined;
}

export interface FoundEntry {
  readonly header: EntryHeader;
  readonly position: number;
}

/** The next entry of the log at or behind a position whose header and meta are intact; its batches may not be. */
export async function findEntry(
  window: FileWindow,
  from: number,
  generation: number,
  lsnMin: number,
): Promise<FoundEntry | undefined> {
  let position = from;
  for (;;) {
    const at = await window.at(position, ENTRY_HEADER_BYTES);
    if (at < 0) return undefined;
    const { buffer } = window;
    const last = window.filled(at) - ENTRY_HEADER_BYTES;
    let skip = 0;
    while (skip <= last && getU32(buffer, at + skip + 4) !== generation) skip += ALIGN_BYTES;
    position += skip;
    if (skip > last) continue;
    const header = readEntryHeader(buffer, at + skip);
    if (header.lsn >= lsnMin && header.watermark < header.lsn) {
      const whole = await window.at(position, entryBytes(header));
      if (whole >= 0 && entryIsIntact(window.buffer, whole, header)) return { header, position };
    }
    position += ALIGN_BYTES;
  }
}
