import assert from "node:assert/strict";
import { test } from "node:test";
import { withDirectory } from "../support/directories.js";
import { openAt } from "../support/manual.js";
import { ManualClock } from "../support/manual-clock.js";

const HOUR_MS = 3_600_000;
const YEAR_MS = 365 * 24 * HOUR_MS;

void test("case 21: a clock that jumps a year ahead fires a schedule once, and back again not at all", async () => {
  await withDirectory(async (directory) => {
    const clock = new ManualClock();
    const mq = await openAt(clock, directory);
    const jobs = await mq.openTask("jobs");
    await jobs.schedule("hourly", { cron: "0 * * * *" }, "x");
    await clock.pass(HOUR_MS);
    assert.equal((await jobs.stats()).ready, 1);
    clock.stepWall(YEAR_MS);
    const fired = clock.timersFired;
    await clock.pass(10_000);
    assert.equal((await jobs.stats()).ready, 2, "one task for all that the clock jumped over");
    assert.ok(clock.timersFired - fired < 100, `${clock.timersFired - fired} timers in ten seconds: a busy loop`);
    clock.stepWall(-YEAR_MS);
    await clock.pass(3 * HOUR_MS);
    assert.equal((await jobs.stats()).ready, 2, "no due time comes a second time");
    const [info] = await jobs.schedules();
    assert.ok(info !== undefined && info.nextAt > clock.wallMs() + YEAR_MS - 5 * HOUR_MS);
    await jobs.unschedule("hourly");
    await jobs.schedule("hourly", { cron: "0 * * * *" }, "x");
    await clock.pass(HOUR_MS);
    assert.equal((await jobs.stats()).ready, 3, "made anew, it goes by the clock as it is now");
    await mq.close();
  });
});

void test("case 21: due times by the wall clock and delays, spilled, follow their own clocks", async () => {
  await withDirectory(async (directory) => {
    const clock = new ManualClock();
    let mq = await openAt(clock, directory, { durability: "async" });
    let jobs = await mq.openTask("jobs", { lease: "24h" });
    const payloads = Array.from({ length: 4000 }, () => "delayed");
    for (let batch = 0; batch < 10; batch++) await jobs.enqueueBatch(payloads, { delay: `${batch + 1}h` });
    await clock.pass(HOUR_MS / 2);
    clock.stepWall(YEAR_MS);
    await clock.pass(1000);
    assert.equal((await jobs.stats()).ready, 0, "the wall clock does not bring them forward");
    await mq.close();
    clock.stepWall(3 * HOUR_MS);
    mq = await openAt(clock, directory, { durability: "async" });
    jobs = await mq.openTask("jobs");
    await clock.pass(1000);
    const { ready, scheduled } = await jobs.stats();
    assert.deepEqual([ready, scheduled], [3 * 4000, 7 * 4000], "half an hour open and three hours closed");
    await mq.close();
  });
});
