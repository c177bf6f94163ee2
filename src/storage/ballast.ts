import { VarveError } from "../api/errors.js";
import type { Disk, DiskFile } from "./disk.js";

/** Steps by which it grows ahead of what is asked for, at most. */
const STEPS_AHEAD = 8;
/** Free space, in multiples of that, below which it takes only what it is asked for. */
const SCARCE = 8;

/**
 * A file of zeros that holds disk space in reserve. When the disk is full it is given up, a piece at a time as it is
 * needed, so that what a drain needs (a checkpoint, with its segments and its snapshot) still fits; changes that need
 * space are taken again only once it could be refilled. It is held however much space the disk has: others may fill it
 * while this process is not there to see. On file systems that compress or copy on write it may reserve less than its
 * size.
 */
export class Ballast {
  readonly #disk: Disk;
  readonly #directory: string;
  readonly #path: string;
  readonly #stepBytes: number;
  #zeros: Buffer | undefined;
  #growing: Promise<void> | undefined;
  #pausing = false;
  #stopped = false;
  /** Growing ahead was thought about; not again before this much is asked for. */
  #lookAgainAt = 0;
  /** Bytes held. */
  bytes: number;

  /** @param stepBytes it grows by whole steps, so that it need not grow often */
  constructor(disk: Disk, directory: string, stepBytes: number) {
    this.#disk = disk;
    this.#directory = directory;
    this.#path = `${directory}/ballast`;
    this.#stepBytes = stepBytes;
    this.bytes = disk.size(this.#path) ?? 0;
  }

  /**
   * Holds at least `bytes`. Throws ENOSPC when the disk has too little; what it had is then held. What may be asked for
   * next is taken in the thread pool meanwhile, so that callers seldom wait for zeros to be written.
   */
  hold(bytes: number): void {
    if (this.bytes < bytes) this.#grow(Math.ceil(bytes / this.#stepBytes) * this.#stepBytes);
    const aheadBytes = Math.min(STEPS_AHEAD * this.#stepBytes, bytes / 2);
    if (this.bytes >= bytes + aheadBytes / 2 || bytes < this.#lookAgainAt || this.#growing !== undefined) return;
    if (this.#stopped) return;
    this.#lookAgainAt = bytes + this.#stepBytes;
    // Space that is scarce is for those who need it now.
    if ((this.#disk.freeBytes(this.#directory) ?? 0) < SCARCE * STEPS_AHEAD * this.#stepBytes) return;
    this.#growing = this.#growTo(Math.ceil((bytes + aheadBytes) / this.#stepBytes) * this.#stepBytes)
      .catch(() => {}) // a caller who needs it will be told
      .finally(() => {
        this.#growing = undefined;
      });
  }

  /** Gives up to `bytes` back to the disk. False when there was nothing to give. */
  async giveUp(bytes: number): Promise<boolean> {
    this.#pausing = true;
    await this.#growing;
    this.#pausing = false;
    if (this.bytes === 0) return false;
    this.#lookAgainAt = 0;
    this.bytes = Math.max(0, this.bytes - bytes);
    if (this.bytes === 0) {
      this.#disk.unlink(this.#path);
      return true;
    }
    const file = this.#open();
    try {
      await file.truncate(this.bytes);
    } finally {
      file.close();
    }
    return true;
  }

  /** Ends work in the thread pool. After it, it grows only as it is asked to. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#growing;
  }

  #grow(target: number): void {
    const file = this.#open();
    try {
      while (this.bytes < target) {
        const written = file.writeSync(this.#stepOfZeros(), 0, this.#nextBytes(this.bytes, target), this.bytes);
        if (written === 0) throw new VarveError("ERR_IO", `${this.#path}: wrote nothing at ${this.bytes}`);
        this.bytes += written;
      }
    } finally {
      file.close();
    }
  }

  async #growTo(target: number): Promise<void> {
    const file = this.#open();
    try {
      while (this.bytes < target && !this.#pausing && !this.#stopped) {
        const from = this.bytes;
        const length = this.#nextBytes(from, target);
        await file.write([this.#stepOfZeros().subarray(0, length)], from);
        // A caller that could not wait may have gone further meanwhile.
        this.bytes = Math.max(this.bytes, from + length);
      }
    } finally {
      file.close();
    }
  }

  #open(): DiskFile {
    return this.#disk.openFile(this.#path, this.#disk.size(this.#path) === undefined ? "create" : "write");
  }

  #nextBytes(from: number, target: number): number {
    return Math.min(this.#stepBytes, target - from);
  }

  #stepOfZeros(): Buffer {
    this.#zeros ??= Buffer.alloc(this.#stepBytes);
    return this.#zeros;
  }
}
