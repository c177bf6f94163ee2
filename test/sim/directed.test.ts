/** What random plans come upon too seldom: each of these is a story of its own on the simulated machine. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { isVarveError, type LogQueue } from "../../src/index.js";
import { Simulated, TINY } from "../support/simulated.js";

/** Enough that either order of two things that are due at once is met. */
const TRIALS = 24;

void test("what was staged when a sync failed is not acknowledged, and stays away if it was refused", async () => {
  let refused = 0;
  for (let seed = 1; seed <= TRIALS; seed++) {
    const machine = Simulated.boot(seed);
    const mq = await machine.open();
    const log = await machine.settle(mq.openLog("events"));
    const first = codeOf(log.append("first"));
    let failed = false;
    machine.disk.onCall = (kind, _path, call) => {
      if (kind === "sync" && !failed) machine.disk.failAt(call, { errno: "EIO", pages: "reverted" });
      failed ||= kind === "sync";
    };
    await machine.clock.run(() => failed);
    // Now the failure and the end of the turn in which this is staged are due at once.
    machine.clock.stall(1000);
    const second = codeOf(log.append("second"));
    assert.equal(await machine.settle(first), "ERR_OUTCOME_UNKNOWN");
    const code = await machine.settle(second);
    assert.ok(code === "ERR_OUTCOME_UNKNOWN" || code === "ERR_READ_ONLY", `seed ${seed}: ${code}`);
    if (code !== "ERR_READ_ONLY") continue;
    refused++;
    const next = machine.kill();
    const again = await next.open();
    const payloads = await next.settle(allOf(await next.settle(again.openLog("events"))));
    assert.ok(!payloads.includes("second"), `seed ${seed}: refused, and there all the same`);
  }
  assert.ok(refused > 0 && refused < TRIALS, `both orders are met: refused ${refused} times of ${TRIALS}`);
});

void test("after a failed sync, offsets that were shown are not given out again", async () => {
  const machine = Simulated.boot(1);
  const options = { ...TINY, durability: "async" } as const;
  const mq = await machine.open(options);
  const log = await machine.settle(mq.openLog("events"));
  const offset = await machine.settle(log.append("shown"));
  machine.disk.onCall = (kind, _path, call) => {
    if (kind === "sync") machine.disk.failAt(call, { errno: "EIO", pages: "reverted" });
  };
  assert.equal(await machine.settle(codeOf(mq.sync())), "ERR_READ_ONLY");
  const next = machine.kill();
  const again = await next.open(options);
  const queue = await next.settle(again.openLog("events"));
  assert.ok((await next.settle(queue.append("another"))) > offset);
});

void test("a segment whose sync failed is not what readers are given", async () => {
  const machine = Simulated.boot(2);
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("events"));
  machine.disk.onCall = (kind, path, call) => {
    if (kind === "sync" && path.endsWith(".seg")) machine.disk.failAt(call, { errno: "EIO", pages: "reverted" });
  };
  const sent: string[] = [];
  for (let code: string | undefined; code === undefined; ) {
    const text = `${sent.length} `.padEnd(10_000, "x");
    code = await machine.settle(codeOf(log.append(text)));
    if (code === undefined) sent.push(text);
  }
  await machine.pass(1000);
  assert.ok(sent.length > 20);
  assert.deepEqual((await machine.settle(allOf(log))).slice(0, sent.length), sent);
});

void test("a full disk is drained, far past the end of a log file", async () => {
  const machine = Simulated.boot(3);
  const mq = await machine.open();
  const jobs = await machine.settle(mq.openTask("jobs", { lease: "24h" }));
  let tasks = 0;
  for (; tasks < 4000; tasks += 200) {
    await machine.settle(jobs.enqueueBatch(Array.from({ length: 200 }, () => "task")));
  }
  machine.disk.capacityBytes = machine.disk.usedBytes + 200_000;
  let code: string | undefined;
  while (code === undefined) {
    code = await machine.settle(codeOf(jobs.enqueue(Buffer.alloc(20_000))));
    if (code === undefined) tasks++;
  }
  assert.equal(code, "ERR_DISK_FULL");
  machine.disk.capacityBytes = machine.disk.usedBytes;
  const before = (await machine.settle(mq.stats())).wal.writtenBytes;
  for (; tasks > 0; tasks--) {
    const task = await machine.settle(jobs.dequeue());
    assert.ok(task !== undefined, `${tasks} tasks are left`);
    await machine.settle(jobs.ack(task));
  }
  const { wal, health } = await machine.settle(mq.stats());
  assert.notEqual(health, "failed");
  assert.ok(wal.writtenBytes - before > 256 * 1024, "more than a log file was written");
});

async function codeOf(run: Promise<unknown>): Promise<string | undefined> {
  try {
    await run;
    return undefined;
  } catch (error) {
    if (!isVarveError(error)) throw error;
    return error.code;
  }
}

async function allOf(log: LogQueue): Promise<string[]> {
  const payloads: string[] = [];
  for await (const batch of log.batches()) for (const { payload } of batch) payloads.push(payload.toString());
  return payloads;
}
