/**
 * The reference: what clients were told, and therefore what may be found. It knows nothing of how varve works, only
 * the promises (a change that was acknowledged is there, one that was refused is not, the rest may be either, all of a
 * change or none of it) and which of them a given end of the process leaves in force.
 *
 * Every message has a number of its own in its payload, so that each is recognised wherever it turns up. What is promised of
 * logs, of sources of tasks and of groups stands in model-log.ts, model-task.ts (with model-pace.ts, model-flow.ts and
 * model-result.ts) and model-group.ts.
 */

import {
  Commit,
  type Ending,
  type Found,
  type Item,
  type ItemTraits,
  isRequired,
  newItem,
  type Shift,
} from "./commit.js";
import { copyOf } from "./copy.js";
import { FlowModel } from "./model-flow.js";
import { GroupModel } from "./model-group.js";
import { LogModel, type SeenLog } from "./model-log.js";
import { ResultModel } from "./model-result.js";
import { type SeenTasks, TaskModel } from "./model-task.js";

export class Model {
  readonly violations: string[] = [];
  readonly items = new Map<number, Item>();
  readonly logs = new Map<string, LogModel>();
  readonly sources = new Map<string, TaskModel>();
  /** The exclusive ones. */
  readonly groups = new Map<string, GroupModel>();
  readonly flows = new FlowModel(this);
  readonly results = new ResultModel(this);
  /** The directory shows only what is durable. */
  readonly showsDurable: boolean;
  /** The wall clock was set at some time: nothing is removed by it for a while, and records may be younger than they say. */
  clockWasSet = false;
  /** Elapsed time, as of the last answer. */
  nowMs = 0;
  private commits: Commit[] = [];
  private number = 0;
  /** The disk has lied: the last commits may be lost, deletions among them. */
  private suspicious = false;
  /** Groups that may have been made, or deleted, by calls that are not answered. */
  private readonly beingMade = new Map<string, GroupModel | TaskModel>();
  private readonly beingDeleted = new Set<string>();

  constructor(showsDurable: boolean) {
    this.showsDurable = showsDurable;
  }

  /** Another that knows the same, and to which what is found next means nothing. */
  clone(): Model {
    return copyOf(this);
  }

  // ---------------------------------------------------------------------------------------------------- what is done

  begin(label: string, sync: boolean, nowMs: number): Commit {
    const commit = new Commit(++this.number, label, sync, nowMs);
    this.commits.push(commit);
    return commit;
  }

  acked(commit: Commit, nowMs: number): void {
    commit.outcome = "acked";
    commit.answeredNumber = ++this.number;
    commit.answeredMs = nowMs;
    this.nowMs = nowMs;
  }

  /** Everything that was acknowledged before a `sync()` was called, which has now been answered. */
  synced(callNumber: number): void {
    for (const commit of this.commits) {
      if (commit.acked && commit.answeredNumber < callNumber) commit.durable = true;
    }
  }

  /** The number that the next call would get. */
  get now(): number {
    return ++this.number;
  }

  send(queue: string, commit: Commit, traits?: ItemTraits): Item {
    const item = newItem(this.items.size + 1, queue, commit, traits);
    this.items.set(item.number, item);
    commit.items.push(item);
    (this.logs.get(queue) ?? this.source(queue)).items.push(item);
    return item;
  }

  /** The call that sent a message is made again: what was seen of it, and has been done with it, is lost. */
  sentAgain(item: Item): void {
    Object.assign(item, { id: undefined, offset: undefined, place: undefined });
    item.acks.length = 0;
    item.purges.length = 0;
    for (const source of this.sources.values()) source.forget(item.number);
  }

  log(name: string): LogModel {
    let log = this.logs.get(name);
    if (log === undefined) {
      log = new LogModel(name, this);
      this.logs.set(name, log);
    }
    return log;
  }

  source(name: string): TaskModel {
    const source = this.sources.get(name);
    if (source === undefined) throw new Error(`the model knows no ${name}`);
    return source;
  }

  queue(name: string, maxAttempts: number): TaskModel {
    let queue = this.sources.get(name);
    if (queue === undefined) {
      queue = new TaskModel(name, this, maxAttempts);
      this.sources.set(name, queue);
    }
    return queue;
  }

  // ----------------------------------------------------------------------------------------------------------- groups

  /** Whether there is no telling if there is such a group. */
  isUncertain(name: string): boolean {
    return this.beingMade.has(name) || this.beingDeleted.has(name);
  }

  hasGroup(name: string): boolean {
    return this.groups.has(name) || this.sources.has(name);
  }

  making(group: GroupModel | TaskModel): void {
    this.beingMade.set(group.name, group);
  }

  made(group: GroupModel | TaskModel): void {
    this.beingMade.delete(group.name);
    if (group instanceof GroupModel) this.groups.set(group.name, group);
    else this.sources.set(group.name, group);
  }

  notMade({ outcome }: Commit, { name }: GroupModel | TaskModel): void {
    if (outcome === "refused") this.beingMade.delete(name);
  }

  deleting(name: string): void {
    this.beingDeleted.add(name);
  }

  deleted(name: string): void {
    this.beingDeleted.delete(name);
    for (const item of (this.logs.get(name) ?? this.sources.get(name))?.items ?? []) item.deleted = true;
    this.groups.delete(name);
    this.sources.delete(name);
    if (!this.logs.delete(name)) return;
    const prefix = `group/${name.slice("log/".length)}/`;
    for (const group of [...this.groups.keys(), ...this.sources.keys()])
      if (group.startsWith(prefix)) this.deleted(group);
  }

  notDeleted({ outcome }: Commit, name: string): void {
    if (outcome === "refused") this.beingDeleted.delete(name);
  }

  /** Which groups there are after a recovery, and which queues that may have been deleted. */
  private recoveredGroups(seen: ReadonlySet<string>): void {
    for (const [name, group] of this.beingMade) if (seen.has(name)) this.made(group);
    for (const name of this.beingDeleted) if (!seen.has(name)) this.deleted(name);
    this.beingMade.clear();
    this.beingDeleted.clear();
    const known = [...this.groups.keys(), ...this.sources.keys()].filter((name) => name.startsWith("group/"));
    for (const name of known) if (!seen.has(name)) this.violate(`${name} is gone`);
    const groups = [...seen].filter((name) => name.startsWith("group/"));
    for (const name of groups)
      if (!known.includes(name)) this.violate(`${name} is there, and was deleted or never made`);
  }

  /** The wall clock was set: delays that count on it may be over. */
  forgetDelays(): void {
    this.clockWasSet = true;
    for (const source of this.sources.values()) source.forgetDelays();
  }

  /** The process stood still, and could not make anything durable. */
  stalled(ms: number): void {
    for (const commit of this.commits) if (commit.acked && !commit.durable) commit.answeredMs += ms;
  }

  // ---------------------------------------------------------------------------------------------------- what is seen

  /** The item that a message is, if it may be where it is. */
  known(queue: string, where: string | number, number: number | undefined): Item | undefined {
    const item = number === undefined ? undefined : this.items.get(number);
    if (item === undefined) {
      this.violate(`${queue}: what stands at ${where} is no message that was sent`);
      return undefined;
    }
    if (item.queue !== queue) this.violate(`${queue}: message ${number} at ${where} was sent to ${item.queue}`);
    if (!item.commit.possible) this.violate(`${queue}: message ${number} at ${where} was refused`);
    if (item.deleted && !this.suspicious)
      this.violate(`${queue}: message ${number} at ${where} is one of a queue that was deleted`);
    return item;
  }

  show<P>(queue: string, shown: Map<P, number>, place: P, number: number): void {
    const before = shown.get(place);
    if (before !== undefined && before !== number) {
      this.violate(`${queue}: ${place} was given to message ${before}, and now to message ${number}`);
    }
    shown.set(place, number);
  }

  violate(text: string): void {
    this.violations.push(text);
  }

  // ------------------------------------------------------------------------------------------------ the end of a life

  /** No call that is still under way will be answered. */
  silence(): void {
    for (const commit of this.commits) if (commit.outcome === "pending") commit.outcome = "unknown";
  }

  /** Compares everything found after a recovery with what was promised, and takes it as what is. */
  recovered(logs: readonly SeenLog[], sources: readonly SeenTasks[], ending: Ending): void {
    const found: Found = { items: new Set(), gone: new Set(), goneAlone: new Set(), unsure: new Set() };
    const seenLogs = new Map(logs.map((log) => [log.name, log]));
    const seenSources = new Map(sources.map((source) => [source.name, source]));
    this.recoveredGroups(
      new Set([...logs.flatMap(({ groups }) => groups), ...logs, ...sources].map(({ name }) => name)),
    );
    for (const name of seenLogs.keys()) this.log(name);
    for (const [name, log] of this.logs) log.recovered(seenLogs.get(name), ending, found);
    for (const [name, source] of this.sources) source.recovered(seenSources.get(name), ending, found);
    for (const { head, groups } of logs) {
      for (const group of groups) this.groups.get(group.name)?.recovered(group, head, ending, found);
    }
    this.results.recovered(ending, found);
    this.checkCommits(ending, found);
    this.adopt(found);
  }

  /** A queue on a disk that lied: every message is one that was sent there, stands once, and where it was shown. */
  suspected(queue: SeenLog | SeenTasks): void {
    this.suspicious = true;
    const found = new Set<Item>();
    // The deletion of a group may be lost as well.
    const group = /^group\/(.+)\/[^/]+$/.exec(queue.name);
    const source = this.sources.get(queue.name);
    const sentTo = group === null ? queue.name : `log/${group[1]}`;
    const see = (where: string | number, number: number | undefined) => {
      // A record that is in somebody's hands may be gone from its log.
      if (number === undefined && group !== null) return;
      const item = source === undefined ? this.known(sentTo, where, number) : source.item(where, number);
      if (item === undefined) return;
      if (found.has(item)) this.violate(`${queue.name}: message ${item.number} stands twice, now at ${where}`);
      found.add(item);
    };
    if ("records" in queue) {
      for (const { offset, item } of queue.records) {
        see(offset, item);
        // A deletion that was lost leaves what had those offsets before.
        if (this.items.get(item ?? 0)?.deleted !== true) {
          this.show(queue.name, this.log(queue.name).shown, offset, item ?? 0);
        }
      }
    } else {
      for (const { place, item } of queue.live) see(place, item);
      for (const { id, item } of queue.dead) see(id, item);
    }
  }

  /** All of a change or none of it; what was promised is there; nothing is there before what came first. */
  private checkCommits(ending: Ending, found: Found): void {
    let lost: Commit | undefined;
    const took = new Set<Commit>();
    for (const commit of this.commits) {
      let yes: Item | undefined;
      let no: Item | undefined;
      if (!commit.possible) continue;
      for (const item of commit.items) {
        if (found.unsure.has(item) || item.deleted) continue;
        if (found.items.has(item) || found.gone.has(item)) yes = item;
        else no = item;
      }
      for (const item of commit.ended) {
        const others = [...item.acks, ...item.purges].some((each) => each !== commit && each.possible);
        if (item.deleted) continue;
        if (found.items.has(item)) no = item;
        else if (!others && found.gone.has(item) && !found.goneAlone.has(item) && !found.unsure.has(item)) yes = item;
      }
      const what = `${commit.label} ${commit.number} (${commit.sync ? "sync" : "async"}, ${commit.outcome})`;
      if (yes !== undefined && found.items.has(yes)) took.add(commit);
      if (no === undefined) continue;
      if (yes !== undefined) this.violate(`${what}: took effect on message ${yes.number}, but not on ${no.number}`);
      if (isRequired(commit, ending)) {
        const where = no.offset ?? no.place;
        this.violate(`${no.queue}: ${what} is lost after a ${ending.kind}: message ${no.number}, offset ${where}`);
      }
      if (commit.acked && (lost === undefined || commit.answeredNumber < lost.answeredNumber)) lost = commit;
    }
    if (lost === undefined) return;
    for (const commit of took) {
      if (commit.number < lost.answeredNumber) continue;
      this.violate(`${commit.label} ${commit.number} is there, but not ${lost.label} ${lost.number} from before it`);
    }
  }

  /** What was found is what is: the unknown is known now, and all of it is durable. */
  private adopt(found: Found): void {
    for (const { commit } of found.unsure) if (!commit.durable) commit.outcome = "unknown";
    for (const item of this.items.values()) {
      const { commit } = item;
      if (found.unsure.has(item) || item.deleted) continue;
      const took = found.gone.has(item) || found.items.has(item);
      commit.outcome = took ? "acked" : "refused";
      commit.durable = took;
      commit.answeredMs = 0;
    }
    for (const source of this.sources.values()) source.adopt(found);
    this.commits = this.commits.filter((commit) => commit.items.length > 0);
    for (const commit of this.commits) commit.ended.length = 0;
  }

  /** A new life of the machine: its elapsed time starts elsewhere, and `downMs` have passed on the wall clock. */
  restarted(shift: Shift, downMs: number): void {
    for (const source of this.sources.values()) source.restarted(shift, downMs);
    this.results.restarted(shift);
    for (const commit of this.commits) if (commit.acked) commit.answeredMs += shift.nowMs - shift.lastMs;
  }
}
