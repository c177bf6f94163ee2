/** Calls that are given tasks together (`TAKE_EACH`), where something comes in between. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { MessageQueue, SharedGroup, TaskQueue } from "../src/api/contract.js";
import { type GivenTask, TAKE_EACH, TAKES_FROM, type TakesEach } from "../src/api/take-each.js";
import { isVarveError } from "../src/index.js";
import { Takes } from "../src/net/takes.js";
import { Simulated, TINY } from "./support/simulated.js";

/** A line of calls for one task each, none of which waits: what each was told, in its place. */
function takeEach(tasks: TaskQueue & Partial<TakesEach>, count: number): unknown[] {
  const told: unknown[] = Array(count).fill(undefined);
  assert.ok(tasks[TAKES_FROM]?.() !== undefined);
  tasks[TAKE_EACH]?.({
    count,
    weed: (_from, to) => to,
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

/** A line of calls of which some wait, as a server makes them: those by themselves as well. */
function callEach(tasks: TaskQueue & Partial<TakesEach>, waits: readonly boolean[], told: unknown[]): void {
  tasks[TAKE_EACH]?.({
    ...{ count: waits.length, weed: (_from, to) => to, durability: undefined, autoAck: false, leaseMs: undefined },
    maxOf: () => 1,
    waits: (place) => waits[place]!,
    told(place, given, from, to) {
      told[place] = from === to ? "none" : given[from]!.token;
    },
    failed(place, error) {
      told[place] = error;
    },
    alone(place) {
      void tasks.dequeue(waits[place] ? { wait: "1h" } : {}).then((task) => {
        told[place] = task?.token ?? "none";
      });
    },
  });
}

void test("of those that have to be read for, who waits goes on by himself: behind the others, and before who comes later", async () => {
  const machine = Simulated.boot(9);
  const { tasks } = await onDisk(machine, 1);
  const told: unknown[] = [];
  callEach(tasks, [false, true, false, true], told);
  const later = tasks.dequeue({ wait: "1h" });
  await machine.clock.run(() => told[0] !== undefined && told[2] !== undefined);
  assert.deepEqual([typeof told[0], told[1], told[2], told[3]], ["string", undefined, "none", undefined]);
  const enqueued = await machine.settle(tasks.enqueueBatch(["second", "third", "fourth"]));
  const last = await machine.settle(later);
  assert.equal(last?.id, enqueued[2]!.id);
  await machine.clock.run(() => told[1] !== undefined && told[3] !== undefined);
  assert.ok(![told[1], told[3]].includes("none"));
});

for (const limit of [{ concurrency: 1 }, { rate: { limit: 1, per: "1s" } }] as const) {
  void test(`who waits is given a task as soon as there is room for it again: ${Object.keys(limit)[0]}`, async () => {
    const machine = Simulated.boot(10);
    const { tasks } = await onDisk(machine, 6);
    await machine.settle(tasks.configure(limit));
    const told: unknown[] = [];
    callEach(tasks, [true, true, true], told);
    const before = machine.clock.elapsedMs();
    for (let place = 0; place < 3; place++) {
      await machine.clock.run(() => told[place] !== undefined);
      assert.notEqual(told[place], "none");
      assert.equal(told[place + 1], undefined);
      await machine.settle(tasks.ack(told[place] as string));
    }
    assert.ok(machine.clock.elapsedMs() - before < 10_000);
  });
}

void test("who does not wait is told so at once, also behind those who wait for room, where nothing is written meanwhile", async () => {
  const machine = Simulated.boot(11);
  const mq = await machine.open();
  const tasks = await machine.settle(mq.openTask("tasks", { concurrency: 1, lease: "1h" }));
  await machine.settle(tasks.enqueueBatch(texts(3)));
  const held = await machine.settle(tasks.dequeue());
  const waiting = tasks.dequeue({ wait: "2h" });
  await machine.pass(1000);
  const before = machine.clock.elapsedMs();
  assert.equal(await machine.settle(tasks.dequeue()), undefined);
  const told: unknown[] = [];
  callEach(tasks, [false], told);
  await machine.clock.run(() => told[0] !== undefined);
  assert.deepEqual(told, ["none"]);
  assert.ok(machine.clock.elapsedMs() - before < 1000);
  await machine.settle(tasks.ack(held!));
  assert.equal(`${(await machine.settle(waiting))?.payload}`, "1");
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

void test("who has gone by the time that it is his turn is given nothing, and a member that has left its group makes its call by itself", async () => {
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
  // The second ones have not been tried before it is their turn.
  const gone = [take(3), take(7)];
  for (const turn of [
    [take(0), take(1), take(2), gone[0]!, take(5)],
    [take(6), gone[1]!, take(9)],
  ]) {
    for (const each of turn) assert.ok(takes.add(each));
    takes.carryOut();
  }
  assert.deepEqual(told, []);
  for (const each of gone) each.isVain = true;
  await machine.settle(members[0]!.close());
  await machine.clock.run(() => told[9] !== undefined);
  const none = undefined;
  assert.deepEqual([...told], ["alone", ["0"], "alone", "dropped", none, ["1"], "alone", "dropped", none, ["2"]]);
});
