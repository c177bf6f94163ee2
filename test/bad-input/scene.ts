/**
 * A directory with something in every place: a trimmed log, and tasks in every state. Each test does something that
 * must be refused; afterwards, and after a reopen, all of it must be as it was.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type LogQueue,
  type MessageQueue,
  type OpenOptions,
  open,
  type Task,
  type TaskQueue,
} from "../../src/index.js";
import { withDirectory } from "../support/directories.js";
import { observe } from "../support/state.js";

export interface Scene {
  readonly mq: MessageQueue;
  /** Offsets 2 to 9 are there, 0 and 1 are trimmed away. */
  readonly log: LogQueue;
  readonly jobs: TaskQueue;
  /** A task of `jobs` under an hour's lease. */
  readonly held: Task;
  /** A delivery that was given back since. */
  readonly stale: Task;
  /** Another queue, with one task under an hour's lease. */
  readonly other: TaskQueue;
  readonly otherHeld: Task;
}

export function badInput(title: string, body: (scene: Scene) => Promise<void>, options: OpenOptions = {}): void {
  void test(`bad input: ${title}`, async () => {
    await withDirectory(async (directory) => {
      const mq = await open(directory, options);
      try {
        const scene = await set(mq);
        const before = await observe(mq);
        await body(scene);
        assert.deepEqual(await observe(mq), before, "nothing has changed");
        await mq.close();
        const again = await open(directory, options);
        try {
          assert.deepEqual(await observe(again), before, "nor is it different after a reopen");
          const jobs = await again.openTask("jobs");
          await jobs.ack(scene.held);
          assert.deepEqual(
            (await jobs.dequeueBatch({ max: 10 })).map(({ payload }) => payload.toString()),
            ["ready"],
          );
          assert.equal(await (await again.openLog("events")).append("goes on"), 10);
        } finally {
          await again.close();
        }
      } finally {
        await mq.close();
      }
    });
  });
}

async function set(mq: MessageQueue): Promise<Scene> {
  const log = await mq.openLog("events");
  await log.appendBatch(Array.from({ length: 10 }, (_, index) => `record ${index}`));
  await log.trim(2);
  const jobs = await mq.openTask("jobs", { lease: "1h" });
  await jobs.enqueue("dead", { maxAttempts: 1 });
  await jobs.nack((await jobs.dequeue()) as Task, { error: "no use" });
  await jobs.enqueueBatch(["stale", "held"]);
  const [stale, held] = (await jobs.dequeueBatch({ max: 2 })) as [Task, Task];
  await jobs.nack(stale, { delay: "1h" });
  await jobs.enqueue("later", { delay: "1d" });
  await jobs.enqueue("ready");
  const other = await mq.openTask("other", { lease: "1h" });
  await other.enqueue("held");
  return { mq, log, jobs, held, stale, other, otherHeld: (await other.dequeue()) as Task };
}
