/**
 * What embedded task queues and shared groups have besides the contract, for a server that is asked for tasks by many at once: calls of
 * `dequeue` without a name can be collected until the turn of the event loop ends, and are then given what is there together.
 */

import type { Durability, Headers } from "./contract.js";

export const TAKES_FROM: unique symbol = Symbol("varve.takesFrom");
export const TAKE_EACH: unique symbol = Symbol("varve.takeEach");

/** A task that a call is given. Good, with all that it holds, until the call has been told of it. */
export interface GivenTask {
  readonly id: string;
  /** Empty of one that is done as it is given. */
  readonly token: string;
  readonly attempt: number;
  readonly timestamp: number;
  readonly priority: number;
  readonly orderKey: string | undefined;
  readonly expiresAt: number | undefined;
  readonly key: Buffer | undefined;
  readonly headers: Headers;
  /** Where its payload stands. */
  readonly memory: Buffer;
  readonly payloadStart: number;
  readonly payloadEnd: number;
}

/** What calls in one line have in common. */
interface TakeTerms {
  readonly durability: Durability | undefined;
  /** What is given out is done. */
  readonly autoAck: boolean;
  /** In milliseconds. 0: while the session lasts; undefined: as the queue has it. */
  readonly leaseMs: number | undefined;
}

/**
 * Calls that want tasks, one behind the other, by their places in the line. Each is told once, by one of the methods, none of which may
 * throw: others are told behind it. Who has been told stays in its place.
 */
export interface TakeLine extends TakeTerms {
  readonly count: number;
  /** How many tasks it is given, at most. */
  maxOf(place: number): number;
  /**
   * Has those from a place on, up to another, leave for whom there is nobody any more, or who have to make their calls by themselves now,
   * as what they take from is closed. The others move up; returns the place behind the last of them.
   */
  weed(from: number, to: number): number;
  /** It does not want an answer before there is something. */
  waits(place: number): boolean;
  /** It has the tasks from an index on, before another one: none where it does not wait and there are none. */
  told(place: number, tasks: readonly GivenTask[], from: number, to: number): void;
  failed(place: number, error: unknown): void;
  /** Nothing has been done for it: it makes its call by itself, before this returns. */
  alone(place: number): void;
}

export interface TakesEach {
  /**
   * The same for all that hand out tasks of one queue, or one group, to be worked on by any of them. Undefined where a call is to be
   * made by itself.
   */
  [TAKES_FROM](): object | undefined;
  /** Gives to calls in their order, as if each had been made by itself. */
  [TAKE_EACH](line: TakeLine): void;
}
