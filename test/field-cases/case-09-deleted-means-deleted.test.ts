import assert from "node:assert/strict";
import { test } from "node:test";
import type { Task } from "../../src/index.js";
import { CRASH_POLICIES } from "../sim/sim-disk.js";
import { cutAtEveryCall, Simulated } from "../support/simulated.js";
import { deadOf, recordsOf } from "../support/state.js";

const COUNT = 60;

async function prepared(): Promise<Simulated> {
  const machine = Simulated.boot(909);
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("events"));
  const jobs = await machine.settle(mq.openTask("jobs"));
  for (let index = 0; index < COUNT; index++) {
    await machine.settle(log.append(`${index} ${"x".repeat(4000)}`));
    await machine.settle(jobs.enqueue(`${index} ${"x".repeat(2000)}`, { maxAttempts: 1 }));
    await machine.settle(jobs.nack((await machine.settle(jobs.dequeue())) as Task, { error: "no" }));
  }
  await machine.settle(mq.close());
  return machine;
}

void test("case 9: a trim is durable and whole, wherever the power fails", async () => {
  const trials = await cutAtEveryCall(
    await prepared(),
    CRASH_POLICIES,
    async (mq) => {
      assert.equal(await (await mq.openLog("events")).trim(41), 41);
    },
    async ({ mq, machine, acknowledged }) => {
      const log = await machine.settle(mq.openLog("events"));
      const { head, next } = await machine.settle(log.stats());
      if (acknowledged) assert.equal(head, 41, "done");
      assert.ok(head === 0 || head === 41, `half a trim: the head is ${head}`);
      const offsets = (await machine.settle(recordsOf(log))).map(({ offset }) => offset);
      assert.deepEqual(
        offsets,
        Array.from({ length: COUNT - head }, (_, index) => head + index),
      );
      assert.equal(next, COUNT);
      assert.equal(await machine.settle(log.append("new")), COUNT, "no offset is given out again");
    },
  );
  assert.ok(trials > CRASH_POLICIES.length, `${trials} trials`);
});

void test("case 9: after trimming everything and a power cut, offsets go on", async () => {
  await cutAtEveryCall(
    await prepared(),
    CRASH_POLICIES,
    async (mq) => {
      const log = await mq.openLog("events");
      await log.trim(COUNT);
      await mq.close();
    },
    async ({ mq, machine }) => {
      const log = await machine.settle(mq.openLog("events"));
      assert.equal(await machine.settle(log.append("new")), COUNT);
    },
  );
});

void test("case 9: a purge of dead letters is durable and whole, wherever the power fails", async () => {
  const trials = await cutAtEveryCall(
    await prepared(),
    CRASH_POLICIES,
    async (mq) => {
      assert.equal(await (await mq.openTask("jobs")).dead.purge(), COUNT);
    },
    async ({ mq, machine, acknowledged }) => {
      const jobs = await machine.settle(mq.openTask("jobs"));
      const letters = await machine.settle(deadOf(jobs));
      if (acknowledged) assert.equal(letters.length, 0, "done");
      assert.ok(letters.length === 0 || letters.length === COUNT, `half a purge: ${letters.length} are left`);
      const stats = await machine.settle(jobs.stats());
      assert.equal(stats.dead, letters.length);
      assert.equal(stats.ready + stats.scheduled + stats.leased, 0, "what is purged does not come back as a task");
      assert.equal(await machine.settle(jobs.dead.redrive()), letters.length);
    },
  );
  assert.ok(trials > CRASH_POLICIES.length, `${trials} trials`);
});
