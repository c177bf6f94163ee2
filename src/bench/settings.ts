import type { Durability } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import { formatBytes } from "../api/units.js";

/** Resolved options of `bench run`. Sizes are bytes. */
export interface RunSettings {
  /** Payload bytes of each workload, over all its rounds. */
  readonly bytes: number;
  readonly messageBytes: number;
  readonly batch: number;
  /** Loops that work in batches. */
  readonly workers: number;
  /** Loops that work one by one. */
  readonly concurrency: number;
  readonly queues: number;
  readonly rounds: number;
  /** A round of a workload ends after this time even if its bytes are not done. */
  readonly roundLimitMs: number;
  readonly durability: Durability;
  /** Names of the workloads to run; all when empty. */
  readonly only: readonly string[];
}

/** Messages in one round of a workload; refuses a run that would have none. */
export function messagesPerRound(settings: RunSettings, share = 1): number {
  if (settings.messageBytes * settings.rounds > settings.bytes) {
    throw new VarveError(
      "ERR_OPTION",
      `--bytes ${formatBytes(settings.bytes)} is less than one message of ${formatBytes(settings.messageBytes)} in each ` +
        `of ${settings.rounds} rounds; give more bytes or fewer rounds`,
      { details: { option: "--bytes" } },
    );
  }
  return Math.max(1, Math.floor((settings.bytes * share) / settings.messageBytes / settings.rounds));
}
