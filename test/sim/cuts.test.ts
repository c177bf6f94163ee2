/** Calls that plans do not make, or seldom, with the power cut at every disk call that they make. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { LogQueue, MessageQueue, TaskQueue } from "../../src/index.js";
import { cutAtEveryCall, Simulated } from "../support/simulated.js";
import type { CrashPolicy } from "./sim-disk.js";

const POLICIES: readonly CrashPolicy[] = ["none", "random", "all"];
const HOUR_MS = 3_600_000;
/** Fewer calls would not be all that a change makes. */
const TRIALS_MIN = 6;

async function payloadsOf(log: LogQueue): Promise<string[]> {
  const payloads: string[] = [];
  for await (const records of log.batches()) payloads.push(...records.map(({ payload }) => payload.toString()));
  return payloads;
}

async function waitingIn(queue: TaskQueue): Promise<string[]> {
  const tasks = [...(await queue.list({ state: "ready" })), ...(await queue.list({ state: "scheduled" }))];
  return tasks.map(({ raw }) => raw.toString());
}

/** A closed directory in which something has been done. */
async function scene(
  seed: number,
  prepare: (mq: MessageQueue, machine: Simulated) => Promise<void>,
): Promise<Simulated> {
  const machine = Simulated.boot(seed);
  const mq = await machine.open();
  await prepare(mq, machine);
  await machine.settle(mq.close());
  return machine;
}

void test("settings are the old ones or the new ones as a whole, and those that were acknowledged", async () => {
  const version = (n: number) => ({
    log: { metadata: { n: `${n}` }, retention: { maxCount: 1000 + n, holdForGroups: 1000 * n } },
    task: { metadata: { n: `${n}` }, lease: 1000 + n, rate: { limit: 1 + n, per: 100 + n }, maxDeadLetters: 10 + n },
  });
  const base = await scene(1, async (mq, machine) => {
    await machine.settle(mq.openLog("events", version(0).log));
    await machine.settle(mq.openTask("jobs", version(0).task));
  });
  const met = new Set<number>();
  const trials = await cutAtEveryCall(
    base,
    POLICIES,
    async (mq) => {
      const [log, jobs] = [await mq.openLog("events"), await mq.openTask("jobs")];
      for (let n = 1; n <= 3; n++) {
        await log.configure(version(n).log);
        await jobs.configure(version(n).task);
      }
    },
    async ({ mq, machine, acknowledged }) => {
      const queues = await machine.settle(mq.queues());
      const [ofLog, ofTask] = queues.map(({ metadata }) => Number(metadata.n)) as [number, number];
      met.add(ofLog);
      assert.ok(ofLog === ofTask || ofLog === ofTask + 1, `${ofLog} and ${ofTask}: one after the other`);
      if (acknowledged) assert.equal(ofTask, 3);
      const { metadata, retention } = await machine.settle((await machine.settle(mq.openLog("events"))).settings());
      const { maxCount, holdForGroups } = retention;
      assert.deepEqual({ metadata, retention: { maxCount, holdForGroups } }, version(ofLog).log);
      const stored = await machine.settle((await machine.settle(mq.openTask("jobs"))).settings());
      const { lease, rate, maxDeadLetters } = stored;
      assert.deepEqual({ metadata: stored.metadata, lease, rate, maxDeadLetters }, version(ofTask).task);
    },
  );
  assert.ok(trials > TRIALS_MIN);
  assert.deepEqual([...met].sort(), [0, 1, 2, 3]);
});

void test("a group for whom retention waits loses nothing", async () => {
  const base = await scene(2, async (mq, machine) => {
    const log = await machine.settle(mq.openLog("events", { retention: { maxCount: 4, holdForGroups: "1h" } }));
    await machine.settle(log.group("readers"));
    await machine.settle(log.append("0"));
  });
  const trials = await cutAtEveryCall(
    base,
    POLICIES,
    async (mq) => {
      const log = await mq.openLog("events");
      const member = await log.group("readers");
      for (let round = 1; round < 6; round++) {
        const records = Array.from({ length: 8 }, (_, index) => `${8 * round + index}`.padEnd(8000));
        await log.appendBatch(records);
        const read = await member.read({ max: 5 });
        await member.commit(read.at(-1)!);
      }
    },
    async ({ mq, machine }) => {
      const log = await machine.settle(mq.openLog("events"));
      const [group] = await machine.settle(log.groups());
      assert.equal(group!.lost, 0);
      const member = await machine.settle(log.group("readers"));
      let next = group!.committed;
      for (;;) {
        const records = await machine.settle(member.read({ max: 100 }));
        if (records.length === 0) break;
        for (const { offset } of records) assert.equal(offset, next++);
      }
      assert.equal(next, (await machine.settle(log.stats())).next);
    },
  );
  assert.ok(trials > TRIALS_MIN);
});

void test("a task whose time is over is in its queue or in the other one, and in no third place", async () => {
  const all = ["0", "1", "2", "3", "4"];
  const base = await scene(3, async (mq, machine) => {
    const jobs = await machine.settle(mq.openTask("jobs", { onExpire: { moveTo: "late" } }));
    await machine.settle(jobs.enqueueBatch(all, { ttl: 1000 }));
    await machine.pass(2000);
  });
  const met = new Set<number>();
  const trials = await cutAtEveryCall(
    base,
    POLICIES,
    async (mq) => {
      await (await mq.openTask("jobs")).expire();
    },
    async ({ mq, machine, acknowledged }) => {
      const [jobs, late] = [await machine.settle(mq.openTask("jobs")), await machine.settle(mq.openTask("late"))];
      const [left, moved] = [await machine.settle(waitingIn(jobs)), await machine.settle(waitingIn(late))];
      assert.deepEqual([...moved, ...left], all);
      met.add(moved.length);
      if (acknowledged) assert.deepEqual(moved, all);
      assert.equal(await machine.settle(jobs.expire()), left.length);
      assert.deepEqual(await machine.settle(waitingIn(late)), all);
    },
  );
  assert.ok(trials > TRIALS_MIN);
  assert.ok(met.has(0) && met.has(5), "before and after");
});

void test("each key of a batch stands for one task, also when the batch is made again", async () => {
  const base = await scene(4, async (mq, machine) => {
    await machine.settle(mq.openTask("jobs"));
  });
  const enqueue = async (mq: MessageQueue) => {
    const jobs = await mq.openTask("jobs");
    const first = await jobs.enqueueBatch(["a", "b", "c"], { dedupeKeys: ["x", undefined, "y"] });
    const second = await jobs.enqueueBatch(["d", "e"], { dedupeKeys: ["y", "z"] });
    return { first, second };
  };
  const trials = await cutAtEveryCall(
    base,
    POLICIES,
    async (mq) => {
      await enqueue(mq);
    },
    async ({ mq, machine, acknowledged }) => {
      const { first, second } = await machine.settle(enqueue(mq));
      assert.equal(second[0]!.id, first[2]!.id);
      assert.equal(second[0]!.created, false);
      if (acknowledged)
        assert.deepEqual(
          [first, second].flat().map(({ created }) => created),
          [false, true, false, false, false],
        );
      const jobs = await machine.settle(mq.openTask("jobs"));
      const waiting = (await machine.settle(waitingIn(jobs))).sort();
      assert.deepEqual(
        waiting.filter((payload) => payload !== "b"),
        ["a", "c", "e"],
      );
    },
  );
  assert.ok(trials > TRIALS_MIN);
});

void test("a task that is cancelled or given another time by its key stays so, and its key goes on standing for it", async () => {
  const base = await scene(5, async (mq, machine) => {
    const jobs = await machine.settle(mq.openTask("jobs"));
    for (const key of ["a", "b", "c"]) await machine.settle(jobs.enqueue(key, { dedupeKey: key, delay: "2h" }));
  });
  const trials = await cutAtEveryCall(
    base,
    POLICIES,
    async (mq) => {
      const jobs = await mq.openTask("jobs");
      assert.equal(await jobs.cancel({ dedupeKey: "a" }), true);
      assert.equal(await jobs.reschedule({ dedupeKey: "b" }, { at: new Date(0) }), true);
    },
    async ({ mq, machine, acknowledged }) => {
      const jobs = await machine.settle(mq.openTask("jobs"));
      const ready = (await machine.settle(jobs.list({ state: "ready" }))).map(({ raw }) => raw.toString());
      const later = (await machine.settle(jobs.list({ state: "scheduled" }))).map(({ raw }) => raw.toString());
      const isCancelled = !later.includes("a");
      assert.deepEqual(ready, later.includes("b") ? [] : ["b"]);
      assert.ok(later.includes("c"));
      if (ready.length > 0) assert.ok(isCancelled, "one after the other");
      if (acknowledged) assert.deepEqual({ ready, later }, { ready: ["b"], later: ["c"] });
      assert.equal(await machine.settle(jobs.cancel({ dedupeKey: "a" })), !isCancelled);
      assert.equal((await machine.settle(jobs.enqueue("a", { dedupeKey: "a" }))).created, false);
      assert.equal((await machine.settle(jobs.stats())).scheduled, later.length - (isCancelled ? 0 : 1));
    },
  );
  assert.ok(trials > TRIALS_MIN);
});

void test("dead letters of an age are redriven, or purged, and no younger ones", async () => {
  for (const call of ["redrive", "purge"] as const) {
    const base = await scene(6, async (mq, machine) => {
      const jobs = await machine.settle(mq.openTask("jobs", { maxAttempts: 1 }));
      const die = async (payloads: string[]) => {
        await machine.settle(jobs.enqueueBatch(payloads));
        for (const task of await machine.settle(jobs.dequeueBatch({ max: 9 }))) await machine.settle(jobs.nack(task));
      };
      await die(["old 1", "old 2", "old 3"]);
      await machine.pass(HOUR_MS);
      await die(["young 1", "young 2"]);
    });
    const trials = await cutAtEveryCall(
      base,
      POLICIES,
      async (mq) => {
        const count = await (await mq.openTask("jobs")).dead[call]({ olderThan: HOUR_MS / 2 });
        assert.equal(count, 3);
      },
      async ({ mq, machine, acknowledged }) => {
        const jobs = await machine.settle(mq.openTask("jobs"));
        const dead = (await machine.settle(jobs.dead.read())).map(({ raw }) => raw.toString());
        assert.deepEqual(dead.slice(-2), ["young 1", "young 2"]);
        assert.ok(dead.length === 5 || dead.length === 2, "all or none");
        if (acknowledged) assert.equal(dead.length, 2);
        assert.equal(await machine.settle(jobs.dead[call]({ olderThan: HOUR_MS / 2 })), dead.length - 2);
        assert.equal((await machine.settle(jobs.stats())).ready, call === "redrive" ? 3 : 0);
      },
    );
    assert.ok(trials > TRIALS_MIN);
  }
});

void test("what a worker's handlers settle in transactions is done once, and another worker does the rest", async () => {
  const all = Array.from({ length: 9 }, (_, index) => `task ${index}`);
  const base = await scene(7, async (mq, machine) => {
    const jobs = await machine.settle(mq.openTask("jobs", { lease: 5000, maxAttempts: Number.POSITIVE_INFINITY }));
    await machine.settle(mq.openLog("done"));
    await machine.settle(jobs.enqueueBatch(all));
  });
  const work = async (mq: MessageQueue) => {
    const [jobs, done] = [await mq.openTask("jobs"), await mq.openLog("done")];
    const { ready, leased, scheduled } = await jobs.stats();
    let left = ready + leased + scheduled;
    let finished = () => {};
    const end = new Promise<void>((resolve) => {
      finished = resolve;
    });
    if (left === 0) finished();
    const worker = jobs.work(
      async (task, { settle, progress }) => {
        await progress(task.attempt);
        await settle(() =>
          mq.transaction((tx) => {
            tx.append(done, task.payload);
            tx.ack(jobs, task);
          }),
        );
      },
      { concurrency: 3 },
    );
    worker.on("completed", () => {
      if (--left === 0) finished();
    });
    await end;
    await worker.close();
  };
  const met = new Set<number>();
  const trials = await cutAtEveryCall(base, ["none", "all"], work, async ({ mq, machine, acknowledged }) => {
    const done = await machine.settle(mq.openLog("done"));
    const before = await machine.settle(payloadsOf(done));
    met.add(before.length);
    if (acknowledged) assert.equal(before.length, all.length);
    await machine.settle(work(mq));
    assert.deepEqual((await machine.settle(payloadsOf(done))).sort(), all);
  });
  assert.ok(trials > TRIALS_MIN);
  assert.ok(met.size > 2, `it was interrupted in between: ${[...met]} were done`);
});

void test("a shared group is where it was, or where it was moved to, with nothing in hand there", async () => {
  const base = await scene(8, async (mq, machine) => {
    const log = await machine.settle(mq.openLog("events"));
    await machine.settle(log.appendBatch(["0", "1", "2", "3", "4"]));
    const group = await machine.settle(log.sharedGroup("g", { lease: "1h" }));
    const tasks = await machine.settle(group.dequeueBatch({ max: 4 }));
    await machine.settle(group.ackBatch(tasks.slice(0, 2)));
    await machine.settle(group.nack(tasks[2]!, { delay: "1h" }));
  });
  const met = new Set<number>();
  const trials = await cutAtEveryCall(
    base,
    POLICIES,
    async (mq) => {
      const group = await (await mq.openLog("events")).sharedGroup("g");
      await group.seek(1);
      const task = await group.dequeue();
      await group.ack(task!);
    },
    async ({ mq, machine, acknowledged }) => {
      const log = await machine.settle(mq.openLog("events"));
      const group = await machine.settle(log.sharedGroup("g"));
      const { committed, lag, leased } = await machine.settle(group.info());
      met.add(lag);
      const before = { committed: 2, lag: 3, leased: 1 };
      const moved = { committed: 1, lag: 4, leased };
      const done = { committed: 2, lag: 3, leased: 0 };
      const is = lag === 4 ? moved : leased === 1 ? before : done;
      assert.deepEqual({ committed, lag, leased }, is);
      if (acknowledged) assert.deepEqual(is, done);
      assert.equal(await machine.settle(group.seek("start")), 0);
      const all = await machine.settle(group.dequeueBatch({ max: 9 }));
      assert.deepEqual(
        all.map(({ id, attempt }) => [id, attempt]),
        ["0", "1", "2", "3", "4"].map((id) => [id, 1]),
      );
    },
  );
  assert.ok(trials > TRIALS_MIN);
  assert.deepEqual([...met].sort(), [3, 4]);
});

void test("a redrive that was interrupted and is repeated twice at once goes on once", async () => {
  let machine = Simulated.boot(12);
  const open = async () => {
    const mq = await machine.open();
    return await machine.settle(mq.openTask("jobs", { maxAttempts: 1 }));
  };
  let jobs = await open();
  for (let killed = 0; killed < 600; killed += 100) {
    await machine.settle(jobs.enqueueBatch(Array.from({ length: 100 }, (_, index) => `${index}`)));
    for (const task of await machine.settle(jobs.dequeueBatch({ max: 100 }))) await machine.settle(jobs.nack(task));
  }
  const named = { request: { producer: Buffer.alloc(16, 7), sequence: 1 } };
  void jobs.dead.redrive({ limit: 550 }, named).catch(() => {});
  let syncs = 0;
  machine.disk.onCall = (kind) => {
    if (kind === "sync") syncs++;
  };
  await machine.clock.run(() => syncs === 2);
  machine = machine.kill();
  jobs = await open();
  const { ready } = await machine.settle(jobs.stats());
  assert.ok(ready > 0 && ready < 550, `interrupted after ${ready}`);
  const again = [1, 2].map(() => jobs.dead.redrive({ limit: 550 }, named));
  assert.deepEqual(await machine.settle(Promise.all(again)), [550, 550]);
  const stats = await machine.settle(jobs.stats());
  assert.deepEqual([stats.ready, stats.dead], [550, 50]);
});
