import type { Durability } from "../api/contract.js";

/**
 * A change on its way through the log. What it touches is reserved when it is staged, changed by `apply` once it is
 * written, and told to the caller by `settle` once it is committed.
 */
export interface Operation {
  readonly durability: Durability;
  apply(): void;
  settle(): void;
  /** Not written, or not known to be durable. Gives back what was reserved and tells the caller. */
  fail(error: Error): void;
}

/** The usual case: a promise that resolves to a value known beforehand. */
export class ValueOperation<T> implements Operation {
  readonly durability: Durability;
  readonly #value: T;
  readonly #resolve: (value: T) => void;
  readonly #reject: (error: Error) => void;

  constructor(durability: Durability, value: T, resolve: (value: T) => void, reject: (error: Error) => void) {
    this.durability = durability;
    this.#value = value;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  apply(): void {}

  settle(): void {
    this.#resolve(this.#value);
  }

  fail(error: Error): void {
    this.#reject(error);
  }
}
