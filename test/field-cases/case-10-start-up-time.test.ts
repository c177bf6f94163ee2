import assert from "node:assert/strict";
import { test } from "node:test";
import { scaled } from "../support/scale.js";
import { Simulated, TINY } from "../support/simulated.js";

/** What an opening costs: the disk calls it makes and the log it replays, which time follows. */
async function openAfterKill(
  waiting: number,
): Promise<{ calls: number; replayedBytes: number; replayedCommits: number; first: string | undefined }> {
  const machine = Simulated.boot(1010);
  const mq = await machine.open({ ...TINY, durability: "async" });
  const jobs = await machine.settle(mq.openTask("jobs"));
  for (let index = 0; index < waiting; index += 50) {
    const batch = Array.from({ length: 50 }, (_, step) => `${index + step}`.padEnd(200, "."));
    await machine.settle(jobs.enqueueBatch(batch));
  }
  let next = machine.kill();
  // Killed again in the middle of its recovery: the next one starts no worse.
  next.disk.haltAt(12);
  await next.outcomeOf(next.open({ ...TINY, durability: "async" }).catch(() => {}));
  next = next.kill();
  const before = next.disk.calls;
  const again = await next.open({ ...TINY, durability: "async" });
  const tasks = await next.settle(again.openTask("jobs"));
  const task = await next.settle(tasks.dequeue());
  const calls = next.disk.calls - before;
  const { recovery } = await next.settle(again.stats());
  assert.equal((await next.settle(tasks.stats())).ready, waiting - 1);
  await next.settle(again.close());
  return {
    calls,
    replayedBytes: recovery.replayedBytes,
    replayedCommits: recovery.replayedCommits,
    first: task?.payload.toString(),
  };
}

void test("case 10: what an opening does is bounded by the write-ahead log, not by the backlog", async () => {
  const small = await openAfterKill(1_500);
  const large = await openAfterKill(scaled(60_000));
  assert.ok(small.first?.startsWith("0.") && large.first?.startsWith("0."));
  const logBytesMax = 4 * 256 * 1024;
  assert.ok(large.replayedBytes <= logBytesMax, `${large.replayedBytes} bytes replayed`);
  assert.ok(
    large.calls <= 2 * small.calls + 400,
    `${large.calls} disk calls with a large backlog, ${small.calls} with a small one`,
  );
});
