import { deepStrictEqual, ok, strictEqual, throws } from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import { assert, ERRORS, isVarveError, VarveError } from "./errors.js";

test("an error carries code, cause and frozen details", () => {
  const cause = new Error("ENOSPC");
  const given = { file: "wal/1.wal", position: 8 };
  const error = new VarveError("ERR_DISK_FULL", "no space", { cause, details: given });
  strictEqual(error.name, "VarveError");
  strictEqual(error.code, "ERR_DISK_FULL");
  strictEqual(error.message, "no space");
  strictEqual(error.cause, cause);
  deepStrictEqual(error.details, { file: "wal/1.wal", position: 8 });
  ok(Object.isFrozen(error.details));
  ok(!Object.isFrozen(given), "the caller's object is left alone");
  ok(error instanceof Error);
  ok(error.stack?.startsWith("VarveError: no space"));
});

test("what an error lacks is not printed with it", () => {
  const error = new VarveError("ERR_CLOSED", "closed");
  deepStrictEqual(error.details, {});
  ok(Object.isFrozen(error.details));
  ok(!("cause" in error));
  ok(!inspect(error).includes("details"));
  ok(inspect(error).includes("code: 'ERR_CLOSED'"));
});

test("a cause of undefined is still a cause", () => {
  ok("cause" in new VarveError("ERR_IO", "failed", { cause: undefined }));
});

test("isVarveError knows the error, its code, and those of another copy of the module", async () => {
  const error = new VarveError("ERR_TOKEN", "no token");
  ok(isVarveError(error));
  ok(isVarveError(error, "ERR_TOKEN"));
  ok(!isVarveError(error, "ERR_CLOSED"));
  // A query makes the loader evaluate the module once more.
  const copy: typeof import("./errors.js") = await import(`${new URL("./errors.js", import.meta.url).href}?copy`);
  ok(copy.VarveError !== VarveError);
  const foreign = new copy.VarveError("ERR_CLOSED", "closed");
  ok(!(foreign instanceof VarveError));
  ok(isVarveError(foreign, "ERR_CLOSED"));
  ok(copy.isVarveError(error));
});

test("isVarveError refuses everything else", () => {
  for (const value of [
    undefined,
    null,
    "ERR_CLOSED",
    5,
    {},
    new Error("x"),
    { code: "ERR_CLOSED", name: "VarveError" },
  ]) {
    ok(!isVarveError(value), inspect(value));
  }
});

test("assert passes or throws ERR_INTERNAL", () => {
  assert(1, "fine");
  throws(() => assert(0, "cursor <= next"), { code: "ERR_INTERNAL", message: "broken invariant: cursor <= next" });
});

test("every code is named ERR_ and explained in one line", () => {
  const entries = Object.entries(ERRORS);
  ok(entries.length > 20);
  for (const [code, meaning] of entries) {
    ok(/^ERR_[A-Z]+(?:_[A-Z]+)*$/.test(code), code);
    ok(meaning.length > 10 && !meaning.includes("\n"), code);
  }
});
