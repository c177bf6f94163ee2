/**
 * Calls that take tasks and arrive in one turn of the event loop, over whatever connections: those of one queue, or one group, are given
 * what is there together, in the order in which they came (`TAKE_EACH`), and each is answered by itself.
 */

import type { Durability, MessageQueue } from "../api/contract.js";
import { type GivenTask, TAKE_EACH, TAKES_FROM, type TakeLine, type TakesEach } from "../api/take-each.js";
import { turnEndOf } from "./turn-end.js";

/** Calls that are collected, at most. */
const CALLS_MAX = 512;

/** A call. None of what it is told may throw: others are told behind it. */
export interface Take {
  readonly source: Partial<TakesEach>;
  readonly max: number;
  readonly waits: boolean;
  readonly autoAck: boolean;
  /** 0: while the session lasts; undefined: as the queue has it. */
  readonly leaseMs: number | undefined;
  readonly durability: Durability | undefined;
  /** Nobody is there to be answered. */
  readonly isVain: boolean;
  told(tasks: readonly GivenTask[], from: number, to: number): void;
  failed(error: unknown): void;
  /** Makes the call by itself. */
  alone(): void;
  /** It is not made. */
  dropped(): void;
}

/** What all connections of a server have asked for in this turn. */
export class Takes {
  readonly #atTurnEnd: (callback: () => void) => void;
  readonly #carryOut = () => this.carryOut();
  #lines: Line[] = [];
  /** The line that there is now for what is taken from. */
  readonly #places = new WeakMap<object, Place>();
  #calls = 0;
  #isDue = false;
  /** Counts up whenever what is here is carried out. */
  turn = 0;

  constructor(mq: MessageQueue) {
    this.#atTurnEnd = turnEndOf(mq);
  }

  /** False where it has to be made by itself. */
  add(take: Take): boolean {
    const from = take.source[TAKES_FROM]?.();
    if (from === undefined) return false;
    if (this.#calls >= CALLS_MAX) this.carryOut();
    this.#calls++;
    const place = this.#placeOf(from);
    if (place.line?.accepts(take) === true) {
      place.line.takes.push(take);
      return true;
    }
    // Behind the one before it.
    place.line = new Line(place, take);
    this.#lines.push(place.line);
    if (this.#isDue) return true;
    this.#isDue = true;
    this.#atTurnEnd(this.#carryOut);
    return true;
  }

  carryOut(): void {
    this.#isDue = false;
    this.turn++;
    this.#calls = 0;
    const lines = this.#lines;
    this.#lines = [];
    for (const line of lines) line.place.line = undefined;
    for (const line of lines) line.carryOut();
  }

  #placeOf(from: object): Place {
    const known = this.#places.get(from);
    if (known !== undefined) return known;
    const place = { line: undefined };
    this.#places.set(from, place);
    return place;
  }
}

interface Place {
  line: Line | undefined;
}

class Line implements TakeLine {
  readonly place: Place;
  readonly durability: Durability | undefined;
  readonly autoAck: boolean;
  readonly leaseMs: number | undefined;
  readonly takes: Take[];

  constructor(place: Place, take: Take) {
    this.place = place;
    this.durability = take.durability;
    this.autoAck = take.autoAck;
    this.leaseMs = take.leaseMs;
    this.takes = [take];
  }

  get count(): number {
    return this.takes.length;
  }

  accepts({ autoAck, leaseMs, durability }: Take): boolean {
    return autoAck === this.autoAck && leaseMs === this.leaseMs && durability === this.durability;
  }

  carryOut(): void {
    if (this.takes.some(({ isVain }) => isVain)) this.weed(0, this.count);
    const [first] = this.takes;
    first?.source[TAKE_EACH]?.(this);
  }

  weed(from: number, to: number): number {
    const left: Take[] = [];
    for (const take of this.takes.slice(from, to)) {
      if (take.isVain) take.dropped();
      else if (take.source[TAKES_FROM]?.() === undefined) take.alone();
      else left.push(take);
    }
    this.takes.splice(from, to - from, ...left);
    return from + left.length;
  }

  maxOf(place: number): number {
    return this.takes[place]!.max;
  }

  waits(place: number): boolean {
    return this.takes[place]!.waits;
  }

  told(place: number, tasks: readonly GivenTask[], from: number, to: number): void {
    this.takes[place]!.told(tasks, from, to);
  }

  failed(place: number, error: unknown): void {
    this.takes[place]!.failed(error);
  }

  alone(place: number): void {
    this.takes[place]!.alone();
  }
}
