import assert from "node:assert/strict";
import { test } from "node:test";
import type { LogRecord, Task } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";
import { eventually, rejectsWith } from "../support/expect.js";
import { countsOf } from "../support/state.js";
import { Served } from "./served.js";
import { keepsTheLeaseOfTheSlow, LEASE_MS } from "./slow-handler.js";

void test("case 18: over one connection, a worker keeps the lease of a handler that takes 20 leases", () =>
  withDirectory(async (directory) => {
    const served = await Served.start(directory);
    const jobs = await (await served.dial()).openTask("jobs", { lease: LEASE_MS, maxAttempts: 1 });
    await keepsTheLeaseOfTheSlow(jobs);
    await served.end();
  }));

void test("case 18: over one connection, a lease that ends touches nothing else of that connection", () =>
  withDirectory(async (directory) => {
    const served = await Served.start(directory);
    const mq = await served.dial();
    const log = await mq.openLog("events");
    const jobs = await mq.openTask("jobs", { lease: LEASE_MS, backoff: { initial: 0, jitter: 0 } });
    await using group = await log.group("g");
    const stop = new AbortController();
    const tailed: LogRecord[] = [];
    const tailing = (async () => {
      for await (const record of log.tail({ from: "start", signal: stop.signal })) tailed.push(record);
    })();
    await log.append("before");
    await eventually("it is the member's turn", async () => (await group.read({ wait: "1s" })).length === 1);
    await jobs.enqueueBatch(Array.from({ length: 10 }, (_, index) => `${index}`));
    const slow = (await jobs.dequeue()) as Task;
    const others = await jobs.dequeueBatch({ max: 9, lease: "1h" });
    assert.equal(others.length, 9);
    const redelivered = (await jobs.dequeue({ wait: "1m", lease: "1h" })) as Task;
    assert.deepEqual([redelivered.id, redelivered.attempt], [slow.id, 2]);
    await rejectsWith("ERR_STALE_LEASE", jobs.ack(slow));
    await jobs.ackBatch([...others, redelivered]);
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 0, leased: 0, dead: 0 });
    await log.append("after");
    assert.deepEqual(
      (await group.read({ wait: "1m" })).map(({ payload }) => payload.toString()),
      ["after"],
    );
    assert.equal((await group.position()).active, true);
    await eventually("the tail goes on", () => tailed.length === 2);
    assert.equal(served.listening.server.connections, 1);
    stop.abort();
    await tailing;
    await served.end();
  }));
