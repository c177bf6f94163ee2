import { bytes, type Codec } from "../api/codec.js";
import type {
  Bytes,
  CommitOptions,
  DequeueOptions,
  Durability,
  Duration,
  Enqueued,
  EnqueueOptions,
  Handler,
  Input,
  Nacked,
  NackOptions,
  Task,
  TaskQueue,
  TaskRef,
  TaskStats,
  Worker,
  WorkOptions,
} from "../api/contract.js";
import { isVarveError, VarveError } from "../api/errors.js";
import {
  DELAY_MS_MAX,
  type ResolvedDequeueOptions,
  resolveCommitOptions,
  resolveDequeueBatchOptions,
  resolveDequeueOptions,
  resolveEnqueueBatchOptions,
  resolveEnqueueOptions,
  resolveLease,
  resolveNackOptions,
  resolveTransactionEnqueueOptions,
  resolveTransactionNackOptions,
} from "../api/options.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { type Operation, ValueOperation } from "../engine/operation.js";
import { type RecordParts, recordBytesMax } from "../storage/batch.js";
import { VARINT_BYTES_MAX } from "../storage/bytes.js";
import { work } from "../worker/worker.js";
import type { Change } from "./commit.js";
import { EmbeddedDeadLetters } from "./dead-letters.js";
import { detach, InputReader, park, totalBytesMax } from "./input.js";
import type { Outstanding } from "./ledger.js";
import { checkBatch, foreignQueue } from "./log-queue.js";
import { onAbort } from "./signals.js";
import { encodeTaskAttributes } from "./task-record.js";
import {
  type DeathCause,
  RELEASE_BYTES_MAX,
  type Receiver,
  SETTLE_BYTES_MAX,
  TaskOp,
  type TaskState,
} from "./task-state.js";
import { LeasedTask, parseToken, type TaskToken } from "./task-token.js";

/** What `enqueue` and its relatives settle about when and how often a task runs. */
interface Terms {
  readonly delayMs: number;
  readonly atMs: number | undefined;
  readonly maxAttempts: number | undefined;
}

/** A task queue of an embedded directory. */
export class EmbeddedTasks<I = Bytes, O = Buffer> implements TaskQueue<I, O> {
  readonly kind = "task";
  readonly name: string;
  readonly dead: EmbeddedDeadLetters<O>;
  readonly #engine: Engine;
  readonly #state: TaskState;
  readonly #codec: Codec<I, O>;
  readonly #input: InputReader<I>;

  constructor(engine: Engine, state: TaskState, codec: Codec<I, O>) {
    this.name = state.name;
    this.#engine = engine;
    this.#state = state;
    this.#codec = codec;
    this.#input = new InputReader(codec, engine.options.maxMessageBytes);
    this.dead = new EmbeddedDeadLetters(engine, state, codec);
  }

  enqueue(input: Input<I>, options?: EnqueueOptions): Promise<Enqueued> {
    return new Promise((resolve, reject) => {
      const engine = this.#engine;
      engine.checkOpen();
      const resolved = resolveEnqueueOptions(options);
      const parts = this.#input.read(input, resolved.key, resolved.headers);
      const scheduled = this.#applyTerms(parts, resolved);
      const bytes = recordBytesMax(parts);
      const stage = () => {
        engine.begin(bytes, 1, scheduled ? SCHEDULE_BYTES_MAX : 0, false);
        const state = this.#state;
        const offset = engine.append(state.tasks, parts);
        const durability = engine.durability(resolved.durability);
        const enqueued = { id: String(offset), created: true };
        if (scheduled) {
          this.#stageSchedule([offset], resolved);
          const apply = () => this.#scheduled([offset], resolved);
          engine.add({ durability, apply, settle: () => resolve(enqueued), fail: reject });
        } else {
          engine.add(new ValueOperation(durability, enqueued, resolve, reject));
          state.wakeReceivers();
        }
      };
      if (engine.stalled) park(engine, bytes, [parts], stage, reject);
      else stage();
    });
  }

  enqueueBatch(inputs: readonly Input<I>[], options?: Omit<EnqueueOptions, "key" | "headers">): Promise<Enqueued[]> {
    return new Promise((resolve, reject) => {
      const engine = this.#engine;
      engine.checkOpen();
      const resolved = resolveEnqueueBatchOptions(options);
      checkBatch(inputs);
      if (inputs.length === 0) {
        resolve([]);
        return;
      }
      let scheduled = false;
      const records = inputs.map((input) => {
        const parts = this.#input.read(input, undefined, undefined);
        scheduled = this.#applyTerms(parts, resolved);
        return parts;
      });
      const bytes = totalBytesMax(records);
      const stage = () => {
        engine.begin(bytes, records.length, scheduled ? records.length * SCHEDULE_BYTES_MAX : 0, false);
        const state = this.#state;
        const offsets = records.map((record) => engine.append(state.tasks, record));
        const enqueued = offsets.map((offset) => ({ id: String(offset), created: true }));
        const durability = engine.durability(resolved.durability);
        if (scheduled) this.#stageSchedule(offsets, resolved);
        engine.add({
          durability,
          apply: () => {
            if (scheduled) this.#scheduled(offsets, resolved);
            else state.wakeReceivers();
          },
          settle: () => resolve(enqueued),
          fail: reject,
        });
      };
      if (engine.stalled) park(engine, bytes, records, stage, reject);
      else stage();
    });
  }

  dequeue(options?: DequeueOptions): Promise<Task<O> | undefined> {
    return new Promise((resolve, reject) => {
      this.#receive(resolveDequeueOptions(options), 1, (tasks) => resolve(tasks[0]), reject);
    });
  }

  dequeueBatch(options: DequeueOptions & { readonly max: number }): Promise<Task<O>[]> {
    return new Promise((resolve, reject) => {
      const resolved = resolveDequeueBatchOptions(options);
      this.#receive(resolved, resolved.max, resolve, reject);
    });
  }

  ack(task: TaskRef, options?: CommitOptions): Promise<void> {
    return new Promise((resolve, reject) => {
      const engine = this.#engine;
      const durability = engine.durability(resolveCommitOptions(options).durability);
      this.#engine.checkOpen();
      this.#stageAck([this.#state.claimLease(this.#token(task))], durability, resolve, reject);
    });
  }

  ackBatch(refs: readonly TaskRef[], options?: CommitOptions): Promise<void> {
    return new Promise((resolve, reject) => {
      const engine = this.#engine;
      const durability = engine.durability(resolveCommitOptions(options).durability);
      checkBatch(refs);
      this.#engine.checkOpen();
      if (refs.length === 0) {
        resolve();
        return;
      }
      const tasks: Outstanding[] = [];
      try {
        for (const ref of refs) tasks.push(this.#state.claimLease(this.#token(ref)));
      } catch (error) {
        for (const task of tasks) task.reserved = false;
        throw error;
      }
      this.#stageAck(tasks, durability, resolve, reject);
    });
  }

  nack(ref: TaskRef, options?: NackOptions): Promise<Nacked> {
    return new Promise((resolve, reject) => {
      const engine = this.#engine;
      const state = this.#state;
      const { durability: given, delayMs, error = "no reason was given", dead } = resolveNackOptions(options);
      const durability = engine.durability(given);
      this.#engine.checkOpen();
      const task = state.claimLease(this.#token(ref));
      if (dead || state.isExhausted(task)) {
        state.bury(task, error, durability, causeOf(dead)).then(() => resolve({ dead: true }), reject);
        return;
      }
      const wait = delayMs ?? state.backoffMs(task);
      this.#settle(task, RELEASE_BYTES_MAX, () => state.stageRelease(task, wait, error));
      engine.add({
        durability,
        apply: () => state.released(task, wait, error),
        settle: () => resolve({ dead: false }),
        fail: (failure) => {
          task.reserved = false;
          reject(failure);
        },
      });
    });
  }

  extend(ref: TaskRef, lease?: Duration, options?: CommitOptions): Promise<void> {
    return new Promise((resolve, reject) => {
      const engine = this.#engine;
      const state = this.#state;
      const leaseMs = resolveLease(lease) ?? state.config.leaseMs;
      const { durability } = resolveCommitOptions(options);
      this.#engine.checkOpen();
      const task = state.claimLease(this.#token(ref));
      this.#settle(task, SETTLE_BYTES_MAX, () => state.stageExtend(task, leaseMs));
      engine.add({
        durability: engine.durability(durability),
        apply: () => state.extended(task, leaseMs),
        settle: resolve,
        fail: (failure) => {
          task.reserved = false;
          reject(failure);
        },
      });
    });
  }

  work(handler: Handler<O>, options?: WorkOptions): Worker<O> {
    const { clock, logger } = this.#engine;
    this.#engine.checkOpen();
    return work(this, handler, options, {
      timers: clock,
      logger,
      leaseMs: () => this.#state.config.leaseMs,
      keepsResults: false,
    });
  }

  async stats(): Promise<TaskStats> {
    this.#engine.checkOpen();
    return await this.#state.stats(this.#engine);
  }

  // ------------------------------------------------------------------------------------- as parts of a larger commit

  enqueueChange(engine: Engine, input: Input<I>, options: Omit<EnqueueOptions, "durability"> | undefined): Change {
    if (engine !== this.#engine) throw foreignQueue(this.name);
    const resolved = resolveTransactionEnqueueOptions(options);
    const parts = this.#input.read(input, resolved.key, resolved.headers);
    detach([parts]);
    const scheduled = this.#applyTerms(parts, resolved);
    const offsets: number[] = [];
    return {
      bulkBytes: recordBytesMax(parts),
      records: 1,
      metaBytes: scheduled ? SCHEDULE_BYTES_MAX : 0,
      settles: false,
      reserve() {},
      release() {},
      stage: () => {
        offsets.push(engine.append(this.#state.tasks, parts));
        if (scheduled) this.#stageSchedule(offsets, resolved);
      },
      apply: () => {
        if (scheduled) this.#scheduled(offsets, resolved);
        else this.#state.wakeReceivers();
      },
    };
  }

  ackChange(engine: Engine, ref: TaskRef): Change {
    if (engine !== this.#engine) throw foreignQueue(this.name);
    const token = this.#token(ref);
    let task: Outstanding | undefined;
    return {
      bulkBytes: 0,
      records: 0,
      metaBytes: SETTLE_BYTES_MAX,
      settles: true,
      reserve: () => {
        task = this.#state.claimLease(token);
      },
      release: () => {
        if (task !== undefined) task.reserved = false;
      },
      stage: () => this.#state.stageAck([task!]),
      apply: () => this.#state.acked([task!]),
    };
  }

  /** Resolves once everything that a nack needs, which may be the task's record, is in memory. */
  async nackChange(
    engine: Engine,
    ref: TaskRef,
    options: Omit<NackOptions, "durability"> | undefined,
  ): Promise<Change> {
    if (engine !== this.#engine) throw foreignQueue(this.name);
    const state = this.#state;
    const { delayMs, error = "no reason was given", dead } = resolveTransactionNackOptions(options);
    const token = this.#token(ref);
    const claimed = state.claimLease(token);
    claimed.reserved = false;
    const dies = dead || state.isExhausted(claimed);
    const letter = dies ? await state.letterOf(claimed, error, causeOf(dead)) : undefined;
    const wait = delayMs ?? state.backoffMs(claimed);
    let task: Outstanding | undefined;
    return {
      bulkBytes: letter === undefined ? 0 : recordBytesMax(letter),
      records: letter === undefined ? 0 : 1,
      metaBytes: RELEASE_BYTES_MAX,
      settles: true,
      reserve: () => {
        task = state.claimLease(token);
      },
      release: () => {
        if (task !== undefined) task.reserved = false;
      },
      stage: () => {
        if (letter === undefined) state.stageRelease(task!, wait, error);
        else state.stageBury(task!, letter);
      },
      apply: () => {
        if (letter === undefined) state.released(task!, wait, error);
        else state.buried(task!);
      },
    };
  }

  // --------------------------------------------------------------------------------------------------------- private

  #stageAck(
    tasks: readonly Outstanding[],
    durability: Durability,
    resolve: () => void,
    reject: (error: Error) => void,
  ): void {
    const engine = this.#engine;
    try {
      engine.begin(0, 0, OPERATION_HEADER_BYTES + (tasks.length + 1) * VARINT_BYTES_MAX, true);
    } catch (error) {
      for (const task of tasks) task.reserved = false;
      throw error;
    }
    this.#state.stageAck(tasks);
    engine.add(new Ack(this.#state, tasks, durability, resolve, reject));
  }

  /** Stages an operation that settles a task which the caller has reserved. */
  #settle(task: Outstanding, metaBytes: number, stage: () => void): void {
    try {
      this.#engine.begin(0, 0, metaBytes, true);
    } catch (error) {
      task.reserved = false;
      throw error;
    }
    stage();
  }

  #receive(
    options: ResolvedDequeueOptions,
    max: number,
    resolve: (tasks: Task<O>[]) => void,
    reject: (error: Error) => void,
  ): void {
    const engine = this.#engine;
    const state = this.#state;
    this.#engine.checkOpen();
    const { waitMs, signal, leaseMs, durability } = options;
    if (signal?.aborted === true) {
      resolve([]);
      return;
    }
    let stop: (() => void) | undefined;
    const receiver: Receiver = {
      max,
      leaseMs: leaseMs ?? state.config.leaseMs,
      durability: engine.durability(durability),
      waits: waitMs > 0,
      resolve: (tasks) => {
        stop?.();
        if (tasks.length === 0) {
          resolve([]);
          return;
        }
        const decoded = this.#decode(tasks);
        if (decoded.length > 0) resolve(decoded);
        else void Promise.resolve().then(() => this.#receiveAgain(options, max, started, resolve, reject));
      },
      reject: (error) => {
        stop?.();
        reject(error);
      },
    };
    const started = waitMs > 0 ? engine.elapsedMs() : 0;
    if (waitMs > 0) {
      const giveUp = () => state.forget(receiver);
      const timer = engine.clock.setTimer(waitMs, giveUp, true);
      const unwatch = signal === undefined ? undefined : onAbort(signal, giveUp);
      stop = () => {
        timer.cancel();
        unwatch?.();
      };
    }
    try {
      state.receive(receiver);
    } catch (error) {
      stop?.();
      throw error;
    }
  }

  /** All that was delivered could not be decoded and is on its way to the dead letters: take what is behind it. */
  #receiveAgain(
    options: ResolvedDequeueOptions,
    max: number,
    started: number,
    resolve: (tasks: Task<O>[]) => void,
    reject: (error: Error) => void,
  ): void {
    const waitMs = options.waitMs > 0 ? Math.max(0, options.waitMs - (this.#engine.elapsedMs() - started)) : 0;
    try {
      this.#receive({ ...options, waitMs }, max, resolve, reject);
    } catch (error) {
      reject(error as Error);
    }
  }

  /** The tasks with their payloads decoded. One that cannot be decoded goes to the dead letters; the others go on. */
  #decode(tasks: LeasedTask[]): LeasedTask<O>[] {
    if ((this.#codec as unknown) === bytes()) return tasks as LeasedTask<O>[];
    const decoded: LeasedTask<O>[] = [];
    for (const task of tasks as LeasedTask<O>[]) {
      try {
        task.payload = this.#codec.decode(task.payload as Buffer);
        decoded.push(task);
      } catch (cause) {
        const reason = cause instanceof Error ? cause.message : String(cause);
        this.#buryUndecodable(task, isVarveError(cause) ? `${cause.code}: ${reason}` : `ERR_DECODE: ${reason}`);
      }
    }
    return decoded;
  }

  #buryUndecodable(task: LeasedTask<O>, reason: string): void {
    const state = this.#state;
    const engine = this.#engine;
    const claimed = state.claimLease(task);
    state.bury(claimed, reason.slice(0, 256), engine.options.durability).catch((error: Error) => {
      // The lease ends by itself, and the next attempt meets the same.
      engine.logger.error({ queue: this.name, task: task.id, error }, "an undecodable task could not be set aside");
    });
  }

  #token(ref: TaskRef): TaskToken {
    if (ref instanceof LeasedTask && ref.belongsTo(this.#state)) return ref;
    const token = typeof ref === "object" && ref !== null ? ref.token : ref;
    return parseToken(token, this.#state.id, this.name);
  }

  /** Notes the terms in the record's attributes; true when the task must wait for its time. */
  #applyTerms(parts: RecordParts, { delayMs, atMs, maxAttempts }: Terms): boolean {
    if (maxAttempts !== undefined) {
      parts.attributes = encodeTaskAttributes({
        limit: maxAttempts + 1,
        failures: undefined,
        death: undefined,
        origin: undefined,
      });
    }
    if (atMs === undefined) return delayMs > 0;
    const wallMs = this.#engine.clock.wallMs();
    if (atMs > wallMs + DELAY_MS_MAX) throw new VarveError("ERR_OPTION", "at must be within ten years from now");
    return atMs > wallMs;
  }

  #stageSchedule(offsets: readonly number[], { delayMs, atMs }: Terms): void {
    const output = this.#engine.operation(TaskOp.Schedule, this.#state.id);
    output.varint(offsets.length);
    for (const offset of offsets) {
      output.varint(offset);
      output.varint(delayMs);
      output.varint(atMs ?? 0);
    }
    this.#engine.endOperation();
  }

  #scheduled(offsets: readonly number[], { delayMs, atMs }: Terms): void {
    const { entryTime } = this.#engine;
    for (const offset of offsets) this.#state.schedule(offset, delayMs, atMs ?? 0, entryTime);
    this.#state.scheduleChanged();
  }
}

function causeOf(dead: boolean): DeathCause {
  return dead ? "discarded" : "attempts exhausted";
}

const SCHEDULE_BYTES_MAX = OPERATION_HEADER_BYTES + 4 * VARINT_BYTES_MAX;

/** An ack on its way through the log. */
class Ack implements Operation {
  readonly durability: Durability;
  readonly #state: TaskState;
  readonly #tasks: readonly Outstanding[];
  readonly settle: () => void;
  readonly #reject: (error: Error) => void;

  constructor(
    state: TaskState,
    tasks: readonly Outstanding[],
    durability: Durability,
    resolve: () => void,
    reject: (error: Error) => void,
  ) {
    this.durability = durability;
    this.#state = state;
    this.#tasks = tasks;
    this.settle = resolve;
    this.#reject = reject;
  }

  apply(): void {
    this.#state.acked(this.#tasks);
  }

  fail(error: Error): void {
    for (const task of this.#tasks) task.reserved = false;
    this.#reject(error);
  }
}
