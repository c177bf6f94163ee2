import { setTimeout as sleep } from "node:timers/promises";
import type { MessageQueue } from "../api/contract.js";

const REST_MS_MAX = 10_000;

/**
 * Waits until a directory has nothing left to do in the background: everything is durable and no checkpoint is under
 * way. It runs on the event loop, which the contestants that work in blocking calls would keep from it; what it did not
 * get done in the meantime would then be charged to its next turn.
 */
export async function rest(queue: MessageQueue): Promise<void> {
  await queue.sync();
  const startedMs = performance.now();
  while ((await queue.stats()).wal.files > 1 && performance.now() - startedMs < REST_MS_MAX) await sleep(5);
}
