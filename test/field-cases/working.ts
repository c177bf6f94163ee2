/**
 * Works on a queue until it gets SIGTERM, then closes with a timeout and should end by itself. Arguments: directory,
 * concurrency. Tells the parent as "started", in the order of the handlers.
 */

import { open, Retry } from "../../src/index.js";

const [directory = "", concurrency = ""] = process.argv.slice(2);
const mq = await open(directory);
const jobs = await mq.openTask("jobs");
const shutdown = new AbortController();
const worker = jobs.work(
  async ({ payload }, { signal }) => {
    const what = payload.toString();
    process.send?.({ started: what });
    if (what === "ignores") return await new Promise(() => {});
    await new Promise((resolve) => {
      const end = what === "heeds" ? signal : shutdown.signal;
      end.addEventListener("abort", resolve, { once: true });
    });
    if (what === "fails") throw new Error("on the way out");
    if (what === "reschedules") throw new Retry("not now", { delay: "1h" });
    return undefined;
  },
  { concurrency: Number(concurrency) },
);
process.once("SIGTERM", async () => {
  const closing = worker.close({ timeout: 500 });
  shutdown.abort();
  await closing;
  await worker.close();
  await mq.close();
  process.disconnect?.();
});
