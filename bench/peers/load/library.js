/**
 * Takes the generator's turns through varve's own library: `fork`ed with "log" or "tasks", and with a directory to open there, or
 * none to dial the server of the turn. A turn's connections are clients that are dialled; in a directory that is open, only
 * so many more callers.
 */

import { dial, open } from "../entry.js";
import { serve } from "../worker.js";
import { Measure, shareOf } from "./turn.js";

const [family, directory, durability] = process.argv.slice(2);
const embedded = directory === undefined ? undefined : await open(directory, { durability });

/** What a caller does again and again. */
async function operationOf(mq, queue, { operation, valueBytes }) {
  const value = Buffer.alloc(valueBytes, "v");
  if (operation === "put") {
    if (family === "tasks") {
      const tasks = await mq.openTask(queue);
      return () => tasks.enqueue(value);
    }
    const log = await mq.openLog(queue);
    return () => log.append(value);
  }
  const source = family === "tasks" ? await mq.openTask(queue) : await (await mq.openLog(queue)).sharedGroup("readers");
  return async () => {
    if ((await source.dequeue({ autoAck: true })) === undefined) throw new Error("a queue ran empty");
  };
}

/** @param {import("./turn.js").Turn} turn */
async function takeTurn(turn) {
  const { connections, pipeline, queues, host, port, pid = process.pid } = turn;
  const measure = new Measure({ queues, pid });
  const clients = embedded === undefined ? [] : [embedded];
  try {
    const operations = [];
    for (let index = 0; index < connections; index++) {
      if (embedded === undefined) clients.push(await dial(`tcp://${host}:${port}`));
      operations.push(await operationOf(clients.at(-1), `q${index % queues}`, turn));
    }
    measure.begin();
    const deadlineMs = turn.seconds === undefined ? Number.POSITIVE_INFINITY : measure.startedMs + turn.seconds * 1000;
    await Promise.all(
      operations.map(async (operation, index) => {
        let left = shareOf(turn, index);
        const caller = async () => {
          let sentMs = measure.startedMs;
          while (left > 0 && sentMs < deadlineMs) {
            left--;
            await operation();
            const nowMs = performance.now();
            measure.latency(nowMs - sentMs);
            sentMs = nowMs;
            measure.done++;
            measure.counts[index % queues]++;
          }
        };
        await Promise.all(Array.from({ length: pipeline }, caller));
      }),
    );
    return measure.end();
  } finally {
    if (embedded === undefined) await Promise.all(clients.map((client) => client.close()));
  }
}

serve(takeTurn);
