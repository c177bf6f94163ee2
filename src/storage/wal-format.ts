/**
 * Write-ahead log, format 1. Little-endian. Spec: docs/format.md
 *
 * One log per directory, in numbered files that are preallocated and reused. A file is a header and entries; an entry
 * is what one turn of the event loop committed.
 *
 *   file header (FILE_HEADER_BYTES, zero padded)
 *   0          8         12           16       24           32             36         40            56
 *   +----------+---------+------------+--------+------------+--------------+----------+-------------+---------
 *   | VARVEWAL | crc32   | version    | seq    | first lsn  | generation   | prev crc | directory id| boot id
 *   | 8 bytes  | u32     | u32        | u64    | u64        | u32          | u32      | 16 bytes    | 36 bytes
 *   +----------+---------+------------+--------+------------+--------------+----------+-------------+---------
 *   crc32 covers bytes 12 .. FILE_HEADER_BYTES. Byte 92: flags (1: commits may have been acknowledged before they
 *   were durable). Bytes 96 .. 104: u64 size up to which log files are filled.
 *
 *   entry
 *   0       4            8            12           16      24          32         40        48         52          56
 *   +-------+------------+------------+------------+-------+-----------+----------+---------+----------+-----------+------
 *   | crc32 | generation | bulk bytes | meta bytes | lsn   | watermark | elapsed  | wall    | prev crc | bulk crc  | bulk,
 *   | u32   | u32        | u32        | u32        | u64   | u64       | u64 ms   | u64 ms  | u32      | u32       | meta
 *   +-------+------------+------------+------------+-------+-----------+----------+---------+----------+-----------+------
 *   crc32 covers the header from byte 4 and the meta part. The bulk part is whole batches (batch.ts), each guarded by
 *   its own checksum and padded to 8; `bulk crc` is the crc32 over those checksums in order. So every payload byte is
 *   checksummed once. Entries are padded to 8 bytes.
 *
 * Invariants
 * - An entry is valid only if its generation is its file's, its lsn follows its predecessor's by one, and `prev crc` is
 *   its predecessor's checksum. Each open begins a new generation: nothing that an earlier life left behind, in a
 *   reused file or beyond a cut, can be taken for a continuation.
 * - `watermark` is the highest lsn known durable when the entry was written. It vouches for that lsn: an invalid
 *   entry at or below it is damage, above every voucher it is a torn tail.
 * - A file's `first lsn` is its predecessor's last lsn + 1, so a hole at the end of a file shows.
 */

import { getU32, getU64, putU32, putU64 } from "../api/integers.js";
import { crc32 } from "./crc32.js";

export const WAL_MAGIC = "VARVEWAL";
const WAL_VERSION = 1;
/** One page: the first entry starts on a sector of its own. */
export const FILE_HEADER_BYTES = 4096;
export const ENTRY_HEADER_BYTES = 56;

const FLAG_ASYNC = 1;

export interface WalFileHeader {
  /** Files are numbered without gaps, from 1. */
  readonly seq: number;
  readonly firstLsn: number;
  readonly generation: number;
  /** Checksum of the entry before `firstLsn`. */
  readonly prevCrc: number;
  /** 16 bytes, hexadecimal. */
  readonly directoryId: string;
  /** The operating system's run at the time; empty when it cannot be told. */
  readonly bootId: string;
  /** Commits may have been acknowledged before they were durable. */
  readonly async: boolean;
  /** Size of a full log file at the time: bounds what can be lost of it. */
  readonly fileBytes: number;
}

export function encodeFileHeader(header: WalFileHeader): Buffer {
  const buffer = Buffer.alloc(FILE_HEADER_BYTES);
  buffer.write(WAL_MAGIC, 0, "latin1");
  putU32(buffer, 12, WAL_VERSION);
  putU64(buffer, 16, header.seq);
  putU64(buffer, 24, header.firstLsn);
  putU32(buffer, 32, header.generation);
  putU32(buffer, 36, header.prevCrc);
  buffer.write(header.directoryId, 40, 16, "hex");
  buffer.write(header.bootId, 56, 36, "latin1");
  buffer[92] = header.async ? FLAG_ASYNC : 0;
  putU64(buffer, 96, header.fileBytes);
  putU32(buffer, 8, crc32(buffer, 12, FILE_HEADER_BYTES));
  return buffer;
}

/** The header, or why it is none. */
export function decodeFileHeader(buffer: Buffer): WalFileHeader | string {
  if (buffer.length < FILE_HEADER_BYTES) return "shorter than a header";
  if (buffer.toString("latin1", 0, 8) !== WAL_MAGIC) return "no write-ahead log magic";
  if (crc32(buffer, 12, FILE_HEADER_BYTES) !== getU32(buffer, 8)) return "header checksum does not match";
  const version = getU32(buffer, 12);
  if (version !== WAL_VERSION) return `format version ${version} is not known`;
  return {
    seq: getU64(buffer, 16),
    firstLsn: getU64(buffer, 24),
    generation: getU32(buffer, 32),
    prevCrc: getU32(buffer, 36),
    directoryId: buffer.toString("hex", 40, 56),
    bootId: buffer.toString("latin1", 56, 92).replace(/\0+$/, ""),
    async: (buffer[92]! & FLAG_ASYNC) !== 0,
    fileBytes: getU64(buffer, 96),
  };
}

export interface EntryHeader {
  crc: number;
  generation: number;
  bulkBytes: number;
  metaBytes: number;
  lsn: number;
  watermark: number;
  elapsedMs: number;
  wallMs: number;
  prevCrc: number;
  bulkCrc: number;
}

/** Completes an entry: header at `position`, bulk behind it, meta ending at `end`. Returns its checksum. */
export function sealEntry(buffer: Buffer, position: number, end: number, header: Omit<EntryHeader, "crc">): number {
  putU32(buffer, position + 4, header.generation);
  putU32(buffer, position + 8, header.bulkBytes);
  putU32(buffer, position + 12, header.metaBytes);
  putU64(buffer, position + 16, header.lsn);
  putU64(buffer, position + 24, header.watermark);
  putU64(buffer, position + 32, header.elapsedMs);
  putU64(buffer, position + 40, header.wallMs);
  putU32(buffer, position + 48, header.prevCrc);
  putU32(buffer, position + 52, header.bulkCrc);
  const crc = entryCrc(buffer, position, end - header.metaBytes, end);
  putU32(buffer, position, crc);
  return crc;
}

function entryCrc(buffer: Uint8Array, position: number, metaStart: number, end: number): number {
  const headerCrc = crc32(buffer, position + 4, position + ENTRY_HEADER_BYTES);
  return crc32(buffer, metaStart, end, headerCrc);
}

export function readEntryHeader(buffer: Uint8Array, position: number): EntryHeader {
  return {
    crc: getU32(buffer, position),
    generation: getU32(buffer, position + 4),
    bulkBytes: getU32(buffer, position + 8),
    metaBytes: getU32(buffer, position + 12),
    lsn: getU64(buffer, position + 16),
    watermark: getU64(buffer, position + 24),
    elapsedMs: getU64(buffer, position + 32),
    wallMs: getU64(buffer, position + 40),
    prevCrc: getU32(buffer, position + 48),
    bulkCrc: getU32(buffer, position + 52),
  };
}

/** True when header and meta match the checksum; `header` was read at `position` and the whole entry is in memory. */
export function entryIsIntact(buffer: Uint8Array, position: number, header: EntryHeader): boolean {
  const metaStart = position + ENTRY_HEADER_BYTES + header.bulkBytes;
  return entryCrc(buffer, position, metaStart, metaStart + header.metaBytes) === header.crc;
}

export function entryBytes(header: Pick<EntryHeader, "bulkBytes" | "metaBytes">): number {
  return ENTRY_HEADER_BYTES + header.bulkBytes + header.metaBytes;
}
