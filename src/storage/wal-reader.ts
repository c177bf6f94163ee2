/**
 * Reads a write-ahead log back after an unclean stop and judges where it ends.
 *
 * Un-synced pages reach the disk in any order, so an invalid entry with valid ones behind it is what an ordinary power
 * cut leaves. What tells a torn tail from damage is the durable watermark: if any later entry says that lsn n was
 * durable, then entry n was acknowledged as durable and must be readable (reliability rule a). Then nothing is changed
 * and the directory is not opened. Otherwise nobody was told that n is durable, and the log ends before it.
 */

import { VarveError } from "../api/errors.js";
import { getU32 } from "../api/integers.js";
import { batchFileBytes, batchIsIntact, readBatchHeader } from "./batch.js";
import { align8 } from "./bytes.js";
import { crc32 } from "./crc32.js";
import type { Disk, DiskFile } from "./disk.js";
import {
  decodeFileHeader,
  ENTRY_HEADER_BYTES,
  type EntryHeader,
  entryBytes,
  entryIsIntact,
  FILE_HEADER_BYTES,
  readEntryHeader,
  type WalFileHeader,
} from "./wal-format.js";

const WINDOW_BYTES = 4 * 1024 * 1024;

/** A log file found on disk. */
export interface WalSource {
  readonly path: string;
  readonly seq: number;
}

/** An entry that was read back intact. The buffer is reused: copy what must outlive the call. */
export interface WalEntry {
  readonly header: EntryHeader;
  readonly file: WalSource;
  readonly buffer: Buffer;
  /** Where the bulk part stands in `buffer` / in the file. */
  readonly bulkStart: number;
  readonly bulkPosition: number;
  readonly metaStart: number;
  readonly metaEnd: number;
}

/** Where a log stands: what comes next has `lsn` + 1 and names `crc` as its predecessor's checksum. */
export interface WalPoint {
  readonly lsn: number;
  readonly crc: number;
  readonly generation: number;
}

export interface WalEnd extends WalPoint {
  readonly entries: number;
  readonly bytes: number;
  /** Highest generation met in any file. */
  readonly generationMax: number;
  /** Largest size that any file says log files had when it was begun. */
  readonly fileBytesMax: number;
  /** Where each file's entries end; a file that is not part of the log has none. */
  readonly ends: ReadonlyMap<number, number>;
  /** Bytes behind the end that belong to writes under way: cut off. */
  readonly cutBytes: number;
  readonly notes: readonly string[];
  /** Header of the last file that belongs to the log, if there is one. */
  readonly header: WalFileHeader | undefined;
}

/** A sliding view of a file. */
class Window {
  readonly #file: DiskFile;
  readonly size: number;
  buffer: Buffer;
  #start = 0;
  #end = 0;

  /** @param memory of an earlier window, which is not used any more */
  constructor(file: DiskFile, memory?: Buffer) {
    this.#file = file;
    this.size = file.size();
    const bytes = Math.min(WINDOW_BYTES, this.size);
    this.buffer =
      memory !== undefined && memory.length >= bytes ? memory.subarray(0, bytes) : Buffer.allocUnsafeSlow(bytes);
  }

  /** How far `buffer` holds bytes of the file. */
  get filled(): number {
    return this.#end - this.#start;
  }

  /** Index in `buffer` of file position `position` with `length` bytes behind it, or -1 past the end of the file. */
  async at(position: number, length: number): Promise<number> {
    if (position + length > this.size) return -1;
    if (position < this.#start || position + length > this.#end) {
      if (length > this.buffer.length) this.buffer = Buffer.allocUnsafeSlow(align8(length));
      const read = await this.#file.read(this.buffer, 0, this.buffer.length, position);
      this.#start = position;
      this.#end = position + read;
      if (read < length) throw new VarveError("ERR_IO", `${this.#file.path}: ends at ${this.#end} while being read`);
    }
    return position - this.#start;
  }
}

/** Reads one log at a time. */
export class WalReader {
  readonly #disk: Disk;
  readonly #directoryId: string;
  #memory: Buffer | undefined;

  constructor(disk: Disk, directoryId: string) {
    this.#disk = disk;
    this.#directoryId = directoryId;
  }

  /**
   * Reads the entries behind a point, in order, and returns where the log ends.
   * @param sources the files that may hold them, by ascending seq
   * @throws VarveError `ERR_CORRUPT` when an entry that was durable cannot be read back
   */
  async replay(sources: readonly WalSource[], from: WalPoint, onEntry: (entry: WalEntry) => void): Promise<WalEnd> {
    const { generation } = from;
    let { lsn, crc } = from;
    let entries = 0;
    let bytes = 0;
    let header: WalFileHeader | undefined;
    /** The end of the log as far as it has been read. */
    let end = { index: 0, position: FILE_HEADER_BYTES };
    let generationMax = generation;
    let fileBytesMax = 0;
    /** Every file so far goes on where the one before it ended. */
    let joined = true;
    const ends = new Map<number, number>();
    const notes: string[] = [];
    for (const [index, source] of sources.entries()) {
      const file = this.#disk.openFile(source.path, "read");
      try {
        const window = this.#window(file);
        const found = await this.#header(window, source);
        if (typeof found !== "string") {
          generationMax = Math.max(generationMax, found.generation);
          fileBytesMax = Math.max(fileBytesMax, found.fileBytes);
        }
        const reason =
          typeof found === "string"
            ? found
            : found.generation !== generation
              ? `generation ${found.generation}, not ${generation}`
              : found.firstLsn !== lsn + 1 || found.prevCrc !== crc
                ? `goes on from entry ${found.firstLsn - 1}, the log ends at ${lsn}`
                : undefined;
        if (joined && reason !== undefined) {
          notes.push(`${source.path}: not part of the log (${reason})`);
          joined = false;
        }
        if (!joined || typeof found === "string") continue;
        header = found;
        let position = FILE_HEADER_BYTES;
        for (;;) {
          const entry = await this.#entry(window, source, position, generation, lsn + 1, crc);
          if (entry === undefined) break;
          onEntry(entry);
          position += align8(entryBytes(entry.header));
          ({ lsn, crc } = entry.header);
          entries++;
          bytes += entryBytes(entry.header);
        }
        end = { index, position };
        ends.set(source.seq, position);
      } finally {
        file.close();
      }
    }
    const cutBytes = await this.#judge(sources, end.index, end.position, generation, lsn + 1, crc);
    if (cutBytes > 0) {
      notes.push(
        `${sources[end.index]!.path}: cut ${cutBytes} bytes at ${end.position}, writes that had not been completed`,
      );
    }
    return { lsn, crc, generation, generationMax, fileBytesMax, entries, bytes, ends, cutBytes, notes, header };
  }

  /** Files are read one after another, so one window's memory is the next one's. */
  #window(file: DiskFile): Window {
    const window = new Window(file, this.#memory);
    if (window.buffer.length > (this.#memory?.length ?? 0)) this.#memory = window.buffer;
    return window;
  }

  async #header(window: Window, source: WalSource): Promise<WalFileHeader | string> {
    const at = await window.at(0, FILE_HEADER_BYTES);
    if (at < 0) return "shorter than a header";
    const header = decodeFileHeader(window.buffer.subarray(at, at + FILE_HEADER_BYTES));
    if (typeof header === "string") return header;
    if (header.directoryId !== this.#directoryId) return "belongs to another directory";
    if (header.seq !== source.seq) return `is number ${header.seq}, not ${source.seq}`;
    return header;
  }

  async #entry(
    window: Window,
    file: WalSource,
    position: number,
    generation: number,
    lsn: number,
    prevCrc: number,
  ): Promise<WalEntry | undefined> {
    const headerAt = await window.at(position, ENTRY_HEADER_BYTES);
    if (headerAt < 0) return undefined;
    const header = readEntryHeader(window.buffer, headerAt);
    if (header.generation !== generation || header.lsn !== lsn || header.prevCrc !== prevCrc) return undefined;
    const at = await window.at(position, entryBytes(header));
    if (at < 0 || !entryIsIntact(window.buffer, at, header)) return undefined;
    const bulkStart = at + ENTRY_HEADER_BYTES;
    const metaStart = bulkStart + header.bulkBytes;
    let bulkCrc = 0;
    for (let batch = bulkStart; batch < metaStart; ) {
      const batchHeader = readBatchHeader(window.buffer, batch, metaStart);
      if (batchHeader === undefined || batch + batchHeader.bytes > metaStart) return undefined;
      if (!batchIsIntact(window.buffer, batch, batchHeader.bytes)) return undefined;
      bulkCrc = crc32(window.buffer, batch, batch + 4, bulkCrc);
      batch += batchFileBytes(batchHeader.bytes);
    }
    if (bulkCrc !== header.bulkCrc) return undefined;
    return {
      header,
      file,
      buffer: window.buffer,
      bulkStart,
      bulkPosition: position + ENTRY_HEADER_BYTES,
      metaStart,
      metaEnd: metaStart + header.metaBytes,
    };
  }

  /**
   * Decides what the first invalid entry is by looking for a voucher in everything behind it. Returns the bytes of
   * intact entries there: a torn tail.
   */
  async #judge(
    sources: readonly WalSource[],
    index: number,
    position: number,
    generation: number,
    lsn: number,
    prevCrc: number,
  ): Promise<number> {
    let tornBytes = 0;
    for (let later = index; later < sources.length; later++) {
      const file = this.#disk.openFile(sources[later]!.path, "read");
      try {
        const window = this.#window(file);
        const from = later === index ? position : FILE_HEADER_BYTES;
        if (later === index) tornBytes += await tornEntryBytes(window, position, generation, lsn, prevCrc);
        for await (const header of intactEntries(window, from, generation, lsn)) {
          if (header.watermark >= lsn) throw damaged(sources[index]!.path, position, lsn, header.lsn);
          tornBytes += entryBytes(header);
        }
      } finally {
        file.close();
      }
    }
    return tornBytes;
  }
}

function damaged(path: string, position: number, lsn: number, voucher: number): VarveError {
  return new VarveError(
    "ERR_CORRUPT",
    `${path} at ${position}: entry ${lsn} of the write-ahead log cannot be read back, but entry ${voucher} says that it ` +
      "was durable. Nothing was changed. 'varve verify' shows the extent of the damage.",
    { details: { file: path, position, lsn } },
  );
}

/** Bytes of entry `lsn` where it should stand, when its header is there but not all of it, or of the rest, is intact. */
async function tornEntryBytes(
  window: Window,
  position: number,
  generation: number,
  lsn: number,
  prevCrc: number,
): Promise<number> {
  const at = await window.at(position, ENTRY_HEADER_BYTES);
  if (at < 0) return 0;
  const header = readEntryHeader(window.buffer, at);
  // What tells it from what an earlier life left may itself be what is damaged: two signs of three will do.
  const signs = [header.generation === generation, header.lsn === lsn, header.prevCrc === prevCrc];
  if (signs.filter((sign) => sign).length < 2) return 0;
  const whole = await window.at(position, entryBytes(header));
  const intact = whole >= 0 && entryIsIntact(window.buffer, whole, header);
  return intact ? 0 : Math.min(entryBytes(header), window.size - position);
}

/** Entries at or above `lsn` at any aligned position behind `from`. Their bulk part may be damaged. */
async function* intactEntries(
  window: Window,
  from: number,
  generation: number,
  lsn: number,
): AsyncGenerator<EntryHeader> {
  const lowest = generation & 255;
  let position = from;
  for (;;) {
    const at = await window.at(position, ENTRY_HEADER_BYTES);
    if (at < 0) return;
    // The common case, not an entry, must be cheap: this looks at every eighth byte of the file.
    const { buffer } = window;
    const last = window.filled - ENTRY_HEADER_BYTES;
    let next = at;
    while (next <= last && (buffer[next + 4] !== lowest || getU32(buffer, next + 4) !== generation)) next += 8;
    position += next - at;
    const candidate = await window.at(position, ENTRY_HEADER_BYTES);
    if (candidate < 0) return;
    const header = readEntryHeader(window.buffer, candidate);
    if (header.generation === generation && header.lsn >= lsn && header.watermark < header.lsn) {
      const whole = await window.at(position, entryBytes(header));
      if (whole >= 0 && entryIsIntact(window.buffer, whole, header)) {
        yield header;
        position += align8(entryBytes(header));
        continue;
      }
    }
    position += 8;
  }
}
