/** Fills a directory, closes and reopens it, makes some more commits, and dies. Argument: the directory. */

import { open } from "../../src/index.js";
import { fillClosed, OPTIONS } from "./scene.js";

const [directory = ""] = process.argv.slice(2);
await fillClosed(directory);
const mq = await open(directory, OPTIONS);
const events = await mq.openLog("events");
for (let commit = 0; commit < 6; commit++) await events.append(`commit ${commit} after the checkpoint`);
const jobs = await mq.openTask("Jobs");
await jobs.enqueue("one more task");
const task = await jobs.dequeue();
if (task !== undefined) await jobs.ack(task);
await mq.openLog("born-late");
await events.append("the last but one");
await events.append("the last");
process.kill(process.pid, "SIGKILL");
