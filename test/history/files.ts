/** Histories in files: of each process one, or several one after another, with one line for each note. */

import { closeSync, createReadStream, openSync, readdirSync, statSync, writeSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { type History, HistoryReader } from "./history.js";

/** The files of one history. Reads them in pieces, so that they may be larger than a string can be. */
export async function loadHistory(files: readonly string[]): Promise<History> {
  const reader = new HistoryReader();
  for (const file of files) {
    let held: string | undefined;
    try {
      for await (const line of createInterface({
        input: createReadStream(file),
        crlfDelay: Number.POSITIVE_INFINITY,
      })) {
        if (held !== undefined) reader.line(held);
        held = line;
      }
      if (held !== undefined) reader.line(held, true);
    } catch (error) {
      throw new Error(`${file}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
    }
  }
  return reader.end();
}

/** Which files make up which history: those of a folder belong together, and so do all that are named singly. */
export function historiesOf(paths: readonly string[]): { readonly name: string; readonly files: readonly string[] }[] {
  const folders = paths.filter((path) => statSync(path).isDirectory());
  const single = paths.filter((path) => !folders.includes(path));
  const histories = folders.map((folder) => ({
    name: folder,
    files: readdirSync(folder)
      .filter((file) => file.endsWith(".jsonl"))
      .sort()
      .map((file) => join(folder, file)),
  }));
  return single.length === 0 ? histories : [...histories, { name: single.join(" "), files: single }];
}

/** Appends lines to a file with plain writes: what was written outlives a process that is killed. */
export class HistoryFile {
  readonly #file: number;

  constructor(path: string) {
    this.#file = openSync(path, "a");
  }

  write(line: object): void {
    const bytes = Buffer.from(`${JSON.stringify(line)}\n`);
    for (let done = 0; done < bytes.length; ) done += writeSync(this.#file, bytes, done);
  }

  close(): void {
    closeSync(this.#file);
  }
}
