import assert from "node:assert/strict";
import test from "node:test";
import { withDirectory } from "../support/directories.js";
import { eventually } from "../support/expect.js";
import { type Ended, jsonLines, varve } from "./program.js";

/** Runs commands on one directory, and parses their output as JSON lines. */
async function withQueue(
  body: (
    run: (...args: string[]) => Promise<Ended & { readonly values: ReturnType<typeof jsonLines> }>,
    directory: string,
  ) => Promise<void>,
): Promise<void> {
  await withDirectory((directory) =>
    body(async (...args) => {
      const ended = await varve([...args, "-d", directory, "--json"]);
      return { ...ended, values: jsonLines(ended.stdout) };
    }, directory),
  );
}

test("a task is enqueued, dequeued and acked by three processes", () =>
  withQueue(async (run) => {
    const enqueued = await run("enqueue", "jobs", "one", "two", "-k", "k", "-H", "a=1");
    assert.equal(enqueued.code, 0);
    assert.deepEqual(
      enqueued.values.map((value) => [Object.keys(value), value.created]),
      [
        [["task", "id", "created"], true],
        [["task", "id", "created"], true],
      ],
    );
    const { values } = await run("dequeue", "jobs", "--lease", "1h");
    const task = values[0];
    assert.deepEqual(Object.keys(task), ["id", "attempt", "token", "timestamp", "key", "headers", "payload"]);
    assert.deepEqual(
      [task.id, task.attempt, task.key, task.headers, task.payload],
      [enqueued.values[0].id, 1, "k", { a: "1" }, "one"],
    );
    const acked = await run("ack", "jobs", task.token);
    assert.deepEqual([acked.code, acked.values], [0, [{ task: "jobs", acked: 1 }]]);

    const again = await run("ack", "jobs", task.token);
    assert.equal(again.code, 1);
    assert.equal(jsonLines(again.stderr)[0].error.code, "ERR_STALE_LEASE");
    const wrong = await run("ack", "jobs", "nonsense");
    assert.equal(wrong.code, 1);
    assert.equal(jsonLines(wrong.stderr)[0].error.code, "ERR_TOKEN");
  }));

test("people get ids, tokens and payloads", () =>
  withDirectory(async (directory) => {
    const enqueued = await varve(["enqueue", "jobs", "one", "-d", directory]);
    assert.match(enqueued.stdout, /^enqueued 1 task in jobs, id \S+\n$/);
    assert.match(enqueued.stderr, /making the new task queue "jobs"/);
    const { stdout } = await varve(["dequeue", "jobs", "-d", directory]);
    const [, token = ""] = /^id \S+ {2}attempt 1 {2}token (\S+)\none\n$/.exec(stdout) ?? assert.fail(stdout);
    assert.equal(
      (await varve(["extend", "jobs", token, "--lease", "2m", "-d", directory])).stdout,
      "extended the lease of the task in jobs\n",
    );
    assert.equal((await varve(["nack", "jobs", token, "-d", directory])).stdout, "gave the task back to jobs\n");
    assert.equal((await varve(["create", "--type", "task", "quiet", "-q", "-d", directory])).stdout, "");
  }));

test("enqueue takes the lines of standard input", () =>
  withDirectory(async (directory) => {
    const { code, stdout } = await varve(["enqueue", "jobs", "-d", directory], { input: "a\nb\nc\n" });
    assert.deepEqual([code, stdout], [0, "enqueued 3 tasks in jobs\n"]);
    const taken = await varve(["dequeue", "jobs", "-d", directory, "--max", "10", "--ack", "--raw"]);
    assert.deepEqual([taken.code, taken.stdout], [0, "a\nb\nc\n"]);
    assert.equal((await varve(["dequeue", "jobs", "-d", directory])).code, 3);
  }));

test("dequeue takes as many as asked for, however large they are", () =>
  withDirectory(async (directory) => {
    await varve(["enqueue", "jobs", "-d", directory], { input: `${"x".repeat(10_000)}\n`.repeat(100) });
    const some = await varve(["dequeue", "jobs", "--max", "70", "--json", "-d", directory]);
    assert.equal(jsonLines(some.stdout).length, 70);
    const rest = await varve(["dequeue", "jobs", "--max", "70", "--ack", "--json", "-d", directory]);
    assert.deepEqual([rest.code, jsonLines(rest.stdout).length], [0, 30]);
  }));

test("dequeue that finds nothing exits with 3, waiting or not", () =>
  withQueue(async (run) => {
    await run("create", "--type", "task", "jobs");
    for (const wait of ["0s", "20ms"]) {
      const { code, stdout, stderr } = await run("dequeue", "jobs", "--wait", wait);
      assert.deepEqual([code, stdout, stderr], [3, "", ""]);
    }
  }));

test("dequeue waits for a task whose time comes", () =>
  withQueue(async (run) => {
    await run("enqueue", "jobs", "later", "--delay", "200ms");
    const { code, values } = await run("dequeue", "jobs", "--wait", "1m");
    assert.deepEqual([code, values[0].payload], [0, "later"]);
  }));

test("a delayed task and one for a later moment are not delivered yet", () =>
  withQueue(async (run) => {
    await run("enqueue", "jobs", "delayed", "--delay", "1h");
    const nextYear = new Date(Date.now() + 365 * 86_400_000).toISOString();
    await run("enqueue", "jobs", "scheduled", "--at", nextYear);
    assert.equal((await run("dequeue", "jobs")).code, 3);
    const { values } = await run("stats", "jobs");
    assert.deepEqual([values[0].queues[0].scheduled, values[0].queues[0].ready], [2, 0]);
    assert.equal((await run("enqueue", "jobs", "both", "--delay", "1h", "--at", nextYear)).code, 2);
  }));

test("an extended lease outlives its first end; a lease that ended frees the task", () =>
  withQueue(async (run) => {
    await run("enqueue", "jobs", "m");
    const first = (await run("dequeue", "jobs", "--lease", "1ms")).values[0];
    const second = (await run("dequeue", "jobs", "--wait", "1m", "--lease", "1h")).values[0];
    assert.deepEqual([second.id, second.attempt], [first.id, 2]);
    assert.equal((await run("ack", "jobs", first.token)).code, 1);
    const extended = await run("extend", "jobs", second.token, "--lease", "2h");
    assert.deepEqual([extended.code, extended.values], [0, [{ task: "jobs", extended: 1 }]]);
    assert.equal((await run("ack", "jobs", second.token)).code, 0);
  }));

test("ack settles all its tokens or none", () =>
  withQueue(async (run) => {
    await run("enqueue", "jobs", "a", "b");
    const tokens = (await run("dequeue", "jobs", "--max", "2", "--lease", "1h")).values.map((task) => task.token);
    assert.equal((await run("ack", "jobs", tokens[0], "nonsense")).code, 1);
    assert.deepEqual((await run("ack", "jobs", ...tokens)).values, [{ task: "jobs", acked: 2 }]);
  }));

test("a task that fails too often is listed, redriven, and purged as a dead letter", () =>
  withQueue(async (run, directory) => {
    await run("create", "--type", "task", "jobs", "--max-attempts", "2", "--backoff-initial", "0s");
    const fail = async (error: string): Promise<void> => {
      const { values } = await run("dequeue", "jobs", "--wait", "1m", "--lease", "1h");
      const nacked = await run("nack", "jobs", values[0].token, "--error", error, "--delay", "0s");
      assert.deepEqual(
        [nacked.code, nacked.values],
        [0, [{ task: "jobs", nacked: 1, dead: ["second", "fourth"].includes(error) }]],
      );
    };
    const { values: ids } = await run("enqueue", "jobs", "bad");
    await fail("first");
    await fail("second");
    assert.equal((await run("dequeue", "jobs")).code, 3);

    const { code, values } = await run("dead", "jobs");
    assert.equal(code, 0);
    assert.deepEqual(Object.keys(values[0]), [
      "offset",
      "id",
      "enqueuedAt",
      "diedAt",
      "attempts",
      "reason",
      "failures",
      "key",
      "headers",
      "payload",
    ]);
    assert.deepEqual([values[0].id, values[0].attempts, values[0].payload], [ids[0].id, 2, "bad"]);
    assert.deepEqual(
      values[0].failures.map((failure: { error: string }) => failure.error),
      ["first", "second"],
    );
    assert.match(
      (await varve(["dead", "jobs", "list", "-d", directory])).stdout,
      /bad\n {2}died .* after 2 attempts: .*second/,
    );
    assert.deepEqual((await run("dead", "jobs", "list", "--after", String(values[0].offset))).values, []);
    assert.equal((await run("dead", "jobs", "list", "--id", "no-such-task")).code, 3);
    assert.equal((await run("dead", "jobs", "redrive", "--id", "no-such-task")).code, 3);

    assert.deepEqual((await run("dead", "jobs", "redrive", "--id", values[0].id)).values, [
      { task: "jobs", redriven: 1 },
    ]);
    await fail("third");
    await fail("fourth");
    for (const what of ["redrive", "purge"]) {
      const young = await run("dead", "jobs", what, "--older-than", "1h");
      assert.deepEqual(young.values, [{ task: "jobs", [what === "purge" ? "purged" : "redriven"]: 0 }]);
    }
    assert.deepEqual((await run("dead", "jobs", "purge", "--older-than", "0ms", "--limit", "5")).values, [
      { task: "jobs", purged: 1 },
    ]);
    const empty = await varve(["dead", "jobs", "list", "-d", directory]);
    assert.deepEqual([empty.code, empty.stdout, empty.stderr], [0, "", "varve: no dead letters in jobs\n"]);
    assert.deepEqual((await run("dead", "jobs", "purge")).values, [{ task: "jobs", purged: 0 }]);
    assert.equal((await run("dead", "jobs", "purge", "--after", "1")).code, 2);
    assert.equal((await run("dead", "jobs", "burn")).code, 2);
  }));

test("dead list shows every page, and no more than the limit", () =>
  withQueue(async (run) => {
    await run("create", "--type", "task", "jobs", "--max-attempts", "1");
    const count = 130;
    await run("enqueue", "jobs", ...Array.from({ length: count }, (_, index) => `m${index}`));
    await run("dequeue", "jobs", "--max", String(count), "--lease", "1ms");
    // The leases have ended, and the only attempt with them.
    await run("dequeue", "jobs", "--wait", "100ms");
    const { values } = await run("dead", "jobs", "list");
    assert.deepEqual(
      values.map((letter) => letter.payload).sort(),
      Array.from({ length: count }, (_, index) => `m${index}`).sort(),
    );
    assert.equal((await run("dead", "jobs", "list", "--limit", "101")).values.length, 101);
    const rest = await run("dead", "jobs", "list", "--after", String(values[99].offset));
    assert.equal(rest.values.length, count - 100);
  }));

test("enqueue overrides the attempts of the queue", () =>
  withQueue(async (run) => {
    await run("enqueue", "jobs", "once", "--max-attempts", "1");
    const { values } = await run("dequeue", "jobs", "--lease", "1h");
    await run("nack", "jobs", values[0].token);
    assert.equal((await run("dead", "jobs")).values.length, 1);
    assert.equal((await run("enqueue", "jobs", "m", "--max-attempts", "unlimited")).code, 0);
    assert.equal((await run("enqueue", "jobs", "m", "--max-attempts", "0")).code, 2);
  }));

test("create sets the pace of a task queue", () =>
  withQueue(async (run) => {
    const pace = ["--concurrency", "1", "--concurrency-per-key", "2", "--look-ahead", "10", "--rate", "100/1h"];
    assert.equal((await run("create", "-t", "task", "jobs", ...pace, "--ageing", "1m")).code, 0);
    await run("enqueue", "jobs", "a");
    await run("enqueue", "jobs", "b");
    assert.equal((await run("dequeue", "jobs")).values.length, 1);
    assert.equal((await run("dequeue", "jobs")).values.length, 0, "one is leased");
    const unlimited = ["--concurrency", "unlimited", "--rate", "unlimited", "--ageing", "unlimited"];
    assert.equal((await run("create", "-t", "task", "jobs", ...unlimited)).code, 0);
    assert.equal((await run("dequeue", "jobs")).values.length, 1);
  }));

test("create limits the dead letters of a task queue, and stats count those that were dropped", () =>
  withQueue(async (run) => {
    await run("create", "-t", "task", "jobs", "--max-attempts", "1", "--max-dead-letters", "1");
    for (const text of ["first", "second"]) {
      await run("enqueue", "jobs", text);
      await run("nack", "jobs", (await run("dequeue", "jobs")).values[0].token);
    }
    await eventually("the older one is dropped", async () => (await run("dead", "jobs", "list")).values.length === 1);
    assert.equal((await run("dead", "jobs", "list")).values[0].payload, "second");
    assert.equal((await run("create", "-t", "task", "jobs", "--max-dead-letters", "unlimited")).code, 0);
    assert.equal((await run("create", "-t", "task", "jobs", "--max-dead-letters", "0")).code, 2);
  }));

test("create makes a queue once, and changes the settings of a task queue", () =>
  withQueue(async (run) => {
    assert.deepEqual((await run("create", "-t", "log", "q")).values, [{ kind: "log", name: "q", created: true }]);
    assert.deepEqual((await run("create", "-t", "log", "q")).values, [{ kind: "log", name: "q", created: false }]);
    assert.deepEqual((await run("create", "-t", "task", "q")).values, [{ kind: "task", name: "q", created: true }]);
    assert.deepEqual((await run("create", "-t", "task", "q", "--lease", "1ms", "--max-attempts", "unlimited")).values, [
      { kind: "task", name: "q", created: false },
    ]);
    await run("enqueue", "q", "m");
    await run("dequeue", "q");
    assert.equal((await run("dequeue", "q", "--wait", "1m")).values[0].attempt, 2);
    const log = await run("create", "-t", "log", "q", "--lease", "1m");
    assert.equal(log.code, 2);
    assert.equal(jsonLines(log.stderr)[0].error.code, "ERR_USAGE");
    for (const wrong of [
      ["--lease", "5"],
      ["--lease", "0s"],
      ["--max-attempts", "70000"],
      ["--backoff-factor", "x"],
      ["--backoff-jitter", "2"],
      ["--concurrency", "0"],
      ["--concurrency-per-key", "x"],
      ["--look-ahead", "200000"],
      ["--rate", "5"],
      ["--rate", "0/1s"],
      ["--rate", "5/1"],
      ["--ageing", "0s"],
    ]) {
      assert.equal((await run("create", "-t", "task", "w", ...wrong)).code, 2, wrong.join(" "));
    }
  }));

test("every term of a task, and every setting of its queue", () =>
  withQueue(async (run, directory) => {
    const settings =
      "--ttl 1d --on-expire move:late --dedupe-window 1h --dedupe-max-keys 7 --result-ttl 0s --max-count 3 --when-full refuse";
    assert.equal((await run("create", "-t", "task", "jobs", ...settings.split(" "))).code, 0);
    const first = await run("enqueue", "jobs", "first", "--dedupe-key", "d", "--order-key", "o", "--priority", "2");
    const again = await run("enqueue", "jobs", "again", "--dedupe-key", "d");
    assert.deepEqual(
      [first.values[0].created, again.values],
      [true, [{ task: "jobs", id: first.values[0].id, created: false }]],
    );
    const told = await varve(["enqueue", "jobs", "again", "--dedupe-key", "d", "-d", directory]);
    assert.equal(told.stdout, `nothing was enqueued in jobs: task ${first.values[0].id} has the key d\n`);
    const many = await run("enqueue", "jobs", "one", "two", "--dedupe-key", "d");
    assert.deepEqual([many.code, /names one task/.test(many.stderr)], [2, true]);
    const [dueAt, expiresAt] = [Date.now() + 5e8, Date.now() + 1e9];
    const [at, until] = [dueAt, expiresAt].map((ms) => new Date(ms).toISOString()) as [string, string];
    await run("enqueue", "jobs", "later", "--at", at, "--expires-at", until);
    await run("enqueue", "jobs", "soon", "--ttl", "1h");
    assert.match((await run("enqueue", "jobs", "fourth")).stderr, /ERR_QUEUE_FULL/);
    assert.equal((await run("enqueue", "jobs", "x", "--priority", "10")).code, 2);

    const ready = (await run("list", "jobs")).values;
    assert.deepEqual(
      ready.map(({ payload, priority, orderKey }) => [payload, priority, orderKey ?? null]),
      [
        ["first", 2, "o"],
        ["soon", 0, null],
      ],
    );
    assert.equal(typeof ready[1].expiresAt, "number");
    const rest = await run("list", "jobs", "--after", ready[0].position, "--limit", "5");
    assert.deepEqual(
      rest.values.map(({ payload }) => payload),
      ["soon"],
    );
    const [later] = (await run("list", "jobs", "--state", "scheduled")).values;
    // Due times are kept by the clock that only goes forward, and told by the other one.
    assert.ok(Math.abs(later.dueAt - dueAt) < 1000, `${later.dueAt}, not ${dueAt}`);
    assert.equal(later.expiresAt, expiresAt);
    assert.match((await varve(["list", "jobs", "-s", "leased", "-d", directory])).stderr, /no task of jobs is leased/);

    const moved = await run("reschedule", "jobs", later.id, "--delay", "0s");
    assert.deepEqual([moved.code, moved.values], [0, [{ task: "jobs", id: later.id, rescheduled: true }]]);
    assert.equal((await run("reschedule", "jobs", "77", "--delay", "0s")).code, 3);
    assert.equal((await run("reschedule", "jobs", later.id)).code, 2);
    assert.deepEqual((await run("pause", "jobs")).values, [{ task: "jobs", paused: true }]);
    assert.equal((await run("dequeue", "jobs")).code, 3);
    assert.deepEqual((await run("resume", "jobs")).values, [{ task: "jobs", paused: false }]);
    const [task] = (await run("dequeue", "jobs")).values;
    const buried = await run("nack", "jobs", task.token, "--dead", "--error", "no use");
    assert.deepEqual(buried.values, [{ task: "jobs", nacked: 1, dead: true }]);
    const [letter] = (await run("dead", "jobs", "list")).values;
    assert.equal(letter.payload, "first");
  }));
