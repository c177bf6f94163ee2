import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { open, Retry } from "../../src/index.js";
import { startChild } from "../support/child.js";
import { withDirectory } from "../support/directories.js";
import { eventually, rejectsWith } from "../support/expect.js";
import { countsOf, takeAll } from "../support/state.js";

for (const how of ["close", "forget"] as const) {
  void test(`case 25: no timer, lock or file keeps a process alive (${how})`, async () => {
    await withDirectory(async (directory) => {
      const child = startChild(import.meta.url, "./closing.js", { args: [directory, how] });
      const { code, signal, stderr } = await child.exited;
      // Node says 13 when a program has ended with a promise that its top level awaits.
      assert.deepEqual({ code, signal }, { code: 0, signal: null }, stderr);
      if (how === "close") assert.equal(stderr, "poll ERR_CLOSED, tail true");
      const mq = await open(directory);
      const { recovery } = await mq.stats();
      assert.equal(recovery.recovered, how === "forget", "a close in order leaves nothing to recover");
      assert.equal((await (await mq.openLog("events")).stats()).count, 1);
      const counts = countsOf(await (await mq.openTask("jobs")).stats());
      assert.deepEqual(counts, { ready: 0, scheduled: 1, leased: 2, dead: 0 });
      await mq.close();
    });
  });
}

void test("case 25: close stops taking work at once, and what was accepted is recorded", async () => {
  await withDirectory(async (directory) => {
    const mq = await open(directory);
    const jobs = await mq.openTask("jobs", { lease: "1h", maxAttempts: 1 });
    await jobs.enqueueBatch(["succeeds", "fails", "reschedules", "is slow"]);
    const [succeeds, fails, reschedules, slow] = await jobs.dequeueBatch({ max: 4 });
    const outcomes = [
      jobs.ack(succeeds as { token: string }),
      jobs.nack(fails as { token: string }, { error: "no" }),
      mq.transaction((tx) => {
        tx.ack(jobs, reschedules as { token: string });
        tx.enqueue(jobs, "rescheduled", { delay: "1h" });
      }),
    ];
    const closing = mq.close();
    await rejectsWith("ERR_CLOSED", jobs.dequeue());
    await rejectsWith("ERR_CLOSED", jobs.ack(slow as { token: string }));
    await Promise.all(outcomes);
    await closing;
    const again = await open(directory);
    const queue = await again.openTask("jobs");
    assert.deepEqual(countsOf(await queue.stats()), { ready: 0, scheduled: 1, leased: 1, dead: 1 });
    await queue.ack(slow as { token: string });
    await again.close();
  });
});

const KINDS = ["succeeds", "fails", "reschedules", "ignores", "heeds"];
const TASKS = [...KINDS, ...KINDS];

void test("case 25: a worker closed by SIGTERM records outcomes, gives back the rest, and its process ends", async () => {
  await withDirectory(async (directory) => {
    const mq = await open(directory);
    const jobs = await mq.openTask("jobs", { lease: "1h", maxAttempts: 2, backoff: { initial: "1h" } });
    await jobs.enqueueBatch([...TASKS, "waits"]);
    await mq.close();
    const child = startChild(import.meta.url, "./working.js", { args: [directory, `${TASKS.length}`] });
    await eventually("all handlers run", () => child.messages.length === TASKS.length);
    child.process.kill("SIGTERM");
    const { code, signal, stderr } = await child.exited;
    assert.deepEqual({ code, signal }, { code: 0, signal: null }, stderr);
    const again = await open(directory);
    const queue = await again.openTask("jobs");
    assert.equal((await again.stats()).recovery.recovered, false);
    const counts = countsOf(await queue.stats());
    assert.deepEqual(counts, { ready: 5, scheduled: 4, leased: 0, dead: 0 }, "what was not done is there at once");
    assert.deepEqual(
      (await takeAll(queue)).map(({ payload, attempt }) => `${payload} ${attempt}`),
      ["ignores 1", "heeds 1", "ignores 1", "heeds 1", "waits 1"],
      "in their old order, the attempt not counted",
    );
    await again.close();
  });
});

void test("case 25: a worker whose handlers reschedule for ever can be closed", async () => {
  await withDirectory(async (directory) => {
    const mq = await open(directory);
    const jobs = await mq.openTask("jobs", { maxAttempts: Number.POSITIVE_INFINITY });
    await jobs.enqueueBatch(["x", "y"]);
    let runs = 0;
    const worker = jobs.work(
      () => {
        runs++;
        throw new Retry("again", { delay: 0 });
      },
      { concurrency: 2 },
    );
    await eventually("it goes round", () => runs > 20);
    await worker.close();
    const then = runs;
    const counts = countsOf(await jobs.stats());
    assert.deepEqual(counts, { ready: 2, scheduled: 0, leased: 0, dead: 0 });
    assert.equal(runs, then);
    await mq.close();
  });
});

void test("case 25: `await using` closes a worker before its queue", async () => {
  await withDirectory(async (directory) => {
    {
      await using mq = await open(directory);
      const jobs = await mq.openTask("jobs", { lease: "1h" });
      await jobs.enqueue("x");
      let started = false;
      await using worker = jobs.work(async () => {
        started = true;
        await sleep(100);
      });
      await eventually("it runs", () => started);
      assert.equal(worker.running, 1);
    }
    const again = await open(directory);
    const counts = countsOf(await (await again.openTask("jobs")).stats());
    assert.deepEqual(counts, { ready: 0, scheduled: 0, leased: 0, dead: 0 });
    await again.close();
  });
});

void test("case 25: `await using` closes", async () => {
  await withDirectory(async (directory) => {
    {
      await using mq = await open(directory);
      await (await mq.openLog("events")).append("x");
    }
    const again = await open(directory);
    assert.equal((await again.stats()).recovery.recovered, false);
    await again.close();
  });
});
