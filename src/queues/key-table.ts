import type { Random } from "../storage/clock.js";
import { sipHash128 } from "../storage/siphash.js";

/** A slot: 16 bytes of hash and 8 of offset. */
const SLOT_BYTES = 24;
const HASH_WORDS = 4;
const SLOTS_PER_KEY = 4 / 3;

/**
 * The last offset of each key, by a keyed hash of 128 bits: what it takes does not depend on how long keys are. That two
 * keys share a hash is less likely than that the memory is wrong, and cannot be brought about from outside.
 */
export class KeyTable {
  readonly #secret: Uint32Array;
  readonly #slots: number;
  readonly #sizeMax: number;
  readonly #hash = new Uint32Array(HASH_WORDS);
  readonly #hashes: Uint32Array;
  /** Offset + 1; 0: the slot is free. */
  readonly #offsets: Float64Array;
  #size = 0;

  /**
   * As large from the start as it may have to be: memory costs nothing before it is touched, and to move a grown table
   * would keep callers waiting.
   * @param keysMax how many keys there can be
   * @param bytesMax memory, at most
   */
  constructor(random: Random, keysMax: number, bytesMax: number) {
    this.#secret = Uint32Array.from({ length: HASH_WORDS }, () => random.uint32());
    this.#slots = Math.max(2, Math.min(Math.ceil(keysMax * SLOTS_PER_KEY) + 1, Math.floor(bytesMax / SLOT_BYTES)));
    this.#sizeMax = Math.floor(this.#slots / SLOTS_PER_KEY);
    this.#hashes = new Uint32Array(this.#slots * HASH_WORDS);
    this.#offsets = new Float64Array(this.#slots);
  }

  get size(): number {
    return this.#size;
  }

  /** Notes a record, later than all before. False when the table is full and does not have its key. */
  note(key: Uint8Array, offset: number): boolean {
    sipHash128(this.#secret, key, this.#hash);
    const at = this.#find();
    if (this.#offsets[at] === 0) {
      if (this.#size === this.#sizeMax) return false;
      this.#hashes.set(this.#hash, at * HASH_WORDS);
      this.#size++;
    }
    this.#offsets[at] = offset + 1;
    return true;
  }

  /** The last offset noted for a key. */
  lastOf(key: Uint8Array): number | undefined {
    sipHash128(this.#secret, key, this.#hash);
    const offset = this.#offsets[this.#find()]!;
    return offset === 0 ? undefined : offset - 1;
  }

  /** The slot of the hash at hand, or the free one where it belongs. */
  #find(): number {
    const [a, b, c, d] = this.#hash as unknown as readonly [number, number, number, number];
    const hashes = this.#hashes;
    let at = Math.floor((a / 2 ** 32) * this.#slots);
    while (this.#offsets[at] !== 0) {
      const word = at * HASH_WORDS;
      if (hashes[word] === a && hashes[word + 1] === b && hashes[word + 2] === c && hashes[word + 3] === d) return at;
      at++;
      if (at === this.#slots) at = 0;
    }
    return at;
  }
}
