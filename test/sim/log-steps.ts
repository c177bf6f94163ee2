/** What clients do with logs. */

import type { LogQueue } from "../../src/index.js";
import type { Clients, LogHandle } from "./clients.js";
import { payloadOf } from "./payload.js";
import type { Step, StepKind } from "./plan.js";

/** Keys of a log, so few that most records supersede another. */
const KEYS = 5;

export type Perform = (clients: Clients, step: Step) => Promise<void>;

export const LOG_STEPS = {
  append,
  appendBatch: append,
  delete: remove,
  read,
  scan,
  tail,
  trim,
  clear,
  compact,
} satisfies Partial<Record<StepKind, Perform>>;

export function options({ mode }: Step): { durability?: "sync" | "async" } {
  return mode === undefined ? {} : { durability: mode };
}

async function append(clients: Clients, step: Step): Promise<void> {
  const { kind, count, pick } = step;
  const handle = await clients.log(step);
  if (handle === undefined) return;
  const { log, name, model, rules } = handle;
  const commit = clients.begin(kind, step);
  const sent = clients.sizes(kind === "append" ? 1 : count, step).map((bytes, index) => {
    const key = pick % 3 === 0 ? undefined : `k${(pick + index) % KEYS}`;
    const item = clients.model.send(name, commit, { bytes, key });
    return { item, message: { payload: payloadOf(item.number, bytes), key, headers: { pick: `${pick}` } } };
  });
  const messages = sent.map(({ message }) => message);
  // Of records with the same key, the last one stays: which that is, calls that are made again would decide anew.
  const named = rules.compaction === undefined ? clients.nameOf(commit) : {};
  const all = { ...options(step), ...named };
  const make = (to: LogQueue) =>
    kind === "append" ? to.append(messages[0]!, all).then((at) => [at]) : to.appendBatch(messages, all);
  const told = (offsets: number[]) => {
    clients.note(`${name}: messages from ${sent[0]!.item.number} on got ${offsets}`);
    for (const [index, { item }] of sent.entries()) {
      const offset = offsets[index]!;
      if (item.offset !== undefined && item.offset !== offset) {
        clients.model.violate(`${name}: message ${item.number} stands at ${item.offset}, and was given ${offset}`);
      }
      model.placed(item, offset);
    }
  };
  if (named.request === undefined) {
    clients.track(commit, make(log), told);
    return;
  }
  const call = {
    commit,
    told,
    make: async (by: Clients) => {
      const again = await by.log(step);
      return again && { answer: make(again.log) };
    },
  };
  clients.trackNamed(call, make(log));
}

async function remove(clients: Clients, step: Step): Promise<void> {
  const handle = await clients.log(step);
  if (handle === undefined) return;
  const commit = clients.begin("delete", step);
  const key = `k${step.pick % KEYS}`;
  const item = clients.model.send(handle.name, commit, { key, tombstone: true });
  // It has no payload to put the number in.
  const run = handle.log.delete(key, { ...options(step), headers: { item: `${item.number}` } });
  clients.track(commit, run, (offset) => handle.model.placed(item, offset));
}

async function read(clients: Clients, step: Step): Promise<void> {
  const handle = await clients.log(step);
  if (handle === undefined) return;
  const { head, next } = (await clients.await(handle.log.stats()))!;
  if (next === head) return;
  const offset = head + (step.pick % (next - head));
  clients.watch("read", handle.log.read(offset), (record) => {
    if (record !== undefined) clients.read(handle, record);
  });
}

async function scan(clients: Clients, step: Step): Promise<void> {
  const handle = await clients.log(step);
  if (handle === undefined) return;
  if (step.pick % 10 === 1) {
    await scanByTime(clients, handle, step);
    return;
  }
  const { log, model } = handle;
  const { head, next, count } = (await clients.await(log.stats()))!;
  model.counted(count);
  const from = step.pick % 2 === 0 ? "start" : head + (step.pick % Math.max(1, next - head));
  const all = async () => {
    const records = [];
    for await (const batch of log.batches({ from, maxBytes: 1 + step.size * 10 })) records.push(...batch);
    return records;
  };
  clients.watch("scan", all(), (records) => model.scanned(records.map((each) => clients.read(handle, each))));
}

/** From the time of some record on: that one and all behind it, and none that is older. */
async function scanByTime(clients: Clients, { log, name, model }: LogHandle, { pick }: Step): Promise<void> {
  const { head, next } = (await clients.await(log.stats()))!;
  if (next === head) return;
  const chosen = head + (pick % (next - head));
  const all = async () => {
    const since = (await log.read(chosen))?.timestamp;
    if (since === undefined) return undefined;
    const records = [];
    for await (const batch of log.batches({ from: new Date(since) })) records.push(...batch);
    return { since, records, headAfter: (await log.stats()).head };
  };
  clients.watch("scan by time", all(), (seen) => {
    if (seen === undefined) return;
    const { since, records, headAfter } = seen;
    model.scanned(records.map((each) => clients.read({ model }, each)));
    const early = records.find(({ timestamp }) => timestamp < since);
    if (early !== undefined)
      clients.model.violate(`${name}: ${early.offset} is older than ${since}, and was read from then on`);
    const first = records[0]?.offset ?? next;
    const passed = headAfter <= chosen && first > chosen && !model.mayPass(chosen, first);
    if (passed)
      clients.model.violate(`${name}: reading from ${since} on began at ${first}, and ${chosen} is not older`);
  });
}

async function tail(clients: Clients, step: Step): Promise<void> {
  const handle = await clients.log(step);
  if (handle === undefined) return;
  const stop = new AbortController();
  clients.tails.push(stop);
  if (clients.tails.length > 3) clients.tails.shift()!.abort();
  const from = step.pick % 2 === 0 ? "start" : "end";
  const follow = async () => {
    for await (const record of handle.log.tail({ from, signal: stop.signal })) {
      if (clients.halted) return;
      clients.read(handle, record);
    }
  };
  follow().catch((error: unknown) => {
    if (!clients.halted) clients.expectError("tail", error);
  });
}

async function trim(clients: Clients, step: Step): Promise<void> {
  const handle = await clients.log(step);
  if (handle === undefined) return;
  const { head, next } = (await clients.await(handle.log.stats()))!;
  const { pick } = step;
  const offset = pick % 4 === 0 ? next : Math.min(next, head + (pick % (1 + Math.min(200, next - head))));
  const commit = clients.begin("trim", step);
  handle.model.trimming(offset, offset, commit);
  clients.track(commit, handle.log.trim(offset, options(step)));
}

/** Everything goes that there is when it takes its turn, which is what there is now at least. */
async function clear(clients: Clients, step: Step): Promise<void> {
  const handle = await clients.log(step);
  if (handle === undefined) return;
  const { next } = (await clients.await(handle.log.stats()))!;
  const commit = clients.begin("purge", step);
  handle.model.trimming(next, Number.POSITIVE_INFINITY, commit);
  clients.track(commit, handle.log.purge(options(step)));
}

async function compact(clients: Clients, step: Step): Promise<void> {
  const handle = await clients.log(step);
  // Of others, how much retention has left would not be known any more.
  if (handle?.rules.compaction === undefined) return;
  clients.watch("compact", handle.log.compact(), ({ recordsRemoved }) => {
    clients.note(`${handle.name}: compacted, ${recordsRemoved} records less`);
  });
}
