/**
 * Moves the queues of a Kestrel, Siberite or Darner server here, over their own protocol.
 *
 * An item is read with `/open`, stored here, durably, and only then confirmed there (by the `/close/open` that reads the
 * next). So a stop or a crash on either side loses nothing, and the import goes on where it was when it is run again; the
 * one item per queue that was stored but not yet confirmed may then come twice. What waits in a queue is moved; positions
 * of durable cursors are not.
 *
 * In Kestrel, and there alone, `queue+child` is a queue of its own, which gets a copy of what is put into `queue`. Names here have
 * no "+": it becomes `queue:child`.
 */

import type { MessageQueue } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import { KestrelClient } from "./client.js";

export interface ImportOptions {
  readonly host: string;
  readonly port: number;
  /** Only these queues. @defaultValue all that the server has */
  readonly queues?: readonly string[] | undefined;
  /** Queues that are moved at the same time, each over a connection of its own. @defaultValue 8 */
  readonly parallel?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Told after every some hundred items. */
  readonly onProgress?: ((progress: ImportProgress) => void) | undefined;
}

export interface ImportProgress {
  readonly queue: string;
  readonly moved: number;
  /** Items that the server had when the import began. */
  readonly expected: number;
}

export interface ImportedQueue {
  readonly queue: string;
  /** The name of the task queue here. */
  readonly into: string;
  readonly moved: number;
  readonly bytes: number;
}

const PROGRESS_ITEMS = 256;

/**
 * Resolves to what was moved; ends early, with all in order, when the signal is aborted.
 * @throws VarveError `ERR_ARGUMENT` (two queues would go by one name here), `ERR_QUEUE_NAME`, `ERR_IO`
 */
export async function importKestrel(mq: MessageQueue, options: ImportOptions): Promise<ImportedQueue[]> {
  const { host, port, signal } = options;
  const client = await KestrelClient.connect(host, port, signal);
  const expected = await waitingItems(client).finally(() => client.close());
  const names = [...(options.queues ?? expected.keys())];
  checkNames(names);
  const imported: ImportedQueue[] = [];
  const next = names[Symbol.iterator]();
  const lanes = Array.from({ length: Math.min(options.parallel ?? 8, names.length) }, async () => {
    for (const queue of next) {
      if (signal?.aborted === true) return;
      imported.push(await importQueue(mq, queue, expected.get(queue) ?? 0, options));
    }
  });
  const results = await Promise.allSettled(lanes);
  for (const result of results) if (result.status === "rejected") throw result.reason;
  return imported.sort((a, b) => (a.queue < b.queue ? -1 : 1));
}

async function importQueue(
  mq: MessageQueue,
  queue: string,
  expected: number,
  { host, port, signal, onProgress }: ImportOptions,
): Promise<ImportedQueue> {
  const into = nameHere(queue);
  const tasks = await mq.openTask(into);
  const client = await KestrelClient.connect(host, port, signal);
  let moved = 0;
  let bytes = 0;
  let waiting = expected;
  try {
    for (let what = "open"; ; ) {
      const payload = await client.get(`${queue}/${what}`);
      if (payload === undefined) {
        if (what === "close") break;
        // Siberite says the same of an item of no bytes, which it removes: there may be more behind it.
        const left = (await waitingItems(client)).get(queue) ?? 0;
        if (left === 0 || left >= waiting) break;
        waiting = left;
        what = "open";
        continue;
      }
      await tasks.enqueue(payload, { durability: "sync" });
      moved++;
      bytes += payload.length;
      if (moved % PROGRESS_ITEMS === 0) onProgress?.({ queue, moved, expected });
      what = signal?.aborted === true ? "close" : "close/open";
    }
    onProgress?.({ queue, moved, expected });
    return { queue, into, moved, bytes };
  } finally {
    client.close();
  }
}

function nameHere(queue: string): string {
  return queue.replaceAll("+", ":");
}

function checkNames(names: readonly string[]): void {
  const taken = new Map<string, string>();
  for (const name of names) {
    const other = taken.get(nameHere(name));
    if (other !== undefined && other !== name) {
      throw new VarveError(
        "ERR_ARGUMENT",
        `the queues ${other} and ${name} would both be ${nameHere(name)} here; move them one after the other (--queue)`,
      );
    }
    taken.set(nameHere(name), name);
  }
}

/** Queues and how many items wait in each, from `stats`. */
async function waitingItems(client: KestrelClient): Promise<Map<string, number>> {
  const stats = await client.stats();
  const items = new Map<string, number>();
  for (const name of stats.keys()) {
    // Every queue has this one; names that end in _items may be Kestrel's other counters, and those with a dot are cursors.
    const queue = /^queue_([^.]+)_open_transactions$/.exec(name)?.[1];
    if (queue !== undefined) items.set(queue, Number(stats.get(`queue_${queue}_items`) ?? 0));
  }
  return items;
}
