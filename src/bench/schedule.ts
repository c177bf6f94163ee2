/**
 * What tasks that wait for their time cost, and how exactly they come. A queue is warmed up and its process's memory taken;
 * then it is filled with tasks whose due times lie within a horizon behind the measurement (or are all the same), and,
 * while nothing else happens, probes that are due soon are waited for.
 */

import type { Durability, MessageQueue, TaskQueue } from "../api/contract.js";
import { open } from "../index.js";
import { MemorySampler } from "./measure.js";
import { payloadsOf, random } from "./payload.js";
import { rest } from "./rest.js";
import type { OnProgress } from "./run.js";

export interface ScheduleSettings {
  readonly directory: string;
  readonly tasks: number;
  readonly messageBytes: number;
  readonly batch: number;
  /** The due times are spread over so much time; 0: one moment for all. */
  readonly horizonMs: number;
  /** Tasks that come while the others wait, and the time that they are spread over. */
  readonly probes: number;
  readonly probeMs: number;
  readonly durability: Durability;
}

/** Memory is resident, in bytes. */
export interface ScheduleResult {
  /** After warming up, nothing scheduled. */
  readonly emptyBytes: number;
  /** While the probes come, all others waiting: the median of samples. */
  readonly scheduledBytes: number;
  readonly peakBytes: number;
  readonly fillPerSecond: number;
  /** How late the probes came. */
  readonly lateMs: { readonly p50: number; readonly p99: number; readonly max: number };
  /** Probes that came before their time. */
  readonly early: number;
}

/** Enough to fill every cache. */
const WARMUP_TASKS = 131_072;

export async function benchSchedule(settings: ScheduleSettings, onProgress: OnProgress): Promise<ScheduleResult> {
  const mq = await open(settings.directory, { durability: settings.durability });
  try {
    return await measure(mq, settings, onProgress);
  } finally {
    await mq.close();
  }
}

async function measure(mq: MessageQueue, settings: ScheduleSettings, onProgress: OnProgress): Promise<ScheduleResult> {
  const { tasks, horizonMs, probeMs } = settings;
  const queue = await mq.openTask("scheduled");
  const batch = payloadsOf(settings.messageBytes, settings.batch);
  for (let done = 0; done < WARMUP_TASKS; done += batch.length) {
    await queue.enqueueBatch(batch);
    await queue.ackBatch(await queue.dequeueBatch({ max: batch.length }));
  }
  await rest(mq);
  const emptyBytes = process.memoryUsage.rss();
  const memory = new MemorySampler();

  // Far enough away not to come before the probes have.
  const next = random(0x2545f491);
  const startedMs = performance.now();
  const firstDueMs = Date.now() + 3_600_000;
  const batches = Math.ceil(tasks / batch.length);
  for (let done = 0; done < batches; done++) {
    await queue.enqueueBatch(batch, { at: new Date(firstDueMs + (horizonMs === 0 ? 0 : next(horizonMs))) });
    if (done % 256 === 0) onProgress(done / batches, "scheduling");
  }
  const fillPerSecond = (batches * batch.length * 1000) / (performance.now() - startedMs);
  await rest(mq);
  const { peak } = memory.stop();

  onProgress(1, "waiting for probes");
  const resting = new MemorySampler();
  const late = await probe(queue, settings, probeMs, next);
  const { median, peak: peakLater } = resting.stop();
  late.sort((a, b) => a - b);
  const at = (part: number): number => late[Math.min(late.length - 1, Math.floor(part * late.length))] ?? Number.NaN;
  return {
    emptyBytes,
    scheduledBytes: median,
    peakBytes: Math.max(peak, peakLater),
    fillPerSecond,
    lateMs: { p50: at(0.5), p99: at(0.99), max: at(1) },
    early: late.filter((ms) => ms < 0).length,
  };
}

/** Schedules probes over a stretch of time and takes each as it comes. Returns how late they were, in milliseconds. */
async function probe(
  queue: TaskQueue,
  { probes }: ScheduleSettings,
  probeMs: number,
  next: (limit: number) => number,
): Promise<number[]> {
  const startMs = Date.now() + 1000;
  for (let index = 0; index < probes; index++) {
    const due = startMs + next(probeMs);
    await queue.enqueue(String(due), { at: new Date(due) });
  }
  const late: number[] = [];
  while (late.length < probes) {
    const task = await queue.dequeue({ wait: probeMs + 10_000 });
    if (task === undefined) throw new Error(`only ${late.length} of ${probes} probes came`);
    late.push(Date.now() - Number(task.payload.toString()));
    await queue.ack(task);
  }
  return late;
}
