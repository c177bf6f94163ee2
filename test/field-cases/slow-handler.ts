/** Case 18: one handler among many takes 20 leases. */

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import type { TaskQueue } from "../../src/index.js";
import { eventually } from "../support/expect.js";
import { countsOf } from "../support/state.js";

export const LEASE_MS = 300;

/** Its lease is kept, and the others go on. @param jobs an empty queue with leases of LEASE_MS */
export async function keepsTheLeaseOfTheSlow(jobs: TaskQueue): Promise<void> {
  await jobs.enqueueBatch(Array.from({ length: 100 }, (_, index) => `${index}`));
  const delivered: string[] = [];
  let othersDone = 0;
  let doneWhenSlowEnded = 0;
  const worker = jobs.work(
    async ({ payload, attempt }, { signal }) => {
      delivered.push(`${payload} ${attempt}`);
      if (payload.toString() === "0") {
        await sleep(20 * LEASE_MS, undefined, { signal });
        doneWhenSlowEnded = othersDone;
      } else {
        othersDone++;
      }
    },
    { concurrency: 10 },
  );
  let completed = 0;
  worker.on("completed", () => completed++);
  await eventually("all are done", () => completed === 100);
  await worker.close();
  assert.equal(new Set(delivered).size, 100);
  assert.equal(delivered.length, 100, "each is delivered once");
  assert.equal(doneWhenSlowEnded, 99, "nobody waited for the slow one");
  assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 0, leased: 0, dead: 0 });
}
