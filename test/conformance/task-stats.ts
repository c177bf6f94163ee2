import assert from "node:assert/strict";
import type { Task } from "../../src/index.js";
import { countsOf } from "../support/state.js";
import type { Check } from "./suite.js";

export function taskStatsConformance(check: Check): void {
  check("stats: an empty task queue is all zeroes", async ({ mq }) => {
    const stats = await (await mq.openTask("jobs")).stats();
    assert.deepEqual(
      { ...stats, bytes: 0 },
      {
        kind: "task",
        name: "jobs",
        ready: 0,
        scheduled: 0,
        leased: 0,
        blocked: 0,
        dead: 0,
        oldestReadyAge: 0,
        oldestLeaseAge: 0,
        nextDueIn: undefined,
        oldestDeadAge: 0,
        paused: false,
        bytesReady: 0,
        waiters: 0,
        bytes: 0,
        enqueued: 0,
        delivered: 0,
        acked: 0,
        nacked: 0,
        released: 0,
        expired: 0,
        discarded: 0,
        died: 0,
        deadDropped: 0,
      },
    );
  });

  check("stats: a task that is being handed out is counted", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    await jobs.enqueueBatch(["a", "b"]);
    const taken = jobs.dequeue();
    const { ready, leased } = await jobs.stats();
    assert.equal(ready + leased, 2);
    await taken;
  });

  check("stats: a task that is dying is counted", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    await jobs.enqueue("a");
    const task = (await jobs.dequeue()) as Task;
    let dead = false;
    const dying = jobs.nack(task, { dead: true }).then(() => {
      dead = true;
    });
    while (!dead) {
      const { ready, leased, dead: died } = await jobs.stats();
      assert.equal(ready + leased + died, 1);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await dying;
  });

  check("stats: what has happened since the directory was opened is counted", async ({ mq, pass, reopen }) => {
    const jobs = await mq.openTask("jobs", { maxAttempts: 2, backoff: { initial: 0, max: 0 } });
    await jobs.enqueueBatch(["a", "b", "c", "d"]);
    await jobs.enqueue("urgent", { priority: 3 });
    await jobs.enqueue("brief", { ttl: 10, priority: 9 });
    await jobs.enqueue("later", { delay: "1h" });
    await pass(100);
    const [urgent, a, b] = (await jobs.dequeueBatch({ max: 3 })) as [Task, Task, Task];
    assert.equal(urgent.payload.toString(), "urgent");
    await jobs.ack(urgent);
    await jobs.nack(a);
    await jobs.release(b);
    await jobs.dequeue({ autoAck: true });
    const twice = (await jobs.dequeue()) as Task;
    assert.equal(twice.payload.toString(), "a");
    await jobs.nack(twice);
    assert.equal(await jobs.dead.redrive(), 1);
    const countsSince = async (queue: typeof jobs) => {
      const { enqueued, delivered, acked, nacked, released, expired, discarded, died } = await queue.stats();
      return { enqueued, delivered, acked, nacked, released, expired, discarded, died };
    };
    const expected = { enqueued: 7, delivered: 5, acked: 2, nacked: 1, released: 1, expired: 1, discarded: 0, died: 1 };
    assert.deepEqual(await countsSince(jobs), expected);
    const again = await (await reopen()).openTask("jobs");
    const none = { enqueued: 0, delivered: 0, acked: 0, nacked: 0, released: 0, expired: 0, discarded: 0, died: 0 };
    assert.deepEqual(await countsSince(again), none);
  });

  check("stats: tasks dropped to make room are counted as discarded", async ({ mq }) => {
    const jobs = await mq.openTask("jobs", { limits: { maxCount: 2, whenFull: "drop-oldest" } });
    for (const payload of ["a", "b", "c", "d"]) await jobs.enqueue(payload);
    const { enqueued, delivered, discarded, ready } = await jobs.stats();
    assert.deepEqual({ enqueued, delivered, discarded, ready }, { enqueued: 4, delivered: 0, discarded: 2, ready: 2 });
  });

  check("stats: every task is in exactly one state", async ({ mq, reopen }) => {
    const jobs = await mq.openTask("jobs", { maxAttempts: 1 });
    await jobs.enqueueBatch(Array.from({ length: 10 }, (_, index) => `${index}`));
    await jobs.enqueueBatch(["x", "y"], { delay: "1h" });
    const [first, second, third] = (await jobs.dequeueBatch({ max: 4 })) as [Task, Task, Task, Task];
    await jobs.ack(first);
    await jobs.nack(second);
    await jobs.extend(third);
    const expected = { ready: 6, scheduled: 2, leased: 2, dead: 1 };
    assert.deepEqual(countsOf(await jobs.stats()), expected);
    assert.equal((await mq.queues())[0]?.count, 10, "unfinished tasks, dead letters not included");
    const again = await reopen();
    assert.equal((await again.queues())[0]?.count, 10);
    assert.deepEqual(countsOf(await (await again.openTask("jobs")).stats()), expected);
  });

  check("stats: waiters are those that wait", async ({ mq, pass }) => {
    const jobs = await mq.openTask("jobs");
    const over = new AbortController();
    const polls = [1, 2, 3].map(() => jobs.dequeue({ wait: "1h", signal: over.signal }));
    while ((await jobs.stats()).waiters < 3) await new Promise(setImmediate);
    const short = jobs.dequeue({ wait: 50 });
    await pass(100);
    assert.equal(await short, undefined);
    assert.equal((await jobs.stats()).waiters, 3);
    over.abort();
    await Promise.all(polls);
    assert.equal((await jobs.stats()).waiters, 0);
  });

  check("stats: bytes follow what is waiting", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    await jobs.enqueueBatch(Array.from({ length: 100 }, () => Buffer.alloc(1000)));
    assert.ok((await jobs.stats()).bytes >= 100_000);
  });

  check(
    "stats: ages advance while nothing moves, and count from when a task could be delivered",
    async ({ mq, pass }) => {
      const jobs = await mq.openTask("jobs", { lease: "1h", maxAttempts: 1 });
      await jobs.enqueue("delayed", { delay: "60s" });
      await pass(10_000);
      let stats = await jobs.stats();
      assert.equal(stats.oldestReadyAge, 0, "a task that waits for its time is not late");
      assert.equal(stats.nextDueIn, 50_000);
      await pass(110_000);
      stats = await jobs.stats();
      assert.equal(stats.ready, 1);
      assert.equal(stats.scheduled, 0);
      assert.equal(stats.oldestReadyAge, 60_000);
      assert.equal(stats.nextDueIn, undefined);
      await jobs.enqueue("younger");
      await pass(1_000);
      assert.equal((await jobs.stats()).oldestReadyAge, 61_000);
      const [one, two] = (await jobs.dequeueBatch({ max: 2 })) as [Task, Task];
      await pass(7_000);
      stats = await jobs.stats();
      assert.equal(stats.oldestReadyAge, 0);
      assert.equal(stats.oldestLeaseAge, 7_000);
      await jobs.ack(one);
      await jobs.nack(two);
      await pass(5_000);
      stats = await jobs.stats();
      assert.equal(stats.oldestLeaseAge, 0);
      assert.equal(stats.oldestDeadAge, 5_000);
      await jobs.dead.purge();
      assert.equal((await jobs.stats()).oldestDeadAge, 0);
    },
    { exactTime: true },
  );
}
