/**
 * Where short messages stand that wait for the puts of their turn to be made: what the socket was read into is used again before
 * that, and memory of its own for each message would be the collector's to find.
 */

import { copyBytes } from "../api/copy-bytes.js";
import type { Puts } from "../net/puts.js";

const SLAB_BYTES = 256 * 1024;
/** Longer ones are not worth a copy, and do not wait. */
export const COPIED_BYTES_MAX = 4096;

export class TurnCopies {
  readonly #puts: Puts;
  readonly #slab = Buffer.allocUnsafeSlow(SLAB_BYTES);
  #used = 0;
  /** The puts that the copies are for. */
  #turn = 0;

  /** In which the last copy stands. */
  memory = this.#slab;

  constructor(puts: Puts) {
    this.#puts = puts;
  }

  /** Copies up to COPIED_BYTES_MAX; good until the puts that there are now have been made. Returns where they begin in `memory`. */
  copy(source: Buffer, from: number, to: number): number {
    const length = to - from;
    // Not between the copy and its put.
    this.#puts.makeRoom(length);
    const { turn, isBusy } = this.#puts;
    if (turn !== this.#turn && !isBusy) {
      this.#turn = turn;
      this.#used = 0;
    }
    const at = this.#used;
    if (isBusy || at + length > SLAB_BYTES) {
      this.memory = Buffer.from(source.subarray(from, to));
      return 0;
    }
    this.#used = at + length;
    this.memory = this.#slab;
    copyBytes(source, from, to, this.#slab, at);
    return at;
  }
}
