/**
 * Batches of 64 x 1 KiB appended by one client of varve's library, 8 calls at a time, and read again from the start. `fork`ed
 * with a directory to open there, or a target to dial.
 */

import { dial, open } from "../entry.js";
import { processorMicros } from "../process-info.js";
import { serve } from "../worker.js";

const BATCH = 64;
const CALLS = 8;
const VALUE_BYTES = 1024;

const [carrier, where] = process.argv.slice(2);
const mq = carrier === "dial" ? await dial(where) : await open(where, { durability: "async" });
const log = await mq.openLog("batches");
const batch = Array.from({ length: BATCH }, () => Buffer.alloc(VALUE_BYTES, "v"));
/** What was appended last is what is read next. */
let from = 0;

const OPERATIONS = {
  async append(seconds) {
    from = (await log.stats()).next;
    const deadlineMs = performance.now() + seconds * 1000;
    let done = 0;
    const caller = async () => {
      while (performance.now() < deadlineMs) {
        await log.appendBatch(batch);
        done += BATCH;
      }
    };
    await Promise.all(Array.from({ length: CALLS }, caller));
    return done;
  },

  async scan() {
    let done = 0;
    for await (const records of log.batches({ from })) done += records.length;
    return done;
  },
};

serve(async ({ operation, seconds, pid = process.pid }) => {
  const micros = processorMicros(pid);
  const startedMs = performance.now();
  const done = await OPERATIONS[operation](seconds);
  const took = (performance.now() - startedMs) / 1000;
  return { done, rate: done / took, serverCpu: (processorMicros(pid) - micros) / done };
});
