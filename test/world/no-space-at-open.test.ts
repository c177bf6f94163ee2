import assert from "node:assert/strict";
import { test } from "node:test";
import type { Task } from "../../src/index.js";
import { Simulated, TINY } from "../support/simulated.js";

const DIRECTORY = "/srv/data";
const TASKS = 100;

void test("a directory without a free byte opens, also when the log file kept in reserve is not whole", async () => {
  const machine = Simulated.boot(24);
  machine.disk.capacityBytes = 16 * 1024 * 1024;
  const mq = await machine.open();
  const jobs = await machine.settle(mq.openTask("jobs"));
  for (let index = 0; index < TASKS; index++) await machine.settle(jobs.enqueue(`${index}`.padEnd(1000, ".")));
  const next = machine.kill();
  // As left by an attempt to have one at the moment when the disk ran full.
  let spares = 0;
  for (const name of next.disk.list(`${DIRECTORY}/wal`)) {
    if (!/^(spare|new|ahead)/.test(name)) continue;
    spares++;
    const file = next.disk.openFile(`${DIRECTORY}/wal/${name}`, "write");
    await next.settle(file.truncate(64 * 1024));
    file.close();
  }
  assert.ok(spares > 0);
  next.disk.capacityBytes = next.disk.usedBytes;
  const again = await next.open(TINY);
  const tasks = await next.settle(again.openTask("jobs"));
  for (let index = 0; index < TASKS; index++) {
    const task = (await next.settle(tasks.dequeue())) as Task;
    assert.ok(task.payload.toString().startsWith(`${index}.`));
    await next.settle(tasks.ack(task));
  }
  await next.settle(again.close());
});
