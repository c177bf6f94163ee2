import assert from "node:assert/strict";
import type { MessageQueue } from "../../src/index.js";
import { rejectsWith } from "../support/expect.js";
import { textsOf } from "../support/state.js";
import type { Check } from "./suite.js";

export function queueConformance(check: Check): void {
  check("queues: listed by kind and name, with their counts", async ({ mq, reopen }) => {
    const list = async (of: MessageQueue) =>
      (await of.queues()).map(({ kind, name, count }) => ({ kind, name, count }));
    assert.deepEqual(await mq.queues(), []);
    const b = await mq.openLog("b");
    await mq.openLog("a");
    await mq.openLog("B");
    const jobs = await mq.openTask("a");
    await b.appendBatch(["1", "2", "3"]);
    await b.trim(1);
    await jobs.enqueueBatch(["1", "2"]);
    const expected = [
      { kind: "log", name: "B", count: 0 },
      { kind: "log", name: "a", count: 0 },
      { kind: "log", name: "b", count: 2 },
      { kind: "task", name: "a", count: 2 },
    ];
    assert.deepEqual(await list(mq), expected);
    assert.deepEqual(await list(await reopen()), expected, "also those that nothing has opened yet");
  });

  check("queues: a log and a task queue of one name have nothing in common", async ({ mq }) => {
    const log = await mq.openLog("same");
    const tasks = await mq.openTask("same");
    await log.append("record");
    await tasks.enqueue("task");
    assert.deepEqual(await textsOf(log), ["record"]);
    assert.equal((await tasks.dequeue())?.payload.toString(), "task");
  });

  check("queues: names that a file system could confuse stay apart", async ({ mq, reopen }) => {
    const names = [
      "a",
      "A",
      "con",
      "nul.txt",
      "x.",
      "-",
      "a:b",
      "a_b",
      "a.b",
      "__proto__",
      "constructor",
      "n".repeat(200),
    ];
    for (const name of names) {
      await (await mq.openLog(name)).append(`log ${name}`);
      await (await mq.openTask(name)).enqueue(`task ${name}`);
    }
    const again = await reopen();
    assert.equal((await again.queues()).length, 2 * names.length);
    for (const name of names) {
      assert.deepEqual(await textsOf(await again.openLog(name)), [`log ${name}`]);
      assert.equal((await (await again.openTask(name)).dequeue())?.payload.toString(), `task ${name}`);
    }
  });

  check("queues: the directory's stats add up", async ({ mq, reopen }) => {
    await mq.openLog("events");
    const jobs = await mq.openTask("jobs");
    const before = await mq.stats();
    await jobs.enqueue(Buffer.alloc(1000), { durability: "sync" });
    const after = await mq.stats();
    assert.equal(after.health, "ok");
    assert.equal(after.failure, undefined);
    assert.deepEqual([after.queues.log, after.queues.task, after.queues.damaged], [1, 1, 0]);
    assert.equal(after.wal.commits, before.wal.commits + 1);
    assert.ok(after.wal.writtenBytes >= before.wal.writtenBytes + 1000);
    assert.ok(after.wal.syncs > before.wal.syncs, "a commit in sync mode is synced");
    assert.ok(after.wal.files >= 1 && after.wal.bytes > 0 && after.openFiles >= 1);
    const again = await (await reopen()).stats();
    assert.equal(again.recovery.recovered, false, "it was closed in order");
    assert.equal(again.recovery.replayedCommits, 0);
    assert.equal(again.recovery.cutBytes, 0);
    assert.deepEqual(again.recovery.notes, []);
  });

  check(
    "queues: hundreds of them open lazily, with a bounded number of files",
    async ({ mq, reopen }) => {
      const count = 300;
      const logs = await Promise.all(Array.from({ length: count }, (_, index) => mq.openLog(`log-${index}`)));
      for (let round = 0; round < 3; round++) {
        await Promise.all(logs.map((log, index) => log.append(`${index}/${round}`)));
      }
      const again = await reopen();
      assert.equal((await again.queues()).length, count);
      const idle = await again.stats();
      assert.equal(idle.queues.log, count);
      assert.ok(idle.queues.open <= 1, `${idle.queues.open} open before anyone asked for one`);
      for (let index = count - 1; index >= 0; index--) {
        const log = await again.openLog(`log-${index}`);
        assert.deepEqual(await textsOf(log), [`${index}/0`, `${index}/1`, `${index}/2`]);
      }
      const busy = await again.stats();
      assert.ok(busy.openFiles <= 16 + 16, `${busy.openFiles} open files`);
    },
    { maxOpenFiles: 16 },
  );

  check(
    "queues: no more than the directory may have, also when they are made at once",
    async ({ mq }) => {
      const named = (count: number) => Array.from({ length: count }, (_, index) => mq.openLog(`log-${index}`));
      const outcomes = await Promise.allSettled([mq.openTask("jobs"), ...named(5)]);
      const refused = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason] : []));
      assert.equal((await mq.queues()).length, 4);
      assert.equal(refused.length, 2);
      for (const error of refused) {
        await rejectsWith("ERR_TOO_MANY_QUEUES", () => Promise.reject(error));
        assert.equal(error.details.limit, 4);
      }
      await mq.openTask("jobs");
      assert.equal(await mq.deleteQueue("task", "jobs"), true);
      await mq.openTask("others");
      await rejectsWith("ERR_TOO_MANY_QUEUES", mq.openTask("jobs"));
      assert.equal((await mq.queues()).length, 4);
    },
    { maxQueues: 4 },
  );
}
