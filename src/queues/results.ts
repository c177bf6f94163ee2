/**
 * What tasks brought, for those who enqueued them. A result is a record of a stream of its own; here is where each stands,
 * for as long as it is kept.
 *
 * A result goes when its time is up, or when there are more than RESULTS_MAX of them or more than RESULT_BYTES_MAX bytes,
 * the oldest first. So both the table and the stream are bounded. Time is the directory's elapsed time. What is kept is
 * decided when a result is added, live and when the log is repeated; when it is looked up, its age counts as well.
 */

import { type Decoder, type Encoder, MalformedError } from "../storage/bytes.js";

/** Results of one queue, at most, and their bytes. */
export const RESULTS_MAX = 100_000;
export const RESULT_BYTES_MAX = 256 * 1024 * 1024;

export interface KeptResult {
  /** Of its record in the stream of results. */
  readonly offset: number;
  readonly bytes: number;
  /** Elapsed time when the task was done. */
  readonly since: number;
}

export class ResultTable {
  /** By the task's id, the oldest first. */
  readonly #results = new Map<string, KeptResult>();
  #bytes = 0;

  get size(): number {
    return this.#results.size;
  }

  find(id: string, ttlMs: number, elapsedMs: number): KeptResult | undefined {
    const result = this.#results.get(id);
    return result === undefined || elapsedMs - result.since >= ttlMs ? undefined : result;
  }

  /** The first record of the stream that is still needed; Infinity when none is. */
  lowest(ttlMs: number, elapsedMs: number): number {
    for (const { offset, since } of this.#results.values()) if (elapsedMs - since < ttlMs) return offset;
    return Number.POSITIVE_INFINITY;
  }

  offsets(): number[] {
    return Array.from(this.#results.values(), ({ offset }) => offset);
  }

  /** Keeps only what stands where the stream has records. */
  retain(isThere: (offset: number) => boolean): void {
    for (const [id, { offset }] of this.#results) if (!isThere(offset)) this.#remove(id);
  }

  add(id: string, offset: number, bytes: number, ttlMs: number, elapsedMs: number): void {
    this.#remove(id);
    this.#results.set(id, { offset, bytes, since: elapsedMs });
    this.#bytes += bytes;
    for (const [oldest, { since }] of this.#results) {
      const tooMany = this.#results.size > RESULTS_MAX || this.#bytes > RESULT_BYTES_MAX;
      if (!tooMany && elapsedMs - since < ttlMs) break;
      this.#remove(oldest);
    }
  }

  encode(output: Encoder): void {
    output.varint(this.#results.size);
    for (const [id, { offset, bytes, since }] of this.#results) {
      output.string(id);
      output.varint(offset);
      output.varint(bytes);
      output.varint(since);
    }
  }

  static decode(input: Decoder): ResultTable {
    const table = new ResultTable();
    for (let count = input.varint(); count > 0; count--) {
      const id = input.string();
      if (table.#results.has(id)) throw new MalformedError(`the result of task ${id} stands twice`);
      const result = { offset: input.varint(), bytes: input.varint(), since: input.varint() };
      table.#results.set(id, result);
      table.#bytes += result.bytes;
    }
    return table;
  }

  #remove(id: string): void {
    const result = this.#results.get(id);
    if (result === undefined) return;
    this.#results.delete(id);
    this.#bytes -= result.bytes;
  }
}

/** How a task left its queue; "late": its time was over, and it is a dead letter. */
export type Ending = "done" | "dead" | "cancelled" | "purged" | "expired" | "late" | "dropped" | "moved";

/** Someone who waits until a task has ended. */
export interface ResultWaiter {
  ended(how: Ending): void;
  fail(error: Error): void;
}

/** Who waits for which task. */
export class ResultWaiters {
  readonly #waiters = new Map<string, Set<ResultWaiter>>();

  get size(): number {
    return this.#waiters.size;
  }

  ids(): string[] {
    return [...this.#waiters.keys()];
  }

  add(id: string, waiter: ResultWaiter): void {
    let line = this.#waiters.get(id);
    if (line === undefined) {
      line = new Set();
      this.#waiters.set(id, line);
    }
    line.add(waiter);
  }

  remove(id: string, waiter: ResultWaiter): void {
    const line = this.#waiters.get(id);
    line?.delete(waiter);
    if (line?.size === 0) this.#waiters.delete(id);
  }

  /** Tells those who wait for a task. */
  tell(id: string, how: Ending): void {
    for (const waiter of [...(this.#waiters.get(id) ?? [])]) waiter.ended(how);
  }

  close(error: Error): void {
    const lines = [...this.#waiters.values()];
    this.#waiters.clear();
    for (const line of lines) for (const waiter of line) waiter.fail(error);
  }
}
