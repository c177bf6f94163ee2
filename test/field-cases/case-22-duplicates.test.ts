import assert from "node:assert/strict";
import { test } from "node:test";
import { open } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";
import { rejectsWith } from "../support/expect.js";

void test("case 22: enqueue says what it did: an id, and that the task is new", async () => {
  await withDirectory(async (directory) => {
    const mq = await open(directory);
    const jobs = await mq.openTask("jobs");
    const single = await jobs.enqueue("same");
    assert.deepEqual(Object.keys(single).sort(), ["created", "id"]);
    const batch = await jobs.enqueueBatch(["same", "same", "other"]);
    assert.deepEqual(
      [single, ...batch].map(({ created }) => created),
      [true, true, true, true],
    );
    assert.equal(new Set([single, ...batch].map(({ id }) => id)).size, 4, "equal payloads are different tasks");
    const tasks = await jobs.dequeueBatch({ max: 10 });
    assert.deepEqual(
      tasks.map(({ id }) => id),
      [single, ...batch].map(({ id }) => id),
      "results are in order",
    );
    await mq.close();
  });
});

void test("case 22: an option that would be ignored is refused, never a yes that means no", async () => {
  await withDirectory(async (directory) => {
    const mq = await open(directory);
    const jobs = await mq.openTask("jobs");
    await rejectsWith("ERR_OPTION", jobs.enqueue("x", { dedupKey: "k" } as object), /dedupKey/);
    assert.equal((await jobs.stats()).ready, 0);
    await mq.close();
  });
});
