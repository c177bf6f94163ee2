import assert from "node:assert/strict";
import test from "node:test";
import { open } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";
import { jsonLines, varve } from "./program.js";

test("delete deletes a queue, and asks unless told not to", () =>
  withDirectory(async (directory) => {
    const run = async (...args: string[]) => await varve([...args, "-d", directory]);
    const mq = await open(directory);
    await (await mq.openLog("a")).append("1");
    await (await mq.openTask("a")).enqueueBatch(["1", "2"]);
    await mq.close();
    const unasked = await run("delete", "a", "--type", "task");
    assert.notEqual(unasked.code, 0);
    assert.match(unasked.stderr, /--yes/);
    const unknown = await run("delete", "b", "--type", "log", "--yes");
    assert.match(unknown.stderr, /ERR_NOT_FOUND/);
    assert.notEqual((await run("delete", "a", "--yes")).code, 0, "the type must be said");
    const deleted = await run("delete", "a", "--type", "task", "--yes", "--json");
    assert.deepEqual(jsonLines(deleted.stdout), [{ kind: "task", name: "a", deleted: true }]);
    const left = jsonLines((await run("queues", "--json")).stdout);
    assert.deepEqual(
      left.map(({ kind, name, count }) => [kind, name, count]),
      [["log", "a", 1]],
    );
  }));

test("create stores metadata with queues of both kinds, and queues shows it", () =>
  withDirectory(async (directory) => {
    for (const type of ["log", "task"]) {
      const { code, stderr } = await varve([
        "create",
        "a",
        "--type",
        type,
        "--metadata",
        `kind=${type}`,
        "-d",
        directory,
      ]);
      assert.equal(code, 0, stderr);
    }
    const lines = jsonLines((await varve(["queues", "--json", "-d", directory])).stdout);
    assert.deepEqual(
      lines.map(({ metadata }) => metadata),
      [{ kind: "log" }, { kind: "task" }],
    );
  }));
