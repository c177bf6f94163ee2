import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { open, type Task } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";
import { eventually, rejectsWith } from "../support/expect.js";
import { openAt } from "../support/manual.js";
import { ManualClock } from "../support/manual-clock.js";
import { countsOf } from "../support/state.js";

const LEASE_MS = 300;

void test("case 18: a worker keeps the lease of a handler that takes 20 leases, and the others go on", async () => {
  await withDirectory(async (directory) => {
    const mq = await open(directory);
    const jobs = await mq.openTask("jobs", { lease: LEASE_MS, maxAttempts: 1 });
    await jobs.enqueueBatch(Array.from({ length: 100 }, (_, index) => `${index}`));
    const delivered: string[] = [];
    let othersDone = 0;
    let doneWhenSlowEnded = 0;
    const worker = jobs.work(
      async ({ payload, attempt }, { signal }) => {
        delivered.push(`${payload} ${attempt}`);
        if (payload.toString() === "0") {
          await sleep(20 * LEASE_MS, undefined, { signal });
          doneWhenSlowEnded = othersDone;
        } else {
          othersDone++;
        }
      },
      { concurrency: 10 },
    );
    let completed = 0;
    worker.on("completed", () => completed++);
    await eventually("all are done", () => completed === 100);
    await worker.close();
    assert.equal(new Set(delivered).size, 100);
    assert.equal(delivered.length, 100, "each is delivered once");
    assert.equal(doneWhenSlowEnded, 99, "nobody waited for the slow one");
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 0, leased: 0, dead: 0 });
    await mq.close();
  });
});

void test("case 18: without renewal the overdue task alone is delivered again", async () => {
  await withDirectory(async (directory) => {
    const clock = new ManualClock();
    const mq = await openAt(clock, directory);
    const jobs = await mq.openTask("jobs", { lease: "30s" });
    await jobs.enqueueBatch(Array.from({ length: 10 }, (_, index) => `${index}`));
    const slow = (await jobs.dequeue()) as Task;
    await clock.pass(20_000);
    const others = await jobs.dequeueBatch({ max: 9 });
    const again = jobs.dequeue({ wait: "1m" });
    await clock.pass(10_001);
    const redelivered = (await again) as Task;
    assert.deepEqual([redelivered.id, redelivered.attempt], [slow.id, 2]);
    await rejectsWith("ERR_STALE_LEASE", jobs.ack(slow));
    await jobs.ackBatch([...others, redelivered]);
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 0, leased: 0, dead: 0 });
    await mq.close();
  });
});
