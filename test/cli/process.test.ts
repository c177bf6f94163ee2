/** The command line as a process among others: ownership, signals, closed pipes. */

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { open } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";
import { jsonLines, owns, startVarve, varve } from "./program.js";

async function closedInOrder(directory: string): Promise<boolean> {
  const { stdout } = await varve(["stats", "-d", directory, "--json"]);
  return jsonLines(stdout)[0].directory.recovery.recovered === false;
}

test("several commands use a directory at once, and one goes on where another ends", () =>
  withDirectory(async (directory) => {
    await varve(["create", "-t", "log", "events", "-d", directory]);
    const owner = startVarve(["tail", "events", "-d", directory]);
    await owns(directory, owner);
    const second = startVarve(["tail", "events", "-d", directory]);
    assert.equal((await varve(["append", "events", "to all", "-d", directory])).code, 0);
    await owner.printed(/to all/);
    owner.child.kill("SIGTERM");
    assert.equal((await owner.ended).code, 0);
    await owns(directory, second);
    assert.equal((await varve(["append", "events", "to one", "-d", directory])).code, 0);
    await second.printed(/to one/);
    second.child.kill("SIGTERM");
    assert.equal((await second.ended).code, 0);
    assert.match((await varve(["ping", "-d", directory])).stdout, /answered in [\d.]+ ms\n/);
  }));

test("who has the directory to itself is named", () =>
  withDirectory(async (directory) => {
    const mq = await open(directory);
    const { code, stdout, stderr } = await varve(["append", "events", "m", "-d", directory]);
    assert.deepEqual([code, stdout], [4, ""]);
    assert.match(stderr, /^varve: ERR_DIR_LOCKED /);
    assert.match(stderr, new RegExp(`\\b${process.pid}\\b`));
    const json = await varve(["queues", "-d", directory, "--json"]);
    const { error } = jsonLines(json.stderr)[0];
    assert.deepEqual([json.code, error.code, error.details.pid], [4, "ERR_DIR_LOCKED", process.pid]);
    await mq.close();
    assert.equal((await varve(["append", "events", "m", "-d", directory])).code, 0);
  }));

test("an interrupted append keeps what it reported, drops a line cut short, and closes in order", () =>
  withDirectory(async (directory) => {
    const appending = startVarve(["append", "events", "-d", directory, "--json"]);
    appending.child.stdin.write("one\ntwo\nhalf a li");
    await appending.printed(/"lastOffset":1\b/);
    appending.child.kill("SIGINT");
    const { code, stderr } = await appending.ended;
    assert.deepEqual([code, stderr], [130, ""]);
    const { stdout } = await varve(["read", "events", "-d", directory, "--raw"]);
    assert.equal(stdout, "one\ntwo\n");
    assert.ok(await closedInOrder(directory));
  }));

test("a dequeue that waits ends with a signal and closes in order", () =>
  withDirectory(async (directory) => {
    await varve(["create", "-t", "task", "jobs", "-d", directory]);
    const waiting = startVarve(["dequeue", "jobs", "--wait", "1h", "-d", directory]);
    await owns(directory, waiting);
    waiting.child.kill("SIGTERM");
    const { code, stdout, stderr } = await waiting.ended;
    assert.deepEqual([code, stdout, stderr], [143, "", ""]);
    assert.ok(await closedInOrder(directory));
  }));

test("a reader that goes away ends the command quietly and in order", () =>
  withDirectory(async (directory) => {
    const input = `${"x".repeat(1000)}\n`.repeat(5000);
    await varve(["append", "events", "-d", directory, "--durability", "async"], { input });
    for (const command of [["read"], ["tail", "--from", "start"]]) {
      const reading = startVarve([...command, "events", "-d", directory]);
      await reading.printed(/x/);
      reading.child.stdout.destroy();
      const { code, stderr } = await reading.ended;
      assert.deepEqual([code, stderr], [0, ""], command[0]);
      assert.ok(await closedInOrder(directory));
    }
  }));

test("dequeue --ack leaves tasks alone that it could not print", () =>
  withDirectory(async (directory) => {
    const input = `${"x".repeat(10_000)}\n`.repeat(100);
    await varve(["enqueue", "jobs", "-d", directory], { input });
    const taking = startVarve(["dequeue", "jobs", "--max", "100", "--ack", "-d", directory]);
    taking.child.stdout.destroy();
    assert.equal((await taking.ended).code, 0);
    const { stdout } = await varve(["stats", "jobs", "-d", directory, "--json"]);
    const { ready, leased } = jsonLines(stdout)[0].queues[0];
    assert.equal(ready + leased, 100);
    assert.ok(leased > 0);
  }));

test("a file where the directory should be is refused", () =>
  withDirectory(async (directory) => {
    const file = join(directory, "file");
    writeFileSync(file, "not varve's");
    const { code, stderr } = await varve(["append", "events", "m", "-d", file]);
    assert.equal(code, 1);
    assert.match(stderr, /^varve: ERR_NOT_VARVE /);
  }));
