import type { Codec } from "../api/codec.js";
import type {
  CommitOptions,
  DequeueOptions,
  PeekedTask,
  PeekOptions,
  Task,
  TaskCursor,
  TaskCursorStats,
  TaskRef,
} from "../api/contract.js";
import { resolveCommitOptions } from "../api/options.js";
import { Methods } from "../wire/methods.js";
import type { Handle } from "./handle.js";
import type { Link } from "./link.js";
import { DialledSource } from "./source.js";

/** A cursor of a daemon's task queue. */
export class DialledCursor<O> implements TaskCursor<O> {
  readonly name: string;
  readonly queue: string;
  readonly #source: CursorSource<O>;

  constructor(link: Link, handle: Handle, name: string, queue: string, codec: Codec<never, O>) {
    this.name = name;
    this.queue = queue;
    this.#source = new CursorSource(link, handle, queue, codec);
    link.keep(handle);
  }

  dequeue(options?: DequeueOptions): Promise<Task<O> | undefined> {
    return this.#source.dequeue(options);
  }

  dequeueBatch(options: DequeueOptions & { readonly max: number }): Promise<Task<O>[]> {
    return this.#source.dequeueBatch(options);
  }

  ack(task: TaskRef, options?: CommitOptions): Promise<void> {
    return this.#source.ack(task, options);
  }

  ackBatch(tasks: readonly TaskRef[], options?: CommitOptions): Promise<void> {
    return this.#source.ackBatch(tasks, options);
  }

  async release(tasks: TaskRef | readonly TaskRef[], options?: CommitOptions): Promise<void> {
    resolveCommitOptions(options);
    await this.#source.release(tasks, options);
  }

  peek(options?: PeekOptions): Promise<PeekedTask<O> | undefined> {
    return this.#source.peek(options);
  }

  reset(options?: CommitOptions): Promise<void> {
    return this.#source.reset(options);
  }

  stats(): Promise<TaskCursorStats> {
    return this.#source.stats();
  }
}

class CursorSource<O> extends DialledSource<O> {
  async reset(options: CommitOptions | undefined): Promise<void> {
    resolveCommitOptions(options);
    await this.call(Methods.cursorReset, options);
  }

  stats(): Promise<TaskCursorStats> {
    return this.call(Methods.cursorStats);
  }

  /** There are no dead letters to move it to: the cursor is done with it. The queue's own readers may keep it. */
  protected override async setAside(task: Task, reason: string): Promise<void> {
    this.link.logger.error({ queue: this.name, task: task.id, reason }, "a task cannot be decoded and is passed over");
    if (task.token !== "") await this.ack(task);
  }
}
