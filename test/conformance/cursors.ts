import assert from "node:assert/strict";
import { json, type Task, type TaskCursor, type TaskQueue } from "../../src/index.js";
import { rejectsWith } from "../support/expect.js";
import { countsOf, takeAll } from "../support/state.js";
import { type Check, passUntil } from "./suite.js";

async function filled(open: Promise<TaskQueue>, ...payloads: string[]): Promise<TaskQueue> {
  const jobs = await open;
  await jobs.enqueueBatch(payloads);
  return jobs;
}

/** Reads what is there, for good. */
async function drain(from: TaskCursor): Promise<string[]> {
  const tasks: Task[] = [];
  for (;;) {
    const task = await from.dequeue({ autoAck: true });
    if (task === undefined) return tasks.map(({ payload }) => payload.toString());
    tasks.push(task);
  }
}

async function next(from: TaskCursor | TaskQueue): Promise<string | undefined> {
  return (await from.dequeue({ autoAck: true }))?.payload.toString();
}

async function shown(from: TaskCursor): Promise<string | undefined> {
  return (await from.peek())?.payload.toString();
}

/** Holds the next task open. */
async function opened(from: TaskCursor | TaskQueue): Promise<Task> {
  const task = await from.dequeue({ lease: "session" });
  assert.ok(task);
  return task;
}

export function cursorConformance(check: Check): void {
  check("cursor: reads the queue without changing it, and moves independently of others", async ({ mq }) => {
    const jobs = await filled(mq.openTask("jobs"), "1", "2");
    const one = await jobs.cursor("one");
    const two = await jobs.cursor("two");
    assert.equal(await next(one), "1");
    assert.equal(await next(await jobs.cursor("one")), "2");
    assert.deepEqual(await drain(two), ["1", "2"]);
    assert.deepEqual(await drain(one), []);
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 2, scheduled: 0, leased: 0, dead: 0 });
    assert.deepEqual([await next(jobs), await next(jobs), await next(jobs)], ["1", "2", undefined]);
    await jobs.enqueue("3");
    assert.deepEqual(await drain(one), ["3"]);
    assert.deepEqual([one.name, one.queue], ["one", "jobs"]);
  });

  check("cursor: is born at the oldest task that is available", async ({ mq }) => {
    const jobs = await filled(mq.openTask("jobs"), "1", "2", "3");
    await next(jobs);
    const held = await opened(jobs);
    const cursor = await jobs.cursor("late");
    assert.equal(await shown(cursor), "3");
    await jobs.release(held);
    assert.deepEqual(await drain(cursor), ["3"]);
    const back = await jobs.cursor("later");
    assert.deepEqual(await drain(back), ["2", "3"]);
  });

  check("cursor: goes on at the oldest task left when the queue gave away what it would have read", async ({ mq }) => {
    const jobs = await filled(mq.openTask("jobs"), "1", "2", "3", "4");
    const cursor = await jobs.cursor("slow");
    assert.equal(await next(cursor), "1");
    for (let count = 0; count < 3; count++) await next(jobs);
    assert.deepEqual(await drain(cursor), ["4"]);
    await next(jobs);
    await jobs.enqueue("5");
    assert.deepEqual(await drain(cursor), ["5"]);
  });

  check("cursor: peek shows what a read would take and changes nothing", async ({ mq }) => {
    const jobs = await filled(mq.openTask("jobs"), "1", "2");
    const cursor = await jobs.cursor("c");
    assert.equal(await shown(cursor), "1");
    assert.equal(await shown(cursor), "1");
    assert.equal(await next(cursor), "1");
    assert.equal(await shown(cursor), "2");
  });

  check(
    "cursor: what a reader of the queue holds is passed over, and not read once the cursor is past it",
    async (on) => {
      const jobs = await filled(on.mq.openTask("jobs"), "1", "2", "3");
      const cursor = await jobs.cursor("c");
      const held = await opened(jobs);
      assert.equal(await shown(cursor), "2");
      await jobs.release(held);
      // It has looked behind it, and taken nothing there.
      assert.equal(await shown(cursor), "1");
      const again = await opened(jobs);
      assert.equal(await next(cursor), "2");
      await jobs.release(again);
      assert.deepEqual(await drain(cursor), ["3"]);
      assert.equal(await next(jobs), "1");
    },
  );

  check("cursor: reads tasks that were given back in the order of their enqueue", async ({ mq }) => {
    const jobs = await filled(mq.openTask("jobs"), "1", "2", "3", "4");
    const cursor = await jobs.cursor("c");
    assert.equal(await next(cursor), "1");
    const held = await jobs.dequeueBatch({ max: 3, lease: "session" });
    for (const index of [2, 0, 1]) await jobs.release(held[index]!);
    assert.deepEqual(await drain(cursor), ["2", "3", "4"]);
    assert.deepEqual(
      (await takeAll(jobs)).map(({ payload }) => payload.toString()),
      ["2", "1", "3", "4"],
    );
  });

  check("cursor: failed reads come first, in the order in which they failed", async ({ mq }) => {
    const jobs = await filled(mq.openTask("jobs"), "1", "2", "3");
    const cursor = await jobs.cursor("c");
    const [one, two] = [await opened(cursor), await opened(cursor)];
    await cursor.release(two);
    await cursor.release(one);
    assert.equal(await shown(cursor), "2");
    const again = await opened(cursor);
    assert.deepEqual([again.payload.toString(), again.attempt], ["2", 1]);
    await cursor.release(again);
    assert.deepEqual(await drain(cursor), ["1", "2", "3"]);
  });

  check(
    "cursor: a failed read belongs to its cursor, and is kept when the queue has given the task away",
    async (on) => {
      const jobs = await filled(on.mq.openTask("jobs"), "1", "2");
      const cursor = await jobs.cursor("c");
      await cursor.release(await opened(cursor));
      assert.equal(await next(jobs), "1");
      assert.deepEqual(await drain(await jobs.cursor("d")), ["2"]);
      const again = await (await on.reopen()).openTask("jobs");
      assert.deepEqual(await drain(await again.cursor("c")), ["1", "2"]);
    },
  );

  check("cursor: a lease with an end that passes is a failed read, and attempts have no limit", async (on) => {
    const jobs = await filled(on.mq.openTask("jobs", { maxAttempts: 1 }), "1");
    const cursor = await jobs.cursor("c");
    for (let attempt = 1; attempt <= 3; attempt++) {
      const task = await passUntil(on, cursor.dequeue({ wait: "1h", lease: 20 }));
      assert.equal(task?.attempt, attempt);
    }
    assert.equal((await jobs.stats()).dead, 0);
  });

  check("cursor: acknowledges by task and by token; a lease that ended cannot be settled", async ({ mq }) => {
    const jobs = await filled(mq.openTask("jobs"), "1", "2", "3");
    const cursor = await jobs.cursor("c");
    const [one, two, three] = (await cursor.dequeueBatch({ max: 3 })) as [Task, Task, Task];
    assert.deepEqual(await cursor.stats(), { items: 0, open: 3 });
    await cursor.ack(one.token);
    await cursor.ackBatch([two]);
    await rejectsWith("ERR_STALE_LEASE", cursor.ack(one));
    await rejectsWith("ERR_TOKEN", jobs.ack(three));
    await rejectsWith("ERR_TOKEN", (await jobs.cursor("d")).ack(three));
    await cursor.release([three]);
    await rejectsWith("ERR_STALE_LEASE", cursor.release(three));
    assert.deepEqual(await drain(cursor), ["3"]);
  });

  check("cursor: reset forgets the failed reads and reads everything that is still there again", async (on) => {
    const jobs = await filled(on.mq.openTask("jobs"), "1", "2", "3");
    const cursor = await jobs.cursor("c");
    assert.equal(await next(cursor), "1");
    await cursor.release(await opened(cursor));
    assert.equal(await next(jobs), "1");
    await cursor.reset();
    assert.deepEqual(await cursor.stats(), { items: 2, open: 0 });
    const again = await (await on.reopen()).openTask("jobs");
    assert.deepEqual(await drain(await again.cursor("c")), ["2", "3"]);
  });

  check("cursor: what is open at a reset stays so, and is read again when it is given back", async ({ mq }) => {
    const jobs = await filled(mq.openTask("jobs"), "1", "2");
    const cursor = await jobs.cursor("c");
    const held = await opened(cursor);
    await cursor.reset();
    assert.deepEqual(await cursor.stats(), { items: 1, open: 1 });
    assert.equal(await next(cursor), "2");
    await cursor.release(held);
    assert.deepEqual(await drain(cursor), ["1"]);
  });

  check("cursor: deleted, it is gone; the name starts afresh", async (on) => {
    const jobs = await filled(on.mq.openTask("jobs"), "1", "2");
    const cursor = await jobs.cursor("c");
    const held = await opened(cursor);
    assert.equal(await next(cursor), "2");
    const waiting = rejectsWith("ERR_NOT_FOUND", cursor.dequeue({ wait: "1h" }));
    assert.equal(await jobs.deleteCursor("c"), true);
    assert.equal(await jobs.deleteCursor("c"), false);
    await waiting;
    await rejectsWith("ERR_NOT_FOUND", cursor.dequeue());
    await rejectsWith("ERR_NOT_FOUND", cursor.release(held));
    await rejectsWith("ERR_NOT_FOUND", jobs.cursor("c", { create: false }));
    assert.deepEqual(await jobs.cursors(), []);
    const again = await (await on.reopen()).openTask("jobs");
    assert.deepEqual(await again.cursors(), []);
    const reborn = await again.cursor("c");
    await rejectsWith("ERR_TOKEN", reborn.ack(held.token));
    assert.deepEqual(await drain(reborn), ["1", "2"]);
    assert.equal((await again.stats()).ready, 2);
  });

  check("cursor: after a purge of the queue it reads nothing old and everything new", async (on) => {
    const jobs = await filled(on.mq.openTask("jobs"), "1", "2", "3");
    const cursor = await jobs.cursor("c");
    await cursor.release(await opened(cursor));
    const held = await opened(cursor);
    assert.equal(held.payload.toString(), "1");
    const failed = await opened(cursor);
    await cursor.release(failed);
    await jobs.purge();
    assert.deepEqual(await drain(cursor), []);
    await jobs.enqueue("4");
    await cursor.release(held);
    const again = await (await on.reopen()).openTask("jobs");
    assert.deepEqual(await drain(await again.cursor("c")), ["1", "4"]);
  });

  check("cursor: goes with its queue when that is deleted", async (on) => {
    const jobs = await filled(on.mq.openTask("jobs"), "1");
    const cursor = await jobs.cursor("c");
    assert.deepEqual(await drain(cursor), ["1"]);
    const waiting = rejectsWith("ERR_NOT_FOUND", cursor.peek({ wait: "1h" }));
    await on.mq.deleteQueue("task", "jobs");
    await waiting;
    await rejectsWith("ERR_NOT_FOUND", cursor.dequeue());
    const again = await filled(on.mq.openTask("jobs"), "2");
    assert.deepEqual(await again.cursors(), []);
    assert.deepEqual(await drain(await again.cursor("c")), ["2"]);
  });

  check("cursor: goes on where it was after a reopen, failed reads first, open ones behind them", async (on) => {
    const jobs = await filled(on.mq.openTask("jobs"), "1", "2", "3", "4");
    const cursor = await jobs.cursor("c");
    const [one, two, three] = [await opened(cursor), await opened(cursor), await opened(cursor)];
    await cursor.release(two!);
    assert.ok(one && three);
    const again = await (await on.reopen()).openTask("jobs");
    assert.deepEqual(await again.cursors(), ["c"]);
    const reopened = await again.cursor("c", { create: false });
    assert.deepEqual(await reopened.stats(), { items: 4, open: 0 });
    assert.deepEqual(await drain(reopened), ["2", "1", "3", "4"]);
    assert.equal((await again.stats()).ready, 4);
  });

  check("cursor: keeps its place while the queue is drained, over a reopen as well", async (on) => {
    const jobs = await filled(on.mq.openTask("jobs"), "1", "2");
    assert.deepEqual(await drain(await jobs.cursor("c")), ["1", "2"]);
    assert.deepEqual([await next(jobs), await next(jobs)], ["1", "2"]);
    const again = await (await on.reopen()).openTask("jobs");
    const cursor = await again.cursor("c");
    assert.deepEqual(await cursor.stats(), { items: 0, open: 0 });
    await again.enqueueBatch(["3", "4"]);
    assert.deepEqual(await cursor.stats(), { items: 2, open: 0 });
    assert.deepEqual(await drain(cursor), ["3", "4"]);
  });

  check("cursor: never gives a task whose time is over, not as a failed read either", async (on) => {
    const jobs = await on.mq.openTask("jobs");
    await jobs.enqueueBatch(["1", "2"], { ttl: 20 });
    await jobs.enqueue("3");
    const cursor = await jobs.cursor("c");
    await cursor.release(await opened(cursor));
    await on.pass(100);
    assert.equal(await shown(cursor), "3");
    const held = await opened(cursor);
    assert.equal(held.payload.toString(), "3");
    assert.equal(await next(cursor), undefined);
    assert.equal((await cursor.stats()).items, 0);
  });

  check("cursor: a task serves a waiting reader of each cursor, and then one of the queue", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    const [one, two] = [await jobs.cursor("one"), await jobs.cursor("two")];
    const plain = jobs.dequeue({ wait: "1h", autoAck: true });
    const waiting = [one.dequeue({ wait: "1h" }), two.peek({ wait: "1h" }), two.dequeue({ wait: "1h" })];
    const second = one.dequeue({ wait: "1h" });
    await jobs.enqueue("1");
    for (const read of [...waiting, plain]) assert.equal((await read)?.payload.toString(), "1");
    const both = [jobs.enqueue("2"), jobs.dequeue({ wait: "1h" })] as const;
    assert.equal((await second)?.payload.toString(), "2");
    assert.equal((await both[1])?.payload.toString(), "2");
  });

  check(
    "cursor: a read given back serves the one who waits; a task given back to the queue as well",
    async ({ mq }) => {
      const jobs = await filled(mq.openTask("jobs"), "1");
      const cursor = await jobs.cursor("c");
      const task = await opened(cursor);
      const waiting = cursor.dequeue({ wait: "1h" });
      assert.equal(await next(cursor), undefined);
      await cursor.release(task);
      assert.equal((await waiting)?.id, task.id);
      const other = await jobs.cursor("d");
      const held = await opened(jobs);
      const waits = other.dequeue({ wait: "1h" });
      await jobs.release(held);
      assert.equal((await waits)?.id, held.id);
    },
  );

  check("cursor: a wait ends by its time, by its signal, and with the directory", async (on) => {
    const jobs = await on.mq.openTask("jobs");
    const cursor = await jobs.cursor("c");
    assert.equal(await passUntil(on, cursor.dequeue({ wait: 20 })), undefined);
    const controller = new AbortController();
    const waiting = cursor.dequeue({ wait: "1h", signal: controller.signal });
    controller.abort();
    assert.equal(await waiting, undefined);
    await jobs.enqueue("1");
    assert.equal(await next(cursor), "1");
    const closed = rejectsWith("ERR_CLOSED", cursor.dequeue({ wait: "1h" }));
    await on.mq.close();
    await closed;
  });

  check("cursor: tasks that wait for their time are passed, and read when it comes first", async (on) => {
    const jobs = await on.mq.openTask("jobs");
    const cursor = await jobs.cursor("c");
    await jobs.enqueue("later", { delay: 50 });
    await jobs.enqueue("now");
    assert.equal(await shown(cursor), "now");
    const task = await passUntil(
      on,
      jobs.cursor("d").then((other) => waitFor(on.pass, other)),
    );
    assert.deepEqual(task, ["later", "now"]);
    assert.deepEqual(await drain(cursor), ["later", "now"]);
  });

  check("cursor: reads the most urgent first, and has a place in each priority", async (on) => {
    const jobs = await filled(on.mq.openTask("jobs"), "1", "2");
    const cursor = await jobs.cursor("c");
    assert.equal(await next(cursor), "1");
    await jobs.enqueueBatch(["5", "6"], { priority: 5 });
    await jobs.enqueue("9", { priority: 9 });
    await cursor.release(await opened(cursor));
    assert.equal(await shown(cursor), "9");
    const again = await (await on.reopen()).openTask("jobs");
    const reopened = await again.cursor("c");
    assert.equal((await reopened.stats()).items, 4);
    assert.deepEqual(await drain(reopened), ["9", "5", "6", "2"]);
    assert.deepEqual(await drain(await again.cursor("late")), ["9", "5", "6", "1", "2"]);
  });

  check("cursor: a payload that cannot be decoded is passed over", async ({ mq }) => {
    await filled(mq.openTask("jobs"), "1", "{", "2");
    const jobs = await mq.openTask<number, number>("jobs", { codec: json() });
    const cursor = await jobs.cursor("c");
    const tasks = await cursor.dequeueBatch({ max: 10 });
    assert.deepEqual(
      tasks.map(({ payload }) => payload),
      [1, 2],
    );
    await cursor.ackBatch(tasks);
    assert.equal(await cursor.dequeue(), undefined);
    assert.equal((await jobs.stats()).ready, 3);
  });

  check("cursor: names follow the rule of queues, and there is room for 1,000", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    for (const name of ["", "a b", "..", "n".repeat(201)]) await rejectsWith("ERR_QUEUE_NAME", jobs.cursor(name));
    const names = Array.from({ length: 1000 }, (_, index) => `c${index}`);
    const cursors = await Promise.all(names.map((name) => jobs.cursor(name)));
    await rejectsWith("ERR_QUEUE_FULL", jobs.cursor("another"));
    assert.equal((await jobs.cursor("c7")).name, "c7");
    await jobs.deleteCursor("c7");
    await jobs.cursor("another");
    assert.deepEqual(await jobs.cursors(), [...names.filter((name) => name !== "c7"), "another"].sort());
    await jobs.enqueue("1");
    assert.equal(await next(cursors[999]!), "1");
  });
}

/** What a cursor reads once two tasks are there for it. */
async function waitFor(pass: (ms: number) => Promise<void>, cursor: TaskCursor): Promise<string[]> {
  while ((await shown(cursor)) !== "later") await pass(5);
  return await drain(cursor);
}
