/** Clients of all kinds. Each makes one call after another, and notes down what it was told. */

import { setTimeout as sleep } from "node:timers/promises";
import { type GroupMember, isVarveError, type LogRecord, type Task, type TaskQueue } from "../../src/index.js";
import { payloadOf } from "../crash/journal.js";
import type { LogEntry, Outcome, Part } from "../history/history.js";
import { type Asked, nameOf, nowMs, type Recorder } from "../history/recorder.js";
import type { Seeded } from "../support/seeded.js";
import { GROUP, LEASE_MS, LOG, type Queues } from "./shape.js";

export interface Actor {
  readonly recorder: Recorder;
  readonly random: Seeded;
  readonly queues: Queues;
  /** Aborted when it is to end. */
  readonly signal: AbortSignal;
}

/** Waits after a call that failed, so that those who cannot reach anybody do not spin. */
const TROUBLE_MS = 20;

export type Role = (actor: Actor) => Promise<void>;

/** Repeats a step until the actor is to end. The step returns the code of a failure. */
async function repeat(
  actor: Actor,
  step: () => Promise<string | undefined>,
  pauseMs: readonly [number, number],
): Promise<void> {
  while (!actor.signal.aborted) {
    const code = await step();
    await sleep(code === undefined || code === "ERR_STALE_LEASE" ? actor.random.between(...pauseMs) : TROUBLE_MS);
  }
}

// ---------------------------------------------------------------------------------------------------------- producers

export const producer: Role = async (actor) => {
  const { recorder, random, queues } = actor;
  const { log, mq, tasks } = queues;
  let count = 0;
  const names = (kind: string, length: number): string[] =>
    Array.from({ length }, () => `${recorder.client}-${kind}${count++}`);
  const pickQueue = (): TaskQueue => random.pick(tasks);

  const append = async (): Promise<string | undefined> => {
    const values = names("r", random.chance(0.6) ? 1 : random.between(2, 8));
    const told = await recorder.call(
      { op: "append", log: LOG, values },
      async () =>
        values.length === 1 && random.chance(0.8)
          ? [await log.append(payloadOf(values[0]!))]
          : await log.appendBatch(values.map(payloadOf)),
      (offsets) => ({ offsets }),
    );
    return told.code;
  };

  const enqueue = async (): Promise<string | undefined> => {
    const queue = pickQueue();
    const values = names("t", random.chance(0.7) ? 1 : random.between(2, 5));
    const delayMs = random.chance(0.2) ? random.between(5, 300) : undefined;
    const options = delayMs === undefined ? {} : { delay: delayMs };
    const told = await recorder.call(
      { op: "enqueue", queue: queue.name, values, ...(delayMs === undefined ? {} : { delayMs }) },
      async () =>
        values.length === 1
          ? [await queue.enqueue(payloadOf(values[0]!), options)]
          : await queue.enqueueBatch(values.map(payloadOf), options),
      (all) => ({ ids: all.map(({ id }) => id), created: all.map(({ created }) => created) }),
    );
    return told.code;
  };

  /** As an application does that wants a thing done once: it tries again, under the same key, until it is told. */
  const insist = async (): Promise<string | undefined> => {
    const queue = pickQueue();
    const [key] = names("k", 1) as [string];
    for (;;) {
      const [value] = names("t", 1) as [string];
      const told = await recorder.call(
        { op: "enqueue", queue: queue.name, values: [value], dedupe: [key] },
        () => queue.enqueue(payloadOf(value), { dedupeKey: key }),
        ({ id, created }) => ({ ids: [id], created: [created] }),
      );
      if (told.code === undefined || actor.signal.aborted) return told.code;
      await sleep(TROUBLE_MS);
    }
  };

  const transact = async (): Promise<string | undefined> => {
    const parts: Part[] = [{ op: "append", log: LOG, values: names("r", random.between(1, 2)) }];
    for (const queue of tasks) {
      if (random.chance(0.6)) parts.push({ op: "enqueue", queue: queue.name, values: names("t", 1) });
    }
    const told = await recorder.call({ op: "transaction", parts }, () =>
      mq.transaction((tx) => {
        for (const part of parts) {
          if (part.op === "append") for (const value of part.values) tx.append(log, payloadOf(value));
          if (part.op !== "enqueue") continue;
          const queue = tasks.find(({ name }) => name === part.queue)!;
          for (const value of part.values) tx.enqueue(queue, payloadOf(value));
        }
      }),
    );
    return told.code;
  };

  await repeat(actor, () => {
    const dice = random.below(100);
    if (dice < 40) return append();
    if (dice < 65) return enqueue();
    return dice < 75 ? insist() : transact();
  }, [0, 12]);
};

// ---------------------------------------------------------------------------------------------------------- consumers

export const consumer: Role = async (actor) => {
  const { recorder, random, queues } = actor;
  const { mq, log, tasks } = queues;
  let count = 0;

  const ack = async (queue: TaskQueue, taken: readonly Task[]): Promise<string | undefined> => {
    const told = await recorder.call({ op: "ack", queue: queue.name, tokens: taken.map(({ token }) => token) }, () =>
      taken.length === 1 ? queue.ack(taken[0]!) : queue.ackBatch(taken),
    );
    return told.code;
  };

  const settleInTransaction = async (queue: TaskQueue, taken: readonly Task[]): Promise<string | undefined> => {
    const parts: Part[] = [
      { op: "ack", queue: queue.name, tokens: taken.map(({ token }) => token) },
      { op: "append", log: LOG, values: [`${recorder.client}-d${count++}`] },
    ];
    const told = await recorder.call({ op: "transaction", parts }, () =>
      mq.transaction((tx) => {
        for (const task of taken) tx.ack(queue, task);
        for (const value of (parts[1] as Extract<Part, { op: "append" }>).values) tx.append(log, payloadOf(value));
      }),
    );
    return told.code;
  };

  const giveBack = async (queue: TaskQueue, { token }: Task): Promise<string | undefined> => {
    if (random.chance(0.3)) {
      const told = await recorder.call({ op: "release", queue: queue.name, tokens: [token] }, () =>
        queue.release(token),
      );
      return told.code;
    }
    const how = random.chance(0.15) ? { bury: true } : { delayMs: random.chance(0.5) ? 0 : random.between(5, 150) };
    const told = await recorder.call(
      { op: "nack", queue: queue.name, token, ...how },
      () => queue.nack(token, how.bury === true ? { dead: true } : { delay: how.delayMs ?? 0 }),
      ({ dead }) => ({ dead }),
    );
    return told.code;
  };

  await repeat(actor, async () => {
    const queue = random.pick(tasks);
    const max = random.between(1, 6);
    const told = await recorder.call(
      { op: "dequeue", queue: queue.name, max },
      () => queue.dequeueBatch({ max, wait: random.between(0, 100), signal: actor.signal }),
      (taken) => ({
        tasks: taken.map(({ id, payload, attempt, token }) => [id, nameOf(payload), attempt, token]),
      }),
    );
    if (told.value === undefined) return told.code;
    const taken = told.value;
    if (taken.length === 0) return undefined;
    // Some are slow, so that their lease is over before they come to say that they are done.
    if (random.chance(0.08)) await sleep(random.between(LEASE_MS / 2, LEASE_MS * 1.5));
    const dice = random.below(100);
    if (dice < 55) return await ack(queue, taken);
    if (dice < 75) return await settleInTransaction(queue, taken);
    if (dice < 80) {
      const { token } = taken[0]!;
      const leaseMs = random.between(LEASE_MS / 2, LEASE_MS * 2);
      await recorder.call({ op: "extend", queue: queue.name, token, leaseMs }, () => queue.extend(token, leaseMs));
      return await ack(queue, taken);
    }
    // Forgotten: the lease runs out.
    if (dice < 83) return undefined;
    for (const task of taken) {
      const code = await giveBack(queue, task);
      if (code !== undefined && code !== "ERR_STALE_LEASE") return code;
    }
    return undefined;
  }, [0, 10]);
};

/**
 * A worker of the library's own. When it asked for what its handler is given is not seen: at the earliest when it began. How
 * long it holds a task is its own affair, so nothing is said of a lease. What it took and nobody was given is of unknown outcome.
 */
export const worker: Role = async ({ recorder, random, queues, signal }) => {
  const queue = random.pick(queues.tasks);
  const settles = new Map<string, number>();
  /** Of those whose lease was lost before they had anything to say. */
  const lost = new Set<string>();
  /** Of those whose outcome could not be recorded at once: what became of that is not known, and it is tried again. */
  const doubtful = new Set<string>();
  const asked = { op: "dequeue", queue: queue.name, max: 1, leaseMs: 0 } as const;
  const began = nowMs();
  const unseen = recorder.begin(asked);
  const settled = (task: Task | undefined, outcome: Outcome, told: object = {}): void => {
    if (task === undefined) return;
    const call = settles.get(task.token);
    if (call === undefined) lost.add(task.token);
    else recorder.end(call, outcome === "refused" && doubtful.has(task.token) ? "unknown" : outcome, told);
  };
  const working = queue.work(
    async ({ id, payload, attempt, token }) => {
      recorder.whole(asked, began, { tasks: [[id, nameOf(payload), attempt, token]] });
      await sleep(random.chance(0.1) ? random.between(LEASE_MS, LEASE_MS * 1.5) : random.between(0, 30));
      const fails = random.chance(0.15);
      if (!lost.delete(token)) {
        const outcome: Asked = fails
          ? { op: "nack", queue: queue.name, token, delayMs: 0 }
          : { op: "ack", queue: queue.name, tokens: [token] };
        settles.set(token, recorder.begin(outcome));
      }
      if (fails) throw new Error("on purpose");
    },
    { concurrency: random.between(1, 4) },
  );
  working
    .on("completed", (task) => settled(task, "ok"))
    .on("failed", (task, error) => {
      if (isVarveError(error)) settled(task, "refused", { code: error.code });
      else settled(task, "ok", { dead: false });
    })
    .on("dead", (task) => settled(task, "ok", { dead: true }))
    .on("error", (_error, task) => {
      if (task !== undefined) doubtful.add(task.token);
    });
  if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
  await working.close();
  recorder.end(unseen, "unknown");
};

// ------------------------------------------------------------------------------------------------------------ readers

export const tailer: Role = async (actor) => {
  const { recorder, random, queues, signal } = actor;
  let reader = 0;
  let seen = 0;
  await repeat(actor, async () => {
    const name = `${reader++}`;
    let from: "start" | "end" | number | undefined = random.pick(["start", "end", seen]);
    // Most give up after a while and begin anew.
    const enough = AbortSignal.any([signal, AbortSignal.timeout(random.between(50, 1500))]);
    const records = queues.log.batches({ from, follow: true, signal: enough })[Symbol.asyncIterator]();
    for (;;) {
      const told = await recorder.call(
        { op: "tail", log: LOG, reader: name, ...(from === undefined ? {} : { from }) },
        () => records.next(),
        ({ value }) => ({ records: entriesOf((value as LogRecord[] | undefined) ?? []) }),
      );
      if (told.value === undefined) return told.code;
      if (told.value.done === true) return undefined;
      from = undefined;
      seen = told.value.value.at(-1)?.offset ?? seen;
    }
  }, [0, 50]);
};

export const groupReader: Role = async (actor) => {
  const { recorder, random, queues, signal } = actor;
  let count = 0;
  let member: { readonly name: string; readonly handle: GroupMember } | undefined;

  const join = async (): Promise<string | undefined> => {
    const name = `${recorder.client}-m${count++}`;
    const told = await recorder.call({ op: "join", log: LOG, group: GROUP, member: name, from: "start" }, () =>
      queues.log.group(GROUP, { sessionTimeout: "500ms" }),
    );
    if (told.value !== undefined) member = { name, handle: told.value };
    return told.code;
  };

  await repeat(actor, async () => {
    if (member === undefined) return await join();
    const { name, handle } = member;
    const deed = { log: LOG, group: GROUP, member: name };
    const told = await recorder.call(
      { op: "fetch", ...deed },
      () => handle.read({ max: random.between(1, 20), wait: random.between(0, 100), signal }),
      (records) => ({ records: entriesOf(records) }),
    );
    let { code } = told;
    const last = told.value?.[random.below(told.value.length)];
    if (last !== undefined && random.chance(0.7)) {
      const committed = await recorder.call({ op: "commit", ...deed, upTo: last.offset }, () => handle.commit(last));
      code = committed.code;
    }
    if (random.chance(0.2)) {
      await recorder.call(
        { op: "position", log: LOG, group: GROUP },
        () => handle.position(),
        ({ committed, lag }) => ({
          committed,
          lag,
        }),
      );
    }
    if (code === "ERR_FENCED" || code === "ERR_CLOSED" || code === "ERR_NOT_FOUND" || random.chance(0.03)) {
      member = undefined;
      await leave(handle);
    }
    return code === "ERR_OFFSET_OUT_OF_RANGE" ? undefined : code;
  }, [0, 20]);
  if (member !== undefined) await leave(member.handle);
};

/** Looks at whatever can be looked at, and brings dead letters back. */
export const looker: Role = async (actor) => {
  const { recorder, random, queues } = actor;
  const { log, tasks } = queues;
  let next = 0;
  await repeat(actor, async () => {
    const dice = random.below(100);
    if (dice < 30) {
      const told = await recorder.call(
        { op: "stats", log: LOG },
        () => log.stats(),
        ({ head, next, count, bytes }) => ({ stats: { head, next, count, bytes } }),
      );
      next = told.value?.next ?? next;
      return told.code;
    }
    if (dice < 60 && next > 0) {
      const offset = random.below(next);
      const told = await recorder.call(
        { op: "read", log: LOG, offset },
        () => log.read(offset),
        (record) => ({ value: record === undefined ? null : nameOf(record.payload) }),
      );
      return told.code;
    }
    const queue = random.pick(tasks);
    if (dice < 85) {
      const told = await recorder.call(
        { op: "stats", queue: queue.name },
        () => queue.stats(),
        (stats) => ({
          stats: Object.fromEntries(Object.entries(stats).filter(([, value]) => typeof value === "number")),
        }),
      );
      return told.code;
    }
    const told = await recorder.call(
      { op: "letters", queue: queue.name },
      () => queue.dead.read({ limit: 100_000 }),
      (letters) => ({ letters: letters.map(({ id, raw, attempts }) => [id, nameOf(raw), attempts]) }),
    );
    const dead = told.value ?? [];
    if (dead.length > 0 && random.chance(0.3)) {
      const ids = [random.pick(dead).id];
      await recorder.call({ op: "redrive", queue: queue.name, ids }, () => queue.dead.redrive({ ids }));
    }
    return told.code;
  }, [5, 60]);
};

/** Removes the oldest records now and then. */
export const trimmer: Role = async (actor) => {
  const { recorder, random, queues } = actor;
  await repeat(actor, async () => {
    const stats = await recorder.call({ op: "stats", log: LOG }, () => queues.log.stats());
    if (stats.value === undefined) return stats.code;
    const offset = Math.max(0, stats.value.next - random.between(50, 300));
    return (await recorder.call({ op: "trim", log: LOG, offset }, () => queues.log.trim(offset))).code;
  }, [200, 600]);
};

/** A group that cannot be reached is left all the same. */
async function leave(member: GroupMember): Promise<void> {
  try {
    await member.close();
  } catch (error) {
    if (!isVarveError(error)) throw error;
  }
}

function entriesOf(records: readonly LogRecord[]): LogEntry[] {
  return records.map(({ offset, payload }) => [offset, nameOf(payload)]);
}
