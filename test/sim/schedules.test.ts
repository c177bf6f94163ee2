/** Schedules on the simulated machine, whose power is cut wherever they fire. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { cutAtEveryCall, Simulated } from "../support/simulated.js";

void test("a schedule has fired as many tasks as it says, wherever the power is cut", async () => {
  const base = Simulated.boot(1);
  const mq = await base.open();
  const jobs = await base.settle(mq.openTask("jobs", { lease: "24h" }));
  await base.settle(jobs.schedule("tick", { every: 1000, missed: "all", limit: 50 }, "task"));
  await base.settle(mq.close());
  const trials = await cutAtEveryCall(
    base,
    ["none", "prefix", "all"],
    async (queues) => {
      const queue = await queues.openTask("jobs");
      for (let task = 0; task < 3; task++) await queue.dequeue({ wait: "5s" });
    },
    async ({ mq: again, machine }) => {
      const queue = await machine.settle(again.openTask("jobs"));
      const look = async () => {
        // What has just become due is on its way.
        await machine.pass(100);
        const [schedule] = await machine.settle(queue.schedules());
        const { ready, leased } = await machine.settle(queue.stats());
        assert.equal(ready + leased, schedule!.fired);
        return schedule!;
      };
      const before = await look();
      await machine.pass(10_000);
      const after = await look();
      // It goes on where it was: one task for each due time.
      const passedMs = after.lastAt! - (before.lastAt ?? after.lastAt! - 1000 * after.fired);
      assert.equal(after.fired - before.fired, passedMs / 1000);
    },
  );
  assert.ok(trials > 6);
});
