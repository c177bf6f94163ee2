import assert from "node:assert/strict";
import { test } from "node:test";
import { open, type Task } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";
import { rejectsWith } from "../support/expect.js";
import { openAt } from "../support/manual.js";
import { ManualClock } from "../support/manual-clock.js";
import { countsOf } from "../support/state.js";
import { keepsTheLeaseOfTheSlow, LEASE_MS } from "./slow-handler.js";

void test("case 18: a worker keeps the lease of a handler that takes 20 leases, and the others go on", async () => {
  await withDirectory(async (directory) => {
    const mq = await open(directory);
    const jobs = await mq.openTask("jobs", { lease: LEASE_MS, maxAttempts: 1 });
    await keepsTheLeaseOfTheSlow(jobs);
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
