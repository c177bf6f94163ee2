/**
 * A disk without a free byte: a small tmpfs is filled by varve until it says so, and the rest by a foreign file. Then
 * everything can be read and finished, also after a reopen and after a kill; with space again, varve goes on by itself.
 */

import assert from "node:assert/strict";
import { closeSync, openSync, rmSync, statfsSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { isVarveError, type MessageQueue } from "../../src/index.js";
import { OPEN_OPTIONS, TASK_OPTIONS } from "../crash/shape.js";
import { eventually } from "../support/expect.js";
import type { Seeded } from "../support/seeded.js";
import { countsOf } from "../support/state.js";
import { Caller, type Scene } from "./caller.js";
import { Journal, nowMs } from "./journal.js";
import { Judge } from "./judge.js";
import { openOn } from "./machine.js";
import { type Mount, Refused, tmpfs } from "./mounts.js";
import { journalOf, judgeCopy, type Outcome, type Stage, startWorker } from "./rounds.js";

const TRIALS = 9;
const DISK_BYTES = 24 * 1024 * 1024;
/** What the foreign file has of it from the start, and gives back at the end. */
const FOREIGN_BYTES = 4 * 1024 * 1024;
const CALLS_AFTERWARDS = 300;
/** What happens between the full disk and the drain. */
const INTERLUDES = ["nothing", "reopen", "kill"] as const;

export async function full(stage: Stage): Promise<Outcome> {
  const total = { acknowledged: 0, drained: 0, trials: 0 };
  const trials = Math.max(INTERLUDES.length, Math.round(TRIALS * stage.scale));
  for (let trial = 0; trial < trials; trial++) {
    const interlude = INTERLUDES[trial % INTERLUDES.length] as (typeof INTERLUDES)[number];
    const disk = tmpfs(join(stage.folder, `mount-${trial}`), DISK_BYTES);
    try {
      disk.mount();
    } catch (error) {
      if (error instanceof Refused) return { skipped: error.message };
      throw error;
    }
    try {
      const one = new Trial(stage, disk, trial);
      await one.run(interlude);
      total.trials++;
      total.acknowledged += one.judge.acknowledged;
      total.drained += one.drained;
      disk.unmount();
    } catch (error) {
      throw new Error(`trial ${trial} (${interlude}; ${disk.path} stays mounted): ${(error as Error).message}`, {
        cause: error,
      });
    }
  }
  return {
    line:
      `${total.trials} disks of ${DISK_BYTES / 1024 / 1024} MiB filled to the last byte, ${total.acknowledged} calls ` +
      `acknowledged, ${total.drained} tasks drained without a free byte`,
  };
}

class Trial {
  readonly judge = new Judge(["ERR_DISK_FULL"]);
  drained = 0;
  readonly #stage: Stage;
  readonly #disk: Mount;
  readonly #number: number;
  readonly #directory: string;
  readonly #foreign: string;
  #lives = 0;

  constructor(stage: Stage, disk: Mount, number: number) {
    this.#stage = stage;
    this.#disk = disk;
    this.#number = number;
    this.#directory = join(disk.path, "data");
    this.#foreign = join(disk.path, "foreign");
  }

  async run(interlude: (typeof INTERLUDES)[number]): Promise<void> {
    const { random } = this.#stage;
    writeFileSync(this.#foreign, Buffer.alloc(FOREIGN_BYTES));
    if (interlude === "kill") await this.#fillInAnotherProcess();
    let mq = interlude === "kill" ? await this.#open() : await this.#openAndFill(random);
    if (interlude === "reopen") {
      await mq.close();
      // What varve had in reserve and gave up for the close.
      this.#takeTheRest();
      mq = await this.#open();
    }
    await this.#drain(mq, random);
    rmSync(this.#foreign);
    await this.#goOn(mq, random);
    await mq.close();
    await judgeCopy(this.judge, this.#directory, this.#stage.folder, { kind: "kill" });
  }

  async #fillInAnotherProcess(): Promise<void> {
    const { random } = this.#stage;
    const plan = {
      directory: this.#directory,
      journal: this.#journalPath(),
      life: this.#life(),
      seed: random.uint32(),
      durability: random.pick(["sync", "async"] as const),
      mixed: false,
      producers: 4,
      consumers: 1,
      untilFull: true,
    };
    const child = startWorker(plan);
    await child.message<{ full?: boolean }>(({ full: isFull }) => isFull === true);
    child.kill();
    await child.exited;
    this.#takeTheRest();
    this.judge.life(journalOf(plan), nowMs());
    await judgeCopy(this.judge, this.#directory, this.#stage.folder, { kind: "kill" });
  }

  async #openAndFill(random: Seeded): Promise<MessageQueue> {
    const mq = await this.#open(random.pick(["sync", "async"] as const));
    await this.#phase(mq, async (caller) => {
      await Promise.all(
        Array.from({ length: 4 }, async (_, index) => {
          const producer = caller(index);
          for (;;) {
            const code = await producer.produce();
            if (code === "ERR_DISK_FULL") return;
            assert.equal(code, undefined);
            if (!random.chance(0.1)) continue;
            // Acks go on; only those that come with an append need space.
            const late = await producer.consume();
            assert.ok(late === undefined || late === "ERR_DISK_FULL", late);
          }
        }),
      );
    });
    assert.equal((await mq.stats()).health, "disk-full");
    this.#takeTheRest();
    return mq;
  }

  /** Finishes every task, with some given back on the way. */
  async #drain(mq: MessageQueue, random: Seeded): Promise<void> {
    const jobs = await mq.openTask("jobs");
    await this.#phase(mq, async (caller) => {
      const consumer = caller(0);
      for (;;) {
        const { ready, scheduled, leased } = countsOf(await jobs.stats());
        if (ready + scheduled + leased === 0) break;
        const taken = await consumer.take(random.between(1, 100), 1000);
        assert.ok(typeof taken !== "string", `taking tasks on a full disk: ${String(taken)}`);
        if (random.chance(0.1)) {
          assert.equal(await consumer.giveBack(taken), undefined, "giving back goes on");
          continue;
        }
        assert.equal(await consumer.ack(taken), undefined, "acks go on");
        this.drained += taken.length;
      }
      if (random.chance(0.5)) return;
      const { head, next } = await (await mq.openLog("events")).stats();
      assert.equal(await consumer.trim(random.between(head, next)), undefined, "trimming goes on");
    });
  }

  /** With space again, it works without a restart. */
  async #goOn(mq: MessageQueue, random: Seeded): Promise<void> {
    const log = await mq.openLog("events");
    const before = (await log.stats()).count;
    await this.#phase(mq, async (caller) => {
      const producer = caller(0);
      await eventually("changes are taken again", async () => (await producer.produce()) === undefined);
      for (let call = 0; call < CALLS_AFTERWARDS; call++) {
        assert.equal(await producer.produce(), undefined);
        if (random.chance(0.2)) assert.equal(await producer.consume(), undefined);
      }
    });
    assert.equal((await mq.stats()).health, "ok");
    assert.ok((await log.stats()).count >= before + CALLS_AFTERWARDS / 3);
  }

  async #open(durability: "sync" | "async" = "sync"): Promise<MessageQueue> {
    try {
      return await openOn(this.#directory, { ...OPEN_OPTIONS, durability }, {});
    } catch (error) {
      if (isVarveError(error)) throw new Error(`opening failed with ${error.code}: ${error.message}`, { cause: error });
      throw error;
    }
  }

  /** Calls of some kind, noted in a journal of their own, which then goes to the judge. */
  async #phase(mq: MessageQueue, body: (caller: (index: number) => Caller) => Promise<void>): Promise<void> {
    const path = this.#journalPath();
    const life = this.#life();
    const scene: Scene = {
      journal: new Journal(path),
      mq,
      log: await mq.openLog("events"),
      jobs: await mq.openTask("jobs", TASK_OPTIONS),
      durability: (await mq.stats()).durability,
      mixed: false,
      backlog: 0,
    };
    const random = this.#stage.random;
    await body((index) => new Caller(`${life}.${index}`, scene, random));
    scene.journal.close();
    this.judge.life(journalOf({ journal: path }), nowMs());
  }

  #takeTheRest(): void {
    const file = openSync(this.#foreign, "a");
    const bytes = Buffer.alloc(64 * 1024);
    try {
      for (;;) writeSync(file, bytes);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
    } finally {
      closeSync(file);
    }
    assert.equal(this.#freeBytes(), 0);
  }

  #freeBytes(): number {
    const { bavail, bsize } = statfsSync(this.#disk.path);
    return bavail * bsize;
  }

  #life(): string {
    return `${this.#number}-${this.#lives++}`;
  }

  #journalPath(): string {
    return join(this.#stage.folder, `journal-${this.#number}-${this.#lives}`);
  }
}
