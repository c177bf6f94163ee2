/** What many queues in one directory cost: appends that go round all of them against appends to a single one. */

import { readdirSync } from "node:fs";
import { join } from "node:path";
import type { Durability, LogQueue, MessageQueue } from "../api/contract.js";
import { open } from "../index.js";
import { type Contestant, drive, interleave, ratios } from "./interleave.js";
import { type Memory, MemorySampler, type Spread, spread } from "./measure.js";
import { payloadsOf } from "./payload.js";
import { rest } from "./rest.js";
import type { OnProgress } from "./run.js";
import { warmMemory } from "./warm.js";

export interface QueuesSettings {
  readonly queues: number;
  readonly messageBytes: number;
  readonly concurrency: number;
  readonly rounds: number;
  /** Messages in one round. */
  readonly roundMessages: number;
  readonly durability: Durability;
}

export interface QueuesResult {
  readonly createPerSecond: number;
  /** Opening the directory with all its queues, none of them opened yet; and a directory with one queue. */
  readonly openMs: { readonly many: number; readonly one: number };
  /** Opening every queue. */
  readonly openQueuesPerSecond: number;
  readonly onePerSecond: Spread;
  readonly manyPerSecond: Spread;
  /** Many to one, round by round. */
  readonly ratio: Spread;
  /** Open files of this process; undefined where the system does not tell. */
  readonly openFiles: { readonly before: number; readonly peak: number } | undefined;
  readonly memory: Memory;
}

/** Counts this process's open files; undefined where the system does not tell. */
function openFiles(): number | undefined {
  try {
    return readdirSync("/proc/self/fd").length;
  } catch {
    return undefined;
  }
}

/** Counting files takes about as long as 50 appends. */
const LAPS_PER_COUNT = 256;

const nameOf = (index: number): string => `queue-${index}`;

async function openAll(mq: MessageQueue, count: number, onProgress: (fraction: number) => void): Promise<LogQueue[]> {
  const logs: LogQueue[] = [];
  for (let index = 0; index < count; index++) {
    logs.push(await mq.openLog(nameOf(index)));
    if (index % 64 === 0) onProgress(index / count);
  }
  return logs;
}

async function timed<T>(body: () => Promise<T>): Promise<{ value: T; ms: number }> {
  const startedMs = performance.now();
  const value = await body();
  return { value, ms: performance.now() - startedMs };
}

export async function benchQueues(
  directory: string,
  settings: QueuesSettings,
  onProgress: OnProgress,
): Promise<QueuesResult> {
  const paths = { many: join(directory, "many"), one: join(directory, "one") };
  const reopened = (path: string): Promise<MessageQueue> => open(path, { durability: settings.durability });

  const created = await timed(async () => {
    const mq = await reopened(paths.many);
    const logs = await openAll(mq, settings.queues, (fraction) => onProgress(fraction * 0.4, "creating the queues"));
    // One record each, so that every queue has files of its own to be opened lazily.
    for (const log of logs) await log.append("first");
    await mq.close();
  });
  const single = await reopened(paths.one);
  await (await single.openLog(nameOf(0))).append("first");
  await single.close();

  const before = openFiles();
  const sampler = new MemorySampler();
  const one = await timed(() => reopened(paths.one));
  const many = await timed(() => reopened(paths.many));
  let peak = openFiles() ?? 0;
  const watch = (): void => {
    peak = Math.max(peak, openFiles() ?? 0);
  };
  const oneLog = await openAll(one.value, 1, () => {});
  const manyLogs = await timed(() =>
    openAll(many.value, settings.queues, (fraction) => {
      watch();
      onProgress(0.4 + fraction * 0.2, "opening the queues");
    }),
  );

  const batch = payloadsOf(settings.messageBytes, 64);
  const contestant = (name: string, mq: MessageQueue, logs: readonly LogQueue[]): Contestant => {
    let turn = 0;
    return {
      name,
      run: (messages, probe) =>
        drive(settings.concurrency, messages, 16, probe, () => {
          turn += 1;
          return logs[turn % logs.length]!.append(batch[turn % batch.length]!);
        }),
      async settle() {
        watch();
        await rest(mq);
        watch();
      },
    };
  };
  const contestants = [contestant("one", one.value, oneLog), contestant("many", many.value, manyLogs.value)] as const;
  let turns = 0;
  let laps = 0;
  const timings = await interleave(contestants, {
    rounds: settings.rounds,
    roundLimitMs: Number.POSITIVE_INFINITY,
    messages: () => settings.roundMessages,
    prepare: () => warmMemory(directory, 2 * settings.roundMessages * settings.messageBytes),
    onRound: () => {
      onProgress(0.6 + (0.4 * turns++) / (2 * (settings.rounds + 1)), "appending");
      watch();
    },
    onLap: () => {
      if (++laps % LAPS_PER_COUNT === 0) watch();
    },
  });
  await one.value.close();
  await many.value.close();
  const [oneTiming, manyTiming] = [timings.get(contestants[0])!, timings.get(contestants[1])!];
  const { before: rssBefore, peak: rssPeak, after: rssAfter } = sampler.stop();
  return {
    createPerSecond: settings.queues / (created.ms / 1000),
    openMs: { many: many.ms, one: one.ms },
    openQueuesPerSecond: settings.queues / (manyLogs.ms / 1000),
    onePerSecond: spread(oneTiming.rates),
    manyPerSecond: spread(manyTiming.rates),
    ratio: spread(ratios(manyTiming, oneTiming)),
    openFiles: before === undefined ? undefined : { before, peak },
    memory: { before: rssBefore, peak: rssPeak, after: rssAfter },
  };
}
