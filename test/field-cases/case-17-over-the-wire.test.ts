import assert from "node:assert/strict";
import { test } from "node:test";
import { dial, type TaskQueue, verifyDirectory } from "../../src/index.js";
import { startChild } from "../support/child.js";
import { rejectsWith } from "../support/expect.js";
import { countsOf } from "../support/state.js";
import { WITH_SIGNALS, withDaemon } from "./served.js";

const COUNT = 100;
const LEASE = "700ms";

interface Taken {
  readonly tokens: readonly string[];
  readonly attempts: readonly number[];
}

void test(
  "case 17: over the wire, tasks of a client or of a daemon that was killed are offered again",
  WITH_SIGNALS,
  () =>
    withDaemon(async (daemon, directory) => {
      const mq = await dial(daemon.target);
      const jobs = await mq.openTask("jobs");
      await jobs.enqueueBatch(Array.from({ length: COUNT }, (_, index) => `${index}`));

      const child = startChild(import.meta.url, "./taking.js", { args: [daemon.target, `${COUNT}`, LEASE] });
      const taken = await child.message<Taken>(({ attempts }) => attempts !== undefined);
      child.kill();
      await child.exited;
      assert.ok(taken.attempts.every((attempt) => attempt === 1));
      await takeAllAgain(jobs, 2, LEASE);
      await rejectsWith("ERR_STALE_LEASE", jobs.ack(taken.tokens[0] as string));

      await daemon.kill();
      await daemon.start();
      await takeAllAgain(jobs, 3, "1h");
      assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 0, leased: COUNT, dead: 0 });
      await rejectsWith("ERR_STALE_LEASE", jobs.ack(taken.tokens[0] as string));
      await mq.close();
      await daemon.stop();
      assert.ok((await verifyDirectory(directory)).ok);
    }),
);

/** Takes each task once more; meanwhile each is in exactly one state. */
async function takeAllAgain(jobs: TaskQueue, attempt: number, lease: string): Promise<void> {
  const again = new Set<string>();
  while (again.size < COUNT) {
    const { ready, scheduled, leased, dead } = await jobs.stats();
    assert.equal(ready + scheduled + leased + dead, COUNT);
    for (const task of await jobs.dequeueBatch({ max: COUNT, wait: "30s", lease })) {
      assert.equal(task.attempt, attempt);
      again.add(task.payload.toString());
    }
  }
}
