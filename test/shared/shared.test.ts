import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { isVarveError, type MessageQueue, type OpenOptions, open } from "../../src/index.js";
import { type Child, startChild } from "../support/child.js";
import { withDirectory } from "../support/directories.js";
import { rejectsWith } from "../support/expect.js";
import { scaled } from "../support/scale.js";
import { Seeded } from "../support/seeded.js";
import { textsOf } from "../support/state.js";

const SHARED: OpenOptions = { shared: true, durability: "async" };

void test("shared: whoever comes second uses the directory through the first, and takes over from it", async () => {
  await withDirectory(async (directory) => {
    const first = await open(directory, SHARED);
    const second = await open(directory, SHARED);
    const third = await open(directory, SHARED);
    const [ours, theirs] = [await first.openTask("jobs"), await second.openTask("jobs")];
    await ours.enqueue("by the first");
    await theirs.enqueue("by the second");
    const held = (await theirs.dequeue())!;
    assert.equal(held.payload.toString(), "by the first");
    const waiting = theirs.dequeueBatch({ max: 2, wait: "10s" });
    assert.equal((await waiting).length, 1);
    const log = await third.openLog("events");
    await log.append("before");
    await first.close();
    await rejectsWith("ERR_CLOSED", ours.enqueue("late"));
    // One of the two is the owner now; leases of before are good.
    await log.append("after");
    await theirs.ack(held);
    assert.deepEqual(await textsOf(log), ["before", "after"]);
    await Promise.all([second.close(), third.close()]);
    assert.ok(!existsSync(join(directory, "SOCKET")), "nothing is left behind");
    const last = await open(directory);
    assert.deepEqual(await textsOf(await last.openLog("events")), ["before", "after"]);
    assert.equal((await (await last.openTask("jobs")).stats()).leased, 1);
    await last.close();
  });
});

void test("shared: an owner that does not share refuses others at once, and is refused by those that do", async () => {
  await withDirectory(async (directory) => {
    const alone = await open(directory);
    await rejectsWith("ERR_DIR_LOCKED", open(directory, SHARED));
    await alone.close();
    const shared = await open(directory, SHARED);
    await rejectsWith("ERR_DIR_LOCKED", open(directory));
    await shared.close();
    await (await open(directory)).close();
    await rejectsWith("ERR_ARGUMENT", open("", SHARED));
    await rejectsWith("ERR_OPTION", open(directory, { shared: 1 as never }));
  });
});

void test("shared: a path too long for a socket is none for the directory", async () => {
  await withDirectory(async (directory) => {
    const deep = join(directory, "a".repeat(90), "b".repeat(90));
    const [first, second] = [await open(deep, SHARED), await open(deep, SHARED)];
    await (await second.openLog("events")).append("here");
    assert.deepEqual(await textsOf(await first.openLog("events")), ["here"]);
    await Promise.all([first.close(), second.close()]);
  });
});

void test("shared: twenty that open at once have one owner", async () => {
  await withDirectory(async (directory) => {
    const all = await Promise.all(Array.from({ length: 20 }, () => open(directory, SHARED)));
    await Promise.all(
      all.map(async (mq, index) => {
        await (await mq.openLog("events")).append(`${index}`);
      }),
    );
    assert.equal((await textsOf(await all[7]!.openLog("events"))).length, 20);
    // The owner goes first, then always another one.
    for (const [index, mq] of all.entries()) {
      await mq.close();
      const next: MessageQueue | undefined = all[index + 1];
      if (next !== undefined && index % 5 === 0) {
        assert.equal((await textsOf(await next.openLog("events"))).length, 20);
      }
    }
  });
});

void test("shared: threads of one process", async () => {
  await withDirectory(async (directory) => {
    const url = new URL("../../src/index.js", import.meta.url).href;
    const code = `
      const { workerData, parentPort } = require("node:worker_threads");
      import(workerData.url).then(async ({ open }) => {
        const mq = await open(workerData.directory, { shared: true });
        await (await mq.openLog("events")).append("thread " + workerData.index);
        await mq.close();
        parentPort.postMessage("done");
      });`;
    const threads = [0, 1, 2].map((index) => new Worker(code, { eval: true, workerData: { url, directory, index } }));
    await Promise.all(
      threads.map(
        (thread) =>
          new Promise((resolve, reject) => {
            thread.once("error", reject);
            thread.once("exit", resolve);
          }),
      ),
    );
    const mq = await open(directory, SHARED);
    assert.deepEqual((await textsOf(await mq.openLog("events"))).sort(), ["thread 0", "thread 1", "thread 2"]);
    await mq.close();
  });
});

interface Told {
  readonly name: string;
  readonly ready?: true;
  readonly failed?: string;
  readonly enqueued?: string;
  readonly maybe?: string;
  readonly appended?: string;
  readonly offset?: number;
  readonly holds?: string;
  readonly acked?: string;
  readonly perhaps?: string;
}

void test("shared: owners are killed one after another; nothing is lost, and nothing is held twice", async () => {
  await withDirectory(async (directory) => {
    const random = new Seeded(Number(process.env.VARVE_TEST_SEED ?? 6006));
    const children: Child[] = [];
    const alive = new Set<Child>();
    const start = async (): Promise<void> => {
      const child = startChild(import.meta.url, "./sharing.js", { args: [directory, `p${children.length}`] });
      children.push(child);
      alive.add(child);
      await child.message<Told>(({ ready }) => ready === true);
    };
    for (let index = 0; index < 3; index++) await start();
    for (let round = 0; round < scaled(5); round++) {
      await new Promise((resolve) => setTimeout(resolve, 100 + random.below(200)));
      // Whoever owns the directory, or one of the others.
      const owner = await ownerOf(directory, alive);
      const victim = owner !== undefined && random.below(4) > 0 ? owner : [...alive][random.below(alive.size)]!;
      victim.kill();
      await victim.exited;
      alive.delete(victim);
      await start();
    }
    for (const child of alive) child.process.send("stop");
    for (const child of alive) assert.equal((await child.exited).code, 0, (await child.exited).stderr);

    const told = children.flatMap(({ messages }) => messages as Told[]);
    const failures = told.flatMap(({ failed }) => failed ?? []);
    assert.deepEqual(failures, []);
    const mq = await open(directory);
    const log = await mq.openLog("events");
    for (const { appended, offset } of told) {
      if (appended === undefined) continue;
      assert.equal((await log.read(offset!))?.payload.toString(), appended, `offset ${offset}`);
    }
    const records = await textsOf(log);
    assert.equal(new Set(records).size, records.length, "no append was made twice");
    const acked = told.flatMap(({ acked: payload }) => payload ?? []);
    assert.equal(new Set(acked).size, acked.length, "no task was acknowledged twice");
    assert.ok(acked.length > 0, "something was done");

    // What is neither done nor perhaps done is still there, once.
    const jobs = await mq.openTask("jobs", { lease: "1h" });
    const left: string[] = [];
    for (let isOver = false; !isOver; ) {
      const tasks = await jobs.dequeueBatch({ max: 1000, wait: (await jobs.stats()).leased > left.length ? "10s" : 0 });
      left.push(...tasks.map(({ payload }) => payload.toString()));
      isOver = tasks.length === 0;
    }
    assert.equal(new Set(left).size, left.length, "no task is there twice");
    const done = new Set(acked);
    assert.deepEqual(
      left.filter((payload) => done.has(payload)),
      [],
      "what was acknowledged is gone",
    );
    const there = new Set([...left, ...acked, ...told.flatMap(({ perhaps, holds }) => perhaps ?? holds ?? [])]);
    assert.deepEqual(
      told.flatMap(({ enqueued }) => (enqueued === undefined || there.has(enqueued) ? [] : enqueued)),
      [],
      "what was enqueued is there or done",
    );
    await mq.close();
  });
});

/** The process that the lock names. */
async function ownerOf(directory: string, among: ReadonlySet<Child>): Promise<Child | undefined> {
  try {
    await (await open(directory)).close();
    return undefined;
  } catch (error) {
    const pid = isVarveError(error) ? error.details.pid : undefined;
    return [...among].find(({ process: { pid: each } }) => each === pid);
  }
}
