/**
 * Requests in a row that are alike, for one queue that is open: they are carried out together, with those of other connections where
 * that can be. This is most of what makes the front fast.
 */

import type { TaskQueue } from "../api/contract.js";
import { isVarveError } from "../api/errors.js";
import { Payloads } from "../api/put-each.js";
import type { GivenTask, TakesEach } from "../api/take-each.js";
import type { Put } from "../net/puts.js";
import type { Take } from "../net/takes.js";
import type { OpenedQueue, Taken } from "./queues.js";
import { asRefusal, NONE, notStored, type Reply, STORED, VALUE_END } from "./reply.js";
import { type GetRequest, isPlainGet, Refusal, type Request, type SetRequest } from "./request.js";
import type { Front } from "./server.js";

/** Items that are stored together, at most, and their bytes, about. */
const STORED_AT_ONCE_MAX = 256;
const STORED_BYTES = 256 * 1024;
const NO_REPLIES: Reply[] = [];
/** Values up to here are text, as the lines around them are: several of them are one piece. */
const TEXT_BYTES_MAX = 512;

/** Where the value of a `set` stands: in memory that stays as it is. */
interface Body {
  readonly memory: Buffer;
  readonly start: number;
  readonly end: number;
}

export interface Run {
  readonly requests: number;
  /** Of values that are to be stored. */
  readonly bytes: number;
  /** Adds a request, if it is like those before and there is room for it. */
  add(request: Request, body: Body): boolean;
  /** Calls back, later, with the replies to all of them. */
  carryOut(answer: (reply: Reply) => void): void;
}

/** Begins a run with a `set` or a plain `get`; undefined for what must be carried out alone. */
export function runOf(front: Front, request: Request, body: Body): Run | undefined {
  if (request.command === "set") {
    const queue = request.queues.length === 1 ? front.queues.opened(request.queues[0]!) : undefined;
    return queue === undefined ? undefined : new Sets(front, queue, request, body);
  }
  if (!isPlainGet(request)) return undefined;
  const queue = front.queues.opened(request.queue);
  return queue === undefined ? undefined : new Gets(front, queue, request);
}

/** Sets are stored together with those of other connections. */
const STORE: Put<TaskQueue, Sets, unknown> = {
  one: (tasks, body) => tasks.enqueue(body),
  answer: (sets) => sets.stored(),
  fail: (sets, index, error) => sets.failed(index, error),
};

class Sets implements Run {
  readonly #front: Front;
  readonly #queue: OpenedQueue;
  readonly #first: SetRequest;
  readonly #bodies: Payloads;
  bytes: number;
  /** Of those that are stored one by one: */
  #answer: (reply: Reply) => void = () => {};
  #left = 0;
  #refused: Map<number, Reply> | undefined;

  constructor(front: Front, queue: OpenedQueue, first: SetRequest, { memory, start, end }: Body) {
    this.#front = front;
    this.#queue = queue;
    this.#first = first;
    this.#bodies = new Payloads(memory, start, end);
    this.bytes = first.bytes;
  }

  get requests(): number {
    return this.#bodies.count;
  }

  add(request: Request, { memory, start, end }: Body): boolean {
    const first = this.#first;
    if (request !== first) {
      if (request.command !== "set" || request.expiry !== first.expiry) return false;
      if (request.queues.length > 1 || request.queues[0] !== first.queues[0]) return false;
    }
    const bodies = this.#bodies;
    if (bodies.count >= STORED_AT_ONCE_MAX || this.bytes + end - start > STORED_BYTES) return false;
    // Those that die are stored as a whole, or not at all.
    if (bodies.count === 1 && first.expiry !== 0 && !this.#queue.unlimited.at(this.#front.nowMs())) return false;
    bodies.add(memory, start, end);
    this.bytes += end - start;
    return true;
  }

  carryOut(answer: (reply: Reply) => void): void {
    const { expiry } = this.#first;
    const expiresAtMs = this.#front.expiryMs(expiry);
    const bodies = this.#bodies;
    const { memories, starts, ends, count } = bodies;
    this.#front.counters.sets += count;
    if (expiresAtMs === undefined) {
      this.#answer = answer;
      this.#left = count;
      const { tasks } = this.#queue;
      for (let index = 0; index < count; index++) {
        const memory = memories[index]!;
        this.#front.puts.add(STORE, tasks, this, index, undefined, undefined, memory, starts[index]!, ends[index]!);
      }
      return;
    }
    // Behind what this connection has put in before.
    this.#front.puts.carryOut();
    const storing =
      count === 1 ? this.#queue.set(bodies.at(0), expiresAtMs) : this.#queue.setAll(bodies.views(), expiresAtMs);
    storing.then(
      () => answer(count === 1 ? STORED : STORED.repeat(count)),
      (error) => void this.#storeEach(error, expiresAtMs).then(answer),
    );
  }

  /** After an error that has left all of them out. */
  async #storeEach(error: unknown, expiresAtMs: number): Promise<Reply> {
    let queue = this.#queue;
    if (isVarveError(error, "ERR_NOT_FOUND")) {
      try {
        queue = await this.#front.queues.reopen(queue);
      } catch (again) {
        return notStored(again);
      }
    } else {
      const reply = notStored(error);
      if (reply instanceof Refusal || this.requests === 1) return reply;
      // The queue has got limits meanwhile, and may have room for some.
    }
    const bodies = this.#bodies.views();
    return await Promise.all(bodies.map((body) => queue.set(body, expiresAtMs).then(() => STORED, notStored)));
  }

  stored(): void {
    if (--this.#left > 0) return;
    const count = this.requests;
    const refused = this.#refused;
    if (refused === undefined) this.#answer(count === 1 ? STORED : STORED.repeat(count));
    else this.#answer(Array.from({ length: count }, (_, index) => refused.get(index) ?? STORED));
  }

  /** One that has not been stored. */
  failed(index: number, error: unknown): void {
    void this.#storeAgain(index, error).then((reply) => {
      this.#refused ??= new Map();
      this.#refused.set(index, reply);
      this.stored();
    });
  }

  async #storeAgain(index: number, error: unknown): Promise<Reply> {
    if (!isVarveError(error, "ERR_NOT_FOUND")) return notStored(error);
    try {
      const queue = await this.#front.queues.reopen(this.#queue);
      await queue.set(this.#bodies.at(index), undefined);
      return STORED;
    } catch (again) {
      return notStored(again);
    }
  }
}

/** Gets that have been told what there is for them, in the midst of a commit: what their replies lead to is begun behind it. */
let told: Gets[] = [];

function answerLater(gets: Gets): void {
  if (told.length === 0) queueMicrotask(answerAll);
  told.push(gets);
}

function answerAll(): void {
  const all = told;
  told = [];
  for (const gets of all) gets.goOn();
}

/** Gets remove items together with those of other connections. */
class Gets implements Run, Take {
  readonly #front: Front;
  readonly #queue: OpenedQueue;
  readonly #first: GetRequest;
  readonly bytes = 0;
  requests = 1;
  #answer: (reply: Reply) => void = () => {};
  /** The replies to those that it has been given, and how many others there are. */
  #replies: Reply[] = NO_REPLIES;
  #left = 0;
  #error: unknown;

  constructor(front: Front, queue: OpenedQueue, first: GetRequest) {
    this.#front = front;
    this.#queue = queue;
    this.#first = first;
  }

  add(request: Request): boolean {
    const first = this.#first;
    if (request !== first && !(isPlainGet(request) && request.queue === first.queue)) return false;
    if (this.requests >= this.#queue.takenAtOnceMax) return false;
    this.requests++;
    return true;
  }

  carryOut(answer: (reply: Reply) => void): void {
    this.#front.counters.gets += this.requests;
    this.#answer = answer;
    if (!this.#front.takes.add(this)) this.alone();
  }

  // What it asks for together with others.

  get source(): Partial<TakesEach> {
    return this.#queue.tasks as Partial<TakesEach>;
  }

  get max(): number {
    return this.requests;
  }

  get waits(): boolean {
    return false;
  }

  get autoAck(): boolean {
    return true;
  }

  get leaseMs(): undefined {
    return undefined;
  }

  get durability(): undefined {
    return undefined;
  }

  get isVain(): boolean {
    return false;
  }

  dropped(): void {}

  told(tasks: readonly GivenTask[], from: number, to: number): void {
    const replies: Reply[] = [];
    let text = "";
    for (let index = from; index < to; index++) {
      const { memory, payloadStart, payloadEnd, timestamp } = tasks[index]!;
      const bytes = payloadEnd - payloadStart;
      const head = this.#queue.head(bytes);
      this.#queue.noteRead(timestamp, bytes);
      if (bytes <= TEXT_BYTES_MAX) {
        text += head + memory.toString("latin1", payloadStart, payloadEnd) + VALUE_END;
        continue;
      }
      if (text !== "") replies.push(text);
      text = "";
      replies.push({ head, payload: Buffer.from(memory.subarray(payloadStart, payloadEnd)) });
    }
    const found = to - from;
    this.#front.counters.hits += found;
    if (found === 0) text = this.#missed(this.requests);
    if (text !== "") replies.push(text);
    this.#replies = replies;
    // Where it has been given some, there may be more than could be given at once.
    this.#left = found === 0 ? 0 : this.requests - found;
    answerLater(this);
  }

  failed(error: unknown): void {
    this.#error = error;
    this.#left = this.requests;
    answerLater(this);
  }

  goOn(): void {
    if (this.#error !== undefined) void this.#takeAnew(this.#left, this.#replies, this.#error);
    else if (this.#left > 0) this.#take(this.#left, this.#replies);
    else this.#answer(this.#replies.length === 1 ? this.#replies[0]! : this.#replies);
  }

  alone(): void {
    this.#take(this.requests, NO_REPLIES);
  }

  /** @param before the replies to those ahead */
  #take(requests: number, before: readonly Reply[]): void {
    this.#queue.takeAll(requests).then(
      (taken) => this.#answer([...before, ...this.#repliesOf(taken, requests)]),
      (error: unknown) => void this.#takeAnew(requests, before, error),
    );
  }

  /** From a queue that others have deleted, and that is made again. */
  async #takeAnew(requests: number, before: readonly Reply[], error: unknown): Promise<void> {
    try {
      if (!isVarveError(error, "ERR_NOT_FOUND")) throw error;
      const queue = await this.#front.queues.reopen(this.#queue);
      const taken = await queue.takeAll(requests);
      this.#answer([...before, ...this.#repliesOf(taken, requests)]);
    } catch (again) {
      this.#answer([...before, asRefusal(again)]);
    }
  }

  #repliesOf({ tasks, error }: Taken, requests: number): Reply[] {
    const replies: Reply[] = tasks.map(({ payload }) => ({ head: this.#queue.head(payload.length), payload }));
    this.#front.counters.hits += tasks.length;
    if (error !== undefined) replies.push(asRefusal(error));
    else if (tasks.length < requests) replies.push(this.#missed(requests - tasks.length));
    return replies;
  }

  #missed(requests: number): string {
    this.#front.counters.misses += requests;
    return NONE.repeat(requests);
  }
}
