import type { Codec } from "../api/codec.js";
import type {
  CommitOptions,
  DequeueOptions,
  GroupInfo,
  LogPosition,
  PeekedTask,
  PeekOptions,
  SharedGroup,
  Task,
} from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import { type ConsumerConfig, resolveCommitOptions, resolvePosition } from "../api/options.js";
import { onAbort } from "../api/signals.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { requestBytes } from "../engine/requests.js";
import { VARINT_BYTES_MAX } from "../storage/bytes.js";
import { offsetOf } from "./group-member.js";
import { LOG_OP_BYTES_MAX, LogOp, type LogState, outOfRange } from "./log-state.js";
import { type Request, requested, WHOLE_NUMBER } from "./requested.js";
import type { SharedGroupState } from "./shared-group.js";
import { EmbeddedSource } from "./source.js";

/** A member of a shared group of an embedded log. */
export class EmbeddedSharedGroup<O> extends EmbeddedSource<O> implements SharedGroup<O> {
  override readonly name: string;
  readonly log: string;
  readonly #state: LogState;
  readonly #group: SharedGroupState;
  readonly #left = new AbortController();

  constructor(engine: Engine, state: LogState, group: SharedGroupState, codec: Codec<never, O>) {
    super(engine, group.consumer, codec);
    this.name = group.name;
    this.log = state.name;
    this.#state = state;
    this.#group = group;
    group.members.add(this);
  }

  override dequeue(options?: DequeueOptions): Promise<Task<O> | undefined> {
    return this.#untilLeft(options, (given) => super.dequeue(given));
  }

  override dequeueBatch(options: DequeueOptions & { readonly max: number }): Promise<Task<O>[]> {
    return this.#untilLeft(options, (given) => super.dequeueBatch(given));
  }

  override peek(options?: PeekOptions): Promise<PeekedTask<O> | undefined> {
    return this.#untilLeft(options, (given) => super.peek(given));
  }

  seek(to: LogPosition, options?: CommitOptions): Promise<number> {
    return requested(this.engine, options, WHOLE_NUMBER, (request) => this.#seek(to, options, request));
  }

  async #seek(
    to: LogPosition,
    options: CommitOptions | undefined,
    request: Request<number> | undefined,
  ): Promise<number> {
    const { engine } = this;
    const { durability } = resolveCommitOptions(options);
    const from = resolvePosition(to);
    this.checkOpen();
    const position = await offsetOf(engine, this.#state, from);
    this.checkOpen();
    await new Promise<void>((resolve, reject) => {
      // What is staged is applied before; nothing comes between this and its taking effect.
      engine.flush();
      const { head } = this.#state.stream;
      if (position < head) throw outOfRange(this.log, position, head);
      const identified = request?.tells(position);
      engine.begin(0, 0, LOG_OP_BYTES_MAX + requestBytes(identified), true);
      const output = engine.operation(LogOp.Seek, this.#state.id);
      for (const field of [this.#group.groupId, position, 0]) output.varint(field);
      engine.endOperation();
      const apply = () => this.#group.seek(position);
      engine.add({ durability: engine.durability(durability), apply, settle: resolve, fail: reject }, identified);
      engine.flush();
    });
    return position;
  }

  async info(): Promise<GroupInfo> {
    this.checkOpen();
    return this.#state.infoOf(this.#group, this.engine.clock.wallMs());
  }

  async close(): Promise<void> {
    this.#group.members.delete(this);
    this.#left.abort();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  protected override checkOpen(): void {
    super.checkOpen();
    if (this.#state.ended !== undefined) throw this.#state.ended;
    if (this.#group.ended !== undefined) throw this.#group.ended;
    if (this.#left.signal.aborted) throw this.#leftError();
    this.#group.activeMs = this.engine.elapsedMs();
  }

  /** A worker of this member ends with the membership, too. */
  protected override onEnd(callback: (error: Error) => void): () => void {
    const stops = [super.onEnd(callback), onAbort(this.#left.signal, () => callback(this.#leftError()))];
    return () => {
      for (const stop of stops) stop();
    };
  }

  #leftError(): VarveError {
    return new VarveError("ERR_CLOSED", `this member has left group ${this.name} of ${this.log}`);
  }

  /** Has a wait end with the membership, too. */
  async #untilLeft<P extends PeekOptions, T>(options: P | undefined, call: (options: P) => Promise<T>): Promise<T> {
    const given = options?.signal;
    const { signal: left } = this.#left;
    if (left.aborted || options?.wait === undefined) return await call(options as P);
    if (given === undefined) return await call({ ...options, signal: left });
    if (given.aborted) return await call(options);
    const either = new AbortController();
    const abort = () => either.abort();
    const unwatch = [onAbort(given, abort), onAbort(left, abort)];
    try {
      return await call({ ...options, signal: either.signal });
    } finally {
      for (const stop of unwatch) stop();
    }
  }
}

/** Stores the rules of a shared group, if they are others than it has. */
export function setRules(
  engine: Engine,
  state: LogState,
  group: SharedGroupState,
  rules: ConsumerConfig,
): Promise<void> {
  return new Promise((resolve, reject) => {
    if (state.stream.deleted !== undefined) throw state.stream.deleted;
    const text = JSON.stringify(rules);
    if (text === JSON.stringify(group.rules)) {
      resolve();
      return;
    }
    engine.begin(0, 0, OPERATION_HEADER_BYTES + 2 * VARINT_BYTES_MAX + text.length, false);
    const output = engine.operation(LogOp.SetRules, state.id);
    output.varint(group.groupId);
    output.string(text);
    engine.endOperation();
    engine.add({
      durability: engine.options.durability,
      apply: () => {
        group.rules = rules;
      },
      settle: resolve,
      fail: reject,
    });
  });
}
