/**
 * What an embedded directory and its queues have besides the contract, for a server that is given many calls at once: those that
 * put one message into one queue can be collected until the turn of the event loop ends, and are then made together, queue by queue.
 */

import type { CallName } from "./call-name.js";
import type { Bytes, Durability, Input } from "./contract.js";

export const AT_TURN_END: unique symbol = Symbol("varve.atTurnEnd");
export const PUTS_INTO: unique symbol = Symbol("varve.putsInto");
export const PUT_EACH: unique symbol = Symbol("varve.putEach");

export interface TakesTurns {
  /** Calls back once, before what this turn has changed is written: calls that are made then share its commit. */
  [AT_TURN_END](callback: () => void): void;
}

export interface PutsEach<T, I = Bytes> {
  /** The same for all that have opened one queue, and for no other queue. */
  readonly [PUTS_INTO]: object;
  /**
   * Puts messages in, each as a call of its own, in their order and before it returns, so that nothing which comes later gets in
   * between: all by one commit, or each by one of its own where they cannot be staged together. What they hold may be used again
   * once it has returned. One promise for all, or one for each.
   * @param names of the calls, whoever makes them
   */
  [PUT_EACH](
    inputs: readonly Input<I>[],
    durability: Durability | undefined,
    names: readonly CallName[] | undefined,
  ): Promise<T[]> | Promise<T>[];
}
