/** What must be possible on a machine that is well: everything is readable, and every task comes to its end. */

import type { Clients, LogHandle, SourceHandle } from "./clients.js";
import { groupName, joinExclusive, readSome } from "./group-steps.js";
import { delivered } from "./task-steps.js";

const DRAIN_ROUNDS_MAX = 3000;
/** Each gives those that wait for others their turn, and some of those die before others are done. */
const FLOW_LEVELS_MAX = 8;
const BURIAL_MS_MAX = 3000;

export async function readAll(clients: Clients, { log, name }: LogHandle): Promise<void> {
  const { count } = (await clients.await(log.stats()))!;
  let records = 0;
  const batches = log.batches()[Symbol.asyncIterator]();
  for (;;) {
    const next = await clients.await(Promise.resolve(batches.next()));
    if (next === undefined || next.done === true) break;
    records += next.value.length;
  }
  // What the log removes of itself meanwhile is no loss.
  if (records !== count && count === (await clients.await(log.stats()))!.count) {
    clients.model.violate(`${name} has ${count} records; ${records} can be read`);
  }
}

/** Has every task of queues come to its end, and with them those that wait for others. */
export async function drainAll(clients: Clients, queues: readonly SourceHandle[]): Promise<void> {
  for (let rounds = 0; ; rounds++) {
    for (const handle of queues) await drain(clients, handle);
    if (clients.model.violations.length > 0) return;
    const blocked = [];
    let open = 0;
    for (const handle of queues) {
      const stats = (await clients.await(handle.queue!.stats()))!;
      open += stats.ready + stats.scheduled + stats.leased;
      if (stats.blocked > 0) blocked.push(handle.name);
    }
    if (blocked.length + open === 0) return;
    // What can never be ready is on its way to the dead letters, also if that failed at first.
    await clients.machine.clock.run(() => clients.halted, BURIAL_MS_MAX);
    if (rounds >= FLOW_LEVELS_MAX) {
      clients.model.violate(`tasks of ${blocked} wait for others without end`);
      return;
    }
    if (open === 0) for (const handle of queues) await endLetters(clients, handle, rounds);
  }
}

/** Dead children are done after all, or never will be. */
async function endLetters(clients: Clients, { source, model }: SourceHandle, rounds: number): Promise<void> {
  const commit = clients.begin(rounds === 0 ? "redrive" : "purge", {});
  if (rounds === 0) model.redriving(commit);
  else model.purging(commit, undefined);
  await clients.awaitTracked(commit, rounds === 0 ? source.dead.redrive() : source.dead.purge());
}

/** Has every task delivered, and acknowledged; those of a queue that wait for others are left. */
export async function drain(clients: Clients, handle: SourceHandle): Promise<void> {
  const { source, name, model, rules, queue } = handle;
  if (queue !== undefined) {
    const resuming = clients.begin("resume", { mode: "sync" });
    model.pausing(resuming, false);
    await clients.awaitTracked(resuming, queue.resume({ durability: "sync" }));
  }
  let idle = false;
  for (let rounds = 0; ; rounds++) {
    const left = await waitingIn(clients, handle, idle);
    // A group does not count the letters that were redriven: they are waited for.
    if (left === "" && queue !== undefined) return;
    if (rounds >= DRAIN_ROUNDS_MAX) {
      clients.model.violate(`${name} does not drain: ${left}`);
      return;
    }
    const delivery = clients.begin("dequeue", {});
    model.delivering(delivery, 16, false);
    const tasks = await clients.await(source.dequeueBatch({ max: 16, wait: 60_000 }));
    clients.model.acked(delivery, clients.nowMs);
    model.handedOut(delivery, tasks!.length, clients.nowMs);
    idle = tasks!.length === 0;
    for (const task of tasks!) delivered(clients, handle, delivery, task, rules.leaseMs);
    if (idle && left === "") return;
    if (idle) continue;
    const ack = clients.begin("ack", { mode: "sync" });
    const held = clients.held.splice(-tasks!.length);
    for (const { place, token } of held) model.settling(place, token, ack, true);
    await clients.await(source.ackBatch(tasks!, { durability: "sync" }));
    clients.model.acked(ack, clients.nowMs);
  }
}

/**
 * What there is still to be done, in words.
 * @param idle nothing came although it was waited for
 */
async function waitingIn(clients: Clients, { queue, group, model }: SourceHandle, idle: boolean): Promise<string> {
  if (queue !== undefined) {
    const { ready, scheduled, leased, blocked } = (await clients.await(queue.stats()))!;
    const left = `${ready} ready, ${scheduled} scheduled, ${leased} leased, ${blocked} blocked`;
    // Those that wait for others of their key come to be handed out when they are asked for; the rest wait for children.
    return ready + scheduled + leased === 0 && (blocked === 0 || idle) ? "" : left;
  }
  const { lag, leased } = (await clients.await(group!.info()))!;
  // What is left of a segment that was rewritten is estimated where a position cuts it.
  if (idle && model.lagIsEstimated && leased === 0) return "";
  return lag + leased === 0 ? "" : `${lag} not done, of which ${leased} leased`;
}

/** Has an exclusive group read and commit what is left of its log. */
export async function readThrough(clients: Clients, index: number): Promise<void> {
  const member = await joinExclusive(clients, index, 0);
  if (member === undefined) return;
  const { group, log, reader } = member;
  for (let rounds = 0; ; rounds++) {
    const count = await readSome(clients, member, 100, 0, true);
    if (count === 0) break;
    if (rounds < DRAIN_ROUNDS_MAX) continue;
    clients.model.violate(`${group.name} is never through`);
    return;
  }
  if (reader.next !== undefined && reader.next > 0) {
    const commit = clients.begin("commitGroup", { mode: "sync" });
    group.committing(reader, reader.next - 1, false, commit);
    await clients.awaitTracked(commit, member.member.commit(reader.next - 1, { durability: "sync" }));
  }
  const infos = (await clients.await(log.log.groups()))!;
  const { head } = (await clients.await(log.log.stats()))!;
  const info = infos.find(({ name }) => name === member.member.name);
  group.told(info?.committed ?? -1, head);
  // What is left of a segment that was rewritten is estimated where a position cuts it.
  if (info?.lag !== 0 && !log.model.removal.compacts)
    clients.model.violate(`${groupName(clients, index)} is through, and ${info?.lag} behind`);
}
