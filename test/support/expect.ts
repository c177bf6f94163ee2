import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { VarveError } from "../../src/index.js";

/** Expects a VarveError with this code, and a message that matches. Returns the error. */
export async function rejectsWith(
  code: string,
  attempt: Promise<unknown> | (() => unknown),
  message?: RegExp,
): Promise<VarveError> {
  let result: unknown;
  try {
    result = await (typeof attempt === "function" ? attempt() : attempt);
  } catch (error) {
    assert.ok(error instanceof VarveError, `expected a VarveError with ${code}, got ${describe(error)}`);
    assert.equal(error.code, code, `expected ${code}, got ${describe(error)}`);
    if (message !== undefined) assert.match(error.message, message);
    return error;
  }
  return assert.fail(`expected ${code}, but it resolved to ${describe(result)}`);
}

/** The code of the error that a promise rejects with; undefined if it resolves. */
export async function codeOf(attempt: Promise<unknown>): Promise<string | undefined> {
  try {
    await attempt;
    return undefined;
  } catch (error) {
    if (error instanceof VarveError) return error.code;
    throw error;
  }
}

/** Waits until the condition holds, by real time; fails after a generous limit. */
export async function eventually(
  what: string,
  condition: () => boolean | Promise<boolean>,
  pass: (ms: number) => Promise<void> = (ms) => sleep(ms),
): Promise<void> {
  for (let round = 0; round < 2400; round++) {
    if (await condition()) return;
    await pass(Math.min(50, 5 + round));
  }
  assert.fail(`never happened: ${what}`);
}

/** Runs the body; an error of its tells where it happened. */
export async function labelled<T>(where: () => string, body: () => Promise<T>): Promise<T> {
  try {
    return await body();
  } catch (error) {
    throw new Error(`${where()}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  }
}

function describe(value: unknown): string {
  if (value instanceof Error) {
    const code = (value as { code?: unknown }).code;
    return `${value.name} ${String(code ?? "without a code")}: ${value.message}`;
  }
  return String(value);
}
