import { ok, strictEqual, throws } from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Duration, Size } from "./contract.js";
import { isVarveError } from "./errors.js";
import { formatBytes, formatDuration, parseDuration, parseSize } from "./units.js";

test("durations become whole milliseconds", () => {
  const cases: [Duration, number][] = [
    [0, 0],
    [250, 250],
    ["0ms", 0],
    ["250ms", 250],
    ["30s", 30_000],
    ["5m", 300_000],
    ["2h", 7_200_000],
    ["7d", 604_800_000],
    ["1.5h", 5_400_000],
    ["1.1s", 1100],
    ["4.35s", 4350],
    ["30 s", 30_000],
  ];
  for (const [given, ms] of cases) strictEqual(parseDuration(given, "lease"), ms, String(given));
});

test("fractions of a millisecond are rounded up", () => {
  strictEqual(parseDuration(0.2, "delay"), 1);
  strictEqual(parseDuration(10.5, "delay"), 11);
  strictEqual(parseDuration("0.0015s", "delay"), 2);
});

test("sizes become whole bytes", () => {
  const cases: [Size, number][] = [
    [0, 0],
    [4096, 4096],
    ["0B", 0],
    ["512KiB", 524_288],
    ["64MiB", 67_108_864],
    ["10GiB", 10_737_418_240],
    ["1TiB", 1_099_511_627_776],
    ["1kB", 1000],
    ["1KB", 1000],
    ["1MB", 1_000_000],
    ["1.5 GB", 1_500_000_000],
    ["1TB", 1_000_000_000_000],
  ];
  for (const [given, bytes] of cases) strictEqual(parseSize(given, "cacheBytes"), bytes, String(given));
});

const BAD_FOR_BOTH = [
  -1,
  Number.NaN,
  Number.POSITIVE_INFINITY,
  2 ** 53,
  "",
  " ",
  "5",
  "-5s",
  "-5B",
  "1e3ms",
  "1e3B",
  "s",
  "ten",
  true,
];

test("a bad duration is refused, naming option, text and what is allowed", () => {
  for (const bad of [...BAD_FOR_BOTH, "5S", "5 weeks", "5sec", "1h30m", "5s ", "999999999999999d", null, 5n, {}, [5]]) {
    throws(
      () => parseDuration(bad as Duration, "lease"),
      (error) => isVarveError(error, "ERR_OPTION") && /^lease must be .*\bms, s, m, h, d\b/.test(error.message),
      String(bad),
    );
  }
  throws(() => parseDuration("5 weeks", "lease"), /got "5 weeks"/);
});

test("a bad size is refused, naming option, text and what is allowed", () => {
  for (const bad of [...BAD_FOR_BOTH, 1.5, "5Mb", "5M", "5mib", "5 MiB ", "999999999999TiB", null, 5n, {}, [5]]) {
    throws(
      () => parseSize(bad as Size, "cacheBytes"),
      (error) => isVarveError(error, "ERR_OPTION") && /^cacheBytes must be .*KiB, MiB/.test(error.message),
      String(bad),
    );
  }
  throws(() => parseSize("5Mb", "cacheBytes"), /got "5Mb"/);
});

test("formats for people", () => {
  const durations: [number, string][] = [
    [0, "0ms"],
    [0.26, "0.3ms"],
    [999, "999ms"],
    [1000, "1s"],
    [1500, "1.5s"],
    [59_999, "1m"],
    [90_000, "1.5m"],
    [5_400_000, "1.5h"],
    [2_592_000_000, "30d"],
    [-1500, "-1.5s"],
    [Number.POSITIVE_INFINITY, "Infinity"],
  ];
  for (const [ms, shown] of durations) strictEqual(formatDuration(ms), shown);
  const sizes: [number, string][] = [
    [0, "0B"],
    [1023, "1023B"],
    [1024, "1KiB"],
    [1_572_864, "1.5MiB"],
    [1_048_575, "1MiB"],
    [10_737_418_240, "10GiB"],
  ];
  for (const [bytes, shown] of sizes) strictEqual(formatBytes(bytes), shown);
});

test("what is formatted can be read again, and is within a tenth of its unit", () => {
  fc.assert(
    fc.property(fc.nat({ max: 2 ** 45 }), (value) => {
      const ms = parseDuration(formatDuration(value), "x");
      const bytes = parseSize(formatBytes(value), "x");
      ok(Math.abs(ms - value) <= value * 0.05 + 1);
      ok(Math.abs(bytes - value) <= value * 0.05 + 1);
    }),
  );
});
