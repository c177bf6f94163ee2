import type { Codec } from "../api/codec.js";
import type {
  AckOptions,
  AppendOptions,
  CommitOptions,
  EnqueuedFlow,
  EnqueueOptions,
  Flow,
  Input,
  LogOptions,
  LogQueue,
  MessageQueue,
  NackOptions,
  QueueInfo,
  QueueKind,
  RecoveryReport,
  ReleaseOptions,
  Stats,
  TaskOptions,
  TaskQueue,
  TaskRef,
  Transaction,
} from "../api/contract.js";
import { isVarveError, VarveError } from "../api/errors.js";
import { checkQueueName } from "../api/names.js";
import {
  DEFAULT_LOG_CONFIG,
  mergeLogConfig,
  mergeTaskConfig,
  resolveCommitOptions,
  resolveLogOptions,
  resolveTaskOptions,
} from "../api/options.js";
import { checkFlowSize, childrenOf, inPart, ownQueue, runBuild } from "../api/parts.js";
import { AT_TURN_END, type TakesTurns } from "../api/put-each.js";
import { show } from "../api/show.js";
import type { CatalogEntry } from "../engine/catalog.js";
import type { Checkpointer } from "../engine/checkpoint.js";
import { deleteQueue, type WithDeletion } from "../engine/deletion.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { OP_CREATE_QUEUE, type QueueState } from "../engine/queue-state.js";
import type { IdentifiedCommit } from "../engine/requests.js";
import { VARINT_BYTES_MAX } from "../storage/bytes.js";
import { type Change, commit } from "./commit.js";
import { EmbeddedMember } from "./group-member.js";
import { park } from "./input.js";
import { KIND, kindName } from "./kinds.js";
import { EmbeddedLog } from "./log-queue.js";
import { configureLog, encodeConfig, type LogState } from "./log-state.js";
import { type FlowTask, NewFlow } from "./new-flow.js";
import { type NamedTask, NOTHING, type Request, requested, tasksAnswer, YES_OR_NO } from "./requested.js";
import { EmbeddedSource } from "./source.js";
import { EmbeddedTasks } from "./task-queue.js";
import { configureTasks } from "./task-settings.js";
import type { TaskState } from "./task-state.js";

/** An open directory, in this process. */
export class EmbeddedMessageQueue implements MessageQueue, TakesTurns {
  readonly #engine: Engine;
  readonly #checkpointer: Checkpointer;
  readonly #report: RecoveryReport;
  readonly #unlock: () => void;
  /** Queues on their way through the log, by kind and name. */
  readonly #creating = new Map<string, Promise<QueueState>>();
  /** How many are staged, and not in the catalog yet. */
  #coming = 0;
  #closing: Promise<void> | undefined;
  /** What is to be over before this closes: others use it until then. Must not throw. */
  beforeClose: (() => Promise<void>) | undefined;

  constructor(engine: Engine, checkpointer: Checkpointer, report: RecoveryReport, unlock: () => void) {
    this.#engine = engine;
    this.#checkpointer = checkpointer;
    this.#report = report;
    this.#unlock = unlock;
  }

  [AT_TURN_END](callback: () => void): void {
    this.#engine.atTurnEnd(callback);
  }

  async openLog<I, O>(name: string, options?: LogOptions<I, O>): Promise<LogQueue<I, O>> {
    const { codec, create, ...given } = resolveLogOptions(options);
    checkQueueName(name);
    if (!create) this.#requireQueue(KIND.log, name);
    const config = () => encodeConfig(mergeLogConfig(DEFAULT_LOG_CONFIG, given));
    const state = (await this.#state(KIND.log, name, config)) as LogState;
    state.attach(this.#engine);
    await new Promise<void>((resolve, reject) => {
      configureLog(this.#engine, state, given, undefined, resolve, reject);
    });
    return new EmbeddedLog(this.#engine, state, codec as Codec<I, O>);
  }

  async openTask<I, O>(name: string, options?: TaskOptions<I, O>): Promise<TaskQueue<I, O>> {
    const given = resolveTaskOptions(options);
    checkQueueName(name);
    if (!given.create) this.#requireQueue(KIND.task, name);
    const initial = () => JSON.stringify(mergeTaskConfig(undefined, given));
    const state = (await this.#state(KIND.task, name, initial)) as TaskState;
    state.attach(this.#engine);
    if (typeof given.onExpire === "object") await this.openTask(given.onExpire.moveTo);
    const { durability } = this.#engine.options;
    await configureTasks(this.#engine, state, (config) => mergeTaskConfig(config, given), durability);
    return new EmbeddedTasks(this.#engine, state, given.codec as Codec<I, O>);
  }

  transaction(build: (tx: Transaction) => void, options?: CommitOptions): Promise<void> {
    return requested(this.#engine, options, NOTHING, async (request) => {
      this.#engine.checkOpen();
      const identified = request?.tells();
      await this.#engine.finishing(this.#transaction(build, options, identified));
    });
  }

  async #transaction(
    build: (tx: Transaction) => void,
    options: CommitOptions | undefined,
    request: IdentifiedCommit | undefined,
  ): Promise<void> {
    const engine = this.#engine;
    const durability = engine.durability(resolveCommitOptions(options).durability);
    const parts = collect(engine, build);
    const changes: Change[] = [];
    for (const [index, { what, change }] of parts.entries()) {
      try {
        // Only what had to look something up first is waited for; what it waits with becomes the transaction's own.
        if (change instanceof Promise) {
          for (const part of parts) if (!(part.change instanceof Promise)) part.change.own?.();
          changes.push(await change);
        } else {
          changes.push(change);
        }
      } catch (error) {
        throw inPart(index, what, error);
      }
    }
    if (changes.length === 0) return;
    await new Promise<void>((resolve, reject) => {
      const told = (index: number, error: unknown) => inPart(index, parts[index]!.what, error);
      const run = () => commit(engine, changes, durability, resolve, reject, request, told);
      if (!engine.stalled) {
        run();
        return;
      }
      let bytes = 0;
      for (const change of changes) {
        change.own?.();
        bytes += change.bulkBytes;
      }
      const later = () => {
        try {
          run();
        } catch (error) {
          reject(error as Error);
        }
      };
      engine.park(bytes, later, reject);
    });
  }

  flow(flow: Flow, options?: CommitOptions): Promise<EnqueuedFlow> {
    const answer = tasksAnswer(tasksOf, (tasks) => this.#flowOf(flow, tasks));
    return requested(this.#engine, options, answer, (request) => this.#flow(flow, options, request));
  }

  #flow(
    flow: Flow,
    options: CommitOptions | undefined,
    request: Request<EnqueuedFlow> | undefined,
  ): Promise<EnqueuedFlow> {
    return new Promise((resolve, reject) => {
      const engine = this.#engine;
      engine.checkOpen();
      const given = engine.durability(resolveCommitOptions(options).durability);
      const all: FlowTask[] = [];
      const queues = new Map<FlowTask, EmbeddedTasks>();
      const root = readFlow(engine, flow, all, queues, []);
      const change = new NewFlow(engine, all);
      const told = (task: FlowTask): EnqueuedFlow => ({
        task: queues.get(task)!.enqueuedTask(change.idOf(task)),
        children: task.children.map(told),
      });
      const identified = request?.answers(() => told(root), all.length);
      const run = () => {
        const durability = change.openLanes() ? "sync" : given;
        commit(engine, [change], durability, () => resolve(told(root)), reject, identified);
      };
      if (engine.stalled) park(engine, change.bulkBytes, [], run, reject);
      else run();
    });
  }

  /** A flow that was enqueued before, as its caller was told of it. */
  #flowOf(flow: Flow, tasks: NamedTask[]): EnqueuedFlow {
    const queues = new Map<FlowTask, EmbeddedTasks>();
    const root = readFlow(this.#engine, flow, [], queues, []);
    if (queues.size !== tasks.length) {
      throw new VarveError("ERR_ARGUMENT", "the flow that had this request's name had another number of tasks");
    }
    let next = 0;
    const told = (task: FlowTask): EnqueuedFlow => ({
      task: queues.get(task)!.enqueuedTask(tasks[next++]!.id),
      children: task.children.map(told),
    });
    return told(root);
  }

  deleteQueue(kind: QueueKind, name: string, options?: CommitOptions): Promise<boolean> {
    return requested(this.#engine, options, YES_OR_NO, (request) => {
      return this.#deleteQueue(kind, name, options, request?.tells(true));
    });
  }

  async #deleteQueue(
    kind: QueueKind,
    name: string,
    options: CommitOptions | undefined,
    request: IdentifiedCommit | undefined,
  ): Promise<boolean> {
    if (kind !== "log" && kind !== "task") {
      throw new VarveError("ERR_ARGUMENT", `a queue is a "log" or a "task" queue; got ${show(kind)}`);
    }
    checkQueueName(name);
    const engine = this.#engine;
    const { durability } = resolveCommitOptions(options);
    engine.checkOpen();
    // One that is being made is deleted when it is there.
    await this.#creating.get(`${KIND[kind]} ${name}`)?.catch(() => {});
    return await new Promise((resolve, reject) => {
      const run = () => {
        if (engine.stalled) {
          engine.park(0, run, reject);
          return;
        }
        try {
          engine.checkOpen();
          const entry = engine.catalog.find(KIND[kind], name);
          if (entry === undefined) {
            resolve(false);
            return;
          }
          const told = this.#parting(entry);
          deleteQueue(engine, entry, engine.durability(durability), request, told).then(() => resolve(true), reject);
        } catch (error) {
          reject(error as Error);
        }
      };
      run();
    });
  }

  /** What queues are told whose tasks wait for some of one that is deleted. Of one that is damaged, nobody knows. */
  #parting(entry: CatalogEntry): WithDeletion | undefined {
    if (entry.kind !== KIND.task || entry.damaged !== undefined) return undefined;
    const engine = this.#engine;
    let state: TaskState;
    try {
      state = engine.catalog.load(entry) as TaskState;
    } catch (error) {
      if (isVarveError(error, "ERR_CORRUPT")) return undefined;
      throw error;
    }
    state.attach(engine);
    engine.flush();
    return state.flows.parting();
  }

  async queues(): Promise<QueueInfo[]> {
    this.#engine.checkOpen();
    const { catalog } = this.#engine;
    const infos: QueueInfo[] = [];
    for (const entry of catalog.entries) {
      const { kind, name, createdAt } = entry;
      const { count, metadata } = catalog.describe(entry);
      const info = { kind: kindName(kind), name, count, createdAt, metadata };
      infos.push(entry.damaged === undefined ? info : { ...info, damaged: entry.damaged });
    }
    return infos.sort((a, b) => compare(a.kind, b.kind) || compare(a.name, b.name));
  }

  async stats(): Promise<Stats> {
    this.#engine.checkOpen();
    const engine = this.#engine;
    const { wal, catalog } = engine;
    const count = { log: 0, task: 0, open: 0, damaged: 0 };
    for (const entry of catalog.entries) {
      count[kindName(entry.kind) satisfies QueueKind]++;
      if (entry.state !== undefined) count.open++;
      if (entry.damaged !== undefined) count.damaged++;
    }
    return {
      health: engine.health,
      failure: engine.failure?.message,
      durability: engine.options.durability,
      queues: count,
      wal: {
        files: wal.files.length,
        bytes: wal.bytes,
        commits: engine.commits,
        writtenBytes: wal.writtenBytes,
        syncs: wal.syncs,
        checkpoints: engine.checkpoints,
      },
      memory: { blockBytes: engine.blocks.bytes, chunkBytes: engine.chunks.bytes },
      openFiles: engine.files.size + wal.files.length,
      recovery: this.#report,
    };
  }

  async sync(): Promise<void> {
    this.#engine.checkOpen();
    await this.#engine.sync();
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    if (this.beforeClose !== undefined) await this.beforeClose();
    const engine = this.#engine;
    try {
      await engine.stop();
      await engine.rewriter?.close();
      if (engine.failure === undefined) await this.#checkpointer.close();
      else await this.#checkpointer.stop();
    } catch (error) {
      // Everything acknowledged is in the log; the next open recovers it from there.
      engine.logger.warn({ directory: engine.directory, error }, "closed without a last checkpoint");
    } finally {
      await engine.reads.close();
      await engine.wal.settle();
      engine.files.close();
      engine.wal.close();
      this.#unlock();
    }
    if (engine.unsaved !== undefined) throw engine.unsaved;
  }

  /** @throws VarveError `ERR_NOT_FOUND` */
  #requireQueue(kind: number, name: string): void {
    this.#engine.checkOpen();
    if (this.#engine.catalog.find(kind, name) !== undefined) return;
    throw new VarveError("ERR_NOT_FOUND", `there is no ${kindName(kind)} queue ${name}, and create is false`);
  }

  async #state(kind: number, name: string, config: () => string): Promise<QueueState> {
    this.#engine.checkOpen();
    const { catalog } = this.#engine;
    const entry = catalog.find(kind, name);
    if (entry !== undefined) return catalog.load(entry);
    const key = `${kind} ${name}`;
    let creating = this.#creating.get(key);
    if (creating === undefined) {
      creating = this.#create(kind, name, Buffer.from(config())).finally(() => this.#creating.delete(key));
      this.#creating.set(key, creating);
    }
    return await creating;
  }

  #create(kind: number, name: string, config: Buffer): Promise<QueueState> {
    return new Promise((resolve, reject) => {
      const engine = this.#engine;
      const { catalog } = engine;
      const { maxQueues } = engine.options;
      if (maxQueues > 0 && catalog.size + this.#coming >= maxQueues) throw tooManyQueues(kind, name, maxQueues);
      const metaBytes = OPERATION_HEADER_BYTES + CREATION_BYTES_MAX + name.length + config.length;
      engine.begin(0, 0, metaBytes, false);
      const { id, streamIds } = catalog.reserveIds(kind);
      const output = engine.operation(OP_CREATE_QUEUE, id);
      output.u8(kind);
      output.string(name);
      output.varint(streamIds.length);
      for (const streamId of streamIds) output.varint(streamId);
      output.varint(config.length);
      output.bytes(config);
      engine.endOperation();
      let state: QueueState;
      engine.add({
        // Always: were a queue lost with what it holds, its successor would give out the same offsets again.
        durability: "sync",
        apply: () => {
          this.#coming--;
          state = catalog.create({ kind, name, streamIds, config }, id, engine.entryTime.wallMs);
        },
        settle: () => resolve(state),
        fail: reject,
      });
      this.#coming++;
    });
  }
}

function tooManyQueues(kind: number, name: string, max: number): VarveError {
  return new VarveError(
    "ERR_TOO_MANY_QUEUES",
    `the ${kindName(kind)} queue ${name} is not made: the directory has ${max} queues, the most that it may have`,
    { details: { limit: max } },
  );
}

/** Reads a flow, and adds its tasks to those that there are, parents after their children. */
function readFlow(
  engine: Engine,
  flow: Flow,
  all: FlowTask[],
  queues: Map<FlowTask, EmbeddedTasks>,
  above: readonly Flow[],
): FlowTask {
  const children = childrenOf(flow, above);
  const { queue, input, options } = flow;
  const tasks: EmbeddedTasks = ownQueue(queue, EmbeddedTasks);
  const read = children.map((child) => readFlow(engine, child, all, queues, [...above, flow]));
  checkFlowSize(all.length);
  const task = tasks.flowTask(engine, input, options, read);
  all.push(task);
  queues.set(task, tasks);
  return task;
}

/** The tasks of a flow that has been enqueued, each before its children. */
function tasksOf({ task, children }: EnqueuedFlow): NamedTask[] {
  return [task, ...children.flatMap(tasksOf)];
}

/** Kind, lengths and stream ids of an operation that makes a queue. */
const CREATION_BYTES_MAX = 8 * VARINT_BYTES_MAX;

/** One call on a transaction: what it was, for messages, and the change that it asks for. */
interface Part {
  readonly what: string;
  readonly change: Change | Promise<Change>;
}

function collect(engine: Engine, build: (tx: Transaction) => void): Part[] {
  const parts: Part[] = [];
  let open = true;
  // Arguments are read at once: the caller may use a buffer again as soon as transaction() has returned.
  const add = (what: string, read: () => Change | Promise<Change>) => {
    if (!open) throw new VarveError("ERR_ARGUMENT", "a transaction can only be added to inside its callback");
    let change: Change | Promise<Change>;
    try {
      change = read();
    } catch (error) {
      change = Promise.reject(error);
    }
    if (change instanceof Promise) change.catch(() => {}); // told with the number of the part, when its turn comes
    parts.push({ what, change });
  };
  const tx: Transaction = {
    append(queue, input, options?: Omit<AppendOptions, keyof CommitOptions>) {
      const log = ownQueue(queue, EmbeddedLog);
      add(`append to ${log.name}`, () => log.appendChange(engine, input as Input<never>, options));
    },
    enqueue(queue, input, options?: Omit<EnqueueOptions, keyof CommitOptions>) {
      const tasks = ownQueue(queue, EmbeddedTasks);
      add(`enqueue to ${tasks.name}`, () => tasks.enqueueChange(engine, input as Input<never>, options));
    },
    ack(queue, task: TaskRef, options?: Omit<AckOptions, keyof CommitOptions>) {
      const tasks = ownQueue(queue, EmbeddedSource);
      add(`ack on ${tasks.name}`, () => tasks.ackChange(engine, task, options));
    },
    nack(queue, task: TaskRef, options?: Omit<NackOptions, keyof CommitOptions>) {
      const tasks = ownQueue(queue, EmbeddedSource);
      add(`nack on ${tasks.name}`, () => tasks.nackChange(engine, task, options));
    },
    release(queue, task: TaskRef, options?: Omit<ReleaseOptions, keyof CommitOptions>) {
      const tasks = ownQueue(queue, EmbeddedSource);
      add(`release on ${tasks.name}`, () => tasks.releaseChange(engine, task, options));
    },
    commitGroup(member, upTo) {
      if (!(member instanceof EmbeddedMember)) {
        throw new VarveError("ERR_ARGUMENT", "pass a member that group() of a log of this directory returned");
      }
      add(`commit of group ${member.name} of ${member.log}`, () => member.commitChange(engine, upTo));
    },
  };
  try {
    runBuild(build, tx);
  } finally {
    open = false;
  }
  return parts;
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
