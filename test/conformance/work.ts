import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import {
  Discard,
  type Handler,
  isVarveError,
  json,
  Retry,
  type TaskOptions,
  type TaskQueue,
  type Worker,
  type WorkOptions,
} from "../../src/index.js";
import { codeOf, eventually, rejectsWith } from "../support/expect.js";
import { countsOf } from "../support/state.js";
import type { Check, Subject } from "./suite.js";

const QUICK: TaskOptions = { lease: "30s", backoff: { initial: 20, jitter: 0 } };
const NOTHING = { ready: 0, scheduled: 0, leased: 0, dead: 0 };

export function workConformance(check: Check): void {
  check("work: tasks are done, each once, by so many handlers at once as were asked for", async (subject) => {
    const jobs = await subject.mq.openTask("jobs", QUICK);
    const payloads = Array.from({ length: 200 }, (_, index) => `${index}`);
    await jobs.enqueueBatch(payloads);
    const seen: string[] = [];
    let running = 0;
    let most = 0;
    const worker = jobs.work(
      async (task) => {
        most = Math.max(most, ++running);
        await new Promise(setImmediate);
        seen.push(task.payload.toString());
        running--;
      },
      { concurrency: 7 },
    );
    const told = tally(worker);
    await eventually(
      "all are completed",
      () => told.completed === 200,
      () => step(subject),
    );
    assert.deepEqual(
      seen.sort((a, b) => Number(a) - Number(b)),
      payloads,
    );
    assert.equal(most, 7);
    await jobs.enqueue("later");
    await eventually(
      "it waits for more",
      () => told.completed === 201,
      () => step(subject),
    );
    await endOf(subject, worker.close());
    assert.deepEqual(countsOf(await jobs.stats()), NOTHING);
    assert.equal((await jobs.stats()).waiters, 0);
  });

  check("work: a throw is a retry, with its text; Retry says when, Discard that it is no use", async (subject) => {
    const jobs = await subject.mq.openTask("jobs", { ...QUICK, maxAttempts: 3 });
    await jobs.enqueueBatch(["fails once", "fails always", "later", "never"]);
    const attempts: string[] = [];
    const worker = jobs.work((task) => {
      const what = task.payload.toString();
      attempts.push(`${what} ${task.attempt}`);
      if (what === "never") throw new Discard("no such user");
      if (what === "later" && task.attempt === 1) throw new Retry("busy", { delay: 50 });
      if (what === "fails always" || (what === "fails once" && task.attempt === 1)) throw new RangeError("too much");
    });
    const told = tally(worker);
    await eventually(
      "all have an end",
      () => told.completed + told.dead === 4,
      () => step(subject),
    );
    await endOf(subject, worker.close());
    assert.deepEqual(attempts.sort(), [
      "fails always 1",
      "fails always 2",
      "fails always 3",
      "fails once 1",
      "fails once 2",
      "later 1",
      "later 2",
      "never 1",
    ]);
    assert.deepEqual(told, { completed: 2, failed: 4, dead: 2, error: 0 });
    const letters = await jobs.dead.read();
    assert.deepEqual(letters.map(({ payload, attempts, reason }) => [payload?.toString(), attempts, reason]).sort(), [
      ["fails always", 3, "attempts exhausted: RangeError: too much"],
      ["never", 1, "discarded: no such user"],
    ]);
    assert.deepEqual(countsOf(await jobs.stats()), { ...NOTHING, dead: 2 });
  });

  check("work: a lease is kept alive for as long as its handler runs", async (subject) => {
    const jobs = await subject.mq.openTask("jobs", { ...QUICK, lease: 600 });
    await jobs.enqueue("slow");
    const { worker, end, started } = held(jobs);
    await eventually(
      "it runs",
      () => started.length === 1,
      () => step(subject),
    );
    await live(subject, 4 * 600);
    assert.equal(await jobs.dequeue(), undefined);
    end();
    await endOf(subject, worker.close());
    assert.equal(started.length, 1);
    assert.deepEqual(countsOf(await jobs.stats()), NOTHING);
  });

  check("work: a lease that is lost aborts the signal, and the late result does not count", async (subject) => {
    const jobs = await subject.mq.openTask("jobs", { ...QUICK, lease: "20s" });
    await jobs.enqueue("x");
    let reason: unknown;
    let token = "";
    let end = () => {};
    const worker = jobs.work(
      (task, { signal }) =>
        new Promise<void>((resolve) => {
          token = task.token;
          end = resolve;
          signal.addEventListener("abort", () => {
            reason = signal.reason;
          });
        }),
      { lease: 900 },
    );
    const told = tally(worker);
    await eventually(
      "it runs",
      () => token !== "",
      () => step(subject),
    );
    // Somebody else who holds the token settles the task: to the worker that is as if its lease had ended.
    await jobs.nack(token, { delay: "1h" });
    await eventually(
      "the signal is aborted",
      () => reason !== undefined,
      () => step(subject),
    );
    assert.equal(await codeOf(Promise.reject(reason)), "ERR_STALE_LEASE");
    assert.equal(told.failed, 1);
    assert.deepEqual([worker.running, worker.abandoned], [0, 1]);
    end();
    await eventually(
      "the handler is seen to end",
      () => worker.abandoned === 0,
      () => step(subject),
    );
    await endOf(subject, worker.close());
    assert.equal(told.completed, 0);
    assert.deepEqual(countsOf(await jobs.stats()), { ...NOTHING, scheduled: 1 });
  });

  check("work: a handler that never settles is given up after its timeout, and the next one runs", async (subject) => {
    const jobs = await subject.mq.openTask("jobs", { ...QUICK, maxAttempts: 1 });
    await jobs.enqueueBatch(["stuck", "next"]);
    const worker = jobs.work(({ payload }) => (payload.toString() === "stuck" ? new Promise(() => {}) : undefined), {
      timeout: 100,
    });
    const told = tally(worker);
    await eventually(
      "both have an end",
      () => told.completed + told.dead === 2,
      () => step(subject),
    );
    assert.match((await jobs.dead.read())[0]?.reason ?? "", /did not end within its timeout of 100ms/);
    await endOf(subject, worker.close());
    assert.deepEqual(told, { completed: 1, failed: 0, dead: 1, error: 0 });
  });

  check("work: close waits for the handlers, and takes no more tasks", async (subject) => {
    const jobs = await subject.mq.openTask("jobs", { ...QUICK, lease: 600 });
    await jobs.enqueueBatch(["running", "waiting"]);
    const { worker, end, started } = held(jobs);
    await eventually(
      "it runs",
      () => started.length === 1,
      () => step(subject),
    );
    let closed = false;
    const closing = worker.close().then(() => {
      closed = true;
    });
    await live(subject, 2 * 600);
    assert.equal(closed, false);
    end();
    await endOf(subject, closing);
    await worker.close();
    assert.deepEqual(started, ["running"]);
    assert.deepEqual(countsOf(await jobs.stats()), { ...NOTHING, ready: 1 });
  });

  check("work: after close's timeout, unfinished tasks are there for others, uncounted and first", async (subject) => {
    const jobs = await subject.mq.openTask("jobs", { ...QUICK, maxAttempts: 1 });
    await jobs.enqueueBatch(["a", "b", "c"]);
    const { worker, started, signals } = held(jobs, { concurrency: 2 });
    await eventually(
      "two run",
      () => started.length === 2,
      () => step(subject),
    );
    await endOf(subject, worker.close({ timeout: 50 }));
    assert.ok(signals.every((signal) => signal.aborted));
    const again = await jobs.dequeueBatch({ max: 10 });
    assert.deepEqual(
      again.map(({ payload, attempt }) => [payload.toString(), attempt]),
      [
        ["a", 1],
        ["b", 1],
        ["c", 1],
      ],
    );
  });

  check("work: pause keeps tasks waiting, resume lets them go on", async (subject) => {
    const jobs = await subject.mq.openTask("jobs", QUICK);
    const worker = jobs.work(() => {});
    const told = tally(worker);
    await live(subject, 10);
    worker.pause();
    await eventually(
      "nobody waits for tasks",
      async () => (await jobs.stats()).waiters === 0,
      () => step(subject),
    );
    await jobs.enqueue("x");
    await live(subject, 100);
    assert.deepEqual(countsOf(await jobs.stats()), { ...NOTHING, ready: 1 });
    worker.resume();
    await eventually(
      "it is done",
      () => told.completed === 1,
      () => step(subject),
    );
    await endOf(subject, worker.close());
  });

  check("work: a handler can settle its task in a transaction with what follows from it", async (subject) => {
    const jobs = await subject.mq.openTask("jobs", { ...QUICK, lease: 900 });
    const mails = await subject.mq.openTask("mails");
    await jobs.enqueue("x");
    const worker = jobs.work(async (task, { settle }) => {
      await settle(() =>
        subject.mq.transaction((tx) => {
          tx.ack(jobs, task);
          tx.enqueue(mails, "done");
        }),
      );
    });
    const told = tally(worker);
    await eventually(
      "it is done",
      () => told.completed === 1,
      () => step(subject),
    );
    await endOf(subject, worker.close());
    assert.equal((await mails.dequeue())?.payload.toString(), "done");
    assert.deepEqual(told, { completed: 1, failed: 0, dead: 0, error: 0 });
    assert.deepEqual(countsOf(await jobs.stats()), NOTHING);
  });

  check(
    "work: payloads come decoded; one that cannot be goes to the dead letters and stops nobody",
    async (subject) => {
      const raw = await subject.mq.openTask("jobs", QUICK);
      await raw.enqueueBatch(['{"n":1}', "{", '{"n":2}']);
      const jobs = await subject.mq.openTask("jobs", { codec: json<{ n: number }>() });
      let sum = 0;
      const worker = jobs.work(({ payload }) => {
        sum += payload.n;
      });
      await eventually(
        "both are done",
        () => sum === 3,
        () => step(subject),
      );
      await eventually(
        "it is buried",
        async () => (await jobs.stats()).dead === 1,
        () => step(subject),
      );
      await endOf(subject, worker.close());
    },
  );

  check("work: many workers share a queue, and each task is done once", async (subject) => {
    const jobs = await subject.mq.openTask("jobs", QUICK);
    const done = new Map<string, number>();
    const workers = Array.from({ length: 8 }, () =>
      jobs.work(
        async ({ id }) => {
          await null;
          done.set(id, (done.get(id) ?? 0) + 1);
        },
        { concurrency: 3 },
      ),
    );
    for (let batch = 0; batch < 20; batch++) {
      await jobs.enqueueBatch(Array.from({ length: 25 }, () => "x"));
      await step(subject);
    }
    await eventually(
      "all are done",
      () => done.size === 500,
      () => step(subject),
    );
    await endOf(subject, Promise.all(workers.map((worker) => worker.close())));
    assert.deepEqual([...new Set(done.values())], [1]);
    assert.deepEqual(countsOf(await jobs.stats()), NOTHING);
  });

  check("work: a worker ends quietly with its message queue", async (subject) => {
    const jobs = await subject.mq.openTask("jobs", QUICK);
    await jobs.enqueue("x");
    const { worker, started, signals, end } = held(jobs);
    const told = tally(worker);
    await eventually(
      "it runs",
      () => started.length === 1,
      () => step(subject),
    );
    const again = await subject.reopen();
    await endOf(subject, worker.closed);
    assert.ok(signals[0]?.aborted);
    end();
    await worker.close();
    assert.deepEqual(told, { completed: 0, failed: 0, dead: 0, error: 0 });
    assert.equal((await (await again.openTask("jobs")).stats()).leased, 1);
    await rejectsWith("ERR_CLOSED", () => jobs.work(() => {}));
  });

  check("work: the handler and the options are checked", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    await rejectsWith("ERR_ARGUMENT", () => jobs.work(undefined as unknown as Handler));
    for (const options of [{ concurrency: 0 }, { timeout: 0 }, { lease: 0 }, { concurency: 1 } as WorkOptions]) {
      await rejectsWith("ERR_OPTION", () => jobs.work(() => {}, options));
    }
  });

  for (const [index, [code, end]] of ENDS.entries()) {
    check(
      `work: handlers that never end do not keep a worker from ending with its source (${index + 1})`,
      async (on) => {
        const jobs = await on.mq.openTask("jobs");
        const log = await on.mq.openLog("events");
        await jobs.enqueueBatch(["1", "2", "3"]);
        await log.appendBatch(["1", "2", "3"]);
        const workers = [jobs, await log.sharedGroup("g")].map((source) => {
          const signals: AbortSignal[] = [];
          const never: () => Promise<void> = () => new Promise(() => {});
          const worker = source.work(
            (_, { signal }) => {
              signals.push(signal);
              return never();
            },
            { concurrency: 2, lease: "1h" },
          );
          const errors: unknown[] = [];
          worker.on("error", (error) => errors.push(error));
          return { worker, signals, errors };
        });
        for (const { signals } of workers) {
          await eventually(
            "all handlers are busy",
            () => signals.length === 2,
            () => step(on),
          );
        }
        await end(on);
        for (const { worker, signals, errors } of workers) {
          await endOf(on, worker.closed);
          assert.deepEqual(
            signals.map(({ reason }) => nameOf(reason)),
            [code, code],
          );
          assert.deepEqual(errors.map(nameOf), code === "ERR_CLOSED" ? [] : [code]);
          assert.deepEqual([worker.running, worker.abandoned], [0, 2]);
        }
      },
    );
  }

  check("work: a worker of a shared group ends when its member leaves, though its handlers do not", async (on) => {
    const log = await on.mq.openLog("events");
    await log.append("1");
    const member = await log.sharedGroup("g");
    const other = await log.sharedGroup("g");
    let seen: AbortSignal | undefined;
    const worker = member.work(
      (_, { signal }) => {
        seen = signal;
        return new Promise<void>(() => {});
      },
      { lease: "1h" },
    );
    await eventually(
      "the handler is busy",
      () => seen !== undefined,
      () => step(on),
    );
    await member.close();
    await endOf(on, worker.closed);
    assert.equal(nameOf(seen?.reason), "ERR_CLOSED");
    await log.append("2");
    assert.equal((await other.dequeue())?.payload.toString(), "2");
  });
}

/** The code of what was given as a reason, if it has one. */
function nameOf(reason: unknown): string | undefined {
  return isVarveError(reason) ? reason.code : undefined;
}

/** Ends what a worker takes its tasks from. */
const ENDS: readonly (readonly [string, (subject: Subject) => Promise<unknown>])[] = [
  ["ERR_CLOSED", ({ mq }) => mq.close()],
  ["ERR_NOT_FOUND", async ({ mq }) => Promise.all([mq.deleteQueue("task", "jobs"), mq.deleteQueue("log", "events")])],
  [
    "ERR_NOT_FOUND",
    async ({ mq }) => {
      const log = await mq.openLog("events");
      await Promise.all([log.deleteGroup("g"), mq.deleteQueue("task", "jobs")]);
    },
  ],
];

const STEP_MS = 2;

/** A little time, real time as well: what is renewed has to reach a real disk before its lease ends in any time. */
async function step(subject: Subject): Promise<void> {
  await sleep(STEP_MS);
  await subject.pass(STEP_MS);
}

async function live(subject: Subject, ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += STEP_MS) await step(subject);
}

/** Lets time pass until the promise settles. */
async function endOf(subject: Subject, promise: Promise<unknown>): Promise<void> {
  let settled = false;
  const settle = (): void => {
    settled = true;
  };
  promise.then(settle, settle);
  while (!settled) await step(subject);
  await promise;
}

interface Tally {
  completed: number;
  failed: number;
  dead: number;
  error: number;
}

/** Counts what a worker tells. */
// biome-ignore lint/suspicious/noExplicitAny: any worker
function tally(worker: Worker<any>): Tally {
  const told: Tally = { completed: 0, failed: 0, dead: 0, error: 0 };
  for (const event of ["completed", "failed", "dead", "error"] as const) worker.on(event, () => void told[event]++);
  return told;
}

/** A worker whose handlers run until they are told to end, and do not heed their signals. */
function held(jobs: TaskQueue, options?: WorkOptions) {
  const started: string[] = [];
  const signals: AbortSignal[] = [];
  const ends: (() => void)[] = [];
  const worker = jobs.work((task, { signal }) => {
    started.push(task.payload.toString());
    signals.push(signal);
    return new Promise<void>((resolve) => ends.push(resolve));
  }, options);
  return {
    worker,
    started,
    signals,
    end: () => {
      for (const end of ends) end();
    },
  };
}
