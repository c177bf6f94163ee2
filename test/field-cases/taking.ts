/**
 * Takes tasks and never answers. Arguments: a directory or the address of a daemon, number of tasks, lease. Run as a child
 * process, to be killed.
 */

import { dial, open, type Task } from "../../src/index.js";

const [place = "", max = "", lease = ""] = process.argv.slice(2);
const mq = await (place.includes("://") ? dial(place) : open(place));
const jobs = await mq.openTask("jobs", { lease, maxAttempts: 10, backoff: { initial: 0, jitter: 0 } });
const tasks: Task[] = [];
while (tasks.length < Number(max)) tasks.push(...(await jobs.dequeueBatch({ max: Number(max), wait: "10s" })));
process.send?.({ tokens: tasks.map(({ token }) => token), attempts: tasks.map(({ attempt }) => attempt) });
setInterval(() => {}, 60_000);
