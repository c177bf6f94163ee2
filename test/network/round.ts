/**
 * One round: a process with clients of all kinds, which is its own daemon, and is killed and made to stand still at moments that
 * a seed chooses. At the end everything is listed, and the history of all of them judged.
 */

import type { ChildProcess } from "node:child_process";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
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
const QUIET_MS = 100;
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
  #started = 0;
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
    this.#note("start", DAEMON);
    await this.#startClient(random.chance(0.3));
    for (let fault = 0; fault < faults; fault++) {
      await sleep(random.between(20, 400));
      await this.#strike();
    }
    await sleep(random.between(100, 400));
    await Promise.all(this.#pauses.values());
    await this.#stopClients();
    await this.#look();
  }

  async killAll(): Promise<void> {
    const clients = [...this.#clients.values()];
    for (const child of clients) child.kill();
    await Promise.all(clients.map(({ exited }) => exited));
    this.#file.close();
  }

  // -------------------------------------------------------------------------------------------------------- faults

  async #strike(): Promise<void> {
    const { random } = this.#plan;
    if (random.chance(0.5)) await this.#killDaemon();
    else {
      for (const { process } of this.#clients.values()) this.#pause(DAEMON, process, random.between(20, 900));
    }
  }

  async #killDaemon(): Promise<void> {
    const { random } = this.#plan;
    this.#note("kill", DAEMON);
    for (const [name, child] of this.#clients) await this.#killClient(name, child);
    await sleep(random.chance(0.5) ? 0 : random.between(1, 200));
    this.#note("start", DAEMON);
    await this.#startClient(false);
  }

  /** One that stands still already is left alone. */
  #pause(whom: string, process: ChildProcess, ms: number): void {
    if (this.#pauses.has(process)) return;
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
    child.kill();
    await child.exited;
    this.#note("kill", name);
  }

  #note(fault: Fault["fault"], whom: string): void {
    this.#file.write({ fault, whom, at: nowMs() });
  }

  // ----------------------------------------------------------------------------------------------------- processes

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
