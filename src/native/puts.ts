/**
 * Calls that put one message each into a queue, with nothing said beyond it: those that come in one turn of the event loop, over
 * whatever connections, are handed over together, those for one queue as one run, which is one commit where that can be
 * (`PUT_EACH`). Each call is answered by itself.
 */

import { CallName } from "../api/call-name.js";
import type { CommitOptions, Durability, LogQueue, MessageQueue, TaskQueue } from "../api/contract.js";
import { AT_TURN_END, PUT_EACH, PUTS_INTO, type PutsEach, type TakesTurns } from "../api/put-each.js";
import { Kind } from "../wire/frame.js";
import type { Output } from "../wire/output.js";
import type { Connection } from "./connection.js";
import type { HotCall } from "./hot-calls.js";

/** Calls that are collected, at most, and the bytes of their messages. */
const CALLS_MAX = 512;
const MESSAGES_BYTES_MAX = 256 * 1024;
/** Of one message, as it is copied: it has to stay until those behind it have come. */
const MESSAGE_BYTES_MAX = 4096;

/** A kind of queue, and what is different about it. */
export interface Put<Q, T> {
  one(queue: Q, message: Buffer, options: CommitOptions | undefined): Promise<T>;
  answer(output: Output, told: T): void;
}

/** Whether a message may wait for those behind it. */
export function mayWait(message: unknown, { request }: HotCall): message is Buffer {
  if (request !== undefined && !(request instanceof CallName)) return false;
  return message instanceof Uint8Array && message.length <= MESSAGE_BYTES_MAX;
}

/** What all connections of a server have collected in this turn. */
export class Puts {
  readonly #atTurnEnd: (callback: () => void) => void;
  readonly #carryOut = () => this.carryOut();
  /** By what they go into, in the order of the first of each. */
  readonly #runs = new Map<object, Run>();
  #calls = 0;
  #bytes = 0;
  #isDue = false;
  /** Counts up whenever what is here is carried out. */
  turn = 0;

  constructor(mq: MessageQueue & Partial<TakesTurns>) {
    const given = mq[AT_TURN_END];
    this.#atTurnEnd = given === undefined ? setImmediate : (callback) => given.call(mq, callback);
  }

  /** @param message good until the caller returns, one that `mayWait` */
  add<Q extends LogQueue | TaskQueue, T>(
    connection: Connection,
    put: Put<Q, T>,
    queue: Q & Partial<PutsEach<T>>,
    call: HotCall,
    durability: Durability | undefined,
    message: Buffer,
  ): void {
    if (this.#calls >= CALLS_MAX || this.#bytes + message.length > MESSAGES_BYTES_MAX) this.carryOut();
    this.#calls++;
    this.#bytes += message.length;
    const into = queue[PUTS_INTO] ?? queue;
    const run = this.#runs.get(into);
    if (run?.add(connection, call, durability, message) === true) return;
    run?.carryOut();
    this.#runs.set(into, new PutRun(put, queue, connection, call, durability, message));
    if (this.#isDue) return;
    this.#isDue = true;
    this.#atTurnEnd(this.#carryOut);
  }

  carryOut(): void {
    this.#isDue = false;
    this.turn++;
    this.#calls = 0;
    this.#bytes = 0;
    for (const run of this.#runs.values()) run.carryOut();
    this.#runs.clear();
  }
}

interface Run {
  /** Adds a call that is like those before. */
  add(connection: Connection, call: HotCall, durability: Durability | undefined, message: Buffer): boolean;
  carryOut(): void;
}

class PutRun<Q extends LogQueue | TaskQueue, T> implements Run {
  readonly #put: Put<Q, T>;
  readonly #queue: Q & Partial<PutsEach<T>>;
  readonly #method: HotCall["method"];
  readonly #durability: Durability | undefined;
  readonly #connections: Connection[] = [];
  readonly #ids: number[] = [];
  /** Undefined: they have none. */
  readonly #names: CallName[] | undefined;
  #messages: Buffer[] = [];

  constructor(
    put: Put<Q, T>,
    queue: Q,
    connection: Connection,
    call: HotCall,
    durability: Durability | undefined,
    message: Buffer,
  ) {
    this.#put = put;
    this.#queue = queue;
    this.#method = call.method;
    this.#durability = durability;
    this.#names = call.request === undefined ? undefined : [];
    this.#take(connection, call, message);
  }

  add(connection: Connection, call: HotCall, durability: Durability | undefined, message: Buffer): boolean {
    if (durability !== this.#durability || (call.request === undefined) !== (this.#names === undefined)) return false;
    this.#take(connection, call, message);
    return true;
  }

  #take(connection: Connection, { method, id, request }: HotCall, message: Buffer): void {
    connection.begun(method);
    this.#connections.push(connection);
    this.#ids.push(id);
    this.#names?.push(request as CallName);
    this.#messages.push(Buffer.from(message));
  }

  carryOut(): void {
    const messages = this.#messages;
    // They are not kept until the answers have come.
    this.#messages = [];
    const queue = this.#queue;
    const told =
      queue[PUT_EACH]?.(messages, this.#durability, this.#names) ??
      messages.map((message, index) => this.#one(message, this.#names?.[index]));
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

  /** Without options where the calls say nothing, which is what embedded queues are quickest with. */
  #one(message: Buffer, request: CallName | undefined): Promise<T> {
    const durability = this.#durability;
    const isPlain = durability === undefined && request === undefined;
    return this.#put.one(this.#queue, message, isPlain ? undefined : { durability, request });
  }

  #answer(index: number, told: T): void {
    const connection = this.#connections[index]!;
    const id = this.#ids[index]!;
    connection.done(this.#method, id);
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
    const connection = this.#connections[index]!;
    const id = this.#ids[index]!;
    connection.done(this.#method, id);
    connection.fail(id, error);
  }
}
