import assert from "node:assert/strict";
import { test } from "node:test";
import { open } from "../../src/index.js";
import { filesBelow, withDirectory } from "../support/directories.js";
import { rejectsWith } from "../support/expect.js";
import { badInput, type Scene } from "./scene.js";

/** Calls with options that must be refused. They are wrong on purpose, so the compiler is told to look away. */
// biome-ignore lint/suspicious/noExplicitAny: what a caller without types may pass
type Wrong = any;

const CALLS: readonly [title: string, call: (scene: Scene) => unknown, message: RegExp][] = [
  ["an unknown option of openLog", ({ mq }) => mq.openLog("new", { codecs: 1 } as Wrong), /codecs.*codec/s],
  ["an unknown option of openTask", ({ mq }) => mq.openTask("new", { leese: "1s" } as Wrong), /leese.*lease/s],
  [
    "an unknown option of backoff",
    ({ mq }) => mq.openTask("new", { backoff: { start: 1 } } as Wrong),
    /backoff\.start/,
  ],
  ["an unknown option of append", ({ log }) => log.append("x", { keys: "k" } as Wrong), /keys.*key/s],
  ["an unknown option of appendBatch", ({ log }) => log.appendBatch(["x"], { key: "k" } as Wrong), /key/],
  ["an unknown option of enqueue", ({ jobs }) => jobs.enqueue("x", { delai: 5 } as Wrong), /delai.*delay/s],
  ["an unknown option of enqueueBatch", ({ jobs }) => jobs.enqueueBatch(["x"], { headers: {} } as Wrong), /headers/],
  ["an unknown option of dequeue", ({ jobs }) => jobs.dequeue({ timeout: 5 } as Wrong), /timeout/],
  ["an unknown option of nack", ({ held, jobs }) => jobs.nack(held, { reason: "x" } as Wrong), /reason/],
  ["an unknown option of ack", ({ held, jobs }) => jobs.ack(held, { durable: true } as Wrong), /durable/],
  ["an unknown option of transaction", ({ mq }) => mq.transaction(() => {}, { atomic: true } as Wrong), /atomic/],
  ["options that are no object", ({ log }) => log.append("x", "sync" as Wrong), /object of options/],
  ["a durability that is none", ({ log }) => log.append("x", { durability: "always" } as Wrong), /"sync" or "async"/],
  ["a duration without a known unit", ({ jobs }) => jobs.enqueue("x", { delay: "5 minutes" }), /delay.*"250ms"/s],
  ["a negative duration", ({ jobs }) => jobs.enqueue("x", { delay: -1 }), /delay/],
  ["a duration that is no number", ({ jobs }) => jobs.enqueue("x", { delay: Number.NaN }), /delay/],
  ["a duration without end", ({ jobs }) => jobs.dequeue({ wait: Number.POSITIVE_INFINITY }), /wait/],
  ["a delay beyond the limit", ({ jobs }) => jobs.enqueue("x", { delay: "5000d" }), /delay.*3650d/s],
  ["a moment that is no date", ({ jobs }) => jobs.enqueue("x", { at: "tomorrow" } as Wrong), /at must be a valid Date/],
  ["an invalid date", ({ jobs }) => jobs.enqueue("x", { at: new Date(Number.NaN) }), /at must be a valid Date/],
  ["both delay and at", ({ jobs }) => jobs.enqueue("x", { delay: 1, at: new Date() }), /either at or delay/],
  ["an attempt limit of zero", ({ jobs }) => jobs.enqueue("x", { maxAttempts: 0 }), /maxAttempts.*1 to 65535/s],
  ["a fractional attempt limit", ({ mq }) => mq.openTask("jobs", { maxAttempts: 1.5 }), /maxAttempts/],
  ["a lease of zero", ({ jobs }) => jobs.dequeue({ lease: 0 }), /lease/],
  ["a lease of zero for a queue", ({ mq }) => mq.openTask("jobs", { lease: 0 }), /lease/],
  ["an extension of zero", ({ jobs, held }) => jobs.extend(held, 0), /lease/],
  ["a backoff factor below one", ({ mq }) => mq.openTask("jobs", { backoff: { factor: 0.5 } }), /backoff\.factor/],
  ["a jitter above one", ({ mq }) => mq.openTask("jobs", { backoff: { jitter: 2 } }), /backoff\.jitter/],
  [
    "a backoff whose maximum is below its start",
    ({ mq }) => mq.openTask("jobs", { backoff: { initial: "10s", max: "1s" } }),
    /backoff\.max.*backoff\.initial/s,
  ],
  ["a codec that is none", ({ mq }) => mq.openLog("events", { codec: { name: "half" } } as Wrong), /codec.*encode/s],
  ["a batch of no tasks", ({ jobs }) => jobs.dequeueBatch({ max: 0 }), /max/],
  ["a batch without its size", ({ jobs }) => jobs.dequeueBatch({} as Wrong), /max/],
  ["a batch of half a task", ({ jobs }) => jobs.dequeueBatch({ max: 0.5 }), /max/],
  ["a signal that is none", ({ jobs }) => jobs.dequeue({ signal: {} } as Wrong), /signal.*AbortSignal/s],
  ["a negative dead-letter position", ({ jobs }) => jobs.dead.read({ after: -1 }), /after/],
  ["a dead-letter page of nothing", ({ jobs }) => jobs.dead.read({ limit: 0 }), /limit/],
  ["a redrive of nothing", ({ jobs }) => jobs.dead.redrive({ limit: 0 }), /limit/],
  ["a redrive by something else", ({ jobs }) => jobs.dead.redrive({ reason: "x" } as Wrong), /reason/],
  ["a purge of ids that are none", ({ jobs }) => jobs.dead.purge({ ids: "all" } as Wrong), /ids.*array of strings/s],
  ["an array size of zero", ({ log }) => firstOf(log.batches({ maxBytes: 0 })), /maxBytes/],
  ["a negative start", ({ log }) => firstOf(log.batches({ from: -1 })), /from.*"start", "end"/s],
  ["a fractional start", ({ log }) => firstOf(log.tail({ from: 1.5 })), /from.*"start", "end"/s],
  ["a start that is a word", ({ log }) => firstOf(log.tail({ from: "begin" } as Wrong)), /from.*"start", "end"/s],
  ["headers that are no object", ({ log }) => log.append("x", { headers: "a: b" } as Wrong), /headers/],
  ["a header that is no string", ({ log }) => log.append("x", { headers: { n: 1 } } as Wrong), /headers.*n/s],
  ["half a character in a header", ({ jobs }) => jobs.enqueue("x", { headers: { n: "\ud800" } }), /surrogate/],
  ["a key that is a number", ({ log }) => log.append("x", { key: 5 } as Wrong), /key/],
  ["half a character in a key", ({ log }) => log.append("x", { key: "\udfff" }), /key/],
];

for (const [title, call, message] of CALLS) {
  badInput(title, async (scene) => {
    await rejectsWith("ERR_OPTION", async () => call(scene), message);
  });
}

async function firstOf<T>(source: AsyncIterable<T>): Promise<T | undefined> {
  for await (const value of source) return value;
  return undefined;
}

const OPENINGS: readonly [title: string, options: Wrong, message: RegExp][] = [
  ["an unknown option", { dir: "x" }, /dir/],
  ["a mistyped option", { durabilty: "sync" }, /durabilty.*durability/s],
  ["a durability that is none", { durability: "always" }, /"sync" or "async"/],
  ["a sync interval of zero", { syncInterval: 0 }, /syncInterval/],
  ["a size with an unknown unit", { walFileBytes: "64 megs" }, /walFileBytes.*"64MiB"/s],
  ["a write-ahead log that is too small", { walFileBytes: "1KiB" }, /walFileBytes.*256KiB/s],
  [
    "messages that no write-ahead log file holds",
    { maxMessageBytes: "64MiB", walFileBytes: "64MiB" },
    /maxMessageBytes/,
  ],
  ["a fractional number of files", { maxOpenFiles: 9.5 }, /maxOpenFiles/],
  ["a logger that cannot log", { logger: { info() {} } }, /logger.*debug, info, warn, error/s],
  ["null", null, /object of options/],
];

for (const [title, options, message] of OPENINGS) {
  void test(`bad input: open with ${title}`, async () => {
    await withDirectory(async (directory) => {
      await rejectsWith("ERR_OPTION", async () => open(directory, options), message);
      assert.deepEqual(filesBelow(directory), [], "nothing was written");
    });
  });
}
