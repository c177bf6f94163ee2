import type { BatchesOptions, LogQueue, LogRecord } from "../api/contract.js";
import { Kind } from "../wire/frame.js";
import { type Input, malformed } from "../wire/input.js";
import { writeRecords } from "../wire/layouts.js";
import { readValue, writeValue } from "../wire/value.js";
import { type Connection, leaving } from "./connection.js";

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
    const { signal } = this.#abort;
    let failure: unknown;
    try {
      const records = this.#options.from === "end" ? await this.#fromEnd() : this.#open(this.#options);
      for (;;) {
        while (this.#credit <= 0 && !signal.aborted)
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
        await this.#connection.writable;
        if (signal.aborted) break;
        const { done, value } = await records.next();
        if (done === true || signal.aborted) break;
        this.#send(value);
      }
      await records.return?.();
    } catch (error) {
      failure = error;
    }
    if (this.#connection.isOver) return;
    if (this.#connection.isLeaving) failure ??= leaving();
    this.#connection.output.begin(Kind.End, this.#id);
    writeValue(this.#connection.output, failure instanceof Error ? failure : undefined);
    this.#connection.ended();
  }

  #open(options: BatchesOptions): AsyncIterator<LogRecord[]> {
    return this.#log.batches({ ...options, signal: this.#abort.signal })[Symbol.asyncIterator]();
  }

  /**
   * From an offset instead, of which the client is told: should it come back before it has seen a record, it goes on from
   * there. Nothing that the client sends after this call is looked at before that, so nothing can fall in between.
   */
  async #fromEnd(): Promise<AsyncIterator<LogRecord[]>> {
    const stats = this.#log.stats();
    this.#connection.holdUntil(stats);
    const { next } = await stats;
    this.#connection.output.begin(Kind.Records, this.#id);
    this.#connection.output.u64(next);
    writeRecords(this.#connection.output, []);
    this.#connection.ended();
    return this.#open({ ...this.#options, from: next });
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
