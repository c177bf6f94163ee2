import assert from "node:assert/strict";
import { test } from "node:test";
import type { Task } from "../../src/index.js";
import { CRASH_POLICIES } from "../sim/sim-disk.js";
import { cutAtEveryCall, Simulated } from "../support/simulated.js";
import { deadOf } from "../support/state.js";

const COUNT = 40;

async function withDeadLetters(): Promise<Simulated> {
  const machine = Simulated.boot(2323);
  const mq = await machine.open();
  const jobs = await machine.settle(mq.openTask("jobs", { maxAttempts: 1, lease: "24h" }));
  const texts = Array.from({ length: COUNT }, (_, index) => `${index} ${"x".repeat(index * 20)}`);
  await machine.settle(jobs.enqueueBatch(texts));
  for (const task of await machine.settle(jobs.dequeueBatch({ max: COUNT }))) {
    await machine.settle(jobs.nack(task, { error: "first" }));
  }
  await machine.settle(mq.close());
  return machine;
}

void test("case 23: a power cut during a redrive leaves each task in exactly one place", async () => {
  const trials = await cutAtEveryCall(
    await withDeadLetters(),
    CRASH_POLICIES,
    async (mq) => {
      assert.equal(await (await mq.openTask("jobs")).dead.redrive(), COUNT);
    },
    async ({ mq, machine, acknowledged }) => {
      const jobs = await machine.settle(mq.openTask("jobs"));
      const dead = (await machine.settle(deadOf(jobs))).map(({ id }) => id);
      const { ready, scheduled, leased, dead: deadCount } = await machine.settle(jobs.stats());
      assert.equal(deadCount, dead.length);
      assert.equal(ready + scheduled + leased + dead.length, COUNT, `${ready} ready, ${dead.length} dead`);
      if (acknowledged) assert.equal(dead.length, 0);
      const tasks = await machine.settle(jobs.dequeueBatch({ max: 1000 }));
      assert.ok(tasks.every(({ attempt }) => attempt === 1));
      const everywhere = [...dead, ...tasks.map(({ id }) => id)];
      assert.equal(new Set(everywhere).size, COUNT, "none in two places, none in no place");
    },
  );
  assert.ok(trials > CRASH_POLICIES.length, `${trials} trials`);
});

void test("case 23: a task that fails again after its redrive is a dead letter again, with both histories", async () => {
  const machine = await withDeadLetters();
  const next = machine.copy(1);
  let mq = await next.open();
  let jobs = await next.settle(mq.openTask("jobs"));
  const [letter] = await next.settle(jobs.dead.read({ limit: 1 }));
  assert.equal(await next.settle(jobs.dead.redrive({ ids: [letter?.id as string] })), 1);
  const after = next.kill();
  mq = await after.open();
  jobs = await after.settle(mq.openTask("jobs"));
  const task = (await after.settle(jobs.dequeue())) as Task;
  assert.equal(task.id, letter?.id);
  await after.settle(jobs.nack(task, { error: "second" }));
  const letters = await after.settle(deadOf(jobs));
  assert.equal(letters.length, COUNT);
  const same = letters.find(({ id }) => id === task.id);
  assert.deepEqual(
    same?.failures.map(({ error }) => error),
    ["first", "second"],
  );
  await after.settle(mq.close());
});
