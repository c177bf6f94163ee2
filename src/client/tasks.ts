import type { Codec } from "../api/codec.js";
import type {
  AckOptions,
  Bytes,
  CommitOptions,
  CursorOptions,
  Duration,
  EnqueueBatchOptions,
  Enqueued,
  EnqueueOptions,
  FlowTaskOptions,
  Handler,
  Input,
  ListedTask,
  ListOptions,
  ResultOptions,
  ScheduledTaskOptions,
  ScheduleInfo,
  ScheduleSpec,
  StoredTaskSettings,
  TaskCursor,
  TaskName,
  TaskQueue,
  TaskRef,
  TaskSettings,
  TaskStats,
  TaskStatus,
  Worker,
  WorkOptions,
} from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import { checkBatch, checkDedupeKeys, InputParser, type InputParts } from "../api/input.js";
import { checkCursorName } from "../api/names.js";
import {
  encodeProgress,
  resolveAckOptions,
  resolveCommitOptions,
  resolveCursorOptions,
  resolveEnqueueBatchOptions,
  resolveEnqueueOptions,
  resolveFlowTaskOptions,
  resolveListOptions,
  resolveResultOptions,
  resolveScheduledTaskOptions,
  resolveTaskSettings,
  resolveTransactionEnqueueOptions,
} from "../api/options.js";
import { checkScheduleName, checkTaskName, resolveDue, resolveScheduleSpec } from "../api/schedule-options.js";
import { show } from "../api/show.js";
import { formatDuration } from "../api/units.js";
import type { Input as WireInput } from "../wire/input.js";
import { durabilityFlags, writeMessage, writeMessages, writeTerms, writeTokens } from "../wire/layouts.js";
import { Methods } from "../wire/methods.js";
import { writeValue } from "../wire/value.js";
import { DialledCursor } from "./cursor.js";
import { Handle } from "./handle.js";
import type { Link } from "./link.js";
import { DialledDeadLetters, DialledSource, decodeOr, tokenOf } from "./source.js";
import { type ClientPlatform, workAt } from "./work.js";

const RESULT = 4;

/** What is known of a queue's settings without asking. */
export interface TaskTerms {
  lease: number;
  resultTtl: number;
}

/** A task queue of a daemon. */
export class DialledTasks<I = Bytes, O = Buffer> extends DialledSource<O> implements TaskQueue<I, O> {
  readonly kind = "task";
  readonly dead: DialledDeadLetters<O>;
  readonly #platform: ClientPlatform;
  readonly #parser: InputParser<I>;
  readonly #terms: TaskTerms;

  constructor(
    link: Link,
    platform: ClientPlatform,
    handle: Handle,
    name: string,
    codec: Codec<I, O>,
    terms: TaskTerms,
  ) {
    super(link, handle, name, codec);
    this.dead = new DialledDeadLetters((method, ...args) => this.call(method, ...args), this.codec);
    this.#platform = platform;
    this.#parser = new InputParser(codec);
    this.#terms = terms;
  }

  enqueue(input: Input<I>, options?: EnqueueOptions): Promise<Enqueued> {
    return new Promise((resolve, reject) => {
      this.checkOpen();
      const terms = resolveEnqueueOptions(options);
      const parts: InputParts = { payload: "", key: terms.key, headers: terms.headers };
      this.#parser.parse(input, parts);
      const output = this.link.begin(Methods.enqueue, this.handle.id, 0, terms.request);
      writeTerms(output, terms, terms.dedupeKey);
      writeMessage(output, parts);
      this.link.send(Methods.enqueue, this.handle.id, resolve, reject, (answer) => this.#enqueued(answer));
    });
  }

  enqueueBatch(inputs: readonly Input<I>[], options?: EnqueueBatchOptions): Promise<Enqueued[]> {
    return new Promise((resolve, reject) => {
      this.checkOpen();
      const terms = resolveEnqueueBatchOptions(options);
      const { dedupeKeys } = terms;
      checkBatch(inputs);
      checkDedupeKeys(dedupeKeys, inputs);
      const { request } = terms;
      if (request?.each === true) {
        const { dedupeKeys: _, ...given } = options as EnqueueBatchOptions;
        const alone = (input: Input<I>, at: number) =>
          this.enqueue(input, { ...given, dedupeKey: dedupeKeys?.[at], request: request.at(at) });
        resolve(Promise.all(inputs.map(alone)));
        return;
      }
      const messages = inputs.map((input) => {
        const parts: InputParts = { payload: "", key: undefined, headers: undefined };
        this.#parser.parse(input, parts);
        return parts;
      });
      const output = this.link.begin(Methods.enqueueBatch, this.handle.id, 0, terms.request);
      writeTerms(output, terms, undefined);
      writeValue(output, dedupeKeys);
      writeMessages(output, messages);
      this.link.send(Methods.enqueueBatch, this.handle.id, resolve, reject, (answer) => {
        const enqueued: Enqueued[] = [];
        for (let left = answer.count(5); left > 0; left--) enqueued.push(this.#enqueued(answer));
        return enqueued;
      });
    });
  }

  #enqueued(answer: WireInput): Enqueued {
    const created = answer.u8() !== 0;
    return new DialledEnqueued(this, answer.ascii(), created);
  }

  /** The task as its caller knows it. */
  enqueuedTask(id: string): Enqueued {
    return new DialledEnqueued(this, id, true);
  }

  // ------------------------------------------------------------------------------------------- tasks that nobody has yet

  async cancel(task: TaskName, options?: CommitOptions): Promise<boolean> {
    resolveCommitOptions(options);
    checkTaskName(task);
    return await this.call(Methods.cancel, task, options);
  }

  async reschedule(task: TaskName, due: { delay?: Duration; at?: Date }, options?: CommitOptions): Promise<boolean> {
    resolveDue(due);
    resolveCommitOptions(options);
    checkTaskName(task);
    return await this.call(Methods.reschedule, task, due, options);
  }

  async schedule(name: string, spec: ScheduleSpec, input: Input<I>, options?: ScheduledTaskOptions): Promise<void> {
    this.checkOpen();
    checkScheduleName(name);
    resolveScheduleSpec(spec);
    const { key, headers } = resolveScheduledTaskOptions(options);
    const parts: InputParts = { payload: "", key, headers };
    this.#parser.parse(input, parts);
    await this.call(Methods.schedule, name, spec, parts, options);
  }

  async unschedule(name: string, options?: CommitOptions): Promise<boolean> {
    this.checkOpen();
    checkScheduleName(name);
    resolveCommitOptions(options);
    return await this.call(Methods.unschedule, name, options);
  }

  schedules(): Promise<ScheduleInfo[]> {
    return this.call(Methods.schedules);
  }

  expire(): Promise<number> {
    return this.call(Methods.expire);
  }

  // --------------------------------------------------------------------------------------------------------- settings

  async pause(options?: CommitOptions): Promise<void> {
    resolveCommitOptions(options);
    await this.call(Methods.pause, options);
  }

  async resume(options?: CommitOptions): Promise<void> {
    resolveCommitOptions(options);
    await this.call(Methods.resume, options);
  }

  async purge(options?: CommitOptions): Promise<number> {
    resolveCommitOptions(options);
    return await this.call(Methods.purgeTasks, options);
  }

  async configure(settings: TaskSettings, options?: CommitOptions): Promise<void> {
    const { leaseMs, resultTtlMs } = resolveTaskSettings(settings);
    resolveCommitOptions(options);
    await this.call(Methods.configureTasks, settings, options);
    if (leaseMs !== undefined) this.#terms.lease = leaseMs;
    if (resultTtlMs !== undefined) this.#terms.resultTtl = resultTtlMs;
  }

  async settings(): Promise<StoredTaskSettings> {
    const settings = await this.call<StoredTaskSettings>(Methods.taskSettings);
    this.#terms.lease = settings.lease;
    this.#terms.resultTtl = settings.resultTtl;
    return settings;
  }

  stats(): Promise<TaskStats> {
    return this.call(Methods.taskStats);
  }

  // ---------------------------------------------------------------------------------------------------------- cursors

  async cursor(name: string, options?: CursorOptions): Promise<TaskCursor<O>> {
    resolveCursorOptions(options);
    this.checkOpen();
    checkCursorName(name);
    const id = this.link.newHandle();
    await this.call(Methods.cursor, id, name, options);
    const again = { method: Methods.cursor, parent: this.handle, args: [id, name, { create: false }] };
    return new DialledCursor(this.link, new Handle(id, again), name, this.name, this.codec);
  }

  cursors(): Promise<string[]> {
    return this.call(Methods.cursors);
  }

  async deleteCursor(name: string, options?: CommitOptions): Promise<boolean> {
    resolveCommitOptions(options);
    this.checkOpen();
    checkCursorName(name);
    return await this.call(Methods.deleteCursor, name, options);
  }

  // ------------------------------------------------------------------------------------------------ what becomes of them

  override ack(task: TaskRef, options?: AckOptions): Promise<void> {
    if (options === undefined || !("result" in options)) return super.ack(task, options);
    return new Promise((resolve, reject) => {
      const { durability, request, result } = resolveAckOptions(options);
      this.checkOpen();
      const token = tokenOf(task);
      const output = this.link.begin(Methods.ack, this.handle.id, 0, request);
      output.u8(durabilityFlags(durability) | (result === undefined ? 0 : RESULT));
      writeTokens(output, [token]);
      if (result !== undefined) writeValue(output, options.result);
      this.link.send(Methods.ack, this.handle.id, resolve, reject, () => undefined);
    });
  }

  async progress(task: TaskRef, value: unknown, options?: CommitOptions): Promise<void> {
    encodeProgress(value);
    resolveCommitOptions(options);
    this.checkOpen();
    await this.call(Methods.progress, tokenOf(task), value, options);
  }

  async list(options: ListOptions): Promise<ListedTask<O>[]> {
    resolveListOptions(options);
    const listed = await this.call<ListedTask[]>(Methods.list, options);
    return listed.map((task) => ({ ...task, payload: decodeOr(this.codec, task.raw) }));
  }

  async status(id: string): Promise<TaskStatus> {
    if (typeof id !== "string") throw new VarveError("ERR_ARGUMENT", `a task's id is a string; got ${show(id)}`);
    return await this.call(Methods.status, id);
  }

  async result<R = unknown>(id: string, options?: ResultOptions): Promise<R> {
    const { waitMs, signal } = resolveResultOptions(options);
    this.checkOpen();
    return await this.link.call<R>(Methods.result, this.handle.id, [id], waitMs, signal, (why) => {
      if (why === "aborted") {
        throw new VarveError("ERR_ABORTED", `the wait for the result of task ${id} of ${this.name} was given up`);
      }
      throw new VarveError("ERR_TIMEOUT", `task ${id} of ${this.name} was not done within ${formatDuration(waitMs)}`);
    });
  }

  work(handler: Handler<O>, options?: WorkOptions): Worker<O> {
    this.checkOpen();
    const terms = this.#terms;
    return workAt(this.link, this.#platform, this, handler, options, {
      leaseMs: () => terms.lease,
      refresh: () => this.settings(),
      get keepsResults() {
        return terms.resultTtl > 0;
      },
    });
  }

  // ------------------------------------------------------------------------------------- as parts of a larger commit

  /** An enqueue as part of a transaction. @throws VarveError `ERR_ENCODE`, `ERR_OPTION` */
  partOf(input: Input<I>, options: Omit<EnqueueOptions, "durability"> | undefined): InputParts {
    const { key, headers } = resolveTransactionEnqueueOptions(options);
    const parts: InputParts = { payload: "", key, headers };
    this.#parser.parse(input, parts);
    return parts;
  }

  /** One task of a flow. */
  flowPartOf(input: Input<I>, options: FlowTaskOptions | undefined): InputParts {
    this.checkOpen();
    const { key, headers } = resolveFlowTaskOptions(options);
    const parts: InputParts = { payload: "", key, headers };
    this.#parser.parse(input, parts);
    return parts;
  }
}

class DialledEnqueued implements Enqueued {
  readonly id: string;
  readonly created: boolean;
  readonly #tasks: Pick<TaskQueue, "result">;

  constructor(tasks: Pick<TaskQueue, "result">, id: string, created: boolean) {
    this.#tasks = tasks;
    this.id = id;
    this.created = created;
  }

  result<R = unknown>(options?: ResultOptions): Promise<R> {
    return this.#tasks.result<R>(this.id, options);
  }
}
