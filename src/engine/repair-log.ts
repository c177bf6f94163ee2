/**
 * Reads a damaged log: what it holds behind the damage, as far as that is safe to use.
 *
 * - The highest watermark of any intact entry says how far the log was known to be durable. Up to there every intact
 *   entry counts, whatever is missing before it, and every intact batch between two intact entries, as it belongs to a
 *   commit that was durable. Of an entry that is damaged itself only its batches are known, not what else it did.
 * - Behind that, entries count only while none is missing and nothing in them is damaged: what stands further on may be
 *   half a commit that nobody was told of.
 */

import { batchFileBytes, readBatchHeader } from "../storage/batch.js";
import { align8, Decoder } from "../storage/bytes.js";
import { crc32 } from "../storage/crc32.js";
import type { Disk } from "../storage/disk.js";
import {
  decodeFileHeader,
  ENTRY_HEADER_BYTES,
  entryBytes,
  FILE_HEADER_BYTES,
  type WalFileHeader,
} from "../storage/wal-format.js";
import type { WalEntry, WalPoint, WalSource } from "../storage/wal-reader.js";
import { FileWindow, type FoundEntry, findEntry, walkRecords, walkStretch } from "./inspect-window.js";
import type { LogTime } from "./queue-state.js";
import { headOf } from "./repair-segments.js";

/** A batch of the log, checked. */
export interface LoggedBatch {
  readonly source: WalSource;
  readonly position: number;
  readonly streamId: number;
  readonly base: number;
  readonly next: number;
  readonly count: number;
  readonly bytes: number;
  readonly timestamp: number;
}

export interface LogVisitor {
  batch(batch: LoggedBatch): void;
  /** The operations of an entry. `complete`: so far no operation is missing. */
  operations(meta: Buffer, time: LogTime, complete: boolean): void;
  /** Entries `from` to `to` of the log cannot be read. */
  missing(from: number, to: number, file: string): void;
}

export interface LogStart extends WalPoint {
  /** In the first of the files. */
  readonly position: number;
  /** Nothing is missing before it. */
  readonly complete: boolean;
  /** Goes on with the generation that a file names. Otherwise a file of another one is not part of the log. */
  readonly anyGeneration: boolean;
}

/** Reads a log file of which it is not known what came before. */
export const UNKNOWN_START: LogStart = {
  lsn: 0,
  crc: 0,
  generation: 0,
  position: FILE_HEADER_BYTES,
  complete: false,
  anyGeneration: true,
};

export interface SalvagedLog {
  readonly lsn: number;
  readonly elapsedMs: number;
}

export async function salvageLog(
  disk: Disk,
  sources: readonly WalSource[],
  start: LogStart,
  visitor: LogVisitor,
): Promise<SalvagedLog> {
  const salvage = new LogSalvage(disk, sources, start, visitor);
  return await salvage.run();
}

class LogSalvage {
  readonly #disk: Disk;
  readonly #sources: readonly WalSource[];
  readonly #start: LogStart;
  readonly #visitor: LogVisitor;
  #generation: number;
  #lsn: number;
  #crc: number;
  #complete: boolean;
  /** Which entry comes next is known. */
  #known: boolean;
  /** The highest lsn that an intact entry says was durable; below 0 while that has not been looked for. */
  #durable = -1;
  #elapsedMs = 0;
  /** Stretches in which nothing intact was found, since the last intact entry. */
  #dark: { readonly source: WalSource; readonly from: number; readonly to: number }[] = [];

  constructor(disk: Disk, sources: readonly WalSource[], start: LogStart, visitor: LogVisitor) {
    this.#disk = disk;
    this.#sources = sources;
    this.#start = start;
    this.#visitor = visitor;
    this.#generation = start.generation;
    this.#lsn = start.lsn;
    this.#crc = start.crc;
    this.#complete = start.complete;
    this.#known = start.complete;
  }

  async run(): Promise<SalvagedLog> {
    for (const [index, source] of this.#sources.entries()) {
      const more = await this.#inWindow(source, (window) => {
        return this.#file(window, source, index === 0 ? this.#start.position : FILE_HEADER_BYTES, index);
      });
      if (!more) break;
    }
    return { lsn: this.#lsn, elapsedMs: this.#elapsedMs };
  }

  /** False where the log ends. */
  async #file(window: FileWindow, source: WalSource, start: number, index: number): Promise<boolean> {
    const at = await window.at(0, FILE_HEADER_BYTES);
    const header = at < 0 ? "" : decodeFileHeader(window.buffer.subarray(at, at + FILE_HEADER_BYTES));
    if (typeof header !== "string" && header.generation !== this.#generation) {
      if (!this.#start.anyGeneration) return true;
      this.#generation = header.generation;
      this.#lsn = header.firstLsn - 1;
      this.#known = false;
      this.#complete = false;
      this.#durable = -1;
      this.#dark = [];
    }
    if (this.#durable < 0) this.#durable = await this.#highestVoucher(index);
    let position = start;
    for (;;) {
      const entry = await findEntry(window, position, this.#generation, this.#lsn + 1);
      if (entry === undefined) {
        this.#dark.push({ source, from: position, to: window.size });
        return true;
      }
      if (entry.position > position) this.#dark.push({ source, from: position, to: entry.position });
      if (!(await this.#entry(window, source, entry))) return false;
      position = entry.position + align8(entryBytes(entry.header));
    }
  }

  /** False where the log ends before the entry. */
  async #entry(window: FileWindow, source: WalSource, entry: FoundEntry): Promise<boolean> {
    const { header } = entry;
    const { lsn } = header;
    const batches: LoggedBatch[] = [];
    const whole = await this.#bulk(window, source, entry, batches);
    if (this.#known) {
      if (lsn > this.#lsn + 1 && lsn - 1 > this.#durable) return false;
      if (lsn > this.#durable && !(whole && (lsn > this.#lsn + 1 || header.prevCrc === this.#crc))) return false;
      if (lsn > this.#lsn + 1) {
        this.#visitor.missing(this.#lsn + 1, lsn - 1, source.path);
        this.#complete = false;
        for (const dark of this.#dark) await this.#inTheDark(dark);
      }
    }
    this.#known = true;
    this.#dark = [];
    for (const batch of batches) this.#visitor.batch(batch);
    const metaAt = await window.at(entry.position, entryBytes(header));
    const metaStart = metaAt + ENTRY_HEADER_BYTES + header.bulkBytes;
    const meta = Buffer.from(window.buffer.subarray(metaStart, metaStart + header.metaBytes));
    const { elapsedMs, wallMs } = header;
    this.#visitor.operations(meta, { elapsedMs, wallMs }, this.#complete);
    this.#elapsedMs = Math.max(this.#elapsedMs, elapsedMs);
    this.#lsn = header.lsn;
    this.#crc = header.crc;
    return true;
  }

  /** The intact batches of an entry; true when it has all that it was written with. */
  async #bulk(window: FileWindow, source: WalSource, entry: FoundEntry, batches: LoggedBatch[]): Promise<boolean> {
    const { bulkBytes, bulkCrc } = entry.header;
    const position = entry.position + ENTRY_HEADER_BYTES;
    let crc = 0;
    const whole = await this.#batches(window, source, position, position + bulkBytes, (batch, at) => {
      crc = crc32(window.buffer, at, at + 4, crc);
      batches.push(batch);
    });
    return whole && crc === bulkCrc;
  }

  /** The batches of entries that are damaged themselves. */
  async #inTheDark({ source, from, to }: { source: WalSource; from: number; to: number }): Promise<void> {
    await this.#inWindow(source, async (window) => {
      await this.#batches(window, source, from, to, (batch) => this.#visitor.batch(batch));
    });
  }

  async #batches(
    window: FileWindow,
    source: WalSource,
    position: number,
    end: number,
    visit: (batch: LoggedBatch, at: number) => void,
  ): Promise<boolean> {
    const stretch = { position, end, streamId: undefined, firstOffset: 0, nextOffset: Number.POSITIVE_INFINITY };
    let whole = true;
    for await (const found of walkStretch(window, stretch)) {
      if ("damage" in found) {
        whole = false;
        continue;
      }
      const { header, at } = found.batch;
      if (walkRecords(window.buffer, at, header, () => undefined) !== undefined) {
        whole = false;
        continue;
      }
      const { streamId, baseOffset: base, span, count, bytes, timestamp } = header;
      visit({ source, position: found.batch.position, streamId, base, next: base + span, count, bytes, timestamp }, at);
    }
    return whole;
  }

  async #highestVoucher(index: number): Promise<number> {
    let highest = 0;
    for (const [later, source] of this.#sources.entries()) {
      if (later < index) continue;
      await this.#inWindow(source, async (window) => {
        let from = FILE_HEADER_BYTES;
        for (;;) {
          const entry = await findEntry(window, from, this.#generation, this.#lsn + 1);
          if (entry === undefined) return;
          highest = Math.max(highest, entry.header.watermark);
          from = entry.position + align8(entryBytes(entry.header));
        }
      });
    }
    return highest;
  }

  async #inWindow<T>(source: WalSource, look: (window: FileWindow) => Promise<T>): Promise<T> {
    const file = this.#disk.openFile(source.path, "read");
    try {
      return await look(new FileWindow(file));
    } finally {
      file.close();
    }
  }
}

/** The header of a log file; undefined when it is damaged. */
export function walHeader(disk: Disk, path: string): WalFileHeader | undefined {
  const header = decodeFileHeader(headOf(disk, path, FILE_HEADER_BYTES));
  return typeof header === "string" ? undefined : header;
}

/** The batches of an entry that was read back whole. */
export function* batchesOf(entry: WalEntry): Generator<LoggedBatch> {
  for (let at = entry.bulkStart; at < entry.metaStart; ) {
    const {
      streamId,
      baseOffset: base,
      span,
      count,
      bytes,
      timestamp,
    } = readBatchHeader(entry.buffer, at, entry.metaStart)!;
    const position = entry.bulkPosition + at - entry.bulkStart;
    yield { source: entry.file, position, streamId, base, next: base + span, count, bytes, timestamp };
    at += batchFileBytes(bytes);
  }
}

/** The operations of an entry, in the order in which they were done. */
export function* operationsIn(meta: Buffer): Generator<{ code: number; queueId: number; fields: Decoder }> {
  const input = new Decoder(meta);
  while (!input.done) {
    const code = input.u8();
    const queueId = input.varint();
    yield { code, queueId, fields: new Decoder(input.bytes(input.u32())) };
  }
}
