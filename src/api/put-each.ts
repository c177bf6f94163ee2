import type { CallName } from "./call-name.js";
import type { Bytes, Durability, Input } from "./contract.js";

/** What a queue may have besides the contract, for a server that is given several calls at once. */
export const PUT_EACH: unique symbol = Symbol("varve.putEach");

export interface PutsEach<T, I = Bytes> {
  /**
   * Puts messages in, each as a call of its own, in their order and before it returns, so that nothing which comes later gets in
   * between: all by one commit, or each by one of its own where they cannot be staged together. What they hold may be used again
   * once it has returned. One promise for all, or one for each.
   * @param first name of the first call, whose number those behind it count on from
   */
  [PUT_EACH](
    inputs: readonly Input<I>[],
    durability: Durability | undefined,
    first: CallName | undefined,
  ): Promise<T[]> | Promise<T>[];
}
