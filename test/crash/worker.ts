/**
 * A process under load, made to be killed: producers and consumers on one directory, each noting every call in the
 * journal. Arguments: directory, journal, round, seed, durability, number of producers.
 */

import { type Durability, isVarveError, open, type Task } from "../../src/index.js";
import { Seeded } from "../support/seeded.js";
import { type Intent, idOf, JournalWriter, payloadOf } from "./journal.js";
import { LEASE_MS, OPEN_OPTIONS, TASK_OPTIONS } from "./shape.js";

const [directory = "", journalPath = "", round = "", seed = "", durability = "", producers = ""] =
  process.argv.slice(2);
const journal = new JournalWriter(journalPath);
const mq = await open(directory, { ...OPEN_OPTIONS, durability: durability as Durability });
const log = await mq.openLog("events");
const jobs = await mq.openTask("jobs", TASK_OPTIONS);
process.send?.({ recovery: (await mq.stats()).recovery });

/** One worker's calls, numbered and noted. */
class Caller {
  readonly name: string;
  readonly random: Seeded;
  #calls = 0;

  constructor(name: string, random: Seeded) {
    this.name = name;
    this.random = random;
  }

  /** Runs a call between its two journal lines. The ids it is to create are made here. */
  async call(
    counts: { readonly log?: number; readonly tasks?: number; readonly acks?: readonly string[] },
    run: (intent: Intent) => Promise<readonly number[]>,
  ): Promise<void> {
    const op = `${this.name}.${this.#calls++}`;
    const name = (kind: string, count: number): string[] =>
      Array.from({ length: count }, (_, index) => `${op}.${kind}${index}`);
    const intent: Intent = {
      kind: "intent",
      op,
      log: name("r", counts.log ?? 0),
      tasks: name("t", counts.tasks ?? 0),
      acks: counts.acks ?? [],
    };
    journal.write(intent);
    try {
      journal.write({ kind: "done", op, offsets: await run(intent) });
    } catch (error) {
      if (!isVarveError(error)) throw error;
      journal.write({ kind: "refused", op, code: error.code });
    }
  }
}

async function produce(caller: Caller): Promise<never> {
  const { random } = caller;
  for (;;) {
    const dice = random.below(100);
    if (dice < 35) {
      await caller.call({ log: 1 }, async ({ log: [id] }) => [await log.append(payloadOf(id as string))]);
    } else if (dice < 50) {
      await caller.call({ log: random.between(2, 6) }, ({ log: ids }) => log.appendBatch(ids.map(payloadOf)));
    } else if (dice < 70) {
      await caller.call({ tasks: 1 }, async ({ tasks: [id] }) => {
        await jobs.enqueue(payloadOf(id as string));
        return [];
      });
    } else if (dice < 80) {
      await caller.call({ tasks: random.between(2, 5) }, async ({ tasks }) => {
        await jobs.enqueueBatch(tasks.map(payloadOf));
        return [];
      });
    } else {
      await caller.call({ log: 1, tasks: 2 }, async (intent) => {
        await mq.transaction((tx) => {
          for (const id of intent.log) tx.append(log, payloadOf(id));
          for (const id of intent.tasks) tx.enqueue(jobs, payloadOf(id));
        });
        return [];
      });
    }
  }
}

async function consume(caller: Caller): Promise<never> {
  const { random } = caller;
  for (;;) {
    const tasks = await jobs.dequeueBatch({ max: random.between(1, 5), wait: 20 });
    for (const task of tasks) journal.write({ kind: "took", task: idOf(task.payload), attempt: task.attempt });
    const dice = random.below(100);
    const acks = tasks.map((task) => idOf(task.payload));
    if (dice < 50) {
      await caller.call({ acks }, async () => {
        await jobs.ackBatch(tasks);
        return [];
      });
    } else if (dice < 80) {
      await caller.call({ acks, log: 1 }, async (intent) => {
        await mq.transaction((tx) => {
          for (const task of tasks) tx.ack(jobs, task);
          for (const id of intent.log) tx.append(log, payloadOf(id));
        });
        return [];
      });
    } else if (dice < 95) {
      for (const task of tasks) await giveBack(task, random.below(3) * 5);
    }
    // Otherwise the tasks are forgotten, and come back when their lease has run out.
  }
}

/** The lease may have run out since, when the machine is busy. */
async function giveBack(task: Task, delayMs: number): Promise<void> {
  try {
    await jobs.nack(task, { delay: delayMs, error: "given back" });
  } catch (error) {
    if (!isVarveError(error, "ERR_STALE_LEASE")) throw error;
  }
}

const random = new Seeded(Number(seed));
const fork = (): Seeded => new Seeded(random.uint32());
await Promise.all([
  ...Array.from({ length: Number(producers) }, (_, index) => produce(new Caller(`${round}.p${index}`, fork()))),
  ...Array.from({ length: 3 }, (_, index) => consume(new Caller(`${round}.c${index}`, fork()))),
  new Promise(() => setInterval(() => {}, LEASE_MS)),
]);
