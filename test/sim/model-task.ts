import type { TaskStatus } from "../../src/index.js";
import {
  type Commit,
  durableCommit,
  ENDS,
  type Ending,
  type Found,
  type Item,
  isRequired,
  newItem,
  type Shift,
  shifted,
} from "./commit.js";
import type { Model } from "./model.js";
import type { LogModel } from "./model-log.js";
import { PaceModel, type PaceRules } from "./model-pace.js";

/** A task as its receivers know it, by source and place. */
interface TaskFact {
  readonly item: Item;
  /** The latest delivery. */
  attempt: number;
  delivery: Commit | undefined;
  token: string | undefined;
  /** The lease lasts at least until then ... */
  leaseEndMs: number;
  /** ... and did at least until then, before it was prolonged by a call that a power cut may take back. */
  before: { readonly leaseEndMs: number; readonly session: boolean; readonly extension: Commit } | undefined;
  /** The lease ends with this life of the process. */
  session: boolean;
  /** Calls that may have ended or prolonged that lease. */
  settling: Commit[];
  dueMs: number;
}

export interface SeenTask {
  /** Lane and offset. */
  readonly place: string;
  readonly item: number | undefined;
  readonly attempt: number;
  readonly token: string | undefined;
  readonly leased: boolean;
}

export interface SeenTasks {
  readonly name: string;
  readonly live: readonly SeenTask[];
  readonly dead: readonly { readonly id: string; readonly item: number | undefined }[];
}

/** What must become of a settling call. */
export type Expected = "good" | "stale" | "open";

/** Calls that do not end a lease. */
const LEAVE: ReadonlySet<string> = new Set(["extend", "progress"]);

/** Delays go on by the wall clock while a directory is closed, which counts whole milliseconds. */
export const WALL_ROUNDING_MS = 2;
/** A window that outlasts every run. */
const ENDLESS_WINDOW_MS = 10_000_000;

/** A source of tasks as its clients know it: a queue, or a shared group of a log, whose tasks are the log's records. */
export class TaskModel {
  readonly name: string;
  readonly model: Model;
  readonly items: Item[] = [];
  readonly maxAttempts: number;
  /** How long a dedupe key stands for its first task. */
  windowMs = 0;
  /** A full queue drops what has waited longest. */
  dropsOldest = false;
  /** How long it keeps what tasks brought. */
  resultTtlMs = 0;
  private pace = new PaceModel({});
  /** Tasks that stand for dedupe keys, and when they were committed at the earliest. */
  private claims: { readonly item: Item; sinceMs: number }[] = [];
  /** Calls that remove everything that waits. */
  private clears: Commit[] = [];
  private pauses: { readonly commit: Commit; readonly paused: boolean }[] = [];
  private readonly shown = new Map<string, number>();
  private readonly tasks = new Map<string, TaskFact>();
  /** Calls that may have redriven tasks, which gives them new places. */
  private redrives: Commit[] = [];
  /** Calls that take tasks and are done with them, and how many at most. */
  private takes: { readonly commit: Commit; left: number }[] = [];
  /** In the life before, some may have been taken by calls that were not answered. */
  private tookSome = false;
  /** Deliveries that have not been answered. */
  private deliveries: Commit[] = [];
  /** Of a shared group: the log, and where in it the group begins. */
  private readonly log: LogModel | undefined;
  private readonly own = new Map<number, Item>();
  private readonly begins: number;

  constructor(name: string, model: Model, maxAttempts: number, log?: LogModel, begins = 0) {
    this.name = name;
    this.model = model;
    this.maxAttempts = maxAttempts;
    this.log = log;
    this.begins = begins;
  }

  get isOfLog(): boolean {
    return this.log !== undefined;
  }

  get lagIsEstimated(): boolean {
    return this.log?.removal.compacts === true;
  }

  // ---------------------------------------------------------------------------------------------------- what is done

  paced(rules: PaceRules): void {
    if (JSON.stringify(rules) !== JSON.stringify(this.pace.rules)) this.pace = new PaceModel(rules);
  }

  redriving(commit: Commit): void {
    this.redrives.push(commit);
  }

  purging(commit: Commit, numbers: readonly number[] | undefined): void {
    for (const item of this.items) {
      if (numbers === undefined || numbers.includes(item.number)) item.purges.push(commit);
    }
  }

  placed(item: Item, place: string): void {
    item.place = place;
    this.show(place, item);
    const { expiry, ttlMs, commit } = item;
    if (expiry !== undefined && ttlMs !== undefined && !this.model.clockWasSet) {
      item.expiry = { ...expiry, latestMs: commit.answeredMs + ttlMs + WALL_ROUNDING_MS };
    }
  }

  /** A task with a dedupe key was enqueued, or found to be there already. */
  deduped(item: Item, created: boolean, id: string): void {
    const { dedupeKey, commit } = item;
    const claims = this.claims.filter((each) => each.item.dedupeKey === dedupeKey);
    if (!created) {
      commit.outcome = "refused";
      const known = claims.some((claim) => claim.item.commit.possible && (claim.item.id ?? id) === id);
      const underWay = this.items.some(
        (other) => other.dedupeKey === dedupeKey && other.commit.possible && other !== item,
      );
      if (!known && !underWay)
        this.violate(`${this.name}: ${id} stands for key ${dedupeKey}, and was not enqueued with it`);
      return;
    }
    for (const { item: first, sinceMs } of claims) {
      if (!first.commit.acked || commit.answeredMs >= sinceMs + this.windowMs) continue;
      this.violate(
        `${this.name}: message ${item.number} is a second task with key ${dedupeKey}, beside ${first.number} from ${sinceMs} on`,
      );
    }
    this.claims = [...this.claims.filter((each) => !claims.includes(each)), { item, sinceMs: commit.madeMs }];
  }

  /** Whether a task is the one that its dedupe key stands for. */
  standsForKey(item: Item): boolean {
    const claim = this.claims.find((each) => each.item === item);
    return claim !== undefined && item.commit.acked && this.windowMs > ENDLESS_WINDOW_MS;
  }

  /** Everything that waits is to be removed. */
  clearing(commit: Commit): void {
    for (const item of this.items) item.purges.push(commit);
    this.clears.push(commit);
  }

  pausing(commit: Commit, paused: boolean): void {
    this.pauses.push({ commit, paused });
  }

  /** A task is cancelled if it is not in anybody's hands. */
  cancelling(item: Item, commit: Commit): void {
    item.acks.push(commit);
    commit.ended.push(item);
  }

  cancelled(item: Item, commit: Commit, done: boolean): void {
    if (!done) {
      commit.outcome = "refused";
      return;
    }
    const fact = this.tasks.get(item.place ?? "");
    if (fact?.token === undefined || fact.settling.length > 0 || this.model.nowMs >= fact.leaseEndMs) return;
    if ((fact.delivery?.answeredNumber ?? 0) < commit.number) {
      this.violate(`${this.name}: message ${item.number} was cancelled while it was leased`);
    }
  }

  /** A task may be due at another time from now on. */
  rescheduling(item: Item, commit: Commit): void {
    item.rescheduling = commit;
    item.dueMs = 0;
    item.delayed = true;
    const fact = this.tasks.get(item.place ?? "");
    if (fact !== undefined) fact.dueMs = 0;
  }

  rescheduled(item: Item, dueMs: number): void {
    item.dueMs = dueMs;
    const fact = this.tasks.get(item.place ?? "");
    if (fact !== undefined && fact.token === undefined) fact.dueMs = dueMs;
  }

  /** Tasks whose names are known. */
  get named(): Item[] {
    return this.items.filter(({ id, commit }) => id !== undefined && commit.possible);
  }

  /** A dequeue is called. */
  delivering(delivery: Commit, max: number, takes: boolean): void {
    this.deliveries.push(delivery);
    if (takes) this.takes.push({ commit: delivery, left: max });
  }

  delivered(delivery: Commit, seen: SeenTask, leaseMs: number | "session", nowMs: number): void {
    const { place, attempt } = seen;
    const item = this.item(place, seen.item);
    if (item === undefined) return;
    this.show(place, item);
    if (this.model.showsDurable) item.commit.durable = true;
    const what = `${this.name} task ${place} (message ${item.number}), attempt ${attempt}`;
    if (item.acks.some((ack) => ack.acked)) this.violate(`${what}: delivered after its ack was acknowledged`);
    let fact = this.tasks.get(place);
    this.judgeDelivery(delivery, item, what);
    if (this.isFirstPlace(item, place)) this.model.flows.judge(item, what);
    this.judgeOrder(delivery, item, place, what, nowMs);
    if (fact === undefined) {
      const again = item.place !== undefined && item.place !== place;
      if (!again) this.judgeFirst(delivery, item, what);
      if (again && !this.redrives.some((redrive) => redrive.possible)) {
        this.violate(`${what}: is a second copy of task ${item.place}, and nothing was redriven`);
      }
      fact = newFact(item, again ? 0 : item.dueMs);
      this.tasks.set(place, fact);
    }
    item.place = place;
    const undone = fact.settling.some(({ label, releases, possible }) => (label === "release" || releases) && possible);
    const [only] = fact.settling;
    const notCounted = undone && fact.settling.length === 1 && only!.label === "release" && only!.acked;
    const counted = attempt === fact.attempt + 1 && !notCounted;
    if (!counted && !(undone && attempt === fact.attempt)) {
      this.violate(`${what}: follows attempt ${fact.attempt}`);
    }
    if (fact.token !== undefined && fact.settling.length === 0 && nowMs < fact.leaseEndMs) {
      this.violate(`${what}: delivered at ${nowMs}, while leased until ${fact.leaseEndMs}`);
    }
    if (nowMs < fact.dueMs) this.violate(`${what}: delivered at ${nowMs}, due at ${fact.dueMs}`);
    fact.attempt = attempt;
    fact.delivery = delivery;
    fact.token = seen.token;
    fact.session = leaseMs === "session";
    fact.leaseEndMs = leaseMs === "session" ? Number.POSITIVE_INFINITY : delivery.madeMs + leaseMs;
    fact.before = undefined;
    fact.settling = [];
    fact.dueMs = 0;
    this.judgeConcurrency(what, nowMs);
  }

  /** Whether a task stands where it was enqueued: for sure, it has not been redriven. */
  private isFirstPlace({ id }: Item, place: string): boolean {
    return id === undefined ? !this.redrives.some(({ possible }) => possible) : place === placeOfId(id);
  }

  /** A dequeue has been answered. */
  handedOut(delivery: Commit, count: number, nowMs: number): void {
    const alone = !this.pendingDeliveriesBut(delivery);
    const wrong = this.pace.handedOut(delivery, count, nowMs, alone);
    if (wrong !== undefined) this.violate(`${this.name}: ${wrong}`);
  }

  private judgeConcurrency(what: string, nowMs: number): void {
    const { concurrency } = this.pace.rules;
    if (concurrency === undefined) return;
    let leased = 0;
    for (const fact of this.tasks.values()) if (isHeld(fact, nowMs)) leased++;
    if (leased > concurrency) this.violate(`${what}: is one of ${leased} that are leased, of at most ${concurrency}`);
  }

  private judgeDelivery(delivery: Commit, item: Item, what: string): void {
    const { expiry } = item;
    // One that was redriven has a time of its own.
    if (expiry !== undefined && this.redrives.length === 0 && delivery.madeMs > expiry.latestMs) {
      this.violate(
        `${what}: delivered to who asked at ${delivery.madeMs}, and its time was over at ${expiry.latestMs}`,
      );
    }
    const last = this.pauses.findLast(({ commit }) => commit.possible);
    if (last?.paused === true && last.commit.acked && last.commit.answeredNumber < delivery.number) {
      this.violate(`${what}: delivered while the queue was paused`);
    }
  }

  /** Not as many others of its key as may be under way are before it, in anybody's hands or still to be delivered. */
  private judgeOrder(delivery: Commit, item: Item, place: string, what: string, nowMs: number): void {
    if (item.orderKey === undefined || item.id === undefined || placeIn(place) !== placeIn(item.place ?? place)) return;
    const before: Item[] = [];
    for (const other of this.items) {
      if (other === item || other.orderKey !== item.orderKey || other.priority !== item.priority) continue;
      if (other.place === undefined || placeIn(other.place) >= placeIn(place)) continue;
      if (this.isBefore(other, delivery, nowMs)) before.push(other);
    }
    if (before.length < (this.pace.rules.concurrencyPerKey ?? 1)) return;
    const them = before.map((other) => `${other.number} at ${other.place}`).join(", ");
    this.violate(`${what}: delivered before message ${them}, of the same key`);
  }

  /** Whether a task is in somebody's hands for sure, or has to be delivered again. */
  private isBefore(other: Item, delivery: Commit, nowMs: number): boolean {
    const fact = this.tasks.get(other.place!);
    // One that an earlier life was given may be lost with what sent it.
    if (!other.commit.possible || fact === undefined || other.acks.length > 0 || other.purges.length > 0) return false;
    const { settling } = fact;
    if (fact.token !== undefined && settling.length === 0) return nowMs < fact.leaseEndMs;
    const [only] = settling;
    const again =
      settling.length === 1 && only!.label === "nack" && only!.acked && only!.answeredNumber < delivery.number;
    if (!again || other.expiry !== undefined || this.dropsOldest) return false;
    // One that was given another time has left its place in the order.
    if ((other.rescheduling?.answeredNumber ?? 0) > only!.number) return false;
    return fact.attempt < Math.min(this.maxAttempts, other.maxAttempts);
  }

  /** The first delivery of a task: nothing that came before it is passed over. */
  private judgeFirst(delivery: Commit, item: Item, what: string): void {
    const cleared = this.clears.some((clear) => {
      return clear.acked && item.commit.answeredNumber < clear.number && clear.answeredNumber < delivery.number;
    });
    if (cleared) this.violate(`${what}: delivered after it was purged`);
    for (const other of this.items) {
      if (other.priority <= item.priority || other.commit.answeredNumber > delivery.number) continue;
      if (!other.commit.acked || other.delayed || other.expiry !== undefined || this.dropsOldest) continue;
      if (other.place === undefined) continue;
      // It may wait for another one of its key, or stand behind as many of those as are passed over.
      if (other.orderKey !== undefined || this.isOutOfSight(other) || this.mayPress(item, other)) continue;
      const untouched = !this.tasks.has(other.place);
      if (untouched && other.acks.length === 0 && other.purges.length === 0 && !this.pendingDeliveriesBut(delivery)) {
        this.violate(`${what}: delivered before message ${other.number} of priority ${other.priority}`);
      }
    }
  }

  /** Whether tasks that wait for others of their key may stand before a task, and too many to look behind them. */
  private isOutOfSight({ priority, place }: Item): boolean {
    if (this.pace.rules.lookAhead === undefined) return false;
    const isBefore = (each: Item) => each.place === undefined || placeIn(each.place) < placeIn(place!);
    return this.items.some((each) => {
      const ended = each.acks.some(({ acked }) => acked) || !each.commit.possible;
      return each.orderKey !== undefined && each.priority === priority && !ended && isBefore(each);
    });
  }

  /** Whether a task may have waited so much longer than a more urgent one that it comes first. */
  private mayPress({ priority }: Item, other: Item): boolean {
    if (this.pace.rules.ageing === undefined) return false;
    // What stands before it for others of its priority, and waits for something else, may count for it; and when the other one
    // came is told from when the first and the last of a run did. Of those that were there before this life, another clock tells.
    let latest = other.commit.answeredMs;
    for (const { priority: same, commit } of this.items) {
      if (same === other.priority && commit.acked) latest = Math.max(latest, commit.answeredMs);
    }
    const cameBefore = ({ madeMs, answeredMs }: Commit) => answeredMs === 0 || madeMs < latest;
    return (
      other.commit.answeredMs === 0 || this.items.some((each) => each.priority === priority && cameBefore(each.commit))
    );
  }

  private pendingDeliveriesBut(delivery: Commit): boolean {
    return this.deliveries.some(
      (each) => each !== delivery && (each.outcome === "pending" || each.outcome === "unknown"),
    );
  }

  /** A task was delivered and is done. */
  taken(delivery: Commit, number: number | undefined, nowMs: number): void {
    const item = this.item("what was taken", number);
    if (item === undefined) return;
    const what = `${this.name}: message ${item.number}`;
    if (this.model.showsDurable) item.commit.durable = true;
    if (item.acks.some((ack) => ack.acked)) this.violate(`${what} was taken after its ack was acknowledged`);
    if (!this.redrives.some(({ possible }) => possible)) this.model.flows.judge(item, what);
    const fact = this.tasks.get(item.place ?? "");
    if (fact?.token !== undefined && fact.settling.length === 0 && nowMs < fact.leaseEndMs) {
      this.violate(`${what} was taken at ${nowMs}, while leased until ${fact.leaseEndMs}`);
    }
    // One that was redriven has another place, and waits for nothing.
    const redriven = this.redrives.some((redrive) => redrive.possible);
    if (!redriven && nowMs < (fact?.dueMs ?? item.dueMs)) {
      this.violate(`${what} was taken at ${nowMs}, before it was due`);
    }
    item.acks.push(delivery);
    delivery.ended.push(item);
    if (fact !== undefined) fact.token = undefined;
  }

  /** Somebody who had asked at a moment was shown the next task. */
  peeked(number: number | undefined, attempts: number, askedNumber: number): void {
    const item = this.item("what was shown", number);
    if (item === undefined) return;
    const done = item.acks.find((ack) => ack.acked && ack.answeredNumber < askedNumber);
    if (done !== undefined) this.violate(`${this.name}: message ${item.number} is shown after its ${done.label}`);
    const fact = this.tasks.get(item.place ?? "");
    if (attempts > (fact?.attempt ?? 0) + this.pendingDeliveries) {
      this.violate(`${this.name}: message ${item.number} is shown with ${attempts} attempts`);
    }
  }

  /** The message that stands at a place, as it was delivered. */
  itemAt(place: string): Item | undefined {
    return this.tasks.get(place)?.item;
  }

  /** The token that a task is held under for sure. */
  tokenOf(item: Item, nowMs: number): string | undefined {
    const fact = this.tasks.get(item.place ?? "");
    return fact !== undefined && isHeld(fact, nowMs) ? fact.token : undefined;
  }

  /** Whether calls that were not answered may have taken tasks of which nobody knows. */
  get mayHaveTaken(): boolean {
    const open = ({ outcome }: Commit) => outcome === "pending" || outcome === "unknown";
    return this.takes.some(({ commit, left }) => left > 0 && open(commit));
  }

  /** A call has been answered that leaves the lease as it is. */
  touched(place: string, commit: Commit): void {
    const fact = this.tasks.get(place);
    if (fact !== undefined) fact.settling = fact.settling.filter((other) => other !== commit);
  }

  /** Who asked at a moment was told where a task stands. */
  standing(item: Item, state: TaskStatus["state"], askedNumber: number): void {
    const what = `${this.name}: message ${item.number} is said to be ${state}`;
    const ended = item.acks.find(({ number, acked, answeredNumber }) => {
      return number === 0 || (acked && answeredNumber < askedNumber);
    });
    // Of a task that is done, nothing may be left by which it can be told from one that never was.
    if (state !== "done" && state !== "unknown") {
      if (ended !== undefined) this.violate(`${what} after its ${ended.label}`);
    } else if (item.commit.acked && item.expiry === undefined && !this.dropsOldest && !this.mayHaveTaken) {
      if (![...item.acks, ...item.purges].some(({ possible }) => possible)) this.violate(what);
    }
  }

  /** A settling call is made. Returns whether it must be accepted, or must not be, as far as can be told. */
  settling(place: string, token: string, commit: Commit, ends: boolean): Expected {
    const fact = this.tasks.get(place);
    if (ends && fact !== undefined && fact.token === token) {
      fact.item.acks.push(commit);
      commit.ended.push(fact.item);
    }
    if (fact === undefined || fact.token !== token) return "stale";
    const others = fact.settling.filter((other) => other.possible && !LEAVE.has(other.label));
    fact.settling.push(commit);
    if (others.some((other) => other.acked)) return "stale";
    return fact.settling.length === 1 && commit.madeMs < fact.leaseEndMs ? "good" : "open";
  }

  /** How a settling call went. */
  settled(place: string, commit: Commit, expected: Expected, refused: boolean): void {
    const what = `${this.name} task ${place}`;
    if (!refused && expected === "stale") this.violate(`${what}: a stale ${commit.label} was accepted`);
    if (refused && expected === "good") this.violate(`${what}: a good ${commit.label} was refused as stale`);
  }

  extended(place: string, commit: Commit, leaseMs: number): void {
    const fact = this.tasks.get(place);
    if (fact === undefined || !fact.settling.includes(commit)) return;
    this.touched(place, commit);
    fact.before = {
      leaseEndMs: Math.min(fact.leaseEndMs, fact.before?.leaseEndMs ?? fact.leaseEndMs),
      session: fact.session || fact.before?.session === true,
      extension: commit,
    };
    fact.leaseEndMs = commit.madeMs + leaseMs;
    fact.session = false;
  }

  nacked(place: string, commit: Commit, delayMs: number): void {
    const fact = this.tasks.get(place);
    if (fact?.settling.includes(commit) === true) fact.dueMs = commit.madeMs + delayMs;
  }

  forgetDelays(): void {
    for (const item of this.items) {
      item.dueMs = 0;
      if (item.expiry !== undefined) item.expiry = { earliestMs: 0, latestMs: Number.POSITIVE_INFINITY };
    }
    for (const fact of this.tasks.values()) fact.dueMs = 0;
  }

  // ------------------------------------------------------------------------------------------------ the end of a life

  recovered(seen: SeenTasks | undefined, ending: Ending, found: Found): void {
    const live = new Set<string>();
    this.tookSome = this.mayHaveTaken;
    for (const task of seen?.live ?? []) {
      live.add(task.place);
      const gone = task.item === undefined && this.log !== undefined;
      // A record that is in somebody's hands may be gone from its log.
      const number = gone ? this.shown.get(task.place) : task.item;
      if (gone && number === undefined) continue;
      const item = this.item(task.place, number);
      if (item === undefined) continue;
      this.show(task.place, item);
      this.find(item, `task ${task.place}`, ending, found);
      this.recoveredTask(item, task, ending);
      if (item.rescheduling !== undefined && !isRequired(item.rescheduling, ending)) this.rescheduled(item, 0);
      item.place = task.place;
    }
    for (const letter of seen?.dead ?? []) {
      const item = this.item(letter.id, letter.item);
      if (item !== undefined) this.find(item, `dead letter ${letter.id}`, ending, found);
    }
    this.pauses = this.pauses.filter(({ commit }) => commit.possible);
    for (const { commit } of this.pauses) if (!isRequired(commit, ending)) commit.outcome = "unknown";
    this.clears = this.clears.filter((clear) => isRequired(clear, ending));
    for (const record of this.log?.items ?? []) {
      if (found.items.has(record) && record.offset! >= this.begins) this.item("", record.number);
    }
    for (const item of this.items) if (!found.items.has(item)) this.missing(item, ending, found);
    for (const [place, fact] of this.tasks) if (!live.has(place)) fact.token = undefined;
    this.redrives = this.redrives.filter((redrive) => redrive.possible);
    this.pace.recovered(ending, this.pendingDeliveries === 0);
    this.takes = [];
    this.deliveries = [];
  }

  private find(item: Item, where: string, ending: Ending, found: Found): void {
    if (found.items.has(item)) this.violate(`${this.name}: message ${item.number} is in two places, now ${where}`);
    found.items.add(item);
    const done = item.acks.find((ack) => isRequired(ack, ending));
    if (done !== undefined) this.violate(`${this.name}: message ${item.number} is ${where} after its ${done.label}`);
  }

  private missing(item: Item, ending: Ending, found: Found): void {
    if (!item.commit.possible) return;
    const expired = item.expiry !== undefined && item.expiry.earliestMs - WALL_ROUNDING_MS <= ending.nowMs;
    const called = item.acks.some((ack) => ack.possible) || item.purges.some((purge) => purge.possible);
    const needed = this.isNeeded(item, ending, found);
    const alone = expired || this.dropsOldest || this.isSuperseded(item, found);
    const ended = called || alone;
    // What may have been lost as well leaves the call its tasks, for those that must have been taken.
    const mayBeTaken = () => (needed ? this.wasTaken() : this.log === undefined && this.take !== undefined);
    if (ended || mayBeTaken()) {
      // Was it lost, or was it there and then ended? There is no telling, but it will not come back.
      if (!isRequired(item.commit, ending) || (this.log !== undefined && !needed)) found.unsure.add(item);
      found.gone.add(item);
      if (alone || this.take !== undefined) found.goneAlone.add(item);
    } else if (this.log !== undefined && needed) {
      this.violate(`${this.name}: message ${item.number} is not there, and was not done`);
    }
  }

  /** Whether a message that is in no place should be in one. */
  private isNeeded(item: Item, ending: Ending, found: Found): boolean {
    if (this.log === undefined) return isRequired(item.commit, ending);
    return found.items.has(this.model.items.get(item.number)!);
  }

  /** Whether a group may have passed over a record that its log still has. */
  private isSuperseded({ number }: Item, found: Found): boolean {
    const record = this.model.items.get(number)!;
    return found.items.has(record) && this.log?.isSuperseded(record, found) === true;
  }

  /** Whether a call that was never answered may have taken one more task. */
  private wasTaken(): boolean {
    const { take } = this;
    if (take !== undefined) take.left--;
    return take !== undefined;
  }

  private get take() {
    return this.takes.find(({ commit, left }) => commit.outcome === "unknown" && left > 0);
  }

  private recoveredTask(item: Item, task: SeenTask, ending: Ending): void {
    const { place } = task;
    let fact = this.tasks.get(place);
    if (fact === undefined) {
      fact = newFact(item, item.place === undefined || item.place === place ? item.dueMs : 0);
      this.tasks.set(place, fact);
    }
    const what = `${this.name} task ${place} (message ${item.number})`;
    const undone = fact.settling.some(({ label, releases, possible }) => (label === "release" || releases) && possible);
    // A close that was begun has given back what sessions hold.
    const least = fact.attempt - (undone || fact.session ? 1 : 0);
    const delivered = fact.delivery !== undefined && isRequired(fact.delivery, ending);
    if (delivered && task.attempt < least) {
      this.violate(`${what}: has had ${task.attempt} attempts; attempt ${fact.attempt} was delivered`);
    }
    if (task.attempt > fact.attempt + this.pendingDeliveries) {
      this.violate(`${what}: has had ${task.attempt} attempts; only ${fact.attempt} were delivered`);
    }
    const same = task.leased && task.token === fact.token && task.attempt === fact.attempt;
    const settled = fact.settling.some((commit) => commit.possible);
    const { before } = fact;
    if (before !== undefined && !isRequired(before.extension, ending)) {
      fact.leaseEndMs = Math.min(fact.leaseEndMs, before.leaseEndMs);
      fact.session ||= before.session;
    }
    fact.before = undefined;
    if (delivered && fact.token !== undefined && !same && !settled && !fact.session && ending.nowMs < fact.leaseEndMs) {
      this.violate(`${what}: the lease of attempt ${fact.attempt} is gone before its time`);
    }
    const back = fact.settling.find(({ label }) => ["nack", "bury", "release"].includes(label));
    if (same && back !== undefined && isRequired(back, ending)) {
      this.violate(`${what}: still leased after an acknowledged ${back.label}`);
    }
    if (
      same &&
      fact.session &&
      !settled &&
      before === undefined &&
      task.attempt < Math.min(this.maxAttempts, item.maxAttempts)
    ) {
      this.violate(`${what}: still leased to a session that is over`);
    }
    if (same) {
      // An extension that was never answered may have made the lease shorter; a session has come to its end.
      if (settled || fact.session) fact.leaseEndMs = 0;
      fact.session = false;
      fact.dueMs = 0;
      fact.settling = [];
      return;
    }
    // What was given back by the end of a session, and not by the call that was lost, waits for nothing.
    if (task.attempt !== fact.attempt || fact.session) fact.dueMs = 0;
    fact.attempt = task.attempt;
    // An earlier lease may be in force again, as what ended it was lost.
    fact.token = task.leased ? task.token : undefined;
    fact.leaseEndMs = 0;
    fact.delivery = undefined;
    fact.session = false;
    fact.settling = [];
  }

  private get pendingDeliveries(): number {
    return this.deliveries.filter(({ outcome }) => outcome === "pending" || outcome === "unknown").length;
  }

  /** After a recovery: what is gone will not come back. */
  adopt(found: Found): void {
    for (const item of this.items) {
      const gone = found.gone.has(item);
      if (found.unsure.has(item) && !gone) continue;
      // It has been done if somebody may have done it, and may have been ended all the same by a call that was first.
      const may = ({ possible, label }: Commit, ends: boolean) => possible && ENDS.has(label) === ends;
      const done = this.tookSome || item.acks.some((ack) => may(ack, false));
      const ended = item.acks.some((ack) => may(ack, true)) || item.purges.some(({ possible }) => possible);
      item.purges.length = 0;
      item.acks.length = 0;
      if (gone && done) item.acks.push(durableCommit("ack"));
      if (gone && (ended || !done)) item.acks.push(durableCommit("end"));
    }
  }

  /** A new life of the machine, `downMs` of wall clock time after the last. */
  restarted(shift: Shift, downMs: number): void {
    const wallMs = downMs + WALL_ROUNDING_MS;
    for (const item of this.items) {
      item.dueMs = shifted(item.dueMs, wallMs, shift);
      if (item.expiry === undefined) continue;
      const { earliestMs, latestMs } = item.expiry;
      const latest = shifted(latestMs, downMs - WALL_ROUNDING_MS, shift);
      item.expiry = { earliestMs: shifted(earliestMs, wallMs, shift), latestMs: latest };
    }
    for (const claim of this.claims) claim.sinceMs += shift.nowMs - shift.lastMs;
    this.pace.restarted(shift);
    for (const fact of this.tasks.values()) {
      fact.leaseEndMs = shifted(fact.leaseEndMs, 0, shift);
      if (fact.before !== undefined) {
        fact.before = { ...fact.before, leaseEndMs: shifted(fact.before.leaseEndMs, 0, shift) };
      }
      fact.dueMs = shifted(fact.dueMs, wallMs, shift);
    }
  }

  // ---------------------------------------------------------------------------------------------------------- private

  /** The item of this source that a message is. */
  item(where: string | number, number: number | undefined): Item | undefined {
    if (this.log === undefined) return this.model.known(this.name, where, number);
    const record = this.model.known(this.log.name, where, number);
    if (record === undefined) return undefined;
    let item = this.own.get(record.number);
    if (item === undefined) {
      item = newItem(record.number, this.name, record.commit);
      this.own.set(record.number, item);
      this.items.push(item);
    }
    return item;
  }

  /** A record of the log is sent again: what the group knew of it is lost. */
  forget(number: number): void {
    const item = this.own.get(number);
    if (item === undefined) return;
    this.own.delete(number);
    this.items.splice(this.items.indexOf(item), 1);
  }

  private show(place: string, item: Item): void {
    this.model.show(this.name, this.shown, place, item.number);
  }

  private violate(text: string): void {
    this.model.violate(text);
  }
}

/** Whether a task is in somebody's hands, as far as can be told. */
function isHeld({ token, settling, leaseEndMs }: TaskFact, nowMs: number): boolean {
  return token !== undefined && settling.length === 0 && nowMs < leaseEndMs;
}

/** Where a task stands that has an id and was not redriven. */
export function placeOfId(id: string): string {
  return id.includes("-") ? id.replace("-", ":") : `0:${id}`;
}

function placeIn(place: string): number {
  return Number(place.slice(place.indexOf(":") + 1));
}

function newFact(item: Item, dueMs: number): TaskFact {
  return {
    item,
    attempt: 0,
    delivery: undefined,
    token: undefined,
    leaseEndMs: 0,
    before: undefined,
    session: false,
    settling: [],
    dueMs,
  };
}
