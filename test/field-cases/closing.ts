/**
 * Leaves everything open and waiting, closes, or not, and should then end by itself. Arguments: directory, "close" or
 * "forget".
 */

import { open } from "../../src/index.js";

const [directory = "", how = ""] = process.argv.slice(2);
const mq = await open(directory, { durability: "async" });
const log = await mq.openLog("events");
const jobs = await mq.openTask("jobs", { lease: "1h" });
await log.append("x");
await jobs.enqueueBatch(["leased", "delayed"]);
await jobs.dequeue();
await jobs.enqueue("later", { delay: "1h" });
const ended: string[] = [];
const tail = log.tail({ from: "end" })[Symbol.asyncIterator]();
void tail.next().then(({ done }) => ended.push(`tail ${done}`));
await jobs.dequeue();
if (how === "close") {
  // A call that waits does keep the process alive, so nobody waits where nobody closes.
  const poll = jobs.dequeue({ wait: "1h" });
  const told = poll.catch((error: { code?: string }) => ended.push(`poll ${error.code}`));
  await mq.close();
  await mq.close();
  await told;
  process.stderr.write(ended.sort().join(", "));
}
process.disconnect?.();
