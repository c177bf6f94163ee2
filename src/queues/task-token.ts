import type { Headers, Task } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import type { RecordCursor } from "../storage/batch.js";
import type { Outstanding } from "./ledger.js";
import type { Origin } from "./task-record.js";

/**
 * What proves a lease: the task, the delivery, and 64 random bits. Attempt numbers alone could repeat after a power
 * cut that took a delivery with it.
 */
export interface TaskToken {
  readonly offset: number;
  readonly attempt: number;
  readonly high: number;
  readonly low: number;
}

const TOKEN = /^([0-9a-z]{1,11})\.([0-9a-z]{1,11})\.([0-9a-z]{1,7})\.([0-9a-f]{8})([0-9a-f]{8})$/;

export function formatToken(queueId: number, { offset, attempt, high, low }: TaskToken): string {
  const bits = high.toString(16).padStart(8, "0") + low.toString(16).padStart(8, "0");
  return `${queueId.toString(36)}.${offset.toString(36)}.${attempt.toString(36)}.${bits}`;
}

/** @throws VarveError `ERR_TOKEN` */
export function parseToken(text: unknown, queueId: number, queueName: string): TaskToken {
  const parts = typeof text === "string" ? TOKEN.exec(text) : null;
  if (parts === null) {
    throw new VarveError("ERR_TOKEN", "that is not a task token. Pass the task that dequeue() gave, or its `token`.");
  }
  if (parts[1] !== queueId.toString(36)) {
    throw new VarveError(
      "ERR_TOKEN",
      `the token belongs to another queue, not to ${queueName}. Settle a task with the queue that it came from.`,
    );
  }
  return {
    offset: Number.parseInt(parts[2]!, 36),
    attempt: Number.parseInt(parts[3]!, 36),
    high: Number.parseInt(parts[4]!, 16),
    low: Number.parseInt(parts[5]!, 16),
  };
}

/** A task in its receiver's hands. The payload is bytes until the receiver's codec has read it. */
export class LeasedTask<O = unknown> implements Task<O>, TaskToken {
  readonly id: string;
  readonly attempt: number;
  readonly timestamp: number;
  readonly key: Buffer | undefined;
  readonly headers: Headers;
  payload: O;
  readonly #queue: { readonly id: number };
  readonly #task: Outstanding;
  readonly #high: number;
  readonly #low: number;

  /** @param origin of a task that was redriven, and is the same task for all that */
  constructor(queue: { readonly id: number }, task: Outstanding, record: RecordCursor, origin: Origin | undefined) {
    this.id = String(origin?.offset ?? task.offset);
    this.attempt = task.attempt;
    this.timestamp = origin?.timestamp ?? record.timestamp;
    this.key = record.key();
    this.headers = record.headers();
    this.payload = record.payload() as O;
    this.#queue = queue;
    this.#task = task;
    this.#high = task.tokenHigh;
    this.#low = task.tokenLow;
  }

  get token(): string {
    return formatToken(this.#queue.id, this);
  }

  get offset(): number {
    return this.#task.offset;
  }

  get high(): number {
    return this.#high;
  }

  get low(): number {
    return this.#low;
  }

  get task(): Outstanding {
    return this.#task;
  }

  belongsTo(queue: object): boolean {
    return this.#queue === queue;
  }

  toJSON(): object {
    const { id, attempt, token, timestamp, key, headers, payload } = this;
    return { id, attempt, token, timestamp, key, headers, payload };
  }
}
