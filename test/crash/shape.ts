import type { OpenOptions, TaskOptions } from "../../src/index.js";

export const LEASE_MS = 400;

/** Small files, so that a fraction of a second sees rotation, checkpoints and recycling. */
export const OPEN_OPTIONS = {
  walFileBytes: "512KiB",
  segmentBytes: "128KiB",
  maxMessageBytes: "64KiB",
} as const satisfies OpenOptions;

/** No task dies: each is either waiting, or was acked by somebody who noted it down. */
export const TASK_OPTIONS = {
  lease: LEASE_MS,
  maxAttempts: Number.POSITIVE_INFINITY,
  backoff: { initial: 0, jitter: 0 },
} as const satisfies TaskOptions;
