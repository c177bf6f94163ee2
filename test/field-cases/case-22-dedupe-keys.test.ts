import assert from "node:assert/strict";
import { test } from "node:test";
import type { Task } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";
import { openAt } from "../support/manual.js";
import { ManualClock } from "../support/manual-clock.js";
import { takeAll } from "../support/state.js";

void test("case 22: the same key twice is one task; once its window is over, another", async () => {
  await withDirectory(async (directory) => {
    const clock = new ManualClock();
    const mq = await openAt(clock, directory);
    const jobs = await mq.openTask("jobs", { dedupe: { window: "1m" } });
    const first = await jobs.enqueue("first", { dedupeKey: "k" });
    const retry = await jobs.enqueue("second", { dedupeKey: "k" });
    assert.deepEqual([retry.id, retry.created], [first.id, false]);
    const task = (await jobs.dequeue()) as Task;
    assert.equal(task.payload.toString(), "first", "the first payload is kept");
    await jobs.ack(task);
    // The wall clock means nothing to the window.
    clock.stepWall(365 * 24 * 3_600_000);
    assert.equal((await jobs.enqueue("third", { dedupeKey: "k" })).created, false);
    await clock.pass(60_000);
    assert.equal((await jobs.enqueue("fourth", { dedupeKey: "k" })).created, true);
    await mq.close();
  });
});

void test("case 22: ten clients race with one key: one is created, nine are told, one is delivered", async () => {
  await withDirectory(async (directory) => {
    const mq = await openAt(new ManualClock(), directory);
    const jobs = await mq.openTask("jobs");
    const durabilities = ["sync", "async"] as const;
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, index) => {
        return jobs.enqueue("x", { dedupeKey: "k", durability: durabilities[index % 2] });
      }),
    );
    assert.equal(answers.filter(({ created }) => created).length, 1);
    assert.equal(new Set(answers.map(({ id }) => id)).size, 1);
    assert.equal((await takeAll(jobs)).length, 1);
    await mq.close();
  });
});

void test("case 22: a batch of five with one repeat inside stores four, and answers in order", async () => {
  await withDirectory(async (directory) => {
    const mq = await openAt(new ManualClock(), directory);
    const jobs = await mq.openTask("jobs");
    const answers = await jobs.enqueueBatch(["1", "2", "3", "4", "5"], { dedupeKeys: ["a", "b", "a", "c", "d"] });
    assert.deepEqual(
      answers.map(({ created }) => created),
      [true, true, false, true, true],
    );
    assert.equal(answers[2]?.id, answers[0]?.id);
    assert.equal((await jobs.stats()).ready, 4);
    await mq.close();
  });
});
