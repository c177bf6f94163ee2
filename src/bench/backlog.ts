/**
 * Does a queue slow down, or a process grow, with the tasks that wait? Two queues in one directory, in one process:
 * one stays empty, the other is filled. Tasks pass through both in alternating rounds; in the full one each joins at
 * the end, and the oldest, long since out of every cache, is delivered.
 */

import type { Durability, MessageQueue, TaskQueue } from "../api/contract.js";
import { open } from "../index.js";
import { cycle, cycleBatch } from "./consumers.js";
import { type Contestant, drive, interleave, ratios } from "./interleave.js";
import { MemorySampler, Probe, type Spread, spread } from "./measure.js";
import { payloadsOf } from "./payload.js";
import { rest } from "./rest.js";
import type { OnProgress } from "./run.js";

export interface BacklogSettings {
  /** Does not exist yet. */
  readonly directory: string;
  readonly tasks: number;
  readonly messageBytes: number;
  readonly batch: number;
  readonly workers: number;
  readonly concurrency: number;
  readonly rounds: number;
  /** Tasks that pass through a queue in one round. */
  readonly roundTasks: number;
  readonly durability: Durability;
}

export interface BacklogSpeed {
  readonly emptyPerSecond: Spread;
  readonly backlogPerSecond: Spread;
  /** Backlog to empty, round by round. */
  readonly ratio: Spread;
}

/** Memory is resident, in bytes: the median of samples taken while tasks pass through. */
export interface BacklogResult {
  /** After warming up, both queues empty. */
  readonly emptyBytes: number;
  readonly backlogBytes: number;
  /** The most the process ever had, as the operating system counts it. */
  readonly peakBytes: number;
  readonly fillPerSecond: number;
  readonly batches: BacklogSpeed;
  readonly singly: BacklogSpeed;
}

/** Tasks that are enqueued and drained before anything is measured: enough to fill every cache. */
const WARMUP_TASKS = 262_144;

async function fill(
  queue: TaskQueue,
  tasks: number,
  batch: readonly Buffer[],
  workers: number,
  onProgress: (fraction: number) => void,
): Promise<void> {
  let done = 0;
  const batches = Math.ceil(tasks / batch.length);
  await drive(workers, batches, 1, new Probe(), async () => {
    await queue.enqueueBatch(batch);
    done += 1;
    if (done % 1024 === 0) onProgress(done / batches);
  });
}

async function drain(queue: TaskQueue, max: number): Promise<void> {
  for (;;) {
    const tasks = await queue.dequeueBatch({ max });
    if (tasks.length === 0) return;
    await queue.ackBatch(tasks);
  }
}

export async function backlog(settings: BacklogSettings, onProgress: OnProgress): Promise<BacklogResult> {
  const mq = await open(settings.directory, { durability: settings.durability });
  try {
    return await measure(mq, settings, onProgress);
  } finally {
    await mq.close();
  }
}

async function measure(mq: MessageQueue, settings: BacklogSettings, onProgress: OnProgress): Promise<BacklogResult> {
  const batch = payloadsOf(settings.messageBytes, settings.batch);
  const empty = await mq.openTask("empty");
  const full = await mq.openTask("full");
  const settle = (): Promise<void> => rest(mq);

  const inBatches = (name: string, queue: TaskQueue): Contestant => ({
    name,
    settle,
    run: async (tasks, probe) =>
      settings.batch *
      (await drive(settings.workers, Math.ceil(tasks / settings.batch), 1, probe, () => cycleBatch(queue, batch))),
  });
  let turn = 0;
  const oneByOne = (name: string, queue: TaskQueue): Contestant => ({
    name,
    settle,
    run: (tasks, probe) =>
      drive(settings.concurrency, tasks, 16, probe, () => cycle(queue, batch[turn++ % batch.length]!)),
  });
  const options = {
    rounds: settings.rounds,
    roundLimitMs: Number.POSITIVE_INFINITY,
    messages: () => settings.roundTasks,
  };
  const compare = async (kind: typeof inBatches): Promise<BacklogSpeed> => {
    const contestants = [kind("empty", empty), kind("backlog", full)] as const;
    const timings = await interleave(contestants, options);
    const [without, with_] = [timings.get(contestants[0])!, timings.get(contestants[1])!];
    return {
      emptyPerSecond: spread(without.rates),
      backlogPerSecond: spread(with_.rates),
      ratio: spread(ratios(with_, without)),
    };
  };

  onProgress(0, "warming up");
  const warmup = Math.min(WARMUP_TASKS, settings.tasks);
  for (const queue of [empty, full]) {
    await fill(queue, warmup, batch, settings.workers, () => {});
    await drain(queue, settings.batch);
  }
  const whileEmpty = new MemorySampler();
  await compare(inBatches);
  await compare(oneByOne);
  const emptyBytes = whileEmpty.stop().median;

  const fillStartedMs = performance.now();
  await fill(full, settings.tasks, batch, settings.workers, (fraction) =>
    onProgress(0.1 + 0.6 * fraction, "filling the backlog"),
  );
  const fillPerSecond = settings.tasks / ((performance.now() - fillStartedMs) / 1000);

  onProgress(0.7, "measuring with the backlog");
  const whileFull = new MemorySampler();
  const batches = await compare(inBatches);
  onProgress(0.85, "measuring with the backlog");
  const singly = await compare(oneByOne);
  const backlogBytes = whileFull.stop().median;
  return {
    emptyBytes,
    backlogBytes,
    // Node reports KiB here, as the system does.
    peakBytes: process.resourceUsage().maxRSS * 1024,
    fillPerSecond,
    batches,
    singly,
  };
}
