/** What the end of a turn of the event loop brings: once, and whoever waits is served when there is something for him. */

import assert from "node:assert/strict";
import fs from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { AT_TURN_END, type TakesTurns } from "../src/api/put-each.js";
import type { MessageQueue, TaskQueue } from "../src/index.js";
import { open } from "../src/index.js";
import { filesBelow, makeDirectory, removeDirectory, withDirectory } from "./support/directories.js";
import { openAt } from "./support/manual.js";
import { ManualClock } from "./support/manual-clock.js";

const turn = () => new Promise(setImmediate);

test("a poll gets a task that is put in in the turn in which a sync of others ends", async (t) => {
  const directory = makeDirectory();
  const mq = await open(directory, { durability: "sync" });
  const tasks = await mq.openTask("tasks");
  const log = await mq.openLog("log");
  const syncs: (() => void)[] = [];
  const held = t.mock.method(fs, "fdatasync", (_: number, done: (error: Error | null) => void) => {
    syncs.push(() => done(null));
  });
  t.after(async () => {
    held.mock.restore();
    for (const end of syncs) end();
    await mq.close();
    removeDirectory(directory);
  });
  let taken: string | undefined;
  const polled = tasks.dequeue({ wait: "1h" }).then(
    (task) => {
      taken = `${task?.payload}`;
    },
    () => {}, // closed
  );
  const appended = log.append("a record");
  while (syncs.length === 0) await turn();
  const enqueued = tasks.enqueue("a task");
  syncs.shift()!();
  for (let turns = 0; turns < 100 && taken === undefined; turns++) {
    await turn();
    for (const end of syncs.splice(0)) end();
  }
  assert.equal(taken, "a task");
  await Promise.all([polled, appended, enqueued]);
});

test("a turn at whose end more is put in ends once", async (t) => {
  const directory = makeDirectory();
  const mq: MessageQueue & Partial<TakesTurns> = await open(directory, { durability: "async" });
  const log = await mq.openLog("log");
  t.after(async () => {
    await mq.close();
    removeDirectory(directory);
  });
  const later = t.mock.method(globalThis, "setImmediate");
  const appended = new Promise<number>((resolve) => {
    mq[AT_TURN_END]!(() => resolve(log.append("a record")));
  });
  assert.equal(await appended, 0);
  const [first, ...others] = later.mock.calls.map((call) => call.arguments[0]);
  assert.ok(first !== undefined && !others.includes(first));
});

const HOUR_MS = 3_600_000;

/**
 * Polls a queue of which more scheduled tasks are due than are kept in memory until all of those in memory are taken. What says which
 * ones come next is being read then: the read is held, and who has polled stands in line. It goes on, or fails, after `meanwhile`.
 * @returns how many tasks the poll is told of; undefined: it is not told
 */
async function pollBesideRead(
  t: TestContext,
  { meanwhile, fails }: { meanwhile: (jobs: TaskQueue) => Promise<unknown>; fails: boolean },
): Promise<number | undefined> {
  return withDirectory(async (directory) => {
    const clock = new ManualClock();
    let mq = await openAt(clock, directory, { durability: "async" });
    const payloads = Array.from({ length: 4000 }, () => "delayed");
    let jobs = await mq.openTask("jobs");
    for (let batch = 0; batch < 10; batch++) await jobs.enqueueBatch(payloads, { delay: "1h" });
    await mq.close();
    mq = await openAt(clock, directory, { durability: "async" });
    jobs = await mq.openTask("jobs");
    const { read } = fs;
    const blockFiles = filesBelow(directory).filter((path) => path.includes("/later/"));
    const inodes = new Set(blockFiles.map((path) => fs.statSync(join(directory, path)).ino));
    const reads: (() => void)[] = [];
    let underWay = 0;
    const held = t.mock.method(fs, "read", (...args: [number, ...unknown[]]) => {
      const done = args.pop() as (...result: unknown[]) => void;
      const go = () => {
        underWay++;
        const ended = (...result: unknown[]) => {
          underWay--;
          done(...result);
        };
        Reflect.apply(read, fs, [...args, ended]);
      };
      if (!inodes.has(fs.fstatSync(args[0]).ino)) go();
      else reads.push(() => (fails ? done(new Error("no disk")) : go()));
    });
    try {
      await clock.pass(HOUR_MS + 1);
      let told: number | undefined = 0;
      for (let taken = 0; told !== undefined && taken < 40_000; taken += told ?? 0) {
        told = undefined;
        void jobs.dequeueBatch({ max: 4000, autoAck: true }).then(
          (tasks) => {
            told = tasks.length;
          },
          () => {}, // closed
        );
        // Until nothing is under way but the read that is held.
        for (let quiet = 0; told === undefined && quiet < 50; quiet++) {
          await turn();
          if (underWay > 0 || reads.length === 0) quiet = 0;
        }
      }
      assert.equal(told, undefined, "who has polled waits for the read");
      await meanwhile(jobs);
      for (let waits = 0; waits < 2000 && told === undefined; waits++) {
        for (const go of reads.splice(0)) go();
        await setTimeout(1);
      }
      return told;
    } finally {
      held.mock.restore();
      for (const go of reads.splice(0)) go();
      await mq.close();
    }
  });
}

test("who polls for tasks that are being read back is told when they are purged meanwhile", async (t) => {
  assert.equal(await pollBesideRead(t, { meanwhile: (jobs) => jobs.purge(), fails: false }), 0);
});

test("who polls for tasks that are being read back is told that they cannot be read, with nothing else going on", async (t) => {
  assert.equal(await pollBesideRead(t, { meanwhile: async () => {}, fails: true }), 0);
});

test("a task that comes back while nobody waits for it costs no turn more", async (t) => {
  const directory = makeDirectory();
  const mq = await open(directory, { durability: "async" });
  t.after(async () => {
    await mq.close();
    removeDirectory(directory);
  });
  const tasks = await mq.openTask("tasks");
  await tasks.enqueue("a task");
  const task = await tasks.dequeue();
  const later = t.mock.method(globalThis, "setImmediate");
  await tasks.nack(task!, { delay: 0 });
  assert.equal(later.mock.callCount(), 1);
});
