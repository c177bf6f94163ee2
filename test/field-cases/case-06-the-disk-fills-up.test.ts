import assert from "node:assert/strict";
import { test } from "node:test";
import { isVarveError, type MessageQueue, type Task, type TaskQueue } from "../../src/index.js";
import { scaled } from "../support/scale.js";
import { type Seeded, seedOr, withSeed } from "../support/seeded.js";
import { Simulated, TINY } from "../support/simulated.js";
import { textsOf } from "../support/state.js";

/** Of a disk on which space is kept in reserve from the start. */
const DISK_BYTES = 1024 ** 3;
/** Fills the disk to where varve starts out, and somewhat more. */
const SPARE_BYTES_MAX = 1_500_000;

/** What was acknowledged. */
interface Model {
  readonly records: string[];
  readonly tasks: Set<string>;
}

void test("case 6: a full disk refuses what needs space, and nothing else", async () => {
  await withSeed(seedOr(606), async (random) => {
    let reached = 0;
    for (let trial = 0; trial < scaled(25); trial++) if (await fillDrainAndRefill(random, trial)) reached++;
    assert.ok(reached > 10, `the disk was full in only ${reached} trials`);
  });
});

async function fillDrainAndRefill(random: Seeded, trial: number): Promise<boolean> {
  const machine = Simulated.boot(random.uint32(), { capacityBytes: DISK_BYTES });
  const model: Model = { records: [], tasks: new Set() };
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("events"));
  const jobs = await machine.settle(mq.openTask("jobs", { lease: "24h" }));
  machine.disk.capacityBytes = machine.disk.usedBytes + random.below(SPARE_BYTES_MAX);
  let full = false;
  for (let index = 0; index < 2000 && !full; index++) full = await produce(machine, mq, random, model, index);
  if (!full) {
    await machine.settle(mq.close());
    return false;
  }
  const where = `trial ${trial}`;
  assert.equal((await machine.settle(mq.stats())).health, "disk-full", where);
  assert.deepEqual(await machine.settle(textsOf(log)), model.records, `${where}: the log reads on`);
  if (random.chance(0.5)) {
    const half = Math.floor(model.records.length / 2);
    assert.equal(await machine.settle(log.trim(half)), half, where);
    model.records.splice(0, half);
  }
  await drain(machine, jobs, model, where);
  if (random.chance(0.5)) {
    machine.disk.capacityBytes = Number.POSITIVE_INFINITY;
    await recovers(machine, mq, model, where);
    await machine.settle(mq.close());
    const next = machine.kill();
    await check(next, await next.open(), model, where);
  } else {
    const next = random.chance(0.5) ? machine.kill() : machine.cutPower("random");
    const again = await next.open();
    await check(next, again, model, `${where}, opened on a full disk`);
    next.disk.capacityBytes = Number.POSITIVE_INFINITY;
    await recovers(next, again, model, where);
  }
  return true;
}

/** Appends and enqueues; true if the disk is full. */
async function produce(
  machine: Simulated,
  mq: MessageQueue,
  random: Seeded,
  model: Model,
  index: number,
): Promise<boolean> {
  const log = await machine.settle(mq.openLog("events"));
  const jobs = await machine.settle(mq.openTask("jobs"));
  const text = `${index} ${"x".repeat(random.below(6000))}`;
  const batch = [text, `${text}/1`, `${text}/2`];
  try {
    switch (random.below(4)) {
      case 0:
        await machine.settle(log.append(text));
        model.records.push(text);
        break;
      case 1:
        await machine.settle(log.appendBatch(batch));
        model.records.push(...batch);
        break;
      case 2:
        await machine.settle(jobs.enqueueBatch(batch));
        for (const item of batch) model.tasks.add(item);
        break;
      default:
        await machine.settle(
          mq.transaction((tx) => {
            tx.append(log, text);
            tx.enqueue(jobs, text);
          }),
        );
        model.records.push(text);
        model.tasks.add(text);
    }
    return false;
  } catch (error) {
    if (!isVarveError(error, "ERR_DISK_FULL")) throw error;
    return true;
  }
}

/** Takes, extends, gives back and finishes every task. */
async function drain(machine: Simulated, jobs: TaskQueue, model: Model, where: string): Promise<void> {
  let round = 0;
  while (model.tasks.size > 0) {
    const task = (await machine.settle(jobs.dequeue({ wait: "1h" }))) as Task;
    const text = task.payload.toString();
    assert.ok(model.tasks.has(text), `${where}: a task that was refused or is done: ${text.slice(0, 40)}`);
    if (round++ % 10 === 0) await machine.settle(jobs.extend(task, "25h"));
    if (round % 7 === 0 && task.attempt === 1) {
      await machine.settle(jobs.nack(task, { delay: 0 }));
    } else {
      await machine.settle(jobs.ack(task));
      model.tasks.delete(text);
    }
  }
  const { ready, scheduled, leased } = await machine.settle(jobs.stats());
  assert.deepEqual({ ready, scheduled, leased }, { ready: 0, scheduled: 0, leased: 0 }, where);
}

/** With space again, everything works without a reopen. */
async function recovers(machine: Simulated, mq: MessageQueue, model: Model, where: string): Promise<void> {
  await machine.pass(5_000);
  const log = await machine.settle(mq.openLog("events"));
  for (let index = 0; index < 30; index++) {
    const text = `after ${index} ${"y".repeat(5000)}`;
    await machine.settle(log.append(text));
    model.records.push(text);
  }
  assert.equal((await machine.settle(mq.stats())).health, "ok", where);
  await check(machine, mq, model, where);
}

async function check(machine: Simulated, mq: MessageQueue, model: Model, where: string): Promise<void> {
  const log = await machine.settle(mq.openLog("events"));
  const jobs = await machine.settle(mq.openTask("jobs"));
  assert.deepEqual(await machine.settle(textsOf(log)), model.records, `${where}: the records`);
  const { ready, scheduled, leased } = await machine.settle(jobs.stats());
  assert.equal(ready + scheduled + leased, model.tasks.size, `${where}: the tasks`);
}

void test("case 6: a directory on a disk without a free byte opens and can be drained", async () => {
  const machine = Simulated.boot(66, { capacityBytes: DISK_BYTES });
  const mq = await machine.open({ ...TINY, durability: "async" });
  const jobs = await machine.settle(mq.openTask("jobs"));
  for (let index = 0; index < 200; index++) await machine.settle(jobs.enqueue(`${index}`.padEnd(2000, ".")));
  await machine.settle(mq.sync());
  const next = machine.kill();
  next.disk.capacityBytes = next.disk.usedBytes;
  const again = await next.open();
  const tasks = await next.settle(again.openTask("jobs"));
  for (let index = 0; index < 200; index++) {
    const task = (await next.settle(tasks.dequeue())) as Task;
    assert.ok(task.payload.toString().startsWith(`${index}.`));
    await next.settle(tasks.ack(task));
  }
  await next.settle(again.close());
});
