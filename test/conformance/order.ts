import assert from "node:assert/strict";
import type { Task, TaskQueue } from "../../src/index.js";
import { takeAll } from "../support/state.js";
import { type Check, passUntil } from "./suite.js";

function textsOf(tasks: readonly Pick<Task, "payload">[]): string {
  return tasks.map(({ payload }) => payload.toString()).join(" ");
}

/** Enqueues tasks named after their keys: "a1" has the key "a"; "-1" has none. */
async function enqueueNamed(jobs: TaskQueue, names: string): Promise<void> {
  for (const name of names.split(" ")) {
    await jobs.enqueue(name, name.startsWith("-") ? {} : { orderKey: name.slice(0, 1) });
  }
}

async function takeOne(jobs: TaskQueue): Promise<Task> {
  const task = await jobs.dequeue();
  assert.ok(task !== undefined, "there is a task");
  return task;
}

/** Takes, notes and finishes tasks one by one until there is none. */
async function workOff(jobs: TaskQueue): Promise<string> {
  const done: string[] = [];
  for (let task = await jobs.dequeue(); task !== undefined; task = await jobs.dequeue()) {
    done.push(task.payload.toString());
    await jobs.ack(task);
  }
  return done.join(" ");
}

export function orderConformance(check: Check): void {
  check("order: one task of a key at a time, others go on meanwhile, over a reopen too", async ({ mq, reopen }) => {
    let jobs = await mq.openTask("jobs");
    await enqueueNamed(jobs, "a1 a2 b1 -1 a3 b2");
    const taken = await takeAll(jobs);
    assert.equal(textsOf(taken), "a1 b1 -1");
    assert.deepEqual(
      taken.map(({ orderKey }) => orderKey),
      ["a", "b", undefined],
    );
    const { ready, leased, blocked } = await jobs.stats();
    assert.deepEqual({ ready, leased, blocked }, { ready: 0, leased: 3, blocked: 3 });
    assert.equal((await mq.queues())[0]?.count, 6);
    jobs = await (await reopen()).openTask("jobs");
    assert.equal(textsOf(await takeAll(jobs)), "");
    await jobs.ack(taken[1]!);
    assert.equal((await jobs.stats()).blocked, 2);
    jobs = await (await reopen()).openTask("jobs");
    assert.equal(textsOf(await takeAll(jobs)), "b2");
    await jobs.ack(taken[0]!);
    assert.equal(textsOf(await takeAll(jobs)), "a2");
    assert.equal((await jobs.stats()).blocked, 1);
  });

  check("order: a task that waits for its next attempt stays ahead of its key's later ones", async (on) => {
    const jobs = await on.mq.openTask("jobs", { backoff: { initial: 1000, jitter: 0 } });
    await enqueueNamed(jobs, "a1 a2 b1");
    await jobs.nack(await takeOne(jobs));
    assert.equal(textsOf(await takeAll(jobs)), "b1");
    const again = (await passUntil(on, jobs.dequeue({ wait: "1h" }))) as Task;
    assert.deepEqual([again.payload.toString(), again.attempt], ["a1", 2]);
    assert.equal(await jobs.dequeue(), undefined);
    await jobs.release(again, { to: "tail" });
    assert.equal((await takeOne(jobs)).payload.toString(), "a1");
  });

  check("order: a lease that runs out gives the place to nobody else", async (on) => {
    const jobs = await on.mq.openTask("jobs", { lease: 500 });
    await enqueueNamed(jobs, "a1 a2");
    await takeOne(jobs);
    const again = (await passUntil(on, jobs.dequeue({ wait: "1h", lease: "1h" }))) as Task;
    assert.deepEqual([again.payload.toString(), again.attempt], ["a1", 2]);
    assert.equal(await jobs.dequeue(), undefined);
  });

  check("order: what dies, expires, or is cancelled or purged frees its key", async ({ mq, pass, reopen }) => {
    let jobs = await mq.openTask("jobs", { maxAttempts: 1 });
    await enqueueNamed(jobs, "a1 a2");
    const { id } = await jobs.enqueue("a3", { orderKey: "a" });
    await jobs.enqueue("a4", { orderKey: "a", ttl: 800 });
    await enqueueNamed(jobs, "a5 a6");
    const first = await takeOne(jobs);
    assert.equal(await jobs.dequeue(), undefined);
    assert.equal((await jobs.stats()).blocked, 5);
    await jobs.nack(first);
    assert.equal(await jobs.cancel(id), true);
    jobs = await (await reopen()).openTask("jobs");
    const second = await takeOne(jobs);
    assert.equal(second.payload.toString(), "a2");
    await pass(900);
    await jobs.ack(second);
    assert.equal((await takeOne(jobs)).payload.toString(), "a5", "a3 was cancelled, a4 is over");
    assert.equal(await jobs.purge(), 1);
    await enqueueNamed(jobs, "a7 b1");
    assert.equal(textsOf(await takeAll(jobs)), "b1", "a5 is still under way");
  });

  check("order: a redriven task comes behind its key's others", async ({ mq }) => {
    const jobs = await mq.openTask("jobs", { maxAttempts: 1 });
    await enqueueNamed(jobs, "a1 a2");
    await jobs.nack(await takeOne(jobs));
    assert.equal(await jobs.dead.redrive(), 1);
    assert.equal(await workOff(jobs), "a2 a1");
  });

  check("order: with autoAck the next one follows at once", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    await enqueueNamed(jobs, "a1 a2 a3");
    const texts: string[] = [];
    for (let task = await jobs.dequeue({ autoAck: true }); task !== undefined; ) {
      texts.push(task.payload.toString());
      task = await jobs.dequeue({ autoAck: true });
    }
    assert.deepEqual(texts, ["a1", "a2", "a3"]);
    const { blocked, ready } = await jobs.stats();
    assert.deepEqual({ blocked, ready }, { blocked: 0, ready: 0 });
  });

  check("order: a receiver that waits gets the next one when the one before it is done", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    await enqueueNamed(jobs, "a1 a2");
    const first = await takeOne(jobs);
    const next = jobs.dequeue({ wait: "1h" });
    assert.equal(await jobs.dequeue(), undefined, "one that does not wait is not kept by one that does");
    await jobs.ack(first);
    assert.equal((await next)?.payload.toString(), "a2");
  });

  check("order: what is peeked at is what comes next", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    await enqueueNamed(jobs, "a1 a2 b1 a3");
    assert.equal((await jobs.peek())?.payload.toString(), "a1");
    const first = await takeOne(jobs);
    const seen = await jobs.peek();
    assert.deepEqual([seen?.payload.toString(), seen?.orderKey], ["b1", "b"]);
    await jobs.ack(await takeOne(jobs));
    assert.equal(await jobs.peek(), undefined);
    await jobs.ack(first);
    assert.equal((await jobs.peek())?.payload.toString(), "a2");
    assert.equal(await workOff(jobs), "a2 a3");
  });

  check("order: concurrencyPerKey, changed while tasks are under way", async ({ mq, reopen }) => {
    let jobs = await mq.openTask("jobs", { concurrencyPerKey: 2 });
    await enqueueNamed(jobs, "a1 a2 a3 a4 a5");
    const [one, two] = await takeAll(jobs);
    assert.deepEqual(
      [one, two].map((task) => task?.payload.toString()),
      ["a1", "a2"],
    );
    await jobs.configure({ concurrencyPerKey: 1 });
    await jobs.ack(one!);
    assert.equal(await jobs.dequeue(), undefined, "a2 is the one");
    jobs = await (await reopen()).openTask("jobs");
    assert.equal(await jobs.dequeue(), undefined, "also after a reopen");
    const waiting = jobs.dequeueBatch({ max: 10, wait: "1h" });
    await jobs.configure({ concurrencyPerKey: 3 });
    assert.equal(textsOf(await waiting), "a3 a4");
    await jobs.ack(two!);
    assert.equal((await takeOne(jobs)).payload.toString(), "a5");
  });

  check("order: no more than lookAhead are passed over", async ({ mq }) => {
    const jobs = await mq.openTask("jobs", { lookAhead: 3 });
    await enqueueNamed(jobs, "a1 a2 a3 a4 a5 b1");
    const [first] = await takeAll(jobs);
    assert.equal(first?.payload.toString(), "a1");
    assert.equal((await jobs.stats()).blocked, 3, "b1 is behind a5, which is not passed");
    const next = jobs.dequeueBatch({ max: 10, wait: "1h" });
    await jobs.configure({ lookAhead: 10 });
    assert.equal(textsOf(await next), "b1");
    await jobs.ack(first!);
    assert.equal(await workOff(jobs), "a2 a3 a4 a5");
  });

  check(
    "order: a task for later takes its place when its time has come, and holds up nobody until then",
    async (on) => {
      let jobs = await on.mq.openTask("jobs");
      await enqueueNamed(jobs, "-1 a1");
      await jobs.enqueue("a2 later", { orderKey: "a", delay: 100 });
      await enqueueNamed(jobs, "a3 a4");
      // Its time comes before the cursor has reached it: a1 is still first.
      await on.pass(200);
      const [, first] = await takeAll(jobs);
      assert.equal(first?.payload.toString(), "a1");
      jobs = await (await on.reopen()).openTask("jobs");
      assert.equal(await jobs.dequeue(), undefined);
      await jobs.ack(first!);
      assert.equal(await workOff(jobs), "a2 later a3 a4");
      await jobs.enqueue("a5 much later", { orderKey: "a", delay: "1h" });
      await enqueueNamed(jobs, "a6");
      assert.equal(await workOff(jobs), "a6", "what is not due yet is passed");
    },
  );

  check("order: a task that is given another time leaves its place to the next one", async ({ mq, pass }) => {
    const jobs = await mq.openTask("jobs");
    await enqueueNamed(jobs, "a1");
    const { id } = await jobs.enqueue("a2", { orderKey: "a" });
    await enqueueNamed(jobs, "a3");
    const first = await takeOne(jobs);
    assert.equal(await jobs.dequeue(), undefined);
    assert.equal(await jobs.reschedule(id, { delay: 1000 }), true);
    await jobs.ack(first);
    const third = await takeOne(jobs);
    assert.equal(third.payload.toString(), "a3");
    await pass(2000);
    assert.equal(await jobs.dequeue(), undefined, "its time has come, and it waits for the one that is under way");
    await jobs.ack(third);
    assert.equal(await workOff(jobs), "a2");
  });

  check("order: in a batch, in a transaction and of a schedule's tasks", async (on) => {
    const jobs = await on.mq.openTask("jobs");
    await jobs.enqueueBatch(["1", "2"], { orderKey: "k" });
    await on.mq.transaction((tx) => tx.enqueue(jobs, "3", { orderKey: "k" }));
    await jobs.schedule("often", { every: 1000, limit: 1 }, "4", { orderKey: "k" });
    await on.pass(1500);
    assert.equal(await workOff(jobs), "1 2 3 4");
  });

  check("order: random work over reopens keeps every key's order", async (on) => {
    let jobs = await on.mq.openTask("jobs", {
      maxAttempts: Number.POSITIVE_INFINITY,
      backoff: { initial: 20, max: 20 },
    });
    const keys = ["a", "b", "c", "d"];
    const total = 200;
    for (let number = 0; number < total; number++) {
      const key = keys[number % 4]!;
      await jobs.enqueue(`${key}${number}`, { orderKey: key, priority: 0 });
    }
    let seed = 7;
    const random = (below: number) => {
      seed = (seed * 1103515245 + 12345) % 2147483648;
      return Math.floor(seed / 65536) % below;
    };
    const lastOf = new Map<string, number>();
    const held: Task[] = [];
    let done = 0;
    for (let round = 0; done < total; round++) {
      assert.ok(round < 5000, `all tasks are done at last, and not only ${done}`);
      const tasks = await jobs.dequeueBatch({ max: 1 + random(4) });
      for (const task of tasks) {
        assert.ok(
          held.every(({ orderKey }) => orderKey !== task.orderKey),
          "one of a key at a time",
        );
        held.push(task);
      }
      const task = held.splice(random(held.length || 1), 1)[0];
      if (task !== undefined) {
        const what = random(10);
        if (what < 6) {
          const number = Number(task.payload.toString().slice(1));
          assert.ok(number > (lastOf.get(task.orderKey!) ?? -1), "in order");
          lastOf.set(task.orderKey!, number);
          await jobs.ack(task);
          done++;
        } else if (what < 8) {
          await jobs.nack(task);
        } else {
          await jobs.release(task, { to: what === 8 ? "head" : "tail" });
        }
      }
      if (random(25) === 0) jobs = await (await on.reopen()).openTask("jobs");
      if (tasks.length === 0) await on.pass(20);
    }
    assert.equal(held.length, 0);
    const { ready, leased, blocked } = await jobs.stats();
    assert.deepEqual({ ready, leased, blocked }, { ready: 0, leased: 0, blocked: 0 });
  });
}
