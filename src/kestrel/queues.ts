/**
 * The task queues behind the protocol's names. A queue is opened (and so created) when it is first mentioned by a read or
 * a `set`, and kept open.
 */

import type { MessageQueue, Task, TaskCursor, TaskOptions, TaskQueue } from "../api/contract.js";
import { isVarveError } from "../api/errors.js";
import { Unlimited } from "./unlimited.js";

/** How a read waits. */
interface Wait {
  readonly wait: number;
  readonly signal: AbortSignal | undefined;
}

/** Something to read from: a queue, or a cursor on one. */
export interface Source {
  /** Removes the next item and gives it. */
  take(): Promise<Task | undefined>;
  /** Takes the next item until it is confirmed or given back, or the connection ends. */
  open(wait: Wait): Promise<Task | undefined>;
  peek(wait: Wait): Promise<{ readonly payload: Buffer } | undefined>;
  confirm(task: Task): Promise<void>;
  /** Undoes `open`. What cannot be given back, since the queue is gone, is gone. */
  giveBack(task: Task): Promise<void>;
  /** Reads open now. */
  readonly opened: number;
}

/** How a queue of that name is made when the protocol creates it. */
export type QueueSettings = Omit<TaskOptions, "codec" | "create">;

/** What one call has removed: fewer than asked for when there are no more, or when an error keeps back those behind them. */
export interface Taken {
  readonly tasks: readonly Task[];
  readonly error: unknown;
}

abstract class TaskSource implements Source {
  opened = 0;
  /** Reads opened, and given back, since the front began. */
  openings = 0;
  givenBack = 0;
  abstract take(): Promise<Task | undefined>;
  abstract open(wait: Wait): Promise<Task | undefined>;
  abstract peek(wait: Wait): Promise<{ readonly payload: Buffer } | undefined>;
  protected abstract ack(task: Task): Promise<void>;
  protected abstract release(task: Task): Promise<void>;

  protected count(task: Task | undefined): Task | undefined {
    if (task === undefined) return undefined;
    this.opened++;
    this.openings++;
    return task;
  }

  async confirm(task: Task): Promise<void> {
    this.opened--;
    await ended(this.ack(task));
  }

  async giveBack(task: Task): Promise<void> {
    this.opened--;
    this.givenBack++;
    await ended(this.release(task));
  }
}

/** An open read of a queue that has been deleted meanwhile may be ended like any other; nothing comes of it. */
async function ended(settling: Promise<void>): Promise<void> {
  try {
    await settling;
  } catch (error) {
    if (!isVarveError(error, "ERR_NOT_FOUND") && !isVarveError(error, "ERR_STALE_LEASE")) throw error;
  }
}

export class OpenedQueue extends TaskSource {
  readonly name: string;
  readonly tasks: TaskQueue;
  readonly cursors = new Map<string, CursorSource>();
  /** Since the front began. */
  flushes = 0;
  /** When the item that was read last had been stored; 0 before the first read. */
  lastStoredMs = 0;
  /** Bytes of the item that was read last; unknown at first, so that one is read alone. */
  #lastBytes = TAKEN_BYTES;
  #head = "";
  #headBytes = -1;
  /** Whether items that die may be stored together. */
  readonly unlimited: Unlimited;

  constructor(name: string, tasks: TaskQueue) {
    super();
    this.name = name;
    this.tasks = tasks;
    this.unlimited = new Unlimited(tasks);
  }

  set(body: Buffer, expiresAtMs: number | undefined): Promise<unknown> {
    if (expiresAtMs === undefined) return this.tasks.enqueue(body);
    return this.tasks.enqueue(body, { expiresAt: new Date(expiresAtMs) });
  }

  /** Items with the same end, in one commit. Rejects with nothing stored. */
  setAll(bodies: readonly Buffer[], expiresAtMs: number): Promise<unknown> {
    return this.tasks.enqueueBatch(bodies, { expiresAt: new Date(expiresAtMs) });
  }

  async take(): Promise<Task | undefined> {
    return this.#read(await this.tasks.dequeue(TAKE));
  }

  /** How many items one call may remove: they all stand in memory then, and are gone, whether their reply arrives or not. */
  get takenAtOnceMax(): number {
    return Math.max(1, Math.min(TAKEN_AT_ONCE_MAX, Math.floor(TAKEN_BYTES / (this.#lastBytes + 1))));
  }

  /** Removes the next items. */
  async takeAll(count: number): Promise<Taken> {
    if (count === 1) {
      const task = await this.take();
      return { tasks: task === undefined ? [] : [task], error: undefined };
    }
    const tasks = await this.tasks.dequeueBatch({ autoAck: true, max: count });
    let error: unknown;
    try {
      // Fewer than there are may come at once.
      for (let more = tasks; more.length > 0 && tasks.length < count; tasks.push(...more)) {
        more = await this.tasks.dequeueBatch({ autoAck: true, max: count - tasks.length });
      }
    } catch (thrown) {
      // What has been taken is not lost. A queue that has been deleted meanwhile has no more.
      if (!isVarveError(thrown, "ERR_NOT_FOUND")) error = thrown;
    }
    this.#read(tasks[tasks.length - 1]);
    return { tasks, error };
  }

  /** The line before a value of so many bytes. */
  head(bytes: number): string {
    if (bytes !== this.#headBytes) {
      this.#headBytes = bytes;
      this.#head = valueHead(this.name, bytes);
    }
    return this.#head;
  }

  async open({ wait, signal }: Wait): Promise<Task | undefined> {
    return this.count(this.#read(await this.tasks.dequeue({ lease: "session", wait, signal })));
  }

  peek({ wait, signal }: Wait): Promise<{ readonly payload: Buffer } | undefined> {
    return this.tasks.peek({ wait, signal });
  }

  protected ack(task: Task): Promise<void> {
    return this.tasks.ack(task);
  }

  protected release(task: Task): Promise<void> {
    return this.tasks.release(task);
  }

  #read(task: Task | undefined): Task | undefined {
    if (task !== undefined) this.noteRead(task.timestamp, task.payload.length);
    return task;
  }

  /** An item has been read. */
  noteRead(storedMs: number, bytes: number): void {
    this.lastStoredMs = storedMs;
    this.#lastBytes = bytes;
  }
}

/** The line before a value. */
export function valueHead(queue: string, bytes: number): string {
  return `VALUE ${queue} 0 ${bytes}\r\n`;
}

const TAKEN_AT_ONCE_MAX = 16;
/** Of values that are taken at once, about: nobody knows before they are there. */
const TAKEN_BYTES = 1024 * 1024;
const TAKE = Object.freeze({ autoAck: true });

class CursorSource extends TaskSource {
  readonly cursor: TaskCursor;

  constructor(cursor: TaskCursor) {
    super();
    this.cursor = cursor;
  }

  take(): Promise<Task | undefined> {
    return this.cursor.dequeue(TAKE);
  }

  async open({ wait, signal }: Wait): Promise<Task | undefined> {
    return this.count(await this.cursor.dequeue({ lease: "session", wait, signal }));
  }

  peek({ wait, signal }: Wait): Promise<{ readonly payload: Buffer } | undefined> {
    return this.cursor.peek({ wait, signal });
  }

  protected ack(task: Task): Promise<void> {
    return this.cursor.ack(task);
  }

  protected release(task: Task): Promise<void> {
    return this.cursor.release(task);
  }
}

export class Queues {
  readonly #mq: MessageQueue;
  readonly #settings: (name: string) => QueueSettings;
  readonly #opened = new Map<string, OpenedQueue>();
  readonly #opening = new Map<string, Promise<OpenedQueue>>();
  /** Since the front began. */
  created = 0;
  deleted = 0;

  /** @param settings for queues that are mentioned for the first time, by name */
  constructor(mq: MessageQueue, settings: (name: string) => QueueSettings) {
    this.#mq = mq;
    this.#settings = settings;
  }

  /** A queue that is open already. */
  opened(name: string): OpenedQueue | undefined {
    return this.#opened.get(name);
  }

  /** Opens a queue, making it when there is none. */
  async open(name: string): Promise<OpenedQueue> {
    const queue = this.#opened.get(name);
    if (queue !== undefined) return queue;
    const opening = this.#opening.get(name) ?? this.#findOrMake(name).finally(() => this.#opening.delete(name));
    this.#opening.set(name, opening);
    return await opening;
  }

  /** A queue, if there is one. */
  async find(name: string): Promise<OpenedQueue | undefined> {
    const queue = this.#opened.get(name) ?? this.#opening.get(name);
    if (queue !== undefined) return await queue;
    try {
      return this.#keep(name, await this.#mq.openTask(name, { create: false }));
    } catch (error) {
      if (isVarveError(error, "ERR_NOT_FOUND")) return undefined;
      throw error;
    }
  }

  openedSource(name: string, cursor: string | undefined): Source | undefined {
    const queue = this.#opened.get(name);
    return cursor === undefined ? queue : queue?.cursors.get(cursor);
  }

  async openSource(name: string, cursor: string | undefined): Promise<Source> {
    const queue = await this.open(name);
    if (cursor === undefined) return queue;
    const known = queue.cursors.get(cursor);
    if (known !== undefined) return known;
    const source = new CursorSource(await queue.tasks.cursor(cursor));
    const raced = queue.cursors.get(cursor);
    if (raced !== undefined) return raced;
    queue.cursors.set(cursor, source);
    return source;
  }

  /** Lets go of what turned out to have been deleted by others. */
  forget(name: string, cursor: string | undefined, source: Source): void {
    const queue = this.#opened.get(name);
    if (cursor !== undefined && queue?.cursors.get(cursor) === source) queue.cursors.delete(cursor);
    else if (queue !== undefined && (queue === source || cursor !== undefined)) this.#opened.delete(name);
  }

  /** Makes a queue again that turned out to have been deleted by others. */
  async reopen(queue: OpenedQueue): Promise<OpenedQueue> {
    this.forget(queue.name, undefined, queue);
    return await this.open(queue.name);
  }

  /** One copy for each name, in one commit. */
  async fanOut(names: readonly string[], body: Buffer, expiresAtMs: number | undefined): Promise<void> {
    try {
      await this.#fanOut(names, body, expiresAtMs);
    } catch (error) {
      if (!isVarveError(error, "ERR_NOT_FOUND")) throw error;
      // One of them has been deleted by someone else: it is made again.
      for (const name of names) this.#opened.delete(name);
      await this.#fanOut(names, body, expiresAtMs);
    }
  }

  async #fanOut(names: readonly string[], body: Buffer, expiresAtMs: number | undefined): Promise<void> {
    const queues = await Promise.all(names.map((name) => this.open(name)));
    const options = expiresAtMs === undefined ? undefined : { expiresAt: new Date(expiresAtMs) };
    await this.#mq.transaction((tx) => {
      for (const { tasks } of queues) tx.enqueue(tasks, body, options);
    });
  }

  async delete(name: string): Promise<void> {
    await this.#opening.get(name)?.catch(() => {});
    this.#opened.delete(name);
    if (await this.#mq.deleteQueue("task", name)) this.deleted++;
  }

  async deleteCursor(name: string, cursor: string): Promise<void> {
    const queue = await this.find(name);
    queue?.cursors.delete(cursor);
    await queue?.tasks.deleteCursor(cursor);
  }

  /** Removes what waits, and the cursors with it. Open reads stay open. */
  async flush(name: string): Promise<void> {
    const queue = await this.find(name);
    if (queue === undefined) return;
    queue.flushes++;
    queue.cursors.clear();
    for (const cursor of await queue.tasks.cursors()) await queue.tasks.deleteCursor(cursor);
    await queue.tasks.purge();
  }

  async flushCursor(name: string, cursor: string): Promise<void> {
    const queue = await this.find(name);
    if (queue === undefined) return;
    const source = (await this.openSource(name, cursor)) as CursorSource;
    await source.cursor.reset();
  }

  async flushAll(): Promise<void> {
    for (const name of await this.names()) await this.flush(name);
  }

  async expire(name: string): Promise<number> {
    const queue = await this.find(name);
    return queue === undefined ? 0 : await queue.tasks.expire();
  }

  async expireAll(): Promise<number> {
    let total = 0;
    for (const name of await this.names()) total += await this.expire(name);
    return total;
  }

  /** All task queues whose names the protocol can say. */
  async names(): Promise<string[]> {
    const names: string[] = [];
    for (const { kind, name, damaged } of await this.#mq.queues()) {
      if (kind === "task" && damaged === undefined && !name.includes(".") && name.length <= 100) names.push(name);
    }
    return names;
  }

  /** A queue that exists keeps its settings. */
  async #findOrMake(name: string): Promise<OpenedQueue> {
    const found = await this.find(name);
    if (found !== undefined) return found;
    const tasks = await this.#mq.openTask(name, this.#settings(name));
    this.created++;
    return this.#keep(name, tasks);
  }

  #keep(name: string, tasks: TaskQueue): OpenedQueue {
    const raced = this.#opened.get(name);
    if (raced !== undefined) return raced;
    const queue = new OpenedQueue(name, tasks);
    this.#opened.set(name, queue);
    return queue;
  }
}
