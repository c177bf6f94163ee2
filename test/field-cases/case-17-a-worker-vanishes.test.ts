import assert from "node:assert/strict";
import { test } from "node:test";
import { open } from "../../src/index.js";
import { startChild } from "../support/child.js";
import { withDirectory } from "../support/directories.js";
import { rejectsWith } from "../support/expect.js";
import { countsOf } from "../support/state.js";

interface Taken {
  readonly tokens: readonly string[];
  readonly attempts: readonly number[];
}

void test("case 17: tasks of a process that was killed are offered again, with the attempt counted", async () => {
  await withDirectory(async (directory) => {
    const count = 100;
    const setup = await open(directory);
    await (await setup.openTask("jobs")).enqueueBatch(Array.from({ length: count }, (_, index) => `${index}`));
    await setup.close();
    let attempt = 1;
    let tokens: readonly string[] = [];
    for (; attempt <= 2; attempt++) {
      // The first process takes all of them; so does the second, once the first one's leases have run out.
      if (attempt > 1) await allExpire(directory, count);
      const child = startChild(import.meta.url, "./taking.js", { args: [directory, `${count}`, "700ms"] });
      const taken = await child.message<Taken>(({ attempts }) => attempts !== undefined);
      child.kill();
      await child.exited;
      assert.equal(taken.attempts.length, count);
      assert.ok(taken.attempts.every((number) => number === attempt));
      tokens = taken.tokens;
    }
    const mq = await open(directory);
    const jobs = await mq.openTask("jobs");
    assert.deepEqual(countsOf(await jobs.stats()).dead, 0);
    const again = new Map<string, number>();
    while (again.size < count) {
      for (const task of await jobs.dequeueBatch({ max: count, wait: "30s", lease: "1h" })) {
        again.set(task.payload.toString(), task.attempt);
      }
    }
    assert.ok([...again.values()].every((number) => number === 3));
    assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 0, leased: count, dead: 0 });
    await rejectsWith("ERR_STALE_LEASE", jobs.ack(tokens[0] as string));
    await mq.close();
  });
});

async function allExpire(directory: string, count: number): Promise<void> {
  const mq = await open(directory);
  const jobs = await mq.openTask("jobs");
  for (;;) {
    const counts = countsOf(await jobs.stats());
    assert.equal(counts.ready + counts.scheduled + counts.leased, count, "each task is in exactly one state");
    if (counts.ready === count) break;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await mq.close();
}
