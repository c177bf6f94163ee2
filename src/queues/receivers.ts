/** Calls that are made together (`TAKE_EACH`), as who hands out tasks sees them. */

import type { Durability } from "../api/contract.js";
import type { TakeLine } from "../api/take-each.js";
import type { RecordCursor } from "../storage/batch.js";
import type { Consumer } from "./consumer.js";
import type { Party, Receiver, Waiter } from "./delivery.js";
import type { Outstanding } from "./ledger.js";
import { Parcel } from "./parcel.js";
import type { TaskAttributes } from "./task-record.js";

/** Tasks that one commit hands out to several calls, at most: what they may come to must fit into any log file. */
const TASKS_AT_ONCE = 512;

export class Receivers implements Party {
  readonly isParty = true;
  readonly waits = true;
  before: Waiter | Party | undefined;
  behind: Waiter | Party | undefined;
  readonly #consumer: Consumer;
  readonly #line: TakeLine;
  readonly #leaseMs: number;
  readonly #durability: Durability;
  /** The first one that has not been dealt with. */
  #place = 0;
  /** The one behind the last. */
  #end: number;
  #several: Several | undefined;

  constructor(consumer: Consumer, line: TakeLine, leaseMs: number, durability: Durability) {
    this.#consumer = consumer;
    this.#line = line;
    this.#end = line.count;
    this.#leaseMs = leaseMs;
    this.#durability = durability;
  }

  get size(): number {
    return this.#end - this.#place;
  }

  next(): Receiver {
    const line = this.#line;
    let to = this.#place;
    let max = line.maxOf(to++);
    for (; to < this.#end; to++) {
      const more = line.maxOf(to);
      if (max + more > TASKS_AT_ONCE) break;
      max += more;
    }
    this.#several = new Several(this.#consumer, line, this.#place, max, this.#leaseMs, this.#durability);
    return this.#several;
  }

  delivered(): void {
    this.#place = this.#several!.placeBehind();
  }

  foundNothing(): void {
    const line = this.#line;
    for (; this.#place < this.#end; this.#place++) {
      if (line.waits(this.#place)) line.alone(this.#place);
      else line.told(this.#place, [], 0, 0);
    }
  }

  reject(error: Error): void {
    this.#line.failed(this.#place++, error);
  }

  standInLine(join: () => void): void {
    const line = this.#line;
    const { count } = line;
    let end = this.#place;
    while (end < count && !line.waits(end)) end++;
    this.#end = end;
    if (this.size > 0) join();
    for (let place = end; place < count; place++) line.alone(place);
  }

  recall(): void {
    this.#end = this.#line.weed(this.#place, this.#end);
  }
}

/** Those from a place on, who are given what they want in their order, as far as it goes. */
class Several implements Receiver {
  readonly max: number;
  readonly leaseMs: number;
  readonly durability: Durability;
  readonly #consumer: Consumer;
  readonly #line: TakeLine;
  readonly #place: number;
  #parcel: Parcel | undefined;

  constructor(consumer: Consumer, line: TakeLine, place: number, max: number, leaseMs: number, durability: Durability) {
    this.#consumer = consumer;
    this.#line = line;
    this.#place = place;
    this.max = max;
    this.leaseMs = leaseMs;
    this.durability = durability;
  }

  get autoAck(): boolean {
    return this.#line.autoAck;
  }

  get waits(): boolean {
    return false;
  }

  give(task: Outstanding, record: RecordCursor, attributes: TaskAttributes): void {
    this.#parcel ??= Parcel.take();
    this.#parcel.add(this.#consumer, task, record, attributes);
  }

  /** The first one for whom there was nothing. */
  placeBehind(): number {
    let place = this.#place;
    for (let left = this.#parcel!.count; left > 0; place++) left -= this.#line.maxOf(place);
    return place;
  }

  resolve(): void {
    const line = this.#line;
    const parcel = this.#parcel!;
    const { tasks, count } = parcel;
    let place = this.#place;
    for (let from = 0; from < count; place++) {
      const to = Math.min(count, from + line.maxOf(place));
      line.told(place, tasks, from, to);
      from = to;
    }
    parcel.giveBack();
  }

  reject(error: Error): void {
    const end = this.placeBehind();
    for (let place = this.#place; place < end; place++) this.#line.failed(place, error);
    this.#parcel!.giveBack();
  }
}
