import { VarveError } from "../api/errors.js";
import type { Method } from "../wire/methods.js";

/** How something is opened. */
export interface Opening {
  readonly method: Method;
  /** What it belongs to. */
  readonly parent: Handle | undefined;
  readonly args: readonly unknown[];
}

/**
 * Something that is open at the daemon, and how to open it again. Whatever uses it keeps it alive: once nobody does, it is
 * closed at the daemon, too.
 */
export class Handle {
  readonly id: number;
  /** Why it cannot be used any more. */
  broken: Error | undefined;
  readonly #opening: Opening;

  /** @param opening without any settings: those that are stored hold */
  constructor(id: number, opening: Opening) {
    this.id = id;
    this.#opening = opening;
  }

  /** What to call after a lost connection; undefined when nothing. @param resumed the daemon still has it */
  reopen(resumed: boolean): Opening | undefined {
    return resumed || this.broken !== undefined ? undefined : this.#opening;
  }

  /** It has been opened again. @param answer of the call that did it; returns why it cannot be used any more, if so */
  reopened(_answer: unknown): Error | undefined {
    return undefined;
  }

  /** @throws VarveError why it cannot be used any more */
  check(): void {
    if (this.broken !== undefined) throw this.broken;
  }
}

export function foreign(name: string): VarveError {
  return new VarveError("ERR_ARGUMENT", `${name} belongs to another directory; a transaction or flow stays within one`);
}
