/** What a request is answered with. */

import { isVarveError } from "../api/errors.js";
import { Refusal } from "./request.js";

/** A value, and what comes before it. */
export interface Value {
  /** `VALUE <queue> 0 <bytes>` and the line end. */
  readonly head: string;
  readonly payload: Buffer;
}

/** One reply, or several for as many requests. A refusal ends the connection once it is written. */
export type Reply = string | Value | Refusal | readonly Reply[];

/** Behind the last value of a reply. */
export const VALUE_END = "\r\nEND\r\n";
export const NONE = "END\r\n";
export const STORED = "STORED\r\n";

/** What a `set` is answered with that failed. */
export function notStored(error: unknown): Reply {
  if (isVarveError(error, "ERR_QUEUE_FULL") || isVarveError(error, "ERR_TOO_LARGE")) return "NOT_STORED\r\n";
  return asRefusal(error);
}

export function asRefusal(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  if (isVarveError(error, "ERR_TOO_MANY_QUEUES")) return new Refusal("SERVER_ERROR too many queues");
  const text = isVarveError(error) ? `${error.code} ${error.message}` : String(error);
  return new Refusal(`SERVER_ERROR ${text.replace(/[^\x20-\x7e]+/g, " ").slice(0, 512)}`);
}
