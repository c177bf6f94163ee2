/**
 * Segment file, format 1. Little-endian. Spec: docs/format.md
 *
 *   0          8       12        16          20     24            32             48       64
 *   +----------+-------+---------+-----------+------+-------------+--------------+--------+---------
 *   | VARVESEG | crc32 | version | stream id | zero | base offset | directory id | zeros  | batches
 *   | 8 bytes  | u32   | u32     | u32       | u32  | u64         | 16 bytes     |        |
 *   +----------+-------+---------+-----------+------+-------------+--------------+--------+---------
 *   crc32 covers bytes 12 .. 64. Stream id 0: a shared segment, with batches of many small streams.
 *
 * Invariants
 * - Batches stand one behind another, 8-byte aligned; a stream's offsets only rise.
 * - The snapshot says how many bytes belong to the segment. What stands behind them is unfinished work of a checkpoint
 *   that did not complete; the log still has it, and it is overwritten.
 * - The index beside it (.idx) is a hint: it can be rebuilt from the segment at any time.
 */

import { getU32, putU32, putU64 } from "../api/integers.js";
import { crc32 } from "./crc32.js";

export const SEGMENT_MAGIC = "VARVESEG";
const SEGMENT_VERSION = 1;
export const SEGMENT_HEADER_BYTES = 64;

/** A segment file and what is known of it. */
export interface Segment {
  readonly path: string;
  /** Where the file's name must be made durable after creation. */
  readonly directory: string;
  /** Number of a shared segment; 0 for a stream's own. */
  readonly sharedId: number;
  /** How often what stands in a stream's own segment has been rewritten; part of its name. */
  readonly edition: number;
  /** Bytes that count. */
  bytes: number;
  /** Written to since the last sync. */
  dirty: boolean;
  /** Its name is not yet durable. */
  unnamed: boolean;
  /** Runs that stand in it; a shared segment without any is removed. */
  runs: number;
}

/** A stretch of one segment that holds consecutive batches of one stream. A stream is a list of runs. */
export interface Run {
  readonly segment: Segment;
  readonly position: number;
  bytes: number;
  /** Offset of the first record, and one more than that of the last. */
  readonly first: number;
  next: number;
  /** Records in it. */
  count: number;
  readonly firstTimestamp: number;
  lastTimestamp: number;
  /** Positions within the run, when known. */
  index: SparseIndex | undefined;
}

/** Whether a file is called like a segment: a stream's own, or a shared one. */
export function isSegmentName(name: string): boolean {
  return isOwnSegmentName(name) || /^\d{16}\.seg$/.test(name);
}

/** Whether a file is called like a stream's own segment. */
export function isOwnSegmentName(name: string): boolean {
  return /^\d{20}-s[1-9]\d*(?:-[1-9]\d*)?\.seg$/.test(name);
}

/**
 * Path of a stream's own segment, after the first offset that it stands for. The stream is named, too: a queue that is
 * made again under the name of a deleted one has the same folder, and other streams.
 */
export function segmentPath(directory: string, streamId: number, baseOffset: number, edition: number): string {
  const name = `${String(baseOffset).padStart(20, "0")}-s${streamId}`;
  return `${directory}/${edition === 0 ? name : `${name}-${edition}`}.seg`;
}

/** The stream whose own segment, or index of one, a file is by its name; undefined when it is neither. */
export function streamIdOfName(name: string): number | undefined {
  const match = /^\d{20}-s([1-9]\d*)(?:-[1-9]\d*)?\.(?:seg|idx|idx\.tmp)$/.exec(name);
  return match === null ? undefined : Number(match[1]);
}

/** The edition that a path of a stream's own segment says. */
export function editionOf(path: string): number {
  return Number(/-(\d+)\.seg$/.exec(path)?.[1] ?? 0);
}

export function encodeSegmentHeader(streamId: number, baseOffset: number, directoryId: string): Buffer {
  const buffer = Buffer.alloc(SEGMENT_HEADER_BYTES);
  buffer.write(SEGMENT_MAGIC, 0, "latin1");
  putU32(buffer, 12, SEGMENT_VERSION);
  putU32(buffer, 16, streamId);
  putU64(buffer, 24, baseOffset);
  buffer.write(directoryId, 32, 16, "hex");
  putU32(buffer, 8, crc32(buffer, 12, SEGMENT_HEADER_BYTES));
  return buffer;
}

/**
 * Whether a header is what was written, of whichever segment. One that is not says nothing: the batches behind it carry
 * their stream, their offsets and a checksum of their own.
 */
export function segmentHeaderIsIntact(buffer: Buffer): boolean {
  if (buffer.length < SEGMENT_HEADER_BYTES || buffer.toString("latin1", 0, 8) !== SEGMENT_MAGIC) return false;
  return crc32(buffer, 12, SEGMENT_HEADER_BYTES) === getU32(buffer, 8);
}

/** Why a buffer is not the header of the segment that is expected; undefined when it is. */
export function segmentHeaderProblem(buffer: Buffer, streamId: number, directoryId: string): string | undefined {
  if (buffer.length < SEGMENT_HEADER_BYTES) return "shorter than a segment header";
  if (buffer.toString("latin1", 0, 8) !== SEGMENT_MAGIC) return "no segment magic";
  if (crc32(buffer, 12, SEGMENT_HEADER_BYTES) !== getU32(buffer, 8)) return "segment header checksum does not match";
  if (getU32(buffer, 12) !== SEGMENT_VERSION) return `segment version ${getU32(buffer, 12)} is not known`;
  if (getU32(buffer, 16) !== streamId) return `belongs to stream ${getU32(buffer, 16)}, not ${streamId}`;
  if (buffer.toString("hex", 32, 48) !== directoryId) return "belongs to another directory";
  return undefined;
}

/** A batch that an index has an entry for. */
interface NotedBatch {
  /** Its first. */
  readonly offset: number;
  readonly position: number;
  /** Of the next one that is noted. */
  readonly nextPosition: number | undefined;
}

/**
 * Where in a run some of its batches start: one entry at least every INDEX_INTERVAL_BYTES, so that any record is found
 * by reading one interval.
 */
export class SparseIndex {
  /** Triples: offset, position in the file, timestamp. Rising in all three. */
  readonly #entries: number[];

  constructor(entries: number[] = []) {
    this.#entries = entries;
  }

  get entries(): readonly number[] {
    return this.#entries;
  }

  /** Notes a batch, unless the last noted one is close. */
  note(offset: number, position: number, timestamp: number): void {
    const last = this.#entries.length - 3;
    if (last >= 0 && position - this.#entries[last + 1]! < INDEX_INTERVAL_BYTES) return;
    this.#entries.push(offset, position, timestamp);
  }

  /** The last noted batch that starts at or below an offset; undefined when none does. */
  batchBefore(offset: number): NotedBatch | undefined {
    const at = this.#floor(0, offset);
    if (at < 0) return undefined;
    return { offset: this.#entries[at]!, position: this.#entries[at + 1]!, nextPosition: this.#entries[at + 4] };
  }

  /** Offset of the last noted batch that starts before a time; undefined when none does. */
  offsetBefore(timestamp: number): number | undefined {
    const at = this.#floor(2, timestamp - 1);
    return at < 0 ? undefined : this.#entries[at];
  }

  #floor(field: number, value: number): number {
    let low = 0;
    let high = this.#entries.length / 3;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#entries[middle * 3 + field]! <= value) low = middle + 1;
      else high = middle;
    }
    return (low - 1) * 3;
  }
}

export const INDEX_INTERVAL_BYTES = 64 * 1024;
const INDEX_MAGIC = "VARVEIDX";
const INDEX_HEADER_BYTES = 32;

/**
 * Index file, format 1: magic (8) | crc32 of the rest (u32) | version (u32) | segment bytes (u64) | first offset (u64) |
 * entries of offset, position, timestamp (u64 each).
 */
export function encodeIndex(run: Run): Buffer {
  const entries = run.index?.entries ?? [];
  const buffer = Buffer.alloc(INDEX_HEADER_BYTES + entries.length * 8);
  buffer.write(INDEX_MAGIC, 0, "latin1");
  putU32(buffer, 12, 1);
  putU64(buffer, 16, run.segment.bytes);
  putU64(buffer, 24, run.first);
  for (const [at, value] of entries.entries()) putU64(buffer, INDEX_HEADER_BYTES + at * 8, value);
  putU32(buffer, 8, crc32(buffer, 12, buffer.length));
  return buffer;
}

/** The index in a file, or undefined when it is not this run's or is damaged. */
export function decodeIndex(buffer: Buffer, run: Run): SparseIndex | undefined {
  const entries = (buffer.length - INDEX_HEADER_BYTES) / 8;
  if (entries < 3 || entries % 3 !== 0 || buffer.toString("latin1", 0, 8) !== INDEX_MAGIC) return undefined;
  if (crc32(buffer, 12, buffer.length) !== getU32(buffer, 8) || getU32(buffer, 12) !== 1) return undefined;
  const values = Array.from({ length: entries }, (_, at) =>
    Number(buffer.readBigUInt64LE(INDEX_HEADER_BYTES + at * 8)),
  );
  const bytes = Number(buffer.readBigUInt64LE(16));
  const first = Number(buffer.readBigUInt64LE(24));
  return bytes === run.segment.bytes && first === run.first ? new SparseIndex(values) : undefined;
}
