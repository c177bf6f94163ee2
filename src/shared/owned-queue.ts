import type {
  CommitOptions,
  EnqueuedFlow,
  Flow,
  LogOptions,
  LogQueue,
  MessageQueue,
  QueueInfo,
  QueueKind,
  Stats,
  TaskOptions,
  TaskQueue,
  Transaction,
} from "../api/contract.js";
import type { Owner } from "./owner.js";

/** The owner's own way to the directory: straight, but for the end, which others have to be told of first. */
export class OwnedQueue implements MessageQueue {
  readonly #owner: Owner;
  readonly #queue: MessageQueue;
  #closing: Promise<void> | undefined;

  constructor(owner: Owner) {
    this.#owner = owner;
    this.#queue = owner.queue;
  }

  openLog<I, O>(name: string, options?: LogOptions<I, O>): Promise<LogQueue<I, O>> {
    return this.#queue.openLog(name, options);
  }

  openTask<I, O>(name: string, options?: TaskOptions<I, O>): Promise<TaskQueue<I, O>> {
    return this.#queue.openTask(name, options);
  }

  flow(flow: Flow, options?: CommitOptions): Promise<EnqueuedFlow> {
    return this.#queue.flow(flow, options);
  }

  transaction(build: (tx: Transaction) => void, options?: CommitOptions): Promise<void> {
    return this.#queue.transaction(build, options);
  }

  deleteQueue(kind: QueueKind, name: string, options?: CommitOptions): Promise<boolean> {
    return this.#queue.deleteQueue(kind, name, options);
  }

  queues(): Promise<QueueInfo[]> {
    return this.#queue.queues();
  }

  stats(): Promise<Stats> {
    return this.#queue.stats();
  }

  sync(): Promise<void> {
    return this.#queue.sync();
  }

  close(): Promise<void> {
    this.#closing ??= this.#owner.close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
