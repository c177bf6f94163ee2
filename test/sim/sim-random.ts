import type { Random } from "../../src/storage/clock.js";

/**
 * Randomness that a seed repeats: xoshiro128** by Blackman and Vigna, its state filled by splitmix32. One generator
 * per purpose (see `fork`) keeps a new draw in one place from changing all the others.
 */
export class SimRandom implements Random {
  #a: number;
  #b: number;
  #c: number;
  #d: number;

  /** Any integer; its low 32 bits count. */
  constructor(seed: number) {
    let state = seed | 0;
    const splitmix = () => {
      state = (state + 0x9e3779b9) | 0;
      let z = state ^ (state >>> 16);
      z = Math.imul(z, 0x21f0aaad);
      z ^= z >>> 15;
      z = Math.imul(z, 0x735a2d97);
      return z ^ (z >>> 15);
    };
    this.#a = splitmix();
    this.#b = splitmix();
    this.#c = splitmix();
    this.#d = splitmix() | 1; // All zeros would stay zeros.
  }

  uint32(): number {
    const scrambled = Math.imul(this.#b, 5);
    const result = Math.imul((scrambled << 7) | (scrambled >>> 25), 9);
    const shifted = this.#b << 9;
    this.#c ^= this.#a;
    this.#d ^= this.#b;
    this.#b ^= this.#c;
    this.#a ^= this.#d;
    this.#c ^= shifted;
    this.#d = (this.#d << 11) | (this.#d >>> 21);
    return result >>> 0;
  }

  /** Uniform over 0 .. 1, 1 excluded. */
  fraction(): number {
    return this.uint32() / 2 ** 32;
  }

  /** Uniform over 0 .. n - 1; n is at most 2^32. */
  below(n: number): number {
    return Math.floor(this.fraction() * n);
  }

  /** Uniform over both ends and all between. */
  between(least: number, most: number): number {
    return least + this.below(most - least + 1);
  }

  chance(probability: number): boolean {
    return this.fraction() < probability;
  }

  pick<T>(items: readonly T[]): T {
    if (items.length === 0) throw new RangeError("nothing to pick from");
    return items[this.below(items.length)]!;
  }

  fill(bytes: Uint8Array): void {
    for (let i = 0; i < bytes.length; i++) bytes[i] = this.uint32() >>> 24;
  }

  /** A generator of its own, seeded from this one. */
  fork(): SimRandom {
    return new SimRandom(this.uint32());
  }
}
