import assert from "node:assert/strict";
import { test } from "node:test";
import { withDirectory } from "../support/directories.js";
import { openAt } from "../support/manual.js";
import { ManualClock } from "../support/manual-clock.js";

void test("case 24: without order by key, a task in backoff holds up none of those behind it", async () => {
  await withDirectory(async (directory) => {
    const clock = new ManualClock();
    const mq = await openAt(clock, directory);
    const jobs = await mq.openTask("jobs", { maxAttempts: 3, backoff: { initial: "60s", jitter: 0 } });
    await jobs.enqueueBatch(
      Array.from({ length: 300 }, (_, index) => ({ payload: `${index}`, key: `customer ${index % 3}` })),
    );
    const firstSeen: number[] = [];
    for (let delivery = 0; delivery < 300; delivery++) {
      // Time stands still: whatever is handed out now did not wait for anything.
      const task = await jobs.dequeue();
      assert.ok(task !== undefined, `delivery ${delivery}`);
      firstSeen.push(Number(task.payload.toString()));
      if (firstSeen.length % 3 === 1) await jobs.nack(task);
      else await jobs.ack(task);
    }
    assert.deepEqual(
      firstSeen,
      Array.from({ length: 300 }, (_, index) => index),
    );
    assert.equal((await jobs.stats()).scheduled, 100);
    await clock.pass(60_000);
    await jobs.enqueue("new");
    const retried = await jobs.dequeueBatch({ max: 1000 });
    assert.equal(retried.length, 101);
    await mq.close();
  });
});
