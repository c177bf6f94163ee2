/** What it costs to put the records of several logs into one commit. */

import type { LogQueue, MessageQueue } from "../api/contract.js";
import { type Baseline, rawWrite } from "./baseline.js";
import { type Bench, openDirectory, trimAll } from "./bench.js";
import { drive } from "./interleave.js";
import { payloadsOf } from "./payload.js";
import { rest } from "./rest.js";
import type { RunSettings } from "./settings.js";

/** Logs in one transaction. */
const QUEUES = 4;

function openFour(queue: MessageQueue, kind: string): Promise<LogQueue[]> {
  return Promise.all(Array.from({ length: QUEUES }, (_, index) => queue.openLog(`${kind}-${index}`)));
}

/** The same records by `appendBatch`, one call for each log. */
async function batchedAppends(queue: MessageQueue, settings: RunSettings): Promise<Baseline> {
  const logs = await openFour(queue, "batched");
  const batch = payloadsOf(settings.messageBytes, settings.batch);
  return {
    name: "four batched appends",
    run: async (messages, probe) =>
      QUEUES *
      settings.batch *
      (await drive(settings.workers, Math.ceil(messages / settings.batch / QUEUES), 1, probe, () =>
        Promise.all(logs.map((log) => log.appendBatch(batch))),
      )),
    settle: async () => {
      await trimAll(logs);
      await rest(queue);
    },
    close() {},
  };
}

export async function transactions(directory: string, settings: RunSettings): Promise<Bench> {
  const queue = await openDirectory(directory, settings);
  const logs = await openFour(queue, "bench");
  const batch = payloadsOf(settings.messageBytes, settings.batch);
  return {
    contestant: {
      name: "varve",
      run: async (messages, probe) =>
        QUEUES *
        settings.batch *
        (await drive(settings.workers, Math.ceil(messages / settings.batch / QUEUES), 1, probe, () =>
          queue.transaction((tx) => {
            for (const log of logs) for (const payload of batch) tx.append(log, payload);
          }),
        )),
      settle: async () => {
        await trimAll(logs);
        await rest(queue);
      },
    },
    baselines: [rawWrite(directory, settings.messageBytes), await batchedAppends(queue, settings)],
    close: () => queue.close(),
  };
}
