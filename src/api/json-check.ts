/**
 * Finds what JSON would not bring back equal. One walk over the value, which allocates next to nothing while all is
 * well; the path is put together only on the way out with a problem.
 *
 * Lone surrogates are no problem: JSON.stringify escapes them and JSON.parse brings them back.
 */

import { describeObject, show } from "./show.js";

/** Deeper values are refused, so that neither a cycle nor a deep nest uses up the stack. */
const JSON_DEPTH_MAX = 1000;

const PATH_CHARS_MAX = 200;
const IDENTIFIER = /^[A-Za-z_$][\w$]*$/;

export interface JsonProblem {
  /** What stands there, with its article: "a Date". */
  readonly what: string;
  /** Where it stands: `$.items[3].at`. `$` is the value itself. */
  readonly path: string;
}

/** The first problem, in the order of JSON.stringify; undefined when `JSON.parse(JSON.stringify(value))` equals `value`. */
export function findJsonProblem(value: unknown): JsonProblem | undefined {
  const found = checkValue(value, 0);
  if (found === undefined) return undefined;
  if (found.tooDeep) {
    // Told apart only now, so that the walk need not remember its ancestors.
    const cycle = findCycle(value, []);
    if (typeof cycle === "string") return { what: "an object that contains itself", path: cutPath(`$${cycle}`) };
  }
  return { what: found.what, path: cutPath(`$${found.path}`) };
}

/** `path` grows from its end while the walk returns. */
interface Found {
  readonly what: string;
  readonly tooDeep: boolean;
  path: string;
}

function problem(what: string, tooDeep = false): Found {
  return { what, tooDeep, path: "" };
}

function checkValue(value: unknown, depth: number): Found | undefined {
  switch (typeof value) {
    case "string":
    case "boolean":
      return undefined;
    case "number":
      // NaN, Infinity and -Infinity become null, -0 becomes 0.
      if (Number.isFinite(value) && !Object.is(value, -0)) return undefined;
      return problem(show(value));
    case "object":
      if (value === null) return undefined;
      return Array.isArray(value) ? checkArray(value, depth) : checkObject(value, depth);
    case "bigint":
      return problem("a BigInt");
    default:
      return problem(show(value));
  }
}

function checkArray(array: readonly unknown[] & { toJSON?: unknown }, depth: number): Found | undefined {
  if (depth === JSON_DEPTH_MAX) return tooDeep();
  if (typeof array.toJSON === "function") return problem("an array with a toJSON method");
  // Array.prototype, of whichever realm, is itself an array; the prototype of a subclass is not.
  if (!Array.isArray(Object.getPrototypeOf(array))) return problem("an instance of a subclass of Array");
  const length = array.length;
  for (let index = 0; index < length; index++) {
    const found = checkValue(array[index], depth + 1);
    if (found !== undefined) {
      found.path = `[${index}]${found.path}`;
      return found;
    }
  }
  // No hole got here, as it reads as undefined; so any further key is a name.
  if (Object.keys(array).length !== length || hasSymbolKeys(array)) return problem("an array with named properties");
  return undefined;
}

function checkObject(object: object & { toJSON?: unknown }, depth: number): Found | undefined {
  if (depth === JSON_DEPTH_MAX) return tooDeep();
  const prototype: object | null = Object.getPrototypeOf(object);
  if (prototype !== Object.prototype && !isObjectPrototype(prototype)) {
    return problem(prototype === null ? "an object without a prototype" : describeObject(object));
  }
  if (typeof object.toJSON === "function") return problem("an object with a toJSON method");
  for (const key of Object.keys(object)) {
    const found = checkValue((object as Record<string, unknown>)[key], depth + 1);
    if (found !== undefined) {
      found.path = `${step(key)}${found.path}`;
      return found;
    }
  }
  if (hasSymbolKeys(object)) return problem("an object with symbol keys");
  return undefined;
}

function tooDeep(): Found {
  return problem(`a value nested more than ${JSON_DEPTH_MAX} levels deep`, true);
}

/** True for the Object.prototype of another realm (a vm context, as some test runners use). */
function isObjectPrototype(prototype: object | null): boolean {
  return (
    prototype !== null && Object.getPrototypeOf(prototype) === null && Object.hasOwn(prototype, "__lookupGetter__")
  );
}

function hasSymbolKeys(object: object): boolean {
  return Object.getOwnPropertySymbols(object).length > 0;
}

/**
 * The path, below `value`, to the first object that is its own ancestor. Visits in the walk's order and ends where the
 * walk did: null means that it got as deep without meeting a cycle.
 */
function findCycle(value: unknown, ancestors: object[]): string | null | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  if (ancestors.includes(value)) return "";
  if (ancestors.length === JSON_DEPTH_MAX) return null;
  ancestors.push(value);
  for (const key of Object.keys(value)) {
    const path = findCycle((value as Record<string, unknown>)[key], ancestors);
    if (path === null) return null;
    if (path !== undefined) return (Array.isArray(value) ? `[${key}]` : step(key)) + path;
  }
  ancestors.pop();
  return undefined;
}

function step(key: string): string {
  return IDENTIFIER.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`;
}

function cutPath(path: string): string {
  return path.length <= PATH_CHARS_MAX ? path : `${path.slice(0, PATH_CHARS_MAX)}...`;
}
