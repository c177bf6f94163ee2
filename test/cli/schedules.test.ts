import assert from "node:assert/strict";
import test from "node:test";
import { withDirectory } from "../support/directories.js";
import { jsonLines, varve } from "./program.js";

test("a schedule is made, listed and ended by three processes", () =>
  withDirectory(async (directory) => {
    const made = await varve([
      ...["schedule", "jobs", "nightly", "rebuild", "--cron", "0 3 * * *", "--time-zone", "Europe/Berlin"],
      ...["-d", directory, "--json"],
    ]);
    assert.equal(made.code, 0, made.stderr);
    const [{ task, schedule, nextAt }] = jsonLines(made.stdout);
    assert.deepEqual([task, schedule, nextAt % 3_600_000], ["jobs", "nightly", 0]);
    const listed = await varve(["schedules", "jobs", "-d", directory]);
    assert.match(listed.stdout, /nightly +0 3 \* \* \* \(Europe\/Berlin\) +once +0 /);
    const ended = await varve(["unschedule", "jobs", "nightly", "-d", directory]);
    assert.equal(ended.stdout, "ended schedule nightly of jobs\n");
    const again = await varve(["unschedule", "jobs", "nightly", "-d", directory, "--json"]);
    assert.deepEqual([again.code, jsonLines(again.stdout)[0].removed], [0, false]);
  }));

test("what never fires is refused with its reason", () =>
  withDirectory(async (directory) => {
    const { code, stderr } = await varve(["schedule", "jobs", "s", "x", "--cron", "0 0 30 2 *", "-d", directory]);
    assert.equal(code, 2, stderr);
    assert.match(stderr, /ERR_OPTION.*never fire/);
    const both = await varve(["schedule", "jobs", "s", "x", "--cron", "* * * * *", "--every", "1m", "-d", directory]);
    assert.notEqual(both.code, 0);
  }));

test("cancel says how many tasks were not too late", () =>
  withDirectory(async (directory) => {
    await varve(["enqueue", "jobs", "x", "--delay", "1h", "-d", directory]);
    const { code, stdout, stderr } = await varve(["cancel", "jobs", "0", "17", "-d", directory]);
    assert.deepEqual([code, stdout], [0, "cancelled 1 of 2 in jobs\n"]);
    assert.match(stderr, /17: handed out, done or unknown/);
  }));
