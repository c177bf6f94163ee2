import { VarveError } from "../api/errors.js";
import type { Engine } from "../engine/engine.js";
import type { RecordCursor } from "../storage/batch.js";
import type { Stream } from "../storage/stream.js";
import { readRecord, StreamReader } from "../storage/stream-reader.js";
import type { Ledger, Outstanding } from "./ledger.js";
import type { Ripener, Scheduled } from "./scheduled.js";
import { decodeTaskAttributes, isSetAside, NO_ATTRIBUTES, type TaskAttributes } from "./task-record.js";

/** Tasks whose time has come are taken in up to this many; the others come when these are fewer. */
const RIPE_MAX = 4096;

/** The same for those that are blocked then, as others with their order key come first. */
const RIPE_BLOCKED_MAX = 65_536;

/** A task that may not be handed out for its order key, and the cursor may not pass. */
interface Refused {
  /** Where the cursor stood before it. */
  readonly taken: number;
  readonly offset: number;
  readonly timestamp: number;
  readonly attributes: TaskAttributes;
  readonly order: number;
}

/** A stream of tasks, and how far a consumer is with it. */
export class Lane implements Ripener {
  readonly stream: Stream;
  readonly ledger: Ledger;
  /** The records are a log's: what attributes they have say nothing of tasks. */
  readonly ofLog: boolean;
  /** Behind the last task taken from the cursor; what is between is in an operation that is not yet in the log. */
  taken = 0;
  /** Its stream is not durable yet: whatever names its offsets is committed as `sync`. */
  isNew = false;
  /** The tasks that wait for their time; their records say so, and the cursor passes them. */
  scheduled: Scheduled | undefined;
  /** Records from the cursor on that it will pass because they say so. */
  aside = 0;
  /** Those of them that were passed since the last record that was taken / before it, and not noted in the log yet. */
  #passedSince = 0;
  #passed = 0;

  #refused: Refused | undefined;
  readonly #queue: string;
  #engine!: Engine;
  /** The first offset given out since the directory was opened. */
  #openedAt = 0;
  #reader: StreamReader | undefined;
  /** For tasks that are delivered again, which stand anywhere. */
  #againReader: StreamReader | undefined;
  /** How far the first task that the cursor will hand out was looked for, and when it was enqueued if it stands there. */
  #looked: { readonly offset: number; readonly timestamp: number | undefined } = { offset: 0, timestamp: undefined };

  /** @param queue its name, for messages */
  constructor(queue: string, stream: Stream, ledger: Ledger, ofLog = false) {
    this.ofLog = ofLog;
    this.#queue = queue;
    this.stream = stream;
    this.ledger = ledger;
  }

  attach(engine: Engine): void {
    this.#engine = engine;
    this.#openedAt = this.stream.next;
  }

  /** Tasks that were added since the directory was opened. */
  get added(): number {
    return this.stream.recordsBetween(this.#openedAt, this.stream.next);
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
    const aside = Math.max(0, this.aside - this.#passed - this.#passedSince);
    return Math.max(0, stream.recordsBetween(from, stream.next) - ahead - aside);
  }

  /** Whether the cursor has not been everywhere yet. */
  get hasUnseen(): boolean {
    return this.from < this.stream.next;
  }

  get hasRoom(): boolean {
    return this.ledger.ready.size < RIPE_MAX && this.ledger.blocked.size < RIPE_BLOCKED_MAX;
  }

  ripened(offset: number, since: number): void {
    this.ledger.ripened(offset, since);
  }

  /** Notes that the record that the cursor came to is taken. */
  take(offset: number): void {
    this.taken = offset + 1;
    this.#passed += this.#passedSince;
    this.#passedSince = 0;
  }

  /** For the operation that moves the cursor behind the record taken last: how many it passes that say so. */
  notePassed(): number {
    const passed = this.#passed;
    this.#passed = 0;
    this.aside -= passed;
    return passed;
  }

  /** What an operation would note that moves the cursor to where it came, if it passed so many. */
  passable(atLeast: number): { readonly to: number; readonly passed: number } | undefined {
    const passed = this.#passed + this.#passedSince;
    return passed < atLeast ? undefined : { to: this.taken, passed };
  }

  /** Everything below an offset is done with, unless it is handed out. */
  clear(offset: number): void {
    this.ledger.clear(offset);
    this.ledger.takenBytes = this.stream.payloadBytes;
    this.taken = Math.max(this.taken, offset);
    this.aside = 0;
    this.#passed = 0;
    this.#passedSince = 0;
  }

  /** Goes on from an offset, also before where it was. */
  rewind(offset: number): void {
    this.ledger.rewind(offset);
    this.taken = 0;
    this.#looked = { offset: 0, timestamp: undefined };
  }

  /** Payload bytes of the tasks that wait: ready, or for their time; those on their way to the log included. */
  get waitingBytes(): number {
    return Math.max(0, this.stream.payloadBytes - this.ledger.takenBytes);
  }

  noteAllPassed(): void {
    this.aside -= this.#passed + this.#passedSince;
    this.#passed = 0;
    this.#passedSince = 0;
  }

  /** Upper bound for what can be handed out now without reading back any tasks that waited for their time. */
  get deliverable(): number {
    const { ready, returned } = this.ledger;
    return ready.size + returned.length + Math.max(0, this.stream.next - this.from);
  }

  /** Whether few are left of the tasks whose time has come that were taken in. */
  get runsOut(): boolean {
    return this.ledger.ready.size < RIPE_MAX / 2;
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
    return this.ofLog ? NO_ATTRIBUTES : decodeTaskAttributes(record.attributes());
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
      // It may have passed offsets whose records are gone, up to where it has to read on.
      if (found === "load") this.taken = Math.max(this.taken, reader.position);
      if (found !== "record") return found;
      const { offset } = reader.record;
      if (this.#isAside(reader.record)) this.#passedSince++;
      else if (!ledger.ahead.has(offset)) return found;
      this.taken = offset + 1;
      if (ledger.blocked.size > 0) ledger.orders?.reached(ledger.outstanding.get(offset));
    }
  }

  /** Steps the other reader to the record of a task; "gone": a log no longer has it, as a later record supersedes it. */
  findAgain(offset: number): "record" | "load" | "gone" {
    const reader = this.againReader;
    reader.seek(offset);
    const found = reader.next(offset + 1);
    if (found !== "end") return found;
    if (this.ofLog) return "gone";
    throw this.missing(offset);
  }

  /** Notes that the record that the cursor came to may be neither handed out nor passed. */
  refuse({ offset, timestamp }: RecordCursor, attributes: TaskAttributes, order: number): void {
    this.#refused = { taken: this.taken, offset, timestamp, attributes, order };
  }

  /** What was refused last, while the cursor stands before it. */
  get refused(): Refused | undefined {
    const refused = this.#refused;
    if (refused === undefined || refused.taken !== this.from) return undefined;
    return this.ledger.ahead.has(refused.offset) ? undefined : refused;
  }

  /** Goes on behind records that cannot be read. */
  passDamage(error: unknown): void {
    if (!(error instanceof VarveError) || error.code !== "ERR_CORRUPT") return;
    const { to } = error.details;
    if (typeof to !== "number" || to <= this.taken) return;
    for (const task of [...this.ledger.blocked]) if (task.offset < to) this.ledger.orders?.reached(task);
    this.taken = to;
  }

  /**
   * When the first task that the cursor will hand out was enqueued: exactly, unless its record cannot be read. What has
   * been looked at before is not read again.
   */
  async firstTimestamp(): Promise<number> {
    const { stream, ledger } = this;
    const looked = this.#looked;
    if (looked.timestamp !== undefined && looked.offset >= this.from && !ledger.ahead.has(looked.offset)) {
      return looked.timestamp;
    }
    const reader = new StreamReader(stream, this.#engine, Math.max(looked.offset, this.from));
    try {
      for (;;) {
        const found = reader.next(stream.next);
        if (found === "end") return stream.timestampAt(this.from);
        if (found === "load") {
          await reader.load();
          continue;
        }
        const { offset, timestamp } = reader.record;
        const isFirst = !ledger.ahead.has(offset) && !this.#isAside(reader.record);
        this.#looked = { offset, timestamp: isFirst ? timestamp : undefined };
        if (isFirst) return timestamp;
      }
    } catch {
      const offset = Math.max(this.#looked.offset, this.from);
      const timestamp = stream.timestampAt(offset);
      this.#looked = { offset, timestamp };
      return timestamp;
    }
  }

  /** Whether the cursor passes over a record because it says so itself: the task waits for its time. */
  #isAside(record: RecordCursor): boolean {
    return this.scheduled !== undefined && record.offset >= this.ledger.marksFrom && isSetAside(record.attributes());
  }

  /** Has a record used in the turn in which it is found: the memory that it stands in may be taken away after that. */
  async atRecord<T>(offset: number, use: (record: RecordCursor) => T): Promise<T> {
    const found = await this.atRecordLeft(offset, use);
    if (found === undefined) throw this.missing(offset);
    return found.used;
  }

  /** The same of a record that may be gone: undefined then. */
  atRecordLeft<T>(offset: number, use: (record: RecordCursor) => T): Promise<{ readonly used: T } | undefined> {
    return readRecord(this.stream, this.#engine, offset, use);
  }

  /** What is wrong when a task is there and its record is not. */
  missing(offset: number): VarveError {
    return new VarveError(
      "ERR_CORRUPT",
      `task ${offset} of queue ${this.#queue} is outstanding but its record is missing`,
      { details: { queue: this.#queue, from: offset, to: offset + 1 } },
    );
  }
}
