import assert from "node:assert/strict";
import type { Task, TaskQueue } from "../../src/index.js";
import { rejectsWith } from "../support/expect.js";
import { countsOf, takeAll } from "../support/state.js";
import { type Check, passUntil } from "./suite.js";

async function filled(open: Promise<TaskQueue>, ...payloads: string[]): Promise<TaskQueue> {
  const jobs = await open;
  await jobs.enqueueBatch(payloads);
  return jobs;
}

function texts(tasks: readonly Pick<Task, "payload">[]): string[] {
  return tasks.map(({ payload }) => payload.toString());
}

export function releaseConformance(check: Check): void {
  check("release: tasks return to the head, the last one given back first, their attempts not counted", async (on) => {
    const jobs = await filled(on.mq.openTask("jobs", { maxAttempts: 2 }), "1", "2", "3", "4");
    const [one, two, three] = (await jobs.dequeueBatch({ max: 3 })) as [Task, Task, Task];
    for (const task of [one, three, two]) await jobs.release(task);
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 4, scheduled: 0, leased: 0, dead: 0 });
    await rejectsWith("ERR_STALE_LEASE", jobs.ack(one));
    const again = await takeAll(await (await on.reopen()).openTask("jobs"));
    assert.deepEqual(texts(again), ["2", "3", "1", "4"]);
    assert.deepEqual(
      again.map(({ attempt }) => attempt),
      [1, 1, 1, 1],
    );
  });

  check("release: several at once are given back one after another, all of them or none", async ({ mq }) => {
    const jobs = await filled(mq.openTask("jobs"), "1", "2", "3");
    const [one, two, three] = (await jobs.dequeueBatch({ max: 3 })) as [Task, Task, Task];
    await jobs.ack(two);
    await rejectsWith("ERR_STALE_LEASE", jobs.release([one, two, three]));
    assert.equal((await jobs.stats()).leased, 2);
    await jobs.release([one, three]);
    assert.deepEqual(texts(await takeAll(jobs)), ["3", "1"]);
    await jobs.release([]);
  });

  check("release: to the tail, a task comes behind those that have failed and before the new ones", async ({ mq }) => {
    const jobs = await filled(mq.openTask("jobs", { backoff: { initial: 0 } }), "1", "2", "3");
    const [one, two] = (await jobs.dequeueBatch({ max: 2 })) as [Task, Task];
    await jobs.nack(two);
    await jobs.release(one, { to: "tail" });
    assert.deepEqual(texts(await takeAll(jobs)), ["2", "1", "3"]);
  });

  check("release: a task given back goes to a receiver that waits", async ({ mq }) => {
    const jobs = await filled(mq.openTask("jobs"), "1");
    const task = (await jobs.dequeue()) as Task;
    const waiting = jobs.dequeue({ wait: "1h" });
    await jobs.release(task.token);
    assert.equal((await waiting)?.id, task.id);
  });

  check("release: in a transaction, together with what else happens or not at all", async ({ mq }) => {
    const jobs = await filled(mq.openTask("jobs"), "1");
    const task = (await jobs.dequeue()) as Task;
    await rejectsWith(
      "ERR_STALE_LEASE",
      mq.transaction((tx) => {
        tx.release(jobs, task);
        tx.ack(jobs, task);
      }),
    );
    await mq.transaction((tx) => {
      tx.release(jobs, task);
      tx.enqueue(jobs, "2");
    });
    assert.deepEqual(texts(await takeAll(jobs)), ["1", "2"]);
  });

  check("autoAck: a task is done when it is handed out", async ({ mq, reopen }) => {
    const jobs = await filled(mq.openTask("jobs"), "1", "2", "3");
    const task = (await jobs.dequeue({ autoAck: true })) as Task;
    assert.equal(task.payload.toString(), "1");
    assert.equal(task.token, "");
    await rejectsWith("ERR_STALE_LEASE", jobs.ack(task));
    await rejectsWith("ERR_TOKEN", jobs.ack(task.token));
    await rejectsWith("ERR_OPTION", jobs.dequeue({ autoAck: true, lease: "1s" }), /autoAck/);
    assert.deepEqual(texts(await jobs.dequeueBatch({ max: 1, autoAck: true })), ["2"]);
    const again = await (await reopen()).openTask("jobs");
    assert.deepEqual(countsOf(await again.stats()), { ready: 1, scheduled: 0, leased: 0, dead: 0 });
    const held = (await again.dequeue()) as Task;
    await again.release(held);
    assert.equal((await again.dequeue({ autoAck: true }))?.id, held.id);
    assert.equal((await again.stats()).ready, 0);
  });

  check("session: a lease without a time limit lasts, and ends with the close", async (on) => {
    const jobs = await filled(on.mq.openTask("jobs", { lease: 10 }), "1", "2", "3", "4");
    const held = (await jobs.dequeueBatch({ max: 3, lease: "session" })) as [Task, Task, Task];
    await on.pass(200);
    assert.equal((await jobs.stats()).leased, 3);
    await jobs.ack(held[1]);
    const again = await (await on.reopen()).openTask("jobs");
    assert.deepEqual(countsOf(await again.stats()), { ready: 3, scheduled: 0, leased: 0, dead: 0 });
    await rejectsWith("ERR_STALE_LEASE", again.ack(held[0].token));
    const tasks = await takeAll(again, { lease: "1h" });
    assert.deepEqual(texts(tasks), ["1", "3", "4"]);
    assert.equal(tasks[0]?.attempt, 1);
  });

  check("session: an extension gives the lease an end", async (on) => {
    const jobs = await filled(on.mq.openTask("jobs", { backoff: { initial: 0 } }), "1");
    const task = (await jobs.dequeue({ lease: "session" })) as Task;
    await jobs.extend(task, 20);
    assert.equal((await passUntil(on, jobs.dequeue({ wait: "1h" })))?.attempt, 2);
  });

  check("peek: shows what comes next and changes nothing", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    assert.equal(await jobs.peek(), undefined);
    const { id } = await jobs.enqueue({ payload: "1", key: "k", headers: { a: "b" } });
    await jobs.enqueue("2");
    for (let time = 0; time < 2; time++) {
      const { payload, key, ...shown } = (await jobs.peek())!;
      assert.deepEqual([payload.toString(), key?.toString(), shown.id], ["1", "k", id]);
      assert.deepEqual(shown.headers, { a: "b" });
      assert.equal(shown.attempt, 0);
      assert.equal("token" in shown, false);
    }
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 2, scheduled: 0, leased: 0, dead: 0 });
    const first = (await jobs.dequeue()) as Task;
    assert.equal(first.payload.toString(), "1");
    assert.equal((await jobs.peek())?.payload.toString(), "2");
    await jobs.release(first);
    assert.equal((await jobs.peek())?.payload.toString(), "1");
    assert.deepEqual(texts(await takeAll(jobs)), ["1", "2"]);
  });

  check("peek: waits for a task and takes it from nobody", async (on) => {
    const jobs = await on.mq.openTask("jobs");
    const peeks = [jobs.peek({ wait: "1h" }), jobs.peek({ wait: "1h" })];
    const taken = jobs.dequeue({ wait: "1h" });
    await jobs.enqueue("1");
    for (const task of [...(await Promise.all(peeks)), await taken]) assert.equal(task?.payload.toString(), "1");
    const controller = new AbortController();
    const given = jobs.peek({ wait: "1h", signal: controller.signal });
    controller.abort();
    assert.equal(await given, undefined);
    assert.equal(await passUntil(on, jobs.peek({ wait: 20 })), undefined);
    assert.equal((await jobs.stats()).leased, 1);
  });

  check("peek: ends when the directory is closed", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    const waiting = rejectsWith("ERR_CLOSED", jobs.peek({ wait: "1h" }));
    await mq.close();
    await waiting;
  });
}
