import assert from "node:assert/strict";
import type { Task } from "../../src/index.js";
import { eventually } from "../support/expect.js";
import { countsOf } from "../support/state.js";
import type { Check } from "./suite.js";

export function retryConformance(check: Check): void {
  check("retry: nack without a delay of its own waits out the queue's backoff", async ({ mq, pass }) => {
    const jobs = await mq.openTask("jobs", { backoff: { initial: 80, jitter: 0 } });
    await jobs.enqueue("x");
    await jobs.nack((await jobs.dequeue()) as Task);
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 1, leased: 0, dead: 0 });
    const waiting = jobs.dequeue({ wait: "1h" });
    await pass(200);
    assert.equal((await waiting)?.attempt, 2);
  });

  check("retry: nack with a delay overrules the backoff; zero means at once", async ({ mq, pass }) => {
    const jobs = await mq.openTask("jobs", { backoff: { initial: "1h", jitter: 0 } });
    await jobs.enqueue("x");
    await jobs.nack((await jobs.dequeue()) as Task, { delay: 0 });
    const second = (await jobs.dequeue()) as Task;
    assert.equal(second.attempt, 2);
    await jobs.nack(second, { delay: 60 });
    const waiting = jobs.dequeue({ wait: "1h" });
    await pass(200);
    assert.equal((await waiting)?.attempt, 3);
  });

  check("retry: backoff grows by its factor up to its maximum", async ({ mq, wallMs }) => {
    const backoff = { initial: "10s", factor: 3, max: "100s", jitter: 0 };
    for (const [index, expectedMs] of [10_000, 30_000, 90_000, 100_000, 100_000].entries()) {
      const jobs = await mq.openTask(`jobs-${index}`, { maxAttempts: 10, backoff });
      await jobs.enqueue("x");
      for (let attempt = 1; attempt <= index; attempt++) {
        await jobs.nack((await jobs.dequeue()) as Task, { delay: 0 });
      }
      const task = (await jobs.dequeue()) as Task;
      const before = wallMs();
      await jobs.nack(task);
      const dueInMs = (await jobs.stats()).nextDueIn ?? 0;
      const passedMs = wallMs() - before;
      // Times are rounded up.
      assert.ok(dueInMs <= expectedMs + 2 && dueInMs >= expectedMs - passedMs - 2, `${dueInMs} ms`);
    }
  });

  check("retry: jitter stays within its bounds, and is not always the same", async ({ mq, wallMs }) => {
    const seen = new Set<number>();
    for (let index = 0; index < 24; index++) {
      const jobs = await mq.openTask(`jobs-${index}`, { backoff: { initial: "100s", jitter: 0.2 } });
      await jobs.enqueue("x");
      const task = (await jobs.dequeue()) as Task;
      const before = wallMs();
      await jobs.nack(task);
      const dueInMs = (await jobs.stats()).nextDueIn as number;
      const passedMs = wallMs() - before;
      assert.ok(dueInMs <= 120_000 + 2 && dueInMs >= 80_000 - passedMs - 2, `${dueInMs} ms`);
      seen.add(Math.round(dueInMs / 1000));
    }
    assert.ok(seen.size > 4, `only ${seen.size} different waits`);
  });

  check("retry: a task that waits holds up no other", async ({ mq }) => {
    const jobs = await mq.openTask("jobs", { backoff: { initial: "1h" } });
    await jobs.enqueueBatch(["fails", "next", "last"]);
    await jobs.nack((await jobs.dequeue()) as Task);
    const rest = await jobs.dequeueBatch({ max: 10 });
    assert.deepEqual(
      rest.map(({ payload }) => payload.toString()),
      ["next", "last"],
    );
  });

  check("retry: waiting retries survive a reopen, with their attempts", async ({ mq, reopen, pass }) => {
    const jobs = await mq.openTask("jobs", { maxAttempts: 10 });
    await jobs.enqueueBatch(["a", "b"]);
    const [a, b] = await jobs.dequeueBatch({ max: 2 });
    await jobs.nack(a as Task, { delay: 100 });
    await jobs.nack(b as Task, { delay: "1h" });
    const again = await (await reopen()).openTask("jobs");
    const waiting = again.dequeue({ wait: "1h" });
    await pass(400);
    const second = (await waiting) as Task;
    assert.equal(second.payload.toString(), "a");
    assert.equal(second.attempt, 2);
    assert.deepEqual(countsOf(await again.stats()), { ready: 0, scheduled: 1, leased: 1, dead: 0 });
    await again.nack(second, { delay: 0 });
    const third = await (await reopen()).openTask("jobs");
    assert.equal((await third.dequeue())?.attempt, 3);
  });

  check("retry: attempts are counted when a task is handed out, whoever answers", async ({ mq, reopen, pass }) => {
    const jobs = await mq.openTask("jobs", { maxAttempts: 2, lease: 50, backoff: { initial: 0, jitter: 0 } });
    await jobs.enqueue("x");
    assert.equal((await jobs.dequeue())?.attempt, 1);
    const again = await (await reopen()).openTask("jobs");
    const waiting = again.dequeue({ wait: "1h" });
    await pass(300);
    assert.equal((await waiting)?.attempt, 2);
    await eventually("it dies without an answer", async () => (await again.stats()).dead === 1, pass);
    assert.equal(await again.dequeue(), undefined);
  });

  check("retry: the attempt limit may be infinite, or a task's own", async ({ mq }) => {
    const forever = await mq.openTask("forever", { maxAttempts: Infinity });
    await forever.enqueue("x");
    for (let attempt = 1; attempt <= 40; attempt++) {
      const task = (await forever.dequeue()) as Task;
      assert.equal(task.attempt, attempt);
      await forever.nack(task, { delay: 0 });
    }
    assert.equal((await forever.stats()).dead, 0);
    const jobs = await mq.openTask("jobs", { maxAttempts: 5 });
    await jobs.enqueue("once", { maxAttempts: 1 });
    await jobs.nack((await jobs.dequeue()) as Task, { delay: 0 });
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 0, leased: 0, dead: 1 });
    await jobs.enqueueBatch(["a", "b"], { maxAttempts: 1 });
    for (const task of await jobs.dequeueBatch({ max: 2 })) await jobs.nack(task);
    assert.equal((await jobs.stats()).dead, 3);
  });
}
