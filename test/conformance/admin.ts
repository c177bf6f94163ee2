import assert from "node:assert/strict";
import type { MessageQueue, QueueInfo, Task } from "../../src/index.js";
import { rejectsWith } from "../support/expect.js";
import { textsOf } from "../support/state.js";
import { type Check, passUntil } from "./suite.js";

const HOUR = "1h";

async function infoOf(mq: MessageQueue, name: string): Promise<QueueInfo> {
  const info = (await mq.queues()).find((each) => each.name === name);
  assert.ok(info, `${name} is listed`);
  return info;
}

/** What a call comes to, whether it throws or rejects. */
async function later(call: () => unknown): Promise<unknown> {
  return await call();
}

export function adminConformance(check: Check): void {
  check("delete: every handle to a log, and everybody who waits on it, is told", async (on) => {
    const log = await on.mq.openLog("events", { limits: { maxCount: 3, whenFull: "wait" } });
    await log.appendBatch(["0", "1", "2"]);
    const member = await log.group("one");
    await member.read();
    const standby = await log.group("one");
    const shared = await log.sharedGroup("many");
    const tasks: Task[] = [];
    while (tasks.length < 3) {
      const [task] = await shared.dequeueBatch({ max: 1 });
      if (task !== undefined) tasks.push(task);
    }
    const worker = shared.work(() => {});
    const tail = log.tail({ from: "start" })[Symbol.asyncIterator]();
    for (let count = 0; count < 3; count++) await tail.next();
    const waits = [
      rejectsWith("ERR_NOT_FOUND", tail.next()),
      rejectsWith("ERR_NOT_FOUND", log.append("waits for room")),
      rejectsWith("ERR_NOT_FOUND", standby.read({ wait: HOUR })),
      rejectsWith("ERR_NOT_FOUND", member.read({ wait: HOUR })),
      rejectsWith("ERR_NOT_FOUND", shared.dequeue({ wait: HOUR })),
      rejectsWith("ERR_NOT_FOUND", shared.peek({ wait: HOUR })),
    ];
    assert.equal(await on.mq.deleteQueue("log", "events"), true);
    for (const wait of waits) await passUntil(on, wait);
    await passUntil(on, worker.closed);
    const [task] = tasks as [Task];
    for (const call of [
      () => log.append("x"),
      () => log.appendBatch(["x"]),
      () => log.read(0),
      () => log.trim(0),
      () => log.purge(),
      () => log.compact(),
      () => log.group("new"),
      () => log.sharedGroup("new"),
      () => log.groups(),
      () => log.deleteGroup("one"),
      () => log.configure({ metadata: { a: "b" } }),
      () => log.settings(),
      () => log.stats(),
      () => member.commit(0),
      () => member.seek("start"),
      () => member.position(),
      () => shared.ack(task),
      () => shared.nack(task),
      () => shared.release(task),
      () => shared.extend(task),
      () => shared.dequeue(),
      () => shared.dead.read(),
      () => shared.dead.redrive(),
      () => shared.dead.purge(),
      () => on.mq.transaction((tx) => tx.append(log, "x")),
      () => on.mq.transaction((tx) => tx.commitGroup(member, 0)),
      () => on.mq.transaction((tx) => tx.ack(shared, task)),
    ]) {
      await rejectsWith("ERR_NOT_FOUND", later(call));
    }
    await rejectsWith(
      "ERR_NOT_FOUND",
      (async () => {
        for await (const _ of log.batches()) assert.fail("there is nothing to be read");
      })(),
    );
    assert.deepEqual(await (await on.reopen()).queues(), []);
  });

  check("delete: every handle to a task queue, and everybody who waits on it, is told", async (on) => {
    const jobs = await on.mq.openTask("jobs", { maxAttempts: 1, lease: HOUR });
    await jobs.enqueueBatch(["0", "1"]);
    const task = (await jobs.dequeue()) as Task;
    await jobs.nack((await jobs.dequeue()) as Task);
    const worker = jobs.work(() => {});
    const waits = [
      rejectsWith("ERR_NOT_FOUND", jobs.dequeue({ wait: HOUR })),
      rejectsWith("ERR_NOT_FOUND", jobs.peek({ wait: HOUR })),
    ];
    assert.equal(await on.mq.deleteQueue("task", "jobs"), true);
    for (const wait of waits) await passUntil(on, wait);
    await passUntil(on, worker.closed);
    for (const call of [
      () => jobs.enqueue("x"),
      () => jobs.enqueue("x", { delay: HOUR }),
      () => jobs.enqueueBatch(["x"]),
      () => jobs.dequeueBatch({ max: 2 }),
      () => jobs.ackBatch([task]),
      () => jobs.nack(task),
      () => jobs.extend(task),
      () => jobs.release(task),
      () => jobs.expire(),
      () => jobs.dead.read(),
      () => jobs.dead.redrive(),
      () => jobs.dead.purge(),
      () => on.mq.transaction((tx) => tx.enqueue(jobs, "x")),
      () => on.mq.transaction((tx) => tx.ack(jobs, task)),
      () => on.mq.transaction((tx) => tx.nack(jobs, task)),
    ]) {
      await rejectsWith("ERR_NOT_FOUND", later(call));
    }
  });

  check("delete: what was staged in the same turn counts as before it, what comes later is refused", async ({ mq }) => {
    const log = await mq.openLog("events");
    const other = await mq.openLog("other");
    const before = log.append("0");
    const deleting = mq.deleteQueue("log", "events");
    const after = rejectsWith(
      "ERR_NOT_FOUND",
      (async () => {
        await deleting;
        await log.append("1");
      })(),
    );
    assert.equal(await before, 0);
    assert.equal(await deleting, true);
    await after;
    await rejectsWith(
      "ERR_NOT_FOUND",
      mq.transaction((tx) => {
        tx.append(other, "x");
        tx.append(log, "x");
      }),
    );
    assert.deepEqual(await textsOf(other), [], "no part of it took effect");
  });

  check(
    "delete: a queue of the name that is made again has its own records, also when both have filled segments",
    async (on) => {
      const fill = async (mq: MessageQueue, word: string) => {
        const log = await mq.openLog("events");
        for (let index = 0; index < 40; index++) await log.append(`${word} ${index} ${"x".repeat(10_000)}`);
        return log;
      };
      for (const word of ["first", "second", "third"]) {
        const log = await fill(on.mq, word);
        const texts = await textsOf(log);
        assert.equal(texts.length, 40);
        assert.ok(texts.every((text, index) => text.startsWith(`${word} ${index} `)));
        const again = await on.reopen();
        if (word === "third") break;
        // Never loaded in this life.
        assert.equal(await again.deleteQueue("log", "events"), true);
        assert.equal(await again.deleteQueue("log", "events"), false);
      }
      const log = await on.mq.openLog("events");
      assert.ok((await textsOf(log)).every((text) => text.startsWith("third ")));
      assert.equal((await log.stats()).head, 0);
      assert.deepEqual(await log.groups(), []);
    },
    { walFileBytes: "256KiB", segmentBytes: "64KiB", maxMessageBytes: "32KiB" },
  );

  check("delete: a replay that is under way ends", async ({ mq }) => {
    const log = await mq.openLog("events");
    for (let index = 0; index < 10; index++) await log.append("x".repeat(70_000));
    const replay = log.batches({ maxBytes: 70_000 })[Symbol.asyncIterator]();
    await replay.next();
    await mq.deleteQueue("log", "events");
    await rejectsWith("ERR_NOT_FOUND", replay.next());
  });

  check("delete: at once after it was made, and many at the same time", async ({ mq, reopen }) => {
    const opening = mq.openLog("events");
    assert.equal(await mq.deleteQueue("log", "events"), true);
    await opening.catch(() => {});
    const names = Array.from({ length: 20 }, (_, index) => `q${index}`);
    await Promise.all(names.map(async (name) => (await mq.openTask(name)).enqueue("x")));
    const deleted = await Promise.all([...names, ...names].map((name) => mq.deleteQueue("task", name)));
    assert.equal(deleted.filter((each) => each).length, names.length);
    assert.deepEqual(await (await reopen()).queues(), []);
  });

  check("delete: bad arguments are refused", async ({ mq }) => {
    await rejectsWith("ERR_OPTION", mq.deleteQueue("log", "a", { durability: "never" as never }));
    assert.equal(await mq.deleteQueue("log", "a", { durability: "async" }), false);
  });

  check("queues: tell when each was made, and what is noted about it, without opening it", async (on) => {
    const from = on.wallMs();
    await on.mq.openLog("events", { metadata: { team: "a" } });
    await on.mq.openTask("jobs", { metadata: { team: "b", tier: "1" } });
    await on.mq.openLog("plain");
    const until = on.wallMs();
    const { createdAt, metadata } = await infoOf(on.mq, "events");
    assert.ok(createdAt >= from && createdAt <= until, `${createdAt} is between ${from} and ${until}`);
    assert.deepEqual(metadata, { team: "a" });
    await on.pass(5);
    const again = await on.reopen();
    assert.deepEqual(await infoOf(again, "events"), { kind: "log", name: "events", count: 0, createdAt, metadata });
    assert.deepEqual((await infoOf(again, "jobs")).metadata, { team: "b", tier: "1" });
    assert.deepEqual((await infoOf(again, "plain")).metadata, {});
    assert.equal((await again.stats()).queues.open, 0);
    await again.openTask("jobs", { metadata: { team: "c" } });
    assert.deepEqual((await infoOf(again, "jobs")).metadata, { team: "c" });
    assert.deepEqual((await infoOf(await on.reopen(), "jobs")).metadata, { team: "c" });
  });

  check("metadata: what is not text, or more than 4 KiB of it, is refused", async ({ mq }) => {
    await rejectsWith("ERR_OPTION", mq.openLog("a", { metadata: { a: 1 as never } }));
    await rejectsWith("ERR_OPTION", mq.openLog("a", { metadata: { a: "x".repeat(4096) } }));
    await rejectsWith("ERR_OPTION", mq.openTask("a", { metadata: { a: "x".repeat(4096) } }));
    await mq.openTask("a", { metadata: { a: "x".repeat(4000) } });
    assert.equal((await mq.queues()).length, 1);
  });

  check("create: false opens what is there, and makes nothing", async ({ mq, reopen }) => {
    await rejectsWith("ERR_NOT_FOUND", mq.openLog("a", { create: false }));
    await rejectsWith("ERR_NOT_FOUND", mq.openTask("a", { create: false }));
    assert.deepEqual(await mq.queues(), []);
    await (await mq.openLog("a")).append("x");
    await rejectsWith("ERR_NOT_FOUND", mq.openTask("a", { create: false }));
    const again = await reopen();
    assert.deepEqual(await textsOf(await again.openLog("a", { create: false })), ["x"]);
    await again.deleteQueue("log", "a");
    await rejectsWith("ERR_NOT_FOUND", again.openLog("a", { create: false }));
  });
}
