/**
 * Enqueues without ever awaiting, in a process with a small heap, then opens again what is waiting. Arguments:
 * directory, number of tasks. Sends what became of the calls and how much memory they took.
 */

import { isVarveError, open } from "../../src/index.js";

const [directory = "", countText = ""] = process.argv.slice(2);
const count = Number(countText);
const payload = Buffer.alloc(1024, "x");

let peakBytes = 0;
function sample(): void {
  peakBytes = Math.max(peakBytes, process.memoryUsage.rss());
}

let mq = await open(directory, { durability: "async" });
let jobs = await mq.openTask("jobs");
for (let index = 0; index < 2000; index++) await jobs.enqueue("warm");
while ((await jobs.dequeueBatch({ max: 1000 })).length > 0);
sample();
const startBytes = peakBytes;

let accepted = 0;
let refused = 0;
const codes = new Set<string>();
let settled = 0;
const all = new Promise<void>((resolve) => {
  const done = (): void => {
    if (++settled === count) resolve();
  };
  for (let index = 0; index < count; index++) {
    jobs.enqueue(payload).then(
      () => {
        accepted++;
        done();
      },
      (error: unknown) => {
        refused++;
        codes.add(isVarveError(error) ? error.code : String(error));
        done();
      },
    );
    if (index % 1024 === 0) sample();
  }
});
sample();
await all;
sample();
const pushed = { accepted, refused, codes: [...codes], startBytes, peakBytes };

// A backlog made at a bearable pace, so that there is one, whatever was refused above.
for (let index = 0; index < count; index += 64) await jobs.enqueueBatch(Array.from({ length: 64 }, () => payload));
const { ready } = await jobs.stats();
await mq.close();
mq = await open(directory, { durability: "async" });
jobs = await mq.openTask("jobs");
peakBytes = 0;
sample();
const openedBytes = peakBytes;
let drained = 0;
for (;;) {
  const tasks = await jobs.dequeueBatch({ max: 256 });
  if (tasks.length === 0) break;
  await jobs.ackBatch(tasks);
  drained += tasks.length;
  sample();
}
await mq.close();
process.send?.({ ...pushed, ready, drained, openedBytes, drainPeakBytes: peakBytes });
