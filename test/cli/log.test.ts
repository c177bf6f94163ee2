import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { withDirectory } from "../support/directories.js";
import { jsonLines, startVarve, varve } from "./program.js";

async function payloads(directory: string, log: string): Promise<unknown[]> {
  const { stdout } = await varve(["read", log, "-d", directory, "--json"]);
  return jsonLines(stdout).map((record) => record.payload);
}

test("append takes messages from arguments, in one commit, and makes the log", () =>
  withDirectory(async (directory) => {
    const first = await varve(["append", "events", "one", "two", "-d", directory]);
    assert.deepEqual([first.code, first.stdout], [0, "appended 2 messages to events, offsets 0 to 1\n"]);
    assert.match(first.stderr, /making the new log queue "events"/);
    const second = await varve(["append", "events", "-d", directory, "--json", "--", "--three"]);
    assert.deepEqual(jsonLines(second.stdout), [{ log: "events", count: 1, firstOffset: 2, lastOffset: 2 }]);
    assert.equal(second.stderr, "");
    assert.deepEqual(await payloads(directory, "events"), ["one", "two", "--three"]);
  }));

test("append takes the lines of standard input, LF or CRLF, empty ones too, in batches", () =>
  withDirectory(async (directory) => {
    const input = "a\r\n\nb\n  c \nlast";
    const { code, stdout } = await varve(["append", "events", "-d", directory, "--json", "--batch", "2"], { input });
    assert.equal(code, 0);
    const commits = jsonLines(stdout);
    assert.ok(commits.every((commit) => commit.count <= 2));
    assert.equal(
      commits.reduce((sum, commit) => sum + commit.count, 0),
      5,
    );
    assert.equal(commits.at(-1).lastOffset, 4);
    assert.deepEqual(await payloads(directory, "events"), ["a", "", "b", "  c ", "last"]);
  }));

test("append streams more input than a pipe or a batch holds, in order", () =>
  withDirectory(async (directory) => {
    const lines = Array.from({ length: 5000 }, (_, index) => `${index} ${"x".repeat(index % 300)}`);
    const { code, stdout } = await varve(["append", "events", "-d", directory, "--durability", "async"], {
      input: `${lines.join("\n")}\n`,
    });
    assert.deepEqual([code, stdout], [0, "appended 5,000 messages to events, offsets 0 to 4999\n"]);
    assert.deepEqual(await payloads(directory, "events"), lines);
  }));

test("append commits each line of a slow producer at once", () =>
  withDirectory(async (directory) => {
    const running = startVarve(["append", "events", "-d", directory, "--json"]);
    running.child.stdin.write("first\nsec");
    await running.printed(/"lastOffset":0/);
    running.child.stdin.write("ond\n");
    await running.printed(/"lastOffset":1/);
    running.child.stdin.end();
    assert.equal((await running.ended).code, 0);
    assert.deepEqual(await payloads(directory, "events"), ["first", "second"]);
  }));

test("append reads a file, by line or whole; bytes that are no text come back as base64", () =>
  withDirectory(async (directory) => {
    const file = join(directory, "input");
    const data = join(directory, "data");
    writeFileSync(file, Buffer.from([0xff, 0x0a, 0x00, 0x41]));
    assert.equal((await varve(["append", "lines", "-d", data, "--file", file])).code, 0);
    assert.deepEqual(await payloads(data, "lines"), [{ base64: "/w==" }, "\u0000A"]);
    assert.equal((await varve(["append", "whole", "-d", data, "--file", file, "--whole"])).code, 0);
    assert.deepEqual(await payloads(data, "whole"), [{ base64: "/woAQQ==" }]);
    const human = await varve(["read", "lines", "-d", data]);
    assert.match(human.stdout, /base64:\/w==\n.*\\x00A\n$/);

    const missing = await varve(["append", "lines", "-d", data, "--file", join(directory, "nothing")]);
    assert.equal(missing.code, 1);
    assert.match(missing.stderr, /^varve: ENOENT /m);
  }));

test("append refuses a line that no message can hold, and says what went in before it", () =>
  withDirectory(async (directory) => {
    const running = startVarve(["append", "events", "-d", directory]);
    running.child.stdin.write("small\n");
    running.child.stdin.end("x".repeat(16 * 2 ** 20 + 1));
    const { code, stderr } = await running.ended;
    assert.equal(code, 1);
    assert.match(stderr, /1 message appended before this failure/);
    assert.match(stderr, /varve: ERR_TOO_LARGE a line of the input is longer than 16777216 bytes/);
    assert.deepEqual(await payloads(directory, "events"), ["small"]);
  }));

test("append with no input appends nothing", () =>
  withDirectory(async (directory) => {
    const { code, stdout } = await varve(["append", "events", "-d", directory]);
    assert.deepEqual([code, stdout], [0, "appended 0 messages to events\n"]);
  }));

test("messages come from one place", () =>
  withDirectory(async (directory) => {
    for (const extra of [["--file", "x"], ["--whole"]]) {
      const { code, stderr } = await varve(["append", "events", "message", "-d", directory, ...extra]);
      assert.equal(code, 2);
      assert.match(stderr, /varve: ERR_USAGE messages come from arguments, or from --file or standard input/);
    }
  }));

test("keys and headers go with every message", () =>
  withDirectory(async (directory) => {
    await varve([
      "append",
      "events",
      "m",
      "-d",
      directory,
      "-k",
      "k1",
      "-H",
      "a=1",
      "--header",
      "b=x=y",
      "-H",
      "__proto__=p",
    ]);
    const { stdout } = await varve(["read", "events", "-d", directory, "--json"]);
    const record = jsonLines(stdout)[0];
    assert.deepEqual(Object.keys(record), ["offset", "timestamp", "key", "headers", "payload"]);
    assert.equal(record.key, "k1");
    assert.deepEqual(Object.entries(record.headers), [
      ["a", "1"],
      ["b", "x=y"],
      ["__proto__", "p"],
    ]);
    assert.match((await varve(["read", "events", "-d", directory])).stdout, / key=k1 a=1 b=x=y __proto__=p {2}m\n$/);
  }));

test("read starts at an offset, a time, the start or the end, and stops at a limit", () =>
  withDirectory(async (directory) => {
    await varve(["append", "events", "a", "b", "c", "d", "-d", directory]);
    const read = async (...args: string[]): Promise<unknown[]> => {
      const { stdout } = await varve(["read", "events", "-d", directory, "--json", ...args]);
      return jsonLines(stdout).map((record) => record.offset);
    };
    assert.deepEqual(await read(), [0, 1, 2, 3]);
    assert.deepEqual(await read("--from", "start"), [0, 1, 2, 3]);
    assert.deepEqual(await read("--from", "2"), [2, 3]);
    assert.deepEqual(await read("--from", "1", "--limit", "2"), [1, 2]);
    assert.deepEqual(await read("--from", "2001-01-01"), [0, 1, 2, 3]);
    assert.deepEqual(await read("--from", "9999-01-01T00:00:00Z"), []);
    assert.deepEqual(await read("--from", "end"), []);
    assert.deepEqual(await read("--offset", "3"), [3]);
  }));

test("read prints offset, time and payload for people, and bare payloads with --raw", () =>
  withDirectory(async (directory) => {
    await varve(["append", "events", "one", "two\nlines", "\u001b[31mred", "-d", directory]);
    const { code, stdout } = await varve(["read", "events", "-d", directory]);
    assert.equal(code, 0);
    assert.match(
      stdout,
      /^0 {2}\d{4}-\d\d-\d\dT[\d:.]+Z {2}one\n1 {2}\S+ {2}two\\nlines\n2 {2}\S+ {2}\\x1b\[31mred\n$/,
    );
    const raw = await varve(["read", "events", "-d", directory, "--raw"]);
    assert.equal(raw.stdout, "one\ntwo\nlines\n\u001b[31mred\n");
  }));

test("read that finds nothing exits with 3", () =>
  withDirectory(async (directory) => {
    await varve(["create", "--type", "log", "events", "-d", directory]);
    for (const args of [[], ["--offset", "7"], ["--from", "end"]]) {
      const { code, stdout, stderr } = await varve(["read", "events", "-d", directory, ...args]);
      assert.deepEqual([code, stdout], [3, ""]);
      assert.match(stderr, /^varve: no record/);
    }
    assert.equal((await varve(["read", "events", "-d", directory, "--quiet"])).stderr, "");
  }));

test("a mistyped log is not made but answered with the nearest name", () =>
  withDirectory(async (directory) => {
    await varve(["append", "events", "m", "-d", directory]);
    for (const command of ["read", "tail"]) {
      const { code, stderr } = await varve([command, "evnets", "-d", directory]);
      assert.equal(code, 1);
      assert.equal(stderr, 'varve: ERR_NOT_FOUND there is no log queue "evnets"; did you mean "events"?\n');
    }
    assert.match((await varve(["read", "zzz", "-d", directory])).stderr, /varve queues lists them/);
    assert.match((await varve(["dequeue", "events", "-d", directory])).stderr, /"events" is a log queue/);
    assert.equal(jsonLines((await varve(["queues", "-d", directory, "--json"])).stdout).length, 1);
  }));

test("reading does not make a directory", () =>
  withDirectory(async (directory) => {
    const { code, stderr } = await varve(["read", "events", "-d", join(directory, "missing")]);
    assert.equal(code, 1);
    assert.match(stderr, /^varve: ERR_NOT_FOUND /);
  }));

test("tail prints what is there, stops at a limit", () =>
  withDirectory(async (directory) => {
    await varve(["append", "events", "a", "b", "c", "-d", directory]);
    const { code, stdout } = await varve(["tail", "events", "-d", directory, "--from", "1", "--limit", "2", "--raw"]);
    assert.deepEqual([code, stdout], [0, "b\nc\n"]);
  }));

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  test(`tail goes on until ${signal}, closes the directory and exits with 0`, async () => {
    await withDirectory(async (directory) => {
      await varve(["append", "events", "a", "-d", directory]);
      const tail = startVarve(["tail", "events", "--from", "start", "-d", directory, "--json"]);
      await tail.printed(/"payload":"a"/);
      tail.child.kill(signal);
      const { code, stderr } = await tail.ended;
      assert.deepEqual([code, stderr], [0, ""]);
      const { stdout } = await varve(["stats", "-d", directory, "--json"]);
      assert.equal(jsonLines(stdout)[0].directory.recovery.recovered, false);
    });
  });
}
