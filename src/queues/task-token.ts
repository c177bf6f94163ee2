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

/** Bits in hexadecimal digits, at the end of a token. */
const BITS_LENGTH = 16;

const DIGITS = Buffer.from("0123456789abcdefghijklmnopqrstuvwxyz", "latin1");
const POINT = 46;
/** Where a token is put together: all of it at once costs a fraction of what its parts would as strings. */
const writing = Buffer.allocUnsafeSlow(96);

export function formatToken({ host, number }: Consumer, { lane, offset, attempt, high, low }: TaskToken): string {
  let end = writeNumber(host.id, 0);
  end = writeNumber(number, end);
  end = writeNumber(lane, end);
  end = writeNumber(offset, end);
  end = writeNumber(attempt, end);
  end = writeBits(high, end);
  end = writeBits(low, end);
  return writing.toString("latin1", 0, end);
}

/** With a point behind it. Returns where that ends. */
function writeNumber(value: number, at: number): number {
  let length = 1;
  for (let power = 36; power <= value; power *= 36) length++;
  const end = at + length;
  let left = value;
  for (let index = end - 1; index >= at; index--) {
    const digit = left % 36;
    writing[index] = DIGITS[digit]!;
    left = (left - digit) / 36;
  }
  writing[end] = POINT;
  return end + 1;
}

function writeBits(bits: number, at: number): number {
  for (let index = 0; index < 8; index++) writing[at + index] = DIGITS[(bits >>> (28 - 4 * index)) & 15]!;
  return at + 8;
}

/** Who gave a task out: queue and consumer. */
function holderOf({ host, number }: Consumer): string {
  return `${host.id.toString(36)}.${number.toString(36)}`;
}

/** @throws VarveError `ERR_TOKEN` */
export function parseToken(text: unknown, consumer: Consumer): TaskToken {
  const token = typeof text === "string" ? readToken(text) : undefined;
  if (token === undefined) {
    throw new VarveError("ERR_TOKEN", "that is not a task token. Pass the task that dequeue() gave, or its `token`.");
  }
  if (!(text as string).startsWith(`${holderOf(consumer)}.`)) {
    throw new VarveError(
      "ERR_TOKEN",
      `the token belongs to another queue, not to ${consumer.host.name}. Settle a task with the queue that it came from.`,
    );
  }
  return token;
}

/** Digit by digit: once for each task that is settled, a regular expression and its strings take several times as long. */
function readToken(text: string): TaskToken | undefined {
  const numberAt = text.indexOf(".") + 1;
  const laneAt = text.indexOf(".", numberAt) + 1;
  const offsetAt = text.indexOf(".", laneAt) + 1;
  const attemptAt = text.indexOf(".", offsetAt) + 1;
  const bitsAt = text.indexOf(".", attemptAt) + 1;
  if (numberAt === 0 || laneAt === 0 || offsetAt === 0 || attemptAt === 0 || bitsAt === 0) return undefined;
  if (text.length !== bitsAt + BITS_LENGTH) return undefined;
  if (digits(text, 0, numberAt - 1, 36, 11) < 0 || digits(text, numberAt, laneAt - 1, 36, 7) < 0) return undefined;
  const lane = digits(text, laneAt, offsetAt - 1, 36, 7);
  const offset = digits(text, offsetAt, attemptAt - 1, 36, 11);
  const attempt = digits(text, attemptAt, bitsAt - 1, 36, 7);
  const high = digits(text, bitsAt, bitsAt + 8, 16, 8);
  const low = digits(text, bitsAt + 8, bitsAt + 16, 16, 8);
  if (lane < 0 || offset < 0 || attempt < 0 || high < 0 || low < 0) return undefined;
  return { lane, offset, attempt, high: high | 0, low: low | 0 };
}

/** The number that stands there; -1 if none does, of at most so many digits. */
function digits(text: string, from: number, to: number, base: number, most: number): number {
  if (to <= from || to - from > most) return -1;
  let value = 0;
  for (let index = from; index < to; index++) {
    const code = text.charCodeAt(index);
    const digit = code >= 97 ? code - 87 : code <= 57 ? code - 48 : -1;
    if (digit < 0 || digit >= base) return -1;
    value = value * base + digit;
  }
  return value;
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

  belongsTo(consumer: Consumer): boolean {
    return this.#consumer === consumer;
  }

  toJSON(): object {
    const { id, attempt, token, timestamp, priority, orderKey, expiresAt, key, headers, payload } = this;
    return { id, attempt, token, timestamp, priority, orderKey, expiresAt, key, headers, payload };
  }
}
