/** What clients do with the groups of logs. */

import { type GroupMember, isVarveError } from "../../src/index.js";
import { type Clients, consumerOptions, type LogHandle, type SourceHandle } from "./clients.js";
import { options, type Perform } from "./log-steps.js";
import { GroupModel, type ReaderModel } from "./model-group.js";
import { TaskModel } from "./model-task.js";
import type { Step, StepKind } from "./plan.js";

/** An offset that no log gets to. */
const FAR_AHEAD = 2 ** 50;
/** Members of an exclusive group, of which one reads. */
const MEMBERS_MAX = 2;

export const GROUP_STEPS = {
  join,
  leave,
  readGroup,
  commitGroup,
  seekGroup,
  deleteGroup,
} satisfies Partial<Record<StepKind, Perform>>;

export interface Member {
  readonly log: LogHandle;
  readonly group: GroupModel;
  readonly member: GroupMember;
  readonly reader: ReaderModel;
}

/** The members in a life of the process. */
const membersOf = new WeakMap<Clients, Map<string, Member[]>>();

function members(clients: Clients, name: string): Member[] {
  let all = membersOf.get(clients);
  if (all === undefined) {
    all = new Map();
    membersOf.set(clients, all);
  }
  let some = all.get(name);
  if (some === undefined) {
    some = [];
    all.set(name, some);
  }
  return some;
}

/** A log is being deleted, with its groups. */
export function forgetMembers(clients: Clients, log: string): void {
  for (const [name, some] of membersOf.get(clients) ?? []) if (name.startsWith(`group/${log}/`)) some.length = 0;
}

export function groupName(clients: Clients, index: number): string {
  return `group/l${clients.machine.plan.groups[index]!.log}/g${index}`;
}

async function join(clients: Clients, { queue, pick }: Step): Promise<void> {
  const { groups } = clients.machine.plan;
  if (groups.length === 0) return;
  const index = queue % groups.length;
  if (groups[index]!.shared) await joinShared(clients, index, pick);
  else await joinExclusive(clients, index, pick);
}

/** Where a group that is made begins: told as an offset, which may be gone by then. */
async function beginning(clients: Clients, { log }: LogHandle, pick: number): Promise<number> {
  const { head, next } = (await clients.await(log.stats()))!;
  return head + (pick % (1 + next - head));
}

export async function joinShared(clients: Clients, index: number, pick = 0): Promise<SourceHandle | undefined> {
  const known = clients.shared.get(index);
  if (known !== undefined) return known;
  const name = groupName(clients, index);
  const rules = clients.machine.plan.groups[index]!;
  if (clients.model.isUncertain(name)) return undefined;
  const handle = await clients.log({ queue: rules.log });
  if (handle === undefined) return undefined;
  const from = await beginning(clients, handle, pick);
  const commit = clients.model.begin("make", true, clients.nowMs);
  const made = clients.model.sources.get(name);
  const model = made ?? new TaskModel(name, clients.model, rules.maxAttempts, handle.model, from);
  if (made === undefined) clients.model.making(model);
  let joined: SourceHandle | undefined;
  await clients.awaitTracked(
    commit,
    handle.log.sharedGroup(`g${index}`, { ...consumerOptions(rules), from }),
    (group) => {
      clients.model.made(model);
      joined = { source: group, name, model, rules, queue: undefined, group };
      clients.shared.set(index, joined);
    },
    () => clients.model.notMade(commit, model),
  );
  return joined;
}

export async function joinExclusive(clients: Clients, index: number, pick: number): Promise<Member | undefined> {
  const name = groupName(clients, index);
  const rules = clients.machine.plan.groups[index]!;
  if (clients.model.isUncertain(name)) return undefined;
  const handle = await clients.log({ queue: rules.log });
  if (handle === undefined) return undefined;
  const all = members(clients, name);
  if (all.length >= MEMBERS_MAX) await leaveOne(clients, all, pick);
  const from = await beginning(clients, handle, pick);
  const commit = clients.model.begin("make", true, clients.nowMs);
  const made = clients.model.groups.get(name);
  const group = made ?? new GroupModel(name, clients.model, handle.model, from);
  if (made === undefined) clients.model.making(group);
  let joined: Member | undefined;
  await clients.awaitTracked(
    commit,
    handle.log.group(`g${index}`, { from, sessionTimeout: rules.sessionMs }),
    (member) => {
      clients.model.made(group);
      joined = { log: handle, group, member, reader: group.join() };
      all.push(joined);
    },
    () => clients.model.notMade(commit, group),
  );
  const position = made === undefined && joined !== undefined && (await clients.await(joined.member.position()));
  if (position) group.begins(position.committed);
  return joined;
}

/** A member of an exclusive group; one joins if there is none. */
export async function memberOf(clients: Clients, { queue, pick }: Step): Promise<Member | undefined> {
  const exclusive = clients.machine.plan.groups.flatMap((group, index) => (group.shared ? [] : [index]));
  if (exclusive.length === 0) return undefined;
  const index = exclusive[queue % exclusive.length]!;
  const all = members(clients, groupName(clients, index));
  return all[pick % Math.max(1, all.length)] ?? (await joinExclusive(clients, index, pick));
}

async function leaveOne(clients: Clients, all: Member[], pick: number): Promise<void> {
  const [gone] = all.splice(pick % all.length, 1);
  if (gone === undefined) return;
  gone.group.left(gone.reader);
  await clients.await(gone.member.close());
}

async function leave(clients: Clients, { queue, pick }: Step): Promise<void> {
  const { groups } = clients.machine.plan;
  if (groups.length === 0) return;
  await leaveOne(clients, members(clients, groupName(clients, queue % groups.length)), pick);
}

async function readGroup(clients: Clients, step: Step): Promise<void> {
  const member = await memberOf(clients, step);
  if (member === undefined) return;
  const wait = step.pick % 3 === 0 ? Math.min(step.ms, 1000) : 0;
  await readSome(clients, member, step.count, wait);
}

/** Resolves when it is answered only if `awaited`. Returns how many records came, -1 when it failed. */
export async function readSome(
  clients: Clients,
  { log, group, member, reader }: Member,
  max: number,
  wait: number,
  awaited = false,
): Promise<number> {
  reader.reading++;
  let count = -1;
  const run = member.read({ max, wait });
  clients.watch(
    "readGroup",
    run,
    (records) => {
      reader.reading--;
      count = records.length;
      for (const record of records) clients.read(log, record);
      log.model.scanned(records.map(({ offset }) => ({ offset, item: undefined })));
      clients.note(`${group.name}: read ${records.length} from ${records[0]?.offset} on`);
      group.read(reader, records);
    },
    (error) => {
      reader.reading--;
      const details = isVarveError(error, "ERR_OFFSET_OUT_OF_RANGE") ? error.details : undefined;
      if (details === undefined) group.failed(reader);
      else group.missed(reader, Number(details.offset), Number(details.next), Number(details.lost));
    },
  );
  if (awaited) await clients.await(run.catch(() => {}));
  return count;
}

async function commitGroup(clients: Clients, step: Step): Promise<void> {
  const member = await memberOf(clients, step);
  if (member === undefined || clients.halted) return;
  commitUpTo(clients, member, step);
}

function commitUpTo(clients: Clients, { group, member, reader }: Member, step: Step): void {
  const { next } = reader;
  const { pick } = step;
  // Some ask for what they have not read.
  const offset = pick % 7 === 0 ? FAR_AHEAD : (next ?? 0) - 1 - (pick % 3);
  if (offset < 0) return;
  const commit = clients.begin("commitGroup", step);
  const refusable = group.committing(reader, offset, offset === FAR_AHEAD, commit);
  clients.note(`commitGroup ${commit.number}: ${group.name} up to ${offset}${refusable ? " (must not be)" : ""}`);
  clients.track(commit, member.commit(offset, options(step)), () => group.committed(refusable, commit));
}

async function seekGroup(clients: Clients, step: Step): Promise<void> {
  const chosen = await memberOf(clients, step);
  if (chosen === undefined || clients.halted) return;
  const { group, member, reader, log } = chosen;
  // What a read that is under way comes upon is anybody's guess.
  const all = members(clients, group.name);
  if (all.some((each) => each.reader.reading > 0)) return;
  const to = await beginning(clients, log, step.pick);
  const time = step.pick % 3 === 0 ? await timeOf(clients, log, to) : undefined;
  const commit = clients.begin("seekGroup", step);
  group.seeking(time?.first ?? to, commit);
  await clients.awaitTracked(
    commit,
    member.seek(time?.since ?? to, options(step)),
    (offset) => group.sought(reader, offset),
    () => group.notSought(reader, commit),
  );
}

/**
 * The time of a record, and the first record that is no older, which is where a seek to that time leads, as far as nothing is
 * removed meanwhile.
 */
async function timeOf(
  clients: Clients,
  { log, rules }: LogHandle,
  offset: number,
): Promise<{ readonly since: Date; readonly first: number } | undefined> {
  if (clients.pending > 0 || rules.compaction !== undefined || rules.retention !== undefined) return undefined;
  const find = async () => {
    const since = (await log.read(offset))?.timestamp;
    if (since === undefined) return undefined;
    for await (const batch of log.batches()) {
      const first = batch.find(({ timestamp }) => timestamp >= since);
      if (first !== undefined) return { since: new Date(since), first: first.offset };
    }
    return undefined;
  };
  return await clients.await(find().catch(() => undefined));
}

async function deleteGroup(clients: Clients, { queue }: Step): Promise<void> {
  const { groups } = clients.machine.plan;
  if (groups.length === 0) return;
  const index = queue % groups.length;
  const name = groupName(clients, index);
  const log = await clients.log({ queue: groups[index]!.log });
  const { model } = clients;
  if (log === undefined || !(model.groups.has(name) || model.sources.has(name)) || model.isUncertain(name)) return;
  const commit = model.begin("deleteGroup", true, clients.nowMs);
  model.deleting(name);
  members(clients, name).length = 0;
  clients.shared.delete(index);
  clients.held = clients.held.filter((held) => held.source !== name);
  await clients.awaitTracked(
    commit,
    log.log.deleteGroup(`g${index}`, { durability: "sync" }),
    () => model.deleted(name),
    () => model.notDeleted(commit, name),
  );
}
