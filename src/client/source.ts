import { bytes, type Codec } from "../api/codec.js";
import type {
  CommitOptions,
  DeadLetter,
  DeadLetters,
  DeadSelection,
  DequeueOptions,
  Duration,
  Nacked,
  NackOptions,
  PeekedTask,
  PeekOptions,
  ReleaseOptions,
  Task,
  TaskRef,
} from "../api/contract.js";
import { isVarveError, VarveError } from "../api/errors.js";
import { checkBatch } from "../api/input.js";
import {
  type ResolvedCommitOptions,
  type ResolvedDequeueOptions,
  resolveCommitOptions,
  resolveDeadReadOptions,
  resolveDeadSelection,
  resolveDequeueBatchOptions,
  resolveDequeueOptions,
  resolveLease,
  resolveNackOptions,
  resolvePeekOptions,
  resolveReleaseOptions,
} from "../api/options.js";
import type { Input } from "../wire/input.js";
import { durabilityFlags, readTasks, WireTask, writeTokens } from "../wire/layouts.js";
import { type Method, Methods } from "../wire/methods.js";
import { foreign, type Handle } from "./handle.js";
import { closed, type Link } from "./link.js";
import { reasonOf } from "./records.js";

const AUTO_ACK = 4;
const LEASE = 8;
const DELAY = 4;
const ERROR = 8;
const DEAD = 16;

/** Longer ones are none. */
const TOKEN_LENGTH_MAX = 200;
/** Of why a task was set aside. */
const REASON_LENGTH_MAX = 256;

/** What hands out tasks at a daemon: what task queues, shared groups and cursors have in common. */
export class DialledSource<O> {
  readonly name: string;
  protected readonly link: Link;
  protected readonly handle: Handle;
  protected readonly codec: Codec<unknown, O>;

  constructor(link: Link, handle: Handle, name: string, codec: Codec<never, O>) {
    this.name = name;
    this.link = link;
    this.handle = handle;
    this.codec = codec as Codec<unknown, O>;
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
      const resolved = resolveCommitOptions(options);
      this.checkOpen();
      this.#ack([tokenOf(task)], resolved, resolve, reject);
    });
  }

  ackBatch(tasks: readonly TaskRef[], options?: CommitOptions): Promise<void> {
    return new Promise((resolve, reject) => {
      const resolved = resolveCommitOptions(options);
      checkBatch(tasks);
      this.checkOpen();
      if (tasks.length === 0) resolve();
      else this.#ack(tasks.map(tokenOf), resolved, resolve, reject);
    });
  }

  nack(task: TaskRef, options?: NackOptions): Promise<Nacked> {
    return new Promise((resolve, reject) => {
      const { durability, request, delayMs, error, dead } = resolveNackOptions(options);
      this.checkOpen();
      const token = tokenOf(task);
      const output = this.link.begin(Methods.nack, this.handle.id, 0, request);
      output.u8(
        durabilityFlags(durability) |
          (delayMs === undefined ? 0 : DELAY) |
          (error === undefined ? 0 : ERROR) |
          (dead ? DEAD : 0),
      );
      output.data(token);
      if (delayMs !== undefined) output.f64(delayMs);
      if (error !== undefined) output.data(error);
      this.link.send(Methods.nack, this.handle.id, resolve, reject, readNacked);
    });
  }

  extend(task: TaskRef, lease?: Duration, options?: CommitOptions): Promise<void> {
    return new Promise((resolve, reject) => {
      const leaseMs = resolveLease(lease);
      const { durability, request } = resolveCommitOptions(options);
      this.checkOpen();
      const token = tokenOf(task);
      const output = this.link.begin(Methods.extend, this.handle.id, 0, request);
      output.u8(durabilityFlags(durability) | (leaseMs === undefined ? 0 : LEASE));
      output.data(token);
      if (leaseMs !== undefined) output.f64(leaseMs);
      this.link.send(Methods.extend, this.handle.id, resolve, reject, readNothing);
    });
  }

  async release(tasks: TaskRef | readonly TaskRef[], options?: ReleaseOptions): Promise<void> {
    resolveReleaseOptions(options);
    this.checkOpen();
    const tokens = (Array.isArray(tasks) ? tasks : [tasks as TaskRef]).map(tokenOf);
    if (tokens.length > 0) await this.call(Methods.release, tokens, options);
  }

  async peek(options?: PeekOptions): Promise<PeekedTask<O> | undefined> {
    const { waitMs, signal } = resolvePeekOptions(options);
    this.checkOpen();
    if (signal?.aborted === true) return undefined;
    const given = () => undefined;
    const peeked = await this.link.call<PeekedTask<Buffer> | undefined>(
      Methods.peek,
      this.handle.id,
      [],
      waitMs,
      signal,
      given,
    );
    if (peeked === undefined) {
      if (waitMs > 0) this.link.checkOpen();
      return undefined;
    }
    return { ...peeked, payload: this.codec.decode(peeked.payload) };
  }

  /** Its handle, for the parts of transactions. @throws VarveError `ERR_ARGUMENT`: it is of another client */
  handleFor(link: Link): number {
    if (link !== this.link) throw foreign(this.name);
    return this.handle.id;
  }

  /** Before every call. @throws VarveError when there is nothing to be had from here any more */
  checkOpen(): void {
    this.link.checkOpen();
    this.handle.check();
  }

  protected async call<T>(method: Method, ...args: unknown[]): Promise<T> {
    this.checkOpen();
    return await this.link.call<T>(method, this.handle.id, args);
  }

  /** Disposes of a task that was handed out and cannot be decoded. */
  protected async setAside(task: Task, reason: string): Promise<void> {
    if (task.token !== "") await this.nack(task, { dead: true, error: reason });
    else this.link.logger.error({ queue: this.name, task: task.id, reason }, "a task that is done cannot be decoded");
  }

  // --------------------------------------------------------------------------------------------------------- private

  #ack(
    tokens: readonly string[],
    { durability, request }: ResolvedCommitOptions,
    resolve: () => void,
    reject: (error: Error) => void,
  ): void {
    const output = this.link.begin(Methods.ack, this.handle.id, 0, request);
    output.u8(durabilityFlags(durability));
    writeTokens(output, tokens);
    this.link.send(Methods.ack, this.handle.id, resolve, reject, readNothing);
  }

  #receive(
    options: ResolvedDequeueOptions,
    max: number,
    resolve: (tasks: Task<O>[]) => void,
    reject: (error: Error) => void,
  ): void {
    const { link, handle } = this;
    const { waitMs, signal, leaseMs, autoAck, durability, request } = options;
    this.checkOpen();
    if (signal?.aborted === true) {
      resolve([]);
      return;
    }
    const output = link.begin(Methods.dequeue, handle.id, waitMs, request);
    output.u64(link.received);
    output.u8(durabilityFlags(durability) | (autoAck ? AUTO_ACK : 0) | (leaseMs === undefined ? 0 : LEASE));
    output.u32(max);
    if (leaseMs !== undefined) output.f64(leaseMs);
    const startedMs = performance.now();
    const received = (tasks: WireTask[]) => {
      if (tasks.length === 0) {
        resolve([]);
        return;
      }
      const decoded = this.#decode(tasks);
      if (decoded.length > 0) {
        resolve(decoded);
        return;
      }
      // All of them are on their way to the dead letters: take what is behind them.
      const left = waitMs > 0 ? Math.max(0, waitMs - (performance.now() - startedMs)) : 0;
      try {
        this.#receive({ ...options, waitMs: left }, max, resolve, reject);
      } catch (error) {
        reject(error as Error);
      }
    };
    const pending = link.send<WireTask[]>(
      Methods.dequeue,
      handle.id,
      received,
      reject,
      (input) => this.#arrived(input, waitMs > 0 && signal?.aborted !== true),
      waitMs,
      nothing,
    );
    if (signal !== undefined) link.watch(pending, signal);
  }

  /** Tasks that come for somebody whom the end of this client has sent away go back. */
  #arrived(input: Input, isWaiting: boolean): WireTask[] {
    const tasks = readTasks(input);
    if (tasks.length > 0) this.link.received++;
    if (!this.link.isClosing || !isWaiting) return tasks;
    const tokens = tasks.map(({ token }) => token).filter((token) => token !== "");
    if (tokens.length > 0) this.link.giveBack(this.handle.id, tokens);
    throw closed();
  }

  /** The tasks with their payloads decoded. One that cannot be decoded is set aside; the others go on. */
  #decode(tasks: WireTask[]): Task<O>[] {
    if ((this.codec as unknown) === bytes()) return tasks as WireTask<O>[];
    const decoded: Task<O>[] = [];
    for (const task of tasks) {
      try {
        task.payload = this.codec.decode(task.payload as Buffer);
        decoded.push(task as WireTask<O>);
      } catch (cause) {
        const code = isVarveError(cause) ? cause.code : "ERR_DECODE";
        this.setAside(task as Task, `${code}: ${reasonOf(cause)}`.slice(0, REASON_LENGTH_MAX)).catch((error) => {
          // The lease ends by itself, and the next attempt meets the same.
          this.link.logger.error(
            { queue: this.name, task: task.id, error },
            "an undecodable task could not be set aside",
          );
        });
      }
    }
    return decoded;
  }
}

function nothing(): WireTask[] {
  return [];
}

function readNothing(): undefined {
  return undefined;
}

function readNacked(input: Input): Nacked {
  return { dead: input.u8() !== 0 };
}

/** @throws VarveError `ERR_TOKEN` */
export function tokenOf(ref: TaskRef): string {
  if (ref instanceof WireTask) {
    if (ref.token !== "") return ref.token;
    throw new VarveError("ERR_STALE_LEASE", `task ${ref.id} was done as it was handed out`);
  }
  const token: unknown = typeof ref === "object" && ref !== null ? ref.token : ref;
  if (typeof token === "string" && token.length <= TOKEN_LENGTH_MAX) return token;
  throw new VarveError("ERR_TOKEN", "that is not a task token. Pass the task that dequeue() gave, or its `token`.");
}

/** The dead letters of a task queue or shared group of a daemon. */
export class DialledDeadLetters<O> implements DeadLetters<O> {
  readonly #call: <T>(method: Method, ...args: unknown[]) => Promise<T>;
  readonly #codec: Codec<unknown, O>;

  constructor(call: <T>(method: Method, ...args: unknown[]) => Promise<T>, codec: Codec<unknown, O>) {
    this.#call = call;
    this.#codec = codec;
  }

  async read(options?: { readonly after?: number; readonly limit?: number }): Promise<DeadLetter<O>[]> {
    resolveDeadReadOptions(options);
    const letters = await this.#call<DeadLetter[]>(Methods.deadRead, options);
    return letters.map((letter) => ({ ...letter, payload: decodeOr(this.#codec, letter.raw) }));
  }

  async redrive(selection?: DeadSelection, options?: CommitOptions): Promise<number> {
    resolveDeadSelection(selection);
    resolveCommitOptions(options);
    return await this.#call(Methods.deadRedrive, selection, options);
  }

  async purge(selection?: DeadSelection, options?: CommitOptions): Promise<number> {
    resolveDeadSelection(selection);
    resolveCommitOptions(options);
    return await this.#call(Methods.deadPurge, selection, options);
  }
}

/** `undefined` where the codec cannot. */
export function decodeOr<O>(codec: Codec<unknown, O>, raw: Buffer): O | undefined {
  try {
    return codec.decode(raw);
  } catch {
    return undefined;
  }
}
