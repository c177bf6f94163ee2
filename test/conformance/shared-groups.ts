import assert from "node:assert/strict";
import { isVarveError, type LogQueue, type MessageQueue, type SharedGroup, type Task } from "../../src/index.js";
import { codeOf, eventually, rejectsWith } from "../support/expect.js";
import { Seeded, seedOr } from "../support/seeded.js";
import { textsOf } from "../support/state.js";
import type { Check, Subject } from "./suite.js";

const texts = (tasks: readonly Task<Buffer>[]): string[] => tasks.map((task) => task.payload.toString());

async function filled(subject: Subject, count: number): Promise<LogQueue> {
  const log = await subject.mq.openLog("events");
  if (count > 0) await log.appendBatch(Array.from({ length: count }, (_, index) => `${index}`));
  return log;
}

async function take(group: SharedGroup, max: number): Promise<Task<Buffer>[]> {
  const taken: Task<Buffer>[] = [];
  while (taken.length < max) {
    const tasks = await group.dequeueBatch({ max: max - taken.length });
    if (tasks.length === 0) return taken;
    taken.push(...tasks);
  }
  return taken;
}

export function sharedGroupConformance(check: Check): void {
  check("shared groups: each record goes to one member, and the log stays as it is", async (subject) => {
    const log = await subject.mq.openLog("events");
    await log.append("a", { key: "k", headers: { h: "1" } });
    await log.appendBatch(["b", "c", "d"]);
    const [one, two] = [await log.sharedGroup("g"), await log.sharedGroup("g")];
    assert.equal(one.name, "g");
    assert.equal(one.log, "events");
    const first = await one.dequeue();
    const second = await two.dequeue();
    assert.deepEqual([first?.id, first?.attempt, second?.id], ["0", 1, "1"]);
    assert.equal(first?.payload.toString(), "a");
    assert.equal(first?.key?.toString(), "k");
    assert.deepEqual({ ...first?.headers }, { h: "1" });
    assert.equal(first?.timestamp, (await log.read(0))?.timestamp);
    await two.ack(first as Task<Buffer>);
    assert.deepEqual(texts(await take(one, 10)), ["c", "d"]);
    assert.equal(await two.dequeue(), undefined);
    assert.deepEqual(await textsOf(log), ["a", "b", "c", "d"]);
    const other = await log.sharedGroup("other", { from: 2 });
    assert.deepEqual(texts(await take(other, 10)), ["c", "d"], "another group has a position of its own");
    const info = await one.info();
    assert.deepEqual(
      { ...info, heldBytes: 0, lagAge: 0 },
      {
        name: "g",
        type: "shared",
        committed: 1,
        lag: 3,
        lagAge: 0,
        lost: 0,
        members: 2,
        heldBytes: 0,
        leased: 3,
        deadDropped: 0,
        dead: 0,
      },
    );
    assert.ok(info.heldBytes > 0);
  });

  check("shared groups: what is not done comes again after a reopen, what is done does not", async (subject) => {
    const log = await filled(subject, 5);
    const group = await log.sharedGroup("g", { maxAttempts: 3, backoff: { initial: 0, jitter: 0 } });
    const tasks = await take(group, 4);
    await group.ackBatch([tasks[0], tasks[2]] as Task<Buffer>[]);
    await group.nack(tasks[1] as Task<Buffer>, { error: "no", delay: 0 });
    const again = await (await subject.reopen()).openLog("events");
    const next = await again.sharedGroup("g");
    assert.deepEqual(
      (await take(next, 10)).map(({ id, attempt }) => [id, attempt]),
      [
        ["1", 2],
        ["4", 1],
      ],
    );
    await next.ack((tasks[3] as Task<Buffer>).token);
    assert.equal((await next.info()).committed, 1);
  });

  check(
    "shared groups: a record appended later wakes whoever waits; one that was made at the end sees no earlier one",
    async (subject) => {
      const log = await filled(subject, 3);
      const group = await log.sharedGroup("g", { from: "end" });
      const waiting = [group.dequeue({ wait: "1h" }), group.dequeue({ wait: "1h" })];
      await subject.pass(20);
      await log.appendBatch(["x", "y"]);
      const got = await Promise.all(waiting);
      assert.deepEqual(got.map((task) => task?.payload.toString()).sort(), ["x", "y"]);
    },
  );

  check(
    "shared groups: a lease that runs out and a failure with backoff bring a record back",
    async (subject) => {
      const log = await filled(subject, 2);
      const group = await log.sharedGroup("g", { lease: "10s", backoff: { initial: "1m", jitter: 0 } });
      const first = (await group.dequeue()) as Task<Buffer>;
      const second = (await group.dequeue()) as Task<Buffer>;
      await group.nack(second, { error: "no" });
      await subject.pass(9999);
      assert.equal(await group.dequeue(), undefined);
      await subject.pass(1);
      const again = (await group.dequeue()) as Task<Buffer>;
      assert.deepEqual([again.id, again.attempt], ["0", 2]);
      await rejectsWith("ERR_STALE_LEASE", group.ack(first));
      await group.ack(again);
      await subject.pass(49_999);
      assert.equal(await group.dequeue(), undefined);
      await subject.pass(1);
      assert.deepEqual((await group.dequeue())?.id, "1");
    },
    { exactTime: true },
  );

  check("shared groups: dead letters are kept by the group, listed, redriven and purged", async (subject) => {
    const log = await filled(subject, 4);
    const options = { maxAttempts: 1, backoff: { initial: 0 } };
    const group = await log.sharedGroup("g", options);
    for (const task of await take(group, 3)) await group.nack(task, { error: `no ${task.id}` });
    assert.equal((await group.info()).dead, 3);
    const letters = await group.dead.read();
    assert.deepEqual(
      letters.map(({ id, attempts, raw }) => [id, attempts, raw.toString()]),
      [
        ["0", 1, "0"],
        ["1", 1, "1"],
        ["2", 1, "2"],
      ],
    );
    assert.match(letters[0]?.reason as string, /no 0/);
    assert.equal(await group.dead.redrive({ ids: ["1"] }), 1);
    assert.equal((await log.stats()).count, 4, "the log gets nothing");
    const again = await (await subject.reopen()).openLog("events");
    const next = await again.sharedGroup("g");
    const tasks = await take(next, 10);
    assert.deepEqual(texts(tasks).sort(), ["1", "3"]);
    const redriven = tasks.find(({ id }) => id === "1") as Task<Buffer>;
    assert.equal(redriven.attempt, 1, "its attempts start again");
    await next.nack(redriven, { error: "again" });
    const last = (await next.dead.read()).at(-1);
    assert.deepEqual(
      last?.failures.map(({ error }) => error),
      ["no 1", "again"],
    );
    assert.equal(last?.id, "1");
    await next.ack(tasks.find(({ id }) => id === "3") as Task<Buffer>);
    assert.equal(await next.dead.purge({ ids: ["0"] }), 1);
    assert.equal(await next.dead.purge(), 2);
    assert.equal((await next.info()).dead, 0);
    assert.equal((await next.info()).committed, 4);
  });

  check(
    "shared groups: what a trim removes is lost and holds up nothing; what is in hand can be finished",
    async (subject) => {
      const log = await filled(subject, 10);
      const group = await log.sharedGroup("g", { maxAttempts: 5, backoff: { initial: 0, jitter: 0 } });
      const tasks = await take(group, 4);
      await group.nack(tasks[0] as Task<Buffer>, { delay: "1h" });
      await group.nack(tasks[1] as Task<Buffer>, { delay: 0 });
      await log.trim(6);
      assert.deepEqual([(await group.info()).lost, (await group.info()).leased], [4, 2], "0 and 1 waited; 4 and 5");
      await group.ack(tasks[2] as Task<Buffer>);
      await group.nack(tasks[3] as Task<Buffer>, { delay: 0 });
      const info = await group.info();
      assert.deepEqual([info.lost, info.committed, info.lag], [5, 6, 4], "3 came back undone");
      assert.deepEqual(texts(await take(group, 10)), ["6", "7", "8", "9"]);
      const again = await (await subject.reopen()).openLog("events");
      const next = await again.sharedGroup("g");
      assert.equal((await next.info()).lost, 5);
      await again.trim(10);
      await again.append("10");
      assert.deepEqual(texts(await take(next, 10)), ["10"]);
    },
  );

  check("shared groups: peek, release, autoAck and session leases, as in a task queue", async (subject) => {
    const log = await filled(subject, 4);
    const group = await log.sharedGroup("g");
    assert.equal((await group.peek())?.id, "0");
    const tasks = await take(group, 2);
    await group.release(tasks);
    assert.equal((await group.peek())?.attempt, 0, "as if it had not been delivered");
    const auto = await group.dequeue({ autoAck: true });
    assert.equal(auto?.token, "");
    const held = await group.dequeueBatch({ max: 2, lease: "session" });
    assert.equal(held.length, 2);
    const again = await (await subject.reopen()).openLog("events");
    const next = await again.sharedGroup("g");
    assert.equal((await take(next, 10)).length, 3, "what a session held is back after it");
  });

  check("shared groups: a transaction acknowledges and appends at once, or not at all", async (subject) => {
    const log = await filled(subject, 2);
    const out = await subject.mq.openLog("out");
    const group = await log.sharedGroup("g");
    const [one, two] = (await take(group, 2)) as [Task<Buffer>, Task<Buffer>];
    await subject.mq.transaction((tx) => {
      tx.ack(group, one);
      tx.append(out, "done");
    });
    await rejectsWith(
      "ERR_STALE_LEASE",
      subject.mq.transaction((tx) => {
        tx.append(out, "never");
        tx.ack(group, one);
      }),
    );
    assert.deepEqual(await textsOf(out), ["done"]);
    await subject.mq.transaction((tx) => tx.nack(group, two, { delay: 0 }));
    assert.deepEqual(texts(await take(group, 5)), ["1"]);
  });

  check("shared groups: members leave; a deleted group ends with all that it had", async (subject) => {
    const log = await filled(subject, 4);
    const options = { maxAttempts: 1 };
    const [one, two] = [await log.sharedGroup("g", options), await log.sharedGroup("g")];
    const tasks = await take(one, 2);
    await one.nack(tasks[1] as Task<Buffer>);
    await take(two, 10);
    const waits = [one.dequeue({ wait: "1h" }), one.dequeue({ wait: "1h", signal: new AbortController().signal })];
    const other = codeOf(two.dequeue({ wait: "1h" }));
    await subject.pass(20);
    await one.close();
    assert.deepEqual(await Promise.all(waits), [undefined, undefined]);
    await rejectsWith("ERR_CLOSED", one.dequeue());
    await two.ack((tasks[0] as Task<Buffer>).token);
    assert.equal((await two.info()).members, 1);
    assert.equal(await log.deleteGroup("g"), true);
    assert.equal(await other, "ERR_NOT_FOUND");
    for (const call of [two.dequeue(), two.ack(tasks[0] as Task<Buffer>), two.info()]) {
      assert.equal(await codeOf(call), "ERR_NOT_FOUND");
    }
    const again = await (await subject.reopen()).openLog("events");
    assert.deepEqual(await again.groups(), []);
    const next = await again.sharedGroup("g");
    assert.deepEqual(texts(await take(next, 10)), ["0", "1", "2", "3"]);
    assert.deepEqual(await next.dead.read(), []);
    await rejectsWith("ERR_TOKEN", next.ack((tasks[0] as Task<Buffer>).token));
  });

  check("shared groups: the two types of group do not mix; rules are stored", async (subject) => {
    const log = await filled(subject, 1);
    await log.sharedGroup("shared", { maxAttempts: 1 });
    await log.group("exclusive");
    await rejectsWith("ERR_ARGUMENT", log.group("shared"), /shared/);
    await rejectsWith("ERR_ARGUMENT", log.sharedGroup("exclusive"), /exclusive/);
    await rejectsWith("ERR_OPTION", log.sharedGroup("new", { lease: 0 }));
    await rejectsWith("ERR_OPTION", log.sharedGroup("new", { maxAttempts: 0 }));
    await rejectsWith("ERR_QUEUE_NAME", log.sharedGroup("a/b"));
    assert.deepEqual(
      (await log.groups()).map(({ name, type }) => [name, type]),
      [
        ["exclusive", "exclusive"],
        ["shared", "shared"],
      ],
    );
    const again = await (await subject.reopen()).openLog("events");
    const group = await again.sharedGroup("shared");
    const task = (await group.dequeue()) as Task<Buffer>;
    assert.deepEqual(await group.nack(task), { dead: true }, "one attempt, as was said before the reopen");
  });

  check("shared groups: seek goes back and forth, and takes from members what they have in hand", async (subject) => {
    const log = await filled(subject, 6);
    const at = (await log.read(4))!.timestamp;
    let group = await log.sharedGroup("g", { maxAttempts: 2, backoff: { initial: "1h" } });
    const [zero, one, two] = (await group.dequeueBatch({ max: 4 })) as [Task, Task, Task];
    await group.nack(zero, { dead: true });
    await group.nack(one);
    assert.equal(await group.seek(0), 0);
    await rejectsWith("ERR_STALE_LEASE", group.ack(two));
    const { committed, lag, leased, dead } = await group.info();
    assert.deepEqual({ committed, lag, leased, dead }, { committed: 0, lag: 6, leased: 0, dead: 1 });
    const again = await group.dequeueBatch({ max: 3 });
    assert.deepEqual(
      again.map(({ id, attempt }) => [id, attempt]),
      [
        ["0", 1],
        ["1", 1],
        ["2", 1],
      ],
      "as if they had never been handed out, also what waited after a failure",
    );
    await rejectsWith("ERR_STALE_LEASE", group.ack(two), /task 2/);
    assert.equal(await group.seek(5), 5);
    await rejectsWith("ERR_STALE_LEASE", group.ack(again[0]!));
    assert.equal((await group.info()).committed, 5);
    group = await (await (await subject.reopen()).openLog("events")).sharedGroup("g");
    assert.deepEqual(texts(await group.dequeueBatch({ max: 9 })), ["5"]);
    assert.equal(await group.dead.redrive(), 1);
    assert.equal(await group.seek("end"), 6);
    assert.deepEqual(texts(await group.dequeueBatch({ max: 9 })), ["0"], "what was redriven stays");
    const byTime = await group.seek(new Date(at));
    assert.ok(byTime <= 4, "the first record that is no older");
    const waiting = group.dequeue({ wait: "1h" });
    assert.equal((await waiting)?.id, `${byTime}`);
    const late = group.dequeueBatch({ max: 1, wait: "1h" });
    assert.equal((await late).length, 1);
    const log2 = await subject.mq.openLog("events");
    await log2.trim(3);
    await rejectsWith("ERR_OFFSET_OUT_OF_RANGE", group.seek(2));
    await rejectsWith("ERR_ARGUMENT", group.seek(7));
    await rejectsWith("ERR_OPTION", group.seek(-1));
    assert.equal(await group.seek("start"), 3);
    assert.deepEqual(texts(await group.dequeueBatch({ max: 9 })), ["3", "4", "5"]);
    await group.close();
    await rejectsWith("ERR_CLOSED", group.seek("start"));
  });

  check(
    "shared groups: who waits is served by a seek, and what is settled at the same time is settled or stale",
    async (subject) => {
      const log = await filled(subject, 3);
      const group = await log.sharedGroup("g", { maxAttempts: 1 });
      const tasks = await group.dequeueBatch({ max: 3 });
      const waiting = group.dequeue({ wait: "1h" });
      const settled = [group.ack(tasks[0]!), group.nack(tasks[1]!), group.seek(0), group.nack(tasks[2]!)];
      const outcomes = await Promise.allSettled(settled);
      assert.equal(outcomes[2]!.status, "fulfilled");
      for (const outcome of outcomes) {
        if (outcome.status === "rejected")
          assert.ok(isVarveError(outcome.reason, "ERR_STALE_LEASE"), `${outcome.reason}`);
      }
      const first = await waiting;
      assert.deepEqual([first?.id, first?.attempt], ["0", 1]);
      const rest = await group.dequeueBatch({ max: 9 });
      assert.deepEqual(texts(rest), ["1", "2"]);
      await group.ackBatch([first!, ...rest]);
      const reopened = await (await (await subject.reopen()).openLog("events")).sharedGroup("g");
      assert.equal((await reopened.info()).lag, 0);
      assert.equal(await reopened.dequeue(), undefined);
    },
  );

  check("shared groups: above their limit the oldest dead letters go, and are counted", async (on) => {
    const join = async (mq: MessageQueue, limit: { readonly maxDeadLetters?: number } = {}) =>
      await (await mq.openLog("events")).sharedGroup("g", { maxAttempts: 1, ...limit });
    await (await on.mq.openLog("events")).appendBatch(["1", "2", "3", "4", "5", "6"]);
    const withinLimit = async (group: SharedGroup, max: number): Promise<string[]> => {
      await eventually(`there are ${max}`, async () => (await group.info()).dead <= max, on.pass);
      return (await group.dead.read()).map(({ raw }) => raw.toString());
    };
    const group = await join(on.mq, { maxDeadLetters: 2 });
    for (const task of await group.dequeueBatch({ max: 5 })) await group.nack(task);
    assert.deepEqual(await withinLimit(group, 2), ["4", "5"]);
    assert.equal((await group.info()).deadDropped, 3);
    const again = await join(await on.reopen());
    await again.nack((await again.dequeue()) as Task);
    assert.deepEqual(await withinLimit(again, 2), ["5", "6"], "the limit is stored");
    await join(on.mq, { maxDeadLetters: 1 });
    assert.deepEqual(await withinLimit(again, 1), ["6"], "lowered, it holds for those that are there");
    assert.equal((await again.info()).deadDropped, 2);
    assert.equal((await (await on.mq.openLog("events")).stats()).count, 6);
  });

  check(
    "shared groups: dead letters are redriven and purged by their age",
    async (subject) => {
      const log = await filled(subject, 4);
      const group = await log.sharedGroup("g", { maxAttempts: 1 });
      const die = async () => {
        for (const task of await group.dequeueBatch({ max: 2 })) await group.nack(task);
      };
      await die();
      await subject.pass(3_600_000);
      await die();
      assert.equal(await group.dead.redrive({ olderThan: "1h", limit: 1 }), 1);
      assert.equal(await group.dead.purge({ olderThan: "1h" }), 1);
      assert.equal(await group.dead.purge({ olderThan: "1h" }), 0);
      assert.equal((await group.info()).dead, 2);
      assert.equal(await group.dead.redrive({ olderThan: 0 }), 2);
    },
    { exactTime: true },
  );

  check("shared groups: a worker does the work", async (subject) => {
    const log = await filled(subject, 50);
    const group = await log.sharedGroup("g", { maxAttempts: 2, backoff: { initial: 0, jitter: 0 } });
    const seen: string[] = [];
    const worker = group.work(
      async ({ payload, attempt }) => {
        if (payload.toString() === "7" && attempt === 1) throw new Error("once more");
        seen.push(payload.toString());
      },
      { concurrency: 8 },
    );
    await eventually("all are done", async () => (await group.info()).committed === 50, subject.pass);
    await worker.close();
    assert.deepEqual(
      seen.sort((a, b) => Number(a) - Number(b)),
      Array.from({ length: 50 }, (_, index) => `${index}`),
    );
  });

  check(
    "shared groups: random calls of two members agree with a model",
    async (subject) => {
      const random = new Seeded(seedOr(77_002));
      let log = await subject.mq.openLog("events");
      const join = async () => [await log.sharedGroup("g", { maxAttempts: 1000 }), await log.sharedGroup("g")];
      let members = await join();
      let [next, head, lost] = [0, 0, 0];
      /** Not done, by offset; with the task while it is leased. */
      const open = new Map<number, Task<Buffer> | undefined>();
      const pick = () => [...open].filter(([, task]) => task !== undefined)[0] as [number, Task<Buffer>] | undefined;
      for (let step = 0; step < 400; step++) {
        const dice = random.below(100);
        const member = members[random.below(2)] as SharedGroup;
        if (dice < 30) {
          const count = 1 + random.below(6);
          await log.appendBatch(Array.from({ length: count }, (_, index) => `${next + index}`));
          for (let index = 0; index < count; index++) open.set(next++, undefined);
        } else if (dice < 60) {
          const ready = [...open].filter(([, task]) => task === undefined).length;
          const max = 1 + random.below(4);
          const tasks = await take(member, max);
          assert.equal(tasks.length, Math.min(max, ready), `step ${step}`);
          for (const task of tasks) {
            const offset = Number(task.id);
            assert.ok(open.has(offset) && open.get(offset) === undefined, `step ${step}: ${offset} was to be had`);
            assert.equal(task.payload.toString(), task.id);
            open.set(offset, task);
          }
        } else if (dice < 75) {
          const [offset, task] = pick() ?? [];
          if (offset === undefined) continue;
          await member.ack((task as Task<Buffer>).token);
          open.delete(offset);
        } else if (dice < 85) {
          const [offset, task] = pick() ?? [];
          if (offset === undefined) continue;
          if (dice < 80) await member.nack(task as Task<Buffer>, { delay: 0 });
          else await member.release(task as Task<Buffer>);
          open.set(offset, undefined);
          if (offset < head) {
            open.delete(offset);
            lost++;
          }
        } else if (dice < 92) {
          head = Math.max(head, Math.min(next, head + random.below(8)));
          await log.trim(head);
          for (const [offset, task] of open) {
            if (offset >= head || task !== undefined) continue;
            open.delete(offset);
            lost++;
          }
        } else {
          log = await (await subject.reopen()).openLog("events");
          members = await join();
        }
        const info = await (members[0] as SharedGroup).info();
        assert.deepEqual([info.lag, info.lost], [open.size, lost], `step ${step}`);
        assert.equal(info.committed, Math.min(next, ...open.keys()), `step ${step}`);
      }
    },
    { segmentBytes: "64KiB", walFileBytes: "1MiB" },
  );
}
