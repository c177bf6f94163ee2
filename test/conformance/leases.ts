import assert from "node:assert/strict";
import type { Task } from "../../src/index.js";
import { codeOf, eventually, rejectsWith } from "../support/expect.js";
import { countsOf } from "../support/state.js";
import { type Check, passUntil } from "./suite.js";

export function leaseConformance(check: Check): void {
  check("lease: a task is settled once, also by calls at once: the first has it", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    const ways = [
      (task: Task) => jobs.ack(task),
      (task: Task) => jobs.nack(task, { delay: "1h" }),
      (task: Task) => jobs.release(task),
      (task: Task) => jobs.ackBatch([task]),
    ];
    for (const first of ways) {
      for (const second of ways) {
        await jobs.enqueue("task");
        const task = (await jobs.dequeue())!;
        const codes = await Promise.all([first(task), second(task)].map(codeOf));
        assert.deepEqual(codes, [undefined, "ERR_STALE_LEASE"]);
        await jobs.purge();
      }
    }
  });

  check("lease: a task whose lease ran out is delivered again, with the next attempt", async ({ mq, pass }) => {
    const jobs = await mq.openTask("jobs", { lease: 80, backoff: { initial: 0, jitter: 0 } });
    const { id } = await jobs.enqueue("x");
    const first = await jobs.dequeue();
    const waiting = jobs.dequeue({ wait: "1h" });
    await pass(300);
    const second = await waiting;
    assert.equal(second?.id, id);
    assert.equal(first?.attempt, 1);
    assert.equal(second?.attempt, 2);
    assert.notEqual(second?.token, first?.token);
    assert.equal(second?.payload.toString(), "x");
  });

  check("lease: a stale token settles nothing, also after a reopen", async ({ mq, pass, reopen }) => {
    const jobs = await mq.openTask("jobs", { lease: 60, maxAttempts: 10, backoff: { initial: 0, jitter: 0 } });
    await jobs.enqueue("x");
    const stale = (await jobs.dequeue())?.token as string;
    const waiting = jobs.dequeue({ wait: "1h", lease: "1h" });
    await pass(250);
    const held = (await waiting)?.token as string;
    const refuseAll = async (queue: typeof jobs): Promise<void> => {
      const before = countsOf(await queue.stats());
      await rejectsWith("ERR_STALE_LEASE", queue.ack(stale));
      await rejectsWith("ERR_STALE_LEASE", queue.ackBatch([stale]));
      await rejectsWith("ERR_STALE_LEASE", queue.nack(stale, { delay: 0 }));
      await rejectsWith("ERR_STALE_LEASE", queue.extend(stale, "1h"));
      assert.deepEqual(countsOf(await queue.stats()), before);
      assert.equal(before.leased, 1);
    };
    await refuseAll(jobs);
    const again = await (await reopen()).openTask("jobs");
    await refuseAll(again);
    await again.ack(held);
    assert.equal((await again.stats()).leased, 0);
  });

  check("lease: a settled task cannot be settled again", async ({ mq, reopen }) => {
    const jobs = await mq.openTask("jobs");
    await jobs.enqueueBatch(["acked", "nacked"]);
    const [acked, nacked] = (await jobs.dequeueBatch({ max: 2 })).map(({ token }) => token) as [string, string];
    await jobs.ack(acked);
    await jobs.nack(nacked, { delay: "1h" });
    const refuse = async (queue: typeof jobs): Promise<void> => {
      for (const token of [acked, nacked]) {
        await rejectsWith("ERR_STALE_LEASE", queue.ack(token));
        await rejectsWith("ERR_STALE_LEASE", queue.nack(token));
        await rejectsWith("ERR_STALE_LEASE", queue.extend(token));
      }
      assert.deepEqual(countsOf(await queue.stats()), { ready: 0, scheduled: 1, leased: 0, dead: 0 });
    };
    await refuse(jobs);
    await refuse(await (await reopen()).openTask("jobs"));
  });

  check("lease: a token is good for its own queue only", async ({ mq }) => {
    const one = await mq.openTask("one");
    const two = await mq.openTask("two");
    await one.enqueue("x");
    await two.enqueue("x");
    const task = (await one.dequeue()) as { token: string };
    await two.dequeue();
    await rejectsWith("ERR_TOKEN", two.ack(task));
    await rejectsWith("ERR_TOKEN", two.nack(task));
    await rejectsWith("ERR_TOKEN", two.extend(task));
    assert.equal((await one.stats()).leased, 1);
    assert.equal((await two.stats()).leased, 1);
    await one.ack(task);
  });

  check("lease: a token survives a reopen", async ({ mq, reopen }) => {
    const jobs = await mq.openTask("jobs", { lease: "1h" });
    await jobs.enqueueBatch(["a", "b", "c"]);
    const [a, b, c] = await jobs.dequeueBatch({ max: 3 });
    const again = await (await reopen()).openTask("jobs");
    assert.equal(await again.dequeue(), undefined, "the leases are still held");
    await again.ack(a as { token: string });
    await again.nack(b as { token: string }, { delay: 0, error: "no" });
    await again.extend(c as { token: string }, "2h");
    assert.equal((await again.dequeue())?.attempt, 2);
    assert.deepEqual(countsOf(await again.stats()), { ready: 0, scheduled: 0, leased: 2, dead: 0 });
  });

  check("lease: extend keeps a task", async ({ mq, pass }) => {
    const jobs = await mq.openTask("jobs", { lease: 200, maxAttempts: Infinity });
    await jobs.enqueue("x");
    let task: Task;
    // On a busy machine the lease may end before it is extended.
    do task = (await jobs.dequeue({ wait: "1h" })) as Task;
    while ((await codeOf(jobs.extend(task, "1h"))) === "ERR_STALE_LEASE");
    await pass(500);
    assert.equal(await jobs.dequeue(), undefined);
    await jobs.ack(task);
    await jobs.enqueue("y");
    const other = (await jobs.dequeue({ lease: "1h" })) as { token: string };
    await jobs.extend(other, 20);
    await eventually("the shortened lease runs out", async () => (await jobs.stats()).leased === 0, pass);
  });

  check(
    "lease: it ends to the millisecond, from when it was given or extended",
    async ({ mq, pass }) => {
      const jobs = await mq.openTask("jobs", { lease: "10s", backoff: { initial: 0, jitter: 0 } });
      await jobs.enqueue("x");
      const first = (await jobs.dequeue()) as { token: string };
      await pass(9_000);
      await jobs.extend(first);
      await pass(9_990);
      assert.equal(await jobs.dequeue(), undefined);
      await pass(10);
      const second = await jobs.dequeue({ lease: 500 });
      assert.equal(second?.attempt, 2);
      await pass(490);
      assert.equal(await jobs.dequeue(), undefined, "the delivery's own lease");
      await pass(10);
      assert.equal((await jobs.dequeue())?.attempt, 3);
    },
    { exactTime: true },
  );

  check(
    "lease: it keeps its remaining time over a reopen",
    async (subject) => {
      const jobs = await subject.mq.openTask("jobs", { lease: "10s", backoff: { initial: 0, jitter: 0 } });
      await jobs.enqueue("x");
      const first = (await jobs.dequeue()) as { token: string };
      await subject.pass(6_000);
      const again = await (await subject.reopen()).openTask("jobs");
      await subject.pass(3_900);
      assert.equal(await again.dequeue(), undefined);
      assert.equal((await again.stats()).leased, 1);
      await subject.pass(200);
      assert.equal((await again.dequeue())?.attempt, 2);
      await rejectsWith("ERR_STALE_LEASE", again.ack(first));
    },
    { exactTime: true },
  );

  check("lease: many leases with different ends each run out once", async (subject) => {
    const jobs = await subject.mq.openTask("jobs", { maxAttempts: 100, backoff: { initial: 0, jitter: 0 } });
    const count = 200;
    await jobs.enqueueBatch(Array.from({ length: count }, (_, index) => `${index}`));
    const attempts = new Map<string, number>();
    const see = (task: Task): void => {
      assert.equal(task.attempt, (attempts.get(task.id) ?? 0) + 1, "no delivery is lost, none is counted twice");
      attempts.set(task.id, task.attempt);
    };
    for (let index = 0; index < count; index++) {
      see((await jobs.dequeue({ lease: 300 + ((index * 7919) % 200) })) as Task);
    }
    const held = new Set<string>();
    while (held.size < count) {
      for (const task of await passUntil(subject, jobs.dequeueBatch({ max: count, wait: "1h", lease: "1h" }))) {
        see(task);
        assert.ok(!held.has(task.id), "a held task was delivered");
        held.add(task.id);
      }
    }
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 0, leased: count, dead: 0 });
  });
}
