import type { Random } from "../storage/clock.js";
import { sipHash128 } from "../storage/siphash.js";

/** A slot: 16 bytes of hash and 8 of offset. */
const SLOT_BYTES = 24;
const HASH_WORDS = 4;
const SLOTS_MIN = 1024;
const SLOTS_PER_KEY = 4 / 3;

/**
 * The last offset of each key, by a keyed hash of 128 bits: what it takes does not depend on how long keys are. That two
 * keys share a hash is less likely than that the memory is wrong, and cannot be brought about from outside.
 */
export class KeyTable {
  readonly #secret: Uint32Array;
  readonly #slotsMax: number;
  readonly #hash = new Uint32Array(HASH_WORDS);
  #slots: number;
  #hashes: Uint32Array;
  /** Offset + 1; 0: the slot is free. */
  #offsets: Float64Array;
  #size = 0;

  /** @param bytesMax memory, at most, also while the table grows */
  constructor(random: Random, bytesMax: number) {
    this.#secret = Uint32Array.from({ length: HASH_WORDS }, () => random.uint32());
    // The old half is there until it has been moved.
    this.#slotsMax = Math.max(2, Math.floor((bytesMax * 2) / 3 / SLOT_BYTES));
    this.#slots = Math.min(SLOTS_MIN, this.#slotsMax);
    this.#hashes = new Uint32Array(this.#slots * HASH_WORDS);
    this.#offsets = new Float64Array(this.#slots);
  }

  get size(): number {
    return this.#size;
  }

  /** Notes a record, later than all before. False when the table is full and does not have its key. */
  note(key: Uint8Array, offset: number): boolean {
    sipHash128(this.#secret, key, this.#hash);
    let at = this.#find();
    if (this.#offsets[at] === 0) {
      if ((this.#size + 1) * SLOTS_PER_KEY > this.#slots) {
        if (this.#slots === this.#slotsMax) return false;
        this.#grow();
        at = this.#find();
      }
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

  #grow(): void {
    const hashes = this.#hashes;
    const offsets = this.#offsets;
    const current = Uint32Array.from(this.#hash);
    this.#slots = Math.min(this.#slots * 2, this.#slotsMax);
    this.#hashes = new Uint32Array(this.#slots * HASH_WORDS);
    this.#offsets = new Float64Array(this.#slots);
    for (let from = 0; from < offsets.length; from++) {
      if (offsets[from] === 0) continue;
      this.#hash.set(hashes.subarray(from * HASH_WORDS, (from + 1) * HASH_WORDS));
      const to = this.#find();
      this.#hashes.set(this.#hash, to * HASH_WORDS);
      this.#offsets[to] = offsets[from]!;
    }
    this.#hash.set(current);
  }
}
