import assert from "node:assert/strict";
import { test } from "node:test";
import type { MessageQueue, Task, TaskQueue } from "../../src/index.js";
import { CRASH_POLICIES } from "../sim/sim-disk.js";
import { bytesBelow, withDirectory } from "../support/directories.js";
import { eventually } from "../support/expect.js";
import { openAt } from "../support/manual.js";
import { ManualClock } from "../support/manual-clock.js";
import { scaled } from "../support/scale.js";
import { cutAtEveryCall, Simulated } from "../support/simulated.js";
import { takeAll } from "../support/state.js";

const OPTIONS = {
  durability: "async",
  walFileBytes: "1MiB",
  segmentBytes: "256KiB",
  maxMessageBytes: "64KiB",
} as const;
/** What a queue's segments may take is a segment more than twice what is needed of them, and their indexes. */
const LEFT_BYTES = 256 * 1024 + 64 * 1024;
/** Log files in use and to spare, what is held back for a full disk, and a segment that is being filled. */
const FIXED_BYTES = 16 * 1024 * 1024;

async function enqueue(jobs: TaskQueue, count: number): Promise<void> {
  for (let done = 0; done < count; done += 500) {
    await jobs.enqueueBatch(Array.from({ length: Math.min(500, count - done) }, (_, index) => body(done + index)));
  }
}

function body(index: number): string {
  return `${index} ${"x".repeat(100)}`;
}

/** Finishes all tasks but one in `every`, of which it returns the leased ones. */
async function finish(jobs: TaskQueue, every: number): Promise<Task[]> {
  const kept: Task[] = [];
  for (let index = 0; ; ) {
    const tasks = await jobs.dequeueBatch({ max: 500 });
    if (tasks.length === 0) return kept;
    const done = tasks.filter(() => index++ % every !== 0);
    kept.push(...tasks.filter((task) => !done.includes(task)));
    await jobs.ackBatch(done);
  }
}

/** Has the log move on to another file, so that there are checkpoints. */
async function moveOn(mq: MessageQueue): Promise<void> {
  const log = await mq.openLog("passing");
  for (let files = 0; files < 2; files++) {
    for (let written = 0; written < 1024 * 1024; written += 32 * 1024) await log.append(Buffer.alloc(32 * 1024));
    await log.trim((await log.stats()).next);
  }
}

void test("case 11: tasks that are left over do not hold the segments that they came in", async () => {
  await withDirectory(async (directory) => {
    const clock = new ManualClock();
    const mq = await openAt(clock, directory, OPTIONS);
    const jobs = await mq.openTask("jobs", { lease: "24h" });
    const count = scaled(40_000);
    await enqueue(jobs, count);
    await moveOn(mq);
    assert.ok((await jobs.stats()).ready === count);
    const kept = await finish(jobs, 2000);
    await moveOn(mq);
    await eventually("the segments of the tasks are gone", async () => {
      await moveOn(mq);
      await clock.pass(1000); // the rewriter rests by the clock while checkpoints are behind
      return bytesBelow(`${directory}/task`) < 4 * kept.length * body(0).length + LEFT_BYTES;
    });
    assert.ok(bytesBelow(directory) < FIXED_BYTES, "and nothing else has grown");
    for (const task of kept) await jobs.nack(task, { delay: 0 });
    const again = await takeAll(jobs);
    assert.deepEqual(
      again.map(({ payload }) => payload.toString()),
      Array.from({ length: kept.length }, (_, index) => body(index * 2000)),
    );
    await jobs.ackBatch(again);
    await mq.close();
    const reopened = await openAt(new ManualClock(), directory, OPTIONS);
    const stats = await (await reopened.openTask("jobs")).stats();
    assert.equal(stats.ready + stats.leased + stats.scheduled, 0);
    await reopened.close();
  });
});

void test("case 11: giving back the same tasks again and again takes no more space", async () => {
  await withDirectory(async (directory) => {
    const clock = new ManualClock();
    const mq = await openAt(clock, directory, OPTIONS);
    const jobs = await mq.openTask("jobs", { maxAttempts: Number.POSITIVE_INFINITY });
    const count = scaled(500);
    await enqueue(jobs, count);
    const sizes: number[] = [];
    for (let round = 0; round < 100; round++) {
      for (const task of await takeAll(jobs)) await jobs.nack(task, { delay: 1000 });
      await clock.pass(1001);
      if (round % 10 === 9) sizes.push(bytesBelow(directory));
    }
    assert.equal((await takeAll(jobs)).length, count);
    const [first = 0] = sizes.slice(3);
    for (const size of sizes.slice(4)) assert.ok(size <= first + 1024 * 1024, `it grew: ${sizes.join(", ")}`);
    await mq.close();
  });
});

void test("case 11: a task that is a year off does not hold those that pass it", async () => {
  await withDirectory(async (directory) => {
    const mq = await openAt(new ManualClock(), directory, OPTIONS);
    const jobs = await mq.openTask("jobs");
    const { id } = await jobs.enqueue("in a year", { delay: "365d" });
    for (let round = 0; round < 10; round++) {
      await enqueue(jobs, scaled(5000));
      await finish(jobs, Number.POSITIVE_INFINITY);
    }
    await eventually("only one task is left on the disk", async () => {
      await moveOn(mq);
      return bytesBelow(`${directory}/task`) < 512 * 1024;
    });
    assert.ok(bytesBelow(directory) < FIXED_BYTES);
    const { scheduled, ready } = await jobs.stats();
    assert.deepEqual([scheduled, ready], [1, 0]);
    assert.ok(id !== "");
    await mq.close();
  });
});

void test("case 11: wherever the power fails, the tasks that are left are there, and those that are done are not", async () => {
  const base = Simulated.boot(1111);
  const mq = await base.open();
  const jobs = await base.settle(mq.openTask("jobs", { lease: "24h" }));
  const count = 100;
  for (let index = 0; index < count; index++) {
    await base.settle(jobs.enqueue(`${index} ${"x".repeat(2000)}`));
  }
  const tasks = await base.settle(jobs.dequeueBatch({ max: count }));
  await base.settle(mq.close());
  const left = (index: number) => index % 20 === 7;
  let rewritten = 0;
  const trials = await cutAtEveryCall(
    base,
    CRASH_POLICIES,
    async (again) => {
      const queue = await again.openTask("jobs");
      await queue.ackBatch(tasks.filter((_, index) => !left(index)));
      // The next checkpoint sees that most of what stands in segments is done, and has it rewritten.
      const log = await again.openLog("passing");
      for (let index = 0; index < 12; index++) await log.append(Buffer.alloc(30_000));
      await again.sync();
      await again.close();
    },
    async ({ mq: again, machine }) => {
      const queue = await machine.settle(again.openTask("jobs"));
      const folder = "/srv/data/task/jobs/p0";
      if (machine.disk.list(folder).some((name) => name.includes("-"))) rewritten++;
      const { leased } = await machine.settle(queue.stats());
      assert.ok(leased === 5 || leased === count, `${leased} tasks are leased`);
      await machine.pass(25 * 3_600_000);
      const payloads = (await machine.settle(takeAll(queue))).map(({ payload }) =>
        Number.parseInt(payload.toString(), 10),
      );
      payloads.sort((a, b) => a - b);
      if (leased === 5) assert.deepEqual(payloads, [7, 27, 47, 67, 87]);
      else assert.equal(payloads.length, count);
    },
  );
  assert.ok(trials > 20 * CRASH_POLICIES.length, `${trials} trials`);
  assert.ok(rewritten > 0, "segments were rewritten");
});
