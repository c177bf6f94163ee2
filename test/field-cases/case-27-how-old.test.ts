import assert from "node:assert/strict";
import { test } from "node:test";
import type { Task } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";
import { openAt } from "../support/manual.js";
import { ManualClock } from "../support/manual-clock.js";
import { scaled } from "../support/scale.js";
import { takeAll } from "../support/state.js";

void test("case 27: the age of the oldest work counts from when it could be done", async () => {
  await withDirectory(async (directory) => {
    const clock = new ManualClock();
    let mq = await openAt(clock, directory);
    let jobs = await mq.openTask("jobs", { lease: "24h", maxAttempts: 1 });
    assert.equal((await jobs.stats()).oldestReadyAge, 0, "0 when there is none");
    await jobs.enqueueBatch(["a", "b"], { delay: "10m" });
    await clock.pass(540_000);
    assert.equal((await jobs.stats()).oldestReadyAge, 0, "delayed on purpose is not late");
    assert.equal((await jobs.stats()).nextDueIn, 60_000);
    await clock.pass(120_000);
    assert.equal((await jobs.stats()).oldestReadyAge, 60_000);
    for (let index = 0; index < 20; index++) {
      await jobs.enqueue("urgent");
      await clock.pass(1_000);
    }
    assert.equal((await jobs.stats()).oldestReadyAge, 80_000, "newer work does not hide it");
    await mq.close();
    mq = await openAt(clock, directory);
    jobs = await mq.openTask("jobs");
    await clock.pass(20_000);
    assert.equal((await jobs.stats()).oldestReadyAge, 100_000, "a reopen does not make it young");
    const tasks = await takeAll(jobs);
    assert.equal(tasks.length, 22);
    assert.equal((await jobs.stats()).oldestReadyAge, 0);
    await clock.pass(5_000);
    assert.equal((await jobs.stats()).oldestLeaseAge, 5_000);
    await jobs.nack(tasks[0] as Task);
    await clock.pass(3_000);
    await jobs.nack(tasks[1] as Task);
    await clock.pass(4_000);
    const stats = await jobs.stats();
    assert.equal(stats.oldestLeaseAge, 12_000);
    assert.equal(stats.oldestDeadAge, 7_000);
    await mq.close();
  });
});

void test("case 27: work of a low priority grows old behind a stream of urgent work, and that shows", async () => {
  await withDirectory(async (directory) => {
    const clock = new ManualClock();
    let mq = await openAt(clock, directory);
    let jobs = await mq.openTask("jobs");
    const { id } = await jobs.enqueue("patient", { priority: 1 });
    for (let minute = 1; minute <= 10; minute++) {
      await jobs.enqueueBatch(["urgent", "urgent"], { priority: 8 });
      await clock.pass(60_000);
      for (const task of await jobs.dequeueBatch({ max: 2 })) {
        assert.notEqual(task.id, id);
        await jobs.ack(task);
      }
      assert.equal((await jobs.stats()).oldestReadyAge, minute * 60_000);
    }
    await mq.close();
    mq = await openAt(clock, directory);
    jobs = await mq.openTask("jobs");
    assert.equal((await jobs.stats()).oldestReadyAge, 600_000);
    assert.equal((await jobs.dequeue())?.id, id);
    assert.equal((await jobs.stats()).oldestReadyAge, 0);
    await mq.close();
  });
});

void test("case 27: stats cost the same whatever the backlog, and read no payload", async () => {
  await withDirectory(async (directory) => {
    const clock = new ManualClock();
    const options = { durability: "async", walFileBytes: "1MiB", segmentBytes: "1MiB" } as const;
    const mq = await openAt(clock, directory, options);
    const jobs = await mq.openTask("jobs");
    const empty = await mq.openTask("empty");
    const payload = "x".repeat(100);
    for (let index = 0; index < scaled(50_000); index += 500) {
      await jobs.enqueueBatch(Array.from({ length: 500 }, () => payload));
    }
    const cost = async (queue: typeof jobs): Promise<number> => {
      const start = performance.now();
      for (let call = 0; call < 200; call++) await queue.stats();
      return performance.now() - start;
    };
    await cost(jobs);
    await cost(empty);
    const blocks = (await mq.stats()).memory;
    const ratios: number[] = [];
    for (let round = 0; round < 5; round++) ratios.push((await cost(jobs)) / (await cost(empty)));
    assert.ok(Math.min(...ratios) < 5, `stats of a full queue take ${Math.min(...ratios)} times those of an empty one`);
    assert.deepEqual((await mq.stats()).memory, blocks, "nothing was read");
    assert.equal((await jobs.stats()).ready, scaled(50_000));
    await mq.close();
  });
});
