/**
 * Disk space that is held back, so that on a full disk what frees space still has some: a checkpoint, with its segments
 * and its snapshot, and the log file that comes next.
 */

import { Ballast } from "../storage/ballast.js";
import type { Disk } from "../storage/disk.js";
import { PREVIOUS_SNAPSHOT } from "../storage/snapshot.js";
import type { Wal } from "../storage/wal.js";

export class Reserves {
  readonly #disk: Disk;
  readonly #wal: Wal;
  readonly #ballast: Ballast;
  readonly #previousSnapshot: string;
  /** What a snapshot needs, about. */
  snapshotBytes: number;

  constructor(disk: Disk, directory: string, wal: Wal, snapshotBytes: number) {
    this.#disk = disk;
    this.#wal = wal;
    this.#ballast = new Ballast(disk, directory, wal.growBytes);
    this.#previousSnapshot = `${directory}/snap/${PREVIOUS_SNAPSHOT}`;
    this.snapshotBytes = snapshotBytes;
  }

  /**
   * Holds what a checkpoint can need: a copy of all batches in the log, and the state of the queues, which has grown by no
   * more than the log has since it was last written. Throws ENOSPC; what the disk had is then held.
   * @param bytes of the log that are about to be written
   */
  hold(bytes: number): void {
    const { entriesBytes, growBytes } = this.#wal;
    this.#ballast.hold(entriesBytes + bytes + this.snapshotBytes + growBytes);
  }

  /**
   * Gives up a piece of what is held, then what only serves speed, or a repair. False when nothing is left. A piece is
   * less than what is held on top of what is needed: should others take it, the rest is still enough.
   */
  async giveUp(): Promise<boolean> {
    if ((await this.#ballast.giveUp(this.#wal.growBytes / 2)) || this.#wal.releaseSpare()) return true;
    if (this.#disk.size(this.#previousSnapshot) === undefined) return false;
    this.#disk.unlink(this.#previousSnapshot);
    return true;
  }

  /** Ends work in the thread pool. */
  stop(): Promise<void> {
    return this.#ballast.stop();
  }
}
