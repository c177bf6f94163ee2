import type { CallName } from "../api/call-name.js";
import type { Codec } from "../api/codec.js";
import type {
  AckOptions,
  Bytes,
  CommitOptions,
  CursorOptions,
  Durability,
  Duration,
  EnqueueBatchOptions,
  Enqueued,
  EnqueueOptions,
  FlowTaskOptions,
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
} from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import { checkBatch, checkDedupeKeys } from "../api/input.js";
import { checkCursorName } from "../api/names.js";
import {
  DELAY_MS_MAX,
  describeTaskConfig,
  encodeProgress,
  mergeTaskConfig,
  PROGRESS_BYTES_MAX,
  resolveAckOptions,
  resolveCommitOptions,
  resolveCursorOptions,
  resolveEnqueueBatchOptions,
  resolveEnqueueOptions,
  resolveFlowTaskOptions,
  resolveScheduledTaskOptions,
  resolveTaskSettings,
  resolveTransactionEnqueueOptions,
  type TaskConfig,
} from "../api/options.js";
import { type Payloads, PUT_EACH, PUTS_INTO, type PutsEach } from "../api/put-each.js";
import { checkScheduleName, checkTaskName, resolveDue, resolveScheduleSpec } from "../api/schedule-options.js";
import type { Engine } from "../engine/engine.js";
import { ValueOperation } from "../engine/operation.js";
import { type IdentifiedCommit, requestBytes } from "../engine/requests.js";
import { payloadsBytesMax, type RecordParts, recordBytesMax } from "../storage/batch.js";
import { asItStands, type Change, commit, foreignQueue } from "./commit.js";
import { SETTLE_BYTES_MAX } from "./consumer.js";
import type { EmbeddedDeadLetters } from "./dead-letters.js";
import { checkPayloads, detach, InputReader, park } from "./input.js";
import type { FlowTask } from "./new-flow.js";
import { NewTasks } from "./new-tasks.js";
import { RecurringSchedule, SCHEDULES_MAX, sameTimes, type Timing } from "./recurring.js";
import {
  type Answer,
  type Answering,
  type NamedTask,
  NOTHING,
  putEach,
  type Request,
  requested,
  requestedEach,
  tasksAnswer,
  WHOLE_NUMBER,
  YES_OR_NO,
} from "./requested.js";
import type { DueTerms } from "./scheduled.js";
import { EmbeddedSource } from "./source.js";
import { applyTerms, changeTask } from "./task-changes.js";
import { EmbeddedCursor } from "./task-cursor.js";
import { listTasks } from "./task-list.js";
import { ackWithResult, EnqueuedTask, type Inquiry, resultOf, statusOf } from "./task-outcomes.js";
import { configureTasks, purgeTasks } from "./task-settings.js";
import type { TaskState } from "./task-state.js";

/** A task queue of an embedded directory. */
export class EmbeddedTasks<I = Bytes, O = Buffer>
  extends EmbeddedSource<O>
  implements TaskQueue<I, O>, PutsEach<Enqueued>
{
  readonly kind = "task";
  readonly #state: TaskState;
  readonly #input: InputReader<I>;
  readonly #oneTask: Answer<Enqueued>;
  readonly #tasks: Answer<Enqueued[]>;

  constructor(engine: Engine, state: TaskState, codec: Codec<I, O>) {
    super(engine, state.consumer, codec);
    this.#state = state;
    this.#input = new InputReader(codec, engine.options.maxMessageBytes);
    const enqueued = ({ id, created }: NamedTask) => new EnqueuedTask(this, id, created);
    this.#oneTask = tasksAnswer(
      (task) => [task],
      ([task]) => enqueued(task!),
    );
    this.#tasks = tasksAnswer(
      (tasks) => tasks,
      (tasks) => tasks.map(enqueued),
    );
  }

  enqueue(input: Input<I>, options?: EnqueueOptions): Promise<Enqueued> {
    if (options?.request === undefined) return this.#enqueue(input, options, undefined);
    return requested(this.engine, options, this.#oneTask, (request) => this.#enqueue(input, options, request));
  }

  #enqueue(
    input: Input<I>,
    options: EnqueueOptions | undefined,
    request: Request<Enqueued> | undefined,
  ): Promise<Enqueued> {
    return new Promise((resolve, reject) => {
      const engine = this.engine;
      this.checkOpen();
      const resolved = resolveEnqueueOptions(options);
      const parts = this.#input.read(input, resolved.key, resolved.headers);
      const due = this.#dueOf(resolved);
      applyTerms(parts, resolved, engine.clock, due !== undefined);
      const { priority } = resolved;
      if (due !== undefined || resolved.dedupeKey !== undefined || priority > 0) {
        const keys = [resolved.dedupeKey];
        this.#commitNew([parts], priority, due, keys, resolved.durability, firstOf, resolve, reject, request);
        return;
      }
      const bytes = recordBytesMax(parts);
      const stage = () => {
        this.#stagePlain([parts], bytes, resolved.durability, firstOf, resolve, reject, request);
      };
      if (this.#state.room.isLimited || engine.stalled) this.#enter([parts], bytes, stage, reject);
      else stage();
    });
  }

  enqueueBatch(inputs: readonly Input<I>[], options?: EnqueueBatchOptions): Promise<Enqueued[]> {
    const request = options?.request;
    if (request?.each !== true) {
      return requested(this.engine, options, this.#tasks, (request) => this.#enqueueAll(inputs, options, request));
    }
    const { dedupeKeys, ...terms } = options as EnqueueBatchOptions;
    return requestedEach(
      this.engine,
      request,
      this.#oneTask,
      inputs,
      (requests) => this.#enqueueAll(inputs, options, requests),
      (index, name) => this.enqueue(inputs[index]!, { ...terms, dedupeKey: dedupeKeys?.[index], request: name }),
    );
  }

  get [PUTS_INTO](): object {
    return this.#state;
  }

  [PUT_EACH](
    payloads: Payloads,
    durability: Durability | undefined,
    names: readonly CallName[] | undefined,
  ): Promise<Enqueued[]> | Promise<Enqueued>[] {
    return putEach(
      this.engine,
      names,
      this.#oneTask,
      payloads.count,
      !this.#state.room.isLimited, // a batch goes in as a whole, also past the limits
      (run, resolve, reject) => {
        const { engine } = this;
        this.checkOpen();
        checkPayloads(payloads, engine.options.maxMessageBytes);
        engine.begin(payloadsBytesMax(payloads.count, payloads.bytes), payloads.count, requestBytes(run), false);
        const first = engine.appendAll(this.#state.tasks, payloads);
        const told: Enqueued[] = [];
        for (let index = 0; index < payloads.count; index++) {
          told.push(new EnqueuedTask(this, String(first + index), true));
        }
        engine.add(new ValueOperation(engine.durability(durability), told, resolve, reject), run?.tells(told));
        this.consumer.delivery.wake();
      },
      (index, request) => this.enqueue(payloads.at(index) as Input<I>, { durability, request }),
    );
  }

  #enqueueAll(
    inputs: readonly Input<I>[],
    options: EnqueueBatchOptions | undefined,
    request: Answering<Enqueued[]> | undefined,
  ): Promise<Enqueued[]> {
    return new Promise((resolve, reject) => {
      const engine = this.engine;
      this.checkOpen();
      const resolved = resolveEnqueueBatchOptions(options);
      const { dedupeKeys } = resolved;
      checkBatch(inputs);
      checkDedupeKeys(dedupeKeys, inputs);
      if (inputs.length === 0) {
        resolve([]);
        return;
      }
      const due = this.#dueOf(resolved);
      const records = inputs.map((input) => {
        const parts = this.#input.read(input, undefined, undefined);
        applyTerms(parts, resolved, engine.clock, due !== undefined);
        return parts;
      });
      const { priority, durability } = resolved;
      this.#commitNew(records, priority, due, dedupeKeys, durability, allOf, resolve, reject, request);
    });
  }

  // ------------------------------------------------------------------------------------------- tasks that nobody has yet

  cancel(task: TaskName, options?: CommitOptions): Promise<boolean> {
    return requested(this.engine, options, YES_OR_NO, async (request) => {
      const { durability } = resolveCommitOptions(options);
      return await this.#change(task, undefined, durability, request);
    });
  }

  reschedule(task: TaskName, due: { delay?: Duration; at?: Date }, options?: CommitOptions): Promise<boolean> {
    return requested(this.engine, options, YES_OR_NO, async (request) => {
      const { delayMs, atMs } = resolveDue(due);
      const { durability } = resolveCommitOptions(options);
      if (atMs !== undefined) this.#checkAt(atMs);
      return await this.#change(task, { delayMs: delayMs ?? 0, wallMs: atMs ?? 0 }, durability, request);
    });
  }

  async #change(
    task: TaskName,
    due: DueTerms | undefined,
    given: Durability | undefined,
    request: Request<boolean> | undefined,
  ): Promise<boolean> {
    const { engine } = this;
    const named = checkTaskName(task);
    this.checkOpen();
    const id = "id" in named ? named.id : this.#idOf(named.dedupeKey);
    if (id === undefined) return false;
    const identified = request?.tells(true);
    let committed: Promise<void> | undefined;
    const add = (apply: () => void): void => {
      committed = new Promise((settle, fail) => {
        engine.add({ durability: engine.durability(given), apply, settle, fail }, identified);
      });
    };
    const changing = changeTask(engine, this.#state, id, due, requestBytes(identified), add);
    const changed = await engine.finishing(changing);
    await committed;
    return changed;
  }

  #idOf(dedupeKey: string): string | undefined {
    const { dedupe, config } = this.#state;
    return dedupe.find(dedupeKey, config.dedupe, this.engine.elapsedMs())?.id;
  }

  // ------------------------------------------------------------------------------------------------ recurring schedules

  schedule(name: string, spec: ScheduleSpec, input: Input<I>, options?: ScheduledTaskOptions): Promise<void> {
    return requested(this.engine, options, NOTHING, (request) => {
      return this.#schedule(name, spec, input, options, request?.tells());
    });
  }

  #schedule(
    name: string,
    spec: ScheduleSpec,
    input: Input<I>,
    options: ScheduledTaskOptions | undefined,
    identified: IdentifiedCommit | undefined,
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      const { engine } = this;
      const { recurrence } = this.#state;
      this.checkOpen();
      checkScheduleName(name);
      const given = resolveScheduleSpec(spec);
      const { durability, request: _, key, headers, ...terms } = resolveScheduledTaskOptions(options);
      const parts = this.#input.read(input, key, headers);
      this.#state.room.checkSizes([parts]);
      detach([parts]);
      // What is taken over from a schedule of this name is as of now.
      engine.flush();
      const wallMs = engine.clock.wallMs();
      const old = recurrence.table.get(name);
      if (old === undefined && recurrence.table.size >= SCHEDULES_MAX) {
        const details = { queue: this.name, limit: "schedules", max: SCHEDULES_MAX };
        throw new VarveError("ERR_QUEUE_FULL", `queue ${this.name} has ${SCHEDULES_MAX} schedules, the most`, {
          details,
        });
      }
      const timing: Timing = { ...given, anchorMs: given.fromMs ?? wallMs };
      const goesOn = old !== undefined && sameTimes(old.timing, timing);
      const template = {
        payload: Buffer.from(parts.payload),
        key: parts.key === undefined ? undefined : Buffer.from(parts.key),
        headers: parts.headers,
        terms: JSON.stringify(terms),
      };
      const schedule = goesOn
        ? new RecurringSchedule(
            name,
            { ...timing, anchorMs: old.timing.anchorMs },
            template,
            old.nextMs,
            old.lastMs,
            old.fired,
          )
        : new RecurringSchedule(name, timing, template, undefined, undefined, 0);
      schedule.nextMs ??= schedule.calendar.after(wallMs);
      if (schedule.nextMs === undefined) {
        throw new VarveError("ERR_OPTION", `the schedule ${JSON.stringify(name)} would never fire`, {
          details: { option: given.cron === undefined ? "every" : "cron" },
        });
      }
      const change = recurrence.setting(engine, schedule);
      commit(engine, [change], engine.durability(durability), resolve, reject, identified);
    });
  }

  unschedule(name: string, options?: CommitOptions): Promise<boolean> {
    return requested(this.engine, options, YES_OR_NO, (request) => {
      return new Promise((resolve, reject) => {
        const { engine } = this;
        const { recurrence } = this.#state;
        this.checkOpen();
        checkScheduleName(name);
        const durability = engine.durability(resolveCommitOptions(options).durability);
        engine.flush();
        if (recurrence.table.get(name) === undefined) {
          resolve(false);
          return;
        }
        const change = recurrence.removing(engine, name);
        const identified = request?.tells(true);
        commit(engine, [change], durability, () => resolve(true), reject, identified);
      });
    });
  }

  async expire(): Promise<number> {
    this.checkOpen();
    return await this.consumer.delivery.expire();
  }

  async cursor(name: string, options?: CursorOptions): Promise<TaskCursor<O>> {
    const { create } = resolveCursorOptions(options);
    this.checkOpen();
    checkCursorName(name);
    const { cursors } = this.#state;
    if (!create && !cursors.byName.has(name)) {
      throw new VarveError("ERR_NOT_FOUND", `${this.name} has no cursor ${name}, and create is false`);
    }
    return new EmbeddedCursor(this.engine, this.#state, await cursors.open(name), this.codec);
  }

  async cursors(): Promise<string[]> {
    this.checkOpen();
    return [...this.#state.cursors.byName.keys()].sort();
  }

  deleteCursor(name: string, options?: CommitOptions): Promise<boolean> {
    return requested(this.engine, options, YES_OR_NO, async (request) => {
      const durability = this.engine.durability(resolveCommitOptions(options).durability);
      this.checkOpen();
      checkCursorName(name);
      const identified = request?.tells(true);
      return await this.#state.cursors.delete(name, durability, identified);
    });
  }

  async schedules(): Promise<ScheduleInfo[]> {
    this.checkOpen();
    return this.#state.recurrence.table.list().map(({ name, timing, nextMs, lastMs, fired }) => ({
      name,
      cron: timing.cron,
      timeZone: timing.cron === undefined ? undefined : (timing.timeZone ?? "UTC"),
      every: timing.everyMs,
      from: timing.fromMs,
      until: timing.untilMs,
      missed: timing.missed,
      limit: timing.limit,
      fired,
      lastAt: lastMs,
      nextAt: nextMs!,
    }));
  }

  pause(options?: CommitOptions): Promise<void> {
    return this.#configure(() => (config) => Object.freeze({ ...config, paused: true }), options);
  }

  resume(options?: CommitOptions): Promise<void> {
    return this.#configure(() => (config) => Object.freeze({ ...config, paused: false }), options);
  }

  configure(settings: TaskSettings, options?: CommitOptions): Promise<void> {
    const read = () => {
      const given = resolveTaskSettings(settings);
      return (config: TaskConfig) => mergeTaskConfig(config, given);
    };
    return this.#configure(read, options);
  }

  async settings(): Promise<StoredTaskSettings> {
    this.checkOpen();
    return describeTaskConfig(this.#state.config);
  }

  purge(options?: CommitOptions): Promise<number> {
    return requested(this.engine, options, WHOLE_NUMBER, async (request) => {
      const durability = this.engine.durability(resolveCommitOptions(options).durability);
      this.checkOpen();
      return await purgeTasks(this.engine, this.#state, durability, request);
    });
  }

  /** @param read checks what is asked for and returns the change */
  #configure(read: () => (config: TaskConfig) => TaskConfig, options: CommitOptions | undefined): Promise<void> {
    return requested(this.engine, options, NOTHING, async (request) => {
      const change = read();
      const durability = this.engine.durability(resolveCommitOptions(options).durability);
      this.checkOpen();
      const identified = request?.tells();
      await configureTasks(this.engine, this.#state, change, durability, identified);
      await asItStands(this.engine, durability);
    });
  }

  async stats(): Promise<TaskStats> {
    this.checkOpen();
    return await this.#state.stats(this.engine);
  }

  // ------------------------------------------------------------------------------------------------ what becomes of them

  override ack(task: TaskRef, options?: AckOptions): Promise<void> {
    if (options === undefined || !("result" in options)) return super.ack(task, options);
    return requested(this.engine, options, NOTHING, (request) => {
      return new Promise((resolve, reject) => {
        const { engine } = this;
        const { durability: given, result } = resolveAckOptions(options);
        this.checkOpen();
        const change = this.#ackOf(task, result);
        const identified = request?.tells();
        const stage = () => commit(engine, [change], engine.durability(given), resolve, reject, identified);
        if (engine.stalled) park(engine, change.bulkBytes, [], stage, reject);
        else stage();
      });
    });
  }

  /** @param result JSON */
  #ackOf(task: TaskRef, result: string | undefined): Change {
    if (result === undefined || this.#state.config.resultTtlMs === 0) return super.ackChange(this.engine, task);
    return ackWithResult(this.#state, this.token(task), result);
  }

  protected override get keepsResults(): boolean {
    return this.#state.config.resultTtlMs > 0;
  }

  progress(ref: TaskRef, value: unknown, options?: CommitOptions): Promise<void> {
    return requested(this.engine, options, NOTHING, (request) => {
      return this.#progress(ref, value, options, request?.tells());
    });
  }

  #progress(
    ref: TaskRef,
    value: unknown,
    options: CommitOptions | undefined,
    identified: IdentifiedCommit | undefined,
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      const { engine } = this;
      const { outcomes } = this.#state;
      const json = encodeProgress(value);
      const { durability } = resolveCommitOptions(options);
      this.checkOpen();
      const { lane, offset } = this.token(ref);
      const task = this.consumer.claimLease(this.token(ref));
      const release = () => {
        task.reserved = false;
      };
      try {
        engine.begin(0, 0, SETTLE_BYTES_MAX + PROGRESS_BYTES_MAX + requestBytes(identified), false);
      } catch (error) {
        release();
        throw error;
      }
      outcomes.stageProgress({ lane, offset }, json);
      const operation = {
        durability: engine.durability(durability),
        apply: () => {
          release();
          outcomes.progressed({ lane, offset }, json);
        },
        settle: resolve,
        fail: (error: Error) => {
          release();
          reject(error);
        },
      };
      engine.add(operation, identified);
    });
  }

  async list(options: ListOptions): Promise<ListedTask<O>[]> {
    this.checkOpen();
    return await this.engine.finishing(listTasks(this.engine, this.#state, this.codec, options));
  }

  async status(id: string): Promise<TaskStatus> {
    this.checkOpen();
    return await statusOf(this.#inquiry, id);
  }

  async result<R = unknown>(id: string, options?: ResultOptions): Promise<R> {
    this.checkOpen();
    return (await resultOf(this.#inquiry, id, options)) as R;
  }

  get #inquiry(): Inquiry {
    return { engine: this.engine, state: this.#state, dead: this.dead as EmbeddedDeadLetters<unknown> };
  }

  // ------------------------------------------------------------------------------------- as parts of a larger commit

  override ackChange(engine: Engine, ref: TaskRef, options?: Omit<AckOptions, keyof CommitOptions>): Change {
    if (options === undefined || !("result" in options)) return super.ackChange(engine, ref, options);
    if (engine !== this.engine) throw foreignQueue(this.name);
    return this.#ackOf(ref, resolveAckOptions(options).result);
  }

  enqueueChange(
    engine: Engine,
    input: Input<I>,
    options: Omit<EnqueueOptions, keyof CommitOptions> | undefined,
  ): Change {
    if (engine !== this.engine) throw foreignQueue(this.name);
    const resolved = resolveTransactionEnqueueOptions(options);
    const parts = this.#input.read(input, resolved.key, resolved.headers);
    const due = this.#dueOf(resolved);
    applyTerms(parts, resolved, engine.clock, due !== undefined);
    // A transaction waits for nobody: it is refused if there is no room.
    return new NewTasks(engine, this.#state, [parts], resolved.priority, due, [resolved.dedupeKey], false);
  }

  /** One task of a flow. */
  flowTask(
    engine: Engine,
    input: Input<I>,
    options: FlowTaskOptions | undefined,
    children: readonly FlowTask[],
  ): FlowTask {
    if (engine !== this.engine) throw foreignQueue(this.name);
    this.checkOpen();
    const resolved = resolveFlowTaskOptions(options);
    const parts = this.#input.read(input, resolved.key, resolved.headers);
    detach([parts]);
    const due = this.#dueOf(resolved);
    if (due !== undefined && children.length > 0) {
      throw new VarveError(
        "ERR_OPTION",
        "a task with children is due when they are done: it takes neither delay nor at",
        {
          details: { option: resolved.atMs === undefined ? "delay" : "at" },
        },
      );
    }
    applyTerms(parts, resolved, engine.clock, due !== undefined || children.length > 0);
    return { state: this.#state, parts, priority: resolved.priority, due, children };
  }

  /** The task as its caller knows it. */
  enqueuedTask(id: string): Enqueued {
    return new EnqueuedTask(this, id, true);
  }

  // --------------------------------------------------------------------------------------------------------- private

  /** Stages tasks of which nothing is said. Throws when they cannot be put in. */
  #stagePlain<T>(
    records: readonly RecordParts[],
    bytes: number,
    durability: Durability | undefined,
    tell: (tasks: Enqueued[]) => T,
    resolve: (told: T) => void,
    reject: (error: Error) => void,
    request: Answering<T> | undefined,
  ): void {
    const { engine } = this;
    this.checkOpen();
    engine.begin(bytes, records.length, requestBytes(request), false);
    const { tasks } = this.#state;
    const told = tell(records.map((parts) => new EnqueuedTask(this, String(engine.append(tasks, parts)), true)));
    engine.add(new ValueOperation(engine.durability(durability), told, resolve, reject), request?.tells(told));
    this.consumer.delivery.wake();
  }

  /** @param tell what the caller is told, of the tasks */
  #commitNew<T>(
    records: readonly RecordParts[],
    priority: number,
    due: DueTerms | undefined,
    keys: readonly (string | undefined)[] | undefined,
    durability: Durability | undefined,
    tell: (tasks: Enqueued[]) => T,
    resolve: (told: T) => void,
    reject: (error: Error) => void,
    request: Answering<T> | undefined,
  ): void {
    const { engine } = this;
    const tasks = new NewTasks(engine, this.#state, records, priority, due, keys, true);
    const told = () => tell(this.#enqueued(tasks));
    const identified = request?.answers(told, records.length);
    const stage = () => {
      this.checkOpen();
      const { isNew } = this.#state.openLane(this.consumer, priority);
      const mode = isNew ? "sync" : engine.durability(durability);
      commit(engine, [tasks], mode, () => resolve(told()), reject, identified);
    };
    this.#enter(records, tasks.bulkBytes, stage, reject);
  }

  /** Stages a call when the queue and the engine have room for it. */
  #enter(records: readonly RecordParts[], bytes: number, stage: () => void, reject: (error: Error) => void): void {
    const { engine } = this;
    const enter = () => {
      if (engine.stalled) park(engine, bytes, records, stage, reject);
      else stage();
    };
    this.#state.room.enter(engine, records, enter, reject);
  }

  #enqueued(tasks: NewTasks): Enqueued[] {
    return tasks.enqueued((id, created) => new EnqueuedTask(this, id, created));
  }

  /** Also once the queue is deleted, of which its handles do not know. */
  protected override checkOpen(): void {
    super.checkOpen();
    if (this.#state.ended !== undefined) throw this.#state.ended;
  }

  /** When a task is due, if not at once. */
  #dueOf({ delayMs, atMs }: { readonly delayMs: number; readonly atMs: number | undefined }): DueTerms | undefined {
    if (atMs === undefined) return delayMs > 0 ? { delayMs, wallMs: 0 } : undefined;
    return this.#checkAt(atMs) ? { delayMs: 0, wallMs: atMs } : undefined;
  }

  /** Whether a moment is still to come. */
  #checkAt(atMs: number): boolean {
    const wallMs = this.engine.clock.wallMs();
    if (atMs > wallMs + DELAY_MS_MAX) throw new VarveError("ERR_OPTION", "at must be within ten years from now");
    return atMs > wallMs;
  }
}

function firstOf(tasks: readonly Enqueued[]): Enqueued {
  return tasks[0]!;
}

function allOf(tasks: Enqueued[]): Enqueued[] {
  return tasks;
}
