/**
 * Snapshot, format 1. Little-endian. Spec: docs/format.md
 *
 * The state of a directory as of one log sequence number: which queues there are, how far each has been read, and
 * where its records stand. Written whole beside its predecessor, made durable, and only then is what it replaces given
 * up.
 *
 *   0          8       12        16     24         32         36    40      44          52        60             76
 *   +----------+-------+---------+------+----------+----------+-----+-------+-----------+---------+--------------+------
 *   | VARVSNAP | crc32 | version | lsn  | wal seq  | generat. | crc | flags | elapsed   | wall    | directory id | table
 *   | 8 bytes  | u32   | u32     | u64  | u64      | u32      | u32 | u32   | u64 ms    | u64 ms  | 16 bytes     |
 *   +----------+-------+---------+------+----------+----------+-----+-------+-----------+---------+--------------+------
 *   table      u32 table bytes | varint last queue id | varint last stream id | varint last shared segment | varint count |
 *              { varint queue id, u8 kind, string name, varint body bytes, u32 body crc32 } ...
 *   bodies     one behind another, in the order of the table
 *   crc32 covers bytes 12 .. end of table. Flag 1: the directory was closed in order.
 *
 * Invariants
 * - Damage in one body costs that queue its state and no other.
 * - `generation` is that of the log files which may follow; `crc` is the checksum of entry `lsn`.
 */

import { getU32, getU64, putU32, putU64 } from "../api/integers.js";
import { Decoder, Encoder, MalformedError } from "./bytes.js";
import { crc32 } from "./crc32.js";
import type { Disk } from "./disk.js";

const MAGIC = "VARVSNAP";
const VERSION = 1;
const HEADER_BYTES = 76;
const FLAG_CLEAN = 1;

export interface SnapshotHeader {
  readonly lsn: number;
  /** The first log file that may hold later entries. */
  readonly walSeq: number;
  readonly generation: number;
  readonly crc: number;
  readonly clean: boolean;
  readonly elapsedMs: number;
  readonly wallMs: number;
  readonly directoryId: string;
  readonly lastQueueId: number;
  readonly lastStreamId: number;
  readonly lastSharedId: number;
}

/** One queue's part. `kind` and `body` mean nothing here. */
export interface SnapshotSection {
  readonly id: number;
  readonly kind: number;
  readonly name: string;
  readonly body: Buffer;
  /** The checksum that the table names for the body. */
  readonly crc: number;
  /** False when the body does not match its checksum. */
  readonly intact: boolean;
}

/** A section to be written. A damaged body goes on not matching its checksum, and so stays damaged. */
export type NewSection = Pick<SnapshotSection, "id" | "kind" | "name" | "body"> & {
  readonly wrongCrc?: number | undefined;
};

export interface Snapshot {
  readonly header: SnapshotHeader;
  readonly sections: readonly SnapshotSection[];
}

export function encodeSnapshot(header: SnapshotHeader, sections: readonly NewSection[]): Buffer[] {
  const table = new Encoder(4096);
  table.position = HEADER_BYTES + 4;
  table.varint(header.lastQueueId);
  table.varint(header.lastStreamId);
  table.varint(header.lastSharedId);
  table.varint(sections.length);
  for (const section of sections) {
    table.varint(section.id);
    table.u8(section.kind);
    table.string(section.name);
    table.varint(section.body.length);
    table.u32(section.wrongCrc ?? crc32(section.body, 0, section.body.length));
  }
  const buffer = table.view();
  buffer.write(MAGIC, 0, "latin1");
  putU32(buffer, 12, VERSION);
  putU64(buffer, 16, header.lsn);
  putU64(buffer, 24, header.walSeq);
  putU32(buffer, 32, header.generation);
  putU32(buffer, 36, header.crc);
  putU32(buffer, 40, header.clean ? FLAG_CLEAN : 0);
  putU64(buffer, 44, header.elapsedMs);
  putU64(buffer, 52, header.wallMs);
  buffer.write(header.directoryId, 60, 16, "hex");
  putU32(buffer, HEADER_BYTES, buffer.length - HEADER_BYTES - 4);
  putU32(buffer, 8, crc32(buffer, 12, buffer.length));
  return [buffer, ...sections.map((section) => section.body)];
}

/** The snapshot in a file, or why it is none. Damaged bodies are marked, not refused. */
export function decodeSnapshot(buffer: Buffer): Snapshot | string {
  if (buffer.length < HEADER_BYTES + 4) return "shorter than a snapshot header";
  if (buffer.toString("latin1", 0, 8) !== MAGIC) return "no snapshot magic";
  const bodiesStart = HEADER_BYTES + 4 + getU32(buffer, HEADER_BYTES);
  if (bodiesStart > buffer.length) return "shorter than its table";
  if (crc32(buffer, 12, bodiesStart) !== getU32(buffer, 8)) return "snapshot checksum does not match";
  const version = getU32(buffer, 12);
  if (version !== VERSION) return `snapshot version ${version} is not known`;
  try {
    const table = new Decoder(buffer, HEADER_BYTES + 4, bodiesStart);
    const header: SnapshotHeader = {
      lsn: getU64(buffer, 16),
      walSeq: getU64(buffer, 24),
      generation: getU32(buffer, 32),
      crc: getU32(buffer, 36),
      clean: (getU32(buffer, 40) & FLAG_CLEAN) !== 0,
      elapsedMs: getU64(buffer, 44),
      wallMs: getU64(buffer, 52),
      directoryId: buffer.toString("hex", 60, 76),
      lastQueueId: table.varint(),
      lastStreamId: table.varint(),
      lastSharedId: table.varint(),
    };
    const sections: SnapshotSection[] = [];
    let at = bodiesStart;
    for (let count = table.varint(); count > 0; count--) {
      const id = table.varint();
      const kind = table.u8();
      const name = table.string();
      const bytes = table.varint();
      const crc = table.u32();
      const body = buffer.subarray(Math.min(at, buffer.length), at + bytes);
      sections.push({ id, kind, name, body, crc, intact: body.length === bytes && crc32(body, 0, bytes) === crc });
      at += bytes;
    }
    return { header, sections };
  } catch (error) {
    if (error instanceof MalformedError) return error.message;
    throw error;
  }
}

export function snapshotPath(directory: string, lsn: number): string {
  return `${directory}/${String(lsn).padStart(16, "0")}.snap`;
}

/** The snapshot before the newest one, for repair. */
export const PREVIOUS_SNAPSHOT = "previous";

export function isSnapshotName(name: string): boolean {
  return /^\d{16}\.snap$/.test(name);
}

/** Writes a file so that after a crash there is either all of it under its name, or nothing. */
export async function writeFileAtomically(
  disk: Disk,
  directory: string,
  path: string,
  buffers: readonly Uint8Array[],
): Promise<void> {
  const temporary = `${path}.tmp`;
  if (disk.size(temporary) !== undefined) disk.unlink(temporary);
  const file = disk.openFile(temporary, "create");
  try {
    await file.write(buffers, 0);
    await file.sync();
  } finally {
    file.close();
  }
  disk.rename(temporary, path);
  await disk.syncDirectory(directory);
}
