import type { Codec } from "../api/codec.js";
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
import { VarveError } from "../api/errors.js";
import { checkQueueName } from "../api/names.js";
import { resolveCommitOptions, resolveLogOptions, resolveTaskOptions } from "../api/options.js";
import { show } from "../api/show.js";
import { Methods } from "../wire/methods.js";
import { Handle } from "./handle.js";
import type { Link } from "./link.js";
import { DialledLog } from "./log.js";
import { DialledTasks, type TaskTerms } from "./tasks.js";
import { collect, planFlow } from "./transaction.js";
import type { ClientPlatform } from "./work.js";

/** The queues of a daemon, as a client sees them. */
export class DialledMessageQueue implements MessageQueue {
  readonly #link: Link;
  readonly #platform: ClientPlatform;

  constructor(link: Link, platform: ClientPlatform) {
    this.#link = link;
    this.#platform = platform;
  }

  async openLog<I, O>(name: string, options?: LogOptions<I, O>): Promise<LogQueue<I, O>> {
    const { codec } = resolveLogOptions(options);
    const { codec: _codec, ...sent } = options ?? {};
    this.#link.checkOpen();
    checkQueueName(name);
    const id = this.#link.newHandle();
    await this.#link.call(Methods.openLog, id, [name, sent]);
    const handle = this.#keep(new Handle(id, { method: Methods.openLog, parent: undefined, args: [name, EXISTING] }));
    return new DialledLog(this.#link, this.#platform, handle, name, codec as Codec<I, O>);
  }

  async openTask<I, O>(name: string, options?: TaskOptions<I, O>): Promise<TaskQueue<I, O>> {
    const { codec } = resolveTaskOptions(options);
    const { codec: _codec, ...sent } = options ?? {};
    this.#link.checkOpen();
    checkQueueName(name);
    const id = this.#link.newHandle();
    const terms = await this.#link.call<TaskTerms>(Methods.openTask, id, [name, sent]);
    const handle = this.#keep(new Handle(id, { method: Methods.openTask, parent: undefined, args: [name, EXISTING] }));
    return new DialledTasks(this.#link, this.#platform, handle, name, codec as Codec<I, O>, terms);
  }

  async flow(flow: Flow, options?: CommitOptions): Promise<EnqueuedFlow> {
    this.#link.checkOpen();
    resolveCommitOptions(options);
    const plan = planFlow(this.#link, flow);
    return plan.tell(await this.#link.call(Methods.flow, 0, [plan.value, options]));
  }

  async transaction(build: (tx: Transaction) => void, options?: CommitOptions): Promise<void> {
    this.#link.checkOpen();
    resolveCommitOptions(options);
    const { parts, committed } = collect(this.#link, build);
    if (parts.length === 0) return;
    await this.#link.call(Methods.transaction, 0, [parts, options]);
    for (const done of committed) done();
  }

  async deleteQueue(kind: QueueKind, name: string, options?: CommitOptions): Promise<boolean> {
    if (kind !== "log" && kind !== "task") {
      throw new VarveError("ERR_ARGUMENT", `a queue is a "log" or a "task" queue; got ${show(kind)}`);
    }
    checkQueueName(name);
    resolveCommitOptions(options);
    return await this.#link.call(Methods.deleteQueue, 0, [kind, name, options]);
  }

  queues(): Promise<QueueInfo[]> {
    return this.#link.call(Methods.queues, 0, []);
  }

  stats(): Promise<Stats> {
    return this.#link.call(Methods.stats, 0, []);
  }

  sync(): Promise<void> {
    return this.#link.call(Methods.sync, 0, []);
  }

  close(): Promise<void> {
    return this.#link.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Milliseconds until the daemon has answered. @throws VarveError `ERR_CLOSED`, `ERR_DISCONNECTED` */
  ping(): Promise<number> {
    return this.#link.ping();
  }

  #keep(handle: Handle): Handle {
    this.#link.keep(handle);
    return handle;
  }
}

/** After a lost connection, a queue that is not there any more is not made again. */
const EXISTING = Object.freeze({ create: false });
