import { deepStrictEqual, ok, strictEqual, throws } from "node:assert/strict";
import { test } from "node:test";
import { bytes, json } from "./codec.js";
import { isVarveError } from "./errors.js";
import * as options from "./options.js";

const KIB = 1024;
const MIB = 1024 * KIB;
const DAY_MS = 86_400_000;

type Resolve = (given?: unknown) => object;

/** The call is refused with `ERR_OPTION`, for this option, in words that match. */
function refuses(resolve: Resolve, given: unknown, option: string, message?: RegExp): void {
  throws(
    () => resolve(given),
    (error) => {
      ok(isVarveError(error, "ERR_OPTION"), String(error));
      strictEqual(error.details.option, option);
      if (message !== undefined) ok(message.test(error.message), error.message);
      return true;
    },
    `${resolve.name} ${JSON.stringify(given)}`,
  );
}

/** Both ends of a range are taken; what lies beyond them is not. */
function range(
  resolve: Resolve,
  option: string,
  field: string,
  ends: [given: unknown, value: number][],
  beyond: unknown[],
) {
  for (const [given, value] of ends) {
    const resolved = resolve({ [option]: given }) as Record<string, unknown>;
    strictEqual(resolved[field], value, `${option}: ${String(given)}`);
  }
  for (const given of beyond) refuses(resolve, { [option]: given }, option, new RegExp(`^${option} must be `));
}

test("defaults", () => {
  const { logger, ...open } = options.resolveOpenOptions();
  deepStrictEqual(open, {
    durability: "sync",
    syncIntervalMs: 250,
    create: true,
    shared: false,
    maxMessageBytes: 16 * MIB,
    walFileBytes: 64 * MIB,
    segmentBytes: 64 * MIB,
    cacheBytes: 16 * MIB,
    maxOpenFiles: 128,
    maxQueues: 0,
  });
  strictEqual(logger.info({}, "silent"), undefined);
  deepStrictEqual(options.resolveLogOptions(), {
    codec: bytes(),
    create: true,
    retention: undefined,
    compaction: undefined,
    limits: undefined,
    metadata: undefined,
  });
  deepStrictEqual(options.resolveGroupOptions(), { from: "start", sessionMs: 30_000 });
  deepStrictEqual(options.resolveGroupReadOptions(), { max: 1000, maxBytes: MIB, waitMs: 0, signal: undefined });
  deepStrictEqual(options.resolveTailOptions(), { from: "end", signal: undefined });
  deepStrictEqual(options.resolveBatchesOptions(), { from: "start", maxBytes: MIB, follow: false, signal: undefined });
  deepStrictEqual(options.resolveDequeueOptions(), {
    durability: undefined,
    request: undefined,
    waitMs: 0,
    signal: undefined,
    leaseMs: undefined,
    autoAck: false,
  });
  deepStrictEqual(options.resolveEnqueueOptions(), {
    durability: undefined,
    request: undefined,
    key: undefined,
    dedupeKey: undefined,
    orderKey: undefined,
    headers: undefined,
    priority: 0,
    delayMs: 0,
    atMs: undefined,
    ttlMs: undefined,
    expiresAtMs: undefined,
    maxAttempts: undefined,
  });
  deepStrictEqual(options.mergeTaskConfig(undefined, options.resolveTaskOptions()), {
    leaseMs: 30_000,
    maxAttempts: 5,
    backoff: { initialMs: 1000, maxMs: 300_000, factor: 2, jitter: 0.2 },
    ttlMs: 0,
    onExpire: "discard",
    dedupe: { windowMs: 600_000, maxKeys: 100_000 },
    limits: { maxCount: 0, maxBytes: 0, maxMessageBytes: 0, whenFull: "refuse" },
    resultTtlMs: 3_600_000,
    maxDeadLetters: 0,
    concurrency: 0,
    concurrencyPerKey: 1,
    lookAhead: 1000,
    rate: { limit: 0, perMs: 1000 },
    ageingMs: 0,
    metadata: {},
    paused: false,
  });
});

test("how tasks are handed out: limits, rates and keys that make no sense are refused by name", () => {
  const { resolveTaskSettings, resolveEnqueueOptions, mergeTaskConfig } = options;
  for (const concurrency of [0, -1, 1.5, "2"]) {
    throws(() => resolveTaskSettings({ concurrency }), { code: "ERR_OPTION", message: /concurrency/ });
  }
  throws(() => resolveTaskSettings({ concurrencyPerKey: Number.POSITIVE_INFINITY }), { message: /concurrencyPerKey/ });
  throws(() => resolveTaskSettings({ lookAhead: 0 }), { message: /lookAhead/ });
  throws(() => resolveTaskSettings({ maxDeadLetters: 0 }), { code: "ERR_OPTION", message: /maxDeadLetters/ });
  throws(() => resolveTaskSettings({ ageing: 0 }), { message: /ageing/ });
  throws(() => resolveTaskSettings({ rate: {} }), { message: /limit/ });
  throws(() => resolveTaskSettings({ rate: { limit: 0 } }), { message: /limit/ });
  throws(() => resolveTaskSettings({ rate: { limit: 1, per: 0 } }), { message: /per/ });
  throws(() => resolveTaskSettings({ rate: 5 }), { message: /rate/ });
  throws(() => resolveEnqueueOptions({ orderKey: "" }), { message: /orderKey/ });
  throws(() => resolveEnqueueOptions({ orderKey: "x".repeat(257) }), { message: /orderKey/ });
  const limited = mergeTaskConfig(undefined, resolveTaskSettings({ concurrency: 3, rate: { limit: 5, per: "1m" } }));
  deepStrictEqual([limited.concurrency, limited.rate], [3, { limit: 5, perMs: 60_000 }]);
  const unlimited = resolveTaskSettings({ concurrency: Number.POSITIVE_INFINITY, ageing: Number.POSITIVE_INFINITY });
  const merged = mergeTaskConfig(limited, unlimited);
  deepStrictEqual([merged.concurrency, merged.ageingMs, merged.rate.limit], [0, 0, 5]);
});

test("no options: one shared frozen object; some: a frozen one that leaves the caller's alone", () => {
  strictEqual(options.resolveDequeueOptions(undefined), options.resolveDequeueOptions());
  ok(Object.isFrozen(options.resolveDequeueOptions()));
  const given = { wait: "30s" };
  const resolved = options.resolveDequeueOptions(given);
  ok(Object.isFrozen(resolved));
  ok(!Object.isFrozen(given));
  strictEqual(resolved.waitMs, 30_000);
  strictEqual(options.resolveDequeueOptions().waitMs, 0, "the defaults are untouched");
});

test("undefined stands for not given", () => {
  deepStrictEqual(
    options.resolveDequeueOptions({ wait: undefined, lease: undefined }),
    options.resolveDequeueOptions(),
  );
  deepStrictEqual(options.resolveTaskOptions({ backoff: { max: undefined } }).backoff, {
    initialMs: undefined,
    maxMs: undefined,
    factor: undefined,
    jitter: undefined,
  });
});

test("unknown options are refused by name, with a guess", () => {
  refuses(options.resolveTaskOptions, { leese: 1 }, "leese", /openTask\(\) has no option leese\. Did you mean lease\?/);
  refuses(options.resolveTaskOptions, { leaseMs: 1 }, "leaseMs", /Did you mean lease\?/);
  refuses(options.resolveTaskOptions, { maxattempts: 1 }, "maxattempts", /Did you mean maxAttempts\?/);
  refuses(options.resolveTaskOptions, { backoff: { intial: 1 } }, "backoff.intial", /Did you mean backoff\.initial\?/);
  refuses(options.resolveOpenOptions, { zzz: 1 }, "zzz", /no option zzz\. It takes durability, /);
  refuses(options.resolveOpenOptions, { zzz: undefined }, "zzz");
  refuses(options.resolveOpenOptions, { constructor: 1 }, "constructor");
  refuses(options.resolveOpenOptions, JSON.parse('{"__proto__":1}'), "__proto__");
  refuses(options.resolveOpenOptions, { syncIntervalMs: 1 }, "syncIntervalMs", /Did you mean syncInterval\?/);
  refuses(options.resolveOpenOptions, { "a\n": 1 }, "a\n", /"a\\n"/);
});

test("options must be an object", () => {
  for (const given of [null, 5, "sync", true, [], () => 1]) {
    refuses(options.resolveOpenOptions, given, "options", /^open\(\) takes an object of options/);
  }
  refuses(options.resolveTaskOptions, { backoff: 5 }, "backoff");
  refuses(options.resolveTaskOptions, { backoff: null }, "backoff");
});

test("ranges", () => {
  const bad = [-1, Number.NaN, "x", null, {}];
  range(
    options.resolveOpenOptions,
    "syncInterval",
    "syncIntervalMs",
    [
      [1, 1],
      ["60s", 60_000],
    ],
    [0, "61s", ...bad],
  );
  range(
    options.resolveOpenOptions,
    "segmentBytes",
    "segmentBytes",
    [
      ["64KiB", 64 * KIB],
      ["1GiB", 1024 * MIB],
    ],
    [65_535, "1025MiB", ...bad],
  );
  range(options.resolveOpenOptions, "cacheBytes", "cacheBytes", [["4MiB", 4 * MIB]], ["3MiB", ...bad]);
  range(
    options.resolveOpenOptions,
    "walFileBytes",
    "walFileBytes",
    [
      ["256KiB", 256 * KIB],
      ["1GiB", 1024 * MIB],
    ],
    ["255KiB", "1025MiB", ...bad],
  );
  range(options.resolveOpenOptions, "maxOpenFiles", "maxOpenFiles", [[8, 8]], [7, 8.5, "8", ...bad]);
  range(
    options.resolveTaskOptions,
    "lease",
    "leaseMs",
    [
      [1, 1],
      ["30d", 30 * DAY_MS],
    ],
    [0, "31d", ...bad],
  );
  range(
    options.resolveTaskOptions,
    "maxAttempts",
    "maxAttempts",
    [
      [1, 1],
      [65_535, 65_535],
      [Number.POSITIVE_INFINITY, 0],
    ],
    [0, 65_536, 1.5, "5", ...bad],
  );
  range(
    options.resolveEnqueueOptions,
    "delay",
    "delayMs",
    [
      [0, 0],
      ["3650d", 3650 * DAY_MS],
    ],
    ["3651d", ...bad],
  );
  range(
    options.resolveDequeueOptions,
    "wait",
    "waitMs",
    [
      [0, 0],
      ["24d", 24 * DAY_MS],
    ],
    ["25d", ...bad],
  );
  range(
    options.resolveDequeueBatchOptions,
    "max",
    "max",
    [
      [1, 1],
      [65_536, 65_536],
    ],
    [0, 65_537, 1.5, "1", ...bad],
  );
  const backoff: Resolve = (given) => options.resolveTaskOptions({ backoff: given }).backoff ?? {};
  for (const given of [{ jitter: 0 }, { jitter: 1 }, { factor: 1 }, { factor: 100 }, { initial: 0 }]) backoff(given);
  refuses(backoff, { jitter: 1.1 }, "backoff.jitter", /a number from 0 to 1; got 1\.1/);
  refuses(backoff, { factor: 0.9 }, "backoff.factor");
  refuses(backoff, { factor: 101 }, "backoff.factor");
  refuses(backoff, { factor: Number.NaN }, "backoff.factor");
});

test("kinds of values", () => {
  refuses(options.resolveOpenOptions, { durability: "fsync" }, "durability", /must be "sync" or "async"; got "fsync"/);
  refuses(options.resolveOpenOptions, { create: "no" }, "create", /true or false/);
  refuses(options.resolveOpenOptions, { logger: {} }, "logger", /debug, info, warn, error/);
  strictEqual(options.resolveOpenOptions({ logger: console }).logger, console);
  refuses(options.resolveLogOptions, { codec: { encode() {} } }, "codec", /encode, decode/);
  refuses(options.resolveLogOptions, { codec: json }, "codec");
  strictEqual(options.resolveLogOptions({ codec: json() }).codec, json());
  refuses(options.resolveTailOptions, { signal: {} }, "signal", /AbortSignal/);
  const { signal } = new AbortController();
  strictEqual(options.resolveTailOptions({ signal }).signal, signal);
  refuses(options.resolveDequeueBatchOptions, {}, "max", /needs the option max/);
  refuses(options.resolveDequeueBatchOptions, undefined, "max", /needs the option max/);
});

test("settings of a log: zero keeps nothing, Infinity is no rule", () => {
  const { retention, limits } = options.resolveLogSettings({
    retention: { maxAge: "1h", maxBytes: Number.POSITIVE_INFINITY, holdForGroups: Number.POSITIVE_INFINITY },
    limits: { maxCount: Number.POSITIVE_INFINITY, maxBytes: "1KiB" },
  });
  deepStrictEqual(
    { ...retention },
    { maxAgeMs: 3_600_000, maxBytes: 0, maxCount: undefined, holdForGroupsMs: 2 ** 53 - 1 },
  );
  deepStrictEqual({ ...limits }, { maxCount: 0, maxBytes: 1024, maxMessageBytes: undefined, whenFull: undefined });
  for (const rule of ["maxAge", "maxBytes", "maxCount"]) {
    refuses(options.resolveLogSettings, { retention: { [rule]: 0 } }, `retention.${rule}`);
  }
  refuses(options.resolveLogSettings, { codec: json() }, "codec");
  refuses(options.resolveGroupOptions, { sessionTimeout: 0 }, "sessionTimeout");
});

test("settings of a log keep what is not given", () => {
  const first = options.resolveLogSettings({
    retention: { maxAge: "1h" },
    compaction: { grace: "1m" },
    metadata: { a: "1" },
  });
  const stored = options.mergeLogConfig(options.DEFAULT_LOG_CONFIG, first);
  const merged = options.mergeLogConfig(
    stored,
    options.resolveLogSettings({ retention: { maxCount: 5 }, compaction: true }),
  );
  strictEqual(merged.retention.maxAgeMs, 3_600_000);
  strictEqual(merged.retention.maxCount, 5);
  strictEqual(merged.compaction?.graceMs, 60_000);
  deepStrictEqual(merged.metadata, { a: "1" });
  const without = options.mergeLogConfig(merged, options.resolveLogSettings({ compaction: false, metadata: {} }));
  strictEqual(without.compaction, undefined);
  deepStrictEqual(without.metadata, {});
});

test("where reading starts", () => {
  const date = new Date(5);
  for (const from of ["start", "end", 0, 2 ** 53 - 1, date])
    strictEqual(options.resolveTailOptions({ from }).from, from);
  for (const from of ["begin", -1, 0.5, 2 ** 53, new Date(Number.NaN), null, "5"]) {
    refuses(options.resolveBatchesOptions, { from }, "from", /"start", "end", an offset/);
  }
});

test("keys and headers", () => {
  const key = Uint8Array.of(1);
  const headers = { "content-type": "text/plain", "": "" };
  const resolved = options.resolveAppendOptions({ key, headers, durability: "async" });
  deepStrictEqual(resolved, { durability: "async", request: undefined, key, headers });
  for (const bad of [5, null, {}, "half \ud800"]) {
    refuses(options.resolveAppendOptions, { key: bad }, "key");
    throws(() => options.checkMessageKey(bad), { code: "ERR_OPTION" });
  }
  for (const bad of [5, null, [], "a", new Map([["a", "b"]])]) {
    refuses(options.resolveAppendOptions, { headers: bad }, "headers");
    throws(() => options.checkMessageHeaders(bad), { code: "ERR_OPTION" });
  }
  refuses(options.resolveAppendOptions, { headers: { n: 5 } }, 'headers["n"]', /must be a string; got 5/);
  refuses(options.resolveAppendOptions, { headers: { "\ud800": "" } }, 'headers["\\ud800"]', /lone surrogate/);
  refuses(options.resolveAppendOptions, { headers: { a: "\ud800" } }, 'headers["a"]', /lone surrogate/);
  strictEqual(options.checkMessageKey("k"), "k");
  strictEqual(options.checkMessageKey(undefined), undefined);
  strictEqual(options.checkMessageHeaders(headers), headers);
  strictEqual(options.checkMessageHeaders(undefined), undefined);
});

test("a task is due after a delay or at a time, not both", () => {
  strictEqual(options.resolveEnqueueOptions({ at: new Date(5) }).atMs, 5);
  refuses(options.resolveEnqueueOptions, { at: new Date(5), delay: 0 }, "at", /not both/);
  refuses(options.resolveEnqueueOptions, { at: new Date(Number.NaN) }, "at", /a valid Date/);
  refuses(options.resolveEnqueueOptions, { at: 5 }, "at");
});

test("calls take only their own options", () => {
  refuses(options.resolveEnqueueBatchOptions, { key: "k" }, "key", /enqueueBatch\(\) has no option key/);
  refuses(options.resolveEnqueueBatchOptions, { at: new Date(5), delay: 0 }, "at");
  for (const resolve of [
    options.resolveTransactionAppendOptions,
    options.resolveTransactionEnqueueOptions,
    options.resolveTransactionNackOptions,
  ]) {
    refuses(resolve, { durability: "sync" }, "durability", /in a transaction has no option durability/);
  }
  strictEqual(options.resolveTransactionNackOptions({ delay: 5 }).delayMs, 5);
});

test("the WAL file must hold two of the largest messages", () => {
  refuses(
    options.resolveOpenOptions,
    { walFileBytes: "1MiB", maxMessageBytes: "1MiB" },
    "maxMessageBytes",
    /walFileBytes must be at least twice maxMessageBytes plus 64KiB: .*1048576 .*491520/,
  );
  refuses(options.resolveOpenOptions, { maxMessageBytes: "32MiB" }, "maxMessageBytes");
  const limit = (64 * MIB - 64 * KIB) / 2;
  strictEqual(options.resolveOpenOptions({ maxMessageBytes: limit }).maxMessageBytes, limit);
  refuses(options.resolveOpenOptions, { maxMessageBytes: limit + 1 }, "maxMessageBytes");
});

test("a small WAL file alone lowers the default limit of messages", () => {
  const small = options.resolveOpenOptions({ walFileBytes: "256KiB" });
  strictEqual(small.maxMessageBytes, 96 * KIB);
  ok(Object.isFrozen(small));
  strictEqual(options.resolveOpenOptions({ walFileBytes: "1GiB" }).maxMessageBytes, 16 * MIB);
});

test("stored settings of a task queue keep what is not given", () => {
  const stored = options.mergeTaskConfig(
    undefined,
    options.resolveTaskOptions({
      lease: "1m",
      maxAttempts: Number.POSITIVE_INFINITY,
      backoff: { initial: 0, factor: 3 },
    }),
  );
  deepStrictEqual(stored, {
    ...options.DEFAULT_TASK_CONFIG,
    leaseMs: 60_000,
    maxAttempts: 0,
    backoff: { initialMs: 0, maxMs: 300_000, factor: 3, jitter: 0.2 },
  });
  ok(Object.isFrozen(stored) && Object.isFrozen(stored.backoff));
  deepStrictEqual(options.mergeTaskConfig(stored, options.resolveTaskOptions()), stored);
  deepStrictEqual(
    options.mergeTaskConfig(stored, options.resolveTaskOptions({ maxAttempts: 7, backoff: { jitter: 0 } })),
    {
      ...stored,
      maxAttempts: 7,
      backoff: { initialMs: 0, maxMs: 300_000, factor: 3, jitter: 0 },
    },
  );
});

test("of backoff.initial and backoff.max, the one given holds", () => {
  const merge = (backoff: object) =>
    options.mergeTaskConfig(undefined, options.resolveTaskOptions({ backoff })).backoff;
  deepStrictEqual(merge({ initial: "10m" }), { initialMs: 600_000, maxMs: 600_000, factor: 2, jitter: 0.2 });
  deepStrictEqual(merge({ max: "100ms" }), { initialMs: 100, maxMs: 100, factor: 2, jitter: 0.2 });
  throws(() => merge({ initial: "2s", max: "1s" }), {
    code: "ERR_OPTION",
    message: /backoff\.max .*below backoff\.initial/,
  });
});

test("the reason of a nack: text or an error, cut at 1 KiB between characters", () => {
  const reason = (error: unknown) => options.resolveNackOptions({ error }).error;
  strictEqual(reason("boom"), "boom");
  strictEqual(reason(new TypeError("no id")), "TypeError: no id");
  strictEqual(reason(""), "");
  strictEqual(reason("half \ud800"), "half \ufffd");
  strictEqual(reason("x".repeat(1024)), "x".repeat(1024));
  strictEqual(reason("x".repeat(1025)), "x".repeat(1024));
  strictEqual(reason(`x${"é".repeat(600)}`), `x${"é".repeat(511)}`);
  strictEqual(reason(`xx${"😀".repeat(600)}`), `xx${"😀".repeat(255)}`);
  refuses(options.resolveNackOptions, { error: {} }, "error", /a string or an Error/);
  refuses(options.resolveNackOptions, { error: 5 }, "error");
});

test("the lease of extend()", () => {
  strictEqual(options.resolveLease(undefined), undefined);
  strictEqual(options.resolveLease("1m"), 60_000);
  throws(() => options.resolveLease(0), { code: "ERR_OPTION", message: /^lease must be from 1ms to 30d; got 0/ });
});

test("dead letters: paging and selecting", () => {
  deepStrictEqual(options.resolveDeadReadOptions(), { after: undefined, limit: 1000 });
  deepStrictEqual(options.resolveDeadReadOptions({ after: 0, limit: 5 }), { after: 0, limit: 5 });
  refuses(options.resolveDeadReadOptions, { limit: 0 }, "limit");
  refuses(options.resolveDeadReadOptions, { after: -1 }, "after");
  deepStrictEqual(options.resolveDeadSelection(), { ids: undefined, olderThanMs: undefined, limit: undefined });
  deepStrictEqual(options.resolveDeadSelection({ olderThan: "1h" }).olderThanMs, 3_600_000);
  refuses(options.resolveDeadSelection, { olderThan: "soon" }, "olderThan");
  refuses(options.resolveDeadSelection, { ids: ["a", 5] }, "ids");
  refuses(options.resolveDeadSelection, { ids: "a" }, "ids");
});

test("offsets", () => {
  for (const good of [0, 1, 2 ** 53 - 1]) strictEqual(options.checkOffset(good), good);
  for (const bad of [-1, 0.5, Number.NaN, 2 ** 53, "0", undefined, null, 0n]) {
    throws(() => options.checkOffset(bad), { code: "ERR_ARGUMENT", message: /^offset must be a whole number/ });
  }
});
