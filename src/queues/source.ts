import { bytes, type Codec } from "../api/codec.js";
import type {
  AckOptions,
  CommitOptions,
  DequeueOptions,
  Durability,
  Duration,
  Handler,
  Nacked,
  NackOptions,
  PeekedTask,
  PeekOptions,
  ReleaseOptions,
  Task,
  TaskRef,
  TaskSource,
  Worker,
  WorkOptions,
} from "../api/contract.js";
import { isVarveError } from "../api/errors.js";
import { checkBatch } from "../api/input.js";
import {
  type ResolvedDequeueOptions,
  resolveCommitOptions,
  resolveDequeueBatchOptions,
  resolveDequeueOptions,
  resolveLease,
  resolveNackOptions,
  resolvePeekOptions,
  resolveReleaseOptions,
  resolveTransactionAckOptions,
  resolveTransactionNackOptions,
  resolveTransactionReleaseOptions,
} from "../api/options.js";
import { onAbort } from "../api/signals.js";
import { TAKE_EACH, TAKES_FROM, type TakeLine, type TakesEach } from "../api/take-each.js";
import type { Engine } from "../engine/engine.js";
import type { Operation } from "../engine/operation.js";
import { type IdentifiedCommit, requestBytes } from "../engine/requests.js";
import { recordBytesMax } from "../storage/batch.js";
import { type Decoder, type Encoder, VARINT_BYTES_MAX } from "../storage/bytes.js";
import { work } from "../worker/worker.js";
import { type Change, commit, foreignQueue } from "./commit.js";
import { type Consumer, giveUp, RELEASE_BYTES_MAX, SETTLE_BYTES_MAX } from "./consumer.js";
import { EmbeddedDeadLetters } from "./dead-letters.js";
import type { Peeker, Waiter } from "./delivery.js";
import { CHILD_DONE_BYTES_MAX } from "./flows.js";
import type { Outstanding } from "./ledger.js";
import { Receivers } from "./receivers.js";
import { type Answer, AnswerKind, NACKED, NOTHING, type Request, requested } from "./requested.js";
import type { DeathCause } from "./task-record.js";
import { LeasedTask, parseToken, type TaskToken } from "./task-token.js";

/** What hands out a consumer's tasks, as their receivers see it. */
export class EmbeddedSource<O> implements TaskSource<O>, TakesEach {
  readonly name: string;
  readonly dead: EmbeddedDeadLetters<O>;
  protected readonly engine: Engine;
  protected readonly consumer: Consumer;
  protected readonly codec: Codec<unknown, O>;
  /** How a dequeue that may be repeated is remembered: by the deliveries that it has made. */
  readonly #deliveries: Answer<Task<O>[]> = {
    kind: AnswerKind.Deliveries,
    bytesMax: (count) => VARINT_BYTES_MAX + count * (2 * VARINT_BYTES_MAX + 8),
    encode: (output, tasks) => encodeDeliveries(output, tasks as LeasedTask<O>[]),
    decode: (input) => this.#handOutAgain(decodeDeliveries(input)),
    isNone: (tasks) => tasks.length === 0,
  };

  constructor(engine: Engine, consumer: Consumer, codec: Codec<never, O>) {
    this.name = consumer.host.name;
    this.engine = engine;
    this.consumer = consumer;
    this.codec = codec as Codec<unknown, O>;
    this.dead = new EmbeddedDeadLetters(engine, consumer, codec);
  }

  dequeue(options?: DequeueOptions): Promise<Task<O> | undefined> {
    return new Promise((resolve, reject) => {
      const resolved = resolveDequeueOptions(options);
      const first = (tasks: Task<O>[]) => resolve(tasks[0]);
      if (resolved.request === undefined) this.#receive(resolved, 1, undefined, first, reject);
      else this.#receiveOnce(resolved, 1, options).then(first, reject);
    });
  }

  dequeueBatch(options: DequeueOptions & { readonly max: number }): Promise<Task<O>[]> {
    return new Promise((resolve, reject) => {
      const resolved = resolveDequeueBatchOptions(options);
      if (resolved.request === undefined) this.#receive(resolved, resolved.max, undefined, resolve, reject);
      else this.#receiveOnce(resolved, resolved.max, options).then(resolve, reject);
    });
  }

  [TAKES_FROM](): object | undefined {
    // What is told of are bytes.
    return this.#isOpen && (this.codec as unknown) === bytes() ? this.consumer : undefined;
  }

  [TAKE_EACH](line: TakeLine): void {
    const { engine, consumer } = this;
    const leaseMs = line.leaseMs ?? consumer.host.rules.leaseMs;
    if (this.#isOpen) {
      consumer.delivery.receiveEach(new Receivers(consumer, line, leaseMs, engine.durability(line.durability)));
      return;
    }
    // Each will say why, or is another member's.
    for (let place = 0; place < line.count; place++) line.alone(place);
  }

  ack(task: TaskRef, options?: CommitOptions): Promise<void> {
    if (options?.request === undefined) return this.#ack(task, options, undefined);
    return requested(this.engine, options, NOTHING, (request) => this.#ack(task, options, request?.tells()));
  }

  #ack(task: TaskRef, options: CommitOptions | undefined, request: IdentifiedCommit | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const engine = this.engine;
      const durability = engine.durability(resolveCommitOptions(options).durability);
      this.checkOpen();
      this.#stageAck([this.consumer.claimLease(this.token(task))], durability, resolve, reject, request);
    });
  }

  ackBatch(refs: readonly TaskRef[], options?: CommitOptions): Promise<void> {
    return requested(this.engine, options, NOTHING, (request) => {
      return new Promise((resolve, reject) => {
        const engine = this.engine;
        const durability = engine.durability(resolveCommitOptions(options).durability);
        checkBatch(refs);
        this.checkOpen();
        if (refs.length === 0) {
          resolve();
          return;
        }
        this.#stageAck(this.#claim(refs), durability, resolve, reject, request?.tells());
      });
    });
  }

  release(refs: TaskRef | readonly TaskRef[], options?: ReleaseOptions): Promise<void> {
    return requested(this.engine, options, NOTHING, (request) => {
      return new Promise((resolve, reject) => {
        const { engine } = this;
        const { durability: given, to } = resolveReleaseOptions(options);
        const durability = engine.durability(given);
        this.checkOpen();
        if (Array.isArray(refs) && refs.length === 0) {
          resolve();
          return;
        }
        const toHead = to === "head";
        const change = this.#releaseOf(Array.isArray(refs) ? refs : [refs as TaskRef], toHead);
        commit(engine, [change], durability, resolve, reject, request?.tells());
      });
    });
  }

  peek(options?: PeekOptions): Promise<PeekedTask<O> | undefined> {
    return new Promise((resolve, reject) => {
      const { consumer } = this;
      const { waitMs, signal } = resolvePeekOptions(options);
      this.checkOpen();
      if (signal?.aborted === true) {
        resolve(undefined);
        return;
      }
      let stop: (() => void) | undefined;
      const peeker: Peeker = {
        before: undefined,
        behind: undefined,
        waits: waitMs > 0,
        resolve: (task) => {
          stop?.();
          try {
            resolve(task && peeked(task, this.codec.decode(task.payload as Buffer)));
          } catch (error) {
            reject(error);
          }
        },
        reject: (error) => {
          stop?.();
          reject(error);
        },
      };
      if (waitMs > 0) stop = this.#giveUpAfter(waitMs, signal, () => consumer.delivery.forgetPeeker(peeker));
      try {
        consumer.delivery.peek(peeker);
      } catch (error) {
        stop?.();
        throw error;
      }
    });
  }

  nack(ref: TaskRef, options?: NackOptions): Promise<Nacked> {
    return requested(this.engine, options, NACKED, (request) => {
      return new Promise((resolve, reject) => {
        const engine = this.engine;
        const { consumer } = this;
        const { durability: given, delayMs, error = "no reason was given", dead } = resolveNackOptions(options);
        const durability = engine.durability(given);
        this.checkOpen();
        const task = consumer.claimLease(this.token(ref));
        const dies = dead || consumer.isExhausted(task);
        const nacked = { dead: dies };
        const identified = request?.tells(nacked);
        if (dies) {
          consumer.bury(task, error, durability, causeOf(dead), identified).then(() => resolve(nacked), reject);
          return;
        }
        const wait = delayMs ?? consumer.backoffMs(task);
        const metaBytes = RELEASE_BYTES_MAX + requestBytes(identified);
        this.#settle(task, metaBytes, () => consumer.stageRelease(task, wait, error));
        const operation = {
          durability,
          apply: () => consumer.released(task, wait, error),
          settle: () => resolve(nacked),
          fail: (failure: Error) => {
            task.reserved = false;
            reject(failure);
          },
        };
        engine.add(operation, identified);
      });
    });
  }

  extend(ref: TaskRef, lease?: Duration, options?: CommitOptions): Promise<void> {
    return requested(this.engine, options, NOTHING, (request) => {
      return new Promise((resolve, reject) => {
        const engine = this.engine;
        const { consumer } = this;
        const leaseMs = resolveLease(lease) ?? consumer.host.rules.leaseMs;
        const { durability } = resolveCommitOptions(options);
        this.checkOpen();
        const task = consumer.claimLease(this.token(ref));
        const identified = request?.tells();
        const metaBytes = SETTLE_BYTES_MAX + requestBytes(identified);
        this.#settle(task, metaBytes, () => consumer.stageExtend(task, leaseMs));
        const operation = {
          durability: engine.durability(durability),
          apply: () => consumer.extended(task, leaseMs),
          settle: resolve,
          fail: (failure: Error) => {
            task.reserved = false;
            reject(failure);
          },
        };
        engine.add(operation, identified);
      });
    });
  }

  work(handler: Handler<O>, options?: WorkOptions): Worker<O> {
    const { clock, logger } = this.engine;
    const keepsResults = () => this.keepsResults;
    this.checkOpen();
    return work(this, handler, options, {
      timers: clock,
      logger,
      leaseMs: () => this.consumer.host.rules.leaseMs,
      get keepsResults() {
        return keepsResults();
      },
      onEnd: (callback) => this.onEnd(callback),
    });
  }

  /** Calls back once when this handle can do nothing any more; returns what ends the wait for that. */
  protected onEnd(callback: (error: Error) => void): () => void {
    return this.consumer.onEnd(callback);
  }

  /** Whether an ack may carry a result. */
  protected get keepsResults(): boolean {
    return false;
  }

  ackChange(engine: Engine, ref: TaskRef, options?: Omit<AckOptions, keyof CommitOptions>): Change {
    if (options !== undefined) resolveTransactionAckOptions(options);
    if (engine !== this.engine) throw foreignQueue(this.name);
    const token = this.token(ref);
    let task: Outstanding | undefined;
    return {
      bulkBytes: 0,
      records: 0,
      metaBytes: SETTLE_BYTES_MAX + CHILD_DONE_BYTES_MAX,
      settles: true,
      reserve: () => {
        task = this.consumer.claimLease(token);
      },
      release: () => {
        if (task !== undefined) task.reserved = false;
      },
      stage: () => this.consumer.stageAck([task!]),
      apply: () => this.consumer.acked([task!]),
    };
  }

  /** Resolves once everything that a nack needs, which may be the task's record, is in memory. */
  async nackChange(
    engine: Engine,
    ref: TaskRef,
    options: Omit<NackOptions, keyof CommitOptions> | undefined,
  ): Promise<Change> {
    if (engine !== this.engine) throw foreignQueue(this.name);
    const { consumer } = this;
    const { delayMs, error = "no reason was given", dead } = resolveTransactionNackOptions(options);
    const token = this.token(ref);
    const claimed = consumer.claimLease(token);
    claimed.reserved = false;
    const dies = dead || consumer.isExhausted(claimed);
    const letter = dies ? await consumer.letterOf(claimed, error, causeOf(dead)) : undefined;
    const wait = delayMs ?? consumer.backoffMs(claimed);
    let task: Outstanding | undefined;
    return {
      bulkBytes: letter === undefined ? 0 : recordBytesMax(letter),
      records: letter === undefined ? 0 : 1,
      metaBytes: RELEASE_BYTES_MAX,
      settles: true,
      reserve: () => {
        if (letter !== undefined) consumer.openDead();
        task = consumer.claimLease(token);
      },
      release: () => {
        if (task !== undefined) task.reserved = false;
      },
      stage: () => {
        if (dies) consumer.stageBury(task!, letter);
        else consumer.stageRelease(task!, wait, error);
      },
      apply: () => {
        if (dies) consumer.buried(task!);
        else consumer.released(task!, wait, error);
      },
    };
  }

  releaseChange(engine: Engine, ref: TaskRef, options: Omit<ReleaseOptions, keyof CommitOptions> | undefined): Change {
    if (engine !== this.engine) throw foreignQueue(this.name);
    return this.#releaseOf([this.token(ref)], resolveTransactionReleaseOptions(options).to === "head");
  }

  /** Disposes of a task that was handed out and cannot be decoded. */
  protected setAside(task: LeasedTask<O>, reason: string): Promise<void> {
    const { consumer } = this;
    if (task.token === "") return consumer.buryTaken(task, reason);
    return consumer.bury(consumer.claimLease(task), reason, this.engine.options.durability);
  }

  /** Before every call. @throws VarveError when there is nothing to be had from here any more */
  protected checkOpen(): void {
    this.engine.checkOpen();
    if (this.consumer.deleted !== undefined) throw this.consumer.deleted;
  }

  // --------------------------------------------------------------------------------------------------------- private

  get #isOpen(): boolean {
    try {
      this.checkOpen();
      return true;
    } catch {
      return false;
    }
  }

  #releaseOf(refs: readonly (TaskRef | TaskToken)[], toHead: boolean): Change {
    const { consumer } = this;
    const tokens = refs.map((ref) => (isToken(ref) ? ref : this.token(ref)));
    let tasks: Outstanding[] = [];
    return {
      bulkBytes: 0,
      records: 0,
      metaBytes: consumer.offsetsBytesMax(tokens.length),
      settles: true,
      reserve: () => {
        tasks = consumer.claimLeases(tokens);
      },
      release: () => giveUp(tasks),
      stage: () => consumer.stageGiveBack(tasks, toHead),
      apply: () => consumer.givenBack(tasks, toHead),
    };
  }

  #claim(refs: readonly TaskRef[]): Outstanding[] {
    return this.consumer.claimLeases(refs.map((ref) => this.token(ref)));
  }

  /** Calls back when a wait is over or the signal is aborted. Returns what stops that. */
  #giveUpAfter(waitMs: number, signal: AbortSignal | undefined, giveUpWaiting: () => void): () => void {
    const timer = this.engine.clock.setTimer(waitMs, giveUpWaiting, true);
    const unwatch = signal === undefined ? undefined : onAbort(signal, giveUpWaiting);
    return () => {
      timer.cancel();
      unwatch?.();
    };
  }

  #stageAck(
    tasks: readonly Outstanding[],
    durability: Durability,
    resolve: () => void,
    reject: (error: Error) => void,
    request: IdentifiedCommit | undefined,
  ): void {
    const engine = this.engine;
    try {
      engine.begin(0, 0, this.consumer.offsetsBytesMax(tasks.length) + requestBytes(request), true);
    } catch (error) {
      giveUp(tasks);
      throw error;
    }
    this.consumer.stageAck(tasks);
    engine.add(new Ack(this.consumer, tasks, durability, resolve, reject), request);
  }

  /** Stages an operation that settles a task which the caller has reserved. */
  #settle(task: Outstanding, metaBytes: number, stage: () => void): void {
    try {
      this.engine.begin(0, 0, metaBytes, true);
    } catch (error) {
      task.reserved = false;
      throw error;
    }
    stage();
  }

  #receiveOnce(resolved: ResolvedDequeueOptions, max: number, options: CommitOptions | undefined): Promise<Task<O>[]> {
    return requested(this.engine, options, this.#deliveries, (request) => {
      return new Promise((resolve, reject) => this.#receive(resolved, max, request, resolve, reject));
    });
  }

  /** Tasks that were handed out before: those of them whose leases still hold. */
  async #handOutAgain(deliveries: readonly DeliveryName[]): Promise<Task<O>[]> {
    const { consumer } = this;
    this.checkOpen();
    const found: LeasedTask[] = [];
    for (const delivery of deliveries) {
      const leased = consumer.leasedAs(delivery);
      if (leased === undefined) continue;
      const { lane, task } = leased;
      const read = await lane.atRecordLeft(task.offset, (record) => {
        return new LeasedTask(consumer, task, record, lane.attributes(record));
      });
      if (read !== undefined) found.push(read.used);
      // It may have been settled while it was read.
      else if (consumer.leasedAs(delivery) !== undefined) throw lane.missing(task.offset);
    }
    // Reading them took its time.
    return this.#decode(found.filter((task) => consumer.leasedAs(task) !== undefined));
  }

  #receive(
    options: ResolvedDequeueOptions,
    max: number,
    request: Request<Task<O>[]> | undefined,
    resolve: (tasks: Task<O>[]) => void,
    reject: (error: Error) => void,
  ): void {
    const engine = this.engine;
    const { consumer } = this;
    this.checkOpen();
    const { waitMs, signal, leaseMs, autoAck, durability } = options;
    if (signal?.aborted === true) {
      resolve([]);
      return;
    }
    let stop: (() => void) | undefined;
    const tasks: LeasedTask[] = [];
    const receiver: Waiter = {
      isParty: false,
      before: undefined,
      behind: undefined,
      max,
      leaseMs: leaseMs ?? consumer.host.rules.leaseMs,
      autoAck,
      durability: engine.durability(durability),
      waits: waitMs > 0,
      identify: request && ((most) => request.answers(() => tasks as Task<O>[], most)),
      give: (task, record, attributes) => tasks.push(new LeasedTask(consumer, task, record, attributes)),
      resolve: () => {
        stop?.();
        if (tasks.length === 0) {
          resolve([]);
          return;
        }
        const decoded = this.#decode(tasks);
        if (decoded.length > 0) resolve(decoded);
        else void Promise.resolve().then(() => this.#receiveAgain(options, max, request, started, resolve, reject));
      },
      reject: (error) => {
        stop?.();
        reject(error);
      },
    };
    const started = waitMs > 0 ? engine.elapsedMs() : 0;
    if (waitMs > 0) stop = this.#giveUpAfter(waitMs, signal, () => consumer.delivery.forget(receiver));
    try {
      consumer.delivery.receive(receiver);
    } catch (error) {
      stop?.();
      throw error;
    }
  }

  /** All that was delivered could not be decoded and is on its way to the dead letters: take what is behind it. */
  #receiveAgain(
    options: ResolvedDequeueOptions,
    max: number,
    request: Request<Task<O>[]> | undefined,
    started: number,
    resolve: (tasks: Task<O>[]) => void,
    reject: (error: Error) => void,
  ): void {
    const waitMs = options.waitMs > 0 ? Math.max(0, options.waitMs - (this.engine.elapsedMs() - started)) : 0;
    try {
      this.#receive({ ...options, waitMs }, max, request, resolve, reject);
    } catch (error) {
      reject(error as Error);
    }
  }

  /** The tasks with their payloads decoded. One that cannot be decoded goes to the dead letters; the others go on. */
  #decode(tasks: LeasedTask[]): LeasedTask<O>[] {
    if ((this.codec as unknown) === bytes()) return tasks as LeasedTask<O>[];
    const decoded: LeasedTask<O>[] = [];
    for (const task of tasks as LeasedTask<O>[]) {
      try {
        task.payload = this.codec.decode(task.payload as Buffer);
        decoded.push(task);
      } catch (cause) {
        const reason = cause instanceof Error ? cause.message : String(cause);
        this.#buryUndecodable(task, isVarveError(cause) ? `${cause.code}: ${reason}` : `ERR_DECODE: ${reason}`);
      }
    }
    return decoded;
  }

  #buryUndecodable(task: LeasedTask<O>, reason: string): void {
    const { engine } = this;
    this.setAside(task, reason.slice(0, 256)).catch((error: Error) => {
      // The lease ends by itself, and the next attempt meets the same.
      engine.logger.error({ queue: this.name, task: task.id, error }, "an undecodable task could not be set aside");
    });
  }

  protected token(ref: TaskRef): TaskToken {
    if (ref instanceof LeasedTask && ref.belongsTo(this.consumer)) return ref;
    const token = typeof ref === "object" && ref !== null ? ref.token : ref;
    return parseToken(token, this.consumer);
  }
}

/** What tells one delivery from all others. */
type DeliveryName = Pick<TaskToken, "lane" | "offset" | "high" | "low">;

function encodeDeliveries(output: Encoder, tasks: readonly DeliveryName[]): void {
  output.varint(tasks.length);
  for (const { lane, offset, high, low } of tasks) {
    output.varint(lane);
    output.varint(offset);
    output.u32(high);
    output.u32(low);
  }
}

function decodeDeliveries(input: Decoder): DeliveryName[] {
  return Array.from({ length: input.varint() }, () => ({
    lane: input.varint(),
    offset: input.varint(),
    high: input.u32() | 0,
    low: input.u32() | 0,
  }));
}

function isToken(ref: TaskRef | TaskToken): ref is TaskToken {
  return typeof ref === "object" && ref !== null && "low" in ref;
}

function peeked<O>(task: LeasedTask, payload: O): PeekedTask<O> {
  const { id, attempt, timestamp, priority, orderKey, expiresAt, key, headers } = task;
  return { id, attempt, timestamp, priority, orderKey, expiresAt, key, headers, payload };
}

function causeOf(dead: boolean): DeathCause {
  return dead ? "discarded" : "attempts exhausted";
}

/** An ack on its way through the log. */
class Ack implements Operation {
  readonly durability: Durability;
  readonly #consumer: Consumer;
  readonly #tasks: readonly Outstanding[];
  readonly settle: () => void;
  readonly #reject: (error: Error) => void;

  constructor(
    consumer: Consumer,
    tasks: readonly Outstanding[],
    durability: Durability,
    resolve: () => void,
    reject: (error: Error) => void,
  ) {
    this.durability = durability;
    this.#consumer = consumer;
    this.#tasks = tasks;
    this.settle = resolve;
    this.#reject = reject;
  }

  apply(): void {
    this.#consumer.acked(this.#tasks);
  }

  fail(error: Error): void {
    giveUp(this.#tasks);
    this.#reject(error);
  }
}
