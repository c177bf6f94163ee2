/**
 * A worker that one payload kills at once, and the queue with it. Arguments: directory. Sends each delivery; when only
 * the poison is left and it is dead, says so.
 */

import { open } from "../../src/index.js";

const [directory = ""] = process.argv.slice(2);
const mq = await open(directory);
const jobs = await mq.openTask("jobs", { lease: 200, maxAttempts: 3, backoff: { initial: 50, jitter: 0 } });
for (;;) {
  const task = await jobs.dequeue({ wait: 50 });
  if (task === undefined) {
    const { dead, ready, scheduled, leased } = await jobs.stats();
    if (dead === 1 && ready + scheduled + leased === 0) break;
    continue;
  }
  const text = task.payload.toString();
  if (text === "poison") {
    // Only when the message is on its way, so that the test can count.
    process.send?.({ poison: task.attempt }, undefined, undefined, () => process.exit(1));
    await new Promise(() => {});
  }
  await jobs.ack(task);
}
await mq.close();
process.send?.({ finished: true });
