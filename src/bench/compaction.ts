/**
 * What a compaction costs those who append meanwhile: the latency of appends to another log of the directory without
 * one, while a log of the given size is compacted, and without one again.
 */

import type { Durability, LogQueue, MessageQueue } from "../api/contract.js";
import { message, open } from "../index.js";
import { type Latency, Probe, type Spread, spread } from "./measure.js";
import { payloadsOf } from "./payload.js";
import { rest } from "./rest.js";
import type { OnProgress } from "./run.js";

export interface CompactionSettings {
  readonly messageBytes: number;
  /** Payload of the log that is compacted. */
  readonly bytes: number;
  readonly keys: number;
  readonly concurrency: number;
  readonly rounds: number;
  /** How long appends are timed without a compaction, before it and after. */
  readonly windowMs: number;
  readonly durability: Durability;
}

export interface CompactionBench {
  readonly without: Latency;
  readonly during: Latency;
  /** During to without: appends a second, and the 99th percentile of their latency, round by round. */
  readonly rateRatio: Spread;
  readonly p99Ratio: Spread;
  readonly seconds: Spread;
  readonly bytesPerSecond: Spread;
  readonly recordsBefore: number;
  readonly recordsRemoved: number;
  readonly bytesBefore: number;
  readonly bytesAfter: number;
}

const BATCH = 64;

async function fill(mq: MessageQueue, log: LogQueue, settings: CompactionSettings, onProgress: OnProgress) {
  const payloads = payloadsOf(settings.messageBytes, BATCH);
  const records = Math.ceil(settings.bytes / settings.messageBytes);
  for (let done = 0; done < records; done += BATCH) {
    const appends: Promise<number>[] = [];
    for (let each = 0; each < BATCH; each++) {
      const key = `key ${(done + each) % settings.keys}`;
      appends.push(log.append(message(payloads[each]!, { key }), { durability: "async" }));
    }
    await Promise.all(appends);
    if (done % (BATCH * 1024) === 0) onProgress(done / records, "filling the log");
  }
  await rest(mq);
}

/** Appends for as long as `going` says; returns how many a second. */
async function append(
  log: LogQueue,
  settings: CompactionSettings,
  probe: Probe,
  going: () => boolean,
): Promise<number> {
  const payloads = payloadsOf(settings.messageBytes, BATCH);
  const startedMs = performance.now();
  let count = 0;
  await Promise.all(
    Array.from({ length: settings.concurrency }, async () => {
      while (going()) {
        const lapMs = performance.now();
        await log.append(payloads[count++ % BATCH]!);
        probe.lap(lapMs);
      }
    }),
  );
  return count / ((performance.now() - startedMs) / 1000);
}

async function window(log: LogQueue, settings: CompactionSettings, probe: Probe): Promise<number> {
  const endMs = performance.now() + settings.windowMs;
  return await append(log, settings, probe, () => performance.now() < endMs);
}

export async function benchCompaction(
  directory: string,
  settings: CompactionSettings,
  onProgress: OnProgress,
): Promise<CompactionBench> {
  const mq = await open(`${directory}/data`, { durability: settings.durability });
  try {
    const compacted = await mq.openLog("compacted");
    const live = await mq.openLog("live");
    await window(live, settings, new Probe());
    const without = new Probe();
    const during = new Probe();
    const ratios = { rate: [] as number[], p99: [] as number[], seconds: [] as number[], speed: [] as number[] };
    let result = { recordsBefore: 0, recordsRemoved: 0, bytesBefore: 0, bytesAfter: 0 };
    for (let round = 0; round < settings.rounds; round++) {
      await fill(mq, compacted, settings, (part, what) => onProgress((round + part / 2) / settings.rounds, what));
      const calm = new Probe();
      const busy = new Probe();
      const before = await window(live, settings, calm);
      const startedMs = performance.now();
      let going = true;
      onProgress((round + 0.6) / settings.rounds, "compacting");
      const [meanwhile, compaction] = await Promise.all([
        append(live, settings, busy, () => going),
        compacted.compact().finally(() => {
          going = false;
        }),
      ]);
      const seconds = (performance.now() - startedMs) / 1000;
      const after = await window(live, settings, calm);
      result = compaction;
      ratios.rate.push(meanwhile / ((before + after) / 2));
      ratios.p99.push(busy.latency().p99Us / calm.latency().p99Us);
      ratios.seconds.push(seconds);
      ratios.speed.push(compaction.bytesBefore / seconds);
      without.add(calm);
      during.add(busy);
      await live.trim((await live.stats()).next);
    }
    return {
      without: without.latency(),
      during: during.latency(),
      rateRatio: spread(ratios.rate),
      p99Ratio: spread(ratios.p99),
      seconds: spread(ratios.seconds),
      bytesPerSecond: spread(ratios.speed),
      ...result,
    };
  } finally {
    await mq.close();
  }
}
