import assert from "node:assert/strict";
import type { Task } from "../../src/index.js";
import { takeAll } from "../support/state.js";
import { type Check, passUntil } from "./suite.js";

function textsOf(tasks: readonly Pick<Task, "payload">[]): string {
  return tasks.map(({ payload }) => payload.toString()).join(" ");
}

/** Ends only when every call before it has been looked at. */
async function isOpen(promise: Promise<unknown>): Promise<boolean> {
  const open = Symbol("open");
  const turn = new Promise((resolve) => setImmediate(() => setImmediate(() => resolve(open))));
  return (await Promise.race([promise, turn])) === open;
}

export function paceConformance(check: Check): void {
  check("concurrency: at most so many are leased at once, over a reopen too", async ({ mq, reopen }) => {
    let jobs = await mq.openTask("jobs", { concurrency: 2, backoff: { initial: "1h", max: "1h" } });
    await jobs.enqueueBatch(["1", "2", "3", "4", "5", "6"]);
    const both = Promise.all([jobs.dequeue(), jobs.dequeueBatch({ max: 5 })]);
    const [one, rest] = await both;
    assert.equal(textsOf([one!, ...rest]), "1 2");
    assert.equal(await jobs.dequeue(), undefined);
    assert.equal(
      (await jobs.dequeue({ autoAck: true }))?.payload.toString(),
      "3",
      "what leases nothing is not kept back",
    );
    jobs = await (await reopen()).openTask("jobs");
    assert.equal(await jobs.dequeue(), undefined);
    const waiting = jobs.dequeue({ wait: "1h" });
    assert.equal(await isOpen(waiting), true);
    await jobs.ack(one!);
    assert.equal((await waiting)?.payload.toString(), "4");
    const next = jobs.dequeue({ wait: "1h" });
    assert.equal(await isOpen(next), true);
    await jobs.nack(rest[0]!);
    assert.equal((await next)?.payload.toString(), "5", "a task that waits for its next attempt is not leased");
  });

  check("concurrency: takes effect at once when it is changed", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    assert.equal((await jobs.settings()).concurrency, Number.POSITIVE_INFINITY);
    await jobs.enqueueBatch(["1", "2", "3", "4"]);
    const [first, second] = await jobs.dequeueBatch({ max: 2 });
    await jobs.configure({ concurrency: 1 });
    await jobs.ack(first!);
    assert.equal(await jobs.dequeue(), undefined, "one is leased still");
    const waiting = jobs.dequeueBatch({ max: 9, wait: "1h" });
    assert.equal(await isOpen(waiting), true);
    await jobs.configure({ concurrency: Number.POSITIVE_INFINITY });
    assert.equal(textsOf(await waiting), "3 4");
    await jobs.ack(second!);
  });

  check(
    "rate: so many in a window that begins with its first delivery",
    async ({ mq, pass }) => {
      const jobs = await mq.openTask("jobs", { rate: { limit: 2, per: 1000 } });
      await jobs.enqueueBatch(["1", "2", "3", "4", "5", "6", "7"]);
      await pass(5000);
      assert.equal(textsOf([(await jobs.dequeue())!]), "1");
      await pass(600);
      assert.equal(textsOf(await jobs.dequeueBatch({ max: 9 })), "2");
      assert.equal(await jobs.dequeue(), undefined);
      const waiting = jobs.dequeueBatch({ max: 9, wait: "1h" });
      await pass(399);
      assert.equal(await isOpen(waiting), true);
      await pass(1);
      assert.equal(textsOf(await waiting), "3 4", "its window was over; another one has begun");
      assert.equal(await jobs.dequeue({ autoAck: true }), undefined, "autoAck counts as well");
      await pass(1000);
      const many = await Promise.all([1, 2, 3].map(() => jobs.dequeue()));
      assert.deepEqual(
        many.map((task) => task?.payload.toString()),
        ["5", "6", undefined],
      );
    },
    { exactTime: true },
  );

  check("rate: what a window has given lasts over a reopen, and a change takes effect at once", async (on) => {
    let jobs = await on.mq.openTask("jobs", { rate: { limit: 1, per: "1h" } });
    await jobs.enqueueBatch(["1", "2", "3"]);
    assert.equal((await jobs.dequeue())?.payload.toString(), "1");
    jobs = await (await on.reopen()).openTask("jobs");
    assert.equal(await jobs.dequeue(), undefined);
    jobs = await (await on.reopen()).openTask("jobs");
    assert.deepEqual((await jobs.settings()).rate, { limit: 1, per: 3_600_000 });
    const waiting = jobs.dequeue({ wait: "2h" });
    assert.equal(await isOpen(waiting), true);
    await jobs.configure({ rate: { limit: 1, per: 100 } });
    assert.equal((await passUntil(on, waiting))?.payload.toString(), "2");
    await jobs.configure({ rate: { limit: Number.POSITIVE_INFINITY } });
    assert.equal((await jobs.dequeue())?.payload.toString(), "3");
  });

  check("pace: tasks are dropped to make room, whatever keeps them from receivers", async ({ mq }) => {
    const limits = { maxCount: 2, whenFull: "drop-oldest" } as const;
    const jobs = await mq.openTask("jobs", { limits, concurrency: 1 });
    await jobs.enqueueBatch(["1", "2", "3"]);
    const first = (await jobs.dequeue()) as Task;
    await jobs.enqueue("4");
    await jobs.pause();
    await jobs.enqueue("5");
    await jobs.resume();
    await jobs.ack(first);
    assert.equal((await jobs.stats()).discarded, 2);
    const left = (await jobs.dequeue()) as Task;
    assert.equal(left.payload.toString(), "4");
  });

  check(
    "ageing: a task gains one priority per so much waiting",
    async ({ mq, pass }) => {
      const jobs = await mq.openTask("jobs", { ageing: 1000 });
      await jobs.enqueue("low");
      await pass(1500);
      await jobs.enqueue("high", { priority: 2 });
      await jobs.enqueue("higher", { priority: 3 });
      assert.equal((await jobs.peek())?.payload.toString(), "higher");
      await pass(2000);
      await jobs.enqueue("new", { priority: 3 });
      await jobs.enqueue("urgent", { priority: 4 });
      // 3.5 + 0, 2 + 2, 3 + 2, 3, 4
      assert.equal((await jobs.peek())?.payload.toString(), "higher");
      assert.equal(textsOf(await jobs.dequeueBatch({ max: 3 })), "higher urgent high");
      assert.equal(textsOf(await takeAll(jobs)), "low new");
    },
    { exactTime: true },
  );

  check(
    "ageing: one that has just come back does not hide how long those behind it have waited",
    async ({ mq, pass }) => {
      const jobs = await mq.openTask("jobs", { ageing: 1000 });
      await jobs.enqueue("first", { priority: 1 });
      await jobs.enqueue("second", { priority: 1 });
      await jobs.enqueue("low");
      const first = (await jobs.dequeue()) as Task;
      await pass(3500);
      await jobs.release(first);
      // 1 + 0, 1 + 3, 0 + 3
      assert.equal((await jobs.peek())?.payload.toString(), "first");
      assert.equal(textsOf(await takeAll(jobs)), "first second low");
    },
    { exactTime: true },
  );

  check("ageing: strict unless it is set, and at once when it is", async ({ mq, pass, reopen }) => {
    const jobs = await mq.openTask("jobs");
    await jobs.enqueue("low");
    await pass(300);
    await jobs.enqueue("high", { priority: 1 });
    assert.equal((await jobs.peek())?.payload.toString(), "high");
    await jobs.configure({ ageing: 50 });
    assert.equal((await jobs.peek())?.payload.toString(), "low");
    const again = await (await reopen()).openTask("jobs");
    assert.equal((await again.settings()).ageing, 50);
    assert.equal(textsOf(await takeAll(again)), "low high");
  });
}
