import assert from "node:assert/strict";
import type { CommitOptions, EnqueuedFlow, MessageQueue, RequestIdentity, Task } from "../../src/index.js";
import { codeOf, rejectsWith } from "../support/expect.js";
import { observe, takeAll, textsOf } from "../support/state.js";
import type { Check } from "./suite.js";

const PRODUCER = Buffer.from("000102030405060708090a0b0c0d0eff", "hex");

function request(sequence: number, settled = 0): { readonly request: RequestIdentity } {
  return { request: { producer: PRODUCER, sequence, settled } };
}

/** The parts of an answer that can be compared. */
function plain(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value ?? null));
}

/** A call, which is made anew on whatever directory is open. */
type Call = (mq: MessageQueue, options: CommitOptions) => Promise<unknown>;

/**
 * Calls of every kind that takes options, in an order in which each has something to change. Each finds what those before it
 * have left.
 */
function everyCall(): Record<string, Call> {
  const log = (mq: MessageQueue) => mq.openLog("events");
  const tasks = (mq: MessageQueue) => mq.openTask("jobs", { lease: "1h", maxAttempts: 2 });
  const tokens: Task[] = [];
  const held = (index: number) => tokens[index]!.token;
  return {
    append: async (mq, options) => await (await log(mq)).append("one", options),
    appendBatch: async (mq, options) => await (await log(mq)).appendBatch(["two", "three", "four"], options),
    delete: async (mq, options) => await (await log(mq)).delete("key", { ...options, headers: { a: "b" } }),
    trim: async (mq, options) => await (await log(mq)).trim(2, options),
    purge: async (mq, options) => await (await log(mq)).purge(options),
    "configure a log": async (mq, options) => await (await log(mq)).configure({ metadata: { a: "b" } }, options),
    "append for a group": async (mq, options) => await (await log(mq)).append("five", options),
    "group commit": async (mq, options) => {
      const member = await (await log(mq)).group("g");
      const [record] = await member.read();
      await member.commit(record?.offset ?? 5, options).finally(() => member.close());
    },
    "group seek": async (mq, options) => {
      const member = await (await log(mq)).group("g");
      return await member.seek("end", options).finally(() => member.close());
    },
    deleteGroup: async (mq, options) => await (await log(mq)).deleteGroup("g", options),
    "shared group seek": async (mq, options) => {
      const group = await (await log(mq)).sharedGroup("s");
      return await group.seek("end", options).finally(() => group.close());
    },
    enqueue: async (mq, options) => await (await tasks(mq)).enqueue("t0", options),
    "enqueue with terms": async (mq, options) =>
      await (await tasks(mq)).enqueue("t1", { ...options, priority: 3, dedupeKey: "d" }),
    "enqueue of a duplicate": async (mq, options) =>
      await (await tasks(mq)).enqueue("t1 again", { ...options, dedupeKey: "d" }),
    "enqueue later": async (mq, options) => await (await tasks(mq)).enqueue("t2", { ...options, delay: "1h" }),
    enqueueBatch: async (mq, options) => await (await tasks(mq)).enqueueBatch(["t3", "t4", "t5", "t6", "t7"], options),
    "enqueueBatch with keys": async (mq, options) =>
      await (await tasks(mq)).enqueueBatch(["a", "b", "c", "d"], {
        ...options,
        dedupeKeys: ["e", "d", undefined, "e"],
      }),
    reschedule: async (mq, options) => await (await tasks(mq)).reschedule({ dedupeKey: "e" }, { delay: "2h" }, options),
    cancel: async (mq, options) => await (await tasks(mq)).cancel({ dedupeKey: "e" }, options),
    dequeue: async (mq, options) => {
      const task = await (await tasks(mq)).dequeue(options);
      tokens[0] = task!;
      return task;
    },
    dequeueBatch: async (mq, options) => {
      const all = await (await tasks(mq)).dequeueBatch({ ...options, max: 5 });
      tokens.splice(1, 5, ...all);
      return all;
    },
    extend: async (mq, options) => await (await tasks(mq)).extend(held(0), "2h", options),
    progress: async (mq, options) => await (await tasks(mq)).progress(held(0), 0.5, options),
    ack: async (mq, options) => await (await tasks(mq)).ack(held(0), options),
    "ack with a result": async (mq, options) => await (await tasks(mq)).ack(held(1), { ...options, result: [1] }),
    nack: async (mq, options) => await (await tasks(mq)).nack(held(2), { ...options, delay: "1h" }),
    "nack to the dead letters": async (mq, options) =>
      await (await tasks(mq)).nack(held(3), { ...options, dead: true }),
    "dead.redrive": async (mq, options) => await (await tasks(mq)).dead.redrive({ limit: 5 }, options),
    "dequeue of what is redriven": async (mq, options) => {
      const task = await (await tasks(mq)).dequeue(options);
      tokens[7] = task!;
      return task;
    },
    "nack of what is redriven": async (mq, options) =>
      await (await tasks(mq)).nack(held(7), { ...options, dead: true }),
    "dead.purge": async (mq, options) => await (await tasks(mq)).dead.purge(undefined, options),
    release: async (mq, options) => await (await tasks(mq)).release(held(4), options),
    ackBatch: async (mq, options) => await (await tasks(mq)).ackBatch([held(5)], options),
    schedule: async (mq, options) => await (await tasks(mq)).schedule("s", { every: "1h" }, "again", options),
    unschedule: async (mq, options) => await (await tasks(mq)).unschedule("s", options),
    pause: async (mq, options) => await (await tasks(mq)).pause(options),
    resume: async (mq, options) => await (await tasks(mq)).resume(options),
    "configure a task queue": async (mq, options) => await (await tasks(mq)).configure({ ttl: "9h" }, options),
    "a cursor's dequeue": async (mq, options) => {
      const task = await (await (await tasks(mq)).cursor("c")).dequeue(options);
      tokens[6] = task!;
      return task;
    },
    "a cursor's release": async (mq, options) => await (await (await tasks(mq)).cursor("c")).release(held(6), options),
    "a cursor's reset": async (mq, options) => await (await (await tasks(mq)).cursor("c")).reset(options),
    deleteCursor: async (mq, options) => await (await tasks(mq)).deleteCursor("c", options),
    flow: async (mq, options) => {
      const jobs = await tasks(mq);
      const child = (input: string) => ({ queue: jobs, input, children: [{ queue: jobs, input: "leaf" }] });
      return await mq.flow({ queue: jobs, input: "root", children: [child("left"), child("right")] }, options);
    },
    transaction: async (mq, options) => {
      const [events, jobs] = await Promise.all([log(mq), tasks(mq)]);
      const build = (tx: Parameters<Parameters<MessageQueue["transaction"]>[0]>[0]) => {
        tx.append(events, "tx");
        tx.enqueue(jobs, "tx");
      };
      return await mq.transaction(build, options);
    },
    "purge of a task queue": async (mq, options) => await (await tasks(mq)).purge(options),
    deleteQueue: async (mq, options) => await mq.deleteQueue("task", "gone", options),
  };
}

export function requestConformance(check: Check): void {
  check("request: every kind of call is carried out once, also over a restart", async (subject) => {
    await subject.mq.openTask("gone");
    const calls = Object.entries(everyCall());
    for (const [index, [what, call]] of calls.entries()) {
      const options = request(index + 1);
      const first = plain(await call(subject.mq, options));
      const before = await observe(subject.mq);
      assert.deepEqual(plain(await call(subject.mq, options)), first, `${what}, repeated`);
      assert.deepEqual(await observe(subject.mq), before, `${what}, repeated, changed something`);
      if (index % 5 !== 4) continue;
      await subject.reopen();
      assert.deepEqual(plain(await call(subject.mq, options)), first, `${what}, repeated after a restart`);
    }
    await subject.reopen();
    const before = await observe(subject.mq);
    for (const [index, [what, call]] of calls.entries()) {
      if (/dequeue|commit/.test(what)) continue;
      await call(subject.mq, request(index + 1));
    }
    assert.deepEqual(await observe(subject.mq), before, "repeated long after, in another life");
  });

  check("request: calls at once with one name are one call", async ({ mq }) => {
    const events = await mq.openLog("events");
    const all = await Promise.all(Array.from({ length: 5 }, (_, index) => events.append(`try ${index}`, request(1))));
    assert.deepEqual(all, [0, 0, 0, 0, 0]);
    assert.deepEqual(await textsOf(events), ["try 0"]);
    const jobs = await mq.openTask("jobs");
    const two = await Promise.all([
      jobs.enqueueBatch(["a", "b"], request(2)),
      jobs.enqueueBatch(["a", "b"], request(2)),
    ]);
    assert.deepEqual(plain(two[0]), plain(two[1]));
    assert.equal((await jobs.stats()).ready, 2);
  });

  check("request: each of a batch is a call of its own", async (subject) => {
    const each = (sequence: number) => ({ request: { ...request(sequence).request, each: true } });
    let events = await subject.mq.openLog("events");
    assert.deepEqual(await events.appendBatch(["a", "b", "c"], each(1)), [0, 1, 2]);
    assert.deepEqual(await events.appendBatch(["a", "b", "c"], each(1)), [0, 1, 2], "all of them again");
    assert.equal(await events.append("b", request(2)), 1, "one of them again");
    assert.deepEqual(
      await events.appendBatch(["c", "d", "e"], each(3)),
      [2, 3, 4],
      "one made before, two that were not",
    );
    const jobs = await subject.mq.openTask("jobs");
    const ids = (await jobs.enqueueBatch(["x", "y"], each(11))).map(({ id }) => id);
    const keyed = await jobs.enqueueBatch(["z", "z again"], { ...each(13), dedupeKeys: ["z", "z"] });
    assert.deepEqual(
      keyed.map(({ created }) => created),
      [true, false],
    );
    const [atOnce, alone] = await Promise.all([
      events.appendBatch(["f", "g"], each(6)),
      events.append("g", request(7)),
    ]);
    assert.deepEqual([atOnce, alone], [[5, 6], 6], "while it is under way");
    await subject.reopen();
    events = await subject.mq.openLog("events");
    assert.equal(await events.append("e", request(5)), 4);
    assert.deepEqual(await events.appendBatch(["a", "b"], each(1)), [0, 1]);
    assert.deepEqual(await textsOf(events), ["a", "b", "c", "d", "e", "f", "g"]);
    const again = await subject.mq.openTask("jobs");
    assert.equal((await again.enqueue("y", request(12))).id, ids[1]);
    const second = await again.enqueueBatch(["z", "z again"], { ...each(13), dedupeKeys: ["z", "z"] });
    assert.deepEqual(
      plain(second.map(({ id, created }) => [id, created])),
      plain(keyed.map(({ id, created }) => [id, created])),
    );
    assert.equal((await again.stats()).ready, 3);
    await rejectsWith("ERR_ARGUMENT", again.enqueue("a", request(1)), /another kind of call/);
    assert.deepEqual(await events.appendBatch([], each(20)), []);
    await rejectsWith(
      "ERR_OPTION",
      events.appendBatch(["h"], { request: { ...request(20).request, each: 1 as never } }),
      /each/,
    );
  });

  check(
    "request: names of different producers, and different sequence numbers, have nothing to do with each other",
    async ({ mq }) => {
      const events = await mq.openLog("events");
      const other = Buffer.alloc(16, 7);
      await Promise.all([
        events.append("a", request(1)),
        events.append("b", request(2)),
        events.append("c", { request: { producer: other, sequence: 1 } }),
        events.append("d"),
        events.append("e"),
      ]);
      assert.deepEqual(await textsOf(events), ["a", "b", "c", "d", "e"]);
    },
  );

  check("request: a redrive or a purge of many letters goes on where it was, and counts them all", async (subject) => {
    let jobs = await subject.mq.openTask("jobs", { maxAttempts: 1 });
    const kill = async (count: number) => {
      await jobs.enqueueBatch(Array.from({ length: count }, (_, index) => `${index}`));
      for (const task of await jobs.dequeueBatch({ max: count })) await jobs.nack(task);
    };
    await kill(600);
    const all = await Promise.all([1, 1, 1].map((name) => jobs.dead.redrive({}, request(name))));
    assert.deepEqual(all, [600, 600, 600], "called at once");
    for (const task of await jobs.dequeueBatch({ max: 600 })) await jobs.nack(task);
    assert.equal(await jobs.dead.redrive({}, request(1)), 600, "what has died since is not what was meant");
    assert.equal((await jobs.stats()).dead, 600);
    assert.equal(await jobs.dead.purge({ limit: 300 }, request(2)), 300);
    assert.equal(await jobs.dead.purge({ limit: 300 }, request(2)), 300);
    assert.equal(await jobs.dead.purge(undefined, request(3)), 300);
    await kill(1);
    assert.equal(await jobs.dead.purge(undefined, request(3)), 300);
    jobs = await (await subject.reopen()).openTask("jobs");
    assert.equal(await jobs.dead.purge(undefined, request(3)), 300);
    assert.equal(await jobs.dead.redrive({}, request(1)), 600);
    const { dead, ready } = await jobs.stats();
    assert.deepEqual({ dead, ready }, { dead: 1, ready: 0 });
    await subject.mq.deleteQueue("task", "jobs");
    jobs = await subject.mq.openTask("jobs", { maxAttempts: 1 });
    await kill(2);
    assert.equal(await jobs.dead.redrive({}, request(1)), 600, "of a queue that is gone");
    assert.equal((await jobs.stats()).dead, 2);
    assert.equal(await jobs.dead.redrive({ ids: ["77"] }, request(4)), 0);
    assert.equal(
      await jobs.dead.purge({ ids: ["77"] }, request(4)),
      0,
      "nothing was to be done, and no name was used up",
    );
  });

  check("request: what was refused, or had nothing to change, is made anew", async ({ mq }) => {
    const events = await mq.openLog("events", { limits: { maxCount: 1 } });
    await events.append("full");
    await rejectsWith("ERR_QUEUE_FULL", events.append("second", request(1)));
    await events.purge();
    assert.equal(await events.append("second", request(1)), 1);
    const jobs = await mq.openTask("jobs");
    assert.equal(await jobs.cancel("0", request(2)), false);
    await jobs.enqueue("task");
    assert.equal(await jobs.cancel("0", request(2)), true);
    assert.equal(await jobs.cancel("0", request(2)), true);
  });

  check("request: an ack whose answer was lost is answered, and a stale one is still refused", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    await jobs.enqueue("task");
    const { token } = (await jobs.dequeue()) as Task;
    await jobs.ack(token, request(1));
    await jobs.ack(token, request(1));
    await rejectsWith("ERR_STALE_LEASE", jobs.ack(token, request(2)));
    await rejectsWith("ERR_STALE_LEASE", jobs.ack(token));
  });

  check("request: a dequeue that is repeated gives the same tasks while their leases hold", async (subject) => {
    let jobs = await subject.mq.openTask("jobs", { lease: "1h" });
    await jobs.enqueueBatch(["a", "b", "c", "d"]);
    const first = await jobs.dequeueBatch({ max: 3, ...request(1) });
    jobs = await (await subject.reopen()).openTask("jobs");
    const again = await jobs.dequeueBatch({ max: 3, ...request(1) });
    assert.deepEqual(plain(again), plain(first));
    await jobs.ack(again[0]!);
    await jobs.release(again[1]!);
    const left = await jobs.dequeueBatch({ max: 3, ...request(1) });
    assert.deepEqual(
      left.map(({ payload, token }) => [payload.toString(), token]),
      [["c", first[2]!.token]],
    );
    await jobs.ack(first[2]!.token);
    assert.deepEqual(await jobs.dequeueBatch({ max: 3, ...request(1) }), [], "none is handed out instead");
    assert.equal((await takeAll(jobs)).length, 2);
  });

  check("request: a dequeue that got nothing is made anew", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    assert.equal(await jobs.dequeue(request(1)), undefined);
    await jobs.enqueue("task");
    const task = await jobs.dequeue(request(1));
    assert.equal(task?.payload.toString(), "task");
    assert.equal((await jobs.dequeue(request(1)))?.token, task?.token);
    await rejectsWith("ERR_OPTION", jobs.dequeue({ autoAck: true, ...request(2) }), /autoAck/);
  });

  check(
    "request: who repeats a dequeue that waits gets its task, or goes on waiting when that one gives up",
    async ({ mq, pass }) => {
      const jobs = await mq.openTask("jobs");
      const gone = new AbortController();
      const first = jobs.dequeue({ wait: "1h", signal: gone.signal, ...request(1) });
      const second = jobs.dequeue({ wait: "1h", ...request(1) });
      await pass(20);
      gone.abort();
      assert.equal(await first, undefined);
      await jobs.enqueue("task");
      const task = await second;
      assert.equal(task?.payload.toString(), "task");
      assert.equal((await jobs.dequeue(request(1)))?.token, task?.token);
    },
  );

  check("request: a flow that is repeated is told with the same ids", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    const flow = {
      queue: jobs,
      input: "root",
      options: { priority: 2 },
      children: [
        { queue: jobs, input: "leaf" },
        { queue: await mq.openTask("other"), input: "leaf" },
      ],
    };
    const first = await mq.flow(flow, request(1));
    const again = await mq.flow(flow, request(1));
    const ids = ({ task, children }: EnqueuedFlow): unknown => [task.id, children.map(ids)];
    assert.deepEqual(ids(again), ids(first));
    await rejectsWith("ERR_ARGUMENT", mq.flow({ ...flow, children: [] }, request(1)), /number of tasks/);
  });

  check(
    "request: an answer that was settled, or is too old, is not remembered, and nothing is done again",
    async ({ mq }) => {
      const events = await mq.openLog("events");
      await events.append("a", request(1));
      await events.append("b", request(2, 1));
      const error = await rejectsWith("ERR_OUTCOME_UNKNOWN", events.append("a", request(1)), /not remembered/);
      assert.deepEqual({ ...error.details }, { sequence: 1, forgotten: 1 });
      assert.equal(await events.append("b", request(2)), 1);
      await Promise.all(Array.from({ length: 1100 }, (_, index) => events.append("x", request(index + 3))));
      assert.equal(await codeOf(events.append("b", request(2))), "ERR_OUTCOME_UNKNOWN");
      assert.equal((await events.stats()).next, 1102);
      assert.equal(await events.append("x", request(1102)), 1101);
    },
  );

  check("request: a name that another kind of call had is refused", async ({ mq }) => {
    const events = await mq.openLog("events");
    const appending = events.append("a", request(1));
    await rejectsWith("ERR_ARGUMENT", events.appendBatch(["a"], request(1)), /another kind of call/);
    await appending;
    await rejectsWith("ERR_ARGUMENT", events.appendBatch(["a"], request(1)), /another kind of call/);
    assert.equal((await events.stats()).next, 1);
  });

  check("request: names that are none are refused", async ({ mq }) => {
    const events = await mq.openLog("events");
    const bad: unknown[] = [
      null,
      "x",
      {},
      { producer: PRODUCER },
      { sequence: 1 },
      { producer: Buffer.alloc(15), sequence: 1 },
      { producer: "0123456789abcdef", sequence: 1 },
      { producer: PRODUCER, sequence: 0 },
      { producer: PRODUCER, sequence: 1.5 },
      { producer: PRODUCER, sequence: 1, settled: 1 },
      { producer: PRODUCER, sequence: 1, settled: -1 },
      { producer: PRODUCER, sequence: 1, more: true },
    ];
    for (const each of bad) {
      await rejectsWith("ERR_OPTION", events.append("x", { request: each as RequestIdentity }), /request/);
    }
    assert.equal((await events.stats()).next, 0);
    const jobs = await mq.openTask("jobs");
    const inside = () => mq.transaction((tx) => tx.enqueue(jobs, "x", request(1) as object));
    await rejectsWith("ERR_OPTION", inside, /request/);
  });
}
