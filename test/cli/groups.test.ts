import assert from "node:assert/strict";
import test from "node:test";
import { open } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";
import { jsonLines, varve } from "./program.js";

async function prepared(directory: string): Promise<void> {
  const mq = await open(directory);
  const log = await mq.openLog("events");
  await log.appendBatch(["0", "1", "2", "3", "4"]);
  await log.group("billing");
  await log.sharedGroup("mail");
  await mq.close();
}

test("groups lists the groups of a log, as a table and as JSON", () =>
  withDirectory(async (directory) => {
    await prepared(directory);
    const { stdout } = await varve(["groups", "events", "-d", directory]);
    assert.match(stdout, /^GROUP +TYPE +COMMITTED +LAG/);
    assert.match(stdout, /\nbilling +exclusive +0 +5 /);
    const lines = jsonLines((await varve(["groups", "events", "-d", directory, "--json"])).stdout);
    assert.deepEqual(
      lines.map(({ log, name, type, committed, lag }) => [log, name, type, committed, lag]),
      [
        ["events", "billing", "exclusive", 0, 5],
        ["events", "mail", "shared", 0, 5],
      ],
    );
    const unknown = await varve(["groups", "nothing", "-d", directory]);
    assert.match(unknown.stderr, /ERR_NOT_FOUND/);
    assert.notEqual(unknown.code, 0);
  }));

test("seek moves a group, commit only forwards, delete-group deletes it", () =>
  withDirectory(async (directory) => {
    await prepared(directory);
    const run = async (...args: string[]) => {
      const { code, stdout, stderr } = await varve([...args, "-d", directory, "--json"]);
      assert.equal(code, 0, stderr);
      return jsonLines(stdout)[0];
    };
    assert.deepEqual(await run("seek", "events", "billing", "end"), { log: "events", group: "billing", committed: 5 });
    assert.deepEqual(await run("commit", "events", "billing", "1"), { log: "events", group: "billing", committed: 5 });
    assert.equal((await run("seek", "events", "billing", "start")).committed, 0);
    assert.equal((await run("commit", "events", "billing", "1")).committed, 2);
    const refused = await varve(["commit", "events", "billing", "5", "-d", directory]);
    assert.match(refused.stderr, /ERR_ARGUMENT.*past the end/);
    const misspelt = await varve(["seek", "events", "biling", "end", "-d", directory]);
    assert.match(misspelt.stderr, /ERR_NOT_FOUND.*biling/);
    assert.deepEqual(await run("seek", "events", "mail", "3"), { log: "events", group: "mail", committed: 3 });
    const shared = await varve(["commit", "events", "mail", "1", "-d", directory]);
    assert.match(shared.stderr, /ERR_ARGUMENT.*shared/);
    assert.deepEqual(await run("delete-group", "events", "mail"), { log: "events", group: "mail", deleted: true });
    assert.match((await varve(["delete-group", "events", "mail", "-d", directory])).stderr, /ERR_NOT_FOUND/);
    assert.equal(jsonLines((await varve(["groups", "events", "-d", directory, "--json"])).stdout).length, 1);
  }));

test("purge removes the records of a log, or those below an offset", () =>
  withDirectory(async (directory) => {
    await prepared(directory);
    const first = await varve(["purge", "events", "--before", "2", "-d", directory, "--json"]);
    assert.deepEqual(jsonLines(first.stdout), [{ log: "events", removed: 2, head: 2 }]);
    const second = await varve(["purge", "events", "-d", directory]);
    assert.equal(second.stdout, "removed 3 records of events; it begins at 5 now\n");
  }));

test("create stores the settings of a log, and changes them", () =>
  withDirectory(async (directory) => {
    const create = (...args: string[]) => varve(["create", "--type", "log", "events", ...args, "-d", directory]);
    const made = await create(
      "--retention-age",
      "7d",
      "--max-count",
      "100",
      "--when-full",
      "wait",
      "--metadata",
      "a=1",
    );
    assert.deepEqual([made.code, made.stdout], [0, 'made log queue "events"\n']);
    await create("--retention-age", "unlimited", "--retention-bytes", "1MiB", "--compact");
    const mq = await open(directory);
    const { retention, limits, compaction, metadata } = await (await mq.openLog("events")).settings();
    await mq.close();
    assert.deepEqual([retention.maxAge, retention.maxBytes], [Number.POSITIVE_INFINITY, 2 ** 20]);
    assert.deepEqual([limits.maxCount, limits.whenFull, metadata.a], [100, "wait", "1"]);
    assert.notEqual(compaction, false);
    assert.match((await create("--retention-bytes", "0B")).stderr, /ERR_OPTION.*retention\.maxBytes/);
    assert.match((await create("--lease", "1m")).stderr, /a log has none/);
    const task = await varve(["create", "--type", "task", "jobs", "--retention-count", "1", "-d", directory]);
    assert.match(task.stderr, /a task queue has none/);
  }));

test("compact removes what is superseded", () =>
  withDirectory(async (directory) => {
    await varve(["append", "prices", "10", "-k", "tea", "-d", directory]);
    await varve(["append", "prices", "11", "-k", "tea", "-d", directory]);
    const compacted = await varve(["compact", "prices", "-d", directory, "--json"]);
    const [{ log, recordsBefore, recordsRemoved }] = jsonLines(compacted.stdout);
    assert.deepEqual({ log, recordsBefore, recordsRemoved }, { log: "prices", recordsBefore: 2, recordsRemoved: 1 });
    assert.match((await varve(["compact", "prices", "-d", directory])).stdout, /^removed 0 records of prices; /);
  }));
