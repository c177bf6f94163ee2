import assert from "node:assert/strict";
import { test } from "node:test";
import { isVarveError, type LogQueue, type MessageQueue, type Task, type TaskQueue } from "../../src/index.js";
import type { CallKind } from "../sim/sim-disk.js";
import { labelled, rejectsWith } from "../support/expect.js";
import { type Outcome, Simulated, TINY } from "../support/simulated.js";
import { recordsOf } from "../support/state.js";

/** The calls that put something on the disk: one of them fails, each in turn. */
const WRITING: readonly CallKind[] = ["writeSync", "write", "sync", "syncDirectory"];
const SEED = 707;

interface Journal {
  readonly acknowledged: string[];
  readonly acked: Set<string>;
  /** Acks that were tried: of those without a good answer some may have taken effect. */
  readonly ackTried: Set<string>;
  readonly enqueued: Set<string>;
  /** First error that a call met. */
  firstError: unknown;
  /** Set once a call was refused because of an earlier failure. */
  readOnly: boolean;
  calls: number;
  settled: number;
}

/** A small workload with a checkpoint in it; several calls are always under way. */
async function work(machine: Simulated, log: LogQueue, jobs: TaskQueue): Promise<Journal> {
  const journal: Journal = {
    acknowledged: [],
    acked: new Set(),
    ackTried: new Set(),
    enqueued: new Set(),
    firstError: undefined,
    readOnly: false,
    calls: 0,
    settled: 0,
  };
  const note = async (call: Promise<unknown>, onSuccess: () => void): Promise<void> => {
    journal.calls++;
    const begunAfterwards = journal.readOnly;
    try {
      const result = await call;
      // A dequeue that finds nothing is no change.
      if (result !== undefined) assert.ok(!begunAfterwards, "no change succeeds afterwards");
      onSuccess();
    } catch (error) {
      journal.firstError ??= error;
      if (!isVarveError(error)) throw error;
      journal.readOnly ||= error.code === "ERR_READ_ONLY";
    } finally {
      journal.settled++;
    }
  };
  for (let round = 0; round < 12; round++) {
    const texts = [0, 1, 2].map((index) => `${round}/${index} ${"x".repeat(9000)}`);
    const calls = texts.map((text) => note(log.append(text), () => journal.acknowledged.push(text)));
    const task = `task ${round}`;
    calls.push(note(jobs.enqueue(task), () => journal.enqueued.add(task)));
    let taken: Task | undefined;
    calls.push(
      note(
        jobs.dequeue().then((delivered) => {
          taken = delivered;
          return delivered;
        }),
        () => {},
      ),
    );
    const outcome: Outcome<unknown> = await machine.outcomeOf(Promise.all(calls));
    if (outcome.kind === "rejected") throw outcome.error;
    assert.equal(outcome.kind, "resolved", "every call settles");
    if (taken !== undefined) {
      const text = taken.payload.toString();
      journal.ackTried.add(text);
      const acked = jobs.ack(taken).then(() => text);
      const ack = await machine.outcomeOf(note(acked, () => journal.acked.add(text)));
      assert.equal(ack.kind, "resolved");
    }
  }
  await machine.pass(1_000);
  assert.equal(journal.settled, journal.calls);
  return journal;
}

async function start(): Promise<{ machine: Simulated; mq: MessageQueue; log: LogQueue; jobs: TaskQueue }> {
  const machine = Simulated.boot(SEED);
  const mq = await machine.open(TINY);
  const log = await machine.settle(mq.openLog("events"));
  const jobs = await machine.settle(mq.openTask("jobs", { lease: "24h" }));
  await machine.settle(log.append("before"));
  return { machine, mq, log, jobs };
}

void test("case 7: after a failed write or sync nothing more succeeds until a reopen, and nothing acknowledged is gone", async () => {
  const sample = await start();
  const first = sample.machine.disk.calls + 1;
  const kinds: CallKind[] = [];
  const paths: string[] = [];
  sample.machine.disk.onCall = (kind, path, call) => {
    kinds[call - first] = kind;
    paths[call - first] = path;
  };
  await work(sample.machine, sample.log, sample.jobs);
  assert.ok(
    kinds.some((kind, index) => kind === "write" && /\.seg/.test(paths[index] as string)),
    "the workload has a checkpoint in it",
  );
  let failures = 0;
  for (const [index, kind] of kinds.entries()) {
    if (!WRITING.includes(kind)) continue;
    for (const pages of kind === "sync" ? (["kept", "reverted"] as const) : (["kept"] as const)) {
      const { machine, mq, log, jobs } = await start();
      machine.disk.failAt(first + index, { errno: "EIO", pages, ...(kind === "writeSync" ? { written: 100 } : {}) });
      await labelled(
        () => `call ${index} (${kind} of ${paths[index]}, pages ${pages})`,
        async () => {
          const journal = await work(machine, log, jobs);
          if (journal.firstError !== undefined) {
            failures++;
            await failed(machine, mq, log, jobs);
          }
          // What the failed call left in the cache alone is gone, so a failure that was overlooked shows.
          await everythingIsThere(machine.cutPower("none"), journal);
        },
      );
    }
  }
  assert.ok(failures > 20, `only ${failures} failures were noticed`);
});

/** Says so everywhere, takes no change, reads on. */
async function failed(machine: Simulated, mq: MessageQueue, log: LogQueue, jobs: TaskQueue): Promise<void> {
  const stats = await machine.settle(mq.stats());
  assert.equal(stats.health, "failed");
  assert.match(stats.failure ?? "", /EIO/);
  const changes: (() => Promise<unknown>)[] = [
    () => log.append("never"),
    () => log.appendBatch(["never"]),
    () => log.trim(1),
    () => jobs.enqueue("never"),
    () => mq.transaction((tx) => tx.append(log, "never")),
  ];
  for (const change of changes) {
    const error = await machine.settle(rejectsWith("ERR_READ_ONLY", change()));
    assert.match(
      String((error.cause as { code?: unknown }).code ?? error.cause),
      /EIO/,
      "the first error is the cause",
    );
  }
  assert.equal((await machine.settle(log.read(0)))?.payload.toString(), "before");
  assert.equal((await machine.settle(mq.queues())).length, 2);
}

async function everythingIsThere(machine: Simulated, journal: Journal): Promise<void> {
  const mq = await machine.open(TINY);
  const log = await machine.settle(mq.openLog("events"));
  const jobs = await machine.settle(mq.openTask("jobs"));
  const texts = new Set((await machine.settle(recordsOf(log))).map(({ payload }) => payload.toString()));
  assert.ok(!texts.has("never"));
  for (const text of journal.acknowledged) assert.ok(texts.has(text), `${text.slice(0, 20)} is lost`);
  const tasks = await machine.settle(jobs.dequeueBatch({ max: 100 }));
  const waiting = new Set(tasks.map(({ payload }) => payload.toString()));
  for (const text of waiting) assert.ok(!journal.acked.has(text), `${text} was acked`);
  const { ready, scheduled, leased } = await machine.settle(jobs.stats());
  assert.ok(ready + scheduled + leased >= journal.enqueued.size - journal.ackTried.size, "tasks are lost");
  assert.equal((await machine.settle(mq.stats())).health, "ok", "a reopen heals");
  await machine.settle(log.append("and on it goes"));
  await machine.settle(mq.close());
}
