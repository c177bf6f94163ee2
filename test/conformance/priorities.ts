import assert from "node:assert/strict";
import type { Task } from "../../src/index.js";
import { rejectsWith } from "../support/expect.js";
import { countsOf, takeAll } from "../support/state.js";
import { type Check, passUntil } from "./suite.js";

function texts(tasks: readonly Pick<Task, "payload">[]): string[] {
  return tasks.map(({ payload }) => payload.toString());
}

export function priorityConformance(check: Check): void {
  check("priority: higher ones first, in their order among themselves, also after a reopen", async (on) => {
    const jobs = await on.mq.openTask("jobs");
    for (const priority of [0, 9, 5, 0, 9, 5]) await jobs.enqueue(String(priority), { priority });
    const ids = new Set([(await jobs.enqueue("a")).id, (await jobs.enqueue("b", { priority: 5 })).id]);
    assert.equal(ids.size, 2);
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 8, scheduled: 0, leased: 0, dead: 0 });
    assert.equal((await jobs.peek())?.priority, 9);
    const again = await (await on.reopen()).openTask("jobs");
    const tasks = await takeAll(again);
    assert.deepEqual(texts(tasks), ["9", "9", "5", "5", "b", "0", "0", "a"]);
    assert.equal(new Set(tasks.map(({ id }) => id)).size, 8);
    assert.deepEqual([tasks[0]?.priority, tasks[2]?.priority, tasks[5]?.priority], [9, 5, 0]);
    await again.ackBatch(tasks);
    assert.equal((await (await (await on.reopen()).openTask("jobs")).stats()).ready, 0);
  });

  check("priority: kept over retries, expired leases, releases and the dead letters", async (on) => {
    const jobs = await on.mq.openTask("jobs", { maxAttempts: 2, backoff: { initial: 0 } });
    await jobs.enqueue("low");
    const { id } = await jobs.enqueue("high", { priority: 7 });
    await jobs.nack((await jobs.dequeue()) as Task);
    const again = (await jobs.dequeue()) as Task;
    assert.deepEqual([again.id, again.attempt, again.priority], [id, 2, 7]);
    assert.equal((await jobs.nack(again)).dead, true);
    assert.equal((await jobs.dead.read())[0]?.id, id);
    await jobs.dead.redrive();
    const redriven = (await passUntil(on, jobs.dequeue({ wait: "1h" }))) as Task;
    assert.deepEqual([redriven.id, redriven.priority, redriven.attempt], [id, 7, 1]);
    await jobs.release(redriven);
    assert.deepEqual(texts(await takeAll(jobs)), ["high", "low"]);
  });

  check("priority: with a delay, in a batch and in a transaction", async (on) => {
    const jobs = await on.mq.openTask("jobs");
    await jobs.enqueue("low");
    await jobs.enqueue("later", { priority: 9, delay: 30 });
    await jobs.enqueueBatch(["1", "2"], { priority: 3 });
    await on.mq.transaction((tx) => {
      tx.enqueue(jobs, "3", { priority: 4 });
      tx.enqueue(jobs, "4");
    });
    await on.pass(100);
    assert.deepEqual(texts(await takeAll(jobs)), ["later", "3", "1", "2", "low", "4"]);
  });

  check("priority: out of range is refused", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    for (const priority of [-1, 10, 1.5, Number.NaN]) {
      await rejectsWith("ERR_OPTION", jobs.enqueue("x", { priority }), /priority/);
    }
  });
}
