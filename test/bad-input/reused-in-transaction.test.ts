import assert from "node:assert/strict";
import test from "node:test";
import { open } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";

test("bad input: a buffer that is used again after transaction() was called is stored as it was", async () => {
  await withDirectory(async (directory) => {
    await using mq = await open(directory);
    const log = await mq.openLog("events");
    const jobs = await mq.openTask("jobs");
    const buffer = Buffer.from("one");
    const committed = mq.transaction((tx) => {
      tx.append(log, buffer, { key: buffer });
      tx.enqueue(jobs, buffer);
    });
    buffer.write("two");
    await committed;
    const record = await log.read(0);
    assert.equal(record?.payload.toString(), "one");
    assert.equal(record?.key?.toString(), "one");
    assert.equal((await jobs.dequeue())?.payload.toString(), "one");
  });
});
