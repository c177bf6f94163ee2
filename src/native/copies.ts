/**
 * Where short messages stand that wait for the puts of their turn to be made: what the socket was read into is used again before
 * that, and memory of its own for each message would be the collector's to find.
 */

import type { Puts } from "../net/puts.js";
import type { Copies } from "../wire/input.js";

const SLAB_BYTES = 256 * 1024;
/** Longer ones are not worth a copy, and do not wait. */
export const COPIED_BYTES_MAX = 4096;

export class TurnCopies implements Copies {
  readonly #puts: Puts;
  readonly #slab = Buffer.allocUnsafeSlow(SLAB_BYTES);
  #used = 0;
  /** The puts that the copies are for. */
  #turn = 0;

  constructor(puts: Puts) {
    this.#puts = puts;
  }

  /** A copy, good until the puts that there are now have been made; of what is not short, a view. */
  copy(source: Buffer, from: number, to: number): Buffer {
    const length = to - from;
    if (length > COPIED_BYTES_MAX) return source.subarray(from, to);
    // Not between the copy and its put.
    this.#puts.makeRoom(length);
    const { turn, isBusy } = this.#puts;
    if (turn !== this.#turn && !isBusy) {
      this.#turn = turn;
      this.#used = 0;
    }
    const at = this.#used;
    if (isBusy || at + length > SLAB_BYTES) return Buffer.from(source.subarray(from, to));
    this.#used = at + length;
    source.copy(this.#slab, at, from, to);
    return this.#slab.subarray(at, this.#used);
  }
}
