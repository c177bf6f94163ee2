/** Calls that are given tasks together (`TAKE_EACH`), where something comes in between. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { TaskQueue } from "../src/api/contract.js";
import { TAKE_EACH, TAKES_FROM, type TakesEach } from "../src/api/take-each.js";
import { isVarveError } from "../src/index.js";
import { Simulated, TINY } from "./support/simulated.js";

/** A line of calls for one task each, none of which waits: what each was told, in its place. */
function takeEach(tasks: TaskQueue & Partial<TakesEach>, count: number): unknown[] {
  const told: unknown[] = Array(count).fill(undefined);
  assert.ok(tasks[TAKES_FROM]?.() !== undefined);
  tasks[TAKE_EACH]?.({
    count,
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
  assert.deepEqual(takeEach(tasks, 2), ["alone", "alone"]);
  assert.equal(`${(await machine.settle(waiting))?.payload}`, "1");
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
  // Until something has to be read.
  const given = told.filter((text) => text !== "alone");
  assert.ok(given.length > 100, `${given.length}`);
  assert.deepEqual(given, [...all, "none", "none"].slice(0, given.length));
  assert.ok((await machine.settle(mq.stats())).wal.commits - commits < 60);
});
