import assert from "node:assert/strict";
import type { Task } from "../../src/index.js";
import { rejectsWith } from "../support/expect.js";
import { textsOf } from "../support/state.js";
import type { Check } from "./suite.js";

export function closeConformance(check: Check): void {
  check("close: twice is once, also at the same time", async ({ mq }) => {
    await (await mq.openLog("events")).append("a");
    await Promise.all([mq.close(), mq.close()]);
    await mq.close();
    await mq[Symbol.asyncDispose]();
  });

  check("close: calls accepted before it are finished", async ({ mq, reopen }) => {
    const log = await mq.openLog("events");
    const jobs = await mq.openTask("jobs");
    const calls = Array.from({ length: 100 }, (_, index) => log.append(`${index}`));
    const enqueued = Array.from({ length: 100 }, (_, index) => jobs.enqueue(`${index}`));
    await mq.close();
    assert.deepEqual(
      await Promise.all(calls),
      Array.from({ length: 100 }, (_, index) => index),
    );
    await Promise.all(enqueued);
    const again = await reopen();
    assert.equal((await textsOf(await again.openLog("events"))).length, 100);
    assert.equal((await (await again.openTask("jobs")).stats()).ready, 100);
  });

  check("close: after it, every call is refused", async ({ mq }) => {
    const log = await mq.openLog("events");
    const jobs = await mq.openTask("jobs");
    await jobs.enqueue("x");
    const task = (await jobs.dequeue()) as Task;
    await mq.close();
    const calls: (() => Promise<unknown>)[] = [
      () => mq.openLog("events"),
      () => mq.openTask("jobs"),
      () => mq.transaction((tx) => tx.append(log, "x")),
      () => mq.queues(),
      () => mq.stats(),
      () => mq.sync(),
      () => log.append("x"),
      () => log.appendBatch(["x"]),
      () => log.read(0),
      () => log.trim(0),
      () => log.stats(),
      () => log.batches()[Symbol.asyncIterator]().next(),
      () => log.tail()[Symbol.asyncIterator]().next(),
      () => jobs.enqueue("x"),
      () => jobs.enqueueBatch(["x"]),
      () => jobs.dequeue(),
      () => jobs.dequeueBatch({ max: 1 }),
      () => jobs.ack(task),
      () => jobs.ackBatch([task]),
      () => jobs.nack(task),
      () => jobs.extend(task),
      () => jobs.stats(),
      () => jobs.dead.read(),
      () => jobs.dead.redrive(),
      () => jobs.dead.purge(),
    ];
    for (const call of calls) await rejectsWith("ERR_CLOSED", call);
  });

  check("close: tails end, and long polls are told", async ({ mq }) => {
    const log = await mq.openLog("events");
    const jobs = await mq.openTask("jobs");
    await log.append("a");
    const seen: string[] = [];
    const tail = (async () => {
      for await (const record of log.tail({ from: "start" })) seen.push(record.payload.toString());
    })();
    const follow = (async () => {
      for await (const batch of log.batches({ from: "end", follow: true })) assert.fail(`${batch.length} records`);
    })();
    const polls = [
      jobs.dequeue({ wait: "1h" }),
      jobs.dequeue({ wait: "1h" }),
      jobs.dequeueBatch({ max: 2, wait: "1h" }),
    ];
    const refusals = polls.map((poll) => rejectsWith("ERR_CLOSED", poll));
    while ((await jobs.stats()).waiters < 3 || seen.length < 1) await new Promise(setImmediate);
    await mq.close();
    await tail;
    await follow;
    assert.deepEqual(seen, ["a"]);
    await Promise.all(refusals);
  });

  check("close: a replay that it cuts short says so, and a tail that it cuts short ends", async ({ mq }) => {
    const log = await mq.openLog("events");
    await log.appendBatch(["a", "b", "c"]);
    const replay = log.batches({ from: "start", maxBytes: 1 })[Symbol.asyncIterator]();
    const follow = log.batches({ from: "start", maxBytes: 1, follow: true })[Symbol.asyncIterator]();
    for (const iterator of [replay, follow]) assert.equal((await iterator.next()).value.length, 1);
    await mq.close();
    await rejectsWith("ERR_CLOSED", replay.next());
    assert.deepEqual(await follow.next(), { done: true, value: undefined });
  });

  check("close: leased tasks stay leased, and their tokens stay good", async ({ mq, reopen }) => {
    const jobs = await mq.openTask("jobs", { lease: "1h" });
    await jobs.enqueue("x");
    const task = (await jobs.dequeue()) as Task;
    await mq.close();
    const again = await (await reopen()).openTask("jobs");
    assert.equal((await again.stats()).leased, 1);
    await again.ack(task);
  });
}
