/** A process that shares a directory with others: enqueues numbers, takes tasks and acknowledges them, and tells all of it. */

import { isVarveError, open } from "../../src/index.js";

const [directory = "", name = "", durability = "async"] = process.argv.slice(2);

const mq = await open(directory, { shared: true, durability: durability as "sync" | "async" });
const jobs = await mq.openTask("jobs", { lease: "6s", maxAttempts: Number.POSITIVE_INFINITY });
const log = await mq.openLog("events");
const tell = (message: object): void => {
  process.send?.({ name, ...message });
};
tell({ ready: true });

/** What may or may not have been done is told as that, and nothing else may fail. */
async function unlessUnknown<T>(what: Promise<T>): Promise<T | undefined> {
  try {
    return await what;
  } catch (error) {
    if (isVarveError(error) && ["ERR_OUTCOME_UNKNOWN", "ERR_STALE_LEASE"].includes(error.code)) return undefined;
    tell({ failed: `${error}` });
    throw error;
  }
}

let stopping = false;
process.on("message", () => {
  stopping = true;
});

async function produce(): Promise<void> {
  for (let number = 0; !stopping; number++) {
    const payload = `${name} ${number}`;
    const enqueued = await unlessUnknown(jobs.enqueue(payload));
    tell(enqueued === undefined ? { maybe: payload } : { enqueued: payload });
    const offset = await unlessUnknown(log.append(payload));
    if (offset !== undefined) tell({ appended: payload, offset });
    if (number % 8 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

async function consume(): Promise<void> {
  while (!stopping) {
    const task = await unlessUnknown(jobs.dequeue({ wait: 100 }));
    if (task === undefined) continue;
    const payload = task.payload.toString();
    // Told before the acknowledgement: if this process is killed in between, it has held the task all the same.
    tell({ holds: payload, attempt: task.attempt });
    const done = await unlessUnknown(jobs.ack(task).then(() => true));
    tell(done === true ? { acked: payload } : { perhaps: payload });
  }
}

await Promise.all([produce(), consume()]);
tell({ done: true });
await mq.close();
process.disconnect();
