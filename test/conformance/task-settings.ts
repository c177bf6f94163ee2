import assert from "node:assert/strict";
import type { Task } from "../../src/index.js";
import { rejectsWith } from "../support/expect.js";
import { countsOf, takeAll, textsOf } from "../support/state.js";
import { type Check, passUntil } from "./suite.js";

export function taskSettingsConformance(check: Check): void {
  check("purge: everything that is not leased goes; leased tasks can be settled and given back", async (on) => {
    const jobs = await on.mq.openTask("jobs");
    await jobs.enqueueBatch(["1", "2", "3", "4"]);
    await jobs.enqueue("later", { delay: "1h" });
    const [one, two] = (await jobs.dequeueBatch({ max: 3 })) as [Task, Task];
    await jobs.release((await jobs.dequeue()) as Task);
    const purging = jobs.purge();
    const { id } = await jobs.enqueue("new");
    assert.equal(await purging, 2);
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 1, scheduled: 0, leased: 3, dead: 0 });
    await jobs.ack(one);
    await jobs.release(two);
    const again = await (await on.reopen()).openTask("jobs");
    assert.deepEqual(countsOf(await again.stats()), { ready: 2, scheduled: 0, leased: 1, dead: 0 });
    const tasks = await takeAll(again);
    assert.deepEqual(
      tasks.map((task) => task.id),
      [two.id, id],
    );
    assert.equal(await again.purge(), 0);
  });

  check("pause: receivers wait until it is over, also after a reopen; enqueuing and settling go on", async (on) => {
    const jobs = await on.mq.openTask("jobs");
    await jobs.enqueueBatch(["1", "2"]);
    const held = (await jobs.dequeue()) as Task;
    await jobs.pause();
    assert.equal(await jobs.dequeue(), undefined);
    await jobs.ack(held);
    const again = await (await on.reopen()).openTask("jobs");
    assert.equal((await again.stats()).paused, true);
    assert.equal((await again.settings()).paused, true);
    await again.enqueue("3");
    const waiting = again.dequeue({ wait: "1h" });
    assert.equal(await again.dequeue(), undefined);
    await again.resume();
    assert.equal((await passUntil(on, waiting))?.payload.toString(), "2");
    assert.equal((await again.stats()).paused, false);
  });

  check("settings: are stored, and those left out stay as they were", async (on) => {
    const jobs = await on.mq.openTask("jobs", { lease: "1m", metadata: { team: "a" } });
    await jobs.configure({ maxAttempts: Number.POSITIVE_INFINITY, ttl: "1h", limits: { maxCount: 5 } });
    await Promise.all([jobs.configure({ metadata: { team: "b" } }), jobs.configure({ onExpire: "dead" })]);
    const again = await (await on.reopen()).openTask("jobs");
    const { backoff, dedupe, ...settings } = await again.settings();
    assert.deepEqual(settings, {
      lease: 60_000,
      maxAttempts: Number.POSITIVE_INFINITY,
      ttl: 3_600_000,
      onExpire: "dead",
      limits: {
        maxCount: 5,
        maxBytes: Number.POSITIVE_INFINITY,
        maxMessageBytes: Number.POSITIVE_INFINITY,
        whenFull: "refuse",
      },
      resultTtl: 3_600_000,
      maxDeadLetters: Number.POSITIVE_INFINITY,
      concurrency: Number.POSITIVE_INFINITY,
      concurrencyPerKey: 1,
      lookAhead: 1000,
      rate: { limit: Number.POSITIVE_INFINITY, per: 1000 },
      ageing: Number.POSITIVE_INFINITY,
      metadata: { team: "b" },
      paused: false,
    });
    assert.deepEqual(backoff, { initial: 1000, max: 300_000, factor: 2, jitter: 0.2 });
    assert.equal(dedupe.maxKeys, 100_000);
    await rejectsWith("ERR_OPTION", again.configure({ lease: 0 }), /lease/);
    await rejectsWith("ERR_OPTION", again.configure({ create: true } as never), /create/);
  });

  check("create: false opens only what is there", async ({ mq }) => {
    await rejectsWith("ERR_NOT_FOUND", mq.openTask("jobs", { create: false }));
    await mq.openTask("jobs");
    await mq.openTask("jobs", { create: false });
  });

  check("delete: a task queue is gone with all that it holds, and its name can be used again", async (on) => {
    const jobs = await on.mq.openTask("jobs", { lease: "1h", maxAttempts: 1 });
    await jobs.enqueueBatch(["1", "2", "3"]);
    const [held, dying] = (await jobs.dequeueBatch({ max: 2 })) as [Task, Task];
    await jobs.nack(dying);
    await jobs.ack((await jobs.dequeue()) as Task);
    const waiting = rejectsWith("ERR_NOT_FOUND", jobs.dequeue({ wait: "1h" }));
    assert.equal(await on.mq.deleteQueue("task", "jobs"), true);
    await waiting;
    assert.equal(await on.mq.deleteQueue("task", "jobs"), false);
    assert.deepEqual(await on.mq.queues(), []);
    for (const call of [jobs.ack(held), jobs.enqueue("x"), jobs.dequeue(), jobs.stats(), jobs.purge()]) {
      await rejectsWith("ERR_NOT_FOUND", call);
    }
    const successor = await on.mq.openTask("jobs");
    assert.deepEqual(countsOf(await successor.stats()), { ready: 0, scheduled: 0, leased: 0, dead: 0 });
    assert.equal((await successor.settings()).maxAttempts, 5);
    await successor.enqueue("new");
    await rejectsWith("ERR_TOKEN", successor.ack(held.token));
    const again = await on.reopen();
    assert.equal((await (await again.openTask("jobs")).dequeue())?.payload.toString(), "new");
  });

  check("delete: again and again under one name, with reopens in between", async (on) => {
    for (let round = 0; round < 3; round++) {
      const jobs = await on.mq.openTask("jobs");
      await jobs.enqueueBatch([`${round} a`, `${round} b`]);
      if (round === 1) await on.reopen();
      assert.equal((await (await on.mq.openTask("jobs")).peek())?.payload.toString(), `${round} a`);
      await on.mq.deleteQueue("task", "jobs");
      const again = await on.mq.openTask("jobs");
      await again.enqueue(`${round} c`);
      const reopened = await (await on.reopen()).openTask("jobs");
      assert.equal((await reopened.dequeue())?.payload.toString(), `${round} c`);
      await on.mq.deleteQueue("task", "jobs");
    }
    assert.deepEqual(await (await on.reopen()).queues(), []);
  });

  check("delete: a log, while a task queue of the same name stays", async (on) => {
    const log = await on.mq.openLog("same");
    const jobs = await on.mq.openTask("same");
    await log.append("1");
    await jobs.enqueue("2");
    assert.equal(await on.mq.deleteQueue("log", "same"), true);
    const again = await on.reopen();
    assert.deepEqual(await textsOf(await again.openLog("same")), []);
    assert.equal((await (await again.openTask("same")).dequeue())?.payload.toString(), "2");
  });

  check("delete: what makes no sense is refused", async ({ mq }) => {
    await rejectsWith("ERR_ARGUMENT", mq.deleteQueue("topic" as never, "jobs"), /topic/);
    await rejectsWith("ERR_QUEUE_NAME", mq.deleteQueue("task", ""));
  });
}
