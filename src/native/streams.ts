import type { BatchesOptions, LogQueue, LogRecord } from "../api/contract.js";
import { LEND_BATCHES, type LendingLog } from "../api/lending.js";
import { Kind } from "../wire/frame.js";
import { type Input, malformed } from "../wire/input.js";
import { writeRecords } from "../wire/layouts.js";
import { readValue, writeValue } from "../wire/value.js";
import { type Connection, leaving } from "./connection.js";

/** In one frame, about: several are on their way at once, and fit the buffers for large frames. */
const FRAME_PAYLOAD_BYTES = 192 * 1024;

/** Records that are pushed to a client, as long as it has credit left: bytes of frames that it is ready to take. */
export class RecordStream {
  readonly #connection: Connection;
  readonly #id: number;
  readonly #log: LogQueue;
  readonly #options: BatchesOptions;
  readonly #abort = new AbortController();
  #credit: number;
  #wake: (() => void) | undefined;

  /** Body: options as a value, credit u32. */
  constructor(connection: Connection, id: number, log: LogQueue, input: Input) {
    const options = readValue(input);
    if (typeof options !== "object" || options === null) throw malformed("a stream without options");
    this.#connection = connection;
    this.#id = id;
    this.#log = log;
    this.#options = options as BatchesOptions;
    this.#credit = input.u32();
    input.end();
  }

  /** The client is ready for so many bytes more. */
  grant(bytes: number): void {
    this.#credit += bytes;
    this.#wake?.();
  }

  cancel(): void {
    this.#abort.abort();
    this.#wake?.();
  }

  /** Never rejects: the client is told how it ended. */
  async run(): Promise<void> {
    let failure: unknown;
    try {
      const options = this.#options.from === "end" ? await this.#fromEnd() : this.#options;
      if (await this.#ready()) await this.#sendAll({ ...options, signal: this.#abort.signal });
    } catch (error) {
      failure = error;
    }
    if (this.#connection.isOver) return;
    if (this.#connection.isLeaving) failure ??= leaving();
    this.#connection.output.begin(Kind.End, this.#id);
    writeValue(this.#connection.output, failure instanceof Error ? failure : undefined);
    this.#connection.ended();
  }

  async #sendAll(options: BatchesOptions): Promise<void> {
    const lend = (this.#log as Partial<LendingLog>)[LEND_BATCHES];
    const take = (records: readonly LogRecord[]): boolean | Promise<boolean> => {
      if (this.#abort.signal.aborted) return false;
      this.#send(records);
      return this.#isReady || this.#ready();
    };
    if (lend !== undefined) {
      await lend.call(this.#log, options, FRAME_PAYLOAD_BYTES, take);
      return;
    }
    for await (const records of this.#log.batches(options)) if (!(await take(records))) return;
  }

  get #isReady(): boolean {
    return this.#credit > 0 && !this.#connection.isFull;
  }

  /** Resolves when the client takes more; with false when the stream is to end. */
  async #ready(): Promise<boolean> {
    const { signal } = this.#abort;
    while (this.#credit <= 0 && !signal.aborted)
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    await this.#connection.writable;
    return !signal.aborted;
  }

  /**
   * From an offset instead, of which the client is told: should it come back before it has seen a record, it goes on from
   * there. Nothing that the client sends after this call is looked at before that, so nothing can fall in between.
   */
  async #fromEnd(): Promise<BatchesOptions> {
    const stats = this.#log.stats();
    this.#connection.holdUntil(stats);
    const { next } = await stats;
    this.#connection.output.begin(Kind.Records, this.#id);
    this.#connection.output.u64(next);
    writeRecords(this.#connection.output, []);
    this.#connection.ended();
    return { ...this.#options, from: next };
  }

  /** Body: the offset to go on from when the connection is lost, then the records. */
  #send(records: readonly LogRecord[]): void {
    const { output } = this.#connection;
    output.begin(Kind.Records, this.#id);
    output.u64(records.at(-1)!.offset + 1);
    writeRecords(output, records);
    this.#credit -= this.#connection.ended();
  }
}
