/** What random plans come upon too seldom: each of these is a story of its own on the simulated machine. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { isVarveError, type LogQueue, type MessageQueue, type TaskQueue, type TaskStatus } from "../../src/index.js";
import { cutAtEveryCall, Simulated, TINY } from "../support/simulated.js";

/** Enough that either order of two things that are due at once is met. */
const TRIALS = 24;
/** Whose settling takes more of the log than is allocated at a time. */
const TASKS = 8000;

/** With what might have to be said of each, more than a commit takes. */
const CHILDREN = 200;
/** Of 10 kB, more than a log file holds. */
const TASKS_OF_A_FILE = 30;
/** Of 30 kB, more than is read at a time. */
const TASKS_EACH = 12;
/** More than are redriven in one commit. */
const LETTERS = 400;
/** Of 10 kB, with which a log file is nearly full. */
const FULL_RECORDS = 22;

void test("what was staged when a sync failed is not acknowledged, and stays away if it was refused", async () => {
  let refused = 0;
  for (let seed = 1; seed <= TRIALS; seed++) {
    const machine = Simulated.boot(seed);
    const mq = await machine.open();
    const log = await machine.settle(mq.openLog("events"));
    const first = codeOf(log.append("first"));
    let failed = false;
    machine.disk.onCall = (kind, _path, call) => {
      if (kind === "sync" && !failed) machine.disk.failAt(call, { errno: "EIO", pages: "reverted" });
      failed ||= kind === "sync";
    };
    await machine.clock.run(() => failed);
    // Now the failure and the end of the turn in which this is staged are due at once.
    machine.clock.stall(1000);
    const second = codeOf(log.append("second"));
    assert.equal(await machine.settle(first), "ERR_OUTCOME_UNKNOWN");
    const code = await machine.settle(second);
    assert.ok(code === "ERR_OUTCOME_UNKNOWN" || code === "ERR_READ_ONLY", `seed ${seed}: ${code}`);
    if (code !== "ERR_READ_ONLY") continue;
    refused++;
    const next = machine.kill();
    const again = await next.open();
    const payloads = await next.settle(allOf(await next.settle(again.openLog("events"))));
    assert.ok(!payloads.includes("second"), `seed ${seed}: refused, and there all the same`);
  }
  assert.ok(refused > 0 && refused < TRIALS, `both orders are met: refused ${refused} times of ${TRIALS}`);
});

void test("after a failed sync, offsets that were shown are not given out again", async () => {
  const machine = Simulated.boot(1);
  const options = { ...TINY, durability: "async" } as const;
  const mq = await machine.open(options);
  const log = await machine.settle(mq.openLog("events"));
  const offset = await machine.settle(log.append("shown"));
  machine.disk.onCall = (kind, _path, call) => {
    if (kind === "sync") machine.disk.failAt(call, { errno: "EIO", pages: "reverted" });
  };
  assert.equal(await machine.settle(codeOf(mq.sync())), "ERR_READ_ONLY");
  const next = machine.kill();
  const again = await next.open(options);
  const queue = await next.settle(again.openLog("events"));
  assert.ok((await next.settle(queue.append("another"))) > offset);
});

void test("in a sync directory, offsets that are told early are not given out again after a power cut", async () => {
  for (let seed = 1; seed <= TRIALS; seed++) {
    const machine = Simulated.boot(seed);
    const mq = await machine.open();
    const log = await machine.settle(mq.openLog("events"));
    await machine.settle(log.append("durable"));
    let told = -1;
    const append = async () => {
      const offset = await log.append("early", { durability: "async" });
      told = Math.max(told, offset);
    };
    // The first one has the log marked; the second comes while that is on its way to the disk.
    const appends = [append()];
    await new Promise(setImmediate);
    appends.push(append());
    await machine.clock.run(() => told >= 0);
    if (seed % 2 === 0) {
      await machine.settle(Promise.all(appends));
      const before = told;
      const last = append();
      await machine.clock.run(() => told > before);
      appends.push(last);
    }
    const next = machine.cutPower("none");
    const again = await next.open();
    const offset = await next.settle((await next.settle(again.openLog("events"))).append("another"));
    assert.ok(offset > told, `seed ${seed}: ${told} was told, and ${offset} is given out`);
  }
});

void test("after a sync that failed while the directory was opened, offsets that were shown are not given out again", async () => {
  const machine = Simulated.boot(1);
  const options = { ...TINY, durability: "async" } as const;
  const mq = await machine.open(options);
  const log = await machine.settle(mq.openLog("events"));
  const offset = await machine.settle(log.append("shown"));
  const next = machine.kill();
  let failed = 0;
  next.disk.onCall = (kind, path, call) => {
    if (kind === "sync" && path.includes("/wal/") && failed++ === 0) {
      next.disk.failAt(call, { errno: "EIO", pages: "reverted" });
    }
  };
  assert.equal(await codeOf(next.open(options)), "ERR_IO");
  const again = await next.open(options);
  const queue = await next.settle(again.openLog("events"));
  assert.ok((await next.settle(queue.append("another"))) > offset);
});

void test("a segment whose sync failed is not what readers are given", async () => {
  const machine = Simulated.boot(2);
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("events"));
  machine.disk.onCall = (kind, path, call) => {
    if (kind === "sync" && path.endsWith(".seg")) machine.disk.failAt(call, { errno: "EIO", pages: "reverted" });
  };
  const sent = await appendUntilRefused(machine, log, Number.POSITIVE_INFINITY);
  await machine.pass(1000);
  assert.ok(sent.length > 20);
  assert.deepEqual((await machine.settle(allOf(log))).slice(0, sent.length), sent);
});

for (const [kind, path, errno] of [
  ["sync", ".seg", "EIO"],
  ["sync", ".seg", "ENOSPC"],
  ["syncDirectory", "/data/log", "EIO"],
  ["syncDirectory", "/data/log", "ENOSPC"],
] as const) {
  void test(`a checkpoint whose ${kind} of ${path} failed with ${errno} is not made good by trying again`, async () => {
    const machine = Simulated.boot(4);
    const mq = await machine.open();
    const log = await machine.settle(mq.openLog("events"));
    let failed = false;
    machine.disk.onCall = (called, where, call) => {
      if (called !== kind || !where.endsWith(path) || failed) return;
      failed = true;
      machine.disk.failAt(call, { errno, pages: "reverted" });
    };
    const sent = await appendUntilRefused(machine, log, 200);
    await machine.pass(5000);
    assert.ok(failed && sent.length > 20);
    const next = machine.cutPower("none");
    const again = await next.open();
    const found = await next.settle(allOf(await next.settle(again.openLog("events"))));
    assert.deepEqual(found.slice(0, sent.length), sent);
  });
}

void test("the log file that follows a snapshot is there, however long its name takes", async () => {
  const machine = Simulated.boot(6);
  const mq = await machine.open({ ...TINY, durability: "async" });
  const log = await machine.settle(mq.openLog("events"));
  // The names in the log's folder never become durable; everything else does at once.
  const { disk } = machine;
  const syncDirectory = disk.syncDirectory.bind(disk);
  let named = 0;
  disk.syncDirectory = (path) => {
    if (!path.endsWith("/wal")) return syncDirectory(path);
    named++;
    return new Promise(() => {});
  };
  let stored = 0;
  disk.onCall = (kind, path) => {
    if (kind === "sync" && path.endsWith(".seg")) stored++;
  };
  const sent = await appendUntilRefused(machine, log, 40);
  await machine.pass(5000);
  assert.ok(named > 0 && stored > 0, "a checkpoint has come as far as the snapshot");
  const next = machine.cutPower("none");
  const again = await next.open();
  const found = await next.settle(allOf(await next.settle(again.openLog("events"))));
  assert.deepEqual(found, sent.slice(0, found.length));
});

void test("no snapshot asks for a log file whose name may be lost, whatever a second sync says", async () => {
  let met = 0;
  for (let seed = 1; seed <= TRIALS; seed++) {
    const machine = Simulated.boot(seed);
    const mq = await machine.open({ ...TINY, durability: "async" });
    const log = await machine.settle(mq.openLog("events"));
    await machine.settle(mq.sync());
    let synced = 0;
    machine.disk.onCall = (kind, path, call) => {
      if (kind !== "syncDirectory" || !path.endsWith("/wal")) return;
      if (synced++ === 0) machine.disk.failAt(call, { errno: "EIO", pages: "reverted" });
    };
    // A sync of the log is under way while the name of its next file is made durable.
    for (let record = 0; record < 40; record++) {
      void codeOf(log.append("x".repeat(10_000)));
      void codeOf(mq.sync());
      await machine.pass(0.01);
    }
    await machine.pass(5000);
    if (synced > 1) met++;
    await machine.cutPower("none").open();
  }
  assert.ok(met > 0, "one sync fails, and another one does not");
});

for (const errno of ["EIO", "EMFILE", "EACCES"]) {
  void test(`a compaction that ${errno} ends says so by a code, and can be tried again`, async () => {
    const machine = Simulated.boot(7);
    const mq = await machine.open();
    const log = await machine.settle(mq.openLog("state"));
    for (let value = 0; value < 5; value++) {
      await machine.settle(log.append({ key: "a", payload: `${value}` }));
    }
    machine.disk.onCall = (kind, path, call) => {
      if (kind === "list" && path.includes("/log/")) machine.disk.failAt(call, { errno });
    };
    assert.equal(await machine.settle(codeOf(log.compact())), "ERR_IO");
    machine.disk.onCall = undefined;
    const { recordsRemoved } = await machine.settle(log.compact());
    assert.equal(recordsRemoved, 4);
    assert.equal((await machine.settle(mq.stats())).health, "ok");
  });
}

void test("a call that finds a queue as it wants it is answered when that is durable", async () => {
  const machine = Simulated.boot(8);
  const mq = await machine.open();
  const jobs = await machine.settle(mq.openTask("jobs"));
  const log = await machine.settle(mq.openLog("events"));
  const retention = { maxCount: 5 };
  void codeOf(jobs.pause());
  void codeOf(log.configure({ retention }));
  // Written, and on its way to the platter.
  await machine.pass(0);
  await machine.settle(Promise.race([jobs.pause(), log.configure({ retention })]));
  const next = machine.cutPower("none");
  const again = await next.open();
  assert.equal((await next.settle((await next.settle(again.openTask("jobs"))).stats())).paused, true);
  assert.equal((await next.settle((await next.settle(again.openLog("events"))).settings())).retention.maxCount, 5);
});

void test("what a log file lost in a failed sync is not read instead of what is in memory", async () => {
  let met = 0;
  for (let seed = 1; seed <= TRIALS; seed++) {
    const machine = Simulated.boot(seed);
    const mq = await machine.open({ ...TINY, durability: "async" });
    const log = await machine.settle(mq.openLog("events"));
    await machine.settle(mq.sync());
    const sent: string[] = [];
    let failed = false;
    let copied = false;
    machine.disk.onCall = (kind, path, call) => {
      if (kind === "write" && failed && path.endsWith(".seg")) copied = true;
      if (kind !== "sync" || failed || sent.length < FULL_RECORDS || !path.endsWith("/0000000000000001.wal")) return;
      failed = true;
      machine.disk.failAt(call, { errno: "EIO", pages: "reverted" });
    };
    for (let record = 0; record < 40; record++) {
      const text = `${record} `.padEnd(10_000, "x");
      if ((await machine.settle(codeOf(log.append(text)))) === undefined) sent.push(text);
      void codeOf(mq.sync());
      await machine.pass(0.01);
    }
    // A checkpoint of that file is under way while it fails to become durable.
    await machine.pass(5000);

    if (failed && copied) met++;
    assert.deepEqual(await machine.settle(allOf(log)), sent, `seed ${seed}`);
  }
  assert.ok(met > 0, "a file that failed is copied");
});

void test("a full disk refuses what it cannot take", async () => {
  const machine = Simulated.boot(5);
  const mq = await machine.open({ ...TINY, walFileBytes: "4MiB" });
  const log = await machine.settle(mq.openLog("events"));
  machine.disk.capacityBytes = machine.disk.usedBytes;
  let refused: unknown;
  // Past what the log has allocated, and not as far as the end of its file.
  for (let record = 0; record < 300 && refused === undefined; record++) {
    const outcome = await machine.outcomeOf(log.append("x".repeat(10_000)));
    assert.notEqual(outcome.kind, "unanswered");
    if (outcome.kind === "rejected") refused = outcome.error;
  }
  assert.ok(isVarveError(refused, "ERR_DISK_FULL"), String(refused));
  assert.equal((await machine.settle(mq.stats())).health, "disk-full");
});

for (const walFileBytes of ["256KiB", "4MiB"]) {
  void test(`a full disk is drained, far past what is left of a log file of ${walFileBytes}`, async () => {
    const machine = Simulated.boot(3);
    const mq = await machine.open({ ...TINY, walFileBytes });
    const jobs = await machine.settle(mq.openTask("jobs", { lease: "24h" }));
    let tasks = 0;
    for (; tasks < TASKS; tasks += 200) {
      await machine.settle(jobs.enqueueBatch(Array.from({ length: 200 }, () => "task")));
    }
    machine.disk.capacityBytes = machine.disk.usedBytes + 200_000;
    let code: string | undefined;
    while (code === undefined) {
      code = await machine.settle(codeOf(jobs.enqueue(Buffer.alloc(20_000))));
      if (code === undefined) tasks++;
    }
    assert.equal(code, "ERR_DISK_FULL");
    machine.disk.capacityBytes = machine.disk.usedBytes;
    const before = (await machine.settle(mq.stats())).wal.writtenBytes;
    for (; tasks > 0; tasks--) {
      const task = await machine.settle(jobs.dequeue());
      assert.ok(task !== undefined, `${tasks} tasks are left`);
      await machine.settle(jobs.ack(task));
    }
    const { wal, health } = await machine.settle(mq.stats());
    assert.notEqual(health, "failed");
    assert.ok(wal.writtenBytes - before > 1024 * 1024, "more was written than had been allocated");
  });
}

void test("a lease that a power cut took with it settles nothing, though the task is out again for the same attempt", async () => {
  const machine = Simulated.boot(10);
  const options = { ...TINY, durability: "async" } as const;
  const mq = await machine.open(options);
  const jobs = await machine.settle(mq.openTask("jobs"));
  await machine.settle(jobs.enqueue("task", { durability: "sync" }));
  const lost = (await machine.settle(jobs.dequeue()))!;
  const next = machine.cutPower("none");
  const again = await next.settle((await next.open(options)).openTask("jobs"));
  const held = (await next.settle(again.dequeue()))!;
  assert.deepEqual([lost.id, lost.attempt], [held.id, held.attempt]);
  assert.equal(await next.settle(codeOf(again.ack(lost.token))), "ERR_STALE_LEASE");
  await next.settle(again.ack(held.token));
});

void test("what a session held when it was killed comes back before what was behind it, also the second time", async () => {
  let machine = Simulated.boot(12);
  const openJobs = async () => machine.settle((await machine.open()).openTask("jobs"));
  let jobs = await openJobs();
  await machine.settle(jobs.enqueueBatch(["1", "2", "3"]));
  for (const max of [2, 1]) {
    await machine.settle(jobs.dequeueBatch({ max, lease: "session" }));
    machine = machine.kill();
    jobs = await openJobs();
  }
  for (const expected of ["1", "2", "3"]) {
    assert.equal((await machine.settle(jobs.dequeue()))?.payload.toString(), expected);
  }
});

void test("an ack that could not be written has not happened", async () => {
  const machine = Simulated.boot(11);
  const mq = await machine.open();
  const jobs = await machine.settle(mq.openTask("jobs"));
  await machine.settle(jobs.enqueue("task"));
  const task = (await machine.settle(jobs.dequeue()))!;
  machine.disk.onCall = (kind, _path, call) => {
    if (kind === "writeSync") machine.disk.failAt(call, { errno: "EIO" });
  };
  assert.equal(await machine.settle(codeOf(jobs.ack(task))), "ERR_OUTCOME_UNKNOWN");
  assert.equal((await machine.settle(jobs.stats())).leased, 1);
});

for (const end of ["a kill", "a close"] as const) {
  void test(`a task that waits for its next attempt waits on after ${end}`, async () => {
    const machine = Simulated.boot(9);
    const mq = await machine.open();
    const jobs = await machine.settle(mq.openTask("jobs"));
    await machine.settle(jobs.enqueue("task"));
    const task = await machine.settle(jobs.dequeue());
    await machine.settle(jobs.nack(task!, { delay: 60_000 }));
    await machine.pass(20_000);
    if (end === "a close") await machine.settle(mq.close());
    const next = end === "a close" ? machine : machine.kill();
    const again = await next.settle((await next.open()).openTask("jobs"));
    await next.pass(30_000);
    assert.equal(await next.settle(again.dequeue()), undefined);
    assert.equal((await next.settle(again.dequeue({ wait: "1m" })))?.attempt, 2);
  });
}

void test("a compaction leaves the last record of every key, wherever the power is cut", async () => {
  const base = Simulated.boot(10);
  const mq = await base.open();
  const log = await base.settle(mq.openLog("state"));
  for (let round = 0; round < 20; round++) {
    for (const key of ["a", "b", "c"]) await base.settle(log.append(`${round}`.padEnd(9000, "x"), { key }));
  }
  // Only whole segments are rewritten.
  for (let more = 0; more < 4; more++) await base.settle(log.append("more".padEnd(30_000, "x")));
  await base.settle(mq.close());
  const compacted = async (again: MessageQueue): Promise<void> => {
    await (await again.openLog("state")).compact();
  };
  const trials = await cutAtEveryCall(base, ["none", "random", "all"], compacted, async ({ mq: again, machine }) => {
    const payloads = await machine.settle(allOf(await machine.settle(again.openLog("state"))));
    const last = payloads.filter((payload) => payload.startsWith("19"));
    assert.equal(last.length, 3);
  });
  assert.ok(trials > 20);
});

void test("a redrive or a purge that the power cut interrupted is finished when it is made again, and counts them all", async () => {
  const request = { producer: Buffer.alloc(16, "producer"), sequence: 1 };
  for (const call of ["redrive", "purge"] as const) {
    const base = Simulated.boot(3);
    const mq = await base.open();
    const jobs = await base.settle(mq.openTask("jobs", { maxAttempts: 1 }));
    await base.settle(jobs.enqueueBatch(Array.from({ length: LETTERS }, (_, index) => `${index}`)));
    const tasks = await base.settle(jobs.dequeueBatch({ max: LETTERS }));
    await base.settle(Promise.all(tasks.map((task) => jobs.nack(task))));
    await base.settle(mq.close());
    const selection = { limit: LETTERS - 1 };
    const halves = new Set<number>();
    const trials = await cutAtEveryCall(
      base,
      ["none", "random", "all"],
      async (queues) => {
        await (await queues.openTask("jobs")).dead[call](selection, { request });
      },
      async ({ mq: again, machine, acknowledged }) => {
        const queue = await machine.settle(again.openTask("jobs"));
        const left = (await machine.settle(queue.stats())).dead;
        if (acknowledged) assert.equal(left, 1);
        halves.add(LETTERS - left);
        assert.equal(await machine.settle(queue.dead[call](selection, { request })), LETTERS - 1);
        const { dead, ready } = await machine.settle(queue.stats());
        assert.deepEqual({ dead, ready }, { dead: 1, ready: call === "redrive" ? LETTERS - 1 : 0 });
      },
    );
    assert.ok(trials > 6);
    assert.ok(halves.size > 2, `it was interrupted within: ${[...halves]} were done`);
  }
});

void test("a task that is redriven while somebody asks for it is not called done", async () => {
  const states = new Set<string>();
  for (let seed = 1; seed <= TRIALS; seed++) {
    const machine = Simulated.boot(seed);
    const mq = await machine.open();
    const jobs = await machine.settle(mq.openTask("jobs"));
    const { id } = await machine.settle(jobs.enqueue("x".repeat(1000)));
    const task = await machine.settle(jobs.dequeue());
    await machine.settle(jobs.nack(task!, { dead: true }));
    const asked = jobs.status(id);
    if (seed % 2 === 0) await machine.pass(seed / 10);
    await machine.settle(jobs.dead.redrive());
    states.add((await machine.settle(asked)).state);
  }
  assert.deepEqual([...states].sort(), ["dead", "ready"]);
});

void test("a task that is purged while it is looked for is not called damaged", async () => {
  for (const call of ["cancel", "reschedule", "status"] as const) {
    const machine = Simulated.boot(13);
    const options = { ...TINY, durability: "async", syncInterval: "1m" } as const;
    const mq = await machine.open(options);
    const jobs = await machine.settle(mq.openTask("jobs"));
    await machine.settle(jobs.enqueue("first"));
    const { id } = await machine.settle(jobs.enqueue("second"));
    await machine.settle(mq.close());
    // Now it has to be read from a segment, which a checkpoint gives up meanwhile.
    const again = await machine.settle((await machine.open(options)).openTask("jobs"));
    const told: Promise<unknown> =
      call === "reschedule"
        ? again.reschedule(id, { delay: 1000 })
        : call === "cancel"
          ? again.cancel(id)
          : again.status(id);
    await new Promise(setImmediate);
    const changes: Promise<unknown>[] = [again.purge()];
    for (let task = 0; task < TASKS_OF_A_FILE; task++) changes.push(again.enqueue("x".repeat(10_000)));
    const answer = await machine.settle(told);
    assert.deepEqual(call === "status" ? (answer as TaskStatus).state : answer, call === "status" ? "done" : false);
    await machine.settle(Promise.all(changes));
  }
});

void test("a parent is told of very many children that are gone, where log files are small", async () => {
  const machine = Simulated.boot(14);
  const mq = await machine.open();
  const parents = await machine.settle(mq.openTask("parents"));
  const children = await machine.settle(mq.openTask("children"));
  const child = { queue: children, input: "child" };
  const flow = { queue: parents, input: "parent", children: Array.from({ length: CHILDREN }, () => child) };
  const { task } = await machine.settle(mq.flow(flow));
  await machine.settle(children.purge());
  await machine.pass(5000);
  assert.equal((await machine.settle(parents.status(task.id))).state, "dead");
});

void test("what a purge removed that is lost in a power cut is there, although a checkpoint came in between", async () => {
  const machine = Simulated.boot(11);
  const options = { ...TINY, durability: "async", syncInterval: "1m" } as const;
  const mq = await machine.open(options);
  const jobs = await machine.settle(mq.openTask("jobs"));
  const begun = new Set<string>();
  let checkpoints = 0;
  machine.disk.onCall = (kind, path) => {
    if (kind === "writeSync" && path.includes("/wal/0")) begun.add(path);
    if (kind === "list" && path.endsWith("/snap")) checkpoints++;
  };
  // The first checkpoint is still under way when the second one is to be made, and has to wait.
  let sent = 0;
  while (begun.size < 3) {
    await machine.settle(jobs.enqueue(`${sent++}`.padEnd(10_000, "x")));
    assert.equal(checkpoints, 0);
  }
  const purging = jobs.purge();
  await machine.clock.run(() => checkpoints === 2);
  await purging;
  const next = machine.cutPower("none");
  const again = await next.settle((await next.open(options)).openTask("jobs"));
  const left: number[] = [];
  for (let task = await next.settle(again.dequeue()); task !== undefined; task = await next.settle(again.dequeue())) {
    left.push(Number(task.payload.toString().replaceAll("x", "")));
  }
  // The last one is not covered by the checkpoints.
  const expected = Array.from({ length: left.length === 0 ? 0 : Math.max(left.length, sent - 1) }, (_, index) => index);
  assert.deepEqual(left, expected);
});

void test("a reader for which only the memory that it has itself is left goes on", async () => {
  const machine = Simulated.boot(7);
  const options = { ...TINY, segmentBytes: "1MiB" } as const;
  let mq = await machine.open(options);
  const names = Array.from({ length: 8 }, (_, index) => `q${index}`);
  for (const name of names) {
    const queue = await machine.settle(mq.openTask(name));
    for (let task = 0; task < TASKS_EACH; task++) await machine.settle(queue.enqueue("x".repeat(30_000)));
  }
  await machine.settle(mq.close());
  // Now all of it is read from segments, each of more than is read at a time; there is memory for eight readers.
  mq = await machine.open(options);
  const [first, ...others] = await machine.settle(Promise.all(names.map((name) => mq.openTask(name))));
  const take = async (queue: TaskQueue) => {
    let taken = false;
    const run = queue.dequeue({ autoAck: true }).then(() => {
      taken = true;
    });
    // One that reads without end takes no more of the real time either.
    assert.ok(await machine.clock.run(() => taken, 1000));
    await run;
  };
  await take(first!);
  for (const queue of others) await take(queue);
  for (let task = 1; task < TASKS_EACH; task++) await take(first!);
  await machine.settle(mq.close());
});

void test("tasks that wait for their order key do not take each other's memory for ever", async () => {
  const machine = Simulated.boot(8);
  let mq = await machine.open();
  let jobs = await machine.settle(mq.openTask("jobs", { lookAhead: 1 }));
  for (const priority of [9, 9, 8, 7, 6, 5, 4, 3, 2, 1]) {
    await machine.settle(jobs.enqueue(`${priority}`, { priority, orderKey: "all" }));
  }
  await machine.settle(jobs.enqueue("0", { priority: 0 }));
  await machine.settle(mq.close());
  // Now all of it is read from segments: by ten lanes, where there is memory for eight readers.
  mq = await machine.open();
  jobs = await machine.settle(mq.openTask("jobs"));
  const first = await machine.settle(jobs.dequeue());
  let free: string | undefined;
  const seeing = jobs.peek({ wait: "1s" }).then((task) => {
    free = task?.payload.toString();
  });
  // Those who read without end take no more of the real time either.
  assert.ok(await machine.clock.run(() => free !== undefined, 500), "the one that waits for nothing is shown");
  await seeing;
  assert.equal(free, "0");
  const taken: (string | undefined)[] = [];
  const taking = jobs.dequeue({ wait: "1s" }).then((task) => taken.push(task?.payload.toString()));
  assert.ok(await machine.clock.run(() => taken.length > 0, 500), "and handed out");
  await taking;
  await machine.settle(jobs.ack(first!));
  for (let count = 0; count < 9; count++) {
    const task = await machine.settle(jobs.dequeue());
    taken.push(task?.payload.toString());
    await machine.settle(jobs.ack(task!));
  }
  assert.deepEqual(taken, ["0", "9", "8", "7", "6", "5", "4", "3", "2", "1"]);
  await machine.settle(mq.close());
});

/** What was acknowledged of up to so many records, each large enough that log files fill up soon. */
async function appendUntilRefused(machine: Simulated, log: LogQueue, most: number): Promise<string[]> {
  const sent: string[] = [];
  while (sent.length < most) {
    const text = `${sent.length} `.padEnd(10_000, "x");
    if ((await machine.settle(codeOf(log.append(text)))) !== undefined) break;
    sent.push(text);
  }
  return sent;
}

async function codeOf(run: Promise<unknown>): Promise<string | undefined> {
  try {
    await run;
    return undefined;
  } catch (error) {
    if (!isVarveError(error)) throw error;
    return error.code;
  }
}

async function allOf(log: LogQueue): Promise<string[]> {
  const payloads: string[] = [];
  for await (const batch of log.batches()) for (const { payload } of batch) payloads.push(payload.toString());
  return payloads;
}
