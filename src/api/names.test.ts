import { ok, strictEqual, throws } from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isVarveError } from "./errors.js";
import { checkQueueName, nameToPath, pathToName } from "./names.js";

const CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-";
const name = fc.oneof(
  fc.string({ unit: fc.constantFrom(...CHARACTERS), minLength: 1, maxLength: 200 }),
  // Short names from few letters, so that two of them are often alike but for case.
  fc.string({ unit: fc.constantFrom("a", "A", "b", ".", ":", "-"), minLength: 1, maxLength: 4 }),
  fc.constantFrom("con", "Con", "CON.txt", "nul", "prn.a.b", "AUX", "com1", "LPT9.log", ".", "..", "...", ".x", "x."),
);

test("names that are allowed", () => {
  for (const good of ["a", "events", "eu:jobs", "A.b_c-D:9", "...", ".x", "x.", "x".repeat(200)]) {
    strictEqual(checkQueueName(good), good);
  }
});

test("anything else is refused, and shown escaped and cut", () => {
  const bad = [
    "",
    ".",
    "..",
    "a/b",
    "../a",
    "a\\b",
    "a b",
    "a\0",
    "a\n",
    "naïve",
    "日本",
    "\u202ea",
    "a\u0085",
    "a\u2028",
    "a%",
    "a+",
    "x".repeat(201),
    "😀",
  ];
  for (const value of [...bad, undefined, null, 5, {}, ["a"], Symbol("a"), new String("a")]) {
    throws(
      () => checkQueueName(value),
      (error) => isVarveError(error, "ERR_QUEUE_NAME") && error.message.length < 200 && !/\p{C}/u.test(error.message),
    );
  }
  throws(() => checkQueueName("a\0b"), /"a\\u0000b"/);
  throws(() => checkQueueName("x".repeat(5000)), /\(5000 characters\)/);
});

test("folder names, as documented", () => {
  const cases = {
    events: "events",
    "a.b_c-9": "a.b_c-9",
    "eu:jobs": "eu+jobs",
    Events: "%events%8",
    aB: "%ab%4",
    ABCDE: "%abcde%f8",
    "..": "%..%",
    ".hidden": "%.hidden%",
    "end.": "%end.%",
    con: "%con%",
    CON: "%con%e",
    "nul.txt": "%nul.txt%",
    console: "console",
    com: "com",
    com1: "%com1%",
  };
  for (const [from, to] of Object.entries(cases)) strictEqual(nameToPath(from), to);
});

test("a folder name leads back to its name", () => {
  fc.assert(
    fc.property(name, (value) => strictEqual(pathToName(nameToPath(value)), value)),
    { numRuns: 2000 },
  );
});

test("no two names share a folder, even where case does not count", () => {
  fc.assert(
    fc.property(name, name, (a, b) => {
      fc.pre(a !== b);
      ok(nameToPath(a).toLowerCase() !== nameToPath(b).toLowerCase());
    }),
    { numRuns: 5000 },
  );
});

test("a folder name is safe everywhere and fits", () => {
  const check = (value: string) => {
    const path = nameToPath(value);
    ok(/^[a-z0-9_.%+-]+$/.test(path), path);
    ok(!path.startsWith(".") && !path.endsWith("."), path);
    ok(!/^(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)/.test(path), path);
    ok(path.length <= 255, path);
  };
  fc.assert(fc.property(name, check), { numRuns: 2000 });
  check("Z".repeat(200));
  check(":".repeat(200));
  check(".".repeat(200));
});

test("what nameToPath never makes belongs to no queue", () => {
  for (const path of [
    "",
    ".",
    "..",
    "Events",
    "%events%",
    "%events%0",
    "%events%80",
    "%Events%8",
    "%events%F",
    "%1%8",
    "con",
    "a:b",
    "a b",
    "a/b",
    "%",
    "%%",
    "%a",
    "lost+found+",
    "tmp~",
    "%ab%8%",
    `%${"a".repeat(201)}%8`,
  ]) {
    const back = pathToName(path);
    ok(back === undefined || nameToPath(back) === path, path);
  }
  for (const path of ["Events", "%events%", "%events%80", "%1%8", "con", "a:b", ".", "..", "%a"]) {
    strictEqual(pathToName(path), undefined, path);
  }
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom(..."%aA1.+:f8"), maxLength: 8 }), (path) => {
      const back = pathToName(path);
      ok(back === undefined || nameToPath(back) === path);
    }),
    { numRuns: 5000 },
  );
});
