/**
 * Values, protocol 1: what is no hot call travels as tagged values that describe themselves. Spec: docs/protocol.md
 *
 *   tag u8, then
 *   0 undefined   1 null   2 false   3 true
 *   4 integer      u64, 0 to 2^53 - 1
 *   5 number       f64
 *   6 string       u32 length, UTF-8
 *   7 bytes        u32 length, bytes
 *   8 date         f64, milliseconds since 1970
 *   9 big integer  u32 length, decimal digits
 *  10 array        u32 count, values
 *  11 map          u32 count, then for each a u32 length, its name in UTF-8, and a value
 *  12 error        code, message (strings as above), details (a value), cause (a value)
 */

import { type ErrorCode, type ErrorDetails, isVarveError, VarveError } from "../api/errors.js";
import { show } from "../api/show.js";
import { type Input, malformed } from "./input.js";
import type { Output } from "./output.js";

/** On the wire: append, never renumber. */
const Tag = {
  undefined: 0,
  null: 1,
  false: 2,
  true: 3,
  integer: 4,
  number: 5,
  string: 6,
  bytes: 7,
  date: 8,
  bigint: 9,
  array: 10,
  map: 11,
  error: 12,
} as const;

/** More than JSON that varve keeps can have. */
const DEPTH_MAX = 1100;

/** @throws VarveError `ERR_ARGUMENT`: there is no way to send such a value */
export function writeValue(output: Output, value: unknown, depth = 0): void {
  if (depth > DEPTH_MAX) throw new VarveError("ERR_ARGUMENT", `a value is nested more than ${DEPTH_MAX} levels deep`);
  switch (typeof value) {
    case "undefined":
      output.u8(Tag.undefined);
      return;
    case "boolean":
      output.u8(value ? Tag.true : Tag.false);
      return;
    case "number":
      if (Number.isSafeInteger(value) && value >= 0 && !Object.is(value, -0)) {
        output.u8(Tag.integer);
        output.u64(value);
      } else {
        output.u8(Tag.number);
        output.f64(value);
      }
      return;
    case "string":
      output.u8(Tag.string);
      output.data(value);
      return;
    case "bigint":
      output.u8(Tag.bigint);
      output.data(String(value));
      return;
    case "object":
      writeObject(output, value, depth);
      return;
    default:
      throw new VarveError("ERR_ARGUMENT", `${show(value)} cannot be sent to a daemon`);
  }
}

function writeObject(output: Output, value: object | null, depth: number): void {
  if (value === null) {
    output.u8(Tag.null);
  } else if (value instanceof Uint8Array) {
    output.u8(Tag.bytes);
    output.data(value);
  } else if (value instanceof Date) {
    output.u8(Tag.date);
    output.f64(value.getTime());
  } else if (Array.isArray(value)) {
    output.u8(Tag.array);
    output.u32(value.length);
    for (const member of value) writeValue(output, member, depth + 1);
  } else if (value instanceof Error) {
    writeError(output, value, depth);
  } else {
    const names = Object.keys(value);
    output.u8(Tag.map);
    output.u32(names.length);
    for (const name of names) {
      output.data(name);
      writeValue(output, (value as Record<string, unknown>)[name], depth + 1);
    }
  }
}

/** An error that is none of varve's keeps its message, and the code that the system gave it. */
function writeError(output: Output, error: Error, depth: number): void {
  const code = (error as { code?: unknown }).code;
  output.u8(Tag.error);
  output.data(typeof code === "string" ? code : "");
  output.data(isVarveError(error) || error.name === "Error" ? error.message : `${error.name}: ${error.message}`);
  writeValue(output, isVarveError(error) ? error.details : undefined, depth + 1);
  writeValue(output, sendable(error.cause), depth + 1);
}

/** What caused an error may be anything that a codec threw. */
function sendable(cause: unknown): unknown {
  return cause === undefined || cause instanceof Error ? cause : show(cause);
}

/** @throws VarveError `ERR_PROTOCOL` */
export function readValue(input: Input, depth = 0): unknown {
  if (depth > DEPTH_MAX) throw malformed("a value that is nested too deep");
  const tag = input.u8();
  switch (tag) {
    case Tag.undefined:
      return undefined;
    case Tag.null:
      return null;
    case Tag.false:
      return false;
    case Tag.true:
      return true;
    case Tag.integer:
      return input.u64();
    case Tag.number:
      return input.f64();
    case Tag.string:
      return input.string();
    case Tag.bytes:
      return input.ownData();
    case Tag.date:
      return new Date(input.f64());
    case Tag.bigint:
      return readBigint(input);
    case Tag.array: {
      const values: unknown[] = [];
      for (let left = input.count(1); left > 0; left--) values.push(readValue(input, depth + 1));
      return values;
    }
    case Tag.map:
      return readMap(input, depth);
    case Tag.error:
      return readError(input, depth);
    default:
      throw malformed(`a value with the tag ${tag}`);
  }
}

function readBigint(input: Input): bigint {
  const digits = input.string();
  if (!/^-?\d{1,1000}$/.test(digits)) throw malformed("a big integer that is none");
  return BigInt(digits);
}

function readMap(input: Input, depth: number): Record<string, unknown> {
  const map: Record<string, unknown> = {};
  for (let left = input.count(5); left > 0; left--) {
    const name = input.string();
    const value = readValue(input, depth + 1);
    if (name === "__proto__") {
      // A plain assignment would set the prototype.
      Object.defineProperty(map, name, { value, writable: true, enumerable: true, configurable: true });
    } else {
      map[name] = value;
    }
  }
  return map;
}

function readError(input: Input, depth: number): Error {
  const code = input.string();
  const message = input.string();
  const details = readValue(input, depth + 1);
  const cause = readValue(input, depth + 1);
  if (!code.startsWith("ERR_")) {
    const error = new Error(message, cause === undefined ? undefined : { cause });
    return code === "" ? error : Object.assign(error, { code });
  }
  return new VarveError(code as ErrorCode, message, {
    ...(cause === undefined ? {} : { cause }),
    details:
      typeof details === "object" && details !== null && Object.keys(details).length > 0
        ? (details as ErrorDetails)
        : undefined,
  });
}
