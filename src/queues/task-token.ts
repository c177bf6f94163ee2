import type { Headers, Task } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import type { RecordCursor } from "../storage/batch.js";
import type { Consumer } from "./consumer.js";
import type { Outstanding } from "./ledger.js";
import { type TaskAttributes, taskId } from "./task-record.js";

/**
 * What proves a lease: the task, the delivery, and 64 random bits. Attempt numbers alone could repeat after a power
 * cut that took a delivery with it.
 */
export interface TaskToken {
  readonly lane: number;
  readonly offset: number;
  readonly attempt: number;
  /** Signed, as the lower half. */
  readonly high: number;
  readonly low: number;
}

const TOKEN =
  /^([0-9a-z]{1,11}\.[0-9a-z]{1,7})\.([0-9a-z]{1,7})\.([0-9a-z]{1,11})\.([0-9a-z]{1,7})\.([0-9a-f]{8})([0-9a-f]{8})$/;

export function formatToken(consumer: Consumer, { lane, offset, attempt, high, low }: TaskToken): string {
  const task = `${lane.toString(36)}.${offset.toString(36)}.${attempt.toString(36)}`;
  return `${holderOf(consumer)}.${task}.${hex(high)}${hex(low)}`;
}

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

function hex(bits: number): string {
  return HEX[bits >>> 24]! + HEX[(bits >>> 16) & 255]! + HEX[(bits >>> 8) & 255]! + HEX[bits & 255]!;
}

/** Who gave a task out: queue and consumer. */
function holderOf({ host, number }: Consumer): string {
  return `${host.id.toString(36)}.${number.toString(36)}`;
}

/** @throws VarveError `ERR_TOKEN` */
export function parseToken(text: unknown, consumer: Consumer): TaskToken {
  const parts = typeof text === "string" ? TOKEN.exec(text) : null;
  if (parts === null) {
    throw new VarveError("ERR_TOKEN", "that is not a task token. Pass the task that dequeue() gave, or its `token`.");
  }
  if (parts[1] !== holderOf(consumer)) {
    throw new VarveError(
      "ERR_TOKEN",
      `the token belongs to another queue, not to ${consumer.host.name}. Settle a task with the queue that it came from.`,
    );
  }
  return {
    lane: Number.parseInt(parts[2]!, 36),
    offset: Number.parseInt(parts[3]!, 36),
    attempt: Number.parseInt(parts[4]!, 36),
    high: Number.parseInt(parts[5]!, 16) | 0,
    low: Number.parseInt(parts[6]!, 16) | 0,
  };
}

/** A task in its receiver's hands. The payload is bytes until the receiver's codec has read it. */
export class LeasedTask<O = unknown> implements Task<O>, TaskToken {
  readonly id: string;
  readonly attempt: number;
  readonly timestamp: number;
  readonly priority: number;
  readonly orderKey: string | undefined;
  readonly expiresAt: number | undefined;
  readonly key: Buffer | undefined;
  readonly headers: Headers;
  payload: O;
  readonly #consumer: Consumer;
  readonly #task: Outstanding;
  readonly #high: number;
  readonly #low: number;
  #token: string | undefined;

  constructor(
    consumer: Consumer,
    task: Outstanding,
    record: RecordCursor,
    { origin, expiresAt, orderKey }: TaskAttributes,
  ) {
    // A task that was redriven is the same task for all that.
    this.id = origin?.id ?? taskId(task.ledger.lane, task.offset);
    this.attempt = task.attempt;
    this.timestamp = origin?.timestamp ?? record.timestamp;
    this.priority = consumer.host.prioritized === true ? task.ledger.lane : 0;
    this.orderKey = orderKey;
    this.expiresAt = expiresAt === 0 ? undefined : expiresAt;
    this.key = record.key();
    this.headers = record.headers();
    this.payload = record.payload() as O;
    this.#consumer = consumer;
    this.#task = task;
    this.#high = task.tokenHigh;
    this.#low = task.tokenLow;
  }

  get token(): string {
    // Done as it was handed out, it has none.
    this.#token ??= this.#high === 0 && this.#low === 0 ? "" : formatToken(this.#consumer, this);
    return this.#token;
  }

  get lane(): number {
    return this.#task.ledger.lane;
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

  belongsTo(consumer: Consumer): boolean {
    return this.#consumer === consumer;
  }

  toJSON(): object {
    const { id, attempt, token, timestamp, priority, orderKey, expiresAt, key, headers, payload } = this;
    return { id, attempt, token, timestamp, priority, orderKey, expiresAt, key, headers, payload };
  }
}
