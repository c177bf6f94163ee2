import { labelled } from "./expect.js";
import { positive } from "./scale.js";

/**
 * Repeatable choices for tests (splitmix32). `VARVE_TEST_SEED` sets the seed of every test that draws one; a failing
 * test names the seed it ran with.
 */
export class Seeded {
  readonly seed: number;
  #state: number;

  constructor(seed: number) {
    this.seed = seed >>> 0;
    this.#state = this.seed;
  }

  uint32(): number {
    this.#state = (this.#state + 0x9e3779b9) >>> 0;
    let mixed = this.#state ^ (this.#state >>> 16);
    mixed = Math.imul(mixed, 0x21f0aaad);
    mixed ^= mixed >>> 15;
    mixed = Math.imul(mixed, 0x735a2d97);
    return (mixed ^ (mixed >>> 15)) >>> 0;
  }

  /** A whole number from 0 up to, not including, `limit`. */
  below(limit: number): number {
    return Math.floor((this.uint32() / 0x1_0000_0000) * limit);
  }

  /** A whole number from `low` to `high`, both included. */
  between(low: number, high: number): number {
    return low + this.below(high - low + 1);
  }

  chance(probability: number): boolean {
    return this.uint32() / 0x1_0000_0000 < probability;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)] as T;
  }

  bytes(length: number): Buffer {
    const buffer = Buffer.alloc(length);
    for (let index = 0; index < length; index++) buffer[index] = this.uint32() & 0xff;
    return buffer;
  }
}

/** The seed given by the environment, or the test's own. */
export function seedOr(fallback: number): number {
  return positive("VARVE_TEST_SEED", fallback) >>> 0;
}

/** Runs the body, and names the seed if it fails. */
export async function withSeed(seed: number, body: (random: Seeded) => Promise<void>): Promise<void> {
  await labelled(
    () => `VARVE_TEST_SEED=${seed} repeats it`,
    () => body(new Seeded(seed)),
  );
}
