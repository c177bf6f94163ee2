import assert from "node:assert/strict";
import test from "node:test";
import { withDirectory } from "../support/directories.js";
import { jsonLines, owns, startVarve, varve } from "./program.js";

test("work runs a command for each task, with the payload on its standard input", () =>
  withDirectory(async (directory) => {
    await varve(["enqueue", "jobs", "a", "b", "-k", "the key", "-d", directory]);
    const script =
      "const { VARVE_TASK_ID: id, VARVE_TASK_ATTEMPT: attempt, VARVE_TASK_KEY: key } = process.env;" +
      "process.stdin.on('data', (text) => console.log(String(text), id, attempt, key));";
    const ended = await varve(["work", "jobs", "--drain", "-d", directory, "--", process.execPath, "-e", script]);
    assert.equal(ended.code, 0, ended.stderr);
    assert.equal(ended.stdout, "a 0 1 the key\nb 1 1 the key\nfinished 2 tasks of jobs; 0 failed, 0 dead\n");
    const again = await varve(["work", "jobs", "--drain", "--json", "-d", directory, "--", "never-called"]);
    assert.deepEqual(jsonLines(again.stdout), [{ task: "jobs", completed: 0, failed: 0, dead: 0 }]);
  }));

test("a command that fails fails its task, with what it wrote as the reason", () =>
  withDirectory(async (directory) => {
    await varve(["enqueue", "jobs", "x", "--max-attempts", "1", "-d", directory]);
    const script = "console.error('no such user'); process.exit(7)";
    const ended = await varve(["work", "jobs", "--drain", "-d", directory, "--", process.execPath, "-e", script]);
    assert.equal(ended.code, 0);
    assert.match(ended.stdout, /finished 0 tasks of jobs; 0 failed, 1 dead/);
    assert.match(ended.stderr, /^no such user\n/);
    const letters = await varve(["dead", "jobs", "--json", "-d", directory]);
    assert.match(letters.stdout, /exit code 7: no such user/);
    await varve(["enqueue", "jobs", "x", "--max-attempts", "1", "-d", directory]);
    const missing = await varve(["work", "jobs", "--drain", "-d", directory, "--", "/no/such/program"]);
    assert.match(missing.stderr, /ENOENT/);
    assert.match(missing.stdout, /1 dead/);
  }));

test("a signal ends the work in order: commands may finish", () =>
  withDirectory(async (directory) => {
    await varve(["enqueue", "jobs", "a", "b", "-d", directory]);
    const script = "console.log('begun'); process.on('SIGTERM', () => {}); setTimeout(() => console.log('ended'), 500)";
    const running = startVarve(["work", "jobs", "-d", directory, "--", process.execPath, "-e", script]);
    await owns(directory, running);
    await running.printed(/begun/);
    running.child.kill("SIGTERM");
    const { code, stdout, stderr } = await running.ended;
    assert.equal(code, 0, stderr);
    assert.equal(stdout, "begun\nended\nfinished 1 task of jobs; 0 failed, 0 dead\n");
    const { stdout: stats } = await varve(["stats", "jobs", "--json", "-d", directory]);
    assert.match(stats, /"ready":1/);
    assert.match(stats, /"leased":0/);
  }));
