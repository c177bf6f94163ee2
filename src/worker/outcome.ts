/** What a handler throws to say more than that it failed. */

import type { Duration } from "../api/contract.js";
import { resolveDelay } from "../api/options.js";
import { show } from "../api/show.js";

/** Registered under global symbols, so that those of a second copy of this module are recognised too. */
const DISCARD = Symbol.for("varve.discard");
const RETRY = Symbol.for("varve.retry");

/** Thrown by a handler whose task cannot succeed: it goes straight to the dead letters, whatever attempts it has left. */
export class Discard extends Error {
  static {
    Object.defineProperties(Discard.prototype, {
      name: { value: "Discard", configurable: true, writable: true },
      [DISCARD]: { value: true },
    });
  }
}

export interface RetryOptions {
  /** Wait before the next delivery. @defaultValue the queue's backoff for this attempt */
  readonly delay?: Duration | undefined;
  readonly cause?: unknown;
}

/** Thrown by a handler to say when its task should be tried again. The attempt counts as failed all the same. */
export class Retry extends Error {
  /** Milliseconds; `undefined` for the queue's backoff. */
  readonly delayMs: number | undefined;

  static {
    Object.defineProperties(Retry.prototype, {
      name: { value: "Retry", configurable: true, writable: true },
      [RETRY]: { value: true },
    });
  }

  /** @throws VarveError `ERR_OPTION`: the delay is no duration, or longer than ten years */
  constructor(message: string, options: RetryOptions = {}) {
    super(message, "cause" in options ? { cause: options.cause } : undefined);
    this.delayMs = resolveDelay(options.delay);
  }
}

export function isDiscard(error: unknown): boolean {
  return typeof error === "object" && error !== null && DISCARD in error;
}

/** The wait that a thrown `Retry` asks for. */
export function retryDelayMs(error: unknown): number | undefined {
  if (typeof error !== "object" || error === null || !(RETRY in error)) return undefined;
  return (error as Partial<Retry>).delayMs;
}

/** Whatever was thrown, as the text that is kept with the task. Never throws, whatever it is. */
export function failureText(error: unknown): string {
  if (typeof error === "string") return error;
  if (!(error instanceof Error)) return show(error);
  try {
    // What Discard and Retry are called says nothing that the task's own history does not.
    return isDiscard(error) || RETRY in error ? String(error.message) : `${error.name}: ${error.message}`;
  } catch {
    return "an error without a legible message";
  }
}
