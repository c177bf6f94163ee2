/** Flows, and removal of expired tasks, where a whole machine has to be seen: its disk, its time, and what waits for it. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { EnqueuedFlow, MessageQueue, TaskQueue } from "../src/index.js";
import { codeOf } from "./support/expect.js";
import { cutAtEveryCall, Simulated, TINY } from "./support/simulated.js";

void test("a flow that waits behind the deletion of its queue is refused", async () => {
  const machine = Simulated.boot(31);
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("log"));
  const [kept, gone] = [await machine.settle(mq.openTask("kept")), await machine.settle(mq.openTask("gone"))];
  const appended = Array.from({ length: 100 }, () => log.append("x".repeat(30_000)));
  const deleted = mq.deleteQueue("task", "gone");
  // The deletion is not under way before the next microtask.
  for (let turn = 0; turn < 10; turn++) await Promise.resolve();
  const refused = codeOf(mq.flow({ queue: kept, input: "root", children: [{ queue: gone, input: "leaf" }] }));
  await machine.settle(Promise.all(appended));
  assert.equal(await machine.settle(deleted), true);
  assert.equal(await machine.settle(refused), "ERR_NOT_FOUND");
  assert.equal((await kept.stats()).blocked, 0);
  await machine.settle(mq.close());
});

void test("a damaged parent does not keep other parents with a lost child from the dead letters", async () => {
  const machine = Simulated.boot(32);
  let mq = await machine.open();
  const open = async (from: MessageQueue): Promise<[TaskQueue, TaskQueue]> => [
    await machine.settle(from.openTask("parents")),
    await machine.settle(from.openTask("children")),
  ];
  let [parents, children] = await open(mq);
  const flows: EnqueuedFlow[] = [];
  for (const letter of ["a", "b", "c"]) {
    const child = { queue: children, input: "child" };
    flows.push(await machine.settle(mq.flow({ queue: parents, input: letter.repeat(20_000), children: [child] })));
  }
  await machine.settle(mq.close());
  let flipped = 0;
  for (const path of machine.disk.files()) {
    const byte = machine.disk.peek(path).indexOf("a".repeat(1000));
    if (byte < 0) continue;
    machine.disk.flipBit(path, byte + 500, 1);
    flipped++;
  }
  assert.ok(flipped > 0);
  mq = await machine.open();
  [parents, children] = await open(mq);
  await machine.settle(children.purge());
  await machine.pass(5000);
  const { blocked, dead, died } = await parents.stats();
  assert.deepEqual({ blocked, dead, died }, { blocked: 1, dead: 2, died: 2 });
  assert.equal(await machine.settle(parents.cancel(flows[0]!.task.id)), true);
  assert.equal((await parents.stats()).blocked, 0);
  await machine.settle(mq.close());
});

void test("a parent's queue that has something to write when it comes into use does so apart from its child's end", async () => {
  const first = Simulated.boot(33);
  let mq = await first.open();
  const parents = await first.settle(mq.openTask("parents"));
  const children = await first.settle(mq.openTask("children"));
  const child = { queue: children, input: "child" };
  await first.settle(mq.flow({ queue: parents, input: "parent", children: [child, child] }));
  // The time until the next open counts for it, which is noted when its queue comes into use.
  await first.settle(parents.enqueue("later", { delay: "1h" }));
  await first.settle(mq.close());
  const machine = first.cutPower("none", 60_000);
  mq = await machine.open();
  const again = await machine.settle(mq.openTask("children"));
  assert.equal((await mq.stats()).queues.open, 2, "the parent's queue is in use, too");
  const task = await machine.settle(again.dequeue());
  await machine.settle(again.ack(task!));
  await machine.settle(again.dequeue({ autoAck: true }));
  await machine.settle(mq.close());
  mq = await machine.open();
  const woken = await machine.settle(mq.openTask("parents"));
  const { ready, scheduled, blocked } = await woken.stats();
  assert.deepEqual({ ready, scheduled, blocked }, { ready: 1, scheduled: 1, blocked: 0 });
  await machine.settle(mq.close());
});

void test("a flow's end that is under way when its queue is deleted ends with it", async () => {
  const base = Simulated.boot(34);
  const mq = await base.open();
  const parents = await base.settle(mq.openTask("parents"));
  const children = await base.settle(mq.openTask("children"));
  const child = { queue: children, input: "child" };
  for (let count = 0; count < 5; count++) {
    await base.settle(mq.flow({ queue: parents, input: "x".repeat(20_000), children: [child] }));
  }
  await base.settle(mq.close());
  // Some of these find a parent's record on its way from the disk.
  for (let delayMs = 0; delayMs < 4; delayMs += 0.2) {
    const machine = base.copy(35);
    const errors: string[] = [];
    const logger = { debug() {}, info() {}, warn() {}, error: (_: object, message: string) => errors.push(message) };
    const again = await machine.open({ ...TINY, logger });
    const purged = (await machine.settle(again.openTask("children"))).purge();
    await machine.pass(delayMs);
    await machine.settle(again.deleteQueue("task", "parents"));
    await machine.settle(purged);
    await machine.pass(5000);
    assert.deepEqual(errors, [], `deleted after ${delayMs} ms`);
    await machine.settle(again.close());
  }
});

void test("a child that is done as the directory closes is not waited for any more", async () => {
  const machine = Simulated.boot(36);
  let mq = await machine.open();
  let jobs = await machine.settle(mq.openTask("jobs"));
  const child = { queue: jobs, input: "child" };
  await machine.settle(mq.flow({ queue: jobs, input: "parent", children: [child] }));
  const task = await machine.settle(jobs.dequeue());
  const acked = jobs.ack(task!);
  const closed = mq.close();
  await machine.settle(acked);
  await machine.settle(closed);
  mq = await machine.open();
  jobs = await machine.settle(mq.openTask("jobs"));
  assert.equal((await machine.settle(jobs.dequeue()))?.payload.toString(), "parent");
  await machine.settle(mq.close());
});

void test("a parent whose child is gone as the directory closes dies in the next one, whatever else is done there", async () => {
  const machine = Simulated.boot(37);
  let mq = await machine.open();
  let jobs = await machine.settle(mq.openTask("jobs"));
  const child = { queue: jobs, input: "child" };
  const flow = await machine.settle(mq.flow({ queue: jobs, input: "parent", children: [child] }));
  const cancelled = jobs.cancel(flow.children[0]!.task.id);
  await machine.settle(mq.close());
  assert.equal(await machine.settle(cancelled), true);
  mq = await machine.open();
  jobs = await machine.settle(mq.openTask("jobs"));
  assert.equal((await jobs.stats()).blocked, 1, "it was not told before the directory closed");
  await machine.pass(5000);
  const { blocked, dead } = await jobs.stats();
  assert.deepEqual({ blocked, dead }, { blocked: 0, dead: 1 });
  await machine.settle(mq.close());
});

void test("a parent that is to be told while another one is on its way to the dead letters is told", async () => {
  const base = Simulated.boot(39);
  const mq = await base.open();
  const jobs = await base.settle(mq.openTask("jobs"));
  const child = { queue: jobs, input: "child" };
  for (let count = 0; count < 2; count++) {
    await base.settle(mq.flow({ queue: jobs, input: "x".repeat(20_000), children: [child] }));
    const task = await base.settle(jobs.dequeue());
    await base.settle(jobs.nack(task!, { dead: true }));
  }
  const [first, second] = (await base.settle(jobs.dead.read())).map(({ id }) => id);
  await base.settle(mq.close());
  // Some of these find the first one's record on its way from the disk.
  for (let delayMs = 0; delayMs < 4; delayMs += 0.2) {
    const machine = base.copy(40);
    const again = await machine.open();
    const queue = await machine.settle(again.openTask("jobs"));
    const { dead } = queue;
    await machine.settle(dead.purge({ ids: [first!] }));
    await machine.pass(delayMs);
    await machine.settle(dead.purge({ ids: [second!] }));
    await machine.pass(5000);
    assert.equal((await queue.stats()).dead, 2, `purged after ${delayMs} ms`);
    await machine.settle(again.close());
  }
});

void test("parents that wait for tasks of a queue that is deleted die with it, however many, wherever the power is cut", async () => {
  const base = Simulated.boot(38);
  const mq = await base.open();
  const parents = await base.settle(mq.openTask("parents"));
  const children = await base.settle(mq.openTask("children"));
  const child = { queue: children, input: "child" };
  const count = 120;
  await base.settle(
    Promise.all(Array.from({ length: count }, () => mq.flow({ queue: parents, input: "parent", children: [child] }))),
  );
  await base.settle(mq.close());
  const remove = async (queue: MessageQueue): Promise<void> => void (await queue.deleteQueue("task", "children"));
  const trials = await cutAtEveryCall(base, ["none", "all"], remove, async ({ mq: again, machine, acknowledged }) => {
    const queue = await machine.settle(again.openTask("parents"));
    const isThere = (await again.queues()).some(({ name }) => name === "children");
    assert.ok(!(acknowledged && isThere));
    await machine.pass(5000);
    const { blocked, dead } = await queue.stats();
    assert.equal(blocked + dead, count);
    if (!isThere) assert.equal(blocked, 0);
    for (const { reason } of await machine.settle(queue.dead.read())) assert.match(reason, /children, was deleted/);
  });
  assert.ok(trials > 2);
});

void test("expired tasks are removed a few thousand at a time, and a dequeue that does not wait sees past them", async () => {
  const machine = Simulated.boot(35);
  const mq = await machine.open({ walFileBytes: "16MiB", cacheBytes: "64MiB" });
  const jobs = await machine.settle(mq.openTask("jobs"));
  const count = 20_000;
  for (const name of ["dequeue", "peek"] as const) {
    const before = (await jobs.stats()).expired;
    const inputs = Array.from({ length: 1000 }, () => "x");
    for (let from = 0; from < count; from += inputs.length) {
      await machine.settle(jobs.enqueueBatch(inputs, { ttl: 1000 }));
    }
    await machine.settle(jobs.enqueue("alive"));
    await machine.pass(2000);
    const next = jobs[name]();
    const { ready } = await jobs.stats();
    assert.ok(ready > count - 5000 && ready <= count + 1, `${ready} of ${count} are left at first`);
    assert.equal((await machine.settle(next))?.payload.toString(), "alive");
    await machine.pass(1000);
    assert.equal((await jobs.stats()).expired - before, count);
    await machine.settle(jobs.purge());
  }
  await machine.settle(mq.close());
});
