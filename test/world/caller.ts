/** One producer or consumer: makes calls of all kinds and notes each in the journal. */

import { type Durability, isVarveError, type LogQueue, type MessageQueue, type TaskQueue } from "../../src/index.js";
import { idOf, payloadOf } from "../crash/journal.js";
import type { Seeded } from "../support/seeded.js";
import { type Held, type Intent, type Journal, nowMs } from "./journal.js";

export interface Scene {
  readonly journal: Journal;
  readonly mq: MessageQueue;
  readonly log: LogQueue;
  readonly jobs: TaskQueue;
  /** The directory's. */
  readonly durability: Durability;
  /** Overrides it in half of the calls. */
  readonly mixed: boolean;
  /** Tasks enqueued and not acked, about; producers hold back when there are too many. */
  backlog: number;
}

const BACKLOG_MAX = 1500;

/** A delivery with the proof of its lease. */
export type Taken = Held & { readonly token: string };

interface Work {
  readonly log?: number;
  readonly tasks?: number;
  readonly acks?: readonly Held[];
  readonly trim?: number;
}

export class Caller {
  readonly #name: string;
  readonly #scene: Scene;
  readonly #random: Seeded;
  #calls = 0;

  constructor(name: string, scene: Scene, random: Seeded) {
    this.#name = name;
    this.#scene = scene;
    this.#random = random;
  }

  /** Appends, enqueues, or both in one commit. Returns the code of its failure, if any. */
  async produce(): Promise<string | undefined> {
    const { log, jobs, mq, backlog } = this.#scene;
    const random = this.#random;
    const dice = random.below(backlog > BACKLOG_MAX ? 50 : 100);
    if (dice < 30) {
      return await this.#call({ log: 1 }, async ({ log: [id] }, options) => [
        await log.append(payloadOf(id as string), options),
      ]);
    }
    if (dice < 50) {
      return await this.#call({ log: random.between(2, 8) }, ({ log: ids }, options) =>
        log.appendBatch(ids.map(payloadOf), options),
      );
    }
    if (dice < 65) {
      return await this.#call({ tasks: 1 }, async ({ tasks: [id] }, options) => {
        await jobs.enqueue(payloadOf(id as string), options);
        return [];
      });
    }
    if (dice < 80) {
      return await this.#call({ tasks: random.between(2, 5) }, async ({ tasks }, options) => {
        await jobs.enqueueBatch(tasks.map(payloadOf), options);
        return [];
      });
    }
    return await this.#call({ log: 1, tasks: 2 }, async (intent, options) => {
      await mq.transaction((tx) => {
        for (const id of intent.log) tx.append(log, payloadOf(id));
        for (const id of intent.tasks) tx.enqueue(jobs, payloadOf(id));
      }, options);
      return [];
    });
  }

  /** Takes tasks; acks them, acks them together with an append, gives them back, or forgets them. */
  async consume(): Promise<string | undefined> {
    const taken = await this.take(this.#random.between(1, 20), 20);
    if (typeof taken === "string") return taken;
    if (taken.length === 0) return undefined;
    const dice = this.#random.below(100);
    if (dice < 60) return await this.ack(taken);
    if (dice < 85) {
      const { mq, log, jobs } = this.#scene;
      return await this.#call({ acks: taken, log: 1 }, async (intent, options) => {
        await mq.transaction((tx) => {
          for (const { token } of taken) tx.ack(jobs, token);
          for (const id of intent.log) tx.append(log, payloadOf(id));
        }, options);
        return [];
      });
    }
    return dice < 95 ? await this.giveBack(taken) : undefined;
  }

  async giveBack(taken: readonly Taken[]): Promise<string | undefined> {
    for (const { task, attempt, token } of taken) {
      this.#scene.journal.write({ kind: "giving", task, attempt });
      const code = await this.#attempt("nack", () => this.#scene.jobs.nack(token, { delay: 0 }));
      if (code !== undefined && code !== "ERR_STALE_LEASE") return code;
    }
    return undefined;
  }

  async take(max: number, waitMs: number): Promise<Taken[] | string> {
    const { journal, jobs } = this.#scene;
    const asked = nowMs();
    const durability = this.#durability();
    let taken: Taken[] = [];
    const code = await this.#attempt("dequeue", async () => {
      const tasks = await jobs.dequeueBatch({ max, wait: waitMs, durability });
      taken = tasks.map(({ payload, attempt, token }) => ({ task: idOf(payload), attempt, token }));
    });
    if (code !== undefined) return code;
    for (const { task, attempt } of taken) journal.write({ kind: "took", task, attempt, asked, durability });
    return taken;
  }

  async ack(taken: readonly Taken[]): Promise<string | undefined> {
    return await this.#call({ acks: taken }, async (_, options) => {
      await this.#scene.jobs.ackBatch(taken, options);
      return [];
    });
  }

  async trim(offset: number): Promise<string | undefined> {
    return await this.#call({ trim: offset }, async (_, options) => {
      await this.#scene.log.trim(offset, options);
      return [];
    });
  }

  /** Runs a call between its two journal lines. The ids it is to create are made here. */
  async #call(
    { log = 0, tasks = 0, acks = [], trim }: Work,
    run: (intent: Intent, options: { durability: Durability }) => Promise<readonly number[]>,
  ): Promise<string | undefined> {
    const { journal } = this.#scene;
    const op = `${this.#name}.${this.#calls++}`;
    const name = (kind: string, count: number): string[] =>
      Array.from({ length: count }, (_, index) => `${op}.${kind}${index}`);
    const durability = this.#durability();
    const intent: Intent = {
      kind: "intent",
      op,
      durability,
      log: name("r", log),
      tasks: name("t", tasks),
      acks: acks.map(({ task, attempt }) => ({ task, attempt })),
      ...(trim === undefined ? {} : { trim }),
    };
    journal.write(intent);
    try {
      journal.write({ kind: "done", op, offsets: await run(intent, { durability }) });
      this.#scene.backlog += tasks - acks.length;
      return undefined;
    } catch (error) {
      if (!isVarveError(error)) throw error;
      journal.write({ kind: "failed", op, code: error.code });
      return error.code;
    }
  }

  async #attempt(what: string, run: () => Promise<unknown>): Promise<string | undefined> {
    try {
      await run();
      return undefined;
    } catch (error) {
      if (!isVarveError(error)) throw error;
      this.#scene.journal.write({ kind: "trouble", what, code: error.code });
      return error.code;
    }
  }

  #durability(): Durability {
    const { durability, mixed } = this.#scene;
    return mixed ? this.#random.pick(["sync", "async"]) : durability;
  }
}
