import { VarveError } from "../api/errors.js";
import type { Disk } from "./disk.js";

/**
 * A file of zeros that holds disk space in reserve. When the disk is full it is given up, so that what a drain needs
 * (a checkpoint, with its segments and its snapshot) still fits; changes that need space are taken again only once it
 * could be refilled. It is held however much space the disk has: others may fill it while this process is not there to
 * see. On file systems that compress or copy on write it may reserve less than its size.
 */
export class Ballast {
  readonly #disk: Disk;
  readonly #path: string;
  readonly #stepBytes: number;
  #zeros: Buffer | undefined;
  /** Bytes held. */
  bytes: number;

  /** @param stepBytes it grows by whole steps, so that it need not grow often */
  constructor(disk: Disk, directory: string, stepBytes: number) {
    this.#disk = disk;
    this.#path = `${directory}/ballast`;
    this.#stepBytes = stepBytes;
    this.bytes = disk.size(this.#path) ?? 0;
  }

  /** Holds at least `bytes`. Throws ENOSPC when the disk has too little; what it had is then held. */
  hold(bytes: number): void {
    if (this.bytes >= bytes) return;
    this.#zeros ??= Buffer.alloc(this.#stepBytes);
    const target = Math.ceil(bytes / this.#stepBytes) * this.#stepBytes;
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
