import assert from "node:assert/strict";
import { test } from "node:test";
import type { Task } from "../../src/index.js";
import { CRASH_POLICIES } from "../sim/sim-disk.js";
import { codeOf } from "../support/expect.js";
import { cutAtEveryCall, Simulated } from "../support/simulated.js";
import { recordsOf } from "../support/state.js";

const COUNT = 40;

async function prepared(): Promise<{ machine: Simulated; token: string }> {
  const machine = Simulated.boot(919);
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("events"));
  for (let index = 0; index < COUNT; index++) await machine.settle(log.append(`${index} ${"x".repeat(3000)}`));
  const group = await machine.settle(log.group("exclusive"));
  await machine.settle(group.read({ max: 30 }));
  await machine.settle(group.commit(29));
  const shared = await machine.settle(log.sharedGroup("shared", { maxAttempts: 1, lease: "24h" }));
  const tasks: Task[] = [];
  while (tasks.length < 10) tasks.push(...(await machine.settle(shared.dequeueBatch({ max: 10 - tasks.length }))));
  for (const task of tasks.slice(1)) await machine.settle(shared.nack(task, { error: "no" }));
  await machine.settle(mq.close());
  return { machine, token: (tasks[0] as Task).token };
}

void test("case 9: a deleted group is gone, or untouched, wherever the power fails", async () => {
  const { machine: base, token } = await prepared();
  for (const name of ["exclusive", "shared"] as const) {
    const trials = await cutAtEveryCall(
      base,
      CRASH_POLICIES,
      async (mq) => {
        assert.equal(await (await mq.openLog("events")).deleteGroup(name), true);
      },
      async ({ mq, machine, acknowledged }) => {
        const log = await machine.settle(mq.openLog("events"));
        const info = (await machine.settle(log.groups())).find((group) => group.name === name);
        if (acknowledged) assert.equal(info, undefined, "done");
        assert.equal((await machine.settle(log.groups())).length, info === undefined ? 1 : 2);
        if (name === "exclusive") {
          const group = await machine.settle(log.group(name));
          const [first] = await machine.settle(group.read({ max: 1 }));
          assert.equal(first?.offset, info === undefined ? 0 : 30);
          return;
        }
        const group = await machine.settle(log.sharedGroup(name));
        const letters = await machine.settle(group.dead.read());
        assert.equal(letters.length, info === undefined ? 0 : 9, "its dead letters go with it");
        const outcome = await machine.settle(codeOf(group.ack(token)));
        assert.equal(outcome, info === undefined ? "ERR_TOKEN" : undefined, "a lease of its former life");
        const task = await machine.settle(group.dequeue());
        assert.equal(task?.id, info === undefined ? "0" : "10");
      },
    );
    assert.ok(trials > CRASH_POLICIES.length, `${trials} trials`);
  }
});

void test("case 9: after a purge and a power cut no group skips what is appended", async () => {
  const { machine: base } = await prepared();
  await cutAtEveryCall(
    base,
    CRASH_POLICIES,
    async (mq) => {
      await (await mq.openLog("events")).purge();
    },
    async ({ mq, machine, acknowledged }) => {
      const log = await machine.settle(mq.openLog("events"));
      const { head } = await machine.settle(log.stats());
      if (acknowledged) assert.equal(head, COUNT);
      assert.ok(head === 0 || head === COUNT, `half a purge: the head is ${head}`);
      assert.equal((await machine.settle(recordsOf(log))).length, COUNT - head);
      const offset = await machine.settle(log.append("new"));
      assert.equal(offset, COUNT);
      if (head === 0) return;
      const group = await machine.settle(log.group("exclusive"));
      assert.equal(await machine.settle(codeOf(group.read())), "ERR_OFFSET_OUT_OF_RANGE");
      assert.deepEqual(
        (await machine.settle(group.read())).map((record) => record.offset),
        [offset],
      );
    },
  );
});
