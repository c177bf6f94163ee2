/**
 * Batch and record, format 1. Little-endian. Spec: docs/format.md
 *
 * A batch holds the consecutive records that one stream got in one turn of the event loop. It is encoded once; the
 * same bytes stand in the write-ahead log and later in a segment.
 *
 *   0        4        8           12       16            24            32        36       38        40
 *   +--------+--------+-----------+--------+-------------+-------------+---------+--------+---------+---------...
 *   | crc32  | bytes  | stream id | count  | base offset | timestamp   | span    | format | span    | records
 *   | u32    | u32    | u32       | u32    | u64         | u64 ms      | u32 low | u16    | u16 high|
 *   +--------+--------+-----------+--------+-------------+-------------+---------+--------+---------+---------...
 *   crc32 covers bytes 4 .. `bytes`. `bytes` counts the header and the records, not the zeros that pad to 8.
 *   `span` is how many offsets the batch stands for, from the base offset on. As records are first written it equals
 *   `count`. Where records have been removed since, the batch stands for theirs too: it says that nothing is lost there.
 *
 *   record   u32 bytes (all of the record) | u8 flags | varint timestamp - batch timestamp
 *            [varint offset - base offset]   flag HOLES: otherwise the offset is the previous one + 1
 *            [varint bytes, key]             flag KEY
 *            [varint count, { varint bytes, name, varint bytes, value } ...]   flag HEADERS
 *            [varint bytes, attributes]      flag ATTRIBUTES: what the queue keeps with the record, opaque here
 *            payload                         to the end of the record
 *
 * Invariants
 * - A batch starts 8-byte aligned within its file.
 * - A batch is at most BATCH_BYTES_TARGET long, or holds a single record.
 * - Timestamps never fall from one record of a stream to the next.
 */

import { copyBytes } from "../api/copy-bytes.js";
import { getU32, getU64, putU32, putU64 } from "../api/integers.js";
import { align8, MalformedError, putVarint, VARINT_BYTES_MAX } from "./bytes.js";
import { crc32 } from "./crc32.js";

export const BATCH_HEADER_BYTES = 40;
/** Where in the header the length of the batch stands. */
export const BATCH_LENGTH_AT = 4;
/**
 * A batch is closed when the next record would take it past this: small enough that a random read stays cheap, large
 * enough for 64 records of 1 KiB.
 */
export const BATCH_BYTES_TARGET = 96 * 1024;
const BATCH_FORMAT = 1;
/** A span is kept in two parts: 32 bits, and 16 more beside the format. */
const SPAN_LOW = 2 ** 32;
const SPAN_HIGH_UNIT = 2 ** 16;

const FLAG_KEY = 1;
const FLAG_HEADERS = 2;
const FLAG_ATTRIBUTES = 4;
const FLAG_HOLES = 8;
const FLAGS_KNOWN = 15;

/** Fixed part of a record, at most: length, flags, and the two varints. */
const RECORD_FIXED_BYTES_MAX = 4 + 1 + 2 * VARINT_BYTES_MAX;
/** What stands before the payload of a record that is nothing else: length, flags, and a varint of 0. */
const PLAIN_BYTES = 4 + 1 + 1;
const NO_HEADERS: Readonly<Record<string, string>> = Object.freeze({});

/** The parts of a record as a queue hands them over. */
export interface RecordParts {
  payload: string | Uint8Array;
  key: string | Uint8Array | undefined;
  headers: Readonly<Record<string, string>> | undefined;
  attributes: Uint8Array | undefined;
}

/** Strings up to this long are not counted but taken for three bytes a character. */
const UNCOUNTED_LENGTH_MAX = 4096;

/** Bytes a string or byte array takes as UTF-8, at most. */
function bytesMax(value: string | Uint8Array): number {
  if (typeof value !== "string") return value.length;
  return value.length <= UNCOUNTED_LENGTH_MAX ? value.length * 3 : Buffer.byteLength(value);
}

/** An upper bound for {@link putRecord}; exact lengths would cost a pass over every string. */
export function recordBytesMax(record: RecordParts): number {
  let bytes = RECORD_FIXED_BYTES_MAX + bytesMax(record.payload);
  if (record.key !== undefined) bytes += VARINT_BYTES_MAX + bytesMax(record.key);
  if (record.attributes !== undefined) bytes += VARINT_BYTES_MAX + record.attributes.length;
  if (record.headers !== undefined) {
    bytes += VARINT_BYTES_MAX;
    for (const name in record.headers) {
      bytes += 2 * VARINT_BYTES_MAX + (name.length + record.headers[name]!.length) * 3;
    }
  }
  return bytes;
}

/** The same for `count` records that are nothing but payloads, of so many bytes together. */
export function payloadsBytesMax(count: number, bytes: number): number {
  return count * RECORD_FIXED_BYTES_MAX + bytes;
}

/** Payload bytes of the record that was written last: a second return value would be an allocation. */
export const written = { payloadBytes: 0 };

/**
 * Writes a record and returns the position behind it. `offsetDelta` is given only where offsets have holes.
 */
export function putRecord(
  buffer: Buffer,
  position: number,
  record: RecordParts,
  timestampDelta: number,
  offsetDelta?: number,
): number {
  let flags = 0;
  let at = putVarint(buffer, position + 5, timestampDelta);
  if (offsetDelta !== undefined) {
    flags |= FLAG_HOLES;
    at = putVarint(buffer, at, offsetDelta);
  }
  if (record.key !== undefined) {
    flags |= FLAG_KEY;
    at = putSized(buffer, at, record.key);
  }
  if (record.headers !== undefined) {
    const names = Object.keys(record.headers);
    if (names.length > 0) {
      flags |= FLAG_HEADERS;
      at = putVarint(buffer, at, names.length);
      for (const name of names) {
        at = putSized(buffer, at, name);
        at = putSized(buffer, at, record.headers[name]!);
      }
    }
  }
  if (record.attributes !== undefined) {
    flags |= FLAG_ATTRIBUTES;
    at = putSized(buffer, at, record.attributes);
  }
  const payload = record.payload;
  const payloadStart = at;
  if (typeof payload === "string") {
    at += buffer.write(payload, at, "utf8");
  } else {
    buffer.set(payload, at);
    at += payload.length;
  }
  written.payloadBytes = at - payloadStart;
  putU32(buffer, position, at - position);
  buffer[position + 4] = flags;
  return at;
}

/** The same for a record that is nothing but a payload, wherever that stands. */
export function putPayload(buffer: Buffer, position: number, memory: Buffer, start: number, end: number): number {
  const payloadStart = position + PLAIN_BYTES;
  const next = payloadStart + end - start;
  putU32(buffer, position, next - position);
  buffer[position + 4] = 0;
  buffer[position + 5] = 0;
  copyBytes(memory, start, end, buffer, payloadStart);
  return next;
}

function putSized(buffer: Buffer, position: number, value: string | Uint8Array): number {
  if (typeof value === "string") {
    const at = putVarint(buffer, position, Buffer.byteLength(value));
    return at + buffer.write(value, at, "utf8");
  }
  const at = putVarint(buffer, position, value.length);
  buffer.set(value, at);
  return at + value.length;
}

/** Completes a batch whose records stand behind its header, up to `end`. Returns its checksum. */
export function sealBatch(
  buffer: Buffer,
  position: number,
  end: number,
  streamId: number,
  count: number,
  baseOffset: number,
  timestamp: number,
  span: number,
): number {
  putU32(buffer, position + 4, end - position);
  putU32(buffer, position + 8, streamId);
  putU32(buffer, position + 12, count);
  putU64(buffer, position + 16, baseOffset);
  putU64(buffer, position + 24, timestamp);
  putU32(buffer, position + 32, span % SPAN_LOW);
  putU32(buffer, position + 36, BATCH_FORMAT + Math.floor(span / SPAN_LOW) * SPAN_HIGH_UNIT);
  const crc = crc32(buffer, position + 4, end);
  putU32(buffer, position, crc);
  return crc;
}

export interface BatchHeader {
  crc: number;
  bytes: number;
  streamId: number;
  count: number;
  baseOffset: number;
  timestamp: number;
  span: number;
}

/** The stream of the batch at a position, if one stands there. */
export function batchStreamId(buffer: Uint8Array, position: number): number {
  return getU32(buffer, position + 8);
}

/** The header at a position, or undefined when what stands there cannot be one. Does not check the checksum. */
export function readBatchHeader(buffer: Uint8Array, position: number, end: number): BatchHeader | undefined {
  if (end - position < BATCH_HEADER_BYTES) return undefined;
  const formatAndSpan = getU32(buffer, position + 36);
  const header = {
    crc: getU32(buffer, position),
    bytes: getU32(buffer, position + 4),
    streamId: getU32(buffer, position + 8),
    count: getU32(buffer, position + 12),
    baseOffset: getU64(buffer, position + 16),
    timestamp: getU64(buffer, position + 24),
    span: getU32(buffer, position + 32) + Math.floor(formatAndSpan / SPAN_HIGH_UNIT) * SPAN_LOW,
  };
  const sane =
    header.bytes > BATCH_HEADER_BYTES &&
    header.count > 0 &&
    header.count <= header.span &&
    header.baseOffset + header.span <= Number.MAX_SAFE_INTEGER &&
    !Number.isNaN(header.timestamp) &&
    formatAndSpan % SPAN_HIGH_UNIT === BATCH_FORMAT;
  return sane ? header : undefined;
}

/** True when the checksum of the batch at `position` matches its bytes. */
export function batchIsIntact(buffer: Uint8Array, position: number, bytes: number): boolean {
  return crc32(buffer, position + 4, position + bytes) === getU32(buffer, position);
}

/** Bytes that a batch takes in a file, padding included. */
export function batchFileBytes(bytes: number): number {
  return align8(bytes);
}

/** Makes the padding behind a batch of `bytes` at `position` what it is meant to be. */
export function zeroPadding(buffer: Uint8Array, position: number, bytes: number): void {
  const end = position + batchFileBytes(bytes);
  // A few bytes: a call of fill() costs more than writing them.
  for (let at = position + bytes; at < end; at++) buffer[at] = 0;
}

/**
 * Walks the records of one verified batch in place. Fields describe the record that the last `next()` came to; the
 * views they give out alias the buffer, so copy what must outlive it.
 */
export class RecordCursor {
  buffer: Buffer = Buffer.alloc(0);
  offset = 0;
  timestamp = 0;
  /** Where the record and its payload stand in `buffer`. */
  start = 0;
  payloadStart = 0;
  end = 0;
  #flags = 0;
  #fieldsStart = 0;
  #attributesStart = 0;
  #attributesEnd = 0;
  #left = 0;
  #base = 0;
  #baseTimestamp = 0;

  /** Records of the batch that are still to come. */
  get left(): number {
    return this.#left;
  }

  /** Stands before the first record of the batch at `position`. */
  enter(buffer: Buffer, position: number, count: number, baseOffset: number, timestamp: number): void {
    this.buffer = buffer;
    this.end = position + BATCH_HEADER_BYTES;
    this.offset = baseOffset - 1;
    this.#left = count;
    this.#base = baseOffset;
    this.#baseTimestamp = timestamp;
  }

  leave(): void {
    this.#left = 0;
  }

  next(): boolean {
    if (this.#left === 0) return false;
    this.#left--;
    const buffer = this.buffer;
    const start = this.end;
    this.start = start;
    this.end = start + getU32(buffer, start);
    const flags = buffer[start + 4]!;
    this.#flags = flags;
    let at = start + 5;
    const byte = buffer[at++]!;
    if (byte < 128) {
      this.timestamp = this.#baseTimestamp + byte;
    } else {
      at = this.#varint(at - 1);
      this.timestamp = this.#baseTimestamp + this.#value;
    }
    if ((flags & FLAG_HOLES) === 0) {
      this.offset++;
    } else {
      at = this.#varint(at);
      this.offset = this.#base + this.#value;
    }
    this.#fieldsStart = at;
    this.#attributesEnd = 0;
    if ((flags & ~FLAG_HOLES) !== 0) {
      if ((flags & ~FLAGS_KNOWN) !== 0) throw new MalformedError(`record flags ${flags} are unknown`);
      if ((flags & FLAG_KEY) !== 0) at = this.#skipSized(at);
      if ((flags & FLAG_HEADERS) !== 0) {
        at = this.#varint(at);
        for (let fields = this.#value * 2; fields > 0; fields--) at = this.#skipSized(at);
      }
      if ((flags & FLAG_ATTRIBUTES) !== 0) {
        at = this.#varint(at);
        this.#attributesStart = at;
        at += this.#value;
        this.#attributesEnd = at;
      }
    }
    this.payloadStart = at;
    if (at > this.end) throw new MalformedError("record is shorter than its fields");
    return true;
  }

  /** A copy of the key. */
  key(): Buffer | undefined {
    const view = this.keyView();
    return view && Buffer.from(view);
  }

  /** A view of the key. */
  keyView(): Buffer | undefined {
    if ((this.#flags & FLAG_KEY) === 0) return undefined;
    const start = this.#varint(this.#fieldsStart);
    return this.buffer.subarray(start, start + this.#value);
  }

  /** Bytes that `copyTo` needs, at most. */
  get copyBytesMax(): number {
    return RECORD_FIXED_BYTES_MAX + this.end - this.#fieldsStart;
  }

  /** Writes the record as one of another batch, and returns the position behind it. */
  copyTo(target: Buffer, position: number, timestampDelta: number, offsetDelta: number | undefined): number {
    let at = putVarint(target, position + 5, timestampDelta);
    if (offsetDelta !== undefined) at = putVarint(target, at, offsetDelta);
    at += this.buffer.copy(target, at, this.#fieldsStart, this.end);
    putU32(target, position, at - position);
    target[position + 4] = (this.#flags & ~FLAG_HOLES) | (offsetDelta === undefined ? 0 : FLAG_HOLES);
    return at;
  }

  headers(): Readonly<Record<string, string>> {
    if ((this.#flags & FLAG_HEADERS) === 0) return NO_HEADERS;
    let at = this.#fieldsStart;
    if ((this.#flags & FLAG_KEY) !== 0) at = this.#skipSized(at);
    at = this.#varint(at);
    const headers: Record<string, string> = {};
    for (let count = this.#value; count > 0; count--) {
      at = this.#varint(at);
      const name = this.buffer.toString("utf8", at, at + this.#value);
      at = this.#varint(at + this.#value);
      // Defined, not assigned, so that a header called __proto__ is just a name.
      Object.defineProperty(headers, name, {
        value: this.buffer.toString("utf8", at, at + this.#value),
        enumerable: true,
        writable: true,
        configurable: true,
      });
      at += this.#value;
    }
    return headers;
  }

  /** A view of the attributes. */
  attributes(): Buffer | undefined {
    return this.#attributesEnd === 0 ? undefined : this.buffer.subarray(this.#attributesStart, this.#attributesEnd);
  }

  /** A copy of the payload. */
  payload(): Buffer {
    const copy = Buffer.allocUnsafe(this.end - this.payloadStart);
    this.buffer.copy(copy, 0, this.payloadStart, this.end);
    return copy;
  }

  /** A view of the payload. */
  payloadView(): Buffer {
    return this.buffer.subarray(this.payloadStart, this.end);
  }

  /** The last varint read; a field because a second return value would be an allocation. */
  #value = 0;

  #varint(position: number): number {
    let at = position;
    let value = 0;
    let scale = 1;
    for (let bytes = 0; bytes < VARINT_BYTES_MAX; bytes++) {
      const byte = this.buffer[at++]!;
      value += (byte & 127) * scale;
      if (byte < 128) {
        this.#value = value;
        return at;
      }
      scale *= 128;
    }
    throw new MalformedError("a number is too large");
  }

  #skipSized(position: number): number {
    const at = this.#varint(position) + this.#value;
    if (at > this.end) throw new MalformedError("record is shorter than its fields");
    return at;
  }
}

/** Payload bytes of the records of an intact batch. */
export function payloadBytesIn(buffer: Buffer, position: number, header: BatchHeader): number {
  const record = new RecordCursor();
  record.enter(buffer, position, header.count, header.baseOffset, header.timestamp);
  let bytes = 0;
  while (record.next()) bytes += record.end - record.payloadStart;
  return bytes;
}
