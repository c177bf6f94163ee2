/**
 * One round: a daemon with clients in processes of their own, of which some are killed and some made to stand still at
 * moments that a seed chooses. At the end everything is listed, and the history of all of them judged. Where there is no
 * daemon, the client that owns the directory is the daemon of the others.
 */

import type { ChildProcess } from "node:child_process";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Durability } from "../../src/index.js";
import { saidOwner } from "../../src/storage/lock.js";
import { type Running, startVarve } from "../cli/program.js";
import type { Anomaly } from "../history/anomalies.js";
import { HistoryFile, historiesOf, loadHistory } from "../history/files.js";
import type { Fault, History } from "../history/history.js";
import { judge } from "../history/judge.js";
import { nowMs, Recorder } from "../history/recorder.js";
import { type Child, startChild } from "../support/child.js";
import type { Seeded } from "../support/seeded.js";
import type { ClientPlan } from "./client.js";
import { drain, listAll } from "./ending.js";
import { DECLARED, openQueues, type Place, reach } from "./shape.js";

export interface RoundPlan {
  readonly random: Seeded;
  /** A folder of its own, where the history stays, with the daemon's directory in "data". */
  readonly folder: string;
  readonly place: Place;
  readonly durability: Durability;
  /** How often something is done to a process. */
  readonly faults: number;
  /** Whether all tasks are worked off at the end, which takes some seconds. */
  readonly drains: boolean;
}

export interface RoundResult {
  readonly calls: number;
  readonly unknown: number;
  readonly faults: number;
  readonly anomalies: readonly Anomaly[];
}

/** The daemon's name in histories. */
const DAEMON = "daemon";
const CLIENTS = 3;
const QUIET_MS = 100;
const LOOK_MS = 2;
/** No process takes so long to do what it is asked, on however busy a machine. */
const TOO_LONG_MS = 60_000;

/** Plays a round to its end, and judges it. Throws when a process does not do what it is asked. */
export async function playRound(plan: RoundPlan): Promise<RoundResult> {
  const round = new Round(plan);
  try {
    await round.play();
  } finally {
    await round.killAll();
  }
  const [history] = await Promise.all(historiesOf([plan.folder]).map(({ files }) => loadHistory(files)));
  const { calls, faults } = history as History;
  return {
    calls: calls.length,
    unknown: calls.filter(({ outcome }) => outcome === "unknown").length,
    faults: faults.length,
    anomalies: judge(history as History),
  };
}

class Round {
  readonly #plan: RoundPlan;
  readonly #file: HistoryFile;
  readonly #place: Place;
  readonly #clients = new Map<string, Child>();
  #daemon: Running | undefined;
  #started = 0;
  /** Until somebody owns the directory after a kill. */
  #takeover: Promise<void> = Promise.resolve();
  #isOver = false;
  /** Processes that stand still for a while. */
  readonly #pauses = new Map<ChildProcess, Promise<void>>();

  constructor(plan: RoundPlan) {
    this.#plan = plan;
    this.#file = new HistoryFile(join(plan.folder, "round.jsonl"));
    this.#place = plan.place;
  }

  async play(): Promise<void> {
    const { random, faults } = this.#plan;
    for (const declared of DECLARED) this.#file.write(declared);
    await this.#startDaemon();
    const count = this.#isAlone ? 1 : CLIENTS;
    const trims = random.chance(0.3);
    await Promise.all(Array.from({ length: count }, (_, index) => this.#startClient(trims && index === 0)));
    for (let fault = 0; fault < faults; fault++) {
      await sleep(random.between(20, 400));
      await this.#strike();
    }
    await sleep(random.between(100, 400));
    await Promise.all(this.#pauses.values());
    await inTime("somebody serves the directory", this.#takeover);
    await this.#stopClients();
    await this.#look();
    await this.#stopDaemon();
  }

  async killAll(): Promise<void> {
    this.#isOver = true;
    const clients = [...this.#clients.values()];
    for (const child of clients) child.kill();
    this.#daemon?.child.kill("SIGKILL");
    await Promise.all([...clients.map(({ exited }) => exited), this.#daemon?.ended]);
    this.#file.close();
  }

  /** A client that nobody shares the directory with. */
  get #isAlone(): boolean {
    return "directory" in this.#place && !this.#place.shared;
  }

  /** The client that is the daemon of all, if any is. */
  get #owner(): [string, Child] | undefined {
    if (!("directory" in this.#place)) return undefined;
    const pid = saidOwner(this.#place.directory)?.pid;
    return [...this.#clients].find(([, { process }]) => process.pid === pid);
  }

  // -------------------------------------------------------------------------------------------------------- faults

  async #strike(): Promise<void> {
    const { random } = this.#plan;
    const dice = random.below(100);
    if (dice < 35) await this.#killDaemon();
    else if (dice < 60 || this.#isAlone) this.#pauseDaemon(random.between(20, 900));
    else {
      const [name, child] = random.pick([...this.#clients]);
      if (dice < 80) {
        await this.#killClient(name, child);
        await this.#startClient(false);
      } else {
        this.#pause(name, child.process, random.between(50, 900));
        // Meanwhile what it is waiting for may be gone.
        if (random.chance(0.4)) await this.#killDaemon();
      }
    }
  }

  async #killDaemon(): Promise<void> {
    const { random } = this.#plan;
    const owner = this.#owner;
    if (owner !== undefined) {
      await this.#killClient(...owner);
    } else if (this.#daemon !== undefined) {
      this.#note("kill", DAEMON);
      this.#daemon.child.kill("SIGKILL");
      await this.#daemon.ended;
    }
    await sleep(random.chance(0.5) ? 0 : random.between(1, 200));
    if (this.#daemon !== undefined) await this.#startDaemon();
    else if (owner !== undefined) await this.#startClient(false);
  }

  #pauseDaemon(ms: number): void {
    const process = this.#daemon?.child ?? this.#owner?.[1].process;
    if (process !== undefined) this.#pause(DAEMON, process, ms);
  }

  /** One that stands still already is left alone. */
  #pause(name: string, process: ChildProcess, ms: number): void {
    if (this.#pauses.has(process)) return;
    const whom = this.#owner?.[1].process === process ? DAEMON : name;
    const pause = async (): Promise<void> => {
      this.#note("pause", whom);
      process.kill("SIGSTOP");
      await sleep(ms);
      this.#pauses.delete(process);
      // Unless it was killed meanwhile.
      if (process.kill("SIGCONT")) this.#note("resume", whom);
    };
    this.#pauses.set(process, pause());
  }

  async #killClient(name: string, child: Child): Promise<void> {
    this.#clients.delete(name);
    const isOwner = "directory" in this.#place && saidOwner(this.#place.directory)?.pid === child.process.pid;
    if (isOwner) this.#note("kill", DAEMON);
    child.kill();
    await child.exited;
    this.#note("kill", name);
    if (isOwner) this.#takeover = this.#untilOwned();
  }

  /** Another client has the directory, and serves it if it is shared. */
  async #untilOwned(): Promise<void> {
    const { directory, shared } = this.#place as Extract<Place, { directory: string }>;
    for (let owner = saidOwner(directory); ; owner = saidOwner(directory)) {
      if (this.#isOver) return;
      if (owner !== undefined && (owner.target !== undefined || !shared)) break;
      await sleep(LOOK_MS);
    }
    this.#note("start", DAEMON);
  }

  #note(fault: Fault["fault"], whom: string): void {
    this.#file.write({ fault, whom, at: nowMs() });
  }

  // ----------------------------------------------------------------------------------------------------- processes

  async #startDaemon(): Promise<void> {
    const place = this.#place;
    if ("directory" in place) return;
    const { folder, durability } = this.#plan;
    const data = ["--data-dir", join(folder, "data"), "--durability", durability];
    this.#daemon = startVarve(["daemon", "--target", place.target, "--log-level", "error", ...data]);
    await inTime("the daemon listens", this.#daemon.printed(/serves/));
    this.#note("start", DAEMON);
  }

  async #startClient(trims: boolean): Promise<void> {
    const { folder, random } = this.#plan;
    const name = `c${this.#started++}`;
    const plan: ClientPlan = {
      name,
      place: this.#place,
      history: join(folder, `${name}.jsonl`),
      seed: random.uint32(),
      roles: { producer: 3, consumer: 3, worker: 1, tailer: 1, groupReader: 1, looker: 1, trimmer: trims ? 1 : 0 },
    };
    const child = startChild(import.meta.url, "./client.js", { args: [JSON.stringify(plan)] });
    this.#clients.set(name, child);
    await inTime(
      `${name} begins`,
      child.message<{ ready?: boolean }>(({ ready }) => ready === true),
    );
  }

  async #stopClients(): Promise<void> {
    await Promise.all(
      [...this.#clients].map(async ([name, child]) => {
        child.process.send("stop");
        const { code, stderr } = await inTime(`${name} ends`, child.exited);
        if (code !== 0) throw new Error(`${name} ended with ${code}: ${stderr}`);
        this.#clients.delete(name);
      }),
    );
  }

  async #stopDaemon(): Promise<void> {
    if (this.#daemon === undefined) return;
    this.#daemon.child.kill("SIGTERM");
    const { code, stderr } = await inTime("the daemon ends", this.#daemon.ended);
    if (code !== 0) throw new Error(`the daemon ended with ${code}: ${stderr}`);
  }

  /** What there is in the end, as one more client sees it. */
  async #look(): Promise<void> {
    const file = new HistoryFile(join(this.#plan.folder, "end.jsonl"));
    const mq = await reach(this.#place);
    try {
      const queues = await openQueues(mq);
      const recorder = new Recorder("end", file);
      // What clients that were killed have asked for is done by then, or never.
      await sleep(QUIET_MS);
      await listAll(recorder, queues);
      if (!this.#plan.drains) return;
      await drain(recorder, queues);
      await listAll(recorder, queues);
    } finally {
      await mq.close();
      file.close();
    }
  }
}

async function inTime<T>(what: string, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${TOO_LONG_MS / 1000} s: ${what}`)), TOO_LONG_MS);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
