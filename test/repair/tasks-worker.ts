/** Tasks in every state, each change in an entry of its own, and then the end. Argument: the directory. */

import { open, type Task } from "../../src/index.js";
import { OPTIONS } from "../inspect/scene.js";

const [directory = ""] = process.argv.slice(2);
const first = await open(directory, OPTIONS);
await first.openTask("jobs", { lease: "1h" });
await first.close();
const mq = await open(directory, OPTIONS);
const jobs = await mq.openTask("jobs");
for (let task = 0; task < 6; task++) await jobs.enqueue(String(task));
const taken: Task[] = [];
for (let task = 0; task < 4; task++) taken.push((await jobs.dequeue()) as Task);
const log = await mq.openLog("other");
await log.append("between");
for (const task of taken.slice(0, 2)) await jobs.ack(task);
for (let entry = 0; entry < 3; entry++) await log.append("vouches for what comes before");
process.kill(process.pid, "SIGKILL");
