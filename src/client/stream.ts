import type { Codec } from "../api/codec.js";
import type { LogPosition, LogRecord } from "../api/contract.js";
import { onAbort } from "../api/signals.js";
import type { Input } from "../wire/input.js";
import { readRecords, type WireRecord } from "../wire/layouts.js";
import { writeValue } from "../wire/value.js";
import type { Handle } from "./handle.js";
import { closed, type Link, type StreamEnd } from "./link.js";
import { decodeRecords } from "./records.js";

/** Bytes of frames that may be on their way, or wait to be taken. */
const WINDOW_BYTES = 1024 * 1024;

export interface StreamOptions {
  readonly from: LogPosition;
  readonly maxBytes: number;
  readonly follow: boolean;
  readonly signal: AbortSignal | undefined;
}

/**
 * Records that the daemon pushes, in the arrays in which it read them. Goes on where it was after a lost connection: with
 * the record behind the last one that has arrived.
 */
export class RecordStream<O> implements StreamEnd, AsyncIterableIterator<LogRecord<O>[]> {
  readonly #link: Link;
  readonly #handle: Handle;
  readonly #log: string;
  readonly #codec: Codec<never, O>;
  readonly #options: StreamOptions;
  readonly #id: number;
  #from: LogPosition;
  /** Arrived and not taken yet, with the bytes of their frames. */
  #waiting: { readonly records: readonly WireRecord[]; readonly bytes: number }[] = [];
  #isEnded = false;
  #error: unknown;
  #wake: (() => void) | undefined;
  readonly #unwatch: (() => void) | undefined;

  constructor(link: Link, handle: Handle, log: string, codec: Codec<never, O>, options: StreamOptions) {
    this.#link = link;
    this.#handle = handle;
    this.#log = log;
    this.#codec = codec;
    this.#options = options;
    this.#from = options.from;
    const { signal } = options;
    if (signal?.aborted === true) {
      this.#id = 0;
      this.#isEnded = true;
      return;
    }
    this.#id = link.stream(this);
    if (signal !== undefined) this.#unwatch = onAbort(signal, () => this.#stop());
  }

  // --------------------------------------------------------------------------------------------------- for the link

  reopen(id: number): void {
    const { maxBytes, follow } = this.#options;
    const waiting = this.#waiting.reduce((sum, { bytes }) => sum + bytes, 0);
    const output = this.#link.beginStream(id, this.#handle.id);
    writeValue(output, { from: this.#from, maxBytes, follow });
    output.u32(Math.max(0, WINDOW_BYTES - waiting));
    this.#link.opened();
  }

  records(input: Input): void {
    const bytes = input.left;
    this.#from = input.u64();
    const records = readRecords(input);
    if (records.length === 0) return;
    this.#waiting.push({ records, bytes });
    this.#wake?.();
  }

  ended(error: Error | undefined): void {
    this.#isEnded = true;
    this.#error = error;
    this.#unwatch?.();
    this.#wake?.();
  }

  /** A replay that is cut short must not look like one that came to its end. */
  closed(): void {
    this.#waiting = [];
    this.ended(this.#options.follow ? undefined : closed());
  }

  // --------------------------------------------------------------------------------------------------- for its reader

  async next(): Promise<IteratorResult<LogRecord<O>[]>> {
    for (;;) {
      // All of it may have arrived before this client was closed.
      if (this.#waiting.length > 0 && this.#link.isClosing) this.closed();
      const first = this.#waiting.shift();
      if (first !== undefined) return { done: false, value: this.#decode(first) };
      if (this.#isEnded) {
        const error = this.#error;
        this.#error = undefined;
        if (error !== undefined) throw error;
        return { done: true, value: undefined };
      }
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  async return(): Promise<IteratorResult<LogRecord<O>[]>> {
    this.#stop();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #decode({ records, bytes }: { readonly records: readonly WireRecord[]; readonly bytes: number }): LogRecord<O>[] {
    const { decoded, error } = decodeRecords(this.#log, this.#codec, records);
    if (decoded.length < records.length) {
      this.#stop();
      // What stands before the record that cannot be decoded is given out first.
      if (decoded.length === 0) throw error;
      this.#error = error;
    } else {
      this.#link.credit(this.#id, bytes);
    }
    return decoded;
  }

  #stop(): void {
    this.#waiting = [];
    if (this.#isEnded) return;
    this.#link.cancelStream(this.#id);
    this.ended(undefined);
  }
}

/** Record by record. */
export async function* flattened<O>(batches: AsyncIterable<LogRecord<O>[]>): AsyncGenerator<LogRecord<O>> {
  for await (const records of batches) yield* records;
}
