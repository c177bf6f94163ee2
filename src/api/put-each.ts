/**
 * What an embedded directory and its queues have besides the contract, for a server that is given many calls at once: those that
 * put one message into one queue can be collected until the turn of the event loop ends, and are then made together, queue by queue.
 */

import type { CallName } from "./call-name.js";
import type { Durability } from "./contract.js";

export const AT_TURN_END: unique symbol = Symbol("varve.atTurnEnd");
export const PUTS_INTO: unique symbol = Symbol("varve.putsInto");
export const PUT_EACH: unique symbol = Symbol("varve.putEach");

export interface TakesTurns {
  /** Calls back once, before what this turn has changed is written: calls that are made then share its commit. */
  [AT_TURN_END](callback: () => void): void;
}

/** Messages that are nothing but a payload of bytes: where each stands in memory. No object is made for one. */
export class Payloads {
  readonly memories: Buffer[];
  readonly starts: number[];
  readonly ends: number[];
  /** Of all together. */
  bytes: number;

  /** Lists are made with their first: most stay at a few, and an empty one takes room for many when it gets it. */
  constructor(memory: Buffer, start: number, end: number) {
    this.memories = [memory];
    this.starts = [start];
    this.ends = [end];
    this.bytes = end - start;
  }

  get count(): number {
    return this.starts.length;
  }

  add(memory: Buffer, start: number, end: number): void {
    this.memories.push(memory);
    this.starts.push(start);
    this.ends.push(end);
    this.bytes += end - start;
  }

  /** A view of one. */
  at(index: number): Buffer {
    return this.memories[index]!.subarray(this.starts[index]!, this.ends[index]!);
  }

  views(): Buffer[] {
    return this.starts.map((_, index) => this.at(index));
  }
}

/** A queue that takes bytes as they are. */
export interface PutsEach<T> {
  /** The same for all that have opened one queue, and for no other queue. */
  readonly [PUTS_INTO]: object;
  /**
   * Puts messages in, each as a call of its own, in their order and before it returns, so that nothing which comes later gets in
   * between: all by one commit, or each by one of its own where they cannot be staged together. Their memory may be used again
   * once it has returned. One promise for all, or one for each.
   * @param names of the calls, whoever makes them
   */
  [PUT_EACH](
    payloads: Payloads,
    durability: Durability | undefined,
    names: readonly CallName[] | undefined,
  ): Promise<T[]> | Promise<T>[];
}
