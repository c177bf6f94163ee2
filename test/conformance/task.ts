import assert from "node:assert/strict";
import { message, type Task } from "../../src/index.js";
import { rejectsWith } from "../support/expect.js";
import { countsOf, takeAll } from "../support/state.js";
import type { Check } from "./suite.js";

export function taskConformance(check: Check): void {
  check("task: enqueue, dequeue, ack", async ({ mq, wallMs }) => {
    const jobs = await mq.openTask("jobs");
    assert.equal(jobs.kind, "task");
    assert.equal(jobs.name, "jobs");
    const before = wallMs();
    const { id, created } = await jobs.enqueue("hello");
    assert.equal(created, true);
    assert.equal(typeof id, "string");
    const task = await jobs.dequeue();
    assert.ok(task !== undefined);
    assert.equal(task.id, id);
    assert.equal(task.attempt, 1);
    assert.ok(Buffer.isBuffer(task.payload));
    assert.equal(task.payload.toString(), "hello");
    assert.equal(task.key, undefined);
    assert.deepEqual({ ...task.headers }, {});
    assert.ok(task.timestamp >= before && task.timestamp <= wallMs());
    assert.equal(await jobs.dequeue(), undefined, "a leased task is no one else's");
    await jobs.ack(task);
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 0, leased: 0, dead: 0 });
  });

  check("task: ready tasks come in the order they were enqueued", async ({ mq, reopen }) => {
    const jobs = await mq.openTask("jobs");
    await jobs.enqueue("0");
    await jobs.enqueueBatch(["1", "2", "3"]);
    await jobs.enqueue("4");
    const texts: string[] = [];
    for (const task of await jobs.dequeueBatch({ max: 3 })) {
      texts.push(task.payload.toString());
      await jobs.ack(task);
    }
    const again = await (await reopen()).openTask("jobs");
    for (const task of await takeAll(again)) texts.push(task.payload.toString());
    assert.deepEqual(texts, ["0", "1", "2", "3", "4"]);
  });

  check("task: keys and headers come with the task", async ({ mq, reopen }) => {
    const headers = { b: "2", a: "1", größe: "漢字" };
    const jobs = await mq.openTask("jobs");
    await jobs.enqueue("x", { key: "k", headers });
    await jobs.enqueue({ payload: "x", key: "k", headers });
    await jobs.enqueue(message("x", { key: Buffer.from("k"), headers }));
    await jobs.enqueueBatch([{ payload: "x", key: "k", headers }, message("x", { key: "k", headers })]);
    const again = await (await reopen()).openTask("jobs");
    const tasks = await takeAll(again);
    assert.equal(tasks.length, 5);
    for (const task of tasks) {
      assert.deepEqual(task.key, Buffer.from("k"));
      assert.deepEqual(Object.entries(task.headers), Object.entries(headers));
      assert.equal(task.payload.toString(), "x");
    }
  });

  check("task: enqueueBatch tells an id for each, all different; an empty batch is no commit", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    const first = await jobs.enqueue("a");
    const results = await jobs.enqueueBatch(["b", "c", "d"]);
    assert.deepEqual(await jobs.enqueueBatch([]), []);
    assert.ok(results.every(({ created }) => created));
    const ids = [first, ...results].map(({ id }) => id);
    assert.equal(new Set(ids).size, 4);
    const tasks = await jobs.dequeueBatch({ max: 10 });
    assert.deepEqual(
      tasks.map(({ id }) => id),
      ids,
    );
  });

  check("task: dequeueBatch takes what is there, up to max", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    assert.deepEqual(await jobs.dequeueBatch({ max: 5 }), []);
    await jobs.enqueueBatch(["a", "b", "c", "d", "e", "f", "g"]);
    assert.equal((await jobs.dequeueBatch({ max: 5 })).length, 5);
    const rest = await jobs.dequeueBatch({ max: 5, wait: "1h" });
    assert.equal(rest.length, 2, "it waits only while there is nothing at all");
    assert.equal(new Set(rest.map(({ token }) => token)).size, 2, "each delivery has its own token");
  });

  check("task: a long poll gets the next task as soon as it is enqueued", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    const polls = [
      jobs.dequeue({ wait: "1h" }),
      jobs.dequeue({ wait: "1h" }),
      jobs.dequeueBatch({ max: 4, wait: "1h" }),
    ];
    while ((await jobs.stats()).waiters < 3) await new Promise(setImmediate);
    await jobs.enqueue("one");
    await jobs.enqueue("two");
    await jobs.enqueue("three");
    const texts = (await Promise.all(polls)).flat().map((task) => task?.payload.toString());
    assert.deepEqual(texts, ["one", "two", "three"], "the longest waiting is served first");
    assert.equal((await jobs.stats()).waiters, 0);
  });

  check("task: a long poll that begins in the same turn as an enqueue gets its task", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    const enqueued = jobs.enqueue("one");
    assert.equal((await jobs.dequeue({ wait: "1h" }))?.payload.toString(), "one");
    await enqueued;
    const batch = jobs.enqueueBatch(["two", "three"]);
    const polls = [jobs.dequeue({ wait: "1h" }), jobs.dequeue({ wait: "1h" })];
    await batch;
    assert.deepEqual(
      (await Promise.all(polls)).map((task) => task?.payload.toString()),
      ["two", "three"],
    );
  });

  check("task: a long poll gives up when its wait is over, or its signal is aborted", async ({ mq, pass }) => {
    const jobs = await mq.openTask("jobs");
    const polls = [jobs.dequeue({ wait: 60 }), jobs.dequeueBatch({ max: 2, wait: "60ms" })] as const;
    await pass(120);
    assert.equal(await polls[0], undefined);
    assert.deepEqual(await polls[1], []);
    const abort = new AbortController();
    const aborted = [
      jobs.dequeue({ wait: "1h", signal: abort.signal }),
      jobs.dequeueBatch({ max: 2, wait: "1h", signal: abort.signal }),
    ] as const;
    abort.abort();
    assert.equal(await aborted[0], undefined);
    assert.deepEqual(await aborted[1], []);
    await jobs.enqueue("kept");
    assert.equal(await jobs.dequeue({ wait: "1h", signal: AbortSignal.abort() }), undefined);
    assert.equal((await jobs.dequeue())?.payload.toString(), "kept", "who has given up takes nothing");
    assert.equal((await jobs.stats()).waiters, 0);
  });

  check("task: ackBatch finishes all", async ({ mq, reopen }) => {
    const jobs = await mq.openTask("jobs");
    await jobs.enqueueBatch(["a", "b", "c", "d"]);
    const tasks = await jobs.dequeueBatch({ max: 4 });
    await jobs.ackBatch([]);
    await jobs.ackBatch([
      tasks[0]?.token as string,
      { token: tasks[1]?.token as string },
      tasks[2] as { token: string },
    ]);
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 0, leased: 1, dead: 0 });
    const again = await (await reopen()).openTask("jobs");
    assert.deepEqual(countsOf(await again.stats()), { ready: 0, scheduled: 0, leased: 1, dead: 0 });
    await again.ack(tasks[3] as { token: string });
  });

  check("task: ackBatch finishes none if one is refused", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    await jobs.enqueueBatch(["a", "b", "c"]);
    const tasks = await jobs.dequeueBatch({ max: 3 });
    const [a, b, c] = tasks.map(({ token }) => token) as [string, string, string];
    await jobs.ack(b);
    await rejectsWith("ERR_STALE_LEASE", jobs.ackBatch([a, b, c]));
    await rejectsWith("ERR_TOKEN", jobs.ackBatch([a, "no token", c]));
    await rejectsWith("ERR_STALE_LEASE", jobs.ackBatch([a, c, a]));
    assert.equal((await jobs.stats()).leased, 2);
    await jobs.ackBatch([a, c]);
    assert.equal((await jobs.stats()).leased, 0);
  });

  check("task: unfinished tasks survive a reopen, finished ones do not come back", async ({ mq, reopen }) => {
    const jobs = await mq.openTask("jobs");
    await jobs.enqueueBatch(Array.from({ length: 300 }, (_, index) => `${index}`));
    const tasks = await jobs.dequeueBatch({ max: 200 });
    await jobs.ackBatch(tasks.filter((_, index) => index % 2 === 0));
    const second = await (await reopen()).openTask("jobs");
    assert.deepEqual(countsOf(await second.stats()), { ready: 100, scheduled: 0, leased: 100, dead: 0 });
    await second.ackBatch(tasks.filter((_, index) => index % 2 === 1));
    const rest = await takeAll(second);
    assert.deepEqual(
      rest.map(({ payload }) => Number(payload.toString())),
      Array.from({ length: 100 }, (_, index) => 200 + index),
    );
    await second.ackBatch(rest);
    const third = await (await reopen()).openTask("jobs");
    assert.equal(await third.dequeue(), undefined);
    const { id } = await third.enqueue("new");
    assert.ok(!tasks.some((task) => task.id === id), "ids name a task for ever");
  });

  check("task: durability can be chosen per call", async ({ mq, reopen }) => {
    const jobs = await mq.openTask("jobs");
    for (const durability of ["sync", "async"] as const) {
      await jobs.enqueue("a", { durability });
      await jobs.enqueueBatch(["b", "c"], { durability });
      const [a, b, c] = await jobs.dequeueBatch({ max: 3, durability });
      await jobs.extend(a as { token: string }, "1m", { durability });
      await jobs.ack(a as { token: string }, { durability });
      await jobs.nack(b as { token: string }, { delay: 0, durability });
      await jobs.ackBatch([c as { token: string }], { durability });
      const again = await jobs.dequeue({ durability });
      assert.equal(again?.attempt, 2);
      await jobs.ack(again as { token: string }, { durability });
    }
    assert.deepEqual(countsOf(await (await (await reopen()).openTask("jobs")).stats()), {
      ready: 0,
      scheduled: 0,
      leased: 0,
      dead: 0,
    });
  });

  check("task: delay and at hold a task back, and only that one", async ({ mq, pass, wallMs }) => {
    const jobs = await mq.openTask("jobs", { lease: "24h" });
    await jobs.enqueue("in an hour", { delay: "1h" });
    await jobs.enqueue("tomorrow", { at: new Date(wallMs() + 86_400_000) });
    await jobs.enqueue("now");
    await jobs.enqueue("past", { at: new Date(0) });
    await jobs.enqueue("zero", { delay: 0 });
    const first = (await takeAll(jobs)).map(({ payload }) => payload.toString());
    assert.deepEqual(first.sort(), ["now", "past", "zero"]);
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 2, leased: 3, dead: 0 });
    await jobs.enqueue("soon", { delay: "150ms" });
    await jobs.enqueue("at", { at: new Date(wallMs() + 300) });
    const waiting = [jobs.dequeue({ wait: "1h" }), jobs.dequeue({ wait: "1h" })];
    await pass(2000);
    const due = (await Promise.all(waiting)).map((task) => task?.payload.toString());
    assert.deepEqual(due.sort(), ["at", "soon"]);
    assert.equal(await jobs.dequeue(), undefined);
  });

  check(
    "task: delay and at are kept to the millisecond, also over a reopen",
    async (subject) => {
      const jobs = await subject.mq.openTask("jobs");
      const due = async (queue: typeof jobs): Promise<string[]> =>
        (await queue.dequeueBatch({ max: 10 })).map(({ payload }) => payload.toString());
      await jobs.enqueue("delay", { delay: 1000 });
      await jobs.enqueue("at", { at: new Date(subject.wallMs() + 2000) });
      await jobs.enqueueBatch(["b1", "b2"], { delay: "3s" });
      await subject.pass(999);
      assert.deepEqual(await due(jobs), []);
      await subject.pass(1);
      assert.deepEqual(await due(jobs), ["delay"]);
      const again = await (await subject.reopen()).openTask("jobs");
      await subject.pass(990);
      assert.deepEqual(await due(again), []);
      await subject.pass(10);
      assert.deepEqual(await due(again), ["at"]);
      await subject.pass(1000);
      assert.deepEqual(await due(again), ["b1", "b2"]);
    },
    { exactTime: true },
  );

  check("task: queue options are stored; those left out keep their value", async ({ mq, reopen, pass }) => {
    await mq.openTask("jobs", { lease: "1h", maxAttempts: 2 });
    const jobs = await (await reopen()).openTask("jobs", { backoff: { initial: 0, jitter: 0 } });
    await jobs.enqueue("x");
    const first = await jobs.dequeue();
    await pass(50);
    assert.equal((await jobs.stats()).leased, 1);
    await jobs.nack(first as { token: string });
    const again = await (await reopen()).openTask("jobs");
    const second = await again.dequeue({ wait: "1h" });
    assert.equal(second?.attempt, 2, "the stored backoff was 0");
    await again.nack(second as { token: string });
    assert.equal((await again.stats()).dead, 1, "the stored limit was 2");
  });

  check("task: large payloads come back byte for byte", async ({ mq, reopen }) => {
    const jobs = await mq.openTask("jobs");
    const payloads = [0, 1, 70_000, 262_145, 2_000_000].map((size) => Buffer.alloc(size, "varve"));
    await jobs.enqueueBatch(payloads);
    const again = await (await reopen()).openTask("jobs");
    const tasks: Task[] = [];
    // A batch may be smaller than what is there, when that has to be read first.
    while (tasks.length < payloads.length) tasks.push(...(await again.dequeueBatch({ max: 10, wait: "1h" })));
    for (const [index, task] of tasks.entries()) assert.ok(task.payload.equals(payloads[index] as Buffer));
  });
}
