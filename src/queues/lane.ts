import { VarveError } from "../api/errors.js";
import type { Engine } from "../engine/engine.js";
import type { RecordCursor } from "../storage/batch.js";
import type { Stream } from "../storage/stream.js";
import { StreamReader } from "../storage/stream-reader.js";
import type { Ledger, Outstanding } from "./ledger.js";
import { decodeTaskAttributes, NO_ATTRIBUTES, type TaskAttributes } from "./task-record.js";

/** A stream of tasks, and how far a consumer is with it. */
export class Lane {
  readonly stream: Stream;
  readonly ledger: Ledger;
  /** The records are a log's: what attributes they have say nothing of tasks. */
  readonly #ofLog: boolean;
  /** Behind the last task taken from the cursor; what is between is in an operation that is not yet in the log. */
  taken = 0;
  /** Offsets that the cursor passes over although the ledger knows nothing of them. */
  passesOver: ((offset: number) => boolean) | undefined;

  readonly #queue: string;
  #engine!: Engine;
  #reader: StreamReader | undefined;
  /** For tasks that are delivered again, which stand anywhere. */
  #againReader: StreamReader | undefined;
  /** The task whose time of enqueue was asked for last. */
  #looked = { offset: -1, timestamp: 0 };

  /** @param queue its name, for messages */
  constructor(queue: string, stream: Stream, ledger: Ledger, ofLog = false) {
    this.#ofLog = ofLog;
    this.#queue = queue;
    this.stream = stream;
    this.ledger = ledger;
  }

  attach(engine: Engine): void {
    this.#engine = engine;
  }

  get number(): number {
    return this.ledger.lane;
  }

  /** Where the cursor goes on. */
  get from(): number {
    return Math.max(this.ledger.cursor, this.taken);
  }

  /** Tasks never delivered that could be now. */
  get fresh(): number {
    const { ledger, stream, from } = this;
    if (from >= stream.next) return 0;
    const ahead = ledger.ahead.size === 0 ? 0 : ledger.ahead.size - ledger.aheadBelow(from);
    return Math.max(0, stream.recordsBetween(from, stream.next) - ahead);
  }

  /** Tasks that could be delivered now. */
  get ready(): number {
    return this.fresh + this.ledger.ready.size + this.ledger.returned.length;
  }

  get reader(): StreamReader {
    this.#reader ??= new StreamReader(this.stream, this.#engine, this.from);
    return this.#reader;
  }

  get againReader(): StreamReader {
    this.#againReader ??= new StreamReader(this.stream, this.#engine, this.from);
    return this.#againReader;
  }

  attributes(record: RecordCursor): TaskAttributes {
    return this.#ofLog ? NO_ATTRIBUTES : decodeTaskAttributes(record.attributes());
  }

  /** The next one of those that were delivered before or have waited. */
  get again(): Outstanding | undefined {
    const { returned, ready } = this.ledger;
    if (returned.length > 0) return returned[returned.length - 1];
    return ready.size === 0 ? undefined : ready.values().next().value;
  }

  /** Steps the cursor's reader to the next task that the cursor does not pass over. */
  nextFresh(limit: number): "record" | "end" | "load" {
    const { ledger, reader } = this;
    if (this.taken < ledger.cursor) this.taken = ledger.cursor;
    for (;;) {
      reader.seek(this.taken);
      const found = reader.next(limit);
      if (found !== "record") return found;
      const { offset } = reader.record;
      if (!ledger.ahead.has(offset) && this.passesOver?.(offset) !== true) return found;
      this.taken = offset + 1;
    }
  }

  /** Steps the other reader to the record of a task. */
  findAgain(offset: number): "record" | "load" {
    const reader = this.againReader;
    reader.seek(offset);
    const found = reader.next(offset + 1);
    if (found === "end") throw this.#missing(offset);
    return found;
  }

  /** Goes on behind records that cannot be read. */
  passDamage(error: unknown): void {
    if (!(error instanceof VarveError) || error.code !== "ERR_CORRUPT") return;
    const { to } = error.details;
    if (typeof to === "number" && to > this.taken) this.taken = to;
  }

  /** When the task at an offset was enqueued: exactly, unless its record cannot be read. Looks only once for each. */
  async timestampAt(offset: number): Promise<number> {
    if (this.#looked.offset === offset) return this.#looked.timestamp;
    let timestamp: number;
    try {
      timestamp = await this.atRecord(offset, (record) => record.timestamp);
    } catch {
      timestamp = this.stream.timestampAt(offset);
    }
    this.#looked = { offset, timestamp };
    return timestamp;
  }

  /** Has a record used in the turn in which it is found: the memory that it stands in may be taken away after that. */
  async atRecord<T>(offset: number, use: (record: RecordCursor) => T): Promise<T> {
    const reader = new StreamReader(this.stream, this.#engine, offset);
    for (;;) {
      const found = reader.next(offset + 1);
      if (found === "record" && reader.record.offset === offset) return use(reader.record);
      if (found === "end") throw this.#missing(offset);
      await reader.load();
    }
  }

  #missing(offset: number): VarveError {
    return new VarveError(
      "ERR_CORRUPT",
      `task ${offset} of queue ${this.#queue} is outstanding but its record is missing`,
      { details: { queue: this.#queue, from: offset, to: offset + 1 } },
    );
  }
}
