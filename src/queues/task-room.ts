/**
 * The room that a task queue's limits leave for tasks that wait. A queue that holds less than its limits takes a call as a
 * whole; otherwise the call is refused, waits until tasks have been taken, or has the oldest ones dropped.
 */

import { VarveError } from "../api/errors.js";
import { formatBytes } from "../api/units.js";
import type { Engine } from "../engine/engine.js";
import type { RecordParts } from "../storage/batch.js";
import { detach } from "./input.js";
import type { TaskState } from "./task-state.js";

/** Calls that wait for room, at most. */
const WAITING_CALLS_MAX = 65_536;
/** Tasks that make way for a call at once. */
const DROPPED_AT_ONCE = 1000;

interface Waiting {
  readonly run: () => void;
  readonly reject: (error: Error) => void;
}

export class TaskRoom {
  readonly #state: TaskState;
  readonly #waiting: Waiting[] = [];
  /** Tasks that will come from another queue, and are not staged yet; and their payload bytes. */
  #promised = 0;
  #promisedBytes = 0;

  constructor(state: TaskState) {
    this.#state = state;
  }

  /**
   * Runs a call that enqueues, now or when there is room for it.
   * @throws VarveError `ERR_TOO_LARGE`, `ERR_QUEUE_FULL`
   */
  enter(engine: Engine, records: readonly RecordParts[], run: () => void, reject: (error: Error) => void): void {
    const { maxCount, maxBytes, maxMessageBytes, whenFull } = this.#state.config.limits;
    if (maxMessageBytes > 0) for (const { payload } of records) checkSize(payload, maxMessageBytes);
    if (maxCount === 0 && maxBytes === 0) {
      run();
      return;
    }
    if (whenFull === "wait" && (this.#waiting.length > 0 || this.isFull)) {
      if (this.#waiting.length >= WAITING_CALLS_MAX) throw this.#full("; too many calls wait for room already");
      detach(records);
      this.#waiting.push({ run, reject });
      return;
    }
    if (whenFull === "drop-oldest") this.#drop(engine);
    else this.require();
    run();
  }

  /** For a call that cannot wait. */
  require(): void {
    if (this.#state.config.limits.whenFull !== "drop-oldest" && this.isFull) throw this.#full("");
  }

  /**
   * Keeps room for a task that moves here from another queue.
   * @param mayDrop whether the oldest tasks can make way for it now
   * @returns what ends that when the task has been staged, or never will be; undefined if it has no room here
   */
  promise(engine: Engine, bytes: number, mayDrop: boolean): (() => void) | undefined {
    const { maxMessageBytes, whenFull } = this.#state.config.limits;
    if (maxMessageBytes > 0 && bytes > maxMessageBytes) return undefined;
    if (whenFull === "drop-oldest") {
      if (mayDrop) this.#drop(engine);
    } else if (this.isFull) {
      return undefined;
    }
    this.#promised++;
    this.#promisedBytes += bytes;
    return () => {
      this.#promised--;
      this.#promisedBytes -= bytes;
    };
  }

  get isWaitedFor(): boolean {
    return this.#waiting.length > 0;
  }

  get isFull(): boolean {
    const { maxCount, maxBytes } = this.#state.config.limits;
    if (maxCount > 0 && this.#count >= maxCount) return true;
    return maxBytes > 0 && this.#state.waitingBytes + this.#promisedBytes >= maxBytes;
  }

  /** Lets those in who wait, as far as there is room now. */
  admit(): void {
    while (this.#waiting.length > 0 && !this.isFull) {
      const { run, reject } = this.#waiting.shift()!;
      try {
        run();
      } catch (error) {
        reject(error as Error);
      }
    }
  }

  close(error: Error): void {
    for (const { reject } of this.#waiting.splice(0)) reject(error);
  }

  /** Tasks that wait, those on their way to the log included. */
  get #count(): number {
    const { count, consumer } = this.#state;
    let staged = 0;
    for (const { stream } of consumer.lanes) staged += stream.staged - stream.next;
    return count - consumer.leased + staged + this.#promised;
  }

  /** Takes the oldest tasks away until there is room, as far as they are in memory. */
  #drop(engine: Engine): void {
    const { consumer } = this.#state;
    // What is staged is counted, but cannot be taken yet.
    if (this.isFull) engine.flush();
    for (let dropped = true; dropped && this.isFull; ) {
      const { maxCount } = this.#state.config.limits;
      const over = maxCount > 0 ? this.#count - maxCount + 1 : 1;
      dropped = consumer.delivery.drop(Math.min(DROPPED_AT_ONCE, Math.max(1, over)));
      engine.flush();
    }
  }

  #full(reason: string): VarveError {
    const { maxCount, maxBytes } = this.#state.config.limits;
    const limits: string[] = [];
    if (maxCount > 0) limits.push(`${maxCount} tasks`);
    if (maxBytes > 0) limits.push(formatBytes(maxBytes));
    return new VarveError(
      "ERR_QUEUE_FULL",
      `${this.#state.name} is full: its limits are ${limits.join(" and ")} that wait${reason}. Nothing was enqueued; take tasks, purge it, or raise the limits.`,
      { details: { queue: this.#state.name } },
    );
  }
}

function checkSize(payload: string | Uint8Array, limit: number): void {
  const size = typeof payload === "string" ? Buffer.byteLength(payload) : payload.length;
  if (size <= limit) return;
  throw new VarveError(
    "ERR_TOO_LARGE",
    `the payload has ${size} bytes (${formatBytes(size)}); the queue's limit is ${limit} (${formatBytes(limit)}).`,
    { details: { size, limit } },
  );
}
