/** What takes tasks and finishes them: the bare cycle, workers, and a shared group over a log. */

import type { MessageQueue, SharedGroup, TaskQueue, TaskSource, Worker } from "../api/contract.js";
import { type Baseline, rawWrite } from "./baseline.js";
import { type Bench, openDirectory, several, TIMED_EVERY, trimAll } from "./bench.js";
import { drive } from "./interleave.js";
import { payloadsOf } from "./payload.js";
import { rest } from "./rest.js";
import type { RunSettings } from "./settings.js";

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
  await finish(queue, batch.length);
}

/** Takes so many tasks and finishes them. */
async function finish(source: TaskSource, count: number): Promise<void> {
  for (let left = count; left > 0; ) {
    const tasks = await source.dequeueBatch({ max: left });
    if (tasks.length === 0) throw new Error("nothing was ready although as much had just been added");
    await source.ackBatch(tasks);
    left -= tasks.length;
  }
}

export async function cycles(directory: string, settings: RunSettings, mode: "batches" | "singly"): Promise<Bench> {
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

/** The cycle in batches, on queues of its own: what workers and groups are measured against. */
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

export async function workers(directory: string, settings: RunSettings): Promise<Bench> {
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

/** The cycle over logs, whose records a shared group's members lease and finish. */
export async function sharedGroups(directory: string, settings: RunSettings): Promise<Bench> {
  const queue = await openDirectory(directory, settings);
  const logs = await several(settings, (name) => queue.openLog(name));
  const members: SharedGroup[] = [];
  for (let loop = 0; loop < settings.workers; loop++) {
    members.push(await logs[loop % logs.length]!.sharedGroup("bench"));
  }
  const batch = payloadsOf(settings.messageBytes, settings.batch);
  return {
    contestant: {
      name: "varve",
      run: async (messages, probe) =>
        settings.batch *
        (await drive(settings.workers, Math.ceil(messages / settings.batch), 1, probe, async (loop) => {
          await logs[loop % logs.length]!.appendBatch(batch);
          await finish(members[loop]!, batch.length);
        })),
      settle: async () => {
        await trimAll(logs);
        await rest(queue);
      },
    },
    baselines: [rawWrite(directory, settings.messageBytes), await bareCycle(queue, settings)],
    close: () => queue.close(),
  };
}
