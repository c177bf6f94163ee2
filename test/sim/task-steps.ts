/** What clients do with sources of tasks: queues, and shared groups of logs. */

import {
  type DeadLetter,
  type DeadSelection,
  type Enqueued,
  isVarveError,
  type Task,
  type TaskName,
  type TaskQueue,
} from "../../src/index.js";
import type { Clients, Held, SourceHandle } from "./clients.js";
import type { Commit, Item } from "./commit.js";
import { joinShared } from "./group-steps.js";
import { dequeueInLine, mayShareLine } from "./line.js";
import { options, type Perform } from "./log-steps.js";
import { numberOf } from "./look.js";
import { placeOfId, WALL_ROUNDING_MS } from "./model-task.js";
import { payloadOf } from "./payload.js";
import type { Step, StepKind } from "./plan.js";

export const TASK_STEPS = {
  enqueue,
  enqueueBatch: enqueue,
  dequeue,
  dequeueBatch: dequeue,
  peek,
  ack: settle,
  ackBatch: settle,
  nack: settle,
  bring: settle,
  bury: settle,
  extend: settle,
  release: settle,
  stale: settle,
  readDead,
  redrive,
  purge: purgeDead,
  transaction,
  cancel,
  reschedule,
  empty,
  pause,
  expire,
} satisfies Partial<Record<StepKind, Perform>>;

/** A queue, or a shared group, which is joined when that has not been done yet. */
async function sourceOf(clients: Clients, { queue }: Step): Promise<SourceHandle | undefined> {
  const { tasks, groups } = clients.machine.plan;
  const shared = groups.flatMap((group, index) => (group.shared ? [index] : []));
  const pick = queue % (tasks.length + shared.length);
  return pick < tasks.length
    ? await clients.queue({ queue: pick })
    : await joinShared(clients, shared[pick - tasks.length]!);
}

async function enqueue(clients: Clients, step: Step): Promise<void> {
  const { kind, pick, ms, count } = step;
  const handle = await clients.queue(step);
  if (handle === undefined) return;
  const { name, model } = handle;
  const delay = pick % 4 === 0 && ms > 0 ? ms : 0;
  const commit = clients.begin(kind, step);
  // A moment of the wall clock is a whole number of milliseconds.
  const wallMs = clients.machine.clock.wallMs();
  const byWall = pick % 8 === 0;
  const dueMs = delay > 0 ? commit.madeMs + delay - (byWall ? WALL_ROUNDING_MS : 0) : 0;
  const due = delay === 0 ? {} : byWall ? { at: new Date(wallMs + delay) } : { delay };
  const rules = clients.machine.plan.tasks[step.queue % clients.machine.plan.tasks.length]!;
  const priority = pick % rules.priorities;
  const dedupeKey = kind === "enqueue" && pick % 3 === 0 ? `d${pick % 5}` : undefined;
  const ttlMs = rules.ttlMs > 0 && pick % 2 === 0 ? rules.ttlMs : undefined;
  const ttl = ttlMs === undefined ? {} : pick % 6 === 0 ? { expiresAt: new Date(wallMs + ttlMs) } : { ttl: ttlMs };
  const attempts = pick % 7 === 0 ? { maxAttempts: 2 } : {};
  const orderKey = rules.orderKeys > 0 && pick % 4 < 3 ? `o${pick % rules.orderKeys}` : undefined;
  const traits = { dueMs, priority, dedupeKey, orderKey, ttlMs, ...attempts };
  const sent = clients.sizes(kind === "enqueue" ? 1 : count, step).map((size) => {
    const item = clients.model.send(name, commit, traits);
    return { item, payload: payloadOf(item.number, size) };
  });
  const payloads = sent.map((each) => each.payload);
  // What depends on when a call was made, or on what else has been, is left out.
  const isPlain = delay === 0 && dedupeKey === undefined && orderKey === undefined && ttlMs === undefined;
  const named = isPlain ? clients.nameOf(commit) : {};
  const terms = { priority, orderKey, ...ttl, ...attempts, ...due };
  const all = { ...options(step), ...terms, ...named };
  const make = (queue: TaskQueue) =>
    kind === "enqueue"
      ? queue.enqueue(payloads[0]!, { ...all, dedupeKey }).then((one) => [one])
      : queue.enqueueBatch(payloads, all);
  const told = (enqueued: readonly Enqueued[]) => {
    clients.note(`${name}: messages from ${sent[0]!.item.number} on got ${enqueued.map((each) => each.id)}`);
    for (const [index, { item }] of sent.entries()) {
      const { id, created } = enqueued[index]!;
      if (dedupeKey !== undefined) model.deduped(item, created, id);
      if (!created) continue;
      if (item.id !== undefined && item.id !== id) {
        clients.model.violate(`${name}: message ${item.number} is ${item.id}, and was called ${id}`);
      }
      item.id = id;
      model.placed(item, placeOfId(id));
    }
  };
  if (named.request === undefined) {
    clients.track(commit, make(handle.queue!), told);
    return;
  }
  const call = {
    commit,
    told,
    make: async (by: Clients) => {
      const again = await by.queue(step);
      return again && { answer: make(again.queue!) };
    },
  };
  clients.trackNamed(call, make(handle.queue!));
}

async function dequeue(clients: Clients, step: Step): Promise<void> {
  const { kind, pick, ms, count } = step;
  const handle = await sourceOf(clients, step);
  if (handle === undefined) return;
  const { source, model } = handle;
  const wait = pick % 3 === 0 ? ms : 0;
  const autoAck = pick % 11 === 3;
  const lease = autoAck ? undefined : pick % 13 === 5 ? "session" : pick % 5 === 0 ? 500 : undefined;
  const all = { ...options(step), wait, ...(lease === undefined ? {} : { lease }), ...(autoAck ? { autoAck } : {}) };
  const begin = (max: number) => {
    const commit = clients.begin("dequeue", step);
    model.delivering(commit, max, autoAck);
    return commit;
  };
  const track = (commit: Commit, run: Promise<Task[]>) => {
    // A dequeue that waits must not be waited for by steps that await all answers.
    if (wait > 0) clients.pending--;
    const undo = () => {
      if (wait > 0) clients.pending++;
    };
    const told = (tasks: readonly Task[]) => {
      undo();
      model.handedOut(commit, tasks.length, clients.nowMs);
      for (const task of tasks) {
        const number = () => numberOf(task.payload, () => task.headers);
        if (autoAck) model.taken(commit, number(), clients.nowMs);
        else delivered(clients, handle, commit, task, lease ?? handle.rules.leaseMs);
      }
    };
    clients.track(commit, run, told, undo);
  };
  if (kind === "dequeue") {
    track(
      begin(1),
      source.dequeue(all).then((task) => (task === undefined ? [] : [task])),
    );
  } else if (pick % 4 === 2 && mayShareLine(source)) {
    const max = 1 + (pick % 3);
    const commits = Array.from({ length: count }, () => begin(max));
    for (const [place, run] of dequeueInLine(source, count, { ...all, max }).entries()) track(commits[place]!, run);
  } else {
    track(begin(count), source.dequeueBatch({ ...all, max: count }));
  }
}

export function delivered(
  clients: Clients,
  { name, model }: SourceHandle,
  commit: Commit,
  task: Task,
  lease: number | "session",
): void {
  const { attempt, token } = task;
  const place = placeOf(token);
  const seen = { place, attempt, token, leased: true, item: numberOf(task.payload, () => task.headers) };
  clients.note(`${name}: delivered ${place} (message ${seen.item}), attempt ${attempt}`);
  model.delivered(commit, seen, lease, clients.nowMs);
  clients.take({ source: name, place, token });
}

async function peek(clients: Clients, step: Step): Promise<void> {
  const handle = await sourceOf(clients, step);
  if (handle === undefined) return;
  const asked = clients.model.now;
  clients.watch("peek", handle.source.peek(), (task) => {
    if (task !== undefined)
      handle.model.peeked(
        numberOf(task.payload, () => task.headers),
        task.attempt,
        asked,
      );
  });
}

async function settle(clients: Clients, step: Step): Promise<void> {
  const { kind, pick, count, ms } = step;
  const pool = kind === "stale" ? clients.stale : clients.held;
  if (pool.length === 0) return;
  const first = pool[pick % pool.length]!;
  const handle = clients.sourceOf(first) ?? (await openSourceOf(clients, first));
  if (handle === undefined) return;
  const { source, model, name, rules } = handle;
  const several = kind === "ackBatch" || (kind === "release" && pick % 3 === 0);
  const batch = several ? pool.filter((held) => held.source === first.source).slice(0, count) : [first];
  if (kind !== "extend" && kind !== "stale") {
    clients.held = clients.held.filter((held) => !batch.includes(held));
    clients.discard(batch.slice(0, 2));
  }
  const label = ["ackBatch", "stale", "bring"].includes(kind) ? "ack" : kind;
  const commit = clients.begin(label, step);
  const expected = batch.map(({ place, token }) => model.settling(place, token, commit, label === "ack"));
  clients.note(`${label} ${commit.number}: ${name} ${batch.map((held, at) => `${held.place} (${expected[at]})`)}`);
  const all = options(step);
  const { token } = first;
  const item = kind === "bring" ? model.itemAt(first.place) : undefined;
  if (item !== undefined) clients.model.results.bringing(item, commit, commit.number, model.resultTtlMs);
  const tokens = batch.map((held) => held.token);
  const delay = pick % 2 === 0 ? { delay: ms } : {};
  const run: Promise<unknown> =
    kind === "ackBatch"
      ? source.ackBatch(tokens, all)
      : kind === "release"
        ? source.release(several ? tokens : token, { ...all, to: pick % 2 === 0 ? "head" : "tail" })
        : kind === "nack"
          ? source.nack(token, { ...all, error: "simulated", ...delay })
          : kind === "bury"
            ? source.nack(token, { ...all, error: "simulated", dead: true })
            : kind === "bring" && handle.queue !== undefined
              ? handle.queue.ack(token, { ...all, result: commit.number })
              : kind === "extend"
                ? source.extend(token, rules.leaseMs, all)
                : source.ack(token, all);
  clients.track(
    commit,
    run,
    () => {
      for (const [at, { place }] of batch.entries()) model.settled(place, commit, expected[at]!, false);
      if (kind === "extend") model.extended(first.place, commit, rules.leaseMs);
      if (kind === "nack" && pick % 2 === 0) model.nacked(first.place, commit, ms);
    },
    (error) => {
      if (!isVarveError(error, "ERR_STALE_LEASE") || batch.length > 1) return;
      model.settled(first.place, commit, expected[0]!, true);
    },
  );
}

/** The source of a task from an earlier life. */
async function openSourceOf(clients: Clients, { source }: Held): Promise<SourceHandle | undefined> {
  const queue = /^task\/t(\d+)$/.exec(source);
  if (queue !== null) return await clients.queue({ queue: Number(queue[1]) });
  const index = Number(/\/g(\d+)$/.exec(source)?.[1]);
  return clients.model.sources.has(source) ? await joinShared(clients, index) : undefined;
}

async function cancel(clients: Clients, step: Step): Promise<void> {
  const handle = await clients.queue(step);
  const item = handle?.model.named.at(-1 - (step.pick % 8));
  if (handle === undefined || item === undefined) return;
  const commit = clients.begin("cancel", step);
  handle.model.cancelling(item, commit);
  const name = nameOf(handle, item);
  clients.note(`cancel ${commit.number}: ${handle.name} ${JSON.stringify(name)} (message ${item.number})`);
  clients.track(commit, handle.queue!.cancel(name, options(step)), (done) => {
    handle.model.cancelled(item, commit, done);
  });
}

async function reschedule(clients: Clients, step: Step): Promise<void> {
  const handle = await clients.queue(step);
  const item = handle?.model.named.at(-1 - (step.pick % 8));
  if (handle === undefined || item === undefined) return;
  const commit = clients.begin("reschedule", step);
  handle.model.rescheduling(item, commit);
  const byWall = step.pick % 3 === 0;
  const due = byWall ? { at: new Date(clients.machine.clock.wallMs() + step.ms) } : { delay: step.ms };
  clients.track(commit, handle.queue!.reschedule(nameOf(handle, item), due, options(step)), (done) => {
    // A second call may have changed it again by now.
    const dueMs = commit.madeMs + step.ms - (byWall ? WALL_ROUNDING_MS : 0);
    if (done && clients.pending === 0) handle.model.rescheduled(item, dueMs);
  });
}

/** Its dedupe key, where that stands for it beyond doubt. */
function nameOf({ model }: SourceHandle, item: Item): TaskName {
  return model.standsForKey(item) ? { dedupeKey: item.dedupeKey! } : item.id!;
}

async function empty(clients: Clients, step: Step): Promise<void> {
  const handle = await clients.queue(step);
  if (handle === undefined) return;
  const commit = clients.begin("purge", step);
  handle.model.clearing(commit);
  clients.track(commit, handle.queue!.purge(options(step)));
}

/** Mostly it goes on again soon. */
async function pause(clients: Clients, step: Step): Promise<void> {
  const handle = await clients.queue(step);
  if (handle === undefined) return;
  const paused = step.pick % 3 === 0;
  const commit = clients.begin(paused ? "pause" : "resume", step);
  handle.model.pausing(commit, paused);
  clients.track(commit, paused ? handle.queue!.pause(options(step)) : handle.queue!.resume(options(step)));
}

async function expire(clients: Clients, step: Step): Promise<void> {
  const handle = await clients.queue(step);
  if (handle !== undefined) clients.watch("expire", handle.queue!.expire(), () => {});
}

async function readDead(clients: Clients, step: Step): Promise<void> {
  const handle = await sourceOf(clients, step);
  if (handle === undefined) return;
  clients.watch("dead.read", handle.source.dead.read(), (letters) => {
    for (const { id, raw, headers, attempts } of letters) {
      const item = clients.model.items.get(numberOf(raw, () => headers) ?? 0);
      if (item === undefined) clients.model.violate(`${handle.name}: dead letter ${id} is damaged`);
      else if (attempts === 0) clients.model.flows.died(item, `${handle.name}: dead letter ${id}`);
    }
  });
}

async function redrive(clients: Clients, step: Step): Promise<void> {
  const handle = await sourceOf(clients, step);
  if (handle === undefined) return;
  const letters = await clients.await(handle.source.dead.read({ limit: 5 }));
  if (letters === undefined || letters.length === 0) return;
  const some = step.pick % 2 === 0 ? letters.slice(0, 1 + (step.pick % letters.length)) : undefined;
  const commit = clients.begin("redrive", {});
  handle.model.redriving(commit);
  clients.track(commit, handle.source.dead.redrive(selection(some, step)));
}

async function purgeDead(clients: Clients, step: Step): Promise<void> {
  const handle = await sourceOf(clients, step);
  if (handle === undefined) return;
  const letters = await clients.await(handle.source.dead.read({ limit: 5 }));
  if (letters === undefined || letters.length === 0) return;
  const some = step.pick % 2 === 0 ? letters.slice(0, 1 + (step.pick % letters.length)) : undefined;
  const commit = clients.begin("purge", {});
  handle.model.purging(
    commit,
    some?.map(({ raw, headers }) => numberOf(raw, () => headers) ?? -1),
  );
  clients.track(commit, handle.source.dead.purge(selection(some, step)));
}

/** Some letters by their ids; all of them, or those that have been dead for some time. */
function selection(some: readonly DeadLetter[] | undefined, { pick, ms }: Step): DeadSelection | undefined {
  if (some !== undefined) return { ids: some.map(({ id }) => id) };
  return pick % 3 === 0 ? { olderThan: ms } : undefined;
}

async function transaction(clients: Clients, step: Step): Promise<void> {
  const { pick } = step;
  const log = await clients.log(step);
  const queue = await clients.queue(step);
  const held = pick % 3 === 0 ? clients.held[pick % Math.max(1, clients.held.length)] : undefined;
  const source = held && clients.sourceOf(held);
  if (log === undefined || queue === undefined || clients.halted) return;
  const commit = clients.begin("transaction", step);
  const [first, second] = clients.sizes(2, { ...step, size: Math.min(step.size, 30_000) }) as [number, number];
  const record = clients.model.send(log.name, commit, { bytes: first });
  const task = clients.model.send(queue.name, commit);
  if (held !== undefined) {
    clients.held = clients.held.filter((each) => each !== held);
    source?.model.settling(held.place, held.token, commit, true);
  }
  const run = clients.machine.mq.transaction((tx) => {
    tx.append(log.log, payloadOf(record.number, first));
    tx.enqueue(queue.queue!, payloadOf(task.number, second));
    if (held !== undefined && source !== undefined) tx.ack(source.source, held.token);
  }, options(step));
  clients.track(commit, run);
}

/** Where a task stands: its id is that from before it was redriven, if it was. */
function placeOf(token: string): string {
  const [, , lane, offset] = token.split(".");
  return `${Number.parseInt(lane!, 36)}:${Number.parseInt(offset!, 36)}`;
}
