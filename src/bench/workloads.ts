import type { LogQueue, MessageQueue } from "../api/contract.js";
import { open } from "../index.js";
import { overwriteSync, rawRead, rawScan, rawWrite } from "./baseline.js";
import { type Bench, openDirectory, several, TIMED_EVERY, trimAll } from "./bench.js";
import { cycles, sharedGroups, workers } from "./consumers.js";
import { drive } from "./interleave.js";
import { payloadsOf, random } from "./payload.js";
import { rest } from "./rest.js";
import type { RunSettings } from "./settings.js";
import { transactions } from "./transactions.js";

export interface Workload {
  readonly name: string;
  readonly describe: (settings: RunSettings) => string;
  /** Part of the run's bytes that this workload handles; less than 1 for those that wait for the disk each time. */
  readonly share: number;
  /** @param directory empty, this workload's own @param messages of one round */
  readonly prepare: (directory: string, settings: RunSettings, messages: number) => Promise<Bench>;
}

/** Hands out the queues in turn. */
function turns<Q>(queues: readonly Q[]): () => Q {
  let turn = 0;
  return () => queues[turn++ % queues.length]!;
}

async function append(directory: string, settings: RunSettings, mode: "batches" | "singly"): Promise<Bench> {
  const queue = await openDirectory(directory, settings);
  const logs = await several(settings, (name) => queue.openLog(name));
  const next = turns(logs);
  const batch = payloadsOf(settings.messageBytes, settings.batch);
  let turn = 0;
  return {
    contestant: {
      name: "varve",
      run:
        mode === "batches"
          ? async (messages, probe) =>
              settings.batch *
              (await drive(settings.workers, Math.ceil(messages / settings.batch), 1, probe, () =>
                next().appendBatch(batch),
              ))
          : (messages, probe) =>
              drive(settings.concurrency, messages, TIMED_EVERY, probe, () =>
                next().append(batch[turn++ % batch.length]!),
              ),
      settle: async () => {
        await trimAll(logs);
        await rest(queue);
      },
    },
    baselines: [rawWrite(directory, settings.messageBytes)],
    close: () => queue.close(),
  };
}

/** Fills a log, and opens it again so that nothing of it is left in the write path. */
async function filledLog(
  directory: string,
  settings: RunSettings,
  messages: number,
): Promise<{ queue: MessageQueue; log: LogQueue }> {
  const batch = payloadsOf(settings.messageBytes, settings.batch);
  const filling = await open(`${directory}/data`, { durability: "async" });
  const filled = await filling.openLog("bench");
  for (let left = messages; left > 0; left -= batch.length) await filled.appendBatch(batch.slice(0, left));
  await filling.close();
  const queue = await openDirectory(directory, settings);
  return { queue, log: await queue.openLog("bench") };
}

async function scan(directory: string, settings: RunSettings, messages: number): Promise<Bench> {
  const { queue, log } = await filledLog(directory, settings, messages);
  return {
    contestant: {
      name: "varve",
      async run(wanted, probe) {
        let done = 0;
        let startedMs = performance.now();
        for await (const records of log.batches({ from: "start" })) {
          // Touched, since a payload may be cut out of its batch only when it is asked for.
          for (const { payload } of records) {
            if (payload.length !== settings.messageBytes) throw new Error(`read ${payload.length} bytes of a message`);
          }
          done += records.length;
          if (probe.lap(startedMs) || done >= wanted) break;
          startedMs = performance.now();
        }
        return done;
      },
    },
    baselines: [rawWrite(directory, settings.messageBytes), rawScan(directory, settings.messageBytes, messages)],
    close: () => queue.close(),
  };
}

async function randomRead(directory: string, settings: RunSettings, messages: number): Promise<Bench> {
  const { queue, log } = await filledLog(directory, settings, messages);
  const next = random(7);
  const readOne = async (): Promise<void> => {
    const offset = next(messages);
    if ((await log.read(offset)) === undefined) throw new Error(`no record at offset ${offset}`);
  };
  return {
    contestant: {
      name: "varve",
      run: (wanted, probe) => drive(settings.concurrency, wanted, TIMED_EVERY, probe, readOne),
    },
    baselines: [rawWrite(directory, settings.messageBytes), rawRead(directory, settings.messageBytes, messages)],
    close: () => queue.close(),
  };
}

async function enqueue(directory: string, settings: RunSettings, mode: "batches" | "singly"): Promise<Bench> {
  const queue = await openDirectory(directory, settings);
  const next = turns(await several(settings, (name) => queue.openTask(name)));
  const batch = payloadsOf(settings.messageBytes, settings.batch);
  let turn = 0;
  return {
    contestant: {
      name: "varve",
      run:
        mode === "batches"
          ? async (messages, probe) =>
              settings.batch *
              (await drive(settings.workers, Math.ceil(messages / settings.batch), 1, probe, () =>
                next().enqueueBatch(batch),
              ))
          : (messages, probe) =>
              drive(settings.concurrency, messages, TIMED_EVERY, probe, () =>
                next().enqueue(batch[turn++ % batch.length]!),
              ),
      settle: () => rest(queue),
    },
    baselines: [rawWrite(directory, settings.messageBytes)],
    close: () => queue.close(),
  };
}

async function sequentialSync(directory: string, settings: RunSettings): Promise<Bench> {
  const queue = await open(`${directory}/data`, { durability: "sync" });
  const log = await queue.openLog("bench");
  const payload = payloadsOf(settings.messageBytes, 1)[0]!;
  return {
    contestant: {
      name: "varve",
      run: (messages, probe) => drive(1, messages, 1, probe, () => log.append(payload)),
      settle: () => trimAll([log]),
    },
    baselines: [
      overwriteSync(directory, settings.messageBytes, "pool"),
      overwriteSync(directory, settings.messageBytes, "blocking"),
    ],
    close: () => queue.close(),
  };
}

/** In the order in which they run. */
export const WORKLOADS: readonly Workload[] = [
  {
    name: "append",
    describe: ({ batch, workers }) => `append, batches of ${batch}, ${workers} workers`,
    share: 1,
    prepare: (directory, settings) => append(directory, settings, "batches"),
  },
  {
    name: "append-single",
    describe: ({ concurrency }) => `append one by one, ${concurrency} at a time`,
    share: 1,
    prepare: (directory, settings) => append(directory, settings, "singly"),
  },
  { name: "scan", describe: () => "scan a reopened log", share: 1, prepare: scan },
  {
    name: "read",
    describe: ({ concurrency }) => `read at random offsets, ${concurrency} at a time`,
    share: 1 / 4,
    prepare: randomRead,
  },
  {
    name: "enqueue",
    describe: ({ batch, workers }) => `enqueue, batches of ${batch}, ${workers} workers`,
    share: 1,
    prepare: (directory, settings) => enqueue(directory, settings, "batches"),
  },
  {
    name: "enqueue-single",
    describe: ({ concurrency }) => `enqueue one by one, ${concurrency} at a time`,
    share: 1,
    prepare: (directory, settings) => enqueue(directory, settings, "singly"),
  },
  {
    name: "cycle",
    describe: ({ batch, workers }) => `enqueue + dequeue + ack, batches of ${batch}, ${workers} workers`,
    share: 1,
    prepare: (directory, settings) => cycles(directory, settings, "batches"),
  },
  {
    name: "cycle-single",
    describe: ({ concurrency }) => `enqueue + dequeue + ack one by one, ${concurrency} at a time`,
    share: 1,
    prepare: (directory, settings) => cycles(directory, settings, "singly"),
  },
  {
    name: "worker",
    describe: ({ batch, workers }) => `enqueue in batches of ${batch}, ${workers} workers of ${batch} handlers each`,
    share: 1,
    prepare: workers,
  },
  {
    name: "shared-group",
    describe: ({ batch, workers }) =>
      `append, lease and ack by a shared group, batches of ${batch}, ${workers} members`,
    share: 1,
    prepare: sharedGroups,
  },
  {
    name: "transaction",
    describe: ({ batch, workers }) => `append ${batch} records to each of four logs in one commit, ${workers} workers`,
    share: 1,
    prepare: transactions,
  },
  {
    name: "sync",
    describe: () => "append one by one, one at a time, each synced",
    share: 1 / 64,
    prepare: sequentialSync,
  },
];
