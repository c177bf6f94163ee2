/**
 * The disk is filled by others, to the last byte, while no process is there to see: the directory opens all the same, can
 * be drained, and takes messages again when there is space.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { isVarveError, type LogQueue, type MessageQueue, type OpenOptions, type TaskQueue } from "../../src/index.js";
import { openEmbedded } from "../../src/queues/open.js";
import { Simulated, TINY } from "../support/simulated.js";

/** Space comes back, and the checkpoint that waits for it is tried every second. */
const RETRY_MS = 3000;

interface Filled {
  readonly machine: Simulated;
  readonly records: readonly string[];
  readonly tasks: number;
}

/** A directory with a backlog, whose process was killed. */
async function filled(seed: number, options: OpenOptions, bytes: number, taskBytes: number): Promise<Filled> {
  const machine = Simulated.boot(seed);
  const mq = await machine.open(options);
  const { log, jobs } = await queues(machine, mq);
  const records: string[] = [];
  let tasks = 0;
  let written = 0;
  while (written < bytes) {
    const text = `${records.length} `.padEnd(taskBytes * 4, "x");
    await machine.settle(log.append(text));
    records.push(text);
    const batch = Array.from({ length: 50 }, () => Buffer.alloc(taskBytes));
    await machine.settle(jobs.enqueueBatch(batch));
    tasks += batch.length;
    written += (batch.length + 4) * taskBytes;
  }
  // Some are under way, and some done.
  for (let count = 0; count < 20 && tasks > 0; count++) {
    const task = await machine.settle(jobs.dequeue());
    assert.ok(task !== undefined);
    if (count % 2 === 0) await machine.settle(jobs.nack(task));
    else {
      await machine.settle(jobs.ack(task));
      tasks--;
    }
  }
  return { machine: machine.kill(), records, tasks };
}

async function queues(machine: Simulated, mq: MessageQueue): Promise<{ log: LogQueue; jobs: TaskQueue }> {
  const log = await machine.settle(mq.openLog("events"));
  const jobs = await machine.settle(mq.openTask("jobs", { lease: "1s", backoff: { initial: 0 }, maxAttempts: 1000 }));
  return { log, jobs };
}

function fill(machine: Simulated): void {
  machine.disk.capacityBytes = machine.disk.usedBytes;
}

/** Opens at 0 bytes free, reads, drains, and gets well when space comes. */
async function opensAndDrains({ machine, records, tasks }: Filled, options: OpenOptions): Promise<void> {
  fill(machine);
  const mq = await machine.open(options);
  const { log, jobs } = await queues(machine, mq);
  fill(machine);
  assert.deepEqual(await machine.settle(allOf(log)), records);
  const large = Buffer.alloc(20_000);
  let room = 0;
  for (; (await machine.settle(codeOf(jobs.enqueue(large)))) === undefined; room++) fill(machine);
  assert.ok(room < 1000, "a full disk takes no end of messages");
  let done = 0;
  for (let left = await machine.settle(countOf(jobs)); left > 0; left = await machine.settle(countOf(jobs))) {
    // One by one where there are few: that takes the most of the log.
    const max = left > 3000 ? 100 : left > 300 ? 10 : 1;
    const batch = await machine.settle(jobs.dequeueBatch({ max, wait: "10s" }));
    assert.ok(batch.length > 0, `${left} tasks are left and none comes`);
    await machine.settle(jobs.ackBatch(batch));
    done += batch.length;
  }
  assert.equal(done, tasks + room);
  await machine.settle(log.trim(records.length));
  machine.disk.capacityBytes = Number.POSITIVE_INFINITY;
  await machine.pass(RETRY_MS);
  for (let count = 0; count < 30; count++) await machine.settle(log.append(large));
  assert.equal((await machine.settle(mq.stats())).health, "ok");
  await machine.settle(mq.close());
}

async function countOf(jobs: TaskQueue): Promise<number> {
  const { ready, leased, scheduled } = await jobs.stats();
  return ready + leased + scheduled;
}

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

for (const [walFileBytes, taskBytes, upToBytes, stepBytes] of [
  ["256KiB", 4, 40_000, 2500],
  ["256KiB", 1000, 1_500_000, 70_000],
  ["1MiB", 300, 2_000_000, 250_000],
  ["4MiB", 2000, 9_000_000, 1_500_000],
] as const) {
  const options = { ...TINY, walFileBytes };
  void test(`opens at 0 bytes free and is drained: log files of ${walFileBytes}, tasks of ${taskBytes} bytes`, async () => {
    for (let bytes = stepBytes; bytes <= upToBytes; bytes += stepBytes) {
      await opensAndDrains(await filled(bytes, options, bytes, taskBytes), options);
    }
  });
}

void test("opens at 0 bytes free however often it was killed while opening", async () => {
  let killed = 0;
  for (let call = 1; ; call += 1) {
    const scene = await filled(call, TINY, 400_000, 1000);
    let { machine } = scene;
    for (let times = 0; times < 4; times++) {
      fill(machine);
      machine.disk.haltAt(machine.disk.calls + call);
      const { disk, clock, random } = machine;
      const outcome = await machine.outcomeOf(openEmbedded("/srv/data", TINY, { disk, clock, random: random.fork() }));
      if (outcome.kind === "rejected") throw outcome.error;
      if (machine.disk.halted) killed++;
      machine = machine.kill();
    }
    if (call > 120) break;
    fill(machine);
    const mq = await machine.open(TINY);
    const { log } = await queues(machine, mq);
    assert.deepEqual(await machine.settle(allOf(log)), scene.records, `call ${call}`);
  }
  assert.ok(killed > 100, `only ${killed} kills`);
});

void test("is drained after a kill in the midst of a checkpoint on a full disk, whatever others take meanwhile", async () => {
  const large = Buffer.alloc(4000);
  let killed = 0;
  for (let call = 1; call <= 60; call += 2) {
    const machine = Simulated.boot(call);
    const mq = await machine.open();
    const { log, jobs } = await queues(machine, mq);
    const record = "first";
    await machine.settle(log.append(record));
    machine.disk.capacityBytes = machine.disk.usedBytes + 1_500_000 + call * 1000;
    let tasks = 0;
    while ((await machine.settle(codeOf(jobs.enqueue(large)))) === undefined) tasks++;
    machine.disk.haltAt(machine.disk.calls + call);
    await machine.outcomeOf(new Promise<void>((resolve) => machine.clock.setTimer(500, resolve)));
    if (machine.disk.halted) killed++;
    await opensAndDrains({ machine: machine.kill(), records: [record], tasks }, TINY);
  }
  assert.ok(killed > 15, `only ${killed} kills`);
});

void test("opens, to be read, though others take what is given up at once; takes changes when they give it back", async () => {
  for (let bytes = 50_000; bytes <= 1_000_000; bytes += 50_000) {
    const { machine, records, tasks } = await filled(bytes, TINY, bytes, 1000);
    fill(machine);
    machine.disk.onCall = () => {
      machine.disk.capacityBytes = Math.min(machine.disk.capacityBytes, machine.disk.usedBytes);
    };
    const mq = await machine.open(TINY);
    const { log, jobs } = await queues(machine, mq);
    assert.deepEqual(await machine.settle(allOf(log)), records);
    assert.equal(await machine.settle(codeOf(log.append("more"))), "ERR_DISK_FULL");
    assert.equal((await machine.settle(mq.stats())).health, "disk-full");
    await machine.pass(RETRY_MS);
    machine.disk.onCall = undefined;
    machine.disk.capacityBytes = Number.POSITIVE_INFINITY;
    await machine.pass(RETRY_MS);
    await machine.settle(log.append("more"));
    let taken = 0;
    while (taken < tasks) {
      const batch = await machine.settle(jobs.dequeueBatch({ max: 1000, lease: "1h" }));
      assert.ok(batch.length > 0, `${taken} of ${tasks} tasks`);
      taken += batch.length;
    }
    const next = machine.kill();
    const again = await queues(next, await next.open(TINY));
    assert.deepEqual(await next.settle(allOf(again.log)), [...records, "more"]);
  }
});

void test("opens though a write had failed before and others take what is given up; what is read is durable", async () => {
  const { machine, records } = await filled(7, TINY, 300_000, 1000);
  const mq = await machine.open(TINY);
  const { log } = await queues(machine, mq);
  machine.disk.onCall = (kind, path, call) => {
    if (kind === "sync" && path.endsWith(".wal")) machine.disk.failAt(call, { errno: "EIO", pages: "kept" });
  };
  assert.equal(await machine.settle(codeOf(log.append("late"))), "ERR_OUTCOME_UNKNOWN");
  machine.disk.onCall = undefined;
  let next = machine.kill();
  fill(next);
  const { disk } = next;
  disk.onCall = () => {
    disk.capacityBytes = Math.min(disk.capacityBytes, disk.usedBytes);
  };
  const reopened = await next.open(TINY);
  const found = await next.settle(allOf((await queues(next, reopened)).log));
  assert.deepEqual(found.slice(0, records.length), records);
  assert.equal((await next.settle(reopened.stats())).health, "disk-full");
  next = next.cutPower("none");
  next.disk.capacityBytes = Number.POSITIVE_INFINITY;
  const last = await queues(next, await next.open(TINY));
  assert.deepEqual(await next.settle(allOf(last.log)), found);
});

void test("what an open that failed on a full disk was to try again is not tried after another one", async () => {
  const { machine, records } = await filled(9, TINY, 300_000, 1000);
  const mq = await machine.open(TINY);
  const { log } = await queues(machine, mq);
  machine.disk.onCall = (kind, path, call) => {
    if (kind === "sync" && path.endsWith(".wal")) machine.disk.failAt(call, { errno: "EIO", pages: "kept" });
  };
  assert.equal(await machine.settle(codeOf(log.append("late"))), "ERR_OUTCOME_UNKNOWN");
  let next = machine.kill();
  // Nothing that is written in the thread pool finds room: neither a checkpoint, nor the log once more.
  next.disk.onCall = (kind, _path, call) => {
    if (kind === "write") next.disk.failAt(call, { errno: "ENOSPC" });
  };
  assert.equal(await codeOf(next.open(TINY)), "ERR_DISK_FULL");
  next.disk.onCall = undefined;
  const again = await queues(next, await next.open(TINY));
  await next.pass(RETRY_MS);
  await next.settle(again.log.append("more"));
  next = next.cutPower("none");
  const last = await queues(next, await next.open(TINY));
  const found = await next.settle(allOf(last.log));
  assert.deepEqual(found.slice(0, records.length), records);
  assert.equal(found.at(-1), "more");
});
