import assert from "node:assert/strict";
import { rejectsWith } from "../support/expect.js";
import { type Check, passUntil } from "./suite.js";

export function resultConformance(check: Check): void {
  check("results: whoever enqueued a task gets what it brought, before and after a restart", async (on) => {
    let jobs = await on.mq.openTask("jobs");
    const task = await jobs.enqueue("a");
    assert.equal(task.created, true);
    const waiting = task.result({ wait: "10s" });
    const taken = await jobs.dequeue();
    await jobs.ack(taken!.token, { result: { rows: [1, "zwei", null] } });
    assert.deepEqual(await passUntil(on, waiting), { rows: [1, "zwei", null] });
    assert.deepEqual(await task.result(), { rows: [1, "zwei", null] });
    jobs = await (await on.reopen()).openTask("jobs");
    assert.deepEqual(await jobs.result(task.id), { rows: [1, "zwei", null] });
    assert.equal((await jobs.status(task.id)).state, "done");
    assert.deepEqual((await jobs.status(task.id)).result, { rows: [1, "zwei", null] });
  });

  check("results: those of many tasks, each its own, with a batch and with dedupe keys", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    const batch = await jobs.enqueueBatch(["a", "b", "c"], { priority: 3 });
    const first = await jobs.enqueue("d", { dedupeKey: "d" });
    const second = await jobs.enqueue("d", { dedupeKey: "d" });
    for (const task of await jobs.dequeueBatch({ max: 10 })) {
      await jobs.ack(task, { result: `${task.payload}!` });
    }
    assert.deepEqual(await Promise.all(batch.map((task) => task.result())), ["a!", "b!", "c!"]);
    assert.equal(await first.result(), "d!");
    assert.equal(await second.result(), "d!", "the task that stands for the key");
  });

  check("results: a task that brought nothing", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    const tasks = await jobs.enqueueBatch(["a", "b", "c"]);
    const waiting = tasks[2]!.result({ wait: "10s" });
    await jobs.ack((await jobs.dequeue())!);
    await jobs.ack((await jobs.dequeue())!, { result: undefined });
    await jobs.dequeue({ autoAck: true });
    for (const task of tasks) assert.equal(await task.result(), undefined);
    assert.equal(await waiting, undefined);
  });

  check(
    "results: are kept for the queue's time and no longer",
    async ({ mq, pass }) => {
      const jobs = await mq.openTask("jobs", { resultTtl: "1m" });
      assert.equal((await jobs.settings()).resultTtl, 60_000);
      const task = await jobs.enqueue("a");
      await jobs.ack((await jobs.dequeue())!, { result: 1 });
      await pass(59_000);
      assert.equal(await task.result(), 1);
      await pass(2000);
      assert.equal(await task.result(), undefined);
      assert.equal((await jobs.status(task.id)).state, "done");
      await jobs.configure({ resultTtl: 0 });
      const next = await jobs.enqueue("b");
      await jobs.ack((await jobs.dequeue())!, { result: 2 });
      assert.equal(await next.result(), undefined, "not kept at all");
    },
    { exactTime: true },
  );

  check("results: a dead task ends the wait, and its redrive begins another", async (on) => {
    let jobs = await on.mq.openTask("jobs", { maxAttempts: 1 });
    const task = await jobs.enqueue("a");
    const waiting = rejectsWith("ERR_TASK_DEAD", () => task.result({ wait: "10s" }));
    await jobs.nack((await jobs.dequeue())!, { error: "no paper" });
    await waiting;
    await assert.rejects(task.result(), /no paper/);
    assert.deepEqual(await jobs.status(task.id), { state: "dead", attempt: 1, progress: undefined, result: undefined });
    assert.equal(await jobs.dead.redrive(), 1);
    assert.equal((await jobs.status(task.id)).state, "ready");
    jobs = await (await on.reopen()).openTask("jobs");
    assert.equal((await jobs.status(task.id)).state, "ready");
    const again = jobs.result(task.id, { wait: "10s" });
    const taken = await jobs.dequeue();
    assert.equal(taken!.id, task.id);
    assert.equal((await jobs.status(task.id)).state, "leased");
    await jobs.ack(taken!.token, { result: "printed" });
    assert.equal(await passUntil(on, again), "printed");
    assert.equal(await (await (await on.reopen()).openTask("jobs")).result(task.id), "printed");
  });

  check("results: a redriven task can be cancelled by its id", async ({ mq }) => {
    const jobs = await mq.openTask("jobs", { maxAttempts: 1 });
    const task = await jobs.enqueue("a");
    await jobs.nack((await jobs.dequeue())!);
    await jobs.dead.redrive();
    const waiting = rejectsWith("ERR_NOT_FOUND", () => task.result({ wait: "10s" }));
    assert.equal(await jobs.cancel(task.id), true);
    await waiting;
    assert.equal(await jobs.dequeue(), undefined);
  });

  check("results: a task that will never be done ends the wait", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    const ends = async (ended: string, end: (id: string) => Promise<unknown>, options = {}) => {
      const task = await jobs.enqueue("a", options);
      const waiting = task.result({ wait: "10s" }).then(
        () => assert.fail(`the wait for what was ${ended} must fail`),
        (error) => error,
      );
      await end(task.id);
      const { code, details } = await waiting;
      assert.deepEqual([code, details.ended, details.id], ["ERR_NOT_FOUND", ended, task.id]);
    };
    await ends("cancelled", (id) => jobs.cancel(id));
    await ends("cancelled", (id) => jobs.cancel(id), { delay: "1h" });
    await ends("purged", () => jobs.purge());
    await ends("purged", () => jobs.purge(), { delay: "1h" });
    await ends("expired", () => jobs.expire(), { expiresAt: new Date(1) });
    await jobs.configure({ limits: { maxCount: 1, whenFull: "drop-oldest" } });
    await ends("dropped", () => jobs.enqueue("b"));
    await jobs.configure({ limits: { maxCount: Number.POSITIVE_INFINITY }, onExpire: { moveTo: "late" } });
    await mq.openTask("late");
    await jobs.purge();
    await ends("moved", () => jobs.expire(), { expiresAt: new Date(1) });
    await jobs.configure({ onExpire: "dead" });
    const task = await jobs.enqueue("a", { expiresAt: new Date(1) });
    const waiting = rejectsWith("ERR_TASK_DEAD", () => task.result({ wait: "10s" }));
    await jobs.expire();
    await waiting;
  });

  check("results: a purge leaves those who wait for a leased task alone", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    const task = await jobs.enqueue("a");
    const taken = await jobs.dequeue();
    const waiting = task.result({ wait: "10s" });
    await jobs.purge();
    await jobs.ack(taken!, { result: "done" });
    assert.equal(await waiting, "done");
  });

  check("results: a wait that is given up, by time, by signal, or with the queue", async (on) => {
    const jobs = await on.mq.openTask("jobs");
    const task = await jobs.enqueue("a");
    await rejectsWith("ERR_TIMEOUT", () => task.result());
    const late = rejectsWith("ERR_TIMEOUT", () => task.result({ wait: 50 }));
    await passUntil(on, late);
    const stop = new AbortController();
    const given = rejectsWith("ERR_ABORTED", () => task.result({ wait: "1h", signal: stop.signal }));
    stop.abort();
    await given;
    await rejectsWith("ERR_ABORTED", () => task.result({ wait: "1h", signal: stop.signal }));
    await rejectsWith("ERR_NOT_FOUND", () => jobs.result("17"));
    await rejectsWith("ERR_NOT_FOUND", () => jobs.result("x"));
    await rejectsWith("ERR_ARGUMENT", () => jobs.result(17 as unknown as string));
    await rejectsWith("ERR_OPTION", () => jobs.result(task.id, { wait: -1 }));
    const closed = rejectsWith("ERR_CLOSED", () => task.result({ wait: "1h" }));
    await on.mq.close();
    await closed;
  });

  check("results: what is no result changes nothing", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    const task = await jobs.enqueue("a");
    const taken = (await jobs.dequeue())!;
    await rejectsWith("ERR_ENCODE", () => jobs.ack(taken, { result: new Date(0) }));
    await rejectsWith("ERR_TOO_LARGE", () => jobs.ack(taken, { result: "x".repeat(64 * 1024) }));
    await rejectsWith("ERR_ENCODE", () => jobs.progress(taken, Number.NaN));
    await rejectsWith("ERR_TOO_LARGE", () => jobs.progress(taken, "x".repeat(1024)));
    assert.equal((await jobs.status(task.id)).state, "leased");
    await jobs.ack(taken, { result: "x".repeat(64 * 1024 - 2) });
    assert.equal((await task.result<string>()).length, 64 * 1024 - 2);
    await rejectsWith("ERR_STALE_LEASE", () => jobs.ack(taken, { result: 2 }));
    await rejectsWith("ERR_STALE_LEASE", () => jobs.progress(taken, 2));
    assert.equal((await task.result<string>()).length, 64 * 1024 - 2);
  });

  check("results: in a transaction, all or nothing", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    const next = await mq.openTask("next");
    const task = await jobs.enqueue("a");
    const taken = (await jobs.dequeue())!;
    await rejectsWith("ERR_TOKEN", () =>
      mq.transaction((tx) => {
        tx.ack(jobs, taken, { result: 1 });
        tx.ack(next, taken);
      }),
    );
    assert.equal((await jobs.status(task.id)).state, "leased");
    await mq.transaction((tx) => {
      tx.ack(jobs, taken, { result: 2 });
      tx.enqueue(next, "b");
    });
    assert.equal(await task.result(), 2);
    assert.equal((await next.dequeue())?.payload.toString(), "b");
  });

  check("results: what a handler returns is its task's", async (on) => {
    const jobs = await on.mq.openTask("jobs");
    const worker = jobs.work(async (task, { progress }) => {
      await progress({ at: 1 });
      return { read: task.payload.toString() };
    });
    const task = await jobs.enqueue("a");
    assert.deepEqual(await passUntil(on, task.result({ wait: "30s" })), { read: "a" });
    await worker.close();
  });

  check("status: of a task from its enqueue to its end", async (on) => {
    let jobs = await on.mq.openTask("jobs", { backoff: { initial: "1s", jitter: 0 } });
    const { id } = await jobs.enqueue("a", { delay: "1s" });
    const standing = async () => {
      const { state, attempt, progress } = await jobs.status(id);
      return [state, attempt, progress];
    };
    assert.deepEqual(await standing(), ["scheduled", 0, undefined]);
    await on.pass(1100);
    assert.deepEqual(await standing(), ["ready", 0, undefined]);
    const taken = (await jobs.dequeue())!;
    assert.deepEqual(await standing(), ["leased", 1, undefined]);
    await jobs.progress(taken, { done: 10 });
    await jobs.progress(taken.token, { done: 20 });
    assert.deepEqual(await standing(), ["leased", 1, { done: 20 }]);
    jobs = await (await on.reopen()).openTask("jobs");
    assert.deepEqual(await standing(), ["leased", 1, { done: 20 }]);
    await jobs.nack(taken.token);
    assert.deepEqual(await standing(), ["scheduled", 1, { done: 20 }]);
    await on.pass(1100);
    await jobs.release((await jobs.dequeue({ wait: "5s" }))!);
    assert.deepEqual(await standing(), ["ready", 1, { done: 20 }]);
    await jobs.ack((await jobs.dequeue())!);
    assert.deepEqual(await standing(), ["done", 0, undefined]);
    assert.equal((await jobs.status("4")).state, "unknown");
    assert.equal((await jobs.status("3-0")).state, "unknown");
    await rejectsWith("ERR_ARGUMENT", () => jobs.status(undefined as unknown as string));
  });
}
