/**
 * Compares a directory, of which it may take everything, with the journals of everyone who worked on its original.
 *
 * - acknowledged: is there, where the acknowledgement said, byte for byte; an acked task never comes back
 * - refused: is nowhere
 * - unknown (killed meanwhile, or ERR_OUTCOME_UNKNOWN): is there as a whole or not at all, and stays so
 * - a power cut may take what was acknowledged early, and only that: the youngest of it, across all queues, and nothing
 *   older than the interval between syncs and the syncs that were under way
 * - an offset once shown names one record for ever; attempts count up; a task has one holder at a time
 */

import type { MessageQueue } from "../../src/index.js";
import { idOf } from "../crash/journal.js";
import { LEASE_MS, TASK_OPTIONS } from "../crash/shape.js";
import type { ManualClock } from "../support/manual-clock.js";
import { countsOf, recordsOf } from "../support/state.js";
import type { Entry, Intent } from "./journal.js";

/** Codes with which a call may fail without having been refused. */
const UNKNOWN = new Set(["ERR_OUTCOME_UNKNOWN"]);
const PROBLEMS_MAX = 20;
/** How often in a row the judge may find nothing although there are tasks. */
const IDLE_ROUNDS_MAX = 50;
/** Clocks are rounded to milliseconds. */
const ROUNDING_MS = 2;

/** How the machine ended: with all that the operating system had, or without what was not synced. */
export type End = { readonly kind: "kill" } | { readonly kind: "cut"; readonly syncIntervalMs: number };

type Fate = "present" | "absent" | "maybe";

interface Call {
  readonly intent: Intent;
  readonly life: Life;
  /** In the order of all journal lines. */
  readonly line: number;
  outcome: "unknown" | "done" | "refused";
  doneLine: number;
  doneAt: number;
  offsets: readonly number[];
  /** Undefined until it has been judged. */
  fate: Fate | undefined;
}

/** One process, from its start to its end. */
interface Life {
  readonly entries: readonly Entry[];
  readonly endedAt: number;
  readonly opened: boolean;
}

interface Holder {
  readonly attempt: number;
  readonly asked: number;
  readonly early: boolean;
  givenBack: boolean;
}

interface Found {
  readonly records: Map<string, number>;
  /** Attempt of each task at its delivery to the judge. */
  readonly tasks: Map<string, number>;
  readonly head: number;
}

export class Judge {
  readonly #allowed: ReadonlySet<string>;
  /** Judged one by one when the next directory is seen. */
  #fresh: Call[] = [];
  #lives: Life[] = [];
  #lines = 0;
  readonly #byOp = new Map<string, Call>();
  /** The call that was to create a record or task. */
  readonly #creator = new Map<string, Call>();
  /** The calls that tried to ack a task. */
  readonly #ackers = new Map<string, Call[]>();
  readonly #holders = new Map<string, Holder>();
  /** Records and tasks that the last directory had. */
  readonly #records = new Map<string, number>();
  readonly #tasks = new Set<string>();
  /** Tasks that must never be seen again. */
  readonly #gone = new Set<string>();
  /** Every record that an offset was ever said to be of. */
  readonly #shown = new Map<number, string>();
  #head = 0;
  #next = 0;
  #trimMost = 0;
  #problems: string[] = [];

  acknowledged = 0;
  lost = 0;
  unknown = 0;
  deliveries = 0;

  /** @param allowed codes with which calls may fail, besides ERR_STALE_LEASE */
  constructor(allowed: readonly string[] = []) {
    this.#allowed = new Set(["ERR_STALE_LEASE", ...allowed]);
  }

  /** Where the log ended when last seen. */
  get next(): number {
    return this.#next;
  }

  /** Takes in the journal of one process, which ended at `endedAt`. */
  life(entries: readonly Entry[], endedAt: number): void {
    const life = { entries, endedAt, opened: entries.some(({ kind }) => kind === "opened") };
    this.#lives.push(life);
    for (const entry of entries) {
      const line = this.#lines++;
      switch (entry.kind) {
        case "intent":
          this.#intend(entry, life, line);
          break;
        case "done":
          this.#acknowledge(this.#byOp.get(entry.op) as Call, entry.offsets, line, entry.at);
          break;
        case "failed":
          this.#allow(entry.code, entry.op);
          if (!UNKNOWN.has(entry.code)) (this.#byOp.get(entry.op) as Call).outcome = "refused";
          break;
        case "trouble":
          this.#allow(entry.code, entry.what);
          break;
        case "took":
          this.#take(entry);
          break;
        case "giving": {
          const holder = this.#holders.get(entry.task);
          if (holder?.attempt === entry.attempt) holder.givenBack = true;
          break;
        }
        default:
      }
    }
  }

  /** Looks at everything in the directory, whose clock stands still. Throws if anything is not as it should be. */
  async see(mq: MessageQueue, clock: ManualClock, end: End): Promise<void> {
    const found = await this.#find(mq, clock);
    this.#checkKnown(found, end);
    for (const call of this.#fresh) this.#settle(call, found, end);
    if (end.kind === "cut") this.#checkLosses(end.syncIntervalMs);
    for (const id of found.tasks.keys()) this.#tasks.add(id);
    for (const [id, offset] of found.records) this.#records.set(id, offset);
    this.#fresh = [];
    this.#lives = [];
    this.#head = found.head;
    if (this.#problems.length > 0) throw new Error(this.#problems.slice(0, PROBLEMS_MAX).join("\n"));
  }

  // --------------------------------------------------------------------------------------------------- the journal

  #intend(intent: Intent & { readonly at: number }, life: Life, line: number): void {
    const call: Call = {
      intent,
      life,
      line,
      outcome: "unknown",
      doneLine: 0,
      doneAt: 0,
      offsets: [],
      fate: undefined,
    };
    this.#byOp.set(intent.op, call);
    this.#fresh.push(call);
    for (const id of [...intent.log, ...intent.tasks]) this.#creator.set(id, call);
    for (const { task } of intent.acks) {
      const ackers = this.#ackers.get(task);
      if (ackers === undefined) this.#ackers.set(task, [call]);
      else ackers.push(call);
    }
    this.#trimMost = Math.max(this.#trimMost, intent.trim ?? 0);
  }

  #acknowledge(call: Call, offsets: readonly number[], line: number, at: number): void {
    call.outcome = "done";
    call.doneLine = line;
    call.doneAt = at;
    call.offsets = offsets;
    this.acknowledged++;
    for (const [index, offset] of offsets.entries()) this.#show(offset, call.intent.log[index] as string);
    for (const { task, attempt } of call.intent.acks) {
      const holder = this.#holders.get(task);
      this.#check(holder?.attempt === attempt, () => `${task}: attempt ${attempt} was acked, but it is out again`);
    }
  }

  #take(entry: Extract<Entry, { kind: "took" }>): void {
    const { task, attempt, asked, at, durability } = entry;
    this.deliveries++;
    this.#check(this.#creator.has(task), () => `${task} was delivered, but never enqueued`);
    this.#check(!this.#gone.has(task), () => `${task} was delivered after it was gone`);
    const acked = this.#ackers.get(task)?.some(({ outcome, fate }) => outcome === "done" && fate !== "absent");
    this.#check(acked !== true, () => `${task} was acked and then delivered again`);
    const holder = this.#holders.get(task);
    if (holder !== undefined) {
      this.#check(attempt > holder.attempt, () => `${task}: attempt ${attempt} after attempt ${holder.attempt}`);
      const overlap = holder.asked + LEASE_MS - at;
      this.#check(holder.givenBack || overlap <= ROUNDING_MS, () => `${task} had two holders for ${overlap} ms`);
    }
    this.#holders.set(task, { attempt, asked, early: durability === "async", givenBack: false });
  }

  #allow(code: string, what: string): void {
    this.#check(this.#allowed.has(code), () => `${what} failed with ${code}`);
  }

  #show(offset: number, id: string): void {
    const before = this.#shown.get(offset);
    this.#check(before === undefined || before === id, () => `offset ${offset} was ${before} and is now ${id}`);
    this.#shown.set(offset, id);
  }

  // --------------------------------------------------------------------------------------------------- the directory

  async #find(mq: MessageQueue, clock: ManualClock): Promise<Found> {
    const log = await mq.openLog("events");
    const records = new Map<string, number>();
    const { head, next, count } = await log.stats();
    let previous = head - 1;
    for (const { offset, payload } of await recordsOf(log)) {
      this.#check(offset > previous && offset < next, () => `offset ${offset} after ${previous}, before ${next}`);
      previous = offset;
      const id = idOf(payload);
      this.#check(!records.has(id), () => `${id} is in the log twice`);
      records.set(id, offset);
      this.#show(offset, id);
    }
    this.#check(count === records.size, () => `the log's count is ${count}, but it has ${records.size} records`);
    this.#check(
      head <= this.#trimMost,
      () => `the log begins at ${head}, but was trimmed to ${this.#trimMost} at most`,
    );
    this.#next = next;
    const jobs = await mq.openTask("jobs", TASK_OPTIONS);
    const { ready, scheduled, leased, dead } = countsOf(await jobs.stats());
    this.#check(dead === 0, () => `${dead} tasks are dead`);
    // All leases run out, whoever held them.
    await clock.pass(60_000);
    const tasks = new Map<string, number>();
    for (let idle = 0; idle < IDLE_ROUNDS_MAX; ) {
      const batch = await jobs.dequeueBatch({ max: 1000, lease: "1d" });
      if (batch.length === 0) {
        const now = countsOf(await jobs.stats());
        if (now.ready + now.scheduled === 0 && now.leased === tasks.size) break;
        // Timers go off only while time passes.
        idle++;
        await clock.pass(1000);
      }
      for (const { payload, attempt } of batch) {
        const id = idOf(payload);
        this.#check(!tasks.has(id), () => `${id} was delivered twice under one lease`);
        tasks.set(id, attempt);
      }
    }
    const total = ready + scheduled + leased;
    this.#check(total === tasks.size, () => `${total} tasks were counted, and ${tasks.size} found`);
    return { records, tasks, head };
  }

  /** What was judged before is as it was then; what is there may be there. */
  #checkKnown({ records, tasks, head }: Found, end: End): void {
    for (const [id, offset] of this.#records) {
      if (offset < head) this.#records.delete(id);
      else this.#check(records.get(id) === offset, () => `${id} was at ${offset} before, is at ${records.get(id)} now`);
    }
    for (const id of [...records.keys(), ...tasks.keys()]) {
      const creator = this.#creator.get(id);
      this.#check(creator !== undefined, () => `nobody sent ${id}`);
      this.#check(creator?.outcome !== "refused", () => `${id} was refused`);
      this.#check(creator?.fate !== "absent", () => `${id} was lost and is back`);
    }
    for (const [id, attempt] of tasks) {
      this.#check(!this.#gone.has(id), () => `${id} was gone and is back`);
      const holder = this.#holders.get(id);
      if (holder === undefined) continue;
      // A power cut may take the delivery as well.
      if (end.kind === "cut" && holder.early) this.#holders.delete(id);
      else this.#check(attempt > holder.attempt, () => `${id}: attempt ${attempt} after attempt ${holder.attempt}`);
    }
    for (const id of this.#tasks) {
      if (tasks.has(id)) continue;
      const acked = this.#mayBeAcked(id);
      this.#check(acked, () => `${id} was there before, and nobody acked it`);
      this.#tasks.delete(id);
      this.#gone.add(id);
    }
  }

  #settle(call: Call, found: Found, end: End): void {
    const { intent, outcome } = call;
    const evidence: Fate[] = [];
    for (const [index, id] of intent.log.entries()) evidence.push(this.#recordFate(call, id, index, found));
    for (const id of intent.tasks) {
      evidence.push(found.tasks.has(id) ? "present" : this.#mayBeAcked(id) ? "maybe" : "absent");
    }
    for (const { task } of intent.acks) evidence.push(this.#ackFate(call, task, found));
    if (evidence.length === 0 && intent.trim !== undefined) {
      evidence.push(found.head >= intent.trim ? "maybe" : "absent");
    }
    const present = evidence.includes("present");
    const absent = evidence.includes("absent");
    this.#check(!(present && absent), () => `${intent.op} is there in part: ${evidence.join(" ")}`);
    call.fate = present ? "present" : absent ? "absent" : "maybe";
    if (outcome === "unknown") this.unknown++;
    if (outcome === "refused") {
      // An ack may be refused because somebody else's was taken.
      this.#check(!present || intent.log.length + intent.tasks.length === 0, () => `${intent.op} was refused`);
      call.fate = "absent";
    }
    if (outcome === "done" && !present) {
      const early = end.kind === "cut" && intent.durability === "async";
      this.#check(!absent || early, () => `${intent.op} was acknowledged (${intent.durability}) and is lost`);
      if (!absent && !early) call.fate = "present";
    }
    for (const id of intent.tasks) if (!found.tasks.has(id)) this.#gone.add(id);
  }

  #recordFate(call: Call, id: string, index: number, found: Found): Fate {
    if (found.records.has(id)) return "present";
    const offset = call.offsets[index];
    // Trimmed away, unless it never was.
    const trimmed = offset === undefined ? found.head > this.#head : offset < found.head;
    return trimmed ? "maybe" : "absent";
  }

  #ackFate(call: Call, task: string, found: Found): Fate {
    if (found.tasks.has(task)) return "absent";
    const others = this.#ackers.get(task)?.some((other) => other !== call && possible(other));
    return this.#creator.get(task)?.fate === "present" && others !== true ? "present" : "maybe";
  }

  #mayBeAcked(task: string): boolean {
    return this.#ackers.get(task)?.some(possible) === true;
  }

  /** Lost in a power cut: only the youngest of all, and only what no sync had come to. */
  #checkLosses(syncIntervalMs: number): void {
    const lost = this.#fresh.filter(({ outcome, fate }) => outcome === "done" && fate === "absent");
    this.lost += lost.length;
    const first = Math.min(...lost.map(({ doneLine }) => doneLine));
    for (const { fate, line, intent } of this.#fresh) {
      this.#check(
        fate !== "present" || line < first,
        () => `${intent.op} is there, though something acknowledged before it was called is lost`,
      );
    }
    for (const { life, intent, doneAt } of lost) {
      const later = this.#lives.slice(this.#lives.indexOf(life) + 1);
      this.#check(!later.some(({ opened }) => opened), () => `${intent.op} was lost after another process had opened`);
      const age = life.endedAt - doneAt;
      const allowed = syncIntervalMs + delays(life, doneAt);
      this.#check(
        age <= allowed,
        () => `${intent.op} was lost ${age.toFixed(1)} ms after it was acknowledged; ${allowed.toFixed(1)} are allowed`,
      );
    }
  }

  #check(condition: boolean, problem: () => string): void {
    if (!condition) this.#problems.push(problem());
  }
}

function possible({ outcome, fate }: Call): boolean {
  return outcome !== "refused" && fate !== "absent";
}

/** Milliseconds in which syncs were under way, or the event loop was held up, from a moment on to the end of a life. */
function delays({ entries, endedAt }: Life, since: number): number {
  let syncing = 0;
  let underWay = 0;
  let begun = 0;
  let turn = since;
  let gapMost = 0;
  for (const { kind, at } of entries) {
    if (kind === "syncing" && underWay++ === 0) begun = at;
    if (kind === "synced" && --underWay === 0 && at > since) syncing += at - begun;
    if (kind === "turn") {
      if (at > since) gapMost = Math.max(gapMost, at - turn);
      turn = at;
    }
  }
  if (underWay > 0) syncing += endedAt - begun;
  // The timer goes off late, and the thread that syncs gets its turn late.
  return syncing + 2 * Math.max(gapMost, endedAt - turn) + ROUNDING_MS;
}
