import assert from "node:assert/strict";
import { test } from "node:test";
import type { Task, TaskQueue } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";
import { openAt } from "../support/manual.js";
import { ManualClock } from "../support/manual-clock.js";

function textsOf(tasks: readonly Task[]): string[] {
  return tasks.map(({ payload }) => payload.toString());
}

async function takeAll(jobs: TaskQueue): Promise<Task[]> {
  const taken: Task[] = [];
  for (let task = await jobs.dequeue(); task !== undefined; task = await jobs.dequeue()) taken.push(task);
  return taken;
}

void test("case 24: with order by key, B and C wait while A fails and is tried again, over a restart too", async () => {
  await withDirectory(async (directory) => {
    const clock = new ManualClock();
    const options = { maxAttempts: 3, lease: "10s", backoff: { initial: "60s", factor: 1, jitter: 0 } } as const;
    let mq = await openAt(clock, directory);
    let jobs = await mq.openTask("jobs", options);
    for (const name of ["A", "B", "C"]) await jobs.enqueue(name, { orderKey: "customer 1" });
    await jobs.enqueue("other", { orderKey: "customer 2" });

    const [first, other] = await takeAll(jobs);
    assert.deepEqual(textsOf([first!, other!]), ["A", "other"]);
    await jobs.nack(first!);
    assert.deepEqual(await takeAll(jobs), [], "A waits for its next attempt, B and C for A");
    await mq.close();

    mq = await openAt(clock, directory);
    jobs = await mq.openTask("jobs");
    assert.deepEqual(await takeAll(jobs), []);
    await clock.pass(60_000);
    assert.deepEqual(textsOf(await takeAll(jobs)), ["other", "A"], "a lease that ran out comes back at once");
    // Both leases run out: A has its third and last attempt.
    await clock.pass(11_000);
    const last = (await takeAll(jobs)).find(({ orderKey }) => orderKey === "customer 1")!;
    assert.deepEqual([last.payload.toString(), last.attempt], ["A", 3]);
    assert.equal((await jobs.nack(last)).dead, true);

    const [next] = (await takeAll(jobs)).filter(({ orderKey }) => orderKey === "customer 1");
    assert.equal(next?.payload.toString(), "B", "A is dead, so B comes, and not C");
    assert.equal(await jobs.dead.redrive(), 1);
    await jobs.ack(next!);
    const [third] = await takeAll(jobs);
    assert.equal(third?.payload.toString(), "C", "A comes behind those that were there when it was redriven");
    await jobs.ack(third!);
    assert.deepEqual(textsOf(await takeAll(jobs)), ["A"]);
    await mq.close();
  });
});

void test("case 24: workers with many handlers keep the order of each key", async () => {
  await withDirectory(async (directory) => {
    const clock = new ManualClock();
    const mq = await openAt(clock, directory);
    const jobs = await mq.openTask("jobs", { maxAttempts: 10, backoff: { initial: 5, max: 5, jitter: 0 } });
    const keys = 5;
    const total = 100;
    for (let number = 0; number < total; number++) {
      await jobs.enqueue(String(number), { orderKey: `customer ${number % keys}` });
    }
    const running = new Set<string>();
    const done: number[][] = Array.from({ length: keys }, () => []);
    let count = 0;
    const workers = [1, 2].map(() =>
      jobs.work(
        async ({ payload, orderKey, attempt }) => {
          assert.ok(!running.has(orderKey!), "one of a key at a time");
          running.add(orderKey!);
          await new Promise(setImmediate);
          running.delete(orderKey!);
          const number = Number(payload.toString());
          if (number % 7 === 0 && attempt === 1) throw new Error("once more");
          done[number % keys]!.push(number);
          count++;
        },
        { concurrency: 8 },
      ),
    );
    const unexpected: unknown[] = [];
    for (const worker of workers) {
      worker.on("failed", (_, error) => {
        if ((error as Error).message !== "once more") unexpected.push(error);
      });
    }
    while (count < total) {
      await clock.pass(5);
      await new Promise(setImmediate);
    }
    for (const worker of workers) await worker.close();
    assert.deepEqual(unexpected, []);
    for (const [key, numbers] of done.entries()) {
      assert.deepEqual(
        numbers,
        Array.from({ length: total / keys }, (_, index) => key + index * keys),
      );
    }
    await mq.close();
  });
});
