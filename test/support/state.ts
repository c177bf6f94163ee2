import type {
  DeadLetter,
  DequeueOptions,
  LogQueue,
  LogRecord,
  MessageQueue,
  Task,
  TaskQueue,
  TaskStats,
} from "../../src/index.js";

/** Everything in a log, from its head to its end. */
// biome-ignore lint/suspicious/noExplicitAny: any log
export async function recordsOf<O>(log: LogQueue<any, O>): Promise<LogRecord<O>[]> {
  const records: LogRecord<O>[] = [];
  for await (const batch of log.batches()) records.push(...batch);
  return records;
}

/** A log's payloads as text. */
// biome-ignore lint/suspicious/noExplicitAny: any log of bytes
export async function textsOf(log: LogQueue<any, Buffer>): Promise<string[]> {
  return (await recordsOf(log)).map((record) => record.payload.toString());
}

/** The first `count` values of an iterable, which is then left. */
export async function take<T>(source: AsyncIterable<T>, count: number): Promise<T[]> {
  const taken: T[] = [];
  if (count === 0) return taken;
  for await (const value of source) {
    taken.push(value);
    if (taken.length === count) break;
  }
  return taken;
}

/** Takes every task that is ready; one call may bring less than that, where the rest has to be read first. */
// biome-ignore lint/suspicious/noExplicitAny: any task queue
export async function takeAll<O>(queue: TaskQueue<any, O>, options: DequeueOptions = {}): Promise<Task<O>[]> {
  const taken: Task<O>[] = [];
  for (;;) {
    const tasks = await queue.dequeueBatch({ ...options, max: 1000 });
    if (tasks.length === 0) return taken;
    taken.push(...tasks);
  }
}

/** All dead letters, page by page. */
// biome-ignore lint/suspicious/noExplicitAny: any task queue
export async function deadOf<O>(queue: TaskQueue<any, O>, pageSize = 1000): Promise<DeadLetter<O>[]> {
  const letters: DeadLetter<O>[] = [];
  for (;;) {
    const last = letters.at(-1);
    const page = await queue.dead.read({ limit: pageSize, ...(last === undefined ? {} : { after: last.offset }) });
    if (page.length === 0) return letters;
    letters.push(...page);
  }
}

/** The counts of a task queue's states, without what changes by the mere passing of time. */
export function countsOf(stats: TaskStats): { ready: number; scheduled: number; leased: number; dead: number } {
  return { ready: stats.ready, scheduled: stats.scheduled, leased: stats.leased, dead: stats.dead };
}

/**
 * All that a client can see without changing anything: the queues, the logs' records, the tasks' counts and the dead
 * letters. Two of these are equal when nothing has happened in between.
 */
export async function observe(mq: MessageQueue): Promise<unknown> {
  const queues = await mq.queues();
  const contents: Record<string, unknown> = {};
  for (const { kind, name } of queues) {
    if (kind === "log") {
      const log = await mq.openLog(name);
      const { head, next, count } = await log.stats();
      contents[`log/${name}`] = { head, next, count, records: (await recordsOf(log)).map(plainRecord) };
    } else {
      const tasks = await mq.openTask(name);
      contents[`task/${name}`] = { ...countsOf(await tasks.stats()), dead: (await deadOf(tasks)).map(plainLetter) };
    }
  }
  return { queues, contents };
}

function plainRecord(record: LogRecord<Buffer>): unknown {
  return { ...record, key: record.key?.toString("hex"), payload: record.payload.toString("hex") };
}

function plainLetter(letter: DeadLetter<Buffer>): unknown {
  return { ...letter, key: letter.key?.toString("hex"), payload: letter.raw.toString("hex"), raw: undefined };
}
