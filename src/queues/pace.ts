/** How fast a queue hands out tasks: how many are leased at once, and how many are given away in a window of time. */

import type { Decoder, Encoder } from "../storage/bytes.js";

export interface PaceRules {
  /** 0: any number. */
  readonly concurrency: number;
  /** `limit` 0: any number. */
  readonly rate: { readonly limit: number; readonly perMs: number };
}

export class Pace {
  readonly #rules: () => PaceRules;
  readonly #leased: () => number;
  /** The window that the last delivery fell into: elapsed time when it began, and deliveries in it. */
  #began = 0;
  #given = 0;

  /** @param leased how many are leased, or on their way to a receiver that leases them */
  constructor(rules: () => PaceRules, leased: () => number) {
    this.#rules = rules;
    this.#leased = leased;
  }

  /**
   * Tasks that may be handed out now.
   * @param giving on their way to any receiver
   */
  room(elapsedMs: number, leases: boolean, giving: number): number {
    const { concurrency, rate } = this.#rules();
    let room = Number.POSITIVE_INFINITY;
    if (concurrency > 0 && leases) room = concurrency - this.#leased();
    if (rate.limit > 0) {
      const given = elapsedMs >= this.#began + rate.perMs ? 0 : this.#given;
      room = Math.min(room, rate.limit - given - giving);
    }
    return Math.max(0, room);
  }

  /** Elapsed time when the window ends that is used up; Infinity when it is not that which holds tasks back. */
  endsAt(elapsedMs: number): number {
    const { rate } = this.#rules();
    const end = this.#began + rate.perMs;
    return rate.limit > 0 && this.#given >= rate.limit && elapsedMs < end ? end : Number.POSITIVE_INFINITY;
  }

  /** Tasks have been handed out, in life or in replay. */
  handedOut(count: number, elapsedMs: number): void {
    const { rate } = this.#rules();
    if (rate.limit === 0) return;
    if (this.#given === 0 || elapsedMs >= this.#began + rate.perMs) {
      this.#began = elapsedMs;
      this.#given = 0;
    }
    this.#given += count;
  }

  encode(output: Encoder): void {
    output.varint(Math.floor(this.#began));
    output.varint(this.#given);
  }

  decode(input: Decoder): void {
    this.#began = input.varint();
    this.#given = input.varint();
  }
}
