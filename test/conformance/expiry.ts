import assert from "node:assert/strict";
import type { Task } from "../../src/index.js";
import { rejectsWith } from "../support/expect.js";
import { countsOf, takeAll } from "../support/state.js";
import { type Check, passUntil } from "./suite.js";

const HOUR_MS = 3_600_000;
const YEAR_MS = 365 * 24 * HOUR_MS;

function texts(tasks: readonly Pick<Task, "payload">[]): string[] {
  return tasks.map(({ payload }) => payload.toString());
}

export function expiryConformance(check: Check): void {
  check("expiry: a task whose time is over is not delivered, also after a reopen", async (on) => {
    const jobs = await on.mq.openTask("jobs");
    await jobs.enqueue("short", { ttl: 20 });
    await jobs.enqueue("past", { expiresAt: new Date(1000) });
    await jobs.enqueue("long", { ttl: "1h" });
    await jobs.enqueue("never");
    await on.pass(100);
    const again = await (await on.reopen()).openTask("jobs");
    assert.equal((await again.peek())?.payload.toString(), "long");
    const tasks = await takeAll(again);
    assert.deepEqual(texts(tasks), ["long", "never"]);
    assert.equal(typeof tasks[0]?.expiresAt, "number");
    assert.equal(tasks[1]?.expiresAt, undefined);
  });

  check(
    "expiry: to the millisecond, and only when it lies in the past",
    async (on) => {
      const jobs = await on.mq.openTask("jobs");
      const end = on.wallMs() + 1000;
      await jobs.enqueueBatch(["1", "2"], { expiresAt: new Date(end) });
      await on.pass(end - on.wallMs());
      const [task] = await jobs.dequeueBatch({ max: 1 });
      assert.equal(task?.expiresAt, end);
      await on.pass(1);
      assert.equal(await jobs.dequeue(), undefined);
      await jobs.ack(task!);
    },
    { exactTime: true },
  );

  check("expiry: from the head only, by dequeue, peek and expire, counted", async (on) => {
    const jobs = await on.mq.openTask("jobs");
    await jobs.enqueueBatch(["1", "2"], { ttl: 20 });
    await jobs.enqueue("alive");
    await jobs.enqueueBatch(["3"], { ttl: 20 });
    await on.pass(100);
    assert.equal((await jobs.stats()).ready, 4);
    assert.equal(await jobs.expire(), 2);
    assert.equal(await jobs.expire(), 0);
    assert.equal((await jobs.stats()).ready, 2);
    await jobs.ack((await jobs.dequeue()) as Task);
    assert.equal(await jobs.peek(), undefined);
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 0, leased: 0, dead: 0 });
  });

  check("expiry: a leased task can still be settled; given back, it is gone", async (on) => {
    const jobs = await on.mq.openTask("jobs");
    // Long enough for a busy machine to hand them out before.
    await jobs.enqueueBatch(["1", "2"], { ttl: 500 });
    const [one, two] = (await jobs.dequeueBatch({ max: 2, lease: "1h" })) as [Task, Task];
    await on.pass(1000);
    await jobs.ack(one);
    await jobs.release(two);
    assert.equal(await jobs.dequeue(), undefined);
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 0, leased: 0, dead: 0 });
  });

  check("expiry: the queue's ttl caps what is there already, and that of each task", async (on) => {
    const jobs = await on.mq.openTask("jobs");
    await jobs.enqueueBatch(["1", "2"]);
    await jobs.enqueue("3", { ttl: "1h" });
    await on.pass(100);
    const again = await on.mq.openTask("jobs", { ttl: 50 });
    await again.enqueue("4");
    assert.equal((await again.dequeue())?.payload.toString(), "4");
    await on.mq.openTask("jobs", { ttl: Number.POSITIVE_INFINITY });
    await jobs.enqueue("5");
    await on.pass(100);
    assert.equal((await jobs.dequeue())?.payload.toString(), "5");
  });

  check("expiry: to the dead letters, with the reason; redriven, it may be delivered", async (on) => {
    const jobs = await on.mq.openTask("jobs", { onExpire: "dead" });
    const { id } = await jobs.enqueue({ payload: "1", key: "k" }, { ttl: 20 });
    await on.pass(100);
    assert.equal(await jobs.expire(), 1);
    const [letter] = await jobs.dead.read();
    assert.equal(letter?.id, id);
    assert.equal(letter?.raw.toString(), "1");
    assert.match(letter?.reason ?? "", /expired/);
    assert.equal(await jobs.dead.redrive(), 1);
    const again = await (await on.reopen()).openTask("jobs");
    assert.equal((await again.dequeue())?.id, id);
  });

  check("expiry: to another queue, in order, to those who wait there", async (on) => {
    const jobs = await on.mq.openTask("jobs", { ttl: 20, onExpire: { moveTo: "late" } });
    await jobs.enqueueBatch(["1", "2"]);
    await jobs.enqueue({ payload: "3", key: "k", headers: { a: "b" } });
    const late = await on.mq.openTask("late");
    const waiting = late.dequeue({ wait: "1h" });
    await on.pass(100);
    assert.equal(await jobs.expire(), 3);
    assert.equal((await passUntil(on, waiting))?.payload.toString(), "1");
    await on.reopen();
    const again = await on.mq.openTask("late");
    const [two, three] = await takeAll(again);
    assert.deepEqual(texts([two!, three!]), ["2", "3"]);
    assert.deepEqual([three?.key?.toString(), three?.headers], ["k", { a: "b" }]);
    assert.equal((await (await on.mq.openTask("jobs")).stats()).ready, 0);
  });

  check("expiry: to another queue as far as that has room; the others become dead letters", async (on) => {
    const { mq } = on;
    const late = await mq.openTask("late", { limits: { maxCount: 3 } });
    await late.enqueue("0");
    const jobs = await mq.openTask("jobs", { ttl: 20, onExpire: { moveTo: "late" } });
    await jobs.enqueueBatch(["1", "2", "3", "4"]);
    await on.pass(100);
    assert.equal(await jobs.expire(), 4);
    assert.deepEqual(texts(await takeAll(late)), ["0", "1", "2"]);
    const letters = await jobs.dead.read();
    assert.deepEqual(
      letters.map(({ raw }) => raw.toString()),
      ["3", "4"],
    );
    const { died, expired } = await jobs.stats();
    assert.deepEqual({ died, expired }, { died: 2, expired: 4 });
    await late.configure({ limits: { maxMessageBytes: 2 } });
    await jobs.enqueueBatch(["555", "66"]);
    await on.pass(100);
    assert.equal(await jobs.expire(), 2);
    assert.deepEqual(texts(await takeAll(late)), ["66"]);
  });

  check("expiry: to another queue whose oldest tasks make way", async (on) => {
    const late = await on.mq.openTask("late", { limits: { maxCount: 2, whenFull: "drop-oldest" } });
    await late.enqueueBatch(["a", "b"]);
    const jobs = await on.mq.openTask("jobs", { ttl: 20, onExpire: { moveTo: "late" } });
    await jobs.enqueueBatch(["1", "2", "3"]);
    await on.pass(100);
    assert.equal(await jobs.expire(), 3);
    const left = texts(await takeAll(late));
    assert.equal(left[left.length - 1], "3");
    assert.equal((await late.stats()).discarded + left.length, 5);
    assert.deepEqual(await jobs.dead.read(), []);
  });

  for (const onExpire of ["discard", "dead"] as const) {
    check(
      `expiry: a clock that is set a year ahead ends nothing before its ttl is over, ${onExpire}`,
      async (on) => {
        const jobs = await on.mq.openTask("jobs", { ttl: "2h", onExpire });
        const cursor = await jobs.cursor("beside");
        const capped = await jobs.enqueue("capped");
        await jobs.enqueue("own", { ttl: "30m", priority: 1 });
        await jobs.enqueue("moment", { expiresAt: new Date(on.wallMs() + 3 * HOUR_MS), priority: 2 });
        on.stepWall!(YEAR_MS);
        assert.equal(await jobs.expire(), 1, "the moment has come");
        await jobs.enqueue("new", { ttl: "30m", priority: 3 });
        await on.pass(HOUR_MS / 4);
        assert.equal(await jobs.expire(), 0);
        await on.pass(HOUR_MS / 4 + 1);
        assert.equal(await jobs.expire(), 1, "a ttl goes on meanwhile");
        assert.equal((await cursor.dequeue())?.payload.toString(), "new");
        assert.equal((await cursor.dequeue())?.payload.toString(), "capped");
        on.stepWall!(-YEAR_MS);
        await on.pass(HOUR_MS);
        assert.equal((await jobs.peek())?.payload.toString(), "new", "it was enqueued by the wrong clock");
        assert.equal(await jobs.expire(), 0);
        await on.pass(HOUR_MS);
        assert.equal(await jobs.expire(), 1);
        assert.equal((await jobs.list({ state: "ready" })).length, 1);
        if (onExpire === "dead") assert.equal((await jobs.dead.read()).at(-1)?.id, capped.id);
      },
      { exactTime: true },
    );
  }

  check(
    "expiry: a clock that stays a year ahead is believed after an hour; one that is set back prolongs at most",
    async (on) => {
      const jobs = await on.mq.openTask("jobs", { ttl: "10h" });
      await jobs.enqueueBatch(["1", "2"]);
      on.stepWall!(YEAR_MS);
      assert.equal(await jobs.expire(), 0);
      await on.pass(HOUR_MS - 1);
      assert.equal(await jobs.expire(), 0);
      await on.pass(1);
      assert.equal(await jobs.expire(), 2);
      await jobs.enqueue("3");
      on.stepWall!(-YEAR_MS);
      await jobs.enqueue("4", { priority: 1 });
      await jobs.enqueue("5", { priority: 2, ttl: "1h" });
      await on.pass(HOUR_MS);
      assert.equal(await jobs.expire(), 0);
      await on.pass(1);
      assert.equal(await jobs.expire(), 1, "what is enqueued by the new clock goes by it");
      await on.pass(9 * HOUR_MS);
      assert.equal(await jobs.expire(), 1);
      assert.equal((await jobs.dequeue())?.payload.toString(), "3");
    },
    { exactTime: true },
  );

  check("expiry: what makes no sense is refused", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    await rejectsWith("ERR_OPTION", jobs.enqueue("1", { ttl: 0 }), /ttl/);
    await rejectsWith("ERR_OPTION", jobs.enqueue("1", { ttl: 1, expiresAt: new Date() }), /expiresAt/);
    await rejectsWith("ERR_OPTION", jobs.enqueue("1", { expiresAt: new Date(Number.NaN) }), /expiresAt/);
    await rejectsWith("ERR_OPTION", mq.openTask("jobs", { onExpire: "burn" as never }), /onExpire/);
    await rejectsWith("ERR_QUEUE_NAME", mq.openTask("jobs", { onExpire: { moveTo: "" } }));
  });
}
