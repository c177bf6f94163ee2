import type { LogQueue, MessageQueue } from "../api/contract.js";
import { open } from "../index.js";
import type { Baseline } from "./baseline.js";
import type { Contestant } from "./interleave.js";
import type { RunSettings } from "./settings.js";

/** A workload on varve, ready to run, and the bare loops that it is measured against. */
export interface Bench {
  readonly contestant: Contestant;
  readonly baselines: readonly Baseline[];
  close(): Promise<void>;
}

export function openDirectory(directory: string, settings: RunSettings): Promise<MessageQueue> {
  return open(`${directory}/data`, { durability: settings.durability });
}

export function several<Q>(settings: RunSettings, openOne: (name: string) => Promise<Q>): Promise<Q[]> {
  return Promise.all(Array.from({ length: settings.queues }, (_, index) => openOne(`bench-${index}`)));
}

export async function trimAll(logs: readonly LogQueue[]): Promise<void> {
  for (const log of logs) await log.trim((await log.stats()).next);
}

/** One single operation in this many is timed; batches and syncs always are. */
export const TIMED_EVERY = 16;
