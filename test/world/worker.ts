/**
 * A process under load: producers and consumers on one directory. Ends by being killed, or after `calls` calls, or once
 * the directory takes no more changes. Its one argument is a WorkerPlan as JSON.
 */

import { closeSync, openSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { type Durability, isVarveError, type MessageQueue, type OpenOptions } from "../../src/index.js";
import { LEASE_MS, OPEN_OPTIONS, TASK_OPTIONS } from "../crash/shape.js";
import { Seeded } from "../support/seeded.js";
import { Caller, type Scene } from "./caller.js";
import { Journal } from "./journal.js";
import { openOn } from "./machine.js";

export interface WorkerPlan {
  readonly directory: string;
  readonly journal: string;
  /** In the names of all that it creates. */
  readonly life: string;
  readonly seed: number;
  readonly durability: Durability;
  readonly mixed: boolean;
  readonly producers: number;
  readonly consumers: number;
  readonly options?: OpenOptions;
  /** The machine's start; by default the real one. */
  readonly boot?: string;
  readonly trimTo?: number;
  /** Ends in order after about so many calls; by default it goes on until it is killed. */
  readonly calls?: number;
  /** Waits to be killed once the disk is full. */
  readonly untilFull?: boolean;
  /** Takes all descriptors but a few from time to time. */
  readonly hungry?: boolean;
}

const HUNGRY_EVERY = 120;
const HUNGRY_CALLS = 40;
/** Some calls wait for a descriptor rather than fail. */
const HUNGRY_MS = 300;

if (process.argv[1]?.endsWith("worker.js")) await run(JSON.parse(process.argv[2] as string) as WorkerPlan);

async function run(plan: WorkerPlan): Promise<void> {
  const alive = setInterval(() => {}, LEASE_MS);
  const journal = new Journal(plan.journal);
  const random = new Seeded(plan.seed);
  let mq: MessageQueue;
  try {
    const logged = (_: object, message: string): void => journal.write({ kind: "logged", message });
    const logger = { debug() {}, info() {}, warn: logged, error: logged };
    const options = { ...OPEN_OPTIONS, durability: plan.durability, logger, ...plan.options };
    mq = await openOn(plan.directory, options, { boot: plan.boot, journal });
  } catch (error) {
    if (!isVarveError(error)) throw error;
    journal.write({ kind: "trouble", what: "open", code: error.code });
    process.send?.({ ready: true });
    process.exit(0);
  }
  journal.write({ kind: "opened" });
  const turns = setInterval(() => journal.write({ kind: "turn" }), 10);
  await attempt(journal, "work", () => work(plan, mq, journal, random));
  clearInterval(turns);
  const { health, failure } = await mq.stats();
  await attempt(journal, "close", () => mq.close());
  journal.write({ kind: "health", health, failure: failure ?? "" });
  clearInterval(alive);
  process.exit(0);
}

async function work(plan: WorkerPlan, mq: MessageQueue, journal: Journal, random: Seeded): Promise<void> {
  const log = await mq.openLog("events");
  const jobs = await mq.openTask("jobs", TASK_OPTIONS);
  const { ready, scheduled, leased } = await jobs.stats();
  const scene: Scene = {
    journal,
    mq,
    log,
    jobs,
    durability: plan.durability,
    mixed: plan.mixed,
    backlog: ready + scheduled + leased,
  };
  const fork = (): Seeded => new Seeded(random.uint32());
  if (plan.trimTo !== undefined) await new Caller(`${plan.life}.trim`, scene, fork()).trim(plan.trimTo);
  process.send?.({ ready: true });
  let calls = 0;
  let refusals = 0;
  const more = (): boolean => (plan.calls === undefined || calls < plan.calls) && refusals < 30;
  const repeat = async (step: () => Promise<string | undefined>): Promise<void> => {
    while (more()) {
      calls++;
      const code = await step();
      if (code === "ERR_DISK_FULL" && plan.untilFull === true) {
        process.send?.({ full: true });
        await new Promise(() => {});
      }
      if (code === undefined || code === "ERR_STALE_LEASE") continue;
      // A directory that takes no more changes is asked a few more times, no more than that.
      if (plan.calls !== undefined && code === "ERR_READ_ONLY") refusals++;
      await sleep(2);
    }
  };
  const callers = (kind: string, count: number): Caller[] =>
    Array.from({ length: count }, (_, index) => new Caller(`${plan.life}.${kind}${index}`, scene, fork()));
  const hunger = plan.hungry === true ? hungry(() => calls, more, fork()) : undefined;
  await Promise.all([
    hunger,
    ...callers("p", plan.producers).map((caller) => repeat(() => caller.produce())),
    ...callers("c", plan.consumers).map((caller) => repeat(() => caller.consume())),
  ]);
}

/** Now and then leaves the process next to no descriptors while calls go on. */
async function hungry(calls: () => number, more: () => boolean, random: Seeded): Promise<void> {
  while (more()) {
    const start = calls() + HUNGRY_EVERY;
    while (more() && calls() < start) await sleep(1);
    const taken: number[] = [];
    try {
      for (;;) taken.push(openSync("/dev/null", "r"));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EMFILE") throw error;
    }
    for (let spare = random.below(3); spare > 0; spare--) closeSync(taken.pop() as number);
    const until = performance.now() + HUNGRY_MS;
    while (more() && calls() < start + HUNGRY_CALLS && performance.now() < until) await sleep(1);
    for (const descriptor of taken) closeSync(descriptor);
  }
}

async function attempt(journal: Journal, what: string, body: () => Promise<void>): Promise<void> {
  try {
    await body();
  } catch (error) {
    if (!isVarveError(error)) throw error;
    journal.write({ kind: "trouble", what, code: error.code });
  }
}
