import type { LogQueue, MessageQueue, TaskQueue, Worker } from "../api/contract.js";
import { open } from "../index.js";
import { type Baseline, overwriteSync, rawRead, rawScan, rawWrite } from "./baseline.js";
import { type Contestant, drive } from "./interleave.js";
import { payloadsOf, random } from "./payload.js";
import { rest } from "./rest.js";
import type { RunSettings } from "./settings.js";

/** A workload on varve, ready to run, and the bare loops that it is measured against. */
export interface Bench {
  readonly contestant: Contestant;
  readonly baselines: readonly Baseline[];
  close(): Promise<void>;
}

export interface Workload {
  readonly name: string;
  readonly describe: (settings: RunSettings) => string;
  /** Part of the run's bytes that this workload handles; less than 1 for those that wait for the disk each time. */
  readonly share: number;
  /** @param directory empty, this workload's own @param messages of one round */
  readonly prepare: (directory: string, settings: RunSettings, messages: number) => Promise<Bench>;
}

/** One single operation in this many is timed; batches and syncs always are. */
const TIMED_EVERY = 16;

function openDirectory(directory: string, settings: RunSettings): Promise<MessageQueue> {
  return open(`${directory}/data`, { durability: settings.durability });
}

function several<Q>(settings: RunSettings, openOne: (name: string) => Promise<Q>): Promise<Q[]> {
  return Promise.all(Array.from({ length: settings.queues }, (_, index) => openOne(`bench-${index}`)));
}

/** Hands out the queues in turn. */
function turns<Q>(queues: readonly Q[]): () => Q {
  let turn = 0;
  return () => queues[turn++ % queues.length]!;
}

async function trimAll(logs: readonly LogQueue[]): Promise<void> {
  for (const log of logs) await log.trim((await log.stats()).next);
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

/** Enqueues a task, takes one and finishes it. */
export async function cycle(queue: TaskQueue, payload: Uint8Array): Promise<void> {
  await queue.enqueue(payload);
  const task = await queue.dequeue();
  if (task === undefined) throw new Error("no task was ready although one had just been enqueued");
  await queue.ack(task);
}

/** The same for a batch of tasks. */
export async function cycleBatch(queue: TaskQueue, batch: readonly Uint8Array[]): Promise<void> {
  await queue.enqueueBatch(batch);
  for (let left = batch.length; left > 0; ) {
    const tasks = await queue.dequeueBatch({ max: left });
    if (tasks.length === 0) throw new Error("no task was ready although some had just been enqueued");
    await queue.ackBatch(tasks);
    left -= tasks.length;
  }
}

async function cycles(directory: string, settings: RunSettings, mode: "batches" | "singly"): Promise<Bench> {
  const queue = await openDirectory(directory, settings);
  const tasks = await several(settings, (name) => queue.openTask(name));
  const batch = payloadsOf(settings.messageBytes, settings.batch);
  let turn = 0;
  // A loop stays with its queue, so that what it enqueues is there when it dequeues.
  const queueOf = (loop: number): TaskQueue => tasks[loop % tasks.length]!;
  return {
    contestant: {
      name: "varve",
      run:
        mode === "batches"
          ? async (messages, probe) =>
              settings.batch *
              (await drive(settings.workers, Math.ceil(messages / settings.batch), 1, probe, (loop) =>
                cycleBatch(queueOf(loop), batch),
              ))
          : (messages, probe) =>
              drive(settings.concurrency, messages, TIMED_EVERY, probe, (loop) =>
                cycle(queueOf(loop), batch[turn++ % batch.length]!),
              ),
      settle: () => rest(queue),
    },
    baselines: [rawWrite(directory, settings.messageBytes)],
    close: () => queue.close(),
  };
}

/** The cycle in batches, on queues of its own: what a worker is measured against. */
async function bareCycle(queue: MessageQueue, settings: RunSettings): Promise<Baseline> {
  const tasks = await Promise.all(
    Array.from({ length: settings.queues }, (_, index) => queue.openTask(`bare-${index}`)),
  );
  const batch = payloadsOf(settings.messageBytes, settings.batch);
  return {
    name: "dequeue + ack",
    run: async (messages, probe) =>
      settings.batch *
      (await drive(settings.workers, Math.ceil(messages / settings.batch), 1, probe, (loop) =>
        cycleBatch(tasks[loop % tasks.length]!, batch),
      )),
    settle: () => rest(queue),
    close() {},
  };
}

/** Enqueues a batch and waits until handlers have done as many tasks. */
class WorkedQueue {
  readonly #tasks: TaskQueue;
  readonly #workers: Worker[] = [];
  readonly #waiting: { readonly target: number; readonly resolve: () => void }[] = [];
  #enqueued = 0;
  #done = 0;

  constructor(tasks: TaskQueue) {
    this.#tasks = tasks;
  }

  addWorker(concurrency: number): void {
    const worker = this.#tasks.work(async () => {}, { concurrency });
    worker.on("completed", () => {
      this.#done++;
      while (this.#done >= (this.#waiting[0]?.target ?? Number.POSITIVE_INFINITY)) this.#waiting.shift()!.resolve();
    });
    this.#workers.push(worker);
  }

  async cycle(batch: readonly Uint8Array[]): Promise<void> {
    this.#enqueued += batch.length;
    const target = this.#enqueued;
    const done = new Promise<void>((resolve) => this.#waiting.push({ target, resolve }));
    await this.#tasks.enqueueBatch(batch);
    await done;
  }

  async close(): Promise<void> {
    for (const worker of this.#workers) await worker.close();
  }
}

async function workers(directory: string, settings: RunSettings): Promise<Bench> {
  const queue = await openDirectory(directory, settings);
  const worked = (await several(settings, (name) => queue.openTask(name))).map((tasks) => new WorkedQueue(tasks));
  for (let worker = 0; worker < settings.workers; worker++) worked[worker % worked.length]!.addWorker(settings.batch);
  const batch = payloadsOf(settings.messageBytes, settings.batch);
  return {
    contestant: {
      name: "varve",
      run: async (messages, probe) =>
        settings.batch *
        (await drive(settings.workers, Math.ceil(messages / settings.batch), 1, probe, (loop) =>
          worked[loop % worked.length]!.cycle(batch),
        )),
      settle: () => rest(queue),
    },
    baselines: [rawWrite(directory, settings.messageBytes), await bareCycle(queue, settings)],
    close: async () => {
      for (const each of worked) await each.close();
      await queue.close();
    },
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
    name: "sync",
    describe: () => "append one by one, one at a time, each synced",
    share: 1 / 64,
    prepare: sequentialSync,
  },
];
