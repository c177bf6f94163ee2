/** A directory with files of every kind, small enough to be damaged bit by bit. */

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type MessageQueue, type OpenOptions, open, type VerifyReport, verifyDirectory } from "../../src/index.js";
import { copyDirectory, withDirectory } from "../support/directories.js";

export const OPTIONS = {
  walFileBytes: "256KiB",
  segmentBytes: "64KiB",
  cacheBytes: "4MiB",
  maxMessageBytes: "32KiB",
} as const satisfies OpenOptions;

export const BATCHES = 360;
export const PER_BATCH = 8;
/** Trimmed away at the end of the filling. */
export const TRIMMED = 5;
const SMALL_LOGS = 20;
export const TASKS = 30;

function textAt(offset: number): string {
  return `record ${offset} ${"abcdefgh".repeat(60)}`;
}

/** A log of several segments, small logs that share one, and a task queue with tasks in every state. */
export async function fill(mq: MessageQueue): Promise<void> {
  const events = await mq.openLog("events");
  for (let batch = 0; batch < BATCHES; batch++) {
    await events.appendBatch(
      Array.from({ length: PER_BATCH }, (_, index) => ({
        payload: textAt(batch * PER_BATCH + index),
        key: `k${index}`,
        headers: { batch: String(batch) },
      })),
    );
  }
  const jobs = await mq.openTask("Jobs", { maxAttempts: 1 });
  await jobs.enqueueBatch(Array.from({ length: TASKS }, (_, index) => `task ${index}`));
  await jobs.enqueue("later", { delay: "1h", maxAttempts: 3 });
  await jobs.enqueue("at noon", { at: new Date(Date.now() + 3_600_000) });
  const taken = await jobs.dequeueBatch({ max: 10, lease: "1h" });
  await jobs.ackBatch(taken.slice(0, 4));
  for (const task of taken.slice(4, 7)) await jobs.nack(task, { error: "no good" });
  await jobs.dead.purge({ limit: 1 });
  for (const task of taken.slice(7, 8)) await jobs.extend(task, "2h");
  for (let index = 0; index < SMALL_LOGS; index++) {
    const small = await mq.openLog(`small-${index}`);
    await small.append("x".repeat(index));
  }
  await events.trim(TRIMMED);
}

/** Fills a directory and closes it in order. */
export async function fillClosed(directory: string): Promise<void> {
  const mq = await open(directory, { ...OPTIONS, durability: "async" });
  await fill(mq);
  await mq.close();
}

/** Runs the body with a copy of a directory. */
export async function withCopy(original: string, body: (directory: string) => Promise<void>): Promise<void> {
  await withDirectory(async (parent) => {
    const directory = join(parent, "data");
    copyDirectory(original, directory);
    await body(directory);
  });
}

/** Changes a file, verifies its directory, and changes it back. */
export async function verifyChanged(
  directory: string,
  file: string,
  change: (bytes: Buffer) => Buffer,
): Promise<VerifyReport> {
  const path = join(directory, file);
  const good = readFileSync(path);
  writeFileSync(path, change(Buffer.from(good)));
  try {
    return await verifyDirectory(directory);
  } finally {
    writeFileSync(path, good);
  }
}

export function flip(position: number, bit = 0): (bytes: Buffer) => Buffer {
  return (bytes) => {
    bytes[position]! ^= 1 << bit;
    return bytes;
  };
}

/** The files in one folder whose names match, sorted; relative to the directory. */
export function filesIn(directory: string, folder: string, pattern: RegExp): string[] {
  return readdirSync(join(directory, folder))
    .filter((name) => pattern.test(name))
    .sort()
    .map((name) => `${folder}/${name}`);
}

/** The log file that holds what a killed process had written since its last checkpoint. */
export function currentLog(directory: string): string {
  return filesIn(directory, "wal", /^\d{16}\.wal$/).at(-1)!;
}
