import assert from "node:assert/strict";
import { test } from "node:test";
import type { MessageQueue, Task } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";
import { openAt } from "../support/manual.js";
import { ManualClock } from "../support/manual-clock.js";
import { recordsOf, takeAll } from "../support/state.js";

const HOUR_MS = 3_600_000;
const YEAR_MS = 365 * 24 * HOUR_MS;
const JUMPS_MS = [-HOUR_MS, HOUR_MS, -10 * YEAR_MS, 10 * YEAR_MS];

async function texts(mq: MessageQueue): Promise<string[]> {
  const tasks = await takeAll(await mq.openTask("jobs"), { lease: "24h" });
  return tasks.map((task) => task.payload.toString());
}

for (const jumpMs of JUMPS_MS) {
  void test(`case 21: a jump of ${jumpMs / HOUR_MS} h neither ends nor prolongs what is relative`, async () => {
    await withDirectory(async (directory) => {
      const clock = new ManualClock();
      const mq = await openAt(clock, directory);
      const jobs = await mq.openTask("jobs", { backoff: { initial: "60s", jitter: 0 } });
      await jobs.enqueueBatch(["leased", "retried"]);
      await jobs.dequeue({ lease: "60s" });
      await jobs.nack((await jobs.dequeue()) as Task);
      await jobs.enqueue("delayed", { delay: "60s" });
      await clock.pass(20_000);
      clock.stepWall(jumpMs);
      const fired = clock.timersFired;
      await clock.pass(39_000);
      assert.deepEqual(await texts(mq), [], "nothing is early");
      await clock.pass(1_000);
      assert.ok(clock.timersFired - fired < 2_000, `${clock.timersFired - fired} timers in 40 s: a busy loop`);
      assert.deepEqual((await texts(mq)).sort(), ["delayed", "leased", "retried"], "nothing is late");
      await clock.pass(120_000);
      assert.deepEqual(await texts(mq), [], "and each comes once");
      await mq.close();
    });
  });

  void test(`case 21: what is due at a time of day follows a jump of ${jumpMs / HOUR_MS} h`, async () => {
    await withDirectory(async (directory) => {
      const clock = new ManualClock();
      const mq = await openAt(clock, directory);
      const jobs = await mq.openTask("jobs");
      const dueMs = clock.wallMs() + 30 * 60_000;
      await jobs.enqueue("at", { at: new Date(dueMs) });
      await clock.pass(60_000);
      clock.stepWall(jumpMs);
      if (jumpMs < 0) {
        await clock.pass(60_000);
        assert.deepEqual(await texts(mq), [], "the wall clock is not there yet");
        assert.ok(((await jobs.stats()).nextDueIn ?? 0) > 29 * 60_000 + HOUR_MS - 120_000);
        clock.stepWall(dueMs - clock.wallMs());
      }
      await clock.pass(1_000);
      assert.deepEqual(await texts(mq), ["at"]);
      await clock.pass(1_000);
      assert.deepEqual(await texts(mq), [], "once");
      await mq.close();
    });
  });

  void test(`case 21: timestamps in a log never fall, over a jump of ${jumpMs / HOUR_MS} h and a reopen`, async () => {
    await withDirectory(async (directory) => {
      const clock = new ManualClock();
      let mq = await openAt(clock, directory);
      let log = await mq.openLog("events");
      await log.append("before");
      clock.stepWall(jumpMs);
      await log.appendBatch(["after", "after"]);
      await clock.pass(1_000);
      await mq.close();
      mq = await openAt(clock, directory);
      log = await mq.openLog("events");
      await log.append("reopened");
      clock.stepWall(-jumpMs);
      await log.append("back");
      const stamps = (await recordsOf(log)).map(({ timestamp }) => timestamp);
      assert.deepEqual(
        stamps,
        [...stamps].sort((a, b) => a - b),
      );
      await mq.close();
    });
  });
}

void test("case 21: nothing that is due is lost when the clock was set back before a reopen", async () => {
  await withDirectory(async (directory) => {
    const clock = new ManualClock();
    let mq = await openAt(clock, directory);
    const jobs = await mq.openTask("jobs", { backoff: { initial: 0, jitter: 0 } });
    await jobs.enqueueBatch(["leased", "retried", "ready"]);
    await jobs.dequeue({ lease: "60s" });
    await jobs.nack((await jobs.dequeue()) as Task, { delay: "60s" });
    await jobs.enqueue("delayed", { delay: "60s" });
    await mq.close();
    clock.stepWall(-HOUR_MS);
    mq = await openAt(clock, directory);
    await clock.pass(60_000);
    assert.deepEqual((await texts(mq)).sort(), ["delayed", "leased", "ready", "retried"]);
    await mq.close();
  });
});
