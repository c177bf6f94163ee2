import assert from "node:assert/strict";
import { test } from "node:test";
import { open, type Task } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";
import { rejectsWith } from "../support/expect.js";
import { countsOf } from "../support/state.js";

/** Stops the event loop, as a handler in a long computation does. */
function block(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

void test("case 16: a worker whose event loop was blocked cannot settle what is no longer its own", async () => {
  await withDirectory(async (directory) => {
    let mq = await open(directory);
    let jobs = await mq.openTask("jobs", { lease: 150, maxAttempts: 3, backoff: { initial: 0, jitter: 0 } });
    const { id } = await jobs.enqueue("x");
    const first = (await jobs.dequeue()) as Task;
    block(600);
    const second = (await jobs.dequeue({ wait: "10s", lease: "1h" })) as Task;
    assert.deepEqual([first.id, first.attempt, second.id, second.attempt], [id, 1, id, 2]);
    const refused = async (): Promise<void> => {
      await rejectsWith("ERR_STALE_LEASE", jobs.ack(first));
      await rejectsWith("ERR_STALE_LEASE", jobs.nack(first, { error: "late" }));
      await rejectsWith("ERR_STALE_LEASE", jobs.extend(first, "1h"));
      assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 0, leased: 1, dead: 0 });
    };
    await refused();
    await mq.close();
    mq = await open(directory);
    jobs = await mq.openTask("jobs");
    await refused();
    await jobs.ack(second);
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 0, leased: 0, dead: 0 });
    await rejectsWith("ERR_STALE_LEASE", jobs.ack(first));
    assert.deepEqual(await jobs.dead.read(), []);
    await mq.close();
  });
});
