/**
 * What a worker noted down about its own calls: one line before each, one after it. A plain write to a file survives a
 * killed process, so the journal is a witness that does not depend on what it testifies about.
 */

import { openSync, readFileSync, writeSync } from "node:fs";

/** About to be called: one commit, which appends these records, enqueues these tasks and acks those. */
export interface Intent {
  readonly kind: "intent";
  /** `<worker>.<number>`; numbers of one worker count up in the order of its calls. */
  readonly op: string;
  readonly log: readonly string[];
  readonly tasks: readonly string[];
  readonly acks: readonly string[];
}

export type Entry =
  | Intent
  /** Acknowledged. `offsets` are those of `log`, where the call tells them. */
  | { readonly kind: "done"; readonly op: string; readonly offsets: readonly number[] }
  /** Rejected with an error. */
  | { readonly kind: "refused"; readonly op: string; readonly code: string }
  /** Delivered to a worker. */
  | { readonly kind: "took"; readonly task: string; readonly attempt: number };

export class JournalWriter {
  readonly #file: number;

  constructor(path: string) {
    this.#file = openSync(path, "a");
    // Its predecessor may have been killed in the middle of a line: that one must not run into the first of ours.
    writeSync(this.#file, "\n");
  }

  write(entry: Entry): void {
    writeSync(this.#file, `${JSON.stringify(entry)}\n`);
  }
}

/** All entries in order. A line that is not whole was being written when its worker was killed: it noted nothing yet. */
export function readJournal(path: string): Entry[] {
  return readFileSync(path, "utf8")
    .split("\n")
    .filter((line) => line.startsWith("{") && line.endsWith("}"))
    .flatMap((line) => wholeEntry(line) ?? []);
}

function wholeEntry(line: string): Entry | undefined {
  try {
    return JSON.parse(line) as Entry;
  } catch {
    return undefined;
  }
}

const FILLER = "0123456789abcdefghijklmnopqrstuvwxyz";

/** A payload that its id alone determines, so that every byte of it can be checked. */
export function payloadOf(id: string): string {
  let hash = 7;
  for (let index = 0; index < id.length; index++) hash = (Math.imul(hash, 31) + id.charCodeAt(index)) >>> 0;
  const length = hash % 64 === 0 ? 20_000 : hash % 700;
  return `${id}|${FILLER.repeat(Math.ceil(length / FILLER.length)).slice(0, length)}`;
}

/** The id in a payload; throws if it is not, byte for byte, the payload of that id. */
export function idOf(payload: Buffer): string {
  const text = payload.toString();
  const id = text.slice(0, text.indexOf("|"));
  if (text !== payloadOf(id)) throw new Error(`a payload that nobody sent: ${text.slice(0, 100)}`);
  return id;
}
