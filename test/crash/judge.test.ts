/** The judge is only worth its verdicts if it finds what is wrong: a directory in order, and histories that it is not. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type MessageQueue, open, type Task } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";
import { type Entry, payloadOf } from "./journal.js";
import { Judge } from "./judge.js";

const ids = { log: [], tasks: [], acks: [] } as const;

/** What happened: two records, a transaction of record and task, a task that was acked, and one more. */
const HISTORY: readonly Entry[] = [
  { kind: "intent", op: "0.p.0", ...ids, log: ["0.p.0.r0", "0.p.0.r1"] },
  { kind: "done", op: "0.p.0", offsets: [0, 1] },
  { kind: "intent", op: "0.p.1", ...ids, log: ["0.p.1.r0"], tasks: ["0.p.1.t0"] },
  { kind: "done", op: "0.p.1", offsets: [] },
  { kind: "intent", op: "0.p.2", ...ids, tasks: ["0.p.2.t0"] },
  { kind: "done", op: "0.p.2", offsets: [] },
  { kind: "took", task: "0.p.1.t0", attempt: 1 },
  { kind: "intent", op: "0.c.0", ...ids, acks: ["0.p.1.t0"] },
  { kind: "done", op: "0.c.0", offsets: [] },
];

async function judged(history: readonly Entry[]): Promise<void> {
  await withDirectory(async (directory) => {
    const mq = await open(directory);
    try {
      await happen(mq);
      const judge = new Judge(history);
      await judge.look(mq);
      await judge.drain(mq);
    } finally {
      await mq.close();
    }
  });
}

async function happen(mq: MessageQueue): Promise<void> {
  const log = await mq.openLog("events");
  const jobs = await mq.openTask("jobs");
  await log.appendBatch(["0.p.0.r0", "0.p.0.r1"].map(payloadOf));
  await mq.transaction((tx) => {
    tx.append(log, payloadOf("0.p.1.r0"));
    tx.enqueue(jobs, payloadOf("0.p.1.t0"));
  });
  await jobs.enqueue(payloadOf("0.p.2.t0"));
  await jobs.ack((await jobs.dequeue()) as Task);
}

void test("judge: a true history passes", async () => {
  await judged(HISTORY);
  const unanswered = HISTORY.filter(({ kind }) => kind !== "done");
  await judged(unanswered);
});

const LIES: readonly [title: string, history: readonly Entry[], finds: RegExp][] = [
  [
    "a lost record",
    [
      ...HISTORY,
      { kind: "intent", op: "0.p.3", ...ids, log: ["0.p.3.r0"] },
      { kind: "done", op: "0.p.3", offsets: [3] },
    ],
    /records of 0\.p\.3 are lost/,
  ],
  [
    "a lost task",
    [
      ...HISTORY,
      { kind: "intent", op: "0.p.3", ...ids, tasks: ["0.p.3.t0"] },
      { kind: "done", op: "0.p.3", offsets: [] },
    ],
    /tasks; there should be/,
  ],
  ["a record that nobody sent", HISTORY.filter((entry) => !("op" in entry) || entry.op !== "0.p.0"), /never appended/],
  [
    "a record at another offset",
    HISTORY.map((entry) => (entry.kind === "done" && entry.op === "0.p.0" ? { ...entry, offsets: [1, 0] } : entry)),
    /record 0 of 0\.p\.0/,
  ],
  [
    "half a batch",
    HISTORY.map((entry) =>
      entry.kind === "intent" && entry.op === "0.p.0" ? { ...entry, log: [...entry.log, "0.p.0.r2"] } : entry,
    ).filter((entry) => entry.kind !== "done" || entry.op !== "0.p.0"),
    /in part/,
  ],
  [
    "half a transaction",
    HISTORY.map((entry) =>
      entry.kind === "intent" && entry.op === "0.p.2" ? { ...entry, log: ["0.p.2.r0"] } : entry,
    ).filter((entry) => entry.kind !== "done" || entry.op !== "0.p.2"),
    /1 of 2 parts of 0\.p\.2/,
  ],
  [
    "an acked task that is still there",
    [
      ...HISTORY,
      { kind: "intent", op: "0.c.1", ...ids, acks: ["0.p.2.t0"] },
      { kind: "done", op: "0.c.1", offsets: [] },
    ],
    /there should be from 0 to 0/,
  ],
  [
    "an acked task that was delivered again",
    [...HISTORY, { kind: "took", task: "0.p.1.t0", attempt: 2 }],
    /acked and then delivered again/,
  ],
  ["an attempt counted twice", [...HISTORY, ...took("0.p.2.t0", 1, 1)], /attempt 1 after attempt 1/],
  ["an attempt that was not counted", [...HISTORY, ...took("0.p.2.t0", 1)], /attempt 1 was counted before/],
  [
    "an ack without the record that belongs to it",
    [
      ...HISTORY.filter((entry) => !("op" in entry) || entry.op !== "0.c.0"),
      { kind: "intent", op: "0.c.0", ...ids, acks: ["0.p.1.t0"], log: ["0.c.0.r0"] },
    ],
    /acked 0\.p\.1\.t0, but did not append/,
  ],
];

for (const [title, history, finds] of LIES) {
  void test(`judge: ${title} is found`, async () => {
    await assert.rejects(judged(history), finds);
  });
}

function took(task: string, ...attempts: number[]): Entry[] {
  return attempts.map((attempt) => ({ kind: "took", task, attempt }));
}
