/**
 * Calls that put one message each into a queue, with nothing said beyond it: those that a server is sent in one turn of the event
 * loop, over whatever connections, are handed over together, those for one queue as one run, which is one commit where that can
 * be (`PUT_EACH`). Each call is answered by itself. Those for one queue are made in the order in which they came; where a queue cannot be told
 * apart from another handle of it (no `PUTS_INTO`), those of one handle are.
 */

import type { CallName } from "../api/call-name.js";
import type { CommitOptions, Durability, LogQueue, MessageQueue, TaskQueue } from "../api/contract.js";
import { Payloads, PUT_EACH, PUTS_INTO, type PutsEach } from "../api/put-each.js";
import { turnEndOf } from "./turn-end.js";

/** Calls that are collected, at most, and the bytes of their messages, about. */
const CALLS_MAX = 512;
const MESSAGES_BYTES_MAX = 256 * 1024;

/**
 * A kind of call.
 * @typeParam P who makes them
 * @typeParam T what they are told
 */
export interface Put<Q, P, T> {
  /** Makes one by itself. */
  one(queue: Q, message: Buffer, options: CommitOptions | undefined): Promise<T>;
  /** Neither this nor `fail` may throw: others are told behind it. @param id by which whoever made it knows it */
  answer(putter: P, id: number, told: T): void;
  fail(putter: P, id: number, error: unknown): void;
}

/** What all connections of a server have collected in this turn. */
export class Puts {
  readonly #atTurnEnd: (callback: () => void) => void;
  readonly #carryOut = () => this.carryOut();
  #runs: Run[] = [];
  /** The run that there is now for what goes into a queue. */
  readonly #places = new WeakMap<object, Place>();
  /** Of this turn, the last one and what goes there: calls of one connection come several at a time. */
  #last: Place | undefined;
  #lastInto: object | undefined;
  #calls = 0;
  #bytes = 0;
  #isDue = false;
  /** Counts up whenever what is here is carried out. */
  turn = 0;
  /** That is under way. */
  isBusy = false;

  constructor(mq: MessageQueue) {
    this.#atTurnEnd = turnEndOf(mq);
  }

  /** @param memory in which a message stands from `start` to `end`; it stays as it is until that has been put in */
  add<Q extends LogQueue | TaskQueue, P, T>(
    put: Put<Q, P, T>,
    queue: Q & Partial<PutsEach<T>>,
    putter: P,
    id: number,
    name: CallName | undefined,
    durability: Durability | undefined,
    memory: Buffer,
    start: number,
    end: number,
  ): void {
    this.makeRoom(end - start);
    this.#calls++;
    this.#bytes += end - start;
    const place = this.#placeOf(queue[PUTS_INTO] ?? queue);
    const { run } = place;
    if (run?.takes(put, name !== undefined, durability) === true) {
      run.add(putter, id, name, memory, start, end);
      return;
    }
    // Behind the one before it.
    place.run = new PutRun(place, put, queue, putter, id, name, durability, new Payloads(memory, start, end));
    this.#runs.push(place.run);
    if (this.#isDue) return;
    this.#isDue = true;
    this.#atTurnEnd(this.#carryOut);
  }

  /** Carries out what is here unless another message can join it. */
  makeRoom(bytes: number): void {
    if (this.#calls >= CALLS_MAX || this.#bytes + bytes > MESSAGES_BYTES_MAX) this.carryOut();
  }

  carryOut(): void {
    this.#isDue = false;
    this.turn++;
    this.#calls = 0;
    this.#bytes = 0;
    const runs = this.#runs;
    this.#runs = [];
    this.#last = undefined;
    this.#lastInto = undefined;
    for (const run of runs) run.place.run = undefined;
    this.isBusy = true;
    try {
      for (const run of runs) run.carryOut();
    } finally {
      this.isBusy = false;
    }
  }

  #placeOf(into: object): Place {
    if (this.#last !== undefined && this.#lastInto === into) return this.#last;
    let place = this.#places.get(into);
    if (place === undefined) {
      place = { run: undefined };
      this.#places.set(into, place);
    }
    this.#last = place;
    this.#lastInto = into;
    return place;
  }
}

interface Place {
  run: Run | undefined;
}

interface Run {
  readonly place: Place;
  /** Whether calls of that kind can go with those that are there. */
  takes(put: unknown, isNamed: boolean, durability: Durability | undefined): boolean;
  add(putter: unknown, id: number, name: CallName | undefined, memory: Buffer, start: number, end: number): void;
  carryOut(): void;
}

class PutRun<Q extends LogQueue | TaskQueue, P, T> implements Run {
  readonly place: Place;
  readonly #put: Put<Q, P, T>;
  readonly #queue: Q & Partial<PutsEach<T>>;
  readonly #durability: Durability | undefined;
  readonly #putters: P[];
  readonly #ids: number[];
  /** Undefined: they have none. */
  readonly #names: CallName[] | undefined;
  #payloads: Payloads | undefined;

  constructor(
    place: Place,
    put: Put<Q, P, T>,
    queue: Q,
    putter: P,
    id: number,
    name: CallName | undefined,
    durability: Durability | undefined,
    payloads: Payloads,
  ) {
    this.place = place;
    this.#put = put;
    this.#queue = queue;
    this.#durability = durability;
    this.#putters = [putter];
    this.#ids = [id];
    this.#names = name === undefined ? undefined : [name];
    this.#payloads = payloads;
  }

  takes(put: unknown, isNamed: boolean, durability: Durability | undefined): boolean {
    return put === this.#put && isNamed === (this.#names !== undefined) && durability === this.#durability;
  }

  add(putter: P, id: number, name: CallName | undefined, memory: Buffer, start: number, end: number): void {
    this.#putters.push(putter);
    this.#ids.push(id);
    if (name !== undefined) this.#names?.push(name);
    this.#payloads!.add(memory, start, end);
  }

  carryOut(): void {
    const payloads = this.#payloads!;
    // They are not kept until the answers have come.
    this.#payloads = undefined;
    const queue = this.#queue;
    let told: Promise<T[]> | Promise<T>[];
    try {
      told =
        queue[PUT_EACH]?.(payloads, this.#durability, this.#names) ??
        this.#ids.map((_, index) => this.#one(payloads.at(index), this.#names?.[index]));
    } catch (error) {
      told = Promise.reject(error as Error);
    }
    if (Array.isArray(told)) {
      for (let index = 0; index < told.length; index++) {
        told[index]!.then(
          (value) => this.#put.answer(this.#putters[index]!, this.#ids[index]!, value),
          (error: unknown) => this.#put.fail(this.#putters[index]!, this.#ids[index]!, error),
        );
      }
      return;
    }
    told.then(
      (values) => {
        for (let index = 0; index < values.length; index++) {
          this.#put.answer(this.#putters[index]!, this.#ids[index]!, values[index]!);
        }
      },
      (error: unknown) => {
        for (let index = 0; index < this.#ids.length; index++) {
          this.#put.fail(this.#putters[index]!, this.#ids[index]!, error);
        }
      },
    );
  }

  /** Without options where the calls say nothing, which is what embedded queues are quickest with. */
  #one(message: Buffer, request: CallName | undefined): Promise<T> {
    const durability = this.#durability;
    const isPlain = durability === undefined && request === undefined;
    return this.#put.one(this.#queue, message, isPlain ? undefined : { durability, request });
  }
}
