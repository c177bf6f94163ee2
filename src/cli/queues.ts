import type { LogQueue, MessageQueue, QueueInfo, QueueKind, TaskQueue } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import type { Run } from "./run.js";

/** Opens a log queue that exists: a mistyped name must not make a new queue. */
export async function existingLog(queue: MessageQueue, name: string): Promise<LogQueue> {
  await requireQueue(queue, "log", name);
  return queue.openLog(name);
}

export async function existingTask(queue: MessageQueue, name: string): Promise<TaskQueue> {
  await requireQueue(queue, "task", name);
  return queue.openTask(name);
}

/** Whether there is such a queue; says on standard error that it is being made when there is not. */
export async function announceNew(run: Run, queue: MessageQueue, kind: QueueKind, name: string): Promise<void> {
  const known = (await queue.queues()).some((info) => info.kind === kind && info.name === name);
  if (!known) run.note(`making the new ${kind} queue "${name}"`);
}

/** What is known of a queue that must exist, without opening it. */
export async function requireQueue(queue: MessageQueue, kind: QueueKind, name: string): Promise<QueueInfo> {
  const all = await queue.queues();
  const found = all.find((info) => info.kind === kind && info.name === name);
  if (found !== undefined) return found;
  const start = `there is no ${kind} queue "${name}"`;
  if (all.some((info) => info.name === name)) {
    throw new VarveError("ERR_NOT_FOUND", `${start}; "${name}" is a ${kind === "log" ? "task" : "log"} queue`);
  }
  const near = nearest(
    name,
    all.filter((info) => info.kind === kind).map((info) => info.name),
  );
  throw new VarveError(
    "ERR_NOT_FOUND",
    near === undefined ? `${start}; varve queues lists them` : `${start}; did you mean "${near}"?`,
  );
}

/** The candidate that is a few typing mistakes away from the word, if there is one. */
function nearest(word: string, candidates: readonly string[]): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(1, Math.floor(word.length / 3)) + 1;
  for (const candidate of candidates) {
    if (Math.abs(candidate.length - word.length) >= bestDistance) continue;
    const distance = editDistance(word, candidate);
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** Insertions, deletions, replacements and swaps of neighbours that turn one word into the other. */
function editDistance(from: string, to: string): number {
  const rows: number[][] = [Array.from({ length: to.length + 1 }, (_, index) => index)];
  for (let i = 1; i <= from.length; i++) {
    const row = [i];
    const above = rows[i - 1] as number[];
    for (let j = 1; j <= to.length; j++) {
      const same = from[i - 1] === to[j - 1];
      let least = Math.min(
        (above[j] as number) + 1,
        (row[j - 1] as number) + 1,
        (above[j - 1] as number) + (same ? 0 : 1),
      );
      if (i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1]) {
        least = Math.min(least, (rows[i - 2]?.[j - 2] as number) + 1);
      }
      row.push(least);
    }
    rows.push(row);
  }
  return rows[from.length]?.[to.length] as number;
}
