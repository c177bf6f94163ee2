/** What all processes of a round agree upon. */

import { type Durability, dial, type MessageQueue, type OpenOptions, open, type TaskOptions } from "../../src/index.js";
import type { Declared } from "../history/history.js";

export const LOG = "events";
export const GROUP = "readers";
const QUEUES = ["jobs", "mails"] as const;

/** So short that leases run out all the time, and longer than most pauses of a busy machine. */
export const LEASE_MS = 400;
const MAX_ATTEMPTS = 4;

const TASK_OPTIONS = {
  lease: LEASE_MS,
  maxAttempts: MAX_ATTEMPTS,
  backoff: { initial: 0, jitter: 0 },
} as const satisfies TaskOptions;

/** Small files, so that a second sees them rotated, checkpointed and recycled. */
const OPEN_OPTIONS = {
  walFileBytes: "512KiB",
  segmentBytes: "128KiB",
  maxMessageBytes: "64KiB",
} as const satisfies OpenOptions;

export const DECLARED: readonly Declared[] = QUEUES.map((declare) => ({
  declare,
  leaseMs: LEASE_MS,
  maxAttempts: MAX_ATTEMPTS,
}));

/**
 * Where the clients of a round find the queues: behind a daemon, or in a directory, which one process has open, or several
 * share.
 */
export type Place =
  | { readonly directory: string; readonly durability: Durability; readonly shared: boolean }
  | { readonly target: string };

export function reach(place: Place): Promise<MessageQueue> {
  if ("target" in place) return dial(place.target);
  const { directory, durability, shared } = place;
  return open(directory, { ...OPEN_OPTIONS, durability, shared });
}

/** Everything of a queue under the names that the workload uses. */
export async function openQueues(mq: MessageQueue) {
  const log = await mq.openLog(LOG);
  const [jobs, mails] = await Promise.all(QUEUES.map((name) => mq.openTask(name, TASK_OPTIONS)));
  return { mq, log, tasks: [jobs!, mails!] as const };
}

export type Queues = Awaited<ReturnType<typeof openQueues>>;
