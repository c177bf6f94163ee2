import type { TaskQueue } from "../api/contract.js";

/** A change of a queue's limits is noticed after this long. */
const SETTINGS_MS = 1000;

/**
 * Whether a queue is known to have no limits, so that items of several requests may be stored as one batch: limits take that as a
 * whole, and so would let in more than they say.
 */
export class Unlimited {
  readonly #queue: TaskQueue;
  #is = false;
  #looking = false;
  #looksAgainMs = Number.NEGATIVE_INFINITY;

  constructor(queue: TaskQueue) {
    this.#queue = queue;
  }

  /** False until it is known. */
  at(nowMs: number): boolean {
    if (nowMs >= this.#looksAgainMs && !this.#looking) void this.#look(nowMs);
    return this.#is;
  }

  async #look(nowMs: number): Promise<void> {
    this.#looking = true;
    try {
      const { maxCount, maxBytes, maxMessageBytes } = (await this.#queue.settings()).limits;
      this.#is = Math.min(maxCount, maxBytes, maxMessageBytes) === Number.POSITIVE_INFINITY;
    } catch {
      this.#is = false; // whatever it is, the next request meets it
    } finally {
      this.#looking = false;
      this.#looksAgainMs = nowMs + SETTINGS_MS;
    }
  }
}
