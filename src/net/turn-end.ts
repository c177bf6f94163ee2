import type { MessageQueue } from "../api/contract.js";
import { AT_TURN_END, type TakesTurns } from "../api/put-each.js";

/** Calls back at the end of the turn, before what it has changed is written where that can be told. */
export function turnEndOf(mq: MessageQueue & Partial<TakesTurns>): (callback: () => void) => void {
  const given = mq[AT_TURN_END];
  return given === undefined ? (callback) => void setImmediate(callback) : (callback) => given.call(mq, callback);
}
