import assert from "node:assert/strict";
import { test } from "node:test";
import type { Task } from "../../src/index.js";
import { CRASH_POLICIES } from "../sim/sim-disk.js";
import { rejectsWith } from "../support/expect.js";
import { cutAtEveryCall, Simulated } from "../support/simulated.js";
import { countsOf, textsOf } from "../support/state.js";

/** A with one task, whose token is known; B and C empty. */
async function prepared(): Promise<{ base: Simulated; token: string }> {
  const base = Simulated.boot(2828);
  const mq = await base.open();
  const a = await base.settle(mq.openTask("a", { lease: "24h" }));
  await base.settle(mq.openTask("b"));
  await base.settle(mq.openLog("c"));
  await base.settle(a.enqueue("work"));
  const { token } = (await base.settle(a.dequeue())) as Task;
  await base.settle(mq.close());
  return { base, token };
}

void test("case 28: ack, enqueue and append in one transaction happen together, wherever the power fails", async () => {
  const { base, token } = await prepared();
  let whole = 0;
  const trials = await cutAtEveryCall(
    base,
    CRASH_POLICIES,
    async (mq) => {
      const [a, b, c] = await Promise.all([mq.openTask("a"), mq.openTask("b"), mq.openLog("c")]);
      await mq.transaction((tx) => {
        tx.ack(a, token);
        tx.enqueue(b, "next");
        tx.append(c, `done ${"x".repeat(9000)}`);
      });
    },
    async ({ mq, machine, acknowledged }) => {
      const a = countsOf(await machine.settle((await machine.settle(mq.openTask("a"))).stats()));
      const b = countsOf(await machine.settle((await machine.settle(mq.openTask("b"))).stats()));
      const c = await machine.settle(textsOf(await machine.settle(mq.openLog("c"))));
      const parts = [a.leased === 0, b.ready === 1, c.length === 1];
      assert.ok(
        parts.every((part) => part === parts[0]),
        `half a transaction: acked ${parts[0]}, enqueued ${parts[1]}, appended ${parts[2]}`,
      );
      assert.ok(b.ready <= 1 && c.length <= 1, "never twice");
      if (acknowledged) assert.ok(parts[0], "acknowledged and gone");
      if (parts[0] === true) whole++;
    },
  );
  assert.ok(whole > 0 && whole < trials, `${whole} of ${trials} trials had it`);
});

void test("case 28: one stale token among ten operations: nothing has changed, and the error says which", async () => {
  const { base, token } = await prepared();
  const machine = base.copy(2);
  const mq = await machine.open();
  const [a, b, c] = await machine.settle(Promise.all([mq.openTask("a"), mq.openTask("b"), mq.openLog("c")]));
  await machine.settle(a.ack(token));
  await machine.settle(
    rejectsWith(
      "ERR_STALE_LEASE",
      mq.transaction((tx) => {
        for (let index = 0; index < 4; index++) tx.enqueue(b, `${index}`);
        tx.ack(a, token);
        for (let index = 0; index < 5; index++) tx.append(c, `${index}`);
      }),
      /part 5 .*ack on a/,
    ),
  );
  assert.deepEqual(countsOf(await machine.settle(b.stats())), { ready: 0, scheduled: 0, leased: 0, dead: 0 });
  assert.equal((await machine.settle(c.stats())).next, 0);
  await machine.settle(mq.close());
});

void test("case 28: a fan-out is there in all queues or in none, wherever the power fails", async () => {
  const { base } = await prepared();
  const names = Array.from({ length: 12 }, (_, index) => `fan-${index}`);
  await cutAtEveryCall(
    base,
    CRASH_POLICIES,
    async (mq) => {
      const queues = await Promise.all(names.map((name) => mq.openTask(name)));
      await mq.transaction((tx) => {
        for (const queue of queues) tx.enqueue(queue, "to all");
      });
    },
    async ({ mq, machine, acknowledged }) => {
      const counts: number[] = [];
      for (const name of names) {
        const queue = await machine.settle(mq.openTask(name));
        counts.push((await machine.settle(queue.stats())).ready);
      }
      assert.equal(new Set(counts).size, 1, counts.join(" "));
      if (acknowledged) assert.equal(counts[0], 1);
    },
  );
});
