import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { open } from "../../src/index.js";
import { bytesBelow, withDirectory } from "../support/directories.js";
import { eventually } from "../support/expect.js";
import { scaled } from "../support/scale.js";
import { cutAtEveryCall, Simulated } from "../support/simulated.js";
import { deadOf } from "../support/state.js";
import { everywhere } from "./served.js";

const OPTIONS = { walFileBytes: "1MiB", segmentBytes: "256KiB", durability: "async" } as const;

void test("case 13: dead letters are all there until redriven or purged, and then their space is back", async () => {
  await withDirectory(async (directory) => {
    const count = scaled(10_000);
    const redriven = count / 5;
    let mq = await open(directory, OPTIONS);
    let jobs = await mq.openTask("jobs", { maxAttempts: 1 });
    for (let index = 0; index < count; index += 100) {
      await jobs.enqueueBatch(Array.from({ length: 100 }, (_, step) => `${index + step}`.padEnd(500, ".")));
      for (const task of await jobs.dequeueBatch({ max: 100 })) void jobs.nack(task, { error: "no use" });
    }
    await mq.sync();
    assert.equal((await jobs.stats()).dead, count, "nothing was dropped");
    await mq.close();
    const fullBytes = bytesBelow(join(directory, "task"));
    mq = await open(directory, OPTIONS);
    jobs = await mq.openTask("jobs");
    const letters = await deadOf(jobs);
    assert.equal(letters.length, count);
    for (const [index, letter] of letters.entries()) {
      if (Number.parseInt(letter.raw.toString(), 10) !== index) assert.fail(`letter ${index} is ${letter.raw}`);
    }
    const stats = await jobs.stats();
    assert.equal(stats.dead, count);
    assert.ok(stats.bytes > count * 500, "their size shows");
    assert.equal(await jobs.dead.redrive({ limit: redriven }), redriven);
    assert.equal((await jobs.stats()).dead, count - redriven);
    let done = 0;
    for (;;) {
      const tasks = await jobs.dequeueBatch({ max: 500 });
      if (tasks.length === 0) break;
      for (const task of tasks) assert.ok(Number.parseInt(task.payload.toString(), 10) < redriven);
      await jobs.ackBatch(tasks);
      done += tasks.length;
    }
    assert.equal(done, redriven);
    assert.equal(await jobs.dead.purge(), count - redriven);
    assert.deepEqual(await jobs.dead.read(), []);
    assert.equal((await jobs.stats()).dead, 0);
    await mq.close();
    const emptyBytes = bytesBelow(join(directory, "task"));
    assert.ok(emptyBytes < 64 * 1024, `${emptyBytes} of ${fullBytes} bytes are left after a checkpoint`);
    mq = await open(directory, OPTIONS);
    assert.deepEqual(await (await mq.openTask("jobs")).dead.read(), []);
    await mq.close();
  });
});

for (const limit of [1, scaled(200)]) {
  everywhere(
    `case 13: with a limit of ${limit} dead letters the newest remain, and each that goes is counted`,
    async (mq, reopen) => {
      const count = scaled(10_000);
      const jobs = await mq.openTask("jobs", { maxAttempts: 1, maxDeadLetters: limit });
      for (let index = 0; index < count; index += 100) {
        await jobs.enqueueBatch(Array.from({ length: 100 }, (_, step) => `${index + step}`));
        for (const task of await jobs.dequeueBatch({ max: 100 })) void jobs.nack(task, { error: "no use" });
        const { dead, died, deadDropped } = await jobs.stats();
        assert.equal(dead + deadDropped, died, "none goes uncounted");
      }
      await eventually("the limit holds", async () => {
        const { dead, died } = await jobs.stats();
        return died === count && dead === limit;
      });
      assert.equal((await jobs.stats()).deadDropped, count - limit);
      const expected = Array.from({ length: limit }, (_, index) => `${count - limit + index}`);
      const texts = async (queue: typeof jobs) => (await deadOf(queue)).map(({ raw }) => raw.toString());
      assert.deepEqual(await texts(jobs), expected);
      const again = await (await reopen()).openTask("jobs");
      assert.equal((await again.stats()).dead, limit);
      assert.deepEqual(await texts(again), expected);
      assert.equal(await again.dead.redrive({ limit: 1 }), 1);
      assert.equal(await again.dead.purge(), limit - 1);
      assert.equal((await again.stats()).deadDropped, 0, "what was asked for is not what was dropped");
    },
    OPTIONS,
  );
}

void test("case 13: a power cut while dead letters are dropped costs none of the newest", async () => {
  const base = Simulated.boot(1313);
  const mq = await base.open();
  const setup = await base.settle(mq.openTask("jobs", { maxAttempts: 1, maxDeadLetters: 2 }));
  await base.settle(setup.enqueueBatch(["0", "1", "2", "3", "4", "5"]));
  await base.settle(mq.close());
  let restored = 0;
  const trials = await cutAtEveryCall(
    base,
    ["none", "all"],
    async (queue) => {
      const jobs = await queue.openTask("jobs");
      for (const task of await jobs.dequeueBatch({ max: 6 })) await jobs.nack(task);
    },
    async ({ mq: again, machine, acknowledged }) => {
      const jobs = await machine.settle(again.openTask("jobs"));
      await machine.pass(1000);
      const letters = await machine.settle(deadOf(jobs));
      const { dead } = await machine.settle(jobs.stats());
      assert.equal(letters.length, dead);
      assert.ok(dead <= 2, `${dead} dead letters`);
      const numbers = letters.map(({ raw }) => Number(raw.toString()));
      if (acknowledged) assert.deepEqual(numbers, [4, 5]);
      assert.ok(numbers.length < 2 || numbers[1] === Number(numbers[0]) + 1, `the newest are left: ${numbers}`);
      if (dead > 0) restored++;
    },
  );
  assert.ok(trials > 10 && restored > 2, `${trials} cuts, ${restored} with letters`);
});
