/** The clients of one life of the process: what they hold open, what they ask for, and how they are answered. */

import {
  isVarveError,
  type LogQueue,
  type MessageQueue,
  type RequestIdentity,
  type SharedGroup,
  type TaskQueue,
  type TaskSource,
} from "../../src/index.js";
import type { Commit, SeenRecord } from "./commit.js";
import { numberOf } from "./look.js";
import type { Model } from "./model.js";
import type { LogModel, LogRemoval } from "./model-log.js";
import type { TaskModel } from "./model-task.js";
import type { ConsumerRules, LogRules, Plan, Step } from "./plan.js";
import type { SimClock } from "./sim-clock.js";
import type { SimDisk } from "./sim-disk.js";

/** What clients live on. */
export interface Machine {
  readonly plan: Plan;
  readonly model: Model;
  readonly clock: SimClock;
  readonly disk: SimDisk;
  readonly mq: MessageQueue;
  note(line: string): void;
}

/** A task in a client's hands. */
export interface Held {
  /** Where it came from, as the model calls it. */
  readonly source: string;
  readonly place: string;
  readonly token: string;
}

/** A call with a name, by which it can be made again. */
export interface NamedCall<T> {
  readonly commit: Commit;
  /** Makes it, in whatever life; undefined when its queue cannot be had. */
  make(clients: Clients): Promise<{ readonly answer: Promise<T> } | undefined>;
  /** Notes what it was answered. */
  told(value: T): void;
}

export interface LogHandle {
  readonly log: LogQueue;
  readonly name: string;
  readonly model: LogModel;
  readonly rules: LogRules;
}

export interface SourceHandle {
  readonly source: TaskSource;
  readonly name: string;
  readonly model: TaskModel;
  readonly rules: ConsumerRules;
  /** When it is one. */
  readonly queue: TaskQueue | undefined;
  readonly group: SharedGroup | undefined;
}

/** Bytes of one commit, so that most are accepted. */
const COMMIT_BYTES_MAX = 100_000;
/** Tombstones that stay for so long stay for the whole of a run. */
const GRACE_MS = 86_400_000;
const RESULT_TTL_MS = 3_600_000;
const HELD_MAX = 40;
const STALE_MAX = 20;
/** Calls that were answered and are made again in the next life, at most. */
const KEPT_MAX = 8;

export class Clients {
  readonly machine: Machine;
  readonly #logs = new Map<number, LogHandle>();
  readonly #queues = new Map<number, SourceHandle>();
  /** Shared groups that were joined, by their rules' index. */
  readonly shared = new Map<number, SourceHandle>();
  readonly tails: AbortController[] = [];
  held: Held[] = [];
  readonly stale: Held[];
  readonly #lost: NamedCall<unknown>[];
  /** Calls with names that are not answered for good yet. */
  readonly #named = new Set<NamedCall<unknown>>();
  /** Those of them that were answered. */
  readonly #kept: NamedCall<unknown>[] = [];
  /** Calls that are not answered yet. */
  pending = 0;

  /**
   * @param stale tokens from earlier lives
   * @param lost calls of earlier lives whose answers were lost
   */
  constructor(machine: Machine, stale: Held[], lost: NamedCall<unknown>[]) {
    this.machine = machine;
    this.stale = stale;
    this.#lost = lost;
  }

  get model(): Model {
    return this.machine.model;
  }

  get nowMs(): number {
    return this.machine.clock.elapsedMs();
  }

  get halted(): boolean {
    return this.machine.disk.halted;
  }

  note(line: string): void {
    this.machine.note(line);
  }

  /** The process has ended. */
  end(): void {
    this.discard(this.held.slice(-4));
    this.#lost.push(...this.#named);
  }

  discard(held: readonly Held[]): void {
    this.stale.push(...held);
    if (this.stale.length > STALE_MAX) this.stale.splice(0, STALE_MAX / 2);
  }

  take(held: Held): void {
    this.held.push(held);
    if (this.held.length > HELD_MAX) this.discard(this.held.splice(0, 5));
  }

  // ---------------------------------------------------------------------------------------------------------- handles

  /** Undefined when the process has ended meanwhile. */
  async log({ queue }: Pick<Step, "queue">): Promise<LogHandle | undefined> {
    const { plan, mq } = this.machine;
    const index = queue % plan.logs.length;
    const known = this.#logs.get(index);
    if (known !== undefined) return known;
    if (this.model.isUncertain(`log/l${index}`)) return undefined;
    const rules = plan.logs[index]!;
    const log = await this.await(mq.openLog(`l${index}`, rules));
    if (log === undefined) return undefined;
    const name = `log/l${index}`;
    const model = this.model.log(name);
    model.removal = removalOf(rules);
    const handle = { log, name, model, rules };
    this.#logs.set(index, handle);
    return handle;
  }

  async queue({ queue }: Pick<Step, "queue">): Promise<SourceHandle | undefined> {
    const { plan, mq } = this.machine;
    const index = queue % plan.tasks.length;
    const known = this.#queues.get(index);
    if (known !== undefined) return known;
    const rules = plan.tasks[index]!;
    const name = `task/t${index}`;
    if (this.model.isUncertain(name)) return undefined;
    const model = this.model.queue(name, rules.maxAttempts);
    model.windowMs = rules.dedupe.window;
    model.dropsOldest = rules.limits?.whenFull === "drop-oldest";
    const { onExpire, dedupe, limits, resultTtl = RESULT_TTL_MS, pace = {} } = rules;
    model.resultTtlMs = resultTtl;
    model.paced(pace);
    const settings = { ...consumerOptions(rules), onExpire, dedupe, limits, resultTtl, ...pace };
    const opened = await this.await(mq.openTask(`t${index}`, settings));
    if (opened === undefined) return undefined;
    const handle = { source: opened, name, model, rules, queue: opened, group: undefined };
    this.#queues.set(index, handle);
    return handle;
  }

  /** A queue is being deleted: nothing of it is open any more. */
  drop(name: string): void {
    const index = Number(/\d+$/.exec(name)![0]);
    if (name.startsWith("task/")) this.#queues.delete(index);
    else this.#logs.delete(index);
    const gone = ({ source }: Held) => source === name || source.startsWith(name.replace("log/", "group/"));
    this.discard(this.held.filter(gone).slice(0, 3));
    this.held = this.held.filter((held) => !gone(held));
    for (const [key, { name: group }] of this.shared) {
      if (group.startsWith(`${name.replace("log/", "group/")}/`)) this.shared.delete(key);
    }
  }

  /** The source that a task came from, if it is open. */
  sourceOf({ source }: Held): SourceHandle | undefined {
    return [...this.#queues.values(), ...this.shared.values()].find(({ name }) => name === source);
  }

  // ---------------------------------------------------------------------------------------------------------- answers

  begin(label: string, { mode }: Partial<Pick<Step, "mode">>): Commit {
    const sync = (mode ?? this.machine.plan.durability) === "sync";
    return this.model.begin(label, sync, this.nowMs);
  }

  /** Notes how a call that changes something is answered. */
  track<T>(commit: Commit, run: Promise<T>, then?: (value: T) => void, otherwise?: (error: unknown) => void): void {
    this.pending++;
    run.then(
      (value) => {
        if (this.halted) return;
        this.pending--;
        this.note(`${commit.label} ${commit.number}: done`);
        this.model.acked(commit, this.nowMs);
        then?.(value);
      },
      (error: unknown) => {
        if (this.halted) return;
        this.pending--;
        const code = this.expectError(`${commit.label} ${commit.number}`, error);
        commit.outcome = code === "ERR_OUTCOME_UNKNOWN" ? "unknown" : "refused";
        otherwise?.(error);
      },
    );
  }

  /** The name of a call, in a plan in which they have some. */
  nameOf({ number }: Commit): { readonly request?: RequestIdentity } {
    const { plan } = this.machine;
    if (plan.repeats !== true) return {};
    const producer = Buffer.alloc(16, `producer ${plan.seed}`);
    // Numbers are given to other things as well; what is not named here will not be repeated.
    const open = [...this.#named, ...this.#lost].map(({ commit }) => commit.number);
    const settled = number % 2 === 0 ? Math.min(number, ...open) - 1 : 0;
    return { request: { producer, sequence: number, settled } };
  }

  /** As `track`, of a call that was made with its name. One that was answered is made again now and then. */
  trackNamed<T>(call: NamedCall<T>, answer: Promise<T>): void {
    const { commit } = call;
    this.#named.add(call);
    const done = (value: T) => {
      call.told(value);
      if (commit.number % 3 === 0) void this.#repeat(call, value);
      else if (commit.number % 3 === 1) this.#keep(call);
      else this.#named.delete(call);
    };
    this.track(commit, answer, done, () => {
      if (commit.outcome !== "unknown") this.#named.delete(call);
    });
  }

  /** As if its answer was lost on the way: it will be made again in the next life. */
  #keep(call: NamedCall<unknown>): void {
    this.#kept.push(call);
    if (this.#kept.length > KEPT_MAX) this.#named.delete(this.#kept.shift()!);
  }

  /** Makes a call again that was answered: it must be answered the same. */
  async #repeat<T>(call: NamedCall<T>, value: T): Promise<void> {
    const { commit } = call;
    const again = await call.make(this).catch(() => undefined);
    if (again === undefined) return;
    this.#watchRepeat(call, again.answer, (told) => {
      if (JSON.stringify(told) === JSON.stringify(value)) return;
      this.model.violate(`${commit.label} ${commit.number} was answered ${value}, and ${told} when it was made again`);
    });
  }

  /** Of a call that has been carried out: it is not refused now. */
  #watchRepeat<T>(call: NamedCall<T>, answer: Promise<T>, then: (value: T) => void): void {
    const { label, number } = call.commit;
    const refused = (error: unknown) => {
      this.#named.delete(call);
      if (isVarveError(error, "ERR_CLOSED") || this.machine.disk.faulted.length > 0) return;
      this.model.violate(`${label} ${number} was carried out, and when it was made again: ${describeError(error)}`);
    };
    this.watch(`${label} ${number}, again`, answer, then, refused);
    answer.then(
      () => this.#named.delete(call),
      () => {},
    );
  }

  /** Makes calls of earlier lives again whose answers were lost: whether or not they were carried out, now they are, once. */
  async repeatLost(): Promise<void> {
    for (const call of this.#lost.splice(0)) {
      const { commit } = call;
      // There is no telling, or nothing left to tell it by.
      if (commit.outcome === "unknown" || commit.items.some(({ deleted }) => deleted)) continue;
      const made = await call.make(this).catch(() => undefined);
      if (made === undefined) continue;
      this.note(`${commit.label} ${commit.number}, again: it was ${commit.outcome}`);
      this.#named.add(call);
      if (commit.acked) {
        this.#watchRepeat(call, made.answer, (value) => call.told(value));
        continue;
      }
      commit.outcome = "pending";
      for (const item of commit.items) this.model.sentAgain(item);
      this.trackNamed(call, made.answer);
    }
    await this.machine.clock.run(() => this.pending === 0 || this.halted, 1000);
  }

  /** Notes how a call that changes nothing is answered. */
  watch<T>(what: string, run: Promise<T>, then: (value: T) => void, otherwise?: (error: unknown) => void): void {
    this.pending++;
    run.then(
      (value) => {
        if (this.halted) return;
        this.pending--;
        this.note(`${what}: done`);
        then(value);
      },
      (error: unknown) => {
        if (this.halted) return;
        this.pending--;
        this.expectError(what, error);
        otherwise?.(error);
      },
    );
  }

  /** Checks that an error is one that the circumstances allow; returns its code. */
  expectError(what: string, error: unknown): string {
    const { disk } = this.machine;
    const code = isVarveError(error) ? error.code : "";
    this.note(`${what}: ${describeError(error)}`);
    if (isExpected(code, what, disk)) return code;
    const faulty = disk.faulted.length > 0 ? ` after a fault of ${disk.faulted}` : "";
    this.model.violate(`${what} failed with ${describeError(error)}${faulty}`);
    return code;
  }

  /** Runs the machine until the promise settles; undefined when the process ended first. */
  await<T>(promise: Promise<T>): Promise<T | undefined> {
    return settled(this.machine, promise);
  }

  /** As `track`, and runs the machine until it is answered. */
  async awaitTracked<T>(
    commit: Commit,
    run: Promise<T>,
    then?: (value: T) => void,
    otherwise?: (error: unknown) => void,
  ): Promise<void> {
    this.track(commit, run, then, otherwise);
    await this.await(run.catch(() => {}));
  }

  // ------------------------------------------------------------------------------------------------------------- seen

  /** A record was read, by whoever. */
  read(
    log: Pick<LogHandle, "model">,
    record: { readonly offset: number; readonly payload: Buffer; readonly headers: Readonly<Record<string, string>> },
  ): SeenRecord {
    const seen = { offset: record.offset, item: numberOf(record.payload, () => record.headers) };
    log.model.read(seen);
    return seen;
  }

  /** Sizes of messages that fit one commit. */
  sizes(count: number, { size, pick }: Pick<Step, "size" | "pick">): number[] {
    const most = Math.max(1, Math.min(count, Math.floor(COMMIT_BYTES_MAX / (size + 200))));
    return Array.from({ length: most }, (_, index) => Math.max(0, size - ((pick + index) % 17)));
  }
}

/** Runs a machine until the promise settles; undefined when the process ended first. */
export async function settled<T>(
  { clock, disk }: Pick<Machine, "clock" | "disk">,
  promise: Promise<T>,
): Promise<T | undefined> {
  let done = false;
  const settle = () => {
    done = true;
  };
  promise.then(settle, settle);
  if (!(await clock.run(() => done || disk.halted, 3_600_000))) {
    throw new Error("stuck: a call is not answered, and nothing is left to run");
  }
  if (disk.halted) return undefined;
  return await promise;
}

/** The options that task queues and shared groups have in common. */
export function consumerOptions({ leaseMs, maxAttempts, backoffMs }: ConsumerRules) {
  return { lease: leaseMs, maxAttempts, backoff: { initial: backoffMs, max: 5000 } };
}

function removalOf({ retention, limits, compaction }: LogRules): LogRemoval {
  const drops = limits?.whenFull === "drop-oldest" ? limits.maxCount : Number.POSITIVE_INFINITY;
  // What age or compaction has left says nothing of how much there was.
  const unknown = compaction !== undefined || retention?.maxAge !== undefined;
  const removes = unknown && (retention !== undefined || Number.isFinite(drops));
  return {
    leavesRecords: removes ? 0 : Math.min(retention?.maxCount ?? Number.POSITIVE_INFINITY, drops),
    leavesBytes: retention?.maxBytes ?? Number.POSITIVE_INFINITY,
    compacts: compaction !== undefined,
    tombstonesGo: compaction !== undefined && compaction.grace < GRACE_MS,
    holdsRecords: compaction === undefined ? (limits?.maxCount ?? Number.POSITIVE_INFINITY) : Number.POSITIVE_INFINITY,
  };
}

/** Whether an error is one that the circumstances allow. */
export function isExpected(code: string, what: string, disk: SimDisk): boolean {
  if (["ERR_STALE_LEASE", "ERR_TOO_LARGE", "ERR_CLOSED", "ERR_OVERLOADED", "ERR_OFFSET_OUT_OF_RANGE"].includes(code)) {
    return true;
  }
  if (["ERR_QUEUE_FULL", "ERR_FENCED", "ERR_NOT_FOUND"].includes(code)) return true;
  // The token of a queue or group that was deleted, of which there may be another one by now.
  if (code === "ERR_TOKEN" && /^(ack|nack|bury|release|extend|progress|transaction)/.test(what)) return true;
  if (["ERR_TIMEOUT", "ERR_TASK_DEAD"].includes(code) && what.startsWith("result")) return true;
  if (code === "ERR_ARGUMENT" && /^(commitGroup|transaction)/.test(what)) return true;
  const faulty = disk.faulted.length > 0;
  if (code === "ERR_DISK_FULL") return faulty || Number.isFinite(disk.capacityBytes);
  if (code === "ERR_ACCESS") return what === "open" && faulty;
  return ["ERR_READ_ONLY", "ERR_OUTCOME_UNKNOWN", "ERR_IO"].includes(code) && faulty;
}

export function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code } = error as { code?: string };
  return isVarveError(error) ? `${code}: ${error.message}` : (error.stack ?? error.message);
}
