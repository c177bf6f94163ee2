import assert from "node:assert/strict";
import { test } from "node:test";
import type { MessageQueue, RequestIdentity, Task } from "../../src/index.js";
import { CRASH_POLICIES } from "../sim/sim-disk.js";
import { rejectsWith } from "../support/expect.js";
import { cutAtEveryCall, Simulated, TINY } from "../support/simulated.js";
import { countsOf, textsOf } from "../support/state.js";

const PRODUCER = Buffer.alloc(16, 0x5a);

function request(sequence: number): { readonly request: RequestIdentity } {
  return { request: { producer: PRODUCER, sequence } };
}

/** Each message of a batch is a request of its own, with the numbers from this one on. */
function each(sequence: number): { readonly request: RequestIdentity } {
  return { request: { ...request(sequence).request, each: true } };
}

/** What a client asks for, one call after another, with the tasks that it holds. Returns all its answers. */
async function callAll(mq: MessageQueue, tokens: readonly string[]): Promise<unknown> {
  const [events, jobs] = await Promise.all([mq.openLog("events"), mq.openTask("jobs")]);
  const answers = [
    await events.append(`one ${"x".repeat(3000)}`, request(1)),
    await events.appendBatch(["two", "three"], request(2)),
    await jobs.enqueueBatch(["a", "b"], { ...request(3), dedupeKeys: ["k", undefined] }),
    await jobs.ack(tokens[0]!, request(4)),
    await jobs.nack(tokens[1]!, { ...request(5), delay: "1h" }),
    await mq.transaction((tx) => {
      tx.append(events, "four");
      tx.enqueue(jobs, "c");
      tx.ack(jobs, tokens[2]!);
    }, request(6)),
    await events.appendBatch(["five", "six", "seven"], each(10)),
    await events.append("six", request(11)),
    await events.appendBatch(["seven", "eight"], each(12)),
    await jobs.enqueueBatch(["d", "e"], each(20)),
    await events.trim(1, request(7)),
    await mq.deleteQueue("task", "gone", request(8)),
  ];
  return JSON.parse(JSON.stringify(answers.map((answer) => answer ?? null)));
}

/** Everything that the calls have to do with. */
async function stateOf(mq: MessageQueue): Promise<unknown> {
  const [events, jobs] = await Promise.all([mq.openLog("events"), mq.openTask("jobs")]);
  const names = (await mq.queues()).map(({ name }) => name);
  return { names, texts: await textsOf(events), counts: countsOf(await jobs.stats()) };
}

async function prepared(): Promise<{ base: Simulated; tokens: string[] }> {
  const base = Simulated.boot(2222);
  const mq = await base.open();
  const jobs = await base.settle(mq.openTask("jobs", { lease: "24h" }));
  await base.settle(mq.openLog("events"));
  await base.settle(mq.openTask("gone"));
  await base.settle(jobs.enqueueBatch(["held", "held", "held"]));
  const tasks: Task[] = await base.settle(jobs.dequeueBatch({ max: 3 }));
  await base.settle(mq.close());
  return { base, tokens: tasks.map(({ token }) => token) };
}

void test("case 22: calls that are repeated after a power cut are carried out once, wherever it falls", async () => {
  const { base, tokens } = await prepared();
  const undisturbed = base.copy(1);
  const first = await undisturbed.open();
  const answers = await undisturbed.settle(callAll(first, tokens));
  const state = await undisturbed.settle(stateOf(first));
  await undisturbed.settle(first.close());
  const trials = await cutAtEveryCall(
    base,
    CRASH_POLICIES,
    async (mq) => {
      await callAll(mq, tokens);
    },
    async ({ mq, machine }) => {
      assert.deepEqual(await machine.settle(callAll(mq, tokens)), answers, "repeated");
      assert.deepEqual(await machine.settle(stateOf(mq)), state);
      assert.deepEqual(await machine.settle(callAll(mq, tokens)), answers, "and repeated again");
      assert.deepEqual(await machine.settle(stateOf(mq)), state);
    },
  );
  assert.ok(trials > 20, `${trials} trials`);
});

void test("case 22: a call that was answered early and is repeated to be durable is durable then", async () => {
  const options = { ...TINY, durability: "async", syncInterval: "60s" } as const;
  const machine = Simulated.boot(23);
  const mq = await machine.open(options);
  const events = await machine.settle(mq.openLog("events"));
  await machine.settle(events.append("once", request(1)));
  assert.equal(await machine.settle(events.append("once", { ...request(1), durability: "sync" })), 0);
  const next = machine.cutPower("none");
  const again = await next.open(options);
  const log = await next.settle(again.openLog("events"));
  assert.deepEqual(await next.settle(textsOf(log)), ["once"]);
  assert.equal(await next.settle(log.append("once", request(1))), 0);
  await next.settle(again.close());
});

void test("case 22: a call that is made again to be durable, before it was answered early, is durable then", async () => {
  const options = { ...TINY, durability: "async", syncInterval: "60s" } as const;
  const machine = Simulated.boot(25);
  const mq = await machine.open(options);
  const events = await machine.settle(mq.openLog("events"));
  const early = events.append("once", request(1));
  assert.equal(await machine.settle(events.append("once", { ...request(1), durability: "sync" })), 0);
  assert.equal(await early, 0);
  const next = machine.cutPower("none");
  const again = await next.open(options);
  const log = await next.settle(again.openLog("events"));
  assert.deepEqual(await next.settle(textsOf(log)), ["once"]);
  await next.settle(again.close());
});

void test("case 22: whether a call was carried out whose sync failed is not known before the directory is opened again", async () => {
  const machine = Simulated.boot(24);
  const mq = await machine.open();
  const events = await machine.settle(mq.openLog("events"));
  machine.disk.failAt(machine.disk.calls + 2, { errno: "EIO", sticky: false, written: 0, pages: "kept" });
  await machine.settle(rejectsWith("ERR_OUTCOME_UNKNOWN", events.append("once", request(1))));
  await machine.settle(rejectsWith("ERR_OUTCOME_UNKNOWN", events.append("once", request(1))));
  await machine.settle(rejectsWith("ERR_READ_ONLY", events.append("another", request(2))));
  const next = machine.kill();
  const again = await next.open();
  const log = await next.settle(again.openLog("events"));
  const offset = await next.settle(log.append("once", request(1)));
  assert.deepEqual(await next.settle(textsOf(log)), ["once"]);
  assert.equal(await next.settle(log.append("once", request(1))), offset);
  await next.settle(again.close());
});
