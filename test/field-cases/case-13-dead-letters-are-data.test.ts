import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { open } from "../../src/index.js";
import { bytesBelow, withDirectory } from "../support/directories.js";
import { scaled } from "../support/scale.js";
import { deadOf } from "../support/state.js";

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
