import type { Codec } from "../api/codec.js";
import type {
  AppendOptions,
  BatchesOptions,
  Bytes,
  CommitOptions,
  Headers,
  Input,
  LogPosition,
  LogQueue,
  LogRecord,
  LogStats,
  TailOptions,
} from "../api/contract.js";
import { isVarveError, VarveError } from "../api/errors.js";
import {
  checkOffset,
  resolveAppendOptions,
  resolveBatchesOptions,
  resolveCommitOptions,
  resolveTailOptions,
  resolveTransactionAppendOptions,
} from "../api/options.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { ValueOperation } from "../engine/operation.js";
import { type RecordCursor, recordBytesMax } from "../storage/batch.js";
import { VARINT_BYTES_MAX } from "../storage/bytes.js";
import { StreamReader } from "../storage/stream-reader.js";
import type { Change } from "./commit.js";
import { detach, InputReader, park, totalBytesMax } from "./input.js";
import { LogOp, type LogState } from "./log-state.js";

/** Bytes read at once by a replay. */
const SCAN_BYTES = 1024 * 1024;

/** Where a reader begins. */
interface Start {
  readonly offset: number;
  /** Records before this time are passed over. */
  readonly timestamp: number;
  /** Until something has been read, a trim may move the beginning: the oldest record then is meant. */
  readonly mayJump: boolean;
}

/** A log queue of an embedded directory. */
export class EmbeddedLog<I = Bytes, O = Buffer> implements LogQueue<I, O> {
  readonly kind = "log";
  readonly name: string;
  readonly #engine: Engine;
  readonly #state: LogState;
  readonly #codec: Codec<I, O>;
  readonly #input: InputReader<I>;

  constructor(engine: Engine, state: LogState, codec: Codec<I, O>) {
    this.name = state.name;
    this.#engine = engine;
    this.#state = state;
    this.#codec = codec;
    this.#input = new InputReader(codec, engine.options.maxMessageBytes);
  }

  append(input: Input<I>, options?: AppendOptions): Promise<number> {
    return new Promise((resolve, reject) => {
      const engine = this.#engine;
      engine.checkOpen();
      const { durability, key, headers } = resolveAppendOptions(options);
      const parts = this.#input.read(input, key, headers);
      const bytes = recordBytesMax(parts);
      const stage = () => {
        engine.begin(bytes, 1, 0, false);
        const offset = engine.append(this.#state.stream, parts);
        engine.add(new ValueOperation(engine.durability(durability), offset, resolve, reject));
      };
      if (engine.stalled) park(engine, bytes, [parts], stage, reject);
      else stage();
    });
  }

  appendBatch(inputs: readonly Input<I>[], options?: CommitOptions): Promise<number[]> {
    return new Promise((resolve, reject) => {
      const engine = this.#engine;
      engine.checkOpen();
      const { durability } = resolveCommitOptions(options);
      checkBatch(inputs);
      if (inputs.length === 0) {
        resolve([]);
        return;
      }
      const records = inputs.map((input) => this.#input.read(input, undefined, undefined));
      const bytes = totalBytesMax(records);
      const stage = () => {
        engine.begin(bytes, records.length, 0, false);
        const offsets = records.map((record) => engine.append(this.#state.stream, record));
        engine.add(new ValueOperation(engine.durability(durability), offsets, resolve, reject));
      };
      if (engine.stalled) park(engine, bytes, records, stage, reject);
      else stage();
    });
  }

  async read(offset: number): Promise<LogRecord<O> | undefined> {
    checkOffset(offset);
    this.#engine.checkOpen();
    const { stream } = this.#state;
    const reader = new StreamReader(stream, this.#engine, offset);
    for (;;) {
      if (offset < stream.head) throw outOfRange(this.name, offset, stream.head);
      const limit = Math.min(offset + 1, stream.visible);
      if (offset >= limit) return undefined;
      const found = reader.next(limit);
      if (found === "record") {
        return reader.record.offset === offset ? this.#record(reader.record, reader.record.payload()) : undefined;
      }
      if (found === "end") return undefined;
      await reader.load();
    }
  }

  tail(options?: TailOptions): AsyncIterable<LogRecord<O>> {
    const { from, signal } = resolveTailOptions(options);
    this.#engine.checkOpen();
    return this.#tail(this.#start(from), signal);
  }

  batches(options?: BatchesOptions): AsyncIterable<LogRecord<O>[]> {
    const { from, maxBytes, follow, signal } = resolveBatchesOptions(options);
    this.#engine.checkOpen();
    return this.#batches(this.#start(from), maxBytes, follow, signal);
  }

  trim(offset: number, options?: CommitOptions): Promise<number> {
    return new Promise((resolve, reject) => {
      const engine = this.#engine;
      engine.checkOpen();
      const { durability } = resolveCommitOptions(options);
      checkOffset(offset);
      const { stream } = this.#state;
      if (offset > stream.next) {
        throw new VarveError(
          "ERR_ARGUMENT",
          `offset ${offset} is past the end of ${this.name}; the next record gets ${stream.next}, up to which it can be trimmed`,
        );
      }
      engine.begin(0, 0, OPERATION_HEADER_BYTES + VARINT_BYTES_MAX, true);
      engine.operation(LogOp.Trim, this.#state.id).varint(offset);
      engine.endOperation();
      engine.add({
        durability: engine.durability(durability),
        apply: () => this.#state.trim(offset),
        settle: () => resolve(stream.head),
        fail: reject,
      });
    });
  }

  async stats(): Promise<LogStats> {
    this.#engine.checkOpen();
    const { stream } = this.#state;
    const count = stream.recordsBetween(stream.head, stream.visible);
    return { kind: "log", name: this.name, head: stream.head, next: stream.visible, count, bytes: stream.bytes };
  }

  /** An append as part of a larger commit. */
  appendChange(engine: Engine, input: Input<I>, options: Omit<AppendOptions, "durability"> | undefined): Change {
    if (engine !== this.#engine) throw foreignQueue(this.name);
    const { key, headers } = resolveTransactionAppendOptions(options);
    const parts = this.#input.read(input, key, headers);
    detach([parts]);
    return {
      bulkBytes: recordBytesMax(parts),
      records: 1,
      metaBytes: 0,
      settles: false,
      reserve() {},
      release() {},
      stage: () => void engine.append(this.#state.stream, parts),
      apply() {},
    };
  }

  async *#tail(start: Start, signal: AbortSignal | undefined): AsyncGenerator<LogRecord<O>> {
    for await (const records of this.#batches(start, 64 * 1024, true, signal)) yield* records;
  }

  async *#batches(
    start: Start,
    maxBytes: number,
    follow: boolean,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<LogRecord<O>[]> {
    const { stream } = this.#state;
    const chunk = Math.min(SCAN_BYTES, Math.max(64 * 1024, maxBytes));
    const reader = new StreamReader(stream, this.#engine, start.offset, { ownedChunkBytes: chunk });
    let { mayJump } = start;
    for (;;) {
      if (signal?.aborted === true) return;
      const { ended } = this.#state;
      if (ended !== undefined) {
        // A replay that is cut short must not look like one that came to its end.
        if (follow) return;
        throw ended;
      }
      if (reader.position < stream.head && !mayJump) throw outOfRange(this.name, reader.position, stream.head);
      const { visible } = stream;
      const { records, found } = this.#take(reader, maxBytes, start.timestamp);
      if (records.length > 0) {
        mayJump = false;
        yield records;
      }
      if (found === "load") {
        await reader.load();
      } else if (found === "end") {
        if (!follow) return;
        // Offsets below `visible` may have been passed over: nothing will ever stand there.
        await this.#state.readable(Math.max(reader.position, visible), signal);
      }
    }
  }

  /** Decodes what is at hand, up to about `maxBytes` of payload. */
  #take(
    reader: StreamReader,
    maxBytes: number,
    fromTimestamp: number,
  ): { records: LogRecord<O>[]; found: "record" | "end" | "load" } {
    const { record } = reader;
    const records: LogRecord<O>[] = [];
    let bytes = 0;
    for (;;) {
      const position = reader.position;
      let found: "record" | "end" | "load";
      try {
        found = reader.next(this.#state.stream.visible);
        if (found !== "record") return { records, found };
        if (record.timestamp < fromTimestamp) continue;
        records.push(this.#record(record, reader.stable ? record.payloadView() : record.payload()));
      } catch (error) {
        // What was read before the damage is given out first; reading on meets it again.
        if (records.length === 0) throw error;
        reader.seek(position);
        return { records, found: "record" };
      }
      bytes += record.end - record.payloadStart;
      if (bytes >= maxBytes) return { records, found };
    }
  }

  #record(record: RecordCursor, payload: Buffer): LogRecord<O> {
    const { offset, timestamp } = record;
    return new EmbeddedRecord(offset, timestamp, record.key(), record.headers(), this.#decode(offset, payload));
  }

  #decode(offset: number, payload: Buffer): O {
    try {
      return this.#codec.decode(payload);
    } catch (cause) {
      const reason = cause instanceof Error ? cause.message : String(cause);
      throw new VarveError("ERR_DECODE", `record ${offset} of ${this.name} cannot be decoded: ${reason}`, {
        cause: isVarveError(cause) ? cause.cause : cause,
        details: { offset, raw: payload },
      });
    }
  }

  #start(from: LogPosition): Start {
    const { stream } = this.#state;
    if (from === "start") return { offset: stream.head, timestamp: 0, mayJump: true };
    if (from === "end") return { offset: stream.visible, timestamp: 0, mayJump: false };
    if (from instanceof Date) {
      return { offset: stream.offsetBefore(from.getTime()), timestamp: from.getTime(), mayJump: true };
    }
    if (from < stream.head) throw outOfRange(this.name, from, stream.head);
    return { offset: from, timestamp: 0, mayJump: false };
  }
}

class EmbeddedRecord<O> implements LogRecord<O> {
  readonly offset: number;
  readonly timestamp: number;
  readonly key: Buffer | undefined;
  readonly headers: Headers;
  readonly payload: O;

  constructor(offset: number, timestamp: number, key: Buffer | undefined, headers: Headers, payload: O) {
    this.offset = offset;
    this.timestamp = timestamp;
    this.key = key;
    this.headers = headers;
    this.payload = payload;
  }
}

export function checkBatch(inputs: unknown): void {
  if (!Array.isArray(inputs)) throw new VarveError("ERR_ARGUMENT", "a batch must be an array of messages");
}

export function foreignQueue(name: string): VarveError {
  return new VarveError("ERR_ARGUMENT", `${name} belongs to another directory; a transaction stays within one`);
}

function outOfRange(name: string, offset: number, head: number): VarveError {
  return new VarveError(
    "ERR_OFFSET_OUT_OF_RANGE",
    `offset ${offset} of ${name} was trimmed away; the first one still there is ${head}. Go on from there.`,
    { details: { offset, next: head } },
  );
}
