import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { filesBelow, withDirectory } from "../support/directories.js";
import { jsonLines, startVarve, varve } from "./program.js";

const COMMANDS = [
  "create",
  "queues",
  "stats",
  "append",
  "read",
  "tail",
  "enqueue",
  "dequeue",
  "ack",
  "nack",
  "extend",
  "dead",
  "verify",
  "dump",
];

test("--help lists every command and the exit codes", async () => {
  const { code, stdout, stderr } = await varve(["--help"]);
  assert.deepEqual([code, stderr], [0, ""]);
  for (const command of [...COMMANDS, "bench"]) assert.match(stdout, new RegExp(`^ {2}${command}\\b`, "m"));
  for (const exit of ["0", "1", "2", "3", "4", "5"]) assert.match(stdout, new RegExp(`^ {2}${exit} {2}\\w`, "m"));
});

test("every command has help of its own, with an example of itself", async () => {
  for (const command of COMMANDS) {
    const { code, stdout } = await varve([command, "--help"]);
    assert.equal(code, 0);
    assert.match(stdout, new RegExp(`^Examples?:\\n(?:.*\\n)*? {2}\\$ .*varve ${command}\\b`, "m"), command);
    for (const option of ["--data-dir", "--durability", "--json", "--quiet"])
      assert.ok(stdout.includes(option), option);
    assert.equal((await varve(["help", command])).stdout, stdout);
  }
});

test("a usage error points to the help of its command", async () => {
  assert.match((await varve(["read", "q", "--limit", "x"])).stderr, /\nTry: varve read --help\n$/);
  assert.match((await varve(["raed", "q"])).stderr, /\nTry: varve --help\n$/);
});

test("--version prints the package's version", async () => {
  const { version } = JSON.parse(readFileSync(new URL("../../../package.json", import.meta.url), "utf8"));
  assert.equal((await varve(["--version"])).stdout, `${version}\n`);
});

test("usage errors exit with 2, say what is wrong, and touch nothing", () =>
  withDirectory(async (directory) => {
    const data = join(directory, "data");
    const cases: [string[], RegExp][] = [
      [[], /a command is missing/],
      [["apend"], /unknown command 'apend'; Did you mean append\?/],
      [["append"], /missing required argument 'log'/],
      [["read", "q", "--limt", "3"], /unknown option '--limt'; Did you mean --limit\?/],
      [["read", "q", "extra"], /too many arguments/],
      [["read", "q", "--limit", "0"], /'-n, --limit <n>'.*whole number, 1 or more/],
      [["read", "q", "--limit", "1.5"], /whole number/],
      [["read", "q", "--offset", "-1"], /whole number/],
      [["read", "q", "--offset", "1", "--from", "2"], /cannot be used with/],
      [["read", "q", "--from", "yesterday"], /"start", "end", an offset or an ISO time/],
      [["read", "q", "--raw", "--json"], /cannot be used with/],
      [["tail", "q", "--from", "9007199254740993"], /whole number/],
      [["create", "q"], /required option '-t, --type <type>'/],
      [["create", "q", "--type", "topic"], /Allowed choices are log, task/],
      [["append", "q", "m", "--durability", "maybe"], /Allowed choices are sync, async/],
      [["append", "q", "m", "--header", "novalue"], /name=value/],
      [["append", "q", "m", "--batch", "0"], /whole number/],
      [["enqueue", "q", "m", "--delay", "soon"], /a duration with a unit/],
      [["enqueue", "q", "m", "--delay", "5"], /a duration with a unit/],
      [["enqueue", "q", "m", "--at", "tomorrow"], /an ISO time/],
      [["enqueue", "q", "m", "--at", "2026-13-45"], /an ISO time/],
      [["dequeue", "q", "--raw"], /add --ack/],
      [["dequeue", "q", "--max", "0"], /whole number/],
      [["dequeue", "q", "--wait", "a while"], /a duration with a unit/],
      [["ack", "q"], /missing required argument 'token'/],
      [["dead", "q", "burn"], /Allowed choices are list, redrive, purge/],
      [["dead", "q", "list", "--older-than", "3s"], /--older-than goes with redrive and purge/],
      [["dead", "q", "purge", "--after", "3"], /--after goes with list/],
      [["stats", "--watch", "0"], /number of seconds/],
    ];
    for (const [args, message] of cases) {
      const { code, stdout, stderr } = await varve(args, { env: { VARVE_DATA_DIR: data } });
      assert.deepEqual([code, stdout], [2, ""], args.join(" "));
      assert.match(stderr, message);
      assert.match(stderr, /ERR_USAGE/);
    }
    assert.deepEqual(filesBelow(directory), []);
  }));

test("names and values that a queue refuses are usage errors with the queue's code", () =>
  withDirectory(async (directory) => {
    const cases: [string[], string][] = [
      [["append", "../up", "m"], "ERR_QUEUE_NAME"],
      [["create", "-t", "task", "a/b"], "ERR_QUEUE_NAME"],
      [["create", "-t", "task", "jobs", "--lease", "0s"], "ERR_OPTION"],
      [["enqueue", "jobs", "m", "--max-attempts", "70000"], "ERR_OPTION"],
    ];
    for (const [args, expected] of cases) {
      const { code, stderr } = await varve([...args, "-d", directory, "--json"]);
      assert.deepEqual([code, jsonLines(stderr)[0].error.code], [2, expected], args.join(" "));
    }
  }));

test("with --json an error is one JSON object on standard error", async () => {
  const { code, stdout, stderr } = await varve(["apend", "--json"]);
  assert.deepEqual([code, stdout], [2, ""]);
  const [value, ...more] = jsonLines(stderr);
  assert.deepEqual(
    [more, Object.keys(value), Object.keys(value.error)],
    [[], ["error"], ["code", "message", "details"]],
  );
});

test("the directory comes from the option, before or behind the command, else from the environment, else ./data", () =>
  withDirectory(async (directory) => {
    const at = (name: string): string => join(directory, name);
    const env = { VARVE_DATA_DIR: at("env") };
    await varve(["-d", at("before"), "append", "a", "m"], { env });
    await varve(["append", "b", "m", "--data-dir", at("behind")], { env });
    await varve(["-d", at("nowhere"), "append", "c", "m", "-d", at("both")], { env });
    await varve(["append", "d", "m"], { env });
    await varve(["append", "e", "m"], { cwd: directory });
    for (const [place, name] of [
      ["before", "a"],
      ["behind", "b"],
      ["both", "c"],
      ["env", "d"],
      ["data", "e"],
    ] as const) {
      const { stdout } = await varve(["--json", "queues", "-d", at(place)]);
      assert.deepEqual(
        jsonLines(stdout).map(({ kind, name: found, count }) => [kind, found, count]),
        [["log", name, 1]],
      );
    }
  }));

test("the help may be left before its end", async () => {
  const running = startVarve(["--help"]);
  running.child.stdout.destroy();
  const { code, stderr } = await running.ended;
  assert.deepEqual([code, stderr], [0, ""]);
});
