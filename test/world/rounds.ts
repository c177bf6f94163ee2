/** What the parts share: a place to work in, workers, and judging a copy of what they leave behind. */

import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type OpenOptions, verifyDirectory } from "../../src/index.js";
import { OPEN_OPTIONS } from "../crash/shape.js";
import { type Child, startChild } from "../support/child.js";
import type { Seeded } from "../support/seeded.js";
import { type Entry, readEntries } from "./journal.js";
import type { End, Judge } from "./judge.js";
import { judgesClock, openOn } from "./machine.js";
import type { WorkerPlan } from "./worker.js";

/** The result of one part: its line, or why this machine cannot run it. */
export type Outcome =
  | {
      readonly line: string;
      /** What there was no time for. */
      readonly leftOut?: string;
    }
  | { readonly skipped: string };

export interface Stage {
  readonly random: Seeded;
  /** A folder of its own, removed afterwards unless something was wrong. */
  readonly folder: string;
  /** How many times as much is done as by default. */
  readonly scale: number;
  /** Whether a part of many rounds is to end with those that it has done. */
  isTimeUp(): boolean;
}

export function makeFolder(part: string): string {
  return mkdtempSync(join(tmpdir(), `varve-world-${part}-`));
}

export function startWorker(plan: WorkerPlan): Child {
  return startChild(import.meta.url, "./worker.js", { args: [JSON.stringify(plan)] });
}

/** The journal of one life, whose worker may never have come so far as to begin it. */
export function journalOf(plan: Pick<WorkerPlan, "journal">): Entry[] {
  return readEntries(plan.journal);
}

/**
 * Has a copy judged, so that the original is next opened by the next worker: with everything that opening has to do.
 * Checks the files, unless told not to, as they were left, and as they are after they have been used.
 */
export async function judgeCopy(
  judge: Judge,
  directory: string,
  folder: string,
  end: End,
  boot?: string,
  options: OpenOptions = {},
  checksFiles = true,
): Promise<void> {
  const copy = join(folder, "copy");
  rmSync(copy, { recursive: true, force: true });
  if (existsSync(directory)) cpSync(directory, copy, { recursive: true });
  else mkdirSync(copy);
  if (checksFiles && existsSync(join(copy, "varve.json"))) await verify(copy, "as it was left");
  const clock = judgesClock();
  const mq = await openOn(copy, { ...OPEN_OPTIONS, ...options }, { boot, clock });
  await judge.see(mq, clock, end);
  await mq.close();
  if (checksFiles) await verify(copy, "after it was opened and closed");
}

async function verify(directory: string, when: string): Promise<void> {
  const { problems: all } = await verifyDirectory(directory);
  // An index is only a hint and never synced: whoever is cut off while writing one leaves a part of it.
  const problems = all.filter(({ file }) => !file.endsWith(".idx"));
  const [first] = problems;
  if (first === undefined) return;
  throw new Error(`verify, ${when}: ${problems.length} problems, such as ${first.file}: ${first.reason}`);
}
