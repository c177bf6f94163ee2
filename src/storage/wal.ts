/**
 * The write-ahead log of one directory, being written. Format and invariants: wal-format.ts.
 *
 * Files are filled with zeros ahead of the writer and reused after a checkpoint: overwriting allocated space costs a
 * fraction of growing a file and cannot run out of disk. Writes are synchronous, one per turn of the event loop;
 * fdatasync runs in the thread pool.
 */

import { assert, VarveError } from "../api/errors.js";
import { BatchTable } from "./batch-table.js";
import { align8 } from "./bytes.js";
import { type Disk, type DiskFile, isNoSpace } from "./disk.js";
import { encodeFileHeader, FILE_HEADER_BYTES, type WalFileHeader } from "./wal-format.js";

const GROW_BYTES = 1024 * 1024;
/** Its presence says that a write or sync of the log failed. */
export const FAILED_MARK = "failed";
/** Files kept for reuse beyond the ones in use. */
const SPARE_FILES_MAX = 4;

export interface WalFile {
  readonly seq: number;
  /** Undefined for a file of an earlier life. */
  header: WalFileHeader | undefined;
  readonly file: DiskFile;
  /** Where the next entry goes. */
  position: number;
  /** Bytes of the file that exist on disk. */
  allocated: number;
  /** Written to since the last sync. */
  dirty: boolean;
  /** Its name is not yet durable. */
  unnamed: boolean;
  /** Settles when its header and its name are durable, if that was asked for. */
  named: Promise<void> | undefined;
  /** Reads under way; a file that is being read is neither reused nor closed. */
  readers: number;
  retired: boolean;
  /** Batches that stand in it, for readers, and for the checkpoint that moves them to segments. */
  readonly batches: BatchTable;
}

/**
 * A file as it is taken into use. Unless it says otherwise, nothing of it counts as durable.
 * @param allocated its size, where that is known: asking for it may fail
 * @param batches an empty table
 */
export function newWalFile(
  file: DiskFile,
  seq: number,
  header: WalFileHeader | undefined,
  position: number,
  allocated = file.size(),
  batches = new BatchTable(),
): WalFile {
  return {
    seq,
    header,
    file,
    position,
    allocated,
    dirty: true,
    unnamed: true,
    named: undefined,
    readers: 0,
    retired: false,
    batches,
  };
}

export type NextFileHeader = Pick<WalFileHeader, "firstLsn" | "generation" | "prevCrc" | "async">;

export interface WalOptions {
  readonly fileBytes: number;
  readonly directoryId: string;
  readonly bootId: string;
}

export class Wal {
  readonly #disk: Disk;
  readonly #directory: string;
  readonly #options: WalOptions;
  /** In use, oldest first; the last is being written. */
  readonly files: WalFile[] = [];
  /** Files for reuse; the last is used next. */
  readonly #spares: { readonly path: string; readonly bytes: number }[] = [];
  /** What came of the last try to have a file ready ahead of the writer. */
  #aheadIs: "wanted" | "under way" | "refused" = "wanted";
  #ahead: Promise<void> = Promise.resolve();
  #stopped = false;
  #spareCount = 0;
  /**
   * The power was cut: of what was not synced, a file of an earlier life may have the size without the space. It is filled
   * again when it is reused.
   */
  mayHaveHoles = false;
  #zeros: Buffer | undefined;
  /** Of the file that was given up last, for the next one. */
  #spareBatches: BatchTable | undefined;
  writtenBytes = 0;
  syncs = 0;

  constructor(disk: Disk, directory: string, options: WalOptions) {
    this.#disk = disk;
    this.#directory = directory;
    this.#options = options;
  }

  get current(): WalFile {
    return this.files[this.files.length - 1]!;
  }

  /** Bytes filled with zeros at once while a file is new. */
  get growBytes(): number {
    return Math.min(GROW_BYTES, this.#options.fileBytes);
  }

  /** Bytes of entries that stand in log files in use. */
  get entriesBytes(): number {
    let bytes = 0;
    for (const file of this.files) bytes += file.position;
    return bytes;
  }

  /** Bytes an entry may have, at most. */
  get entryBytesMax(): number {
    return this.#options.fileBytes - FILE_HEADER_BYTES;
  }

  /** Bytes of all files in use. */
  get bytes(): number {
    return this.files.reduce((sum, file) => sum + file.allocated, 0);
  }

  static path(directory: string, seq: number): string {
    return `${directory}/${String(seq).padStart(16, "0")}.wal`;
  }

  /** The number in a log file's name, or undefined if the name is no log file's. */
  static seqOf(name: string): number | undefined {
    return /^\d{16}\.wal$/.test(name) ? Number(name.slice(0, 16)) : undefined;
  }

  /** The file that says that a log file has been begun, behind a snapshot that does not know of it. */
  static begunPath(directory: string, seq: number): string {
    return `${directory}/${String(seq).padStart(16, "0")}.begun`;
  }

  static begunSeqOf(name: string): number | undefined {
    return /^\d{16}\.begun$/.test(name) ? Number(name.slice(0, 16)) : undefined;
  }

  static isSpare(name: string): boolean {
    return /^(spare-\d+|new|ahead)\.wal$/.test(name);
  }

  /** Takes over a file left from an earlier life for reuse. */
  adoptSpare(name: string): void {
    const path = `${this.#directory}/${name}`;
    this.#keepSpare(path, this.mayHaveHoles ? 0 : (this.#disk.size(path) ?? 0));
  }

  /**
   * Takes over a file of an earlier life whose entries are still needed. What is read back from it may so far be only in
   * the page cache: it counts as not durable.
   */
  adopt(seq: number): WalFile {
    this.files.push(newWalFile(this.#disk.openFile(Wal.path(this.#directory, seq), "write"), seq, undefined, 0));
    return this.current;
  }

  /**
   * Begins the next file. Its header must be durable before a commit in it is acknowledged as durable: `sync` sees
   * to that. Throws ENOSPC.
   * @param bytesMin what it must have space for; more is taken if it can be had
   */
  begin(header: NextFileHeader, seq: number, bytesMin = this.growBytes): void {
    const path = Wal.path(this.#directory, seq);
    const spare = this.#spares.pop();
    let file: DiskFile;
    if (spare === undefined) {
      file = this.#disk.openFile(path, "create");
    } else {
      this.#disk.rename(spare.path, path);
      try {
        file = this.#disk.openFile(path, "write");
      } catch (error) {
        this.#keepSpare(path, spare.bytes);
        throw error;
      }
    }
    const { directoryId, bootId, fileBytes } = this.#options;
    const wal = newWalFile(
      file,
      seq,
      { ...header, seq, directoryId, bootId, fileBytes },
      FILE_HEADER_BYTES,
      spare?.bytes ?? 0,
      this.#spareBatches,
    );
    wal.allocated = Math.min(wal.allocated, fileBytes);
    try {
      if (wal.allocated < this.growBytes) this.#growAtLeast(file, wal, bytesMin);
      this.#writeHeader(wal);
    } catch (error) {
      file.close();
      // Not a log file until its header stands: out of the way, so that the next try starts afresh.
      this.#keepSpare(path, wal.allocated);
      throw error;
    }
    this.files.push(wal);
    this.#spareBatches = undefined;
    if (this.#aheadIs === "refused") this.#aheadIs = "wanted";
  }

  /** Notes in the current file, to be made durable by the next sync, that commits may be acknowledged before they are. */
  markAsync(): void {
    const wal = this.current;
    if (wal.header === undefined || wal.header.async) return;
    wal.header = { ...wal.header, async: true };
    wal.dirty = true;
    this.#writeHeader(wal);
  }

  /**
   * Notes, as well as that can be, that writing or syncing failed: pages that the operating system then gave up may be
   * missing although it has not restarted.
   */
  markFailed(): void {
    try {
      this.#disk.openFile(`${this.#directory}/${FAILED_MARK}`, "create").close();
    } catch {
      // Noted already, or the disk takes nothing at all any more.
    }
  }

  /** One with enough space to be begun: what was left when a disk ran full may be smaller. */
  get hasSpare(): boolean {
    return (this.#spares[this.#spares.length - 1]?.bytes ?? 0) >= this.growBytes;
  }

  /** Makes sure that the next file can be begun without needing disk space. Throws ENOSPC. */
  prepareSpare(): void {
    if (this.hasSpare) return;
    const path = `${this.#directory}/new.wal`;
    const small = this.#spares.pop();
    if (small !== undefined) this.#disk.rename(small.path, path);
    const file = this.#disk.openFile(path, this.#disk.size(path) === undefined ? "create" : "write");
    try {
      this.#grow(file, { allocated: 0 }, this.growBytes);
    } finally {
      file.close();
    }
    this.#keepSpare(path, this.growBytes);
  }

  /** Gives up a spare file, if there is one besides that which is needed next. False when there was none. */
  releaseSpare(): boolean {
    const enough = this.#spares.findIndex(({ bytes }) => bytes >= this.growBytes);
    const keep = enough < 0 ? this.#spares.length - 1 : enough;
    const at = keep === 0 ? 1 : 0;
    const going = this.#spares[at];
    if (going === undefined) return false;
    this.#disk.unlink(going.path);
    this.#spares.splice(at, 1);
    return true;
  }

  /**
   * Before the first file of a life is begun: gives up what the files of earlier lives hold and nothing stands in. Files
   * that are not part of the log are reused, except the first, which the snapshot asks for; others are cut at their end.
   */
  async giveUpUnused(): Promise<void> {
    for (const wal of this.files.slice(1)) {
      if (wal.position > 0) continue;
      this.files.splice(this.files.indexOf(wal), 1);
      wal.file.close();
      this.#keepSpare(wal.file.path, this.#spaceOf(wal));
    }
    for (const wal of this.files) {
      const end = Math.max(wal.position, FILE_HEADER_BYTES);
      if (wal.allocated <= end) continue;
      await wal.file.truncate(end);
      wal.allocated = end;
    }
  }

  /**
   * Once the current file is well used, has a whole further one allocated in the thread pool, so that the writer will find
   * its space ready. At best: what cannot be prepared, the writer allocates itself. What was refused is tried again when
   * the next file has been begun.
   */
  prepareAhead(): void {
    const { fileBytes } = this.#options;
    if (this.#aheadIs !== "wanted" || this.current.position < fileBytes / 4) return;
    const spare = this.#spares[this.#spares.length - 1];
    if (spare !== undefined && spare.bytes >= fileBytes) return;
    // Space that is scarce is the writer's, who needs it sooner.
    const scarce = (this.#disk.freeBytes(this.#directory) ?? Number.POSITIVE_INFINITY) < 2 * fileBytes;
    this.#aheadIs = scarce ? "refused" : "under way";
    if (scarce) return;
    const path = `${this.#directory}/ahead.wal`;
    this.#ahead = this.#allocateAhead(path).then(
      () => {
        if (this.#stopped) return;
        this.#aheadIs = "wanted";
        this.#keepSpare(path, fileBytes);
      },
      () => {
        this.#aheadIs = "refused";
        // Most likely for want of space, which it must not keep from others.
        if (this.#disk.size(path) !== undefined) this.#disk.unlink(path);
      },
    );
  }

  /** There is space again: what was refused for want of it is worth another try. */
  prepareAgain(): void {
    if (this.#aheadIs === "refused") this.#aheadIs = "wanted";
  }

  /** Ends work in the thread pool. After it, and before the directory is given up, nothing writes any more. */
  async settle(): Promise<void> {
    this.#stopped = true;
    await this.#ahead;
  }

  async #allocateAhead(path: string): Promise<void> {
    const { fileBytes } = this.#options;
    const file = this.#disk.openFile(path, this.#disk.size(path) === undefined ? "create" : "write");
    try {
      const zeros = Buffer.alloc(this.growBytes);
      for (let position = 0; position < fileBytes && !this.#stopped; position += zeros.length) {
        await file.write([zeros.subarray(0, Math.min(zeros.length, fileBytes - position))], position);
      }
      await file.sync();
    } finally {
      file.close();
    }
  }

  /** True when an entry of this size fits the current file. */
  fits(bytes: number): boolean {
    return this.current.position + align8(bytes) <= this.#options.fileBytes;
  }

  /** Makes sure that an entry of this size, which fits, can be written without needing disk space. Throws ENOSPC. */
  allocate(bytes: number): void {
    const wal = this.current;
    const end = wal.position + align8(bytes);
    if (end > wal.allocated) this.#grow(wal.file, wal, end);
  }

  /** Appends an entry for which space is allocated. Returns its position in the current file. */
  write(buffer: Uint8Array, start: number, length: number): number {
    const wal = this.current;
    const position = wal.position;
    assert(position + align8(length) <= wal.allocated, "log space is allocated before it is written");
    wal.dirty = true;
    this.#writeAll(wal.file, buffer, start, length, position);
    wal.position = position + align8(length);
    this.writtenBytes += length;
    return position;
  }

  /**
   * Makes the header and the name of the current file durable, while there is little else in it. A failure is one of the
   * log: entries may have been written meanwhile.
   */
  nameCurrent(): Promise<void> {
    const wal = this.current;
    const name = async () => {
      await wal.file.sync();
      await this.#disk.syncDirectory(this.#directory);
      wal.unnamed = false;
    };
    wal.named = name();
    return wal.named;
  }

  /**
   * Notes durably that the current file, which is durable itself, must be there from now on. Nothing has been written in
   * it yet.
   */
  async markBegun(): Promise<void> {
    const path = Wal.begunPath(this.#directory, this.current.seq);
    if (this.#disk.size(path) === undefined) this.#disk.openFile(path, "create").close();
    await this.#disk.syncDirectory(this.#directory);
  }

  /**
   * Makes everything written so far durable that no sync under way does. Of several at a time, one has done what it was to do
   * when those before it have.
   */
  async sync(): Promise<void> {
    for (const wal of this.files.filter((file) => file.dirty)) {
      if (wal.retired) continue; // a checkpoint has taken its place meanwhile
      wal.dirty = false;
      this.syncs++;
      await wal.file.sync();
      if (wal.unnamed) {
        await this.#disk.syncDirectory(this.#directory);
        wal.unnamed = false;
      }
    }
  }

  /**
   * Writes what stands in the files in use once more, in its place, and makes it durable. It takes no space. After a failed
   * write or sync the operating system may count pages as written that are not.
   */
  async writeAgain(): Promise<void> {
    const buffer = Buffer.allocUnsafe(this.growBytes);
    for (const wal of this.files) {
      for (let at = 0; at < wal.position; ) {
        const bytes = await wal.file.read(buffer, 0, Math.min(buffer.length, wal.position - at), at);
        if (bytes === 0) throw new VarveError("ERR_IO", `${wal.file.path}: ends at ${at}, before ${wal.position}`);
        await wal.file.write([buffer.subarray(0, bytes)], at);
        at += bytes;
      }
      wal.dirty = true;
    }
    await this.sync();
  }

  /** Gives up the oldest file, all of whose entries a durable checkpoint covers. */
  recycleOldest(): void {
    const wal = this.files.shift();
    assert(wal !== undefined && this.files.length > 0, "the file being written is not recycled");
    assert(wal.batches.length === 0, "the batches of a file that is recycled have been moved");
    wal.retired = true;
    this.#spareBatches = wal.batches;
    if (wal.readers > 0) {
      this.#disk.unlink(wal.file.path);
    } else {
      wal.file.close();
      this.#keepSpare(wal.file.path, this.#spaceOf(wal));
    }
  }

  /** Bytes of a file that can be written again without needing disk space, for sure. */
  #spaceOf({ header, allocated }: WalFile): number {
    return header === undefined && this.mayHaveHoles ? 0 : allocated;
  }

  /** Makes the space of spare files durable, so that the next life can count on it; at best. */
  async syncSpares(): Promise<void> {
    for (const { path } of this.#spares) {
      try {
        const file = this.#disk.openFile(path, "write");
        await file.sync().finally(() => file.close());
      } catch {
        // What then runs out of space is a change on a full disk, after a power cut.
      }
    }
  }

  /** Ends a read that was counted in `readers`. */
  static release(wal: WalFile): void {
    wal.readers--;
    if (wal.retired && wal.readers === 0) wal.file.close();
  }

  close(): void {
    for (const wal of this.files) wal.file.close();
    this.files.length = 0;
  }

  #keepSpare(path: string, bytes: number): void {
    if (this.#spares.length >= SPARE_FILES_MAX) {
      this.#disk.unlink(path);
      return;
    }
    let spare: string;
    do spare = `${this.#directory}/spare-${++this.#spareCount}.wal`;
    while (this.#disk.size(spare) !== undefined);
    this.#disk.rename(path, spare);
    // The largest is used first.
    const at = this.#spares.findIndex((each) => each.bytes > bytes);
    this.#spares.splice(at < 0 ? this.#spares.length : at, 0, { path: spare, bytes });
  }

  /** All that a header says stands in its first sector, so it can be written again in place. */
  #writeHeader(wal: WalFile): void {
    this.#writeAll(wal.file, encodeFileHeader(wal.header!), 0, FILE_HEADER_BYTES, 0);
  }

  /** Has a new file grow to the usual size, or on a full disk to as much of it as there is. */
  #growAtLeast(file: DiskFile, extent: { allocated: number }, bytesMin: number): void {
    try {
      this.#grow(file, extent, this.growBytes);
    } catch (error) {
      if (!isNoSpace(error) || extent.allocated < bytesMin) throw error;
    }
  }

  #grow(file: DiskFile, extent: { allocated: number }, end: number): void {
    this.#zeros ??= Buffer.alloc(this.growBytes);
    const target = Math.min(this.#options.fileBytes, Math.ceil(end / this.growBytes) * this.growBytes);
    while (extent.allocated < target) {
      const bytes = Math.min(this.growBytes, target - extent.allocated);
      const written = file.writeSync(this.#zeros, 0, bytes, extent.allocated);
      if (written === 0) throw new VarveError("ERR_IO", `${file.path}: wrote nothing at ${extent.allocated}`);
      extent.allocated += written;
    }
  }

  /** write(2) may write less than asked without an error; a part is never taken for the whole. */
  #writeAll(file: DiskFile, buffer: Uint8Array, start: number, length: number, position: number): void {
    let done = 0;
    while (done < length) {
      const written = file.writeSync(buffer, start + done, length - done, position + done);
      if (written === 0) throw new VarveError("ERR_IO", `${file.path}: wrote nothing at ${position + done}`);
      done += written;
    }
  }
}
