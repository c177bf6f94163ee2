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
import type { Engine } from "../engine/engine.js";
import { NOTHING, requested } from "./requested.js";
import { EmbeddedSource } from "./source.js";
import type { Cursor, TaskCursors } from "./task-cursors.js";
import type { TaskState } from "./task-state.js";
import type { LeasedTask } from "./task-token.js";

/** A cursor of an embedded task queue. */
export class EmbeddedCursor<O> implements TaskCursor<O> {
  readonly name: string;
  readonly queue: string;
  readonly #engine: Engine;
  readonly #cursors: TaskCursors;
  readonly #cursor: Cursor;
  readonly #source: CursorSource<O>;

  constructor(engine: Engine, queue: TaskState, cursor: Cursor, codec: Codec<never, O>) {
    this.name = cursor.cursorName;
    this.queue = queue.name;
    this.#engine = engine;
    this.#cursors = queue.cursors;
    this.#cursor = cursor;
    this.#source = new CursorSource(engine, queue, cursor, codec);
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
    await this.#source.release(tasks, { ...resolveCommitOptions(options), to: "tail" });
  }

  peek(options?: PeekOptions): Promise<PeekedTask<O> | undefined> {
    return this.#source.peek(options);
  }

  reset(options?: CommitOptions): Promise<void> {
    return requested(this.#engine, options, NOTHING, async (request) => {
      const durability = this.#engine.durability(resolveCommitOptions(options).durability);
      this.#source.checkOpen();
      const identified = request?.tells();
      await this.#cursors.reset(this.#cursor, durability, identified);
    });
  }

  async stats(): Promise<TaskCursorStats> {
    this.#source.checkOpen();
    const { consumer } = this.#cursor;
    consumer.ripen();
    return { items: consumer.ready + consumer.waiting, open: consumer.leased };
  }
}

class CursorSource<O> extends EmbeddedSource<O> {
  readonly #queue: TaskState;
  readonly #cursor: Cursor;

  constructor(engine: Engine, queue: TaskState, cursor: Cursor, codec: Codec<never, O>) {
    super(engine, cursor.consumer, codec);
    this.#queue = queue;
    this.#cursor = cursor;
  }

  override checkOpen(): void {
    super.checkOpen();
    if (this.#queue.ended !== undefined) throw this.#queue.ended;
    if (this.#cursor.ended !== undefined) throw this.#cursor.ended;
  }

  /** There are no dead letters to move it to: the cursor is done with it. The queue's own readers may keep it. */
  protected override async setAside(task: LeasedTask<O>, reason: string): Promise<void> {
    this.engine.logger.error(
      { queue: this.name, task: task.id, reason },
      "a task cannot be decoded and is passed over",
    );
    if (task.token !== "") await this.ack(task);
  }
}
