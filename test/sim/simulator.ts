/**
 * Runs a plan: the production engine on a simulated machine, clients that use every call, the end of the process at any
 * disk call, recovery (which may meet its own end), and a comparison with the model each time. At last the machine is
 * well: everything must be readable, and every task must come to its end.
 */

import { type ResolvedOpenOptions, resolveOpenOptions } from "../../src/api/options.js";
import type { CatalogEntry } from "../../src/engine/catalog.js";
import { openError, prepareDirectory } from "../../src/engine/directory.js";
import type { Engine, EnginePlatform } from "../../src/engine/engine.js";
import { type OpenedDirectory, openDirectory } from "../../src/engine/recovery.js";
import {
  isVarveError,
  type LogQueue,
  type MessageQueue,
  type OpenOptions,
  type Task,
  type TaskQueue,
} from "../../src/index.js";
import { kinds } from "../../src/queues/kinds.js";
import { TaskPhase } from "../../src/queues/ledger.js";
import type { LogState } from "../../src/queues/log-state.js";
import { EmbeddedMessageQueue } from "../../src/queues/message-queue.js";
import { decodeTaskAttributes, isSetAside } from "../../src/queues/task-record.js";
import { TaskState } from "../../src/queues/task-state.js";
import { formatToken } from "../../src/queues/task-token.js";
import type { RecordCursor } from "../../src/storage/batch.js";
import { ChunkPool } from "../../src/storage/memory.js";
import type { Stream } from "../../src/storage/stream.js";
import { StreamReader } from "../../src/storage/stream-reader.js";
import { type Commit, type Ending, Model, type SeenLog, type SeenTask, type SeenTasks } from "./model.js";
import { itemOf, payloadOf } from "./payload.js";
import { type Aim, type Astray, type End, EVERY_END, type Fault, type Plan, type Round, type Step } from "./plan.js";
import { SimClock } from "./sim-clock.js";
import { type CallKind, SimDisk } from "./sim-disk.js";
import { SimRandom } from "./sim-random.js";
import { Witness } from "./witness.js";

const DIRECTORY = "/data";
/** Time that a sync may take, on a simulated disk that has its slow moments. */
const SYNC_MS_MAX = 1000;
/** Bytes of one commit, so that most are accepted. */
const COMMIT_BYTES_MAX = 100_000;
const DRAIN_ROUNDS_MAX = 3000;

export interface Report {
  readonly seed: number;
  /** What went wrong, first things first; empty when nothing did. */
  readonly violations: readonly string[];
  /** Over all disk calls and all answers: equal for equal runs. */
  readonly hash: string;
  /** Ends of the process, each followed by a recovery; most lives are given two. */
  readonly cycles: number;
  /** For each round, whether the call at which it was to end was made. */
  readonly halted: readonly boolean[];
  /** Scheduled faults that were met. */
  readonly faults: number;
  readonly calls: number;
  readonly commits: number;
  readonly checkpoints: number;
}

/** A task in a client's hands. */
interface Held {
  readonly queue: number;
  readonly id: number;
  readonly token: string;
}

/** How one life or several ended. */
interface Ended {
  kind: Ending["kind"];
  power: boolean;
  nowMs: number;
  faulty: boolean;
  dequeues: number;
  lives: number;
}

/** Thrown to end a run at the first violation: what comes after means little. */
class Violated extends Error {}

/** @param otherEnds whether each life is recovered from a second end as well */
export async function simulate(plan: Plan, trace?: (line: string) => void, otherEnds = true): Promise<Report> {
  const simulator = new Simulator(plan, trace);
  simulator.otherEnds = otherEnds;
  return await simulator.run();
}

export class Simulator {
  readonly #plan: Plan;
  readonly #options: ResolvedOpenOptions;
  readonly #trace: ((line: string) => void) | undefined;
  #random: SimRandom;
  readonly #branchRandom: SimRandom;
  #model = new Model();
  #witness = new Witness();
  clock: SimClock;
  disk: SimDisk;
  otherEnds = true;
  #hash = 0x811c9dc5;
  #cycles = 0;
  readonly #halted: boolean[] = [];
  #faults = 0;
  #calls = 0;
  #commits = 0;
  #checkpoints = 0;

  #engine: Engine | undefined;
  #mq: MessageQueue | undefined;
  #logs = new Map<number, LogQueue>();
  #tasks = new Map<number, TaskQueue>();
  #held: Held[] = [];
  #stale: Held[] = [];
  #pending = 0;
  #dequeues = 0;
  #tails: AbortController[] = [];
  /** How the lives ended since the model was last compared. */
  #ending: Ended | undefined;
  /** The directory was closed in order. */
  #closed = false;
  /** The end at a call of one kind, and how many of those are still to come. */
  #halt: { readonly on: Aim; left: number; readonly written: number } | undefined;
  /** Faults on calls of one kind, and how many of those are still to come. */
  #aimed: { readonly fault: Fault; left: number }[] = [];
  /** Writes until the one that goes astray, and whether that has come. */
  #writesLeft = 0;
  #astray: Astray | undefined;
  #astrayMet = false;
  /** Up to where the log of the life before said that it was durable. */
  vouchedLsn = 0;

  /** @param origin whose life this is as well, up to its end */
  constructor(plan: Plan, trace: ((line: string) => void) | undefined, origin?: Simulator) {
    this.#plan = plan;
    this.#trace = trace;
    if (origin !== undefined) {
      this.#options = origin.#options;
      this.#branchRandom = origin.#branchRandom.fork();
      this.#random = this.#branchRandom;
      this.#model = origin.#model.clone();
      this.#witness = origin.#witness.clone();
      this.clock = origin.clock;
      this.disk = origin.disk;
      return;
    }
    this.#options = optionsOf(plan);
    this.#branchRandom = new SimRandom(plan.seed ^ 0xb2a);
    this.#random = new SimRandom(plan.seed ^ 0x5eed);
    this.clock = new SimClock(this.#random.fork());
    this.disk = new SimDisk({ clock: this.clock, random: this.#random.fork() });
    this.#watchDisk();
  }

  /** @param liveness false leaves the machine as the last round did */
  async run(liveness = true): Promise<Report> {
    const violations: string[] = [];
    try {
      for (const [index, round] of this.#plan.rounds.entries()) {
        this.#note(`-- round ${index}, ends with ${round.close ? "close, " : ""}${round.end}`);
        this.#astray = round.astray;
        await this.#round(round);
        if (this.#astrayMet) break;
      }
      if (this.#astrayMet) await this.#suspect();
      else if (liveness) await this.#liveness();
    } catch (error) {
      if (!(error instanceof Violated))
        violations.push(error instanceof Error ? (error.stack ?? error.message) : String(error));
    }
    violations.unshift(...this.#model.violations);
    this.#calls += this.disk.calls;
    return {
      seed: this.#plan.seed,
      violations,
      hash: (this.#hash >>> 0).toString(16).padStart(8, "0"),
      cycles: this.#cycles,
      halted: this.#halted,
      faults: this.#faults + this.disk.faulted.length,
      calls: this.#calls,
      commits: this.#commits,
      checkpoints: this.#checkpoints,
    };
  }

  // ------------------------------------------------------------------------------------------------------------- life

  async #round(round: Round): Promise<void> {
    const { disk } = this;
    disk.capacityBytes = round.capacityBytes > 0 ? disk.usedBytes + round.capacityBytes : Number.POSITIVE_INFINITY;
    if (!round.fromOpen) this.#schedule(round);
    if (await this.#open()) {
      await this.#audit();
      if (round.fromOpen) this.#schedule(round);
      this.#writesLeft = round.astray?.write ?? 0;
      for (const step of round.steps) {
        if (disk.halted) break;
        await this.#step(step);
        this.#check();
      }
      if (round.close && !disk.halted) await this.#close();
    }
    await this.#end(round);
    this.#writesLeft = 0;
    this.#aimed = [];
    this.#halt = undefined;
  }

  #schedule({ haltAtCall, haltOn, haltWritten, faults }: Round): void {
    const { disk } = this;
    const base = disk.calls;
    this.#halt = haltOn === undefined ? undefined : { on: haltOn, left: haltAtCall, written: haltWritten };
    if (haltAtCall > 0 && haltOn === undefined) disk.haltAt(base + haltAtCall, haltWritten);
    this.#aimed = faults.flatMap((fault) => (fault.on === undefined ? [] : [{ fault, left: fault.call }]));
    for (const { call, on, errno, sticky, written, reverted, short } of faults) {
      if (on !== undefined) continue;
      if (short) disk.shortWriteAt(base + call, Math.max(1, written));
      else disk.failAt(base + call, { errno, sticky, written, pages: reverted ? "reverted" : "kept" });
    }
  }

  /** True when the directory is open; false when the process ended meanwhile. */
  async #open(): Promise<boolean> {
    for (let attempt = 0; ; attempt++) {
      const faults = this.disk.faulted.length;
      const full = Number.isFinite(this.disk.capacityBytes);
      try {
        const opened = await this.#await(this.#openOnce());
        if (opened === undefined) return false;
        this.#witness.watch(opened);
        return true;
      } catch (error) {
        if (this.disk.halted) return false;
        this.#note(`open failed: ${error}`);
        this.#expectError("open", error);
        // A file system whose journal has failed serves no one before the machine has started anew.
        if (this.#journalFailed) return false;
        const excused = this.disk.faulted.length > faults || full;
        if (!excused || attempt > 1) throw new Error(`the directory does not open: ${describeError(error)}`);
        this.#soften();
      }
    }
  }

  get #journalFailed(): boolean {
    return this.disk.faulted.includes("syncDirectory");
  }

  /** The disk is well again. */
  #soften(): void {
    this.disk.clearFaults();
    this.#aimed = [];
    this.disk.capacityBytes = Number.POSITIVE_INFINITY;
  }

  /** What `openEmbedded` does, keeping hold of the engine. */
  async #openOnce(): Promise<Engine> {
    const platform = { disk: this.disk, clock: this.clock, random: this.#random.fork() };
    const { engine, checkpointer, report } = await openDirectoryOf(platform, this.#options);
    this.#note(`opened: lsn ${engine.lsn}, ${JSON.stringify(report)}`);
    const ending = this.#ending;
    if (ending !== undefined) {
      // An attempt to open it that failed leaves something to recover.
      const faulty = ending.faulty || this.disk.faulted.length > 0;
      if (ending.kind === "close" && ending.lives === 1 && !faulty && !ending.power && report.recovered) {
        this.#model.unexpected(`recovered after an orderly close: ${report.notes.join("; ")}`);
      }
      for (const difference of this.#witness.differences(engine)) this.#model.unexpected(difference);
    }
    this.#engine = engine;
    this.#mq = new EmbeddedMessageQueue(engine, checkpointer, report, () => {});
    return engine;
  }

  async #close(): Promise<void> {
    for (const tail of this.#tails) tail.abort();
    this.#note("close");
    const closing = this.#mq!.close().catch((error: unknown) => {
      if (this.#engine!.failure === undefined || !isVarveError(error, "ERR_OUTCOME_UNKNOWN")) throw error;
    });
    await this.#await(closing);
    if (this.disk.halted) return;
    // What was accepted before has been answered by now, or never will be.
    await this.clock.run(() => this.#pending === 0, SYNC_MS_MAX);
    const failed = this.#engine!.failure !== undefined;
    if (!failed && this.#pending > 0) this.#model.unexpected(`${this.#pending} calls were not answered by close()`);
    this.#closed = !failed;
  }

  /** Ends the process, and starts the next machine. */
  async #end({ end: wanted, holes, downMs }: Round): Promise<void> {
    const end = wanted === "kill" && this.#journalFailed ? "random" : wanted;
    const lastMs = this.clock.elapsedMs();
    const other = this.#drawOtherEnd(end);
    const otherEnding = other && this.#endingWith(other);
    this.#ending = this.#endingWith(end);
    this.#closed = false;
    this.#halted.push(this.disk.halted);
    this.#faults += this.disk.faulted.length;
    this.disk.halt();
    // A kill leaves entries that are not durable as well.
    if (this.#engine !== undefined) {
      this.vouchedLsn = this.#witness.vouchedLsn(end === "kill" ? this.#engine.lsn : this.#engine.durableLsn);
    }
    this.#checkpoints += this.#engine?.checkpoints ?? 0;
    this.#commits += this.#engine?.commits ?? 0;
    this.#calls += this.disk.calls;
    this.#model.silence();
    this.#engine = undefined;
    this.#mq = undefined;
    this.#logs.clear();
    this.#tasks.clear();
    this.#tails = [];
    this.#stale.push(...this.#held.slice(-4));
    if (this.#stale.length > 20) this.#stale.splice(0, 10);
    this.#pending = 0;
    this.#dequeues = 0;
    this.#cycles++;
    const branch = otherEnding && new Simulator(this.#plan, this.#trace, this);
    const { clock, disk } = this;
    this.#startAnew(end, clock.restart(downMs), disk, lastMs, { holes, downMs });
    if (branch !== undefined) {
      branch.#ending = otherEnding;
      branch.#startAnew(other!, clock.successor(downMs, branch.#random), disk, lastMs, { holes, downMs });
      await this.#compareBranch(branch, other!);
    }
    this.#check();
    await Promise.resolve();
  }

  #startAnew(
    end: End,
    clock: SimClock,
    before: SimDisk,
    lastMs: number,
    { holes, downMs }: Pick<Round, "holes" | "downMs">,
  ) {
    this.disk =
      end === "kill" ? before.kill(this.#random, { clock }) : before.crash(end, this.#random, { clock, holes });
    this.clock = clock;
    this.#watchDisk();
    const nowMs = clock.elapsedMs();
    this.#model.restarted(lastMs, nowMs, downMs);
    if (this.#ending !== undefined) this.#ending.nowMs += nowMs - lastMs;
  }

  /** Several ends with no comparison between them count as the worst of them, at the time of the first. */
  #endingWith(end: End): Ended {
    const power = end !== "kill";
    const kind = this.#closed ? "close" : power ? "power" : "kill";
    const faulty = this.disk.faulted.length > 0 || Number.isFinite(this.disk.capacityBytes);
    const before = this.#ending;
    if (before === undefined) {
      return { kind, power, nowMs: this.clock.elapsedMs(), faulty, dequeues: this.#dequeues, lives: 1 };
    }
    const both = { ...before, lives: before.lives + 1, power: before.power || power };
    // Nothing was acknowledged in between; what was durable when the directory was closed stays so.
    if (before.kind === "close") return both;
    return { ...both, faulty: before.faulty || faulty, kind: kind === "power" ? kind : before.kind };
  }

  /** Another way in which this life might have ended, which is tried as well; what comes after it is not. */
  #drawOtherEnd(end: End): End | undefined {
    if (!this.otherEnds || this.#astrayMet) return undefined;
    const ends = EVERY_END.filter((each) => each !== end && (each !== "kill" || !this.#journalFailed));
    return this.#branchRandom.pick(ends);
  }

  /** Recovers what another end left, and compares it with what was promised. */
  async #compareBranch(branch: Simulator, end: End): Promise<void> {
    this.#note(`-- had it been ${end}`);
    branch.disk.capacityBytes = Number.POSITIVE_INFINITY;
    const wrong: string[] = [];
    try {
      if (await branch.#open()) await branch.#audit();
    } catch (error) {
      if (!(error instanceof Violated))
        wrong.push(error instanceof Error ? (error.stack ?? error.message) : `${error}`);
    }
    branch.disk.halt();
    this.#cycles++;
    this.#calls += branch.disk.calls;
    this.#mix(`${branch.#hash}`);
    for (const what of [...branch.#model.violations, ...wrong]) {
      this.#model.unexpected(`${what} (had the end been ${end})`);
    }
  }

  #watchDisk(): void {
    this.disk.onCall = (kind, path, call) => {
      this.#mix(`${kind} ${path}`);
      const halt = this.#halt;
      if (halt !== undefined && isAimedAt(halt.on, kind, path) && --halt.left === 0) {
        this.disk.haltAt(call, halt.written);
      }
      for (const aimed of this.#aimed) {
        const { on, errno, sticky, written, reverted } = aimed.fault;
        if (on === undefined || !isAimedAt(on, kind, path) || --aimed.left !== 0) continue;
        this.disk.failAt(call, { errno, sticky, written, pages: reverted ? "reverted" : "kept" });
      }
      if ((kind === "write" || kind === "writeSync") && this.#writesLeft > 0 && --this.#writesLeft === 0) {
        this.#sendAstray(path, call);
      }
      this.#trace?.(`   ${call} ${kind} ${path}`);
    };
  }

  // ----------------------------------------------------------------------------------------------------- a lying disk

  #sendAstray(path: string, call: number): void {
    const { byBytes } = this.#astray!;
    this.#note(`${path}: ${byBytes === 0 ? "lost" : `astray by ${byBytes}`}`);
    if (byBytes === 0) this.disk.loseWriteAt(call);
    else this.disk.misdirectWriteAt(call, byBytes);
    this.#astrayMet = true;
  }

  /**
   * What a disk that lied about one write left may be refused, or reported as damaged when it is read. It may have lost the
   * last commits, as no one can tell. It is never wrong, and nothing is missing from the midst of it in silence.
   */
  async #suspect(): Promise<void> {
    this.#note("-- suspect");
    this.#soften();
    const isDamage = (error: unknown) => isVarveError(error, "ERR_CORRUPT");
    this.#ending = undefined;
    try {
      await this.#await(this.#openOnce());
      const engine = this.#engine!;
      // Another write may have been hit by a misdirected one, and that may be the one that vouched.
      if (this.#astray!.byBytes === 0 && engine.lsn < this.vouchedLsn) {
        this.#model.unexpected(
          `entry ${this.vouchedLsn} was durable; the log was cut at ${engine.lsn}, and that was all`,
        );
      }
      for (const difference of this.#witness.differences(engine, isDamage)) this.#model.unexpected(difference);
      for (const entry of engine.catalog.entries) {
        const found = await this.#await(this.#lookAt(engine, entry)).catch((error: unknown) => {
          if (!isDamage(error)) throw error;
          this.#note(describeError(error));
        });
        if (found !== undefined) this.#model.suspected(found);
      }
    } catch (error) {
      if (!isDamage(error)) throw error;
      this.#note(describeError(error));
    }
    this.#check();
  }

  // ---------------------------------------------------------------------------------------------------------- compare

  /** Compares what the directory holds with the model. */
  async #audit(): Promise<void> {
    const ending = this.#ending;
    if (ending === undefined) return;
    const engine = this.#engine!;
    const { disk } = this;
    const found = await this.#await(this.#look(engine)).catch(async (error: unknown) => {
      if (disk.faulted.length === 0) throw error;
      // The clients may meet the fault again. The comparison must not: what they are told from now on builds on it.
      disk.sparing = true;
      return await this.#await(this.#look(engine)).finally(() => {
        disk.sparing = false;
      });
    });
    if (found === undefined) return;
    this.#note(`audit after ${ending.kind}`);
    for (const { name, live, dead } of found.tasks) {
      this.#trace?.(`${name}: live ${live.map((task) => `${task.offset}=${task.item}/${task.attempt}`)}`);
      this.#trace?.(`${name}: dead ${dead.map((letter) => `${letter.id}=${letter.item}`)}`);
    }
    const { kind, power, nowMs, dequeues } = ending;
    const faulty = ending.faulty || disk.faulted.length > 0;
    const asyncMs = this.#plan.syncIntervalMs + SYNC_MS_MAX;
    this.#model.recovered(
      found.logs,
      found.tasks,
      { kind, passesOver: power || faulty || ending.lives > 1, nowMs, asyncMs, faulty },
      dequeues,
    );
    this.#ending = undefined;
    this.#check();
  }

  async #look(engine: Engine): Promise<{ logs: SeenLog[]; tasks: SeenTasks[] }> {
    const logs: SeenLog[] = [];
    const tasks: SeenTasks[] = [];
    for (const entry of engine.catalog.entries) {
      const found = await this.#lookAt(engine, entry);
      if ("records" in found) logs.push(found);
      else tasks.push(found);
    }
    return { logs, tasks };
  }

  async #lookAt(engine: Engine, entry: CatalogEntry): Promise<SeenLog | SeenTasks> {
    const state = engine.catalog.load(entry);
    if (state instanceof TaskState) return await lookAtTasks(engine, state);
    const { stream, name } = state as LogState;
    const records: SeenLog["records"][number][] = [];
    await eachRecord(engine, stream, stream.head, ({ offset }, item) => void records.push({ offset, item }));
    const expected = stream.recordsBetween(stream.head, stream.next);
    if (records.length !== expected) {
      this.#model.unexpected(`log/${name} should hold ${expected} records; ${records.length} can be read`);
    }
    return { name: `log/${name}`, head: stream.head, next: stream.next, records };
  }

  #check(): void {
    if (this.#model.violations.length > 0) throw new Violated();
  }

  // ------------------------------------------------------------------------------------------------------------ steps

  async #step(step: Step): Promise<void> {
    this.#note(
      `step ${step.kind} ${step.queue} ${step.pick} x${step.count} ${step.size} ${step.mode ?? ""} ${step.ms}`,
    );
    try {
      await this.#issue(step);
    } catch (error) {
      if (this.disk.halted) return;
      this.#expectError(step.kind, error);
    }
    if (step.next < 0) await this.clock.run(() => this.#pending === 0 || this.disk.halted, 1000);
    else if (step.next > 0) await this.clock.run(() => this.disk.halted, step.next);
  }

  async #issue(step: Step): Promise<void> {
    const { kind, mode, ms, count, pick } = step;
    const options = mode === undefined ? {} : { durability: mode };
    const mq = this.#mq!;
    switch (kind) {
      case "append":
      case "appendBatch": {
        const { log, name } = await this.#log(step);
        if (log === undefined) return;
        const commit = this.#begin(kind, step);
        const items = this.#sizes(kind === "append" ? 1 : count, step).map((size) => {
          const item = this.#model.send(name, commit);
          return { item, payload: payloadOf(item.number, size) };
        });
        const payloads = items.map((each) => each.payload);
        const run =
          kind === "append"
            ? log.append(payloads[0]!, { ...options, key: `k${pick}`, headers: { pick: `${pick}` } }).then((at) => [at])
            : log.appendBatch(payloads, options);
        this.#track(commit, run, (offsets) => {
          this.#note(`${name}: messages from ${items[0]!.item.number} on got ${offsets}`);
          for (const [index, { item }] of items.entries()) this.#model.placed(item, offsets[index]!);
        });
        return;
      }
      case "read": {
        const { log, name } = await this.#log(step);
        if (log === undefined) return;
        const { head, next } = await log.stats();
        if (next === head) return;
        const offset = head + (pick % (next - head));
        this.#watch("read", log.read(offset), (record) => {
          if (record !== undefined) this.#read(name, record);
        });
        return;
      }
      case "scan": {
        const { log, name } = await this.#log(step);
        if (log === undefined) return;
        const { head, next } = await log.stats();
        const from = pick % 2 === 0 ? "start" : head + (pick % Math.max(1, next - head));
        const scan = async () => {
          const records = [];
          for await (const batch of log.batches({ from, maxBytes: 1 + step.size * 10 })) records.push(...batch);
          return records;
        };
        this.#watch("scan", scan(), (records) =>
          this.#model.scanned(
            name,
            records.map((each) => this.#read(name, each)),
          ),
        );
        return;
      }
      case "tail": {
        const { log, name } = await this.#log(step);
        if (log === undefined) return;
        const stop = new AbortController();
        this.#tails.push(stop);
        if (this.#tails.length > 3) this.#tails.shift()!.abort();
        const { disk } = this;
        const tail = async () => {
          for await (const record of log.tail({ from: pick % 2 === 0 ? "start" : "end", signal: stop.signal })) {
            if (disk.halted) return;
            this.#read(name, record);
          }
        };
        tail().catch((error: unknown) => {
          if (!disk.halted) this.#expectError("tail", error);
        });
        return;
      }
      case "trim": {
        const { log, name } = await this.#log(step);
        if (log === undefined) return;
        const { head, next } = await log.stats();
        const offset = pick % 4 === 0 ? next : Math.min(next, head + (pick % (1 + Math.min(200, next - head))));
        const commit = this.#begin("trim", step);
        this.#model.trimming(name, offset, commit);
        this.#track(commit, log.trim(offset, options));
        return;
      }
      case "enqueue":
      case "enqueueBatch": {
        const { queue, name } = await this.#queue(step);
        if (queue === undefined) return;
        const delay = pick % 4 === 0 && ms > 0 ? ms : 0;
        const commit = this.#begin(kind, step);
        const dueMs = delay > 0 ? commit.madeMs + delay : 0;
        const items = this.#sizes(kind === "enqueue" ? 1 : count, step).map((size) => {
          const item = this.#model.send(name, commit, dueMs);
          return { item, payload: payloadOf(item.number, size) };
        });
        const payloads = items.map((each) => each.payload);
        const all = { ...options, ...(delay > 0 ? { delay } : {}), ...(pick % 7 === 0 ? { maxAttempts: 2 } : {}) };
        const run =
          kind === "enqueue"
            ? queue.enqueue(payloads[0]!, all).then((one) => [one])
            : queue.enqueueBatch(payloads, all);
        this.#track(commit, run, (enqueued) => {
          this.#note(`${name}: messages from ${items[0]!.item.number} on got ${enqueued.map((each) => each.id)}`);
          for (const [index, { item }] of items.entries()) this.#model.placed(item, Number(enqueued[index]!.id));
        });
        return;
      }
      case "dequeue":
      case "dequeueBatch": {
        const { queue, name, index } = await this.#queue(step);
        if (queue === undefined) return;
        const wait = pick % 3 === 0 ? ms : 0;
        const lease = pick % 5 === 0 ? 500 : undefined;
        const all = { ...options, wait, ...(lease === undefined ? {} : { lease }) };
        const commit = this.#begin("dequeue", step);
        const run =
          kind === "dequeue"
            ? queue.dequeue(all).then((task) => (task === undefined ? [] : [task]))
            : queue.dequeueBatch({ ...all, max: count });
        this.#dequeues++;
        const leaseMs = lease ?? this.#plan.tasks[index]!.leaseMs;
        // A dequeue that waits must not be waited for by steps that await all answers.
        if (wait > 0) this.#pending--;
        const undo = (error?: unknown) => {
          if (wait > 0) this.#pending++;
          // One whose outcome is unknown may yet turn out to have been an attempt.
          if (!isVarveError(error, "ERR_OUTCOME_UNKNOWN")) this.#dequeues--;
        };
        this.#track(
          commit,
          run,
          (tasks) => {
            undo();
            for (const task of tasks) this.#delivered(name, index, commit, task, leaseMs);
          },
          undo,
        );
        return;
      }
      case "ack":
      case "ackBatch":
      case "nack":
      case "extend":
      case "stale":
        await this.#settle(step, options);
        return;
      case "readDead": {
        const { queue, name } = await this.#queue(step);
        if (queue === undefined) return;
        this.#watch("dead.read", queue.dead.read(), (letters) => {
          for (const letter of letters) {
            if (itemOf(letter.raw) === undefined)
              this.#model.unexpected(`${name}: dead letter ${letter.id} is damaged`);
          }
        });
        return;
      }
      case "redrive":
      case "purge": {
        const { queue, name } = await this.#queue(step);
        if (queue === undefined) return;
        const letters = await this.#await(queue.dead.read({ limit: 5 }));
        if (letters === undefined || letters.length === 0) return;
        const some = pick % 2 === 0 ? letters.slice(0, 1 + (pick % letters.length)) : undefined;
        const selection = some === undefined ? undefined : { ids: some.map((letter) => letter.id) };
        const commit = this.#begin(kind, { ...step, mode: undefined });
        if (kind === "redrive") {
          this.#model.redriving(name, commit);
          this.#track(commit, queue.dead.redrive(selection));
        } else {
          const items = some?.map((letter) => itemOf(letter.raw) ?? -1);
          this.#model.purging(name, commit, items);
          this.#track(commit, queue.dead.purge(selection));
        }
        return;
      }
      case "transaction":
        await this.#transact(step, options);
        return;
      case "stats":
        this.#watch("stats", mq.stats(), ({ health }) => {
          if (health === "failed" && this.disk.faulted.length === 0) this.#model.unexpected("failed without a fault");
        });
        return;
      case "sync": {
        const call = this.#model.now;
        this.#watch("sync", mq.sync(), () => this.#model.synced(call));
        return;
      }
      case "pass":
        await this.clock.run(() => this.disk.halted, ms * 5);
        return;
      case "stall":
        this.clock.stall(ms);
        this.#model.stalled(ms);
        return;
      case "wall":
        this.clock.stepWall(pick % 2 === 0 ? ms * 1000 : -ms * 1000);
        this.#model.forgetDelays();
        return;
    }
  }

  async #settle(step: Step, options: { durability?: "sync" | "async" }): Promise<void> {
    const { kind, pick, count, ms } = step;
    const pool = kind === "stale" ? this.#stale : this.#held;
    if (pool.length === 0) return;
    const first = pool[pick % pool.length]!;
    const { queue, name, index } = await this.#queue({ ...step, queue: first.queue });
    if (queue === undefined) return;
    const batch = kind === "ackBatch" ? pool.filter((held) => held.queue === first.queue).slice(0, count) : [first];
    const leaves = kind !== "extend" && kind !== "stale";
    if (leaves) this.#held = this.#held.filter((held) => !batch.includes(held));
    if (leaves) this.#stale.push(...batch.slice(0, 2));
    const label = kind === "ackBatch" || kind === "stale" ? "ack" : kind;
    const commit = this.#begin(label, step);
    const expected = batch.map(({ id, token }) => this.#model.settling(name, id, token, commit, label === "ack"));
    this.#note(`${label} ${commit.number}: ${name} ${batch.map((held, at) => `${held.id} (${expected[at]})`)}`);
    const lease = this.#plan.tasks[index]!.leaseMs;
    const token = first.token;
    const run: Promise<unknown> =
      kind === "ackBatch"
        ? queue.ackBatch(
            batch.map((held) => held.token),
            options,
          )
        : label === "ack"
          ? queue.ack(token, options)
          : kind === "nack"
            ? queue.nack(token, { ...options, error: "simulated", ...(pick % 2 === 0 ? { delay: ms } : {}) })
            : queue.extend(token, lease, options);
    this.#track(
      commit,
      run,
      () => {
        for (const [at, { id }] of batch.entries()) this.#model.settled(name, id, commit, expected[at]!, false);
        if (kind === "extend") this.#model.extended(name, first.id, commit, lease);
        if (kind === "nack" && pick % 2 === 0) this.#model.nacked(name, first.id, commit, ms);
      },
      (error) => {
        if (!isVarveError(error, "ERR_STALE_LEASE") || batch.length > 1) return;
        this.#model.settled(name, first.id, commit, expected[0]!, true);
      },
    );
  }

  async #transact(step: Step, options: { durability?: "sync" | "async" }): Promise<void> {
    const { pick } = step;
    const { log, name: logName } = await this.#log(step);
    const { queue, name: queueName } = await this.#queue(step);
    const held = pick % 3 === 0 ? this.#held[pick % Math.max(1, this.#held.length)] : undefined;
    const source = held === undefined ? undefined : await this.#queue({ ...step, queue: held.queue });
    if (log === undefined || queue === undefined || this.disk.halted) return;
    const commit = this.#begin("transaction", step);
    const [first, second] = this.#sizes(2, { ...step, size: Math.min(step.size, 30_000) }) as [number, number];
    const record = this.#model.send(logName, commit);
    const task = this.#model.send(queueName, commit);
    if (held !== undefined) {
      this.#held = this.#held.filter((each) => each !== held);
      this.#model.settling(source!.name, held.id, held.token, commit, true);
    }
    const run = this.#mq!.transaction((tx) => {
      tx.append(log, payloadOf(record.number, first));
      tx.enqueue(queue, payloadOf(task.number, second));
      if (held !== undefined && source?.queue !== undefined) tx.ack(source.queue, held.token);
    }, options);
    this.#track(commit, run);
  }

  #delivered(name: string, queue: number, commit: Commit, task: Task, leaseMs: number): void {
    const { attempt, token } = task;
    const offset = offsetOf(token);
    const seen = { offset, attempt, token, leased: true, item: itemOf(task.payload) };
    this.#note(`${name}: delivered ${offset} (message ${seen.item}), attempt ${attempt}`);
    const durable = this.#plan.durability === "sync";
    this.#model.delivered(name, commit, seen, leaseMs, this.clock.elapsedMs(), durable);
    this.#held.push({ queue, id: offset, token });
    if (this.#held.length > 40) this.#stale.push(...this.#held.splice(0, 5));
    if (this.#stale.length > 20) this.#stale.splice(0, 10);
  }

  #read(
    name: string,
    record: { readonly offset: number; readonly payload: Buffer },
  ): { offset: number; item: number | undefined } {
    const seen = { offset: record.offset, item: itemOf(record.payload) };
    this.#model.read(name, seen, this.#plan.durability === "sync");
    return seen;
  }

  /** Sizes of messages that fit one commit. */
  #sizes(count: number, { size, pick }: Step): number[] {
    const most = Math.max(1, Math.min(count, Math.floor(COMMIT_BYTES_MAX / (size + 200))));
    return Array.from({ length: most }, (_, index) => Math.max(0, size - ((pick + index) % 17)));
  }

  async #log({ queue }: Step): Promise<{ log: LogQueue | undefined; name: string }> {
    const index = queue % this.#plan.logs;
    const known = this.#logs.get(index);
    const name = `l${index}`;
    if (known !== undefined) return { log: known, name: `log/${name}` };
    const log = await this.#await(this.#mq!.openLog(name));
    if (log !== undefined) this.#logs.set(index, log);
    return { log, name: `log/${name}` };
  }

  async #queue({ queue: pick }: Step): Promise<{ queue: TaskQueue | undefined; name: string; index: number }> {
    const index = pick % this.#plan.tasks.length;
    const known = this.#tasks.get(index);
    const name = `t${index}`;
    if (known !== undefined) return { queue: known, name: `task/${name}`, index };
    const { leaseMs, maxAttempts, backoffMs } = this.#plan.tasks[index]!;
    const rules = { lease: leaseMs, maxAttempts, backoff: { initial: backoffMs, max: 5000 } };
    const queue = await this.#await(this.#mq!.openTask(name, rules));
    if (queue !== undefined) this.#tasks.set(index, queue);
    return { queue, name: `task/${name}`, index };
  }

  // ---------------------------------------------------------------------------------------------------------- answers

  #begin(label: string, { mode }: Step): Commit {
    const sync = (mode ?? this.#plan.durability) === "sync";
    return this.#model.begin(label, sync, this.clock.elapsedMs());
  }

  /** Notes how a call that changes something is answered. */
  #track<T>(commit: Commit, run: Promise<T>, then?: (value: T) => void, otherwise?: (error: unknown) => void): void {
    const { disk } = this;
    this.#pending++;
    run.then(
      (value) => {
        if (disk.halted) return;
        this.#pending--;
        this.#note(`${commit.label} ${commit.number}: done`);
        this.#model.acked(commit, this.clock.elapsedMs());
        then?.(value);
      },
      (error: unknown) => {
        if (disk.halted) return;
        this.#pending--;
        const code = this.#expectError(`${commit.label} ${commit.number}`, error);
        commit.outcome = code === "ERR_OUTCOME_UNKNOWN" ? "unknown" : "refused";
        otherwise?.(error);
      },
    );
  }

  /** Notes how a call that changes nothing is answered. */
  #watch<T>(what: string, run: Promise<T>, then: (value: T) => void): void {
    const { disk } = this;
    this.#pending++;
    run.then(
      (value) => {
        if (disk.halted) return;
        this.#pending--;
        this.#note(`${what}: done`);
        then(value);
      },
      (error: unknown) => {
        if (disk.halted) return;
        this.#pending--;
        this.#expectError(what, error);
      },
    );
  }

  /** Checks that an error is one that the circumstances allow; returns its code. */
  #expectError(what: string, error: unknown): string {
    const code = isVarveError(error) ? error.code : "";
    this.#note(`${what}: ${describeError(error)}`);
    const always = ["ERR_STALE_LEASE", "ERR_TOO_LARGE", "ERR_CLOSED", "ERR_OVERLOADED", "ERR_OFFSET_OUT_OF_RANGE"];
    if (always.includes(code)) return code;
    const faulty = this.disk.faulted.length > 0;
    const full = Number.isFinite(this.disk.capacityBytes) || faulty;
    if (code === "ERR_DISK_FULL" && full) return code;
    if (code === "ERR_ACCESS" && what === "open" && faulty) return code;
    if (["ERR_READ_ONLY", "ERR_OUTCOME_UNKNOWN", "ERR_IO"].includes(code) && faulty) return code;
    this.#model.unexpected(
      `${what} failed with ${describeError(error)}${faulty ? ` after a fault of ${this.disk.faulted}` : ""}`,
    );
    return code;
  }

  /** Runs the machine until the promise settles; undefined when the process ended first. */
  async #await<T>(promise: Promise<T>): Promise<T | undefined> {
    let settled = false;
    const settle = () => {
      settled = true;
    };
    promise.then(settle, settle);
    if (!(await this.clock.run(() => settled || this.disk.halted, 3_600_000))) {
      throw new Error("stuck: a call is not answered, and nothing is left to run");
    }
    if (this.disk.halted) return undefined;
    return await promise;
  }

  // --------------------------------------------------------------------------------------------------------- liveness

  /** The machine is well: everything is readable, every task comes to its end, and closing leaves nothing to recover. */
  async #liveness(): Promise<void> {
    this.#note("-- liveness");
    this.#soften();
    await this.#open();
    await this.#audit();
    for (const { kind, name } of await this.#mq!.queues()) {
      const index = Number(name.slice(1));
      const step = { queue: index } as Step;
      if (kind === "log") {
        const { log } = await this.#log(step);
        const { count } = await log!.stats();
        let records = 0;
        for await (const batch of this.#batches(log!)) records += batch;
        if (records !== count) this.#model.unexpected(`log ${name} has ${count} records; ${records} can be read`);
      } else {
        await this.#drain(step);
      }
    }
    this.#check();
    await this.#close();
    await this.#end({ end: "none", holes: "zero", downMs: 10 } as Round);
    await this.#open();
    await this.#audit();
    this.#check();
    for (const { name, live } of (await this.#await(this.#look(this.#engine!)))?.tasks ?? []) {
      if (live.length > 0) this.#model.unexpected(`${name}: task ${live[0]!.offset} never came to its end`);
    }
    this.#check();
  }

  async *#batches(log: LogQueue): AsyncGenerator<number> {
    const batches = log.batches()[Symbol.asyncIterator]();
    for (;;) {
      const next = await this.#await(Promise.resolve(batches.next()));
      if (next === undefined || next.done === true) return;
      yield next.value.length;
    }
  }

  async #drain(step: Step): Promise<void> {
    const { queue, name, index } = await this.#queue(step);
    const { leaseMs } = this.#plan.tasks[index]!;
    for (let rounds = 0; ; rounds++) {
      const { ready, scheduled, leased } = (await this.#await(queue!.stats()))!;
      if (ready + scheduled + leased === 0) return;
      if (rounds >= DRAIN_ROUNDS_MAX) {
        this.#model.unexpected(`${name} does not drain: ${ready} ready, ${scheduled} scheduled, ${leased} leased`);
        return;
      }
      const delivery = this.#model.begin("dequeue", false, this.clock.elapsedMs());
      const tasks = await this.#await(queue!.dequeueBatch({ max: 16, wait: 60_000 }));
      this.#model.acked(delivery, this.clock.elapsedMs());
      for (const task of tasks!) this.#delivered(name, index, delivery, task, leaseMs);
      if (tasks!.length === 0) continue;
      const ack = this.#model.begin("ack", true, this.clock.elapsedMs());
      for (const { token } of tasks!) this.#model.settling(name, offsetOf(token), token, ack, true);
      await this.#await(queue!.ackBatch(tasks!, { durability: "sync" }));
      this.#model.acked(ack, this.clock.elapsedMs());
      this.#check();
    }
  }

  // ------------------------------------------------------------------------------------------------------------ trace

  #note(line: string): void {
    this.#mix(line);
    this.#trace?.(line);
  }

  #mix(text: string): void {
    let hash = this.#hash;
    for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
    this.#hash = hash;
  }
}

function optionsOf({ durability, syncIntervalMs, cacheBytes }: Plan): ResolvedOpenOptions {
  const options: OpenOptions = {
    durability,
    syncInterval: syncIntervalMs,
    walFileBytes: "256KiB",
    segmentBytes: "64KiB",
    maxOpenFiles: 8,
    maxMessageBytes: "90KiB",
  };
  return { ...resolveOpenOptions(options), cacheBytes };
}

export async function openDirectoryOf(
  platform: EnginePlatform,
  options: ResolvedOpenOptions,
): Promise<OpenedDirectory> {
  try {
    prepareDirectory(platform.disk, DIRECTORY, true);
    return await openDirectory(platform, DIRECTORY, options, kinds);
  } catch (error) {
    throw isVarveError(error) ? error : openError(DIRECTORY, error);
  }
}

function isAimedAt(aim: Aim, kind: CallKind, path: string): boolean {
  return aim.kind === kind && path.includes(aim.path);
}

/** Where a task stands: its id is that from before it was redriven, if it was. */
function offsetOf(token: string): number {
  return Number.parseInt(token.split(".")[3]!, 36);
}

/** Memory of readers past, for the next one: no life of an engine is long enough to get much use out of its own. */
const idleChunks: ChunkPool[] = [];

async function eachRecord(
  engine: Engine,
  stream: Stream,
  from: number,
  visit: (record: RecordCursor, item: number | undefined) => void,
): Promise<void> {
  // A reader that the end of its process interrupts keeps them.
  const chunks = idleChunks.pop() ?? new ChunkPool(0);
  const { files, reads, directoryId } = engine;
  const context = { files, chunks, reads, directoryId, readFile: (path: string) => engine.readFile(path) };
  const reader = new StreamReader(stream, context, from);
  for (let last = 0; ; ) {
    const found = reader.next(stream.next);
    if (found === "end") {
      idleChunks.push(chunks);
      return;
    }
    if (found === "load") {
      await reader.load();
      continue;
    }
    const { offset, timestamp } = reader.record;
    if (timestamp < last)
      throw new Error(`${stream.directory}: the time falls from ${last} to ${timestamp} at ${offset}`);
    last = timestamp;
    visit(reader.record, itemOf(reader.record.payloadView()));
  }
}

export async function lookAtTasks(engine: Engine, state: TaskState): Promise<SeenTasks> {
  const { ledger, tasks, deadTasks, exhumed } = state;
  const live: SeenTask[] = [];
  const { scheduled } = state;
  await eachRecord(engine, tasks, Math.min(ledger.lowest, scheduled.lowest(0)), (record, item) => {
    const { offset } = record;
    const task = ledger.outstanding.get(offset);
    const passedOver = offset < ledger.cursor || ledger.ahead.has(offset);
    const setAside = offset >= ledger.marksFrom && isSetAside(record.attributes());
    if (task === undefined && !scheduled.has(0, offset) && (passedOver || setAside)) return;
    const leased = task?.phase === TaskPhase.Leased;
    const attempt = task?.attempt ?? 0;
    const token = leased
      ? formatToken(state.consumer, { lane: 0, offset, attempt, high: task.tokenHigh, low: task.tokenLow })
      : undefined;
    live.push({ offset, item, attempt, leased, token });
  });
  const missing = [...ledger.outstanding.keys()].filter((offset) => !live.some((task) => task.offset === offset));
  if (missing.length > 0) throw new Error(`task/${state.name}: outstanding tasks ${missing} have no records`);
  const dead: { id: number; item: number | undefined }[] = [];
  await eachRecord(engine, deadTasks, deadTasks.head, (record, item) => {
    if (exhumed.has(record.offset)) return;
    dead.push({ id: Number(decodeTaskAttributes(record.attributes()).death?.id), item });
  });
  return { name: `task/${state.name}`, live, dead };
}

function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code } = error as { code?: string };
  return isVarveError(error) ? `${code}: ${error.message}` : (error.stack ?? error.message);
}
