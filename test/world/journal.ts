/**
 * What a worker noted down about its own calls, with the time of each line, so that what a power cut took can be judged
 * by when it was acknowledged. Each life of a process has a journal of its own: the last line of one that was killed may
 * lack its end.
 */

import { closeSync, openSync, readFileSync, writeSync } from "node:fs";
import type { Durability } from "../../src/index.js";

export interface Held {
  readonly task: string;
  readonly attempt: number;
}

/** About to be called: one commit, which appends these records, enqueues these tasks and acks those. */
export interface Intent {
  readonly kind: "intent";
  readonly op: string;
  readonly durability: Durability;
  readonly log: readonly string[];
  readonly tasks: readonly string[];
  readonly acks: readonly Held[];
  /** Removes the records below this offset. */
  readonly trim?: number;
}

export type Note =
  | Intent
  /** Acknowledged. `offsets` are those of `log`, where the call tells them. */
  | { readonly kind: "done"; readonly op: string; readonly offsets: readonly number[] }
  | { readonly kind: "failed"; readonly op: string; readonly code: string }
  /** `open` has returned. */
  | { readonly kind: "opened" }
  /** Delivered by a call that began at `asked`. */
  | {
      readonly kind: "took";
      readonly task: string;
      readonly attempt: number;
      readonly asked: number;
      readonly durability: Durability;
    }
  /** About to be given back before its lease ends. */
  | { readonly kind: "giving"; readonly task: string; readonly attempt: number }
  /** A call that is in no commit's journal lines failed. */
  | { readonly kind: "trouble"; readonly what: string; readonly code: string }
  /** A warning or an error to the logger. */
  | { readonly kind: "logged"; readonly message: string }
  /** A sync of a file or folder begins, or has succeeded. */
  | { readonly kind: "syncing" | "synced" }
  /** The event loop came round. */
  | { readonly kind: "turn" }
  /** At the end of a worker that ends by itself. */
  | { readonly kind: "health"; readonly health: string; readonly failure: string };

/** A note and its time, by the machine's own monotonic clock, which all processes share. */
export type Entry = Note & { readonly at: number };

export function nowMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** In place of a path: the standard output, for a worker that may not write large files. */
export const STANDARD_OUTPUT = "-";

export class Journal {
  readonly #file: number;

  constructor(path: string) {
    this.#file = path === STANDARD_OUTPUT ? 1 : openSync(path, "a");
  }

  write(note: Note): void {
    const line = Buffer.from(`${JSON.stringify({ ...note, at: nowMs() })}\n`);
    let done = 0;
    while (done < line.length) done += writeSync(this.#file, line, done);
  }

  close(): void {
    closeSync(this.#file);
  }
}

/** All entries in order; none when the worker was killed before it wrote any. */
export function readEntries(path: string): Entry[] {
  const lines = readFileSync(path, { encoding: "utf8", flag: "a+" }).split("\n");
  lines.pop();
  return lines.map((line) => JSON.parse(line) as Entry);
}
