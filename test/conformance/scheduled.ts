import assert from "node:assert/strict";
import type { Task } from "../../src/index.js";
import { rejectsWith } from "../support/expect.js";
import { countsOf, takeAll } from "../support/state.js";
import type { Check } from "./suite.js";

export function scheduledConformance(check: Check): void {
  check(
    "scheduled: many tasks with many due times, each at its time and in its order",
    async ({ mq, reopen, pass }) => {
      let jobs = await mq.openTask("jobs");
      for (let due = 1; due <= 200; due++) await jobs.enqueueBatch(["a", "b"], { delay: (due * 7919) % 2003 });
      await jobs.enqueue("now");
      assert.deepEqual(countsOf(await jobs.stats()), { ready: 1, scheduled: 400, leased: 0, dead: 0 });
      assert.equal((await jobs.dequeue())?.payload.toString(), "now", "those that wait hold up no other");
      const seen = new Set<string>();
      for (let at = 10; at <= 2010; at += 10) {
        await pass(10);
        if (at === 1000) jobs = await (await reopen()).openTask("jobs");
        for (const task of await takeAll(jobs)) {
          const due = (Math.floor((Number(task.id) + 2) / 2) * 7919) % 2003;
          assert.ok(due <= at && due > at - 10, `task ${task.id}, due at ${due}, came at ${at}`);
          assert.ok(!seen.has(task.id));
          seen.add(task.id);
          await jobs.ack(task);
        }
      }
      assert.equal(seen.size, 400);
      assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 0, leased: 1, dead: 0 });
    },
    { exactTime: true },
  );

  check("scheduled: more than stand in memory, all due at the same moment", async ({ mq, reopen, pass }) => {
    const count = 60_000;
    let jobs = await mq.openTask("jobs", { lease: "1h" });
    const payloads = Array.from({ length: 5000 }, (_, index) => String(index));
    for (let done = 0; done < count; done += payloads.length) await jobs.enqueueBatch(payloads, { delay: 3000 });
    const { ready, scheduled } = await jobs.stats();
    assert.equal(ready + scheduled, count);
    jobs = await (await reopen()).openTask("jobs");
    await pass(4000);
    const seen = new Set<string>();
    while (seen.size < count) {
      const tasks = await jobs.dequeueBatch({ max: 5000, wait: "10s" });
      assert.ok(tasks.length > 0, `only ${seen.size} came`);
      for (const { id } of tasks) seen.add(id);
      await jobs.ackBatch(tasks);
    }
    assert.equal(await jobs.dequeue(), undefined);
    assert.deepEqual(countsOf(await (await (await reopen()).openTask("jobs")).stats()), {
      ready: 0,
      scheduled: 0,
      leased: 0,
      dead: 0,
    });
  });

  check("cancel: a task that waits, or is ready, never comes", async ({ mq, reopen, pass }) => {
    const jobs = await mq.openTask("jobs");
    const waits = await jobs.enqueue("waits", { delay: 100 });
    const ready = await jobs.enqueue("ready", { dedupeKey: "k" });
    const kept = await jobs.enqueue("kept");
    assert.equal(await jobs.cancel(waits.id), true);
    assert.equal(await jobs.cancel({ dedupeKey: "k" }), true);
    assert.equal(await jobs.cancel(ready.id), false, "it is gone already");
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 1, scheduled: 0, leased: 0, dead: 0 });
    const again = await (await reopen()).openTask("jobs");
    await pass(300);
    assert.deepEqual(
      (await takeAll(again)).map(({ id }) => id),
      [kept.id],
    );
  });

  check("cancel: what is leased, done, dead or unknown cannot be cancelled", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    const [leased, done, dead] = await jobs.enqueueBatch(["leased", "done", "dead"], { maxAttempts: 1 });
    const [, second, third] = await jobs.dequeueBatch({ max: 3 });
    await jobs.ack(second as Task);
    await jobs.nack(third as Task);
    for (const id of [leased?.id, done?.id, dead?.id, "17", "no id"])
      assert.equal(await jobs.cancel(id as string), false);
    assert.equal(await jobs.cancel({ dedupeKey: "unknown" }), false);
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 0, leased: 1, dead: 1 });
    await rejectsWith("ERR_ARGUMENT", jobs.cancel(7 as unknown as string), /id/);
  });

  check("cancel: a task that failed and waits for its next attempt", async ({ mq, pass }) => {
    const jobs = await mq.openTask("jobs");
    const { id } = await jobs.enqueue("x");
    await jobs.nack((await jobs.dequeue()) as Task, { delay: 100 });
    assert.equal(await jobs.cancel(id), true);
    await pass(300);
    assert.equal(await jobs.dequeue(), undefined);
  });

  check("cancel: one out of many that do not stand in memory", async ({ mq, reopen }) => {
    const jobs = await mq.openTask("jobs");
    const ids: string[] = [];
    for (let batch = 0; batch < 10; batch++) {
      const answers = await jobs.enqueueBatch(
        Array.from({ length: 4000 }, () => "x"),
        { delay: `${batch + 1}h` },
      );
      ids.push(...answers.map(({ id }) => id));
    }
    const victims = [0, 4000, 20_001, 39_999].map((index) => ids[index] as string);
    for (const id of victims) assert.equal(await jobs.cancel(id), true, id);
    const again = await (await reopen()).openTask("jobs");
    for (const id of victims) assert.equal(await again.cancel(id), false, id);
    assert.equal((await again.stats()).scheduled, 40_000 - victims.length);
  });

  check(
    "reschedule: earlier, later, by the wall clock, and of a task that was ready",
    async ({ mq, reopen, pass, wallMs }) => {
      const jobs = await mq.openTask("jobs");
      const sooner = await jobs.enqueue("sooner", { delay: "1h" });
      const later = await jobs.enqueue("later", { delay: 100, dedupeKey: "later" });
      const ready = await jobs.enqueue("ready");
      assert.equal(await jobs.reschedule(sooner.id, { delay: 200 }), true);
      assert.equal(await jobs.reschedule({ dedupeKey: "later" }, { at: new Date(wallMs() + 300) }), true);
      assert.equal(await jobs.reschedule(ready.id, { delay: 400 }), true);
      assert.equal(await jobs.reschedule("17", { delay: 400 }), false);
      const again = await (await reopen()).openTask("jobs");
      assert.deepEqual(countsOf(await again.stats()), { ready: 0, scheduled: 3, leased: 0, dead: 0 });
      const order: string[][] = [];
      for (let at = 100; at <= 400; at += 100) {
        await pass(100);
        order.push((await takeAll(again)).map(({ payload }) => payload.toString()));
      }
      assert.deepEqual(order, [[], ["sooner"], ["later"], ["ready"]]);
      assert.equal(later.created, true);
    },
    { exactTime: true },
  );

  check("reschedule: a failed task keeps its attempts; what it needs is checked", async ({ mq, pass }) => {
    const jobs = await mq.openTask("jobs");
    const { id } = await jobs.enqueue("x");
    await jobs.nack((await jobs.dequeue()) as Task, { delay: "1h" });
    assert.equal(await jobs.reschedule(id, { delay: 0 }), true);
    const waiting = jobs.dequeue({ wait: "10s" });
    await pass(50);
    assert.equal((await waiting)?.attempt, 2);
    assert.equal(await jobs.reschedule(id, { delay: 0 }), false, "it is leased");
    await rejectsWith("ERR_OPTION", jobs.reschedule(id, {}), /either/);
    await rejectsWith("ERR_OPTION", jobs.reschedule(id, { delay: 1, at: new Date() }), /either/);
  });
}
