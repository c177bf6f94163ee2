/** How payloads become bytes and back. */

import { isUtf8 } from "node:buffer";
import { isUint8Array } from "node:util/types";
import type { Bytes } from "./contract.js";
import { VarveError } from "./errors.js";
import { findJsonProblem } from "./json-check.js";
import { show } from "./show.js";

/**
 * Turns payloads of type `I` into bytes, and bytes into payloads of type `O`. Either direction may throw; varve's own
 * codecs throw `ERR_ENCODE` and `ERR_DECODE`.
 */
export interface Codec<I, O = I> {
  /** For messages to people. */
  readonly name: string;
  /** A string is stored as UTF-8, without a copy in between. Bytes are read before the call that passed them returns. */
  encode(value: I): string | Uint8Array;
  decode(bytes: Buffer): O;
}

const BYTES: Codec<Bytes, Buffer> = Object.freeze({
  name: "bytes",
  encode(value: Bytes): Bytes {
    if (typeof value === "string") return requireWellFormed(value);
    if (value instanceof Uint8Array || isUint8Array(value)) return value;
    throw new VarveError(
      "ERR_ENCODE",
      `a payload must be a string or a Uint8Array, unless the queue is opened with a codec such as json(); got ${show(value)}`,
    );
  },
  decode: (bytes: Buffer): Buffer => bytes,
});

const TEXT: Codec<string> = Object.freeze({
  name: "text",
  encode(value: string): string {
    if (typeof value === "string") return requireWellFormed(value);
    throw new VarveError("ERR_ENCODE", `the text codec takes a string; got ${show(value)}`);
  },
  decode: decodeUtf8,
});

const JSON_CODEC: Codec<unknown> = Object.freeze({
  name: "json",
  encode(value: unknown): string {
    let problem: ReturnType<typeof findJsonProblem>;
    let text: string;
    try {
      problem = findJsonProblem(value);
      text = problem === undefined ? JSON.stringify(value) : "";
    } catch (cause) {
      // A getter or proxy of the caller's threw.
      throw new VarveError("ERR_ENCODE", "the payload cannot be read as JSON: see `cause`", {
        cause,
        details: { path: "$" },
      });
    }
    if (problem === undefined) return text;
    throw new VarveError(
      "ERR_ENCODE",
      `JSON cannot bring back ${problem.what} at ${problem.path}; convert it first, or open the queue with another codec`,
      { details: { path: problem.path } },
    );
  },
  decode(bytes: Buffer): unknown {
    const text = decodeUtf8(bytes);
    try {
      return JSON.parse(text);
    } catch (cause) {
      throw new VarveError("ERR_DECODE", `the payload is not JSON: ${(cause as Error).message}`, {
        cause,
        details: { raw: bytes },
      });
    }
  },
});

/** Payloads are strings or bytes, and come back as bytes. What queues use when they are given no codec. */
export function bytes(): Codec<Bytes, Buffer> {
  return BYTES;
}

/** Payloads are strings, stored as UTF-8. Refuses lone surrogates, which UTF-8 has no place for. */
export function text(): Codec<string> {
  return TEXT;
}

/**
 * Payloads are JSON values. What JSON would bring back as something else (a Date, a Map, undefined, NaN, -0, a class
 * instance...) is refused with `ERR_ENCODE`, whose `details.path` says where it is. The type parameter is the caller's
 * promise: stored bytes are parsed, not checked against it.
 */
export function json<T = unknown>(): Codec<T> {
  return JSON_CODEC as Codec<T>;
}

function requireWellFormed(value: string): string {
  if (value.isWellFormed()) return value;
  throw new VarveError(
    "ERR_ENCODE",
    "the string holds a lone surrogate (half a character), which UTF-8 cannot store; use value.toWellFormed()",
  );
}

function decodeUtf8(bytes: Buffer): string {
  // Checked, because toString() replaces what is not UTF-8 without a word.
  if (isUtf8(bytes)) return bytes.toString("utf8");
  throw new VarveError("ERR_DECODE", "the payload is not UTF-8 text", { details: { raw: bytes } });
}
