/**
 * Tasks on their way to calls that are made together (`TAKE_EACH`): what is told of them, copied out of their records. They come and go by the
 * hundred thousand a second, so parcels are used again, with all that they hold; what makes them large is let go.
 */

import type { Headers } from "../api/contract.js";
import { copyBytes } from "../api/copy-bytes.js";
import type { GivenTask } from "../api/take-each.js";
import type { RecordCursor } from "../storage/batch.js";
import type { Consumer } from "./consumer.js";
import type { Outstanding } from "./ledger.js";
import { type TaskAttributes, taskId } from "./task-record.js";
import { formatToken, type TaskToken } from "./task-token.js";

/** Of payloads that stand together. */
const MEMORY_BYTES = 16 * 1024;
/** A larger payload has memory of its own. */
const PAYLOAD_BYTES_MAX = 2048;
/** What is kept of parcels that are used again. */
const TASKS_KEPT = 256;
const PARCELS_KEPT = 64;

const NO_HEADERS: Headers = Object.freeze({});
const NO_BYTES = Buffer.alloc(0);

class ParcelTask implements GivenTask, TaskToken {
  lane = 0;
  offset = 0;
  attempt = 0;
  timestamp = 0;
  priority = 0;
  high = 0;
  low = 0;
  orderKey: string | undefined;
  expiresAt: number | undefined;
  key: Buffer | undefined;
  headers = NO_HEADERS;
  memory = NO_BYTES;
  payloadStart = 0;
  payloadEnd = 0;
  #consumer: Consumer | undefined;
  /** Of a task that was redriven, which is the same task for all that. */
  #first: string | undefined;
  #token: string | undefined;

  get id(): string {
    return this.#first ?? taskId(this.lane, this.offset);
  }

  get token(): string {
    this.#token ??= this.high === 0 && this.low === 0 ? "" : formatToken(this.#consumer!, this);
    return this.#token;
  }

  /** All of it but the payload. */
  set(consumer: Consumer, task: Outstanding, record: RecordCursor, attributes: TaskAttributes): void {
    const { origin, expiresAt, orderKey } = attributes;
    this.#consumer = consumer;
    this.#first = origin?.id;
    this.lane = task.ledger.lane;
    this.offset = task.offset;
    this.attempt = task.attempt;
    this.timestamp = origin?.timestamp ?? record.timestamp;
    this.priority = consumer.host.prioritized === true ? task.ledger.lane : 0;
    this.high = task.tokenHigh;
    this.low = task.tokenLow;
    this.orderKey = orderKey;
    this.expiresAt = expiresAt === 0 ? undefined : expiresAt;
    this.key = record.key();
    this.headers = record.headers();
  }

  /** Holds on to nothing. */
  clear(): void {
    this.#consumer = undefined;
    this.#first = undefined;
    this.#token = undefined;
    this.orderKey = undefined;
    this.key = undefined;
    this.headers = NO_HEADERS;
    this.memory = NO_BYTES;
  }
}

const free: Parcel[] = [];

export class Parcel {
  readonly tasks: ParcelTask[] = [];
  count = 0;
  #memory = Buffer.allocUnsafeSlow(MEMORY_BYTES);
  #used = 0;

  /** An empty one. */
  static take(): Parcel {
    return free.pop() ?? new Parcel();
  }

  add(consumer: Consumer, task: Outstanding, record: RecordCursor, attributes: TaskAttributes): void {
    let given = this.tasks[this.count];
    if (given === undefined) {
      given = new ParcelTask();
      this.tasks.push(given);
    }
    this.count++;
    given.set(consumer, task, record, attributes);
    const { buffer, payloadStart, end } = record;
    const bytes = end - payloadStart;
    let memory = this.#memory;
    let at = this.#used;
    if (bytes > PAYLOAD_BYTES_MAX) {
      memory = Buffer.allocUnsafeSlow(bytes);
      at = 0;
    } else {
      if (at + bytes > MEMORY_BYTES) {
        memory = Buffer.allocUnsafeSlow(MEMORY_BYTES);
        this.#memory = memory;
        at = 0;
      }
      this.#used = at + bytes;
    }
    given.memory = memory;
    given.payloadStart = at;
    given.payloadEnd = at + bytes;
    copyBytes(buffer, payloadStart, end, memory, at);
  }

  /** Nobody looks at its tasks any more. */
  giveBack(): void {
    for (let index = 0; index < this.count; index++) this.tasks[index]!.clear();
    if (this.tasks.length > TASKS_KEPT) this.tasks.length = TASKS_KEPT;
    this.count = 0;
    this.#used = 0;
    if (free.length < PARCELS_KEPT) free.push(this);
  }
}
