/** What the end of a turn of the event loop brings: once, and whoever waits is served when there is something for him. */

import assert from "node:assert/strict";
import fs from "node:fs";
import { test } from "node:test";
import { AT_TURN_END, type TakesTurns } from "../src/api/put-each.js";
import type { MessageQueue } from "../src/index.js";
import { open } from "../src/index.js";
import { makeDirectory, removeDirectory } from "./support/directories.js";

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
