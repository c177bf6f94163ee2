/**
 * Runs a plan: the production engine on a simulated machine, clients that use every call, the end of the process at any
 * disk call, recovery (which may meet its own end), and a comparison with the model each time. At last the machine is
 * well: everything must be readable, and every task must come to its end.
 */

import { type ResolvedOpenOptions, resolveOpenOptions } from "../../src/api/options.js";
import { openError, prepareDirectory } from "../../src/engine/directory.js";
import type { Engine, EnginePlatform } from "../../src/engine/engine.js";
import { type OpenedDirectory, openDirectory } from "../../src/engine/recovery.js";
import { isVarveError, type MessageQueue, type OpenOptions } from "../../src/index.js";
import { kinds } from "../../src/queues/kinds.js";
import { EmbeddedMessageQueue } from "../../src/queues/message-queue.js";
import { FAILED_MARK } from "../../src/storage/wal.js";
import {
  Clients,
  describeError,
  type Held,
  isExpected,
  type NamedCall,
  type SourceHandle,
  settled,
} from "./clients.js";
import type { Ending } from "./commit.js";
import { GENERAL_STEPS } from "./general-steps.js";
import { GROUP_STEPS, groupName, joinShared } from "./group-steps.js";
import { drain, drainAll, readAll, readThrough } from "./liveness.js";
import { LOG_STEPS, type Perform } from "./log-steps.js";
import { lookAt, type Seen } from "./look.js";
import { Model } from "./model.js";
import { OUTCOME_STEPS } from "./outcome-steps.js";
import {
  type Aim,
  type Astray,
  type End,
  EVERY_END,
  type Fault,
  type Plan,
  type Round,
  type Step,
  type StepKind,
} from "./plan.js";
import { SimClock } from "./sim-clock.js";
import { type CallKind, SimDisk } from "./sim-disk.js";
import { SimRandom } from "./sim-random.js";
import { SPREAD_STEPS } from "./spread-steps.js";
import { TASK_STEPS } from "./task-steps.js";
import { Witness } from "./witness.js";

const PERFORM: Record<StepKind, Perform> = {
  ...GENERAL_STEPS,
  ...LOG_STEPS,
  ...TASK_STEPS,
  ...GROUP_STEPS,
  ...OUTCOME_STEPS,
  ...SPREAD_STEPS,
};
const DIRECTORY = "/data";
const FAILED_PATH = `${DIRECTORY}/wal/${FAILED_MARK}`;
/** Time that a sync may take, on a simulated disk that has its slow moments. */
const SYNC_MS_MAX = 1000;

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

/** How one life or several ended. */
interface Ended {
  kind: Ending["kind"];
  power: boolean;
  nowMs: number;
  faulty: boolean;
  lives: number;
}

/** Thrown to end a run at the first violation: what comes after means little. */
class Violated extends Error {}

/** @param otherEnds the share of lives that are recovered from a second end as well; which, the seed decides */
export async function simulate(plan: Plan, trace?: (line: string) => void, otherEnds = 1): Promise<Report> {
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
  readonly #shareRandom: SimRandom;
  #model: Model;
  #witness = new Witness();
  clock: SimClock;
  disk: SimDisk;
  otherEnds = 1;
  /**
   * What first lives have left so far, for runs that differ in nothing but how the first one ends. A run whose first life
   * leaves what another has left is over with it.
   */
  known: Set<string> | undefined;
  #hash = 0x811c9dc5;
  /** The same without the disk calls: what was done, and what clients were told. */
  #told = 0x811c9dc5;
  #cycles = 0;
  readonly #halted: boolean[] = [];
  #faults = 0;
  #calls = 0;
  #commits = 0;
  #checkpoints = 0;

  #engine: Engine | undefined;
  #mq: MessageQueue | undefined;
  #clients: Clients | undefined;
  /** Tokens from earlier lives. */
  readonly #stale: Held[] = [];
  /** Calls of earlier lives whose answers were lost. */
  readonly #lost: NamedCall<unknown>[] = [];
  /** How the lives ended since the model was last compared. */
  #ending: Ended | undefined;
  /** The directory was closed in order. */
  #closed = false;
  /** The end at a call of one kind, and how many of those are still to come. */
  #halt: { readonly on: Aim; left: number; readonly written: number } | undefined;
  /** Faults on calls of one kind, and how many of those are still to come. */
  #aimed: { readonly fault: Fault; left: number }[] = [];
  /** The log has failed, and that is about to be noted, or could not be. */
  #marking = false;
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
    this.#shareRandom = new SimRandom(plan.seed ^ 0x5a4e);
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
    this.#model = new Model(plan.durability === "sync");
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
    let over = false;
    try {
      for (const [index, round] of this.#plan.rounds.entries()) {
        this.#say(`-- round ${index}, ends with ${round.close ? "close, " : ""}${round.end}`);
        this.#astray = round.astray;
        await this.#round(round);
        if (this.#astrayMet) break;
        if (index === 0 && this.#isKnown()) {
          over = true;
          break;
        }
      }
      if (this.#astrayMet) await this.#suspect();
      else if (liveness && !over) await this.#liveness();
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

  #isKnown(): boolean {
    if (this.known === undefined) return false;
    const ending = this.#ending!;
    const left = `${ending.kind} ${ending.faulty} ${this.#told} ${this.disk.fingerprint()}`;
    if (this.known.has(left)) return true;
    this.known.add(left);
    return false;
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
      await this.#clients!.repeatLost();
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
        if (!isExpected(isVarveError(error) ? error.code : "", "open", this.disk)) {
          this.#model.violate(`open failed with ${describeError(error)}`);
        }
        // A file system whose journal has failed serves no one before the machine has started anew.
        if (this.#mustStartAnew) return false;
        const excused = this.disk.faulted.length > faults || full;
        if (!excused || attempt > 1) throw new Error(`the directory does not open: ${describeError(error)}`);
        this.#soften();
      }
    }
  }

  /**
   * The next process is one of a machine that has started anew: the journal of the file system has failed; or the log has, and
   * the process ended before it could note that, which is all that tells of pages that the system gave up.
   */
  get #mustStartAnew(): boolean {
    return this.disk.faulted.includes("syncDirectory") || this.#marking;
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
        this.#model.violate(`recovered after an orderly close: ${report.notes.join("; ")}`);
      }
      for (const difference of this.#witness.differences(engine)) this.#model.violate(difference);
    }
    this.#engine = engine;
    const mq = new EmbeddedMessageQueue(engine, checkpointer, report, () => {});
    this.#mq = mq;
    const note = (line: string) => this.#note(line);
    const machine = { plan: this.#plan, model: this.#model, clock: this.clock, disk: this.disk, mq, note };
    this.#clients = new Clients(machine, this.#stale, this.#lost);
    return engine;
  }

  async #close(): Promise<void> {
    const clients = this.#clients!;
    for (const tail of clients.tails) tail.abort();
    this.#note("close");
    const closing = this.#mq!.close().catch((error: unknown) => {
      if (this.#engine!.failure === undefined || !isVarveError(error, "ERR_OUTCOME_UNKNOWN")) throw error;
    });
    await this.#await(closing);
    if (this.disk.halted) return;
    // What was accepted before has been answered by now, or never will be.
    await this.clock.run(() => clients.pending === 0, SYNC_MS_MAX);
    const failed = this.#engine!.failure !== undefined;
    if (!failed && clients.pending > 0) this.#model.violate(`${clients.pending} calls were not answered by close()`);
    this.#closed = !failed;
  }

  /** Ends the process, and starts the next machine. */
  async #end({ end: wanted, holes, downMs }: Round): Promise<void> {
    const end = wanted === "kill" && this.#mustStartAnew ? "random" : wanted;
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
    this.#clients?.end();
    this.#clients = undefined;
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
    this.#model.restarted({ lastMs, nowMs }, downMs);
    if (this.#ending !== undefined) this.#ending.nowMs += nowMs - lastMs;
  }

  /** Several ends with no comparison between them count as the worst of them, at the time of the first. */
  #endingWith(end: End): Ended {
    const power = end !== "kill";
    const kind = this.#closed ? "close" : power ? "power" : "kill";
    const faulty = this.disk.faulted.length > 0 || Number.isFinite(this.disk.capacityBytes);
    const before = this.#ending;
    if (before === undefined) {
      return { kind, power, nowMs: this.clock.elapsedMs(), faulty, lives: 1 };
    }
    const both = { ...before, lives: before.lives + 1, power: before.power || power };
    // Nothing was acknowledged in between; what was durable when the directory was closed stays so.
    if (before.kind === "close") return both;
    return { ...both, faulty: before.faulty || faulty, kind: kind === "power" ? kind : before.kind };
  }

  /** Another way in which this life might have ended, which is tried as well; what comes after it is not. */
  #drawOtherEnd(end: End): End | undefined {
    if (this.#astrayMet) return undefined;
    const ends = EVERY_END.filter((each) => each !== end && (each !== "kill" || !this.#mustStartAnew));
    const other = this.#branchRandom.pick(ends);
    if (this.#shareRandom.chance(this.otherEnds)) return other;
    // One that is passed over leaves the others what they are: with more of them, the same and further ones are tried.
    this.#branchRandom.fork();
    return undefined;
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
      this.#model.violate(`${what} (had the end been ${end})`);
    }
  }

  #watchDisk(): void {
    this.#marking = false;
    this.disk.onCall = (kind, path, call) => {
      if (path === FAILED_PATH && kind !== "size") this.#marking = kind === "open";
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
        this.#model.violate(`entry ${this.vouchedLsn} was durable; the log was cut at ${engine.lsn}, and that was all`);
      }
      for (const difference of this.#witness.differences(engine, isDamage)) this.#model.violate(difference);
      for (const entry of engine.catalog.entries) {
        const seen: Seen = { logs: [], sources: [] };
        await this.#await(lookAt(engine, entry, seen)).catch((error: unknown) => {
          if (!isDamage(error)) throw error;
          this.#note(describeError(error));
        });
        for (const queue of [...seen.logs, ...seen.sources]) this.#model.suspected(queue);
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
    const { disk } = this;
    const found = await this.#await(this.#look()).catch(async (error: unknown) => {
      if (disk.faulted.length === 0) throw error;
      // The clients may meet the fault again. The comparison must not: what they are told from now on builds on it.
      disk.sparing = true;
      return await this.#await(this.#look()).finally(() => {
        disk.sparing = false;
      });
    });
    if (found === undefined) return;
    this.#note(`audit after ${ending.kind}`);
    for (const { name, live, dead } of found.sources) {
      this.#trace?.(`${name}: live ${live.map((task) => `${task.place}=${task.item}/${task.attempt}`)}`);
      this.#trace?.(`${name}: dead ${dead.map((letter) => `${letter.id}=${letter.item}`)}`);
    }
    const { kind, power, nowMs } = ending;
    const faulty = ending.faulty || disk.faulted.length > 0;
    const asyncMs = this.#plan.syncIntervalMs + SYNC_MS_MAX;
    const passesOver = power || faulty || ending.lives > 1;
    const openedMs = this.clock.elapsedMs();
    this.#model.recovered(found.logs, found.sources, { kind, passesOver, nowMs, openedMs, asyncMs, faulty });
    this.#ending = undefined;
    this.#check();
  }

  async #look(): Promise<Seen> {
    const seen: Seen = { logs: [], sources: [] };
    for (const entry of this.#engine!.catalog.entries) await lookAt(this.#engine!, entry, seen);
    return seen;
  }

  #check(): void {
    if (this.#model.violations.length > 0) throw new Violated();
  }

  // ------------------------------------------------------------------------------------------------------------ steps

  async #step(step: Step): Promise<void> {
    const { kind, queue, pick, count, size, mode, ms } = step;
    this.#note(`step ${kind} ${queue} ${pick} x${count} ${size} ${mode ?? ""} ${ms}`);
    const clients = this.#clients!;
    try {
      await PERFORM[kind](clients, step);
    } catch (error) {
      if (this.disk.halted) return;
      clients.expectError(kind, error);
    }
    if (step.next < 0) await this.clock.run(() => clients.pending === 0 || this.disk.halted, 1000);
    else if (step.next > 0) await this.clock.run(() => this.disk.halted, step.next);
  }

  /** Runs the machine until the promise settles; undefined when the process ended first. */
  #await<T>(promise: Promise<T>): Promise<T | undefined> {
    return settled(this, promise);
  }

  // --------------------------------------------------------------------------------------------------------- liveness

  /** The machine is well: everything is readable, every task comes to its end, and closing leaves nothing to recover. */
  async #liveness(): Promise<void> {
    this.#note("-- liveness");
    this.#soften();
    await this.#open();
    await this.#audit();
    const clients = this.#clients!;
    await clients.repeatLost();
    this.#check();
    const queues: SourceHandle[] = [];
    for (const { kind, name } of await this.#mq!.queues()) {
      const queue = Number(name.slice(1));
      if (kind === "log") await readAll(clients, (await clients.log({ queue }))!);
      else queues.push((await clients.queue({ queue }))!);
      this.#check();
    }
    await drainAll(clients, queues);
    this.#check();
    for (const [index, { shared }] of this.#plan.groups.entries()) {
      if (!this.#model.hasGroup(groupName(clients, index))) continue;
      if (shared) await drain(clients, (await joinShared(clients, index))!);
      else await readThrough(clients, index);
      this.#check();
    }
    await this.#close();
    await this.#end({ end: "none", holes: "zero", downMs: 10 } as Round);
    await this.#open();
    await this.#audit();
    for (const { name, live } of (await this.#await(this.#look()))?.sources ?? []) {
      if (live.length > 0) this.#model.violate(`${name}: task ${live[0]!.place} never came to its end`);
    }
    this.#check();
  }

  // ------------------------------------------------------------------------------------------------------------ trace

  #note(line: string): void {
    this.#told = mixed(this.#told, line);
    this.#say(line);
  }

  #say(line: string): void {
    this.#mix(line);
    this.#trace?.(line);
  }

  #mix(text: string): void {
    this.#hash = mixed(this.#hash, text);
  }
}

function mixed(before: number, text: string): number {
  let hash = before;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return hash;
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
