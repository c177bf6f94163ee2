import { VarveError } from "../api/errors.js";
import type { Disk } from "./disk.js";

/** Free space at which a reserve is not needed yet: several times what all log files together can hold back. */
const PLENTY_BYTES = 2 * 1024 * 1024 * 1024;
/** The disk is looked at each time that so much has been written. */
const LOOK_EVERY_BYTES = 16 * 1024 * 1024;

/**
 * A file of zeros that holds disk space in reserve. When the disk is full it is given up, so that what a drain needs
 * (a checkpoint, with its segments and its snapshot) still fits; changes that need space are taken again only once it
 * could be refilled. While the disk has plenty of space it is kept small. On file systems that compress or copy on write
 * it may reserve less than its size.
 */
export class Ballast {
  /** Bytes written at which the disk's free space was last looked at, and whether there was plenty. */
  #lookedAt = Number.NEGATIVE_INFINITY;
  #plenty = false;
  readonly #disk: Disk;
  readonly #directory: string;
  readonly #path: string;
  readonly #stepBytes: number;
  #zeros: Buffer | undefined;
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
   * Holds at least `bytes`, unless the disk has so much space that this need not be. Throws ENOSPC when it has too little.
   * @param writtenBytes what has been written since open, which tells when to look at the disk again
   */
  hold(bytes: number, writtenBytes: number): void {
    if (this.bytes >= bytes) return;
    if (writtenBytes - this.#lookedAt >= LOOK_EVERY_BYTES) {
      this.#lookedAt = writtenBytes;
      this.#plenty = (this.#disk.freeBytes(this.#directory) ?? 0) >= PLENTY_BYTES;
    }
    if (this.#plenty && this.bytes >= this.#stepBytes) return;
    this.#zeros ??= Buffer.alloc(this.#stepBytes);
    const wanted = this.#plenty ? this.#stepBytes : bytes;
    const target = Math.ceil(wanted / this.#stepBytes) * this.#stepBytes;
    const exists = this.#disk.size(this.#path) !== undefined;
    const file = this.#disk.openFile(this.#path, exists ? "write" : "create");
    try {
      while (this.bytes < target) {
        const written = file.writeSync(this.#zeros, 0, Math.min(this.#stepBytes, target - this.bytes), this.bytes);
        if (written === 0) throw new VarveError("ERR_IO", `${this.#path}: wrote nothing at ${this.bytes}`);
        this.bytes += written;
      }
    } finally {
      file.close();
    }
  }

  /** Gives the space back to the disk. False when there was none. */
  release(): boolean {
    if (this.bytes === 0) return false;
    this.bytes = 0;
    this.#disk.unlink(this.#path);
    return true;
  }
}
