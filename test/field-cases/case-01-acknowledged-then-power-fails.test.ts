import assert from "node:assert/strict";
import { test } from "node:test";
import type { Durability, LogQueue, MessageQueue, Task, TaskQueue } from "../../src/index.js";
import { killAgainAndAgain } from "../crash/rounds.js";
import { CRASH_POLICIES } from "../sim/sim-disk.js";
import { scaled } from "../support/scale.js";
import { type Seeded, seedOr, withSeed } from "../support/seeded.js";
import { Simulated, TINY } from "../support/simulated.js";
import { recordsOf } from "../support/state.js";

/**
 * Goal: what is there after a power cut is exactly what the first k operations had made, for one k that leaves out
 * nothing acknowledged as durable. Method: operations one after another, each changing something that can be told
 * apart; after each, the state that a reader would find is noted; the state found after the cut must be one of them.
 */

const SYNC_INTERVAL_MS = 40;
/** What a simulated timer and fdatasync may add to the interval. */
const SYNC_SLACK_MS = 110;

interface Step {
  /** The state after it, as text. */
  state: string;
  /** Offsets given out up to here. */
  readonly offsets: number;
  acknowledgedAtMs: number | undefined;
  /** Made with `sync`, and something was there to make durable. */
  durable: boolean;
}

/** The state of a log and a task queue, as their readers would find it. */
class World {
  head = 0;
  readonly records: string[] = [];
  /** Unfinished tasks, with the number of their deliveries. */
  readonly tasks = new Map<string, number>();

  toString(): string {
    const records = this.records.slice(this.head).map((text, index) => `${this.head + index}:${short(text)}`);
    const tasks = [...this.tasks].map(([text, attempts]) => `${short(text)}*${attempts}`).sort();
    return `head ${this.head} log ${records.join(" ")} tasks ${tasks.join(" ")}`;
  }
}

/** Without its filler, of which the length is enough. */
function short(text: string): string {
  return `${text.replaceAll("#", "")}~${text.length}`;
}

class Run {
  readonly world = new World();
  readonly steps: Step[] = [{ state: this.world.toString(), offsets: 0, acknowledgedAtMs: 0, durable: true }];
  readonly held = new Map<string, Task>();
  readonly #machine: Simulated;
  readonly #mq: MessageQueue;
  readonly #log: LogQueue;
  readonly #jobs: TaskQueue;
  readonly #random: Seeded;
  readonly #durability: Durability;
  #number = 0;
  /** True while a delivery has not been answered. */
  delivering = false;

  constructor(
    machine: Simulated,
    queues: { readonly mq: MessageQueue; readonly log: LogQueue; readonly jobs: TaskQueue },
    random: Seeded,
    durability: Durability,
  ) {
    this.#machine = machine;
    this.#mq = queues.mq;
    this.#log = queues.log;
    this.#jobs = queues.jobs;
    this.#random = random;
    this.#durability = durability;
  }

  /** One operation; false if the machine has stopped in it. */
  async step(): Promise<boolean> {
    const durability = this.#random.chance(0.1) ? "sync" : this.#durability;
    const call = this.#choose(durability);
    const step: Step = {
      state: this.world.toString(),
      offsets: this.world.records.length,
      acknowledgedAtMs: undefined,
      durable: durability === "sync",
    };
    this.steps.push(step);
    const outcome = await this.#machine.outcomeOf(call);
    if (outcome.kind === "rejected") {
      if (this.#machine.disk.halted) return false;
      throw outcome.error;
    }
    if (outcome.kind === "unanswered") return false;
    // What changed nothing was no commit, and so made none durable.
    if (step.state === this.steps.at(-2)?.state) step.durable = false;
    step.acknowledgedAtMs = this.#machine.clock.elapsedMs();
    return true;
  }

  /** Begins one operation, and changes the world as it should. */
  #choose(durability: Durability): Promise<unknown> {
    const { world } = this;
    const random = this.#random;
    const commit = { durability };
    const dice = random.below(100);
    const text = `${this.#number++}${"#".repeat(random.chance(0.1) ? 3000 : random.below(60))}`;
    const [held, token] = random.pick([...this.held]) ?? [];
    if (dice < 25) {
      world.records.push(text);
      return this.#log.append(text, commit);
    }
    if (dice < 35) {
      const texts = Array.from({ length: random.between(2, 8) }, (_, index) => `${text}/${index}`);
      world.records.push(...texts);
      return this.#log.appendBatch(texts, commit);
    }
    if (dice < 38) {
      world.head = random.between(world.head, world.records.length);
      return this.#log.trim(world.head, commit);
    }
    if (dice < 60 || held === undefined || token === undefined) {
      if (dice % 2 === 0 || world.tasks.size === this.held.size) {
        world.tasks.set(text, 0);
        return this.#jobs.enqueue(text, { ...commit, delay: random.pick([0, 0, 500]) });
      }
      return this.#deliver(durability);
    }
    if (dice < 75) {
      world.tasks.delete(held);
      this.held.delete(held);
      return this.#jobs.ack(token, commit);
    }
    if (dice < 85) {
      this.held.delete(held);
      return this.#jobs.nack(token, { ...commit, delay: 0, error: text });
    }
    world.tasks.delete(held);
    this.held.delete(held);
    world.records.push(text);
    world.tasks.set(`${text}/next`, 0);
    return this.#mq.transaction((tx) => {
      tx.ack(this.#jobs, token);
      tx.append(this.#log, text);
      tx.enqueue(this.#jobs, `${text}/next`);
    }, commit);
  }

  /** Which task it will be is the queue's choice, so the state is only known afterwards. */
  async #deliver(durability: Durability): Promise<void> {
    const position = this.steps.length;
    this.delivering = true;
    const task = await this.#jobs.dequeue({ durability });
    this.delivering = false;
    if (task === undefined) return;
    const text = task.payload.toString();
    assert.equal(task.attempt, (this.world.tasks.get(text) ?? 0) + 1);
    this.world.tasks.set(text, task.attempt);
    this.held.set(text, task);
    (this.steps[position] as Step).state = this.world.toString();
  }

  /** States that an unanswered last delivery may have led to: one task or another has one attempt more. */
  possibleDeliveries(): string[] {
    const states: string[] = [];
    if (!this.delivering) return states;
    for (const [text, attempts] of this.world.tasks) {
      if (this.held.has(text)) continue;
      this.world.tasks.set(text, attempts + 1);
      states.push(this.world.toString());
      this.world.tasks.set(text, attempts);
    }
    return states;
  }
}

async function observe(machine: Simulated, mq: MessageQueue): Promise<string> {
  const world = new World();
  const log = await machine.settle(mq.openLog("events"));
  const jobs = await machine.settle(mq.openTask("jobs"));
  const { head } = await machine.settle(log.stats());
  world.head = head;
  world.records.length = head;
  for (const record of await machine.settle(recordsOf(log))) {
    world.records[record.offset] = record.payload.toString();
  }
  for (;;) {
    const { ready, scheduled, leased } = await machine.settle(jobs.stats());
    if (ready + scheduled === 0 && leased === world.tasks.size) break;
    for (const task of await machine.settle(jobs.dequeueBatch({ max: 1000, wait: "2h", lease: "24h" }))) {
      world.tasks.set(task.payload.toString(), task.attempt - 1);
    }
  }
  return world.toString();
}

for (const durability of ["sync", "async"] as const) {
  void test(`case 1: after a power cut, nothing acknowledged is missing (${durability})`, async () => {
    await withSeed(seedOr(101), async (random) => {
      let lostSteps = 0;
      for (let cut = 0; cut < scaled(60); cut++) {
        const policy = CRASH_POLICIES[cut % CRASH_POLICIES.length]!;
        const machine = Simulated.boot(random.uint32());
        const mq = await machine.open({ ...TINY, durability, syncInterval: SYNC_INTERVAL_MS });
        const log = await machine.settle(mq.openLog("events"));
        const jobs = await machine.settle(mq.openTask("jobs", { lease: "1h", maxAttempts: Number.POSITIVE_INFINITY }));
        await machine.settle(mq.sync());
        const run = new Run(machine, { mq, log, jobs }, random, durability);
        const before = random.below(200);
        let running = true;
        for (let index = 0; running && index < before + 300; index++) {
          if (index === before) machine.disk.haltAt(machine.disk.calls + random.between(1, 40), random.below(2000));
          running = await run.step();
          if (running && random.chance(0.2)) await machine.pass(random.below(15));
        }
        const cutAtMs = machine.clock.elapsedMs();
        const next = machine.cutPower(policy);
        const again = await next.open(TINY);
        const found = await observe(next, again);
        const offset = await next.settle((await next.settle(again.openLog("events"))).append("after"));
        await next.settle(again.close());
        const where = `cut ${cut} (${policy}) in operation ${run.steps.length - 1}`;
        const shown = run.steps.findLast((step) => step.acknowledgedAtMs !== undefined)?.offsets ?? 0;
        assert.ok(offset >= shown, `${where}: offset ${offset} is given out again; ${shown} were`);
        if (run.possibleDeliveries().includes(found)) continue;
        const kept = run.steps.findLastIndex(({ state }) => state === found);
        assert.notEqual(kept, -1, `${where}: the state is that of no moment: ${found.slice(0, 2000)}`);
        for (const [index, { acknowledgedAtMs, durable }] of run.steps.entries()) {
          if (index <= kept || acknowledgedAtMs === undefined) continue;
          lostSteps++;
          assert.ok(!durable, `${where}: operation ${index} was acknowledged as durable, only ${kept} are there`);
          const ageMs = cutAtMs - acknowledgedAtMs;
          assert.ok(ageMs <= SYNC_INTERVAL_MS + SYNC_SLACK_MS, `${where}: operation ${index} was ${ageMs} ms old`);
        }
      }
      assert.equal(lostSteps > 0, durability === "async", "the cuts are real: without sync, some cost something");
    });
  });
}

void test("case 1: a killed process loses nothing, in either mode", async () => {
  await withSeed(seedOr(Date.now()), async (random) => {
    for (const durability of ["sync", "async"] as const) {
      await killAgainAndAgain(random, { rounds: scaled(4), producers: 6, durabilities: [durability] });
    }
  });
});
