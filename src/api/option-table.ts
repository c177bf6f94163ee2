/**
 * A small validator for option objects. A set of options is a table: under each name that is used inside, the name that
 * callers give, the default and the check. `resolver` turns a table into the function that checks a caller's object.
 */

import type { Codec } from "./codec.js";
import type { Duration, Headers, Logger, LogPosition, Size } from "./contract.js";
import { VarveError } from "./errors.js";
import { describeObject, show } from "./show.js";
import { formatBytes, formatDuration, parseDuration, parseSize } from "./units.js";

const METADATA_BYTES_MAX = 4096;

export interface Option<T> {
  /** As callers write it. */
  readonly name: string;
  readonly default: T;
  /** Refuses an object without it; there is no default then. */
  readonly required?: boolean;
  /** The value as used inside; throws `ERR_OPTION`. `name` is the option's full name (`backoff.initial`). */
  readonly parse: (value: unknown, name: string) => T;
}

/** From the names used inside to the options they come from. */
export type Table<R> = { readonly [K in keyof R]: Option<R[K]> };

export type Resolve<R> = (options?: unknown) => Readonly<R>;

/**
 * The checking function for a table. `undefined` yields one shared frozen object of defaults at no cost.
 * @param where how messages name the call: `open()`
 * @param prefix stands before the names of options inside an option: `backoff.`
 */
export function resolver<R extends object>(where: string, table: Table<R>, prefix = ""): Resolve<R> {
  const entries = Object.entries(table) as [string, Option<unknown>][];
  const byName = new Map(entries.map(([field, option]) => [option.name, { field, option }]));
  const required = entries.map(([, option]) => option).filter((option) => option.required === true);
  const defaults = Object.freeze(Object.fromEntries(entries.map(([field, option]) => [field, option.default])));

  return (options) => {
    if (options === undefined && required.length === 0) return defaults as Readonly<R>;
    if (options !== undefined && (typeof options !== "object" || options === null || Array.isArray(options))) {
      throw optionError(prefix.slice(0, -1) || "options", `${where} takes an object of options; got ${show(options)}`);
    }
    const given = (options ?? {}) as Record<string, unknown>;
    const resolved: Record<string, unknown> = { ...defaults };
    for (const name in given) {
      const known = byName.get(name);
      if (known === undefined) throw unknownOption(where, prefix, name, [...byName.keys()]);
      const value = given[name];
      if (value !== undefined) resolved[known.field] = known.option.parse(value, prefix + name);
    }
    for (const option of required) {
      if (given[option.name] === undefined) throw optionError(option.name, `${where} needs the option ${option.name}`);
    }
    return Object.freeze(resolved) as Readonly<R>;
  };
}

/** The table without some of its options, for calls that do not take them. */
export function without<R, K extends keyof R>(table: Table<R>, ...fields: K[]): Table<Omit<R, K>> {
  const copy: Partial<Table<R>> = { ...table };
  for (const field of fields) delete copy[field];
  return copy as Table<Omit<R, K>>;
}

export function optionError(option: string, message: string): VarveError {
  return new VarveError("ERR_OPTION", message, { details: { option } });
}

// ------------------------------------------------------------------------------------------------- kinds of options

/** Makes the option's default `undefined`, for "not given". */
export function optional<T>(option: Option<T>): Option<T | undefined> {
  return { ...option, default: undefined };
}

export function required<T>(option: Option<T>): Option<T> {
  return { ...option, required: true };
}

/** Takes `Infinity` as well, for "no limit", which resolves to 0; so does the default. */
export function limitless(option: Option<number>): Option<number> {
  return { ...withInfinity(option, 0), default: 0 };
}

/** Takes `Infinity` as well, which resolves to the largest whole number. */
export function endless(option: Option<number>): Option<number> {
  return withInfinity(option, Number.MAX_SAFE_INTEGER);
}

function withInfinity(option: Option<number>, stored: number): Option<number> {
  return {
    ...option,
    parse: (given, fullName) => (given === Number.POSITIVE_INFINITY ? stored : option.parse(given, fullName)),
  };
}

export function flag(name: string, value: boolean): Option<boolean> {
  return option(name, value, "true or false", (given) => typeof given === "boolean");
}

export function choice<T extends string>(name: string, choices: readonly T[], value: T): Option<T> {
  const allowed = choices.map((item) => JSON.stringify(item)).join(" or ");
  return option(name, value, allowed, (given) => choices.includes(given as T));
}

/** Resolves to milliseconds. */
export function duration(name: string, minMs: number, maxMs: number, defaultMs = minMs): Option<number> {
  const allowed = `from ${formatDuration(minMs)} to ${formatDuration(maxMs)}`;
  return {
    name,
    default: defaultMs,
    parse: (given, fullName) =>
      inRange(parseDuration(given as Duration, fullName), given, fullName, minMs, maxMs, allowed),
  };
}

/** Resolves to bytes. */
export function size(name: string, minBytes: number, maxBytes: number, defaultBytes = minBytes): Option<number> {
  const allowed = `from ${formatBytes(minBytes)} to ${formatBytes(maxBytes)}`;
  return {
    name,
    default: defaultBytes,
    parse: (given, fullName) =>
      inRange(parseSize(given as Size, fullName), given, fullName, minBytes, maxBytes, allowed),
  };
}

export function integer(name: string, min: number, max: number, value = min): Option<number> {
  const allowed = `a whole number from ${min} to ${max === Number.MAX_SAFE_INTEGER ? "2^53 - 1" : max}`;
  return option(name, value, allowed, (given) => Number.isSafeInteger(given) && inside(given as number, min, max));
}

export function number(name: string, min: number, max: number, value = min): Option<number> {
  return option(name, value, `a number from ${min} to ${max}`, (given) => inside(given as number, min, max));
}

/** A number of deliveries, or Infinity, which resolves to 0. */
export function deliveries(name: string, max: number, value = 0): Option<number> {
  const { parse } = option<number>(
    name,
    value,
    `a whole number from 1 to ${max}, or Infinity`,
    (given) => given === Number.POSITIVE_INFINITY || (Number.isInteger(given) && inside(given as number, 1, max)),
  );
  return {
    name,
    default: value,
    parse: (given, fullName) => {
      const count = parse(given, fullName);
      return count === Number.POSITIVE_INFINITY ? 0 : count;
    },
  };
}

/** A moment of the wall clock; resolves to milliseconds since 1970. */
export function moment(name: string): Option<number | undefined> {
  return {
    name,
    default: undefined,
    parse: (given, fullName) => {
      if (isValidDate(given)) return given.getTime();
      throw refused(fullName, "a valid Date", given);
    },
  };
}

export function position(name: string, value: LogPosition): Option<LogPosition> {
  return option(
    name,
    value,
    '"start", "end", an offset (a whole number >= 0) or a valid Date',
    (given) => given === "start" || given === "end" || isOffset(given) || isValidDate(given),
  );
}

export function abortSignal(name: string): Option<AbortSignal | undefined> {
  // By shape, not by class: signals of other realms and of polyfills work as well.
  return option<AbortSignal | undefined>(name, undefined, "an AbortSignal", (given) => {
    const candidate = given as Partial<AbortSignal> | null;
    return (
      typeof candidate === "object" &&
      candidate !== null &&
      typeof candidate.aborted === "boolean" &&
      typeof candidate.addEventListener === "function"
    );
  });
}

/** An object with these methods. */
export function withMethods<T extends Logger | Codec<unknown, unknown>>(
  name: string,
  methods: readonly (keyof T & string)[],
  value: T,
): Option<T> {
  return option(name, value, `an object with the methods ${methods.join(", ")}`, (given) => {
    if (typeof given !== "object" || given === null) return false;
    return methods.every((method) => typeof (given as Record<string, unknown>)[method] === "function");
  });
}

export function messageKey(name: string): Option<string | Uint8Array | undefined> {
  return option<string | Uint8Array | undefined>(name, undefined, "a well-formed string or a Uint8Array", isMessageKey);
}

export function messageHeaders(name: string): Option<Headers | undefined> {
  return { name, default: undefined, parse: parseHeaders };
}

/** Names and values that are stored with a queue. */
export function storedMetadata(name: string): Option<Headers | undefined> {
  return {
    name,
    default: undefined,
    parse: (given, fullName) => {
      const metadata = { ...parseHeaders(given, fullName) };
      const bytes = Buffer.byteLength(JSON.stringify(metadata));
      if (bytes <= METADATA_BYTES_MAX) return Object.freeze(metadata);
      throw optionError(fullName, `${fullName} takes at most ${METADATA_BYTES_MAX} bytes as JSON; these are ${bytes}`);
    },
  };
}

/** Well-formed text of 1 to so many characters. */
export function text(name: string, lengthMax: number): Option<string | undefined> {
  return { name, default: undefined, parse: (given, fullName) => parseText(given, fullName, lengthMax) };
}

/** An array with a text, or undefined, for each of the inputs that it goes with. */
export function textPerInput(name: string, lengthMax: number): Option<readonly (string | undefined)[] | undefined> {
  return {
    name,
    default: undefined,
    parse: (given, fullName) => {
      if (!Array.isArray(given)) throw refused(fullName, "an array with a string or undefined for each input", given);
      return given.map((each, index) => {
        return each === undefined ? undefined : parseText(each, `${fullName}[${index}]`, lengthMax);
      });
    },
  };
}

export function strings(name: string): Option<readonly string[] | undefined> {
  return option<readonly string[] | undefined>(
    name,
    undefined,
    "an array of strings",
    (given) => Array.isArray(given) && given.every((item) => typeof item === "string"),
  );
}

/** An object of options inside an option. */
export function nested<R extends object>(
  name: string,
  where: string,
  table: Table<R>,
): Option<Readonly<R> | undefined> {
  return { name, default: undefined, parse: resolver(where, table, `${name}.`) };
}

// --------------------------------------------------------------------------------------------------------- the checks

export function isOffset(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** @throws VarveError `ERR_OPTION` */
export function parseText(value: unknown, option: string, lengthMax: number): string {
  if (typeof value === "string" && value.length > 0 && value.length <= lengthMax && value.isWellFormed()) return value;
  throw refused(option, `a well-formed string of 1 to ${lengthMax} characters`, value);
}

export function isMessageKey(value: unknown): value is string | Uint8Array {
  return typeof value === "string" ? value.isWellFormed() : value instanceof Uint8Array;
}

/** @throws VarveError `ERR_OPTION`, naming the header */
export function parseHeaders(value: unknown, option: string): Headers {
  if (typeof value !== "object" || value === null || Array.isArray(value) || value instanceof Map) {
    throw refused(option, "an object with string values", value);
  }
  for (const [header, text] of Object.entries(value)) {
    if (typeof text !== "string") throw refused(`${option}[${show(header)}]`, "a string", text);
    if (!text.isWellFormed() || !header.isWellFormed()) {
      throw refused(`${option}[${show(header)}]`, "well-formed text (it holds a lone surrogate)", text);
    }
  }
  return value as Headers;
}

export function refused(option: string, allowed: string, value: unknown): VarveError {
  const shown = typeof value === "object" && value !== null ? describeObject(value) : show(value);
  return optionError(option, `${option} must be ${allowed}; got ${shown}`);
}

function option<T>(name: string, value: T, allowed: string, accepts: (given: unknown) => boolean): Option<T> {
  return {
    name,
    default: value,
    parse: (given, fullName) => {
      if (accepts(given)) return given as T;
      throw refused(fullName, allowed, given);
    },
  };
}

function inRange(value: number, given: unknown, option: string, min: number, max: number, allowed: string): number {
  if (inside(value, min, max)) return value;
  throw refused(option, allowed, given);
}

function inside(value: unknown, min: number, max: number): boolean {
  return typeof value === "number" && value >= min && value <= max;
}

function isValidDate(value: unknown): value is Date {
  return value instanceof Date && !Number.isNaN(value.getTime());
}

// ------------------------------------------------------------------------------------------------------- did you mean

function unknownOption(where: string, prefix: string, name: string, known: readonly string[]): VarveError {
  const guess = closest(name, known);
  const hint = guess === undefined ? "" : ` Did you mean ${prefix}${guess}?`;
  const shown = /^\w{1,60}$/.test(name) ? `${prefix}${name}` : show(prefix + name);
  return optionError(prefix + name, `${where} has no option ${shown}.${hint} It takes ${known.join(", ")}.`);
}

/** The known name that was probably meant: one begins with the other, or few letters differ. */
function closest(name: string, known: readonly string[]): string | undefined {
  const wanted = name.toLowerCase().slice(0, 40);
  let best: string | undefined;
  let bestDistance = Math.max(2, Math.floor(wanted.length / 3)) + 1;
  for (const candidate of known) {
    const other = candidate.toLowerCase();
    const prefixed = wanted.length >= 3 && (other.startsWith(wanted) || wanted.startsWith(other));
    const distance = prefixed ? 0 : editDistance(wanted, other);
    if (distance < bestDistance && distance < other.length) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** Levenshtein: letters inserted, removed or replaced. */
function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let row = 1; row <= a.length; row++) {
    const current = [row];
    for (let column = 1; column <= b.length; column++) {
      const replaced = previous[column - 1]! + (a[row - 1] === b[column - 1] ? 0 : 1);
      current.push(Math.min(replaced, previous[column]! + 1, current[column - 1]! + 1));
    }
    previous = current;
  }
  return previous[b.length]!;
}
