import assert from "node:assert/strict";
import test from "node:test";
import { open } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";
import { jsonLines, varve } from "./program.js";

test("status says where a task stands and what it brought", () =>
  withDirectory(async (directory) => {
    const mq = await open(directory);
    const jobs = await mq.openTask("jobs");
    await jobs.enqueueBatch(["a", "b", "c"]);
    await jobs.ack((await jobs.dequeue())!, { result: { rows: 3 } });
    await jobs.progress((await jobs.dequeue())!, "half");
    await mq.close();

    const status = async (id: string, ...more: string[]) => {
      const { code, stdout, stderr } = await varve(["status", "jobs", id, "-d", directory, ...more]);
      assert.equal(code, 0, stderr);
      return stdout;
    };
    assert.equal(await status("0"), 'done\nresult    {"rows":3}\n');
    assert.equal(await status("1"), 'leased, attempt 1\nprogress  "half"\n');
    assert.equal(await status("2"), "ready\n");
    assert.equal(await status("3"), "unknown\n");
    assert.deepEqual(jsonLines(await status("1", "--json")), [
      { task: "jobs", id: "1", state: "leased", attempt: 1, progress: "half", result: null },
    ]);
  }));
