/**
 * Calls in a row that put one message each into one queue, with nothing said beyond it: they are handed over together, and made by one
 * commit where that can be (`PUT_EACH`). For a client that pipelines this is most of what makes it fast. Each call is answered by itself.
 */

import { CallName } from "../api/call-name.js";
import type { CommitOptions, Durability, LogQueue, TaskQueue } from "../api/contract.js";
import { PUT_EACH, type PutsEach } from "../api/put-each.js";
import { Kind } from "../wire/frame.js";
import type { Output } from "../wire/output.js";
import type { Connection } from "./connection.js";
import type { HotCall } from "./hot-calls.js";

/** Calls made at once, at most, and the bytes of their messages. */
const CALLS_MAX = 256;
const MESSAGES_BYTES_MAX = 256 * 1024;
/** Of one message, as it is copied: it has to stay until those behind it have come. */
const MESSAGE_BYTES_MAX = 4096;

/** A kind of queue, and what is different about it. */
export interface Put<Q, T> {
  one(queue: Q, message: Buffer, options: CommitOptions | undefined): Promise<T>;
  answer(output: Output, told: T): void;
}

/** Whether a message may wait for those behind it, in a run. */
export function mayWait(message: unknown, { request }: HotCall): message is Buffer {
  if (request !== undefined && !(request instanceof CallName)) return false;
  return message instanceof Uint8Array && message.length <= MESSAGE_BYTES_MAX;
}

export interface Run {
  /** Adds a call that is like those before and has the next number, if there is room for it. */
  add(call: HotCall, durability: Durability | undefined, message: Buffer): boolean;
  carryOut(): void;
}

export class PutRun<Q extends LogQueue | TaskQueue, T> implements Run {
  readonly #connection: Connection;
  readonly #put: Put<Q, T>;
  readonly #queue: Q;
  readonly #first: HotCall;
  readonly #name: CallName | undefined;
  readonly #durability: Durability | undefined;
  readonly #ids: number[] = [];
  #messages: Buffer[] = [];
  #bytes = 0;

  /** @param message good until the caller returns, one that `mayWait` */
  constructor(
    connection: Connection,
    put: Put<Q, T>,
    queue: Q,
    call: HotCall,
    durability: Durability | undefined,
    message: Buffer,
  ) {
    this.#connection = connection;
    this.#put = put;
    this.#queue = queue;
    this.#first = call;
    this.#name = call.request as CallName | undefined;
    this.#durability = durability;
    this.#take(call, message);
  }

  add(call: HotCall, durability: Durability | undefined, message: Buffer): boolean {
    const { method, handle } = this.#first;
    if (call.handle !== handle || call.method !== method || durability !== this.#durability) return false;
    const count = this.#ids.length;
    if (count >= CALLS_MAX || this.#bytes + message.length > MESSAGES_BYTES_MAX) return false;
    if (!this.#isNext(call.request as CallName | undefined)) return false;
    this.#take(call, message);
    return true;
  }

  #take({ method, id }: HotCall, message: Buffer): void {
    this.#connection.begun(method);
    this.#ids.push(id);
    this.#messages.push(Buffer.from(message));
    this.#bytes += message.length;
  }

  #isNext(name: CallName | undefined): boolean {
    const first = this.#name;
    if (first === undefined || name === undefined) return first === name;
    if (name.from !== first.from || name.settled !== first.settled) return false;
    return name.sequence === first.sequence + this.#ids.length;
  }

  carryOut(): void {
    const messages = this.#messages;
    // They are not kept until the answers have come.
    this.#messages = [];
    const told = messages.length === 1 ? [this.#one(messages[0]!, this.#name)] : this.#all(messages);
    if (Array.isArray(told)) {
      for (let index = 0; index < told.length; index++) {
        told[index]!.then(
          (value) => this.#answer(index, value),
          (error: unknown) => this.#fail(index, error),
        );
      }
      return;
    }
    told.then(
      (values) => {
        for (let index = 0; index < values.length; index++) this.#answer(index, values[index]!);
      },
      (error: unknown) => {
        for (let index = 0; index < this.#ids.length; index++) this.#fail(index, error);
      },
    );
  }

  #all(messages: readonly Buffer[]): Promise<T[]> | Promise<T>[] {
    const queue = this.#queue as Q & Partial<PutsEach<T>>;
    const together = queue[PUT_EACH]?.(messages, this.#durability, this.#name);
    return together ?? messages.map((message, index) => this.#one(message, this.#name?.at(index)));
  }

  /** Without options where the calls say nothing, which is what embedded queues are quickest with. */
  #one(message: Buffer, request: CallName | undefined): Promise<T> {
    const durability = this.#durability;
    const isPlain = durability === undefined && request === undefined;
    return this.#put.one(this.#queue, message, isPlain ? undefined : { durability, request });
  }

  #answer(index: number, told: T): void {
    const connection = this.#connection;
    const id = this.#ids[index]!;
    connection.done(this.#first.method, id);
    if (connection.isOver) return;
    try {
      connection.output.begin(Kind.Ok, id);
      this.#put.answer(connection.output, told);
      connection.ended();
    } catch (error) {
      connection.fail(id, error);
    }
  }

  #fail(index: number, error: unknown): void {
    const id = this.#ids[index]!;
    this.#connection.done(this.#first.method, id);
    this.#connection.fail(id, error);
  }
}
