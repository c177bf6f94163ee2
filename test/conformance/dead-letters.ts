import assert from "node:assert/strict";
import type { Task, TaskQueue } from "../../src/index.js";
import { eventually, rejectsWith } from "../support/expect.js";
import { countsOf, deadOf, takeAll } from "../support/state.js";
import type { Check } from "./suite.js";

/** Enqueues the texts and makes each a dead letter by one nack. */
async function kill(queue: TaskQueue, texts: readonly string[], error?: string): Promise<void> {
  await queue.enqueueBatch(texts, { maxAttempts: 1 });
  for (const task of await queue.dequeueBatch({ max: texts.length })) await queue.nack(task, { error });
}

export function deadLetterConformance(check: Check): void {
  check("dead: a task out of attempts is a dead letter that tells its story", async ({ mq, reopen, wallMs }) => {
    const jobs = await mq.openTask("jobs", { maxAttempts: 3 });
    const before = wallMs();
    const headers = { trace: "abc", größe: "漢字" };
    const { id } = await jobs.enqueue("payload", { key: "customer-7", headers });
    for (const error of ["first", new Error("second"), "third"]) {
      await jobs.nack((await jobs.dequeue()) as Task, { delay: 0, error });
    }
    const verify = async (queue: typeof jobs): Promise<void> => {
      assert.deepEqual(countsOf(await queue.stats()), { ready: 0, scheduled: 0, leased: 0, dead: 1 });
      assert.equal(await queue.dequeue(), undefined);
      const [letter, ...more] = await queue.dead.read();
      assert.ok(letter !== undefined);
      assert.equal(more.length, 0);
      assert.equal(letter.id, id);
      assert.equal(letter.attempts, 3);
      assert.match(letter.reason, /attempts exhausted/);
      assert.match(letter.reason, /third/);
      assert.deepEqual(
        letter.failures.map(({ attempt, error }) => [attempt, error]),
        [
          [1, "first"],
          [2, "Error: second"],
          [3, "third"],
        ],
      );
      assert.ok(letter.enqueuedAt >= before && letter.enqueuedAt <= letter.diedAt && letter.diedAt <= wallMs());
      assert.ok(letter.failures.every(({ at }) => at >= letter.enqueuedAt && at <= letter.diedAt));
      assert.deepEqual(letter.key, Buffer.from("customer-7"));
      assert.deepEqual(Object.entries(letter.headers), Object.entries(headers));
      assert.equal(letter.payload?.toString(), "payload");
      assert.equal(letter.raw.toString(), "payload");
    };
    await verify(jobs);
    await verify(await (await reopen()).openTask("jobs"));
  });

  check("dead: a lease that runs out is a failure like any other", async ({ mq, pass }) => {
    const jobs = await mq.openTask("jobs", { maxAttempts: 2, lease: 40, backoff: { initial: 0, jitter: 0 } });
    await jobs.enqueue("x");
    await jobs.nack((await jobs.dequeue({ lease: "1h" })) as Task, { error: "said so", delay: 0 });
    await jobs.dequeue();
    await eventually("the last lease runs out", async () => (await jobs.dead.read()).length === 1, pass);
    assert.equal((await jobs.stats()).dead, 1);
    const [letter] = await jobs.dead.read();
    assert.equal(letter?.attempts, 2);
    assert.match(letter?.reason ?? "", /lease expired/);
    assert.equal(letter?.failures.length, 2);
    assert.equal(letter?.failures[0]?.error, "said so");
    assert.match(letter?.failures[1]?.error ?? "", /lease expired/);
  });

  check("dead: error texts are cut at 1 KiB and at most 16 failures are kept, the last ones", async ({ mq }) => {
    const jobs = await mq.openTask("jobs", { maxAttempts: 20 });
    await jobs.enqueue("x");
    for (let attempt = 1; attempt <= 20; attempt++) {
      await jobs.nack((await jobs.dequeue()) as Task, { delay: 0, error: `${attempt}: ${"é".repeat(2000)}` });
    }
    const [letter] = await jobs.dead.read();
    assert.equal(letter?.attempts, 20);
    assert.deepEqual(
      letter?.failures.map(({ attempt }) => attempt),
      Array.from({ length: 16 }, (_, index) => index + 5),
    );
    for (const { attempt, error } of letter?.failures ?? []) {
      assert.ok(error.startsWith(`${attempt}: éé`), "the beginning is kept");
      assert.ok(Buffer.byteLength(error) <= 1024, `${Buffer.byteLength(error)} bytes`);
      assert.doesNotMatch(error, /\uFFFD/, "no character is cut in two");
    }
  });

  check("dead: a nack without a reason is one too", async ({ mq }) => {
    const jobs = await mq.openTask("jobs", { maxAttempts: 1 });
    await jobs.enqueue("x");
    await jobs.nack((await jobs.dequeue()) as Task);
    const [letter] = await jobs.dead.read();
    assert.match(letter?.reason ?? "", /attempts exhausted/);
    assert.equal(letter?.failures.length, 1);
  });

  check("dead: read pages through all of them, oldest first", async ({ mq, reopen }) => {
    const jobs = await mq.openTask("jobs");
    assert.deepEqual(await jobs.dead.read(), []);
    const texts = Array.from({ length: 25 }, (_, index) => `${index}`);
    await kill(jobs, texts);
    const verify = async (queue: typeof jobs): Promise<void> => {
      assert.equal((await queue.dead.read({ limit: 10 })).length, 10);
      const letters = await deadOf(queue, 4);
      assert.deepEqual(
        letters.map(({ raw }) => raw.toString()),
        texts,
      );
      const offsets = letters.map(({ offset }) => offset);
      assert.deepEqual(
        offsets,
        [...new Set(offsets)].sort((a, b) => a - b),
      );
      assert.deepEqual(await queue.dead.read({ after: offsets.at(-1) as number }), []);
    };
    await verify(jobs);
    await verify(await (await reopen()).openTask("jobs"));
  });

  check("dead: redrive moves all, some, or the oldest ones, and tells how many", async ({ mq, reopen }) => {
    const jobs = await mq.openTask("jobs");
    await kill(jobs, ["a", "b", "c", "d", "e", "f"]);
    const letters = await jobs.dead.read();
    const ids = letters.map(({ id }) => id);
    assert.equal(await jobs.dead.redrive({ limit: 2 }), 2);
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 2, scheduled: 0, leased: 0, dead: 4 });
    assert.equal(await jobs.dead.redrive({ ids: [ids[3] as string, ids[5] as string] }), 2);
    assert.equal(await jobs.dead.redrive({ ids: [ids[3] as string] }), 0, "it is not there any more");
    assert.equal(await jobs.dead.redrive({ ids: [ids[2] as string, ids[4] as string], limit: 1 }), 1);
    const again = await (await reopen()).openTask("jobs");
    assert.deepEqual(
      (await again.dead.read()).map(({ raw }) => raw.toString()),
      ["e"],
    );
    const tasks = await takeAll(again);
    assert.deepEqual(tasks.map(({ payload }) => payload.toString()).sort(), ["a", "b", "c", "d", "f"]);
    assert.deepEqual(tasks.map(({ id }) => id).sort(), ids.filter((id) => id !== ids[4]).sort(), "a task keeps its id");
    assert.ok(
      tasks.every(({ attempt }) => attempt === 1),
      "with a fresh attempt count",
    );
    assert.equal(await again.dead.redrive(), 1);
    assert.equal(await again.dead.redrive(), 0);
    assert.deepEqual(await again.dead.read(), []);
  });

  check("dead: a redriven task keeps what it had, and its history when it dies again", async ({ mq, reopen }) => {
    const jobs = await mq.openTask("jobs", { maxAttempts: 1 });
    const { id } = await jobs.enqueue("x", { key: "k", headers: { h: "1" }, maxAttempts: 2 });
    for (const error of ["one", "two"]) await jobs.nack((await jobs.dequeue()) as Task, { delay: 0, error });
    const first = (await jobs.dead.read())[0];
    assert.equal(await jobs.dead.redrive(), 1);
    const again = await (await reopen()).openTask("jobs");
    for (const [index, error] of ["three", "four"].entries()) {
      const task = (await again.dequeue()) as Task;
      assert.equal(task.attempt, index + 1, "its own limit is still in force");
      assert.equal(task.timestamp, first?.enqueuedAt);
      assert.deepEqual(task.key, Buffer.from("k"));
      assert.deepEqual({ ...task.headers }, { h: "1" });
      await again.nack(task, { delay: 0, error });
    }
    const letters = await again.dead.read();
    assert.equal(letters.length, 1);
    assert.equal(letters[0]?.id, id);
    assert.equal(letters[0]?.enqueuedAt, first?.enqueuedAt);
    assert.deepEqual(
      letters[0]?.failures.map(({ error }) => error),
      ["one", "two", "three", "four"],
    );
  });

  check("dead: purge deletes all, some, or the oldest ones, and tells how many", async ({ mq, reopen }) => {
    const jobs = await mq.openTask("jobs");
    await kill(jobs, ["a", "b", "c", "d", "e"]);
    const ids = (await jobs.dead.read()).map(({ id }) => id);
    assert.equal(await jobs.dead.purge({ ids: [ids[1] as string, "no such task"] }), 1);
    assert.equal(await jobs.dead.purge({ limit: 1 }), 1);
    const again = await (await reopen()).openTask("jobs");
    assert.deepEqual(
      (await again.dead.read()).map(({ raw }) => raw.toString()),
      ["c", "d", "e"],
    );
    assert.equal(await again.dead.redrive({ ids: [ids[0] as string] }), 0, "what is purged cannot be redriven");
    assert.equal(await again.dead.purge(), 3);
    assert.equal(await again.dead.purge(), 0);
    assert.equal((await again.stats()).dead, 0);
    await kill(again, ["f"]);
    assert.equal((await again.dead.read()).length, 1, "the queue goes on");
  });

  check("dead: redrive and purge of those that died so long ago, no others", async ({ mq, reopen, pass, wallMs }) => {
    const jobs = await mq.openTask("jobs");
    await kill(jobs, ["a", "b", "c"]);
    await pass(50);
    const since = wallMs();
    await pass(50);
    await kill(jobs, ["d", "e"]);
    const letters = await jobs.dead.read();
    assert.equal(await jobs.dead.redrive({ olderThan: "1h" }), 0);
    assert.equal(await jobs.dead.purge({ olderThan: "1h" }), 0);
    const age = () => wallMs() - since;
    assert.equal(await jobs.dead.redrive({ olderThan: age(), ids: [letters[4]!.id] }), 0);
    assert.equal(await jobs.dead.redrive({ olderThan: age(), ids: [letters[4]!.id, letters[1]!.id] }), 1);
    assert.equal(await jobs.dead.redrive({ olderThan: age(), limit: 1 }), 1);
    assert.equal(await jobs.dead.purge({ olderThan: age() }), 1);
    const again = await (await reopen()).openTask("jobs");
    assert.deepEqual(
      (await again.dead.read()).map(({ raw }) => raw.toString()),
      ["d", "e"],
    );
    assert.deepEqual(countsOf(await again.stats()), { ready: 2, scheduled: 0, leased: 0, dead: 2 });
    assert.equal(await again.dead.purge({ olderThan: 0 }), 2);
    await rejectsWith("ERR_OPTION", again.dead.purge({ olderThan: "soon" }), /olderThan/);
  });

  check(
    "dead: by age to the millisecond, over many commits, and with a clock that was set back",
    async (on) => {
      const jobs = await on.mq.openTask("jobs");
      const texts = Array.from({ length: 600 }, (_, index) => `${index}`);
      await kill(jobs, texts);
      on.stepWall!(-10_000);
      await kill(jobs, ["before"]);
      on.stepWall!(11_000);
      await kill(jobs, ["after"]);
      assert.equal(await jobs.dead.redrive({ olderThan: 1001 }), 1, "by the clock, it died before the others");
      assert.equal(await jobs.dead.redrive({ olderThan: 1000 }), 600);
      assert.equal(await jobs.dead.purge({ olderThan: 1 }), 0);
      await on.pass(1);
      assert.equal(await jobs.dead.purge({ olderThan: 1 }), 1);
      assert.deepEqual(countsOf(await jobs.stats()), { ready: 601, scheduled: 0, leased: 0, dead: 0 });
    },
    { exactTime: true },
  );

  check("dead: letters do not stand in the way of work", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    await kill(
      jobs,
      Array.from({ length: 50 }, (_, index) => `${index}`),
    );
    const waiting = jobs.dequeue({ wait: "1h" });
    await jobs.enqueue("work");
    assert.equal((await waiting)?.payload.toString(), "work");
    assert.equal((await jobs.stats()).dead, 50);
  });

  check("dead: a redrive wakes who waits", async ({ mq }) => {
    const jobs = await mq.openTask("jobs");
    await kill(jobs, ["a"]);
    const waiting = jobs.dequeue({ wait: "1h" });
    assert.equal(await jobs.dead.redrive(), 1);
    assert.equal((await waiting)?.payload.toString(), "a");
  });

  check("dead: above their limit the oldest go, and are counted", async (on) => {
    const jobs = await on.mq.openTask("jobs", { maxDeadLetters: 3 });
    assert.equal((await jobs.settings()).maxDeadLetters, 3);
    const withinLimit = async (queue: TaskQueue, max: number): Promise<string[]> => {
      await eventually(`there are ${max}`, async () => (await queue.stats()).dead <= max, on.pass);
      return (await deadOf(queue)).map(({ raw }) => raw.toString());
    };
    await kill(jobs, ["1", "2", "3"]);
    assert.deepEqual(await withinLimit(jobs, 3), ["1", "2", "3"]);
    assert.equal((await jobs.stats()).deadDropped, 0);
    await kill(jobs, ["4", "5", "6", "7", "8"]);
    assert.deepEqual(await withinLimit(jobs, 3), ["6", "7", "8"]);
    const { dead, died, deadDropped } = await jobs.stats();
    assert.deepEqual({ dead, died, deadDropped }, { dead: 3, died: 8, deadDropped: 5 });
    const again = await (await on.reopen()).openTask("jobs");
    assert.deepEqual(await withinLimit(again, 3), ["6", "7", "8"]);
    await again.configure({ maxDeadLetters: 1 });
    assert.deepEqual(await withinLimit(again, 1), ["8"], "lowered, it holds for those that are there");
    assert.equal((await again.stats()).deadDropped, 2);
    assert.equal(await again.dead.redrive(), 1);
    await again.configure({ maxDeadLetters: Number.POSITIVE_INFINITY, maxAttempts: 1 });
    for (const task of await takeAll(again)) await again.nack(task);
    await kill(again, ["9", "10"]);
    assert.deepEqual(await withinLimit(again, 3), ["8", "9", "10"]);
    assert.equal((await again.stats()).deadDropped, 2);
  });

  check("dead: a flow hears of a child whose letter was dropped", async (on) => {
    const children = await on.mq.openTask("children", { maxAttempts: 1, maxDeadLetters: 1 });
    const parents = await on.mq.openTask("parents");
    await on.mq.flow({ queue: parents, input: "parent", children: [{ queue: children, input: "child" }] });
    await children.nack((await children.dequeue()) as Task);
    assert.equal((await parents.stats()).blocked, 1);
    await kill(children, ["another"]);
    await eventually("the parent is dead", async () => (await parents.stats()).dead === 1, on.pass);
    assert.equal((await parents.stats()).blocked, 0);
  });
}
