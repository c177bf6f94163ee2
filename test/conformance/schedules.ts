import assert from "node:assert/strict";
import type { ScheduleSpec } from "../../src/index.js";
import { message } from "../../src/index.js";
import { eventually, rejectsWith } from "../support/expect.js";
import { takeAll } from "../support/state.js";
import type { Check } from "./suite.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

export function scheduleConformance(check: Check): void {
  check("schedule: enqueues by itself, again and again", async ({ mq, pass }) => {
    const jobs = await mq.openTask("jobs");
    await jobs.schedule("tick", { every: 100, limit: 3 }, message("tick", { key: "k", headers: { by: "clock" } }), {
      maxAttempts: 1,
    });
    const seen: string[] = [];
    await eventually(
      "three ticks",
      async () => {
        for (const task of await takeAll(jobs)) {
          assert.deepEqual(task.key, Buffer.from("k"));
          assert.deepEqual({ ...task.headers }, { by: "clock" });
          seen.push(task.payload.toString());
          await jobs.ack(task);
        }
        return seen.length >= 3;
      },
      pass,
    );
    await pass(500);
    assert.equal((await jobs.stats()).ready, 0, "the limit ends it");
    assert.deepEqual(await jobs.schedules(), []);
  });

  check(
    "schedule: a cron expression fires at its times, in its zone",
    async ({ mq, pass, wallMs }) => {
      const jobs = await mq.openTask("jobs");
      // The clock stands at the beginning of 2026; Berlin is an hour ahead.
      await jobs.schedule("daily", { cron: "0 3 * * *", timeZone: "Europe/Berlin" }, "x");
      const [info] = await jobs.schedules();
      assert.equal(info?.nextAt, Date.UTC(2026, 0, 1, 2));
      assert.equal(info?.lastAt, undefined);
      await pass(info.nextAt - wallMs() - 1);
      assert.equal((await jobs.stats()).ready, 0, "never early");
      await pass(1);
      assert.equal((await jobs.stats()).ready, 1, "never late");
      await pass(24 * HOUR);
      assert.equal((await jobs.stats()).ready, 2);
      const [after] = await jobs.schedules();
      assert.deepEqual(
        [after?.name, after?.fired, after?.lastAt, after?.nextAt],
        ["daily", 2, Date.UTC(2026, 0, 2, 2), Date.UTC(2026, 0, 3, 2)],
      );
    },
    { exactTime: true },
  );

  check(
    "schedule: one firing for each due time, over restarts",
    async ({ mq, reopen, pass }) => {
      let jobs = await mq.openTask("jobs");
      await jobs.schedule("minutely", { cron: "* * * * *" }, "x");
      for (let restart = 0; restart < 5; restart++) {
        await pass(MINUTE / 2);
        jobs = await (await reopen()).openTask("jobs");
        await pass(MINUTE / 2);
      }
      assert.equal((await jobs.stats()).ready, 5);
      assert.equal((await jobs.schedules())[0]?.fired, 5);
    },
    { exactTime: true },
  );

  check(
    "schedule: what was missed is dealt with as its rule says",
    async ({ mq, reopen, pass }) => {
      const rules = ["once", "skip", "all"] as const;
      for (const missed of rules) {
        const jobs = await mq.openTask(missed);
        await jobs.schedule("hourly", { cron: "0 * * * *", missed }, "x");
      }
      await pass(10 * MINUTE);
      // Nobody has opened these queues for a while.
      const later = await reopen();
      await pass(5 * HOUR);
      const ready: number[] = [];
      for (const missed of rules) {
        const jobs = await later.openTask(missed);
        await pass(10);
        ready.push((await jobs.stats()).ready);
      }
      assert.deepEqual(ready, [1, 0, 5]);
      await pass(HOUR);
      for (const [index, missed] of rules.entries()) {
        const jobs = await later.openTask(missed);
        assert.equal((await jobs.stats()).ready, (ready[index] ?? 0) + 1, `${missed} goes on`);
      }
    },
    { exactTime: true },
  );

  check(
    "schedule: made again it goes on, made otherwise it begins anew",
    async ({ mq, pass }) => {
      const jobs = await mq.openTask("jobs");
      await jobs.schedule("s", { every: "10s" }, "old");
      await pass(15_000);
      await jobs.schedule("s", { every: "10s" }, "new");
      await pass(5_000);
      const texts = (await takeAll(jobs)).map(({ payload }) => payload.toString());
      assert.deepEqual(texts, ["old", "new"], "at 10 and at 20 seconds");
      assert.equal((await jobs.schedules())[0]?.fired, 2);
      await jobs.schedule("s", { every: "7s" }, "other");
      await pass(6_999);
      assert.equal((await jobs.stats()).ready, 0);
      await pass(1);
      assert.equal((await jobs.stats()).ready, 1);
    },
    { exactTime: true },
  );

  check("schedule: is listed, and gone when it is taken away", async ({ mq, reopen, pass }) => {
    const jobs = await mq.openTask("jobs");
    await jobs.schedule("b", { cron: "0 0 * * *", timeZone: "America/New_York", missed: "skip" }, "x");
    await jobs.schedule("a", { every: "1h", limit: 7 }, "x");
    const verify = async (queue: typeof jobs): Promise<void> => {
      const [a, b, ...more] = await queue.schedules();
      assert.equal(more.length, 0);
      assert.deepEqual([a?.name, a?.every, a?.limit, a?.missed, a?.fired], ["a", HOUR, 7, "once", 0]);
      assert.deepEqual([b?.name, b?.cron, b?.timeZone, b?.missed], ["b", "0 0 * * *", "America/New_York", "skip"]);
    };
    await verify(jobs);
    const again = await (await reopen()).openTask("jobs");
    await verify(again);
    assert.deepEqual([await again.unschedule("a"), await again.unschedule("a")], [true, false]);
    assert.equal((await again.schedules()).length, 1);
    await again.schedule("soon", { every: 50 }, "x");
    assert.ok(await again.unschedule("soon"));
    const { ready } = await again.stats();
    await pass(300);
    assert.equal((await again.stats()).ready, ready);
  });

  check("schedule: what can never fire, or is no schedule, is refused", async ({ mq, wallMs }) => {
    const jobs = await mq.openTask("jobs");
    const bad: [ScheduleSpec, RegExp][] = [
      [{ cron: "0 0 30 2 *" }, /never/],
      [{ cron: "sometimes" }, /cron/],
      [{ cron: "61 * * * *" }, /cron/],
      [{ cron: "* * * * *", timeZone: "Mars/Olympus" }, /time zone/],
      [{ cron: "* * * * *", every: "1m" }, /either/],
      [{}, /either/],
      [{ every: 0 }, /every/],
      [{ every: "1m", timeZone: "UTC" }, /timeZone/],
      [{ every: "1m", until: new Date(wallMs() - 1000) }, /never/],
      [{ every: "1m", limit: 0 }, /limit/],
      [{ every: "1m", missed: "twice" as "once" }, /missed/],
    ];
    for (const [spec, reason] of bad) await rejectsWith("ERR_OPTION", jobs.schedule("s", spec, "x"), reason);
    await rejectsWith("ERR_ARGUMENT", jobs.schedule("", { every: "1m" }, "x"), /name/);
    await rejectsWith("ERR_OPTION", jobs.schedule("s", { every: "1m" }, "x", { delay: 5 } as object), /delay/);
    assert.deepEqual(await jobs.schedules(), []);
  });
}
