import type { Codec } from "../api/codec.js";
import type { Bytes, Enqueued, EnqueueOptions, Input, TaskQueue, TaskStats } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import {
  DELAY_MS_MAX,
  resolveEnqueueBatchOptions,
  resolveEnqueueOptions,
  resolveTransactionEnqueueOptions,
} from "../api/options.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { ValueOperation } from "../engine/operation.js";
import { type RecordParts, recordBytesMax } from "../storage/batch.js";
import { VARINT_BYTES_MAX } from "../storage/bytes.js";
import { type Change, foreignQueue } from "./commit.js";
import { checkBatch, detach, InputReader, park, totalBytesMax } from "./input.js";
import { EmbeddedSource } from "./source.js";
import { encodeTaskAttributes, NO_ATTRIBUTES } from "./task-record.js";
import { TaskOp, type TaskState } from "./task-state.js";

/** What `enqueue` and its relatives settle about when and how often a task runs. */
interface Terms {
  readonly delayMs: number;
  readonly atMs: number | undefined;
  readonly maxAttempts: number | undefined;
  readonly ttlMs: number | undefined;
  readonly expiresAtMs: number | undefined;
}

/** A task queue of an embedded directory. */
export class EmbeddedTasks<I = Bytes, O = Buffer> extends EmbeddedSource<O> implements TaskQueue<I, O> {
  readonly kind = "task";
  readonly #state: TaskState;
  readonly #input: InputReader<I>;

  constructor(engine: Engine, state: TaskState, codec: Codec<I, O>) {
    super(engine, state.consumer, codec);
    this.#state = state;
    this.#input = new InputReader(codec, engine.options.maxMessageBytes);
  }

  enqueue(input: Input<I>, options?: EnqueueOptions): Promise<Enqueued> {
    return new Promise((resolve, reject) => {
      const engine = this.engine;
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
          this.consumer.delivery.wake();
        }
      };
      if (engine.stalled) park(engine, bytes, [parts], stage, reject);
      else stage();
    });
  }

  enqueueBatch(inputs: readonly Input<I>[], options?: Omit<EnqueueOptions, "key" | "headers">): Promise<Enqueued[]> {
    return new Promise((resolve, reject) => {
      const engine = this.engine;
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
            else this.consumer.delivery.wake();
          },
          settle: () => resolve(enqueued),
          fail: reject,
        });
      };
      if (engine.stalled) park(engine, bytes, records, stage, reject);
      else stage();
    });
  }

  async expire(): Promise<number> {
    this.checkOpen();
    return await this.consumer.delivery.expire();
  }

  async stats(): Promise<TaskStats> {
    this.engine.checkOpen();
    return await this.#state.stats(this.engine);
  }

  // ------------------------------------------------------------------------------------- as parts of a larger commit

  enqueueChange(engine: Engine, input: Input<I>, options: Omit<EnqueueOptions, "durability"> | undefined): Change {
    if (engine !== this.engine) throw foreignQueue(this.name);
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
        else this.consumer.delivery.wake();
      },
    };
  }

  // --------------------------------------------------------------------------------------------------------- private

  /** Notes the terms in the record's attributes; true when the task must wait for its time. */
  #applyTerms(parts: RecordParts, { delayMs, atMs, maxAttempts, ttlMs, expiresAtMs }: Terms): boolean {
    if (maxAttempts !== undefined || ttlMs !== undefined || expiresAtMs !== undefined) {
      const limit = maxAttempts === undefined ? 0 : maxAttempts + 1;
      // 0 says that there is none; nothing else was ever due in 1970.
      const expiresAt = ttlMs === undefined ? Math.max(1, expiresAtMs ?? 0) : this.engine.clock.wallMs() + ttlMs;
      const expires = ttlMs !== undefined || expiresAtMs !== undefined;
      parts.attributes = encodeTaskAttributes({ ...NO_ATTRIBUTES, limit, expiresAt: expires ? expiresAt : 0 });
    }
    if (atMs === undefined) return delayMs > 0;
    const wallMs = this.engine.clock.wallMs();
    if (atMs > wallMs + DELAY_MS_MAX) throw new VarveError("ERR_OPTION", "at must be within ten years from now");
    return atMs > wallMs;
  }

  #stageSchedule(offsets: readonly number[], { delayMs, atMs }: Terms): void {
    const output = this.engine.operation(TaskOp.Schedule, this.#state.id);
    output.varint(0);
    output.varint(offsets.length);
    for (const offset of offsets) {
      output.varint(offset);
      output.varint(delayMs);
      output.varint(atMs ?? 0);
    }
    this.engine.endOperation();
  }

  #scheduled(offsets: readonly number[], { delayMs, atMs }: Terms): void {
    const { entryTime } = this.engine;
    const { ledger } = this.#state;
    for (const offset of offsets) this.#state.schedule(ledger, offset, delayMs, atMs ?? 0, entryTime);
    this.consumer.arm();
  }
}

const SCHEDULE_BYTES_MAX = OPERATION_HEADER_BYTES + 5 * VARINT_BYTES_MAX;
