/** Calls of `dequeue` that a server would make together. */

import type { DequeueOptions, Task } from "../../src/api/contract.js";
import { TAKE_EACH, TAKES_FROM, type TakesEach } from "../../src/api/take-each.js";

type Source = Partial<TakesEach> & {
  dequeueBatch(options: DequeueOptions & { readonly max: number }): Promise<Task[]>;
};

export function mayShareLine(source: Source): boolean {
  return source[TAKES_FROM]?.() !== undefined;
}

/** So many calls, one behind the other. */
export function dequeueInLine(
  source: Source,
  count: number,
  options: DequeueOptions & { readonly max: number },
): Promise<Task[]>[] {
  const { max, durability, autoAck = false, lease } = options;
  const settle: { resolve: (tasks: Task[] | Promise<Task[]>) => void; reject: (error: unknown) => void }[] = [];
  const runs = Array.from({ length: count }, () => {
    return new Promise<Task[]>((resolve, reject) => settle.push({ resolve, reject }));
  });
  source[TAKE_EACH]?.({
    count,
    weed: (_from, to) => to,
    durability,
    autoAck,
    leaseMs: lease === "session" ? 0 : (lease as number | undefined),
    maxOf: () => max,
    waits: () => (options.wait as number | undefined) !== undefined && (options.wait as number) > 0,
    told: (place, given, from, to) => {
      const tasks = given.slice(from, to).map((task) => {
        const { id, token, attempt, timestamp, priority, orderKey, expiresAt, key, headers } = task;
        const payload = Buffer.from(task.memory.subarray(task.payloadStart, task.payloadEnd));
        return { id, token, attempt, timestamp, priority, orderKey, expiresAt, key, headers, payload };
      });
      settle[place]!.resolve(tasks);
    },
    failed: (place, error) => settle[place]!.reject(error),
    alone: (place) => settle[place]!.resolve(source.dequeueBatch(options)),
  });
  return runs;
}
