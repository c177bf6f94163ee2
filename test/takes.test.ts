/** Calls that are given tasks together (`TAKE_EACH`), where something comes in between. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { MessageQueue, SharedGroup, TaskQueue } from "../src/api/contract.js";
import { type GivenTask, TAKE_EACH, TAKES_FROM, type TakesEach } from "../src/api/take-each.js";
import { isVarveError } from "../src/index.js";
import { Takes } from "../src/net/takes.js";
import { Simulated, TINY } from "./support/simulated.js";

/** A line of calls for one task each, none of which waits: what each was told, in its place. */
function takeEach(tasks: TaskQueue & Partial<TakesEach>, count: number, weed = (_from: number) => {}): unknown[] {
  const told: unknown[] = Array(count).fill(undefined);
  assert.ok(tasks[TAKES_FROM]?.() !== undefined);
  tasks[TAKE_EACH]?.({
    count,
    weed,
    durability: undefined,
    autoAck: true,
    leaseMs: undefined,
    maxOf: () => 1,
    waits: () => false,
    told(place, given, from, to) {
      const texts = given.slice(from, to).map((task) => {
        return task.memory.toString("latin1", task.payloadStart, task.payloadEnd);
      });
      told[place] = texts[0] ?? "none";
    },
    failed(place, error) {
      told[place] = isVarveError(error) ? error.code : error;
    },
    alone(place) {
      told[place] = "alone";
    },
  });
  return told;
}

const texts = (count: number) => Array.from({ length: count }, (_, index) => `${index}`);

void test("what cannot be written is told to each of them, and nothing is given to those who come later", async () => {
  const machine = Simulated.boot(1);
  const mq = await machine.open();
  const tasks = await machine.settle(mq.openTask("tasks"));
  await machine.settle(tasks.enqueueBatch(texts(5)));
  let failed = false;
  machine.disk.onCall = (kind, _path, call) => {
    if (kind !== "writeSync" || failed) return;
    failed = true;
    machine.disk.failAt(call, { errno: "EIO" });
  };
  const told = takeEach(tasks, 3);
  await machine.clock.run(() => told[2] !== undefined);
  assert.ok(failed);
  assert.deepEqual(told, Array(3).fill("ERR_OUTCOME_UNKNOWN"));
  assert.deepEqual(takeEach(tasks, 2), Array(2).fill("ERR_READ_ONLY"));
});

void test("they stand behind who waits already, also when there is something for him that he has not been given yet", async () => {
  const machine = Simulated.boot(2);
  const mq = await machine.open({ ...TINY, durability: "async" });
  const tasks = await machine.settle(mq.openTask("tasks", { rate: { limit: 1, per: "1s" } }));
  await machine.settle(tasks.enqueueBatch(texts(3)));
  assert.equal(`${(await machine.settle(tasks.dequeue()))?.payload}`, "0");
  const waiting = tasks.dequeue({ wait: "1h" });
  await machine.pass(100);
  // From now on there is one for him, and the timer has not gone off.
  machine.clock.stall(1000);
  const told = takeEach(tasks, 2);
  assert.equal(`${(await machine.settle(waiting))?.payload}`, "1");
  assert.deepEqual(told, ["none", "none"]);
});

void test("more than one commit may hand out, and tasks whose time is over between the others", async () => {
  const machine = Simulated.boot(3);
  const mq = await machine.open();
  const tasks = await machine.settle(mq.openTask("tasks", { onExpire: "discard" }));
  const all = texts(1200);
  for (let from = 0; from < all.length; from += 100) {
    await machine.settle(tasks.enqueueBatch(all.slice(from, from + 100)));
    await machine.settle(tasks.enqueueBatch(["late", "late too"], { ttl: "1s" }));
  }
  await machine.pass(2000);
  const { commits } = (await machine.settle(mq.stats())).wal;
  const told = takeEach(tasks, all.length + 2);
  await machine.clock.run(() => !told.includes(undefined));
  assert.deepEqual(told, [...all, "none", "none"]);
  assert.ok((await machine.settle(mq.stats())).wal.commits - commits < 60);
});

/** A queue with tasks that have to be read from the disk before any can be handed out. */
async function onDisk(machine: Simulated, count: number): Promise<{ mq: MessageQueue; tasks: TaskQueue }> {
  const filled = await machine.open();
  await machine.settle((await machine.settle(filled.openTask("tasks"))).enqueueBatch(texts(count)));
  await machine.settle(filled.close());
  const mq = await machine.open();
  return { mq, tasks: await machine.settle(mq.openTask("tasks")) };
}

void test("while what is there has to be read they wait together, and those who come stand behind them", async () => {
  const machine = Simulated.boot(4);
  const { mq, tasks } = await onDisk(machine, 8);
  const first = takeEach(tasks, 2);
  const single = tasks.dequeue();
  const second = takeEach(tasks, 5);
  assert.equal((await machine.settle(tasks.stats())).waiters, 8);
  assert.deepEqual([...first, ...second], Array(7).fill(undefined));
  const third = await machine.settle(single);
  assert.equal(`${third?.payload}`, "2");
  await machine.clock.run(() => second[4] !== undefined);
  assert.deepEqual([...first, ...second], ["0", "1", "3", "4", "5", "6", "7"]);
  assert.equal((await machine.settle(tasks.stats())).waiters, 0);
  await machine.settle(mq.close());
});

void test("who leaves while they wait for what is read is given nothing", async () => {
  const machine = Simulated.boot(5);
  const { tasks } = await onDisk(machine, 3);
  const from: number[] = [];
  const told = takeEach(tasks, 3, (place) => from.push(place));
  assert.deepEqual(from, []);
  await machine.clock.run(() => told[2] !== undefined);
  // Asked again before they were given something.
  assert.equal(from[0], 0);
  assert.deepEqual(told, ["0", "1", "2"]);
});

void test("a read that fails is told to the first of them, and the others have what is there", async () => {
  const machine = Simulated.boot(6);
  const { tasks } = await onDisk(machine, 3);
  let failed = false;
  machine.disk.onCall = (kind, _path, call) => {
    if (!kind.startsWith("read") || failed) return;
    failed = true;
    machine.disk.failAt(call, { errno: "EIO" });
  };
  const told = takeEach(tasks, 3);
  await machine.clock.run(() => told[2] !== undefined);
  assert.ok(failed);
  assert.deepEqual(told, ["ERR_IO", "0", "1"]);
});

void test("a close while they wait for what is read is told to each of them", async () => {
  const machine = Simulated.boot(7);
  const { mq, tasks } = await onDisk(machine, 3);
  const told = takeEach(tasks, 3);
  assert.deepEqual(told, Array(3).fill(undefined));
  await machine.settle(mq.close());
  assert.deepEqual(told, Array(3).fill("ERR_CLOSED"));
});

void test("a member that leaves its group while they wait for what is read makes its call by itself", async () => {
  const machine = Simulated.boot(8);
  const filled = await machine.open();
  await machine.settle((await machine.settle(filled.openLog("log"))).appendBatch(texts(4)));
  await machine.settle(filled.close());
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("log"));
  const members: SharedGroup[] = [];
  for (let each = 0; each < 2; each++) {
    members.push(await machine.settle(log.sharedGroup("readers", { from: "start" })));
  }
  const takes = new Takes(mq);
  const told: unknown[] = [];
  const take = (place: number, isVain = false) => ({
    ...{ source: members[place % 2] as Partial<TakesEach>, isVain, max: 1, waits: false },
    ...{ autoAck: true, leaseMs: undefined, durability: undefined },
    told: (given: readonly GivenTask[], from: number, to: number) => {
      told[place] = given
        .slice(from, to)
        .map((task) => task.memory.toString("latin1", task.payloadStart, task.payloadEnd));
    },
    failed: (error: unknown) => {
      told[place] = error;
    },
    alone: () => {
      told[place] = "alone";
    },
    dropped: () => {
      told[place] = "dropped";
    },
  });
  const gone = take(3);
  for (const each of [take(0), take(1), take(2), gone, take(5)]) assert.ok(takes.add(each));
  takes.carryOut();
  assert.deepEqual(told, []);
  gone.isVain = true;
  await machine.settle(members[0]!.close());
  await machine.clock.run(() => told[5] !== undefined);
  assert.deepEqual([...told], ["alone", ["0"], "alone", "dropped", undefined, ["1"]]);
});
