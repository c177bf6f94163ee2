/**
 * Options, checked once at the edge: unknown ones are refused by name, durations and sizes become numbers, what was left
 * out gets its default, and the result is frozen. Everything inside varve sees only what these functions return. All of
 * them throw `ERR_OPTION`.
 */

import { CallName, PRODUCER_BYTES, Producer } from "./call-name.js";
import { bytes, type Codec } from "./codec.js";
import type {
  Durability,
  Duration,
  Headers,
  Logger,
  LogPosition,
  StoredLogSettings,
  StoredTaskSettings,
} from "./contract.js";
import { assert, VarveError } from "./errors.js";
import { findJsonProblem } from "./json-check.js";
import { checkQueueName } from "./names.js";
import {
  abortSignal,
  choice,
  deliveries,
  duration,
  endless,
  flag,
  integer,
  isMessageKey,
  isOffset,
  limitless,
  messageHeaders,
  messageKey,
  moment,
  nested,
  number,
  type Option,
  optional,
  optionError,
  parseHeaders,
  position,
  refused,
  required,
  resolver,
  size,
  storedMetadata,
  strings,
  type Table,
  text,
  textPerInput,
  withMethods,
  without,
} from "./option-table.js";
import { show } from "./show.js";
import { formatBytes } from "./units.js";

const SECOND_MS = 1000;
const DAY_MS = 86_400 * SECOND_MS;
const KIB = 1024;
const MIB = 1024 * KIB;
const GIB = 1024 * MIB;

export const LEASE_MS_MAX = 30 * DAY_MS;
export const DELAY_MS_MAX = 3650 * DAY_MS;
/** A timer of the platform holds 2^31 - 1 ms, a little more than 24 days. */
export const WAIT_MS_MAX = 24 * DAY_MS;
export const ATTEMPTS_MAX = 65_535;
export const WAL_FILE_BYTES_MIN = 256 * KIB;
/** What a WAL file must hold besides two of the largest messages. */
export const WAL_FILE_SPARE_BYTES = 64 * KIB;
export const DEQUEUE_BATCH_MAX = 65_536;
export const FAILURE_TEXT_BYTES_MAX = KIB;
/** As JSON. */
export const RESULT_BYTES_MAX = 64 * KIB;
export const PROGRESS_BYTES_MAX = KIB;
/** In characters. */
export const DEDUPE_KEY_LENGTH_MAX = 256;
export const ORDER_KEY_LENGTH_MAX = 256;

/** "Not given": the directory's own durability applies. */
function durabilityOverride(): Option<Durability | undefined> {
  return optional(choice<Durability>("durability", ["sync", "async"], "sync"));
}

// ------------------------------------------------------------------------------------------------------------ opening

export interface ResolvedOpenOptions {
  readonly durability: Durability;
  readonly syncIntervalMs: number;
  readonly create: boolean;
  readonly shared: boolean;
  readonly maxMessageBytes: number;
  readonly walFileBytes: number;
  readonly segmentBytes: number;
  readonly cacheBytes: number;
  readonly maxOpenFiles: number;
  /** 0: any number. */
  readonly maxQueues: number;
  readonly logger: Logger;
}

const SILENT: Logger = Object.freeze({
  debug() {},
  info() {},
  warn() {},
  error() {},
});

const OPEN: Table<ResolvedOpenOptions> = {
  durability: choice<Durability>("durability", ["sync", "async"], "sync"),
  syncIntervalMs: duration("syncInterval", 1, 60 * SECOND_MS, 250),
  create: flag("create", true),
  shared: flag("shared", false),
  maxMessageBytes: size("maxMessageBytes", 1, GIB / 2, 16 * MIB),
  walFileBytes: size("walFileBytes", WAL_FILE_BYTES_MIN, GIB, 64 * MIB),
  segmentBytes: size("segmentBytes", 64 * KIB, GIB, 64 * MIB),
  cacheBytes: size("cacheBytes", 4 * MIB, 1024 * GIB, 16 * MIB),
  maxOpenFiles: integer("maxOpenFiles", 8, 1_000_000, 128),
  maxQueues: limitless(integer("maxQueues", 1, Number.MAX_SAFE_INTEGER)),
  logger: withMethods<Logger>("logger", ["debug", "info", "warn", "error"], SILENT),
};
assert(
  OPEN.walFileBytes.default >= 2 * OPEN.maxMessageBytes.default + WAL_FILE_SPARE_BYTES,
  "the defaults of walFileBytes and maxMessageBytes fit each other",
);

const resolveOpen = resolver("open()", OPEN);

export function resolveOpenOptions(options?: unknown): ResolvedOpenOptions {
  const resolved = resolveOpen(options);
  const messageBytesMax = Math.floor((resolved.walFileBytes - WAL_FILE_SPARE_BYTES) / 2);
  if (resolved.maxMessageBytes <= messageBytesMax) return resolved;
  if ((options as { maxMessageBytes?: unknown }).maxMessageBytes === undefined) {
    // Only a small WAL file was asked for: the default gives way.
    return Object.freeze({ ...resolved, maxMessageBytes: messageBytesMax });
  }
  throw optionError(
    "maxMessageBytes",
    `walFileBytes must be at least twice maxMessageBytes plus ${formatBytes(WAL_FILE_SPARE_BYTES)}: with walFileBytes ` +
      `${resolved.walFileBytes} (${formatBytes(resolved.walFileBytes)}), maxMessageBytes can be at most ${messageBytesMax}; ` +
      `got ${resolved.maxMessageBytes} (${formatBytes(resolved.maxMessageBytes)})`,
  );
}

/** Also `transaction()`, `appendBatch()`, `ack()`, ... : calls whose only option is the durability. */
export interface ResolvedCommitOptions {
  readonly durability: Durability | undefined;
  readonly request: CallName | undefined;
}

const COMMIT: Table<ResolvedCommitOptions> = {
  durability: durabilityOverride(),
  request: { name: "request", default: undefined, parse: parseRequest },
};

export const resolveCommitOptions = resolver("the call", COMMIT);

/** The name of a call that may be repeated. @throws VarveError `ERR_OPTION` */
export function resolveRequest(given: unknown): CallName {
  return parseRequest(given, "request");
}

const REQUEST = resolver<{ producer: Uint8Array; sequence: number; settled: number; each: boolean }>(
  "request",
  {
    producer: required({ name: "producer", default: new Uint8Array(), parse: parseProducer }),
    sequence: required(integer("sequence", 1, Number.MAX_SAFE_INTEGER)),
    settled: integer("settled", 0, Number.MAX_SAFE_INTEGER),
    each: flag("each", false),
  },
  "request.",
);

function parseRequest(given: unknown, option: string): CallName {
  if (given instanceof CallName) return given;
  const { producer, sequence, settled, each } = REQUEST(given);
  const name = CallName.of(new Producer(producer), sequence, settled, each);
  if (name !== undefined) return name;
  throw optionError(
    `${option}.settled`,
    `${option}.settled must be below its sequence: this call has not been answered yet`,
  );
}

function parseProducer(given: unknown, option: string): Uint8Array {
  if (given instanceof Uint8Array && given.length === PRODUCER_BYTES) return given;
  throw refused(option, `a Uint8Array of ${PRODUCER_BYTES} bytes`, given);
}

// ---------------------------------------------------------------------------------------------------------- log queue

type Given<T> = { readonly [K in keyof T]: T[K] | undefined };

/** What is stored with a log. */
export interface LogConfig {
  readonly retention: RetentionConfig;
  /** `undefined`: none. */
  readonly compaction: CompactionConfig | undefined;
  readonly limits: LimitsConfig;
  readonly metadata: Headers;
}

/** 0 everywhere: no such rule. */
export interface RetentionConfig {
  readonly maxAgeMs: number;
  readonly maxBytes: number;
  readonly maxCount: number;
  /** Infinity is kept as the largest whole number. */
  readonly holdForGroupsMs: number;
}

export interface CompactionConfig {
  readonly graceMs: number;
  readonly minDirty: number;
}

/** 0: no limit. */
export interface LimitsConfig {
  readonly maxCount: number;
  readonly maxBytes: number;
  readonly maxMessageBytes: number;
  readonly whenFull: "refuse" | "wait" | "drop-oldest";
}

export const DEFAULT_LOG_CONFIG: LogConfig = Object.freeze({
  retention: Object.freeze({ maxAgeMs: 0, maxBytes: 0, maxCount: 0, holdForGroupsMs: 0 }),
  compaction: undefined,
  limits: Object.freeze({ maxCount: 0, maxBytes: 0, maxMessageBytes: 0, whenFull: "refuse" as const }),
  metadata: Object.freeze({}),
});

/** What `compaction: true` means, and `compact()` of a log that says nothing. */
export const DEFAULT_COMPACTION: CompactionConfig = Object.freeze({ graceMs: DAY_MS, minDirty: 0.5 });

/** Settings of a log; `undefined` for what was not given. */
export interface ResolvedLogSettings {
  readonly retention: Given<RetentionConfig> | undefined;
  readonly compaction: false | Given<CompactionConfig> | undefined;
  readonly limits: Given<LimitsConfig> | undefined;
  readonly metadata: Headers | undefined;
}

export interface ResolvedLogOptions extends ResolvedLogSettings {
  readonly codec: Codec<unknown, unknown>;
  readonly create: boolean;
}

const LIMITS: Table<Given<LimitsConfig>> = {
  maxCount: optional(limitless(integer("maxCount", 1, Number.MAX_SAFE_INTEGER))),
  maxBytes: optional(limitless(size("maxBytes", 1, Number.MAX_SAFE_INTEGER))),
  maxMessageBytes: optional(limitless(size("maxMessageBytes", 1, GIB / 2))),
  whenFull: optional(choice<LimitsConfig["whenFull"]>("whenFull", ["refuse", "wait", "drop-oldest"], "refuse")),
};

const COMPACTION = resolver<Given<CompactionConfig>>(
  "compaction",
  { graceMs: optional(duration("grace", 0, DELAY_MS_MAX)), minDirty: optional(number("minDirty", 0, 1)) },
  "compaction.",
);

const LOG_SETTINGS: Table<ResolvedLogSettings> = {
  retention: nested<Given<RetentionConfig>>("retention", "retention", {
    maxAgeMs: optional(limitless(duration("maxAge", 1, 10 * DELAY_MS_MAX))),
    maxBytes: optional(limitless(size("maxBytes", 1, Number.MAX_SAFE_INTEGER))),
    maxCount: optional(limitless(integer("maxCount", 1, Number.MAX_SAFE_INTEGER))),
    holdForGroupsMs: optional(endless(duration("holdForGroups", 0, 10 * DELAY_MS_MAX))),
  }),
  compaction: {
    name: "compaction",
    default: undefined,
    parse: (given) => (given === false ? false : COMPACTION(given === true ? undefined : given)),
  },
  limits: nested<Given<LimitsConfig>>("limits", "limits", LIMITS),
  metadata: storedMetadata("metadata"),
};

export const resolveLogSettings = resolver("configure()", LOG_SETTINGS);

function codecOption(): Option<Codec<unknown, unknown>> {
  return withMethods<Codec<unknown, unknown>>("codec", ["encode", "decode"], bytes() as Codec<unknown, unknown>);
}

export const resolveLogOptions = resolver<ResolvedLogOptions>("openLog()", {
  ...LOG_SETTINGS,
  codec: codecOption(),
  create: flag("create", true),
});

/** What was given replaces what is stored (or the defaults, for a new log), member by member; metadata as a whole. */
export function mergeLogConfig(stored: LogConfig, given: ResolvedLogSettings): LogConfig {
  const compaction =
    given.compaction === undefined
      ? stored.compaction
      : given.compaction === false
        ? undefined
        : merged(stored.compaction ?? DEFAULT_COMPACTION, given.compaction);
  return Object.freeze({
    retention: merged(stored.retention, given.retention),
    compaction,
    limits: merged(stored.limits, given.limits),
    metadata: given.metadata ?? stored.metadata,
  });
}

function merged<T extends object>(stored: T, given: Given<T> | undefined): T {
  const changes = Object.entries(given ?? {}).filter(([, value]) => value !== undefined);
  return Object.freeze({ ...stored, ...Object.fromEntries(changes) });
}

/** A log's settings as callers are told of them. */
export function describeLogConfig({ retention, compaction, limits, metadata }: LogConfig): StoredLogSettings {
  const limit = (value: number) => (value === 0 ? Number.POSITIVE_INFINITY : value);
  const { holdForGroupsMs } = retention;
  return {
    retention: {
      maxAge: limit(retention.maxAgeMs),
      maxBytes: limit(retention.maxBytes),
      maxCount: limit(retention.maxCount),
      holdForGroups: holdForGroupsMs === Number.MAX_SAFE_INTEGER ? Number.POSITIVE_INFINITY : holdForGroupsMs,
    },
    compaction: compaction === undefined ? false : { grace: compaction.graceMs, minDirty: compaction.minDirty },
    limits: {
      maxCount: limit(limits.maxCount),
      maxBytes: limit(limits.maxBytes),
      maxMessageBytes: limit(limits.maxMessageBytes),
      whenFull: limits.whenFull,
    },
    metadata: { ...metadata },
  };
}

export interface ResolvedGroupOptions {
  readonly from: LogPosition;
  readonly sessionMs: number;
}

export const resolveGroupOptions = resolver<ResolvedGroupOptions>("group()", {
  from: position("from", "start"),
  sessionMs: endless(duration("sessionTimeout", 1, LEASE_MS_MAX, 30 * SECOND_MS)),
});

export interface ResolvedGroupReadOptions {
  readonly max: number;
  readonly maxBytes: number;
  readonly waitMs: number;
  readonly signal: AbortSignal | undefined;
}

export const resolveGroupReadOptions = resolver<ResolvedGroupReadOptions>("read()", {
  max: integer("max", 1, DEQUEUE_BATCH_MAX, 1000),
  maxBytes: size("maxBytes", 1, GIB, MIB),
  waitMs: duration("wait", 0, WAIT_MS_MAX),
  signal: abortSignal("signal"),
});

export const resolveCursorOptions = resolver<{ readonly create: boolean }>("cursor()", {
  create: flag("create", true),
});

/** The second argument of `seek()`. @throws VarveError `ERR_OPTION` */
export function resolvePosition(to: unknown): LogPosition {
  return POSITION.parse(to, "to");
}

const POSITION = position("to", "start");

export interface ResolvedAppendOptions extends ResolvedCommitOptions {
  readonly key: string | Uint8Array | undefined;
  readonly headers: Headers | undefined;
}

const APPEND: Table<ResolvedAppendOptions> = {
  ...COMMIT,
  key: messageKey("key"),
  headers: messageHeaders("headers"),
};

export const resolveAppendOptions = resolver("append()", APPEND);
export const resolveTransactionAppendOptions = resolver(
  "append() in a transaction",
  without<ResolvedAppendOptions, "durability" | "request">(APPEND, "durability", "request"),
);

export interface ResolvedTailOptions {
  readonly from: LogPosition;
  readonly signal: AbortSignal | undefined;
}

export const resolveTailOptions = resolver<ResolvedTailOptions>("tail()", {
  from: position("from", "end"),
  signal: abortSignal("signal"),
});

export interface ResolvedBatchesOptions {
  readonly from: LogPosition;
  readonly maxBytes: number;
  readonly follow: boolean;
  readonly signal: AbortSignal | undefined;
}

export const resolveBatchesOptions = resolver<ResolvedBatchesOptions>("batches()", {
  from: position("from", "start"),
  maxBytes: size("maxBytes", 1, GIB, MIB),
  follow: flag("follow", false),
  signal: abortSignal("signal"),
});

// --------------------------------------------------------------------------------------------------------- task queue

/** How a task queue treats its tasks; stored with the queue. */
export interface TaskConfig extends ConsumerConfig {
  /** 0: none. */
  readonly ttlMs: number;
  readonly onExpire: ExpiryConfig;
  readonly dedupe: DedupeConfig;
  readonly limits: LimitsConfig;
  /** 0: results are not kept. */
  readonly resultTtlMs: number;
  /** Leased at once; 0: any number. */
  readonly concurrency: number;
  readonly concurrencyPerKey: number;
  readonly lookAhead: number;
  readonly rate: RateConfig;
  /** 0: priorities are strict. */
  readonly ageingMs: number;
  readonly metadata: Headers;
  readonly paused: boolean;
}

/** `limit` 0: any number. */
export interface RateConfig {
  readonly limit: number;
  readonly perMs: number;
}

export type ExpiryConfig = "discard" | "dead" | { readonly moveTo: string };

/** How tasks are handed out, by a task queue or by a shared group. */
export interface ConsumerConfig {
  readonly leaseMs: number;
  /** 0: unlimited. */
  readonly maxAttempts: number;
  readonly backoff: BackoffConfig;
  /** 0: any number. */
  readonly maxDeadLetters: number;
}

export interface DedupeConfig {
  readonly windowMs: number;
  readonly maxKeys: number;
}

export interface BackoffConfig {
  readonly initialMs: number;
  readonly maxMs: number;
  readonly factor: number;
  readonly jitter: number;
}

export const DEFAULT_TASK_CONFIG: TaskConfig = Object.freeze({
  leaseMs: 30 * SECOND_MS,
  maxAttempts: 5,
  backoff: Object.freeze({ initialMs: SECOND_MS, maxMs: 300 * SECOND_MS, factor: 2, jitter: 0.2 }),
  maxDeadLetters: 0,
  ttlMs: 0,
  onExpire: "discard",
  dedupe: Object.freeze({ windowMs: 600 * SECOND_MS, maxKeys: 100_000 }),
  limits: DEFAULT_LOG_CONFIG.limits,
  resultTtlMs: 3600 * SECOND_MS,
  concurrency: 0,
  concurrencyPerKey: 1,
  lookAhead: 1000,
  rate: Object.freeze({ limit: 0, perMs: SECOND_MS }),
  ageingMs: 0,
  metadata: Object.freeze({}),
  paused: false,
});

/** The options of `openTask()`; `undefined` for what was not given. */
export interface ResolvedTaskOptions extends ResolvedTaskSettings {
  readonly codec: Codec<unknown, unknown>;
  readonly create: boolean;
}

export interface ResolvedTaskSettings {
  readonly leaseMs: number | undefined;
  readonly maxAttempts: number | undefined;
  readonly backoff: Given<BackoffConfig> | undefined;
  readonly ttlMs: number | undefined;
  readonly onExpire: ExpiryConfig | undefined;
  readonly dedupe: Given<DedupeConfig> | undefined;
  readonly limits: Given<LimitsConfig> | undefined;
  readonly resultTtlMs: number | undefined;
  readonly maxDeadLetters: number | undefined;
  readonly concurrency: number | undefined;
  readonly concurrencyPerKey: number | undefined;
  readonly lookAhead: number | undefined;
  readonly rate: RateConfig | undefined;
  readonly ageingMs: number | undefined;
  readonly metadata: Headers | undefined;
}

function leaseOption(): Option<number | undefined> {
  return optional(duration("lease", 1, LEASE_MS_MAX));
}

const CONSUMER: Table<Pick<ResolvedTaskSettings, keyof ConsumerConfig>> = {
  leaseMs: leaseOption(),
  maxAttempts: optional(deliveries("maxAttempts", ATTEMPTS_MAX)),
  backoff: nested<Given<BackoffConfig>>("backoff", "backoff", {
    initialMs: optional(duration("initial", 0, DELAY_MS_MAX)),
    maxMs: optional(duration("max", 0, DELAY_MS_MAX)),
    factor: optional(number("factor", 1, 100)),
    jitter: optional(number("jitter", 0, 1)),
  }),
  maxDeadLetters: optional(limitless(integer("maxDeadLetters", 1, Number.MAX_SAFE_INTEGER))),
};

const TASK: Table<ResolvedTaskSettings> = {
  ...CONSUMER,
  ttlMs: optional(limitless(duration("ttl", 1, DELAY_MS_MAX))),
  onExpire: { name: "onExpire", default: undefined, parse: parseOnExpire },
  dedupe: nested<Given<DedupeConfig>>("dedupe", "dedupe", {
    windowMs: optional(duration("window", 1, DELAY_MS_MAX)),
    maxKeys: optional(integer("maxKeys", 1, 10_000_000)),
  }),
  limits: nested<Given<LimitsConfig>>("limits", "limits", LIMITS),
  resultTtlMs: optional(duration("resultTtl", 0, DELAY_MS_MAX)),
  concurrency: optional(limitless(integer("concurrency", 1, Number.MAX_SAFE_INTEGER))),
  concurrencyPerKey: optional(integer("concurrencyPerKey", 1, 1_000_000)),
  lookAhead: optional(integer("lookAhead", 1, 100_000)),
  rate: nested<RateConfig>("rate", "rate", {
    limit: required(limitless(integer("limit", 1, Number.MAX_SAFE_INTEGER))),
    perMs: duration("per", 1, DELAY_MS_MAX, SECOND_MS),
  }),
  ageingMs: optional(limitless(duration("ageing", 1, DELAY_MS_MAX))),
  metadata: storedMetadata("metadata"),
};

export const resolveTaskSettings = resolver("configure()", TASK);

function parseOnExpire(value: unknown, option: string): ExpiryConfig {
  if (value === "discard" || value === "dead") return value;
  if (typeof value === "object" && value !== null && Object.keys(value).join() === "moveTo") {
    return Object.freeze({ moveTo: checkQueueName((value as { moveTo: unknown }).moveTo) });
  }
  throw refused(option, '"discard", "dead" or { moveTo: the name of a task queue }', value);
}

export const resolveTaskOptions = resolver<ResolvedTaskOptions>("openTask()", {
  ...TASK,
  codec: codecOption(),
  create: flag("create", true),
});

export interface ResolvedSharedGroupOptions extends Pick<ResolvedTaskSettings, keyof ConsumerConfig> {
  readonly from: LogPosition;
}

export const resolveSharedGroupOptions = resolver<ResolvedSharedGroupOptions>("sharedGroup()", {
  ...CONSUMER,
  from: position("from", "start"),
});

/** What was given replaces what is stored (or the defaults, for a new queue), member by member. */
export function mergeTaskConfig(stored: TaskConfig | undefined, given: ResolvedTaskSettings): TaskConfig {
  const base = stored ?? DEFAULT_TASK_CONFIG;
  return Object.freeze({
    ...mergeConsumerConfig(stored, given),
    ttlMs: given.ttlMs ?? base.ttlMs,
    onExpire: given.onExpire ?? base.onExpire,
    dedupe: Object.freeze({
      windowMs: given.dedupe?.windowMs ?? base.dedupe.windowMs,
      maxKeys: given.dedupe?.maxKeys ?? base.dedupe.maxKeys,
    }),
    limits: merged(base.limits, given.limits),
    resultTtlMs: given.resultTtlMs ?? base.resultTtlMs,
    concurrency: given.concurrency ?? base.concurrency,
    concurrencyPerKey: given.concurrencyPerKey ?? base.concurrencyPerKey,
    lookAhead: given.lookAhead ?? base.lookAhead,
    rate: given.rate ?? base.rate,
    ageingMs: given.ageingMs ?? base.ageingMs,
    metadata: given.metadata ?? base.metadata,
    paused: base.paused,
  });
}

/** A task queue's settings as callers are told of them. */
export function describeTaskConfig(config: TaskConfig): StoredTaskSettings {
  const { leaseMs, maxAttempts, backoff, ttlMs, onExpire, dedupe, limits, resultTtlMs, metadata, paused } = config;
  const limit = (value: number) => (value === 0 ? Number.POSITIVE_INFINITY : value);
  return {
    lease: leaseMs,
    maxAttempts: limit(maxAttempts),
    backoff: { initial: backoff.initialMs, max: backoff.maxMs, factor: backoff.factor, jitter: backoff.jitter },
    ttl: limit(ttlMs),
    onExpire,
    dedupe: { window: dedupe.windowMs, maxKeys: dedupe.maxKeys },
    limits: {
      maxCount: limit(limits.maxCount),
      maxBytes: limit(limits.maxBytes),
      maxMessageBytes: limit(limits.maxMessageBytes),
      whenFull: limits.whenFull,
    },
    resultTtl: resultTtlMs,
    maxDeadLetters: limit(config.maxDeadLetters),
    concurrency: limit(config.concurrency),
    concurrencyPerKey: config.concurrencyPerKey,
    lookAhead: config.lookAhead,
    rate: { limit: limit(config.rate.limit), per: config.rate.perMs },
    ageing: limit(config.ageingMs),
    metadata: { ...metadata },
    paused,
  };
}

export function mergeConsumerConfig(
  stored: ConsumerConfig | undefined,
  given: Pick<ResolvedTaskSettings, keyof ConsumerConfig>,
): ConsumerConfig {
  const base = stored ?? DEFAULT_TASK_CONFIG;
  let initialMs = given.backoff?.initialMs ?? base.backoff.initialMs;
  let maxMs = given.backoff?.maxMs ?? base.backoff.maxMs;
  if (initialMs > maxMs) {
    // Of the two, the one that was given holds and the other follows.
    if (given.backoff?.maxMs === undefined) maxMs = initialMs;
    else if (given.backoff.initialMs === undefined) initialMs = maxMs;
    else {
      throw optionError("backoff.max", `backoff.max (${maxMs} ms) must not be below backoff.initial (${initialMs} ms)`);
    }
  }
  return Object.freeze({
    leaseMs: given.leaseMs ?? base.leaseMs,
    maxAttempts: given.maxAttempts ?? base.maxAttempts,
    backoff: Object.freeze({
      initialMs,
      maxMs,
      factor: given.backoff?.factor ?? base.backoff.factor,
      jitter: given.backoff?.jitter ?? base.backoff.jitter,
    }),
    maxDeadLetters: given.maxDeadLetters ?? base.maxDeadLetters,
  });
}

export interface ResolvedEnqueueOptions extends ResolvedCommitOptions {
  readonly key: string | Uint8Array | undefined;
  readonly headers: Headers | undefined;
  /** 0: no delay. */
  readonly delayMs: number;
  /** Wall clock, milliseconds since 1970. */
  readonly atMs: number | undefined;
  /** 0: unlimited; `undefined`: the queue's. */
  readonly maxAttempts: number | undefined;
  readonly priority: number;
  readonly ttlMs: number | undefined;
  /** Wall clock, milliseconds since 1970. */
  readonly expiresAtMs: number | undefined;
  readonly dedupeKey: string | undefined;
  readonly orderKey: string | undefined;
}

const ENQUEUE: Table<ResolvedEnqueueOptions> = {
  ...APPEND,
  delayMs: duration("delay", 0, DELAY_MS_MAX),
  atMs: moment("at"),
  maxAttempts: optional(deliveries("maxAttempts", ATTEMPTS_MAX)),
  priority: integer("priority", 0, 9),
  ttlMs: optional(duration("ttl", 1, DELAY_MS_MAX)),
  expiresAtMs: moment("expiresAt"),
  dedupeKey: text("dedupeKey", DEDUPE_KEY_LENGTH_MAX),
  orderKey: text("orderKey", ORDER_KEY_LENGTH_MAX),
};

export interface ResolvedEnqueueBatchOptions extends Omit<ResolvedEnqueueOptions, "key" | "headers" | "dedupeKey"> {
  /** One for each input. */
  readonly dedupeKeys: readonly (string | undefined)[] | undefined;
}

export const resolveEnqueueOptions = oneDueTime(resolver("enqueue()", ENQUEUE));
export const resolveEnqueueBatchOptions = oneDueTime(
  resolver<ResolvedEnqueueBatchOptions>("enqueueBatch()", {
    ...without<ResolvedEnqueueOptions, "key" | "headers" | "dedupeKey">(ENQUEUE, "key", "headers", "dedupeKey"),
    dedupeKeys: textPerInput("dedupeKeys", DEDUPE_KEY_LENGTH_MAX),
  }),
);
/** Of the tasks that a schedule enqueues. */
export const resolveScheduledTaskOptions = resolver(
  "schedule()",
  without<ResolvedEnqueueOptions, "delayMs" | "atMs" | "dedupeKey">(ENQUEUE, "delayMs", "atMs", "dedupeKey"),
);
export const resolveTransactionEnqueueOptions = oneDueTime(
  resolver(
    "enqueue() in a transaction",
    without<ResolvedEnqueueOptions, "durability" | "request">(ENQUEUE, "durability", "request"),
  ),
);

export const resolveFlowTaskOptions = oneDueTime(
  resolver(
    "a task of a flow",
    without<ResolvedEnqueueOptions, "durability" | "request" | "dedupeKey">(
      ENQUEUE,
      "durability",
      "request",
      "dedupeKey",
    ),
  ),
);

function oneDueTime<R extends Pick<ResolvedEnqueueOptions, "atMs" | "ttlMs" | "expiresAtMs">>(
  resolve: (options: unknown) => R,
): (options?: unknown) => R {
  return (options) => {
    const resolved = resolve(options);
    if (resolved.atMs !== undefined && (options as { delay?: unknown }).delay !== undefined) {
      throw optionError("at", "give either at or delay, not both");
    }
    if (resolved.ttlMs !== undefined && resolved.expiresAtMs !== undefined) {
      throw optionError("expiresAt", "give either expiresAt or ttl, not both");
    }
    return resolved;
  };
}

export interface ResolvedPeekOptions {
  readonly waitMs: number;
  readonly signal: AbortSignal | undefined;
}

const PEEK: Table<ResolvedPeekOptions> = { waitMs: duration("wait", 0, WAIT_MS_MAX), signal: abortSignal("signal") };

export const resolvePeekOptions = resolver("peek()", PEEK);

export interface ResolvedDequeueOptions extends ResolvedCommitOptions, ResolvedPeekOptions {
  /** `undefined`: the queue's; 0: while the session lasts. */
  readonly leaseMs: number | undefined;
  readonly autoAck: boolean;
}

const DEQUEUE: Table<ResolvedDequeueOptions> = {
  ...COMMIT,
  ...PEEK,
  leaseMs: leaseOrSession(),
  autoAck: flag("autoAck", false),
};

function leaseOrSession(): Option<number | undefined> {
  const timed = leaseOption();
  return { ...timed, parse: (given, name) => (given === "session" ? 0 : timed.parse(given, name)) };
}

function noLeaseWithAutoAck<R extends Pick<ResolvedDequeueOptions, "autoAck" | "leaseMs" | "request">>(
  resolve: (options: unknown) => R,
): (options?: unknown) => R {
  return (options) => {
    const resolved = resolve(options);
    if (resolved.autoAck && resolved.leaseMs !== undefined) {
      throw optionError("autoAck", "give either autoAck or lease, not both");
    }
    if (resolved.autoAck && resolved.request !== undefined) {
      throw optionError("autoAck", "a dequeue with autoAck cannot be repeated: its tasks are done. Give no request.");
    }
    return resolved;
  };
}

export const resolveDequeueOptions = noLeaseWithAutoAck(resolver("dequeue()", DEQUEUE));

export interface ResolvedDequeueBatchOptions extends ResolvedDequeueOptions {
  readonly max: number;
}

export const resolveDequeueBatchOptions = noLeaseWithAutoAck(
  resolver<ResolvedDequeueBatchOptions>("dequeueBatch()", {
    ...DEQUEUE,
    max: required(integer("max", 1, DEQUEUE_BATCH_MAX)),
  }),
);

/** Whether a dequeue without a name asks for nothing that would be refused, or taken in another way than it stands there. */
export function isPlainDequeue(max: number, waitMs: number, leaseMs: number | undefined, autoAck: boolean): boolean {
  if (max < 1 || max > DEQUEUE_BATCH_MAX || waitMs > WAIT_MS_MAX) return false;
  if (leaseMs === undefined) return true;
  return !autoAck && leaseMs >= 0 && leaseMs <= LEASE_MS_MAX && Number.isInteger(leaseMs);
}

export const resolveResultOptions = resolver("result()", PEEK);

export interface ResolvedAckOptions extends ResolvedCommitOptions {
  /** JSON; `undefined`: none was given. */
  readonly result: string | undefined;
}

/** Where no results are kept. */
export const resolveTransactionAckOptions = resolver<object>("ack() in a transaction", {});

/** @throws VarveError `ERR_OPTION`, `ERR_ENCODE`, `ERR_TOO_LARGE` */
export function resolveAckOptions(options: { readonly result?: unknown }): ResolvedAckOptions {
  const { result, ...rest } = options;
  const commit = resolveCommitOptions(rest);
  return { ...commit, result: result === undefined ? undefined : toJson(result, "the result", RESULT_BYTES_MAX) };
}

/** The second argument of `progress()`. @throws VarveError `ERR_ENCODE`, `ERR_TOO_LARGE` */
export function encodeProgress(value: unknown): string {
  return toJson(value, "the progress", PROGRESS_BYTES_MAX);
}

function toJson(value: unknown, what: string, bytesMax: number): string {
  const problem = findJsonProblem(value);
  if (problem !== undefined) {
    throw new VarveError("ERR_ENCODE", `${what} must be JSON; it holds ${problem.what} at ${problem.path}`, {
      details: { path: problem.path },
    });
  }
  const json = JSON.stringify(value);
  const size = Buffer.byteLength(json);
  if (size <= bytesMax) return json;
  throw new VarveError(
    "ERR_TOO_LARGE",
    `${what} has ${size} bytes as JSON; the limit is ${bytesMax} (${formatBytes(bytesMax)}). Store large ones elsewhere ` +
      "and pass their address.",
    { details: { size, limit: bytesMax } },
  );
}

export interface ResolvedReleaseOptions extends ResolvedCommitOptions {
  readonly to: "head" | "tail";
}

const RELEASE: Table<ResolvedReleaseOptions> = { ...COMMIT, to: choice("to", ["head", "tail"], "head") };

export const resolveReleaseOptions = resolver("release()", RELEASE);
export const resolveTransactionReleaseOptions = resolver(
  "release() in a transaction",
  without<ResolvedReleaseOptions, "durability" | "request">(RELEASE, "durability", "request"),
);

export interface ResolvedNackOptions extends ResolvedCommitOptions {
  /** `undefined`: the queue's backoff. */
  readonly delayMs: number | undefined;
  /** At most {@link FAILURE_TEXT_BYTES_MAX} bytes of UTF-8. */
  readonly error: string | undefined;
  /** Straight to the dead letters. */
  readonly dead: boolean;
}

const NACK: Table<ResolvedNackOptions> = {
  ...COMMIT,
  delayMs: optional(duration("delay", 0, DELAY_MS_MAX)),
  error: { name: "error", default: undefined, parse: parseFailure },
  dead: flag("dead", false),
};

export const resolveNackOptions = deadWithoutDelay(resolver("nack()", NACK));
export const resolveTransactionNackOptions = deadWithoutDelay(
  resolver(
    "nack() in a transaction",
    without<ResolvedNackOptions, "durability" | "request">(NACK, "durability", "request"),
  ),
);

function deadWithoutDelay<R extends Pick<ResolvedNackOptions, "dead" | "delayMs">>(
  resolve: (options: unknown) => R,
): (options?: unknown) => R {
  return (options) => {
    const resolved = resolve(options);
    if (resolved.dead && resolved.delayMs !== undefined)
      throw optionError("dead", "give either dead or delay, not both");
    return resolved;
  };
}

function parseFailure(value: unknown, option: string): string {
  if (typeof value !== "string" && !(value instanceof Error)) throw refused(option, "a string or an Error", value);
  return cutUtf8(typeof value === "string" ? value : `${value.name}: ${value.message}`, FAILURE_TEXT_BYTES_MAX);
}

/** At most `bytesMax` bytes of UTF-8, cut between characters. */
function cutUtf8(text: string, bytesMax: number): string {
  // A character takes at least a byte: what lies beyond is cut before it costs anything.
  const wellFormed = text.slice(0, bytesMax).toWellFormed();
  const encoded = Buffer.from(wellFormed);
  if (encoded.length <= bytesMax) return wellFormed;
  let end = bytesMax;
  while ((encoded[end]! & 0xc0) === 0x80) end--; // a continuation byte: its character began before the limit
  return encoded.toString("utf8", 0, end);
}

/** The second argument of `extend()`; `undefined` for the queue's lease. */
export function resolveLease(lease: Duration | undefined): number | undefined {
  return lease === undefined ? undefined : LEASE.parse(lease, "lease");
}

const LEASE = leaseOption();

/** The delay that a handler's `Retry` asks for; `undefined` for the queue's backoff. */
export function resolveDelay(delay: Duration | undefined): number | undefined {
  return delay === undefined ? undefined : NACK.delayMs.parse(delay, "delay");
}

export interface ResolvedWorkOptions extends Omit<ResolvedCommitOptions, "request"> {
  readonly concurrency: number;
  /** `undefined`: the queue's. */
  readonly leaseMs: number | undefined;
  /** `undefined`: none. */
  readonly timeoutMs: number | undefined;
}

export const resolveWorkOptions = resolver<ResolvedWorkOptions>("work()", {
  ...without<ResolvedCommitOptions, "request">(COMMIT, "request"),
  concurrency: integer("concurrency", 1, DEQUEUE_BATCH_MAX),
  leaseMs: leaseOption(),
  timeoutMs: optional(duration("timeout", 1, WAIT_MS_MAX)),
});

export const resolveCloseWorkerOptions = resolver<{
  /** `undefined`: none. */
  readonly timeoutMs: number | undefined;
}>("close()", { timeoutMs: optional(duration("timeout", 0, WAIT_MS_MAX)) });

export interface ResolvedDeadReadOptions {
  /** Offset of the last one already read. */
  readonly after: number | undefined;
  readonly limit: number;
}

export interface ResolvedListOptions {
  readonly state: "ready" | "scheduled" | "leased" | "blocked";
  readonly after: string | undefined;
  readonly limit: number;
}

export const resolveListOptions = resolver<ResolvedListOptions>("list()", {
  state: required(choice("state", ["ready", "scheduled", "leased", "blocked"], "ready")),
  after: text("after", 32),
  limit: integer("limit", 1, 100_000, 1000),
});

export const resolveDeadReadOptions = resolver<ResolvedDeadReadOptions>("dead.read()", {
  after: optional(integer("after", 0, Number.MAX_SAFE_INTEGER)),
  limit: integer("limit", 1, 100_000, 1000),
});

export interface ResolvedDeadSelection {
  readonly ids: readonly string[] | undefined;
  /** `undefined`: of any age. */
  readonly olderThanMs: number | undefined;
  /** `undefined`: all. */
  readonly limit: number | undefined;
}

export const resolveDeadSelection = resolver<ResolvedDeadSelection>("the selection of dead letters", {
  ids: strings("ids"),
  olderThanMs: optional(duration("olderThan", 0, 10 * DELAY_MS_MAX)),
  limit: optional(integer("limit", 1, Number.MAX_SAFE_INTEGER)),
});

// ---------------------------------------------------------------------------------------------------------- arguments

/** @throws VarveError `ERR_ARGUMENT` */
export function checkOffset(value: unknown, argument = "offset"): number {
  if (isOffset(value)) return value;
  throw new VarveError("ERR_ARGUMENT", `${argument} must be a whole number from 0 to 2^53 - 1; got ${show(value)}`);
}

/** The key of a message, wherever it was given. */
export function checkMessageKey(value: unknown): string | Uint8Array | undefined {
  if (value === undefined || isMessageKey(value)) return value;
  throw refused("key", "a well-formed string or a Uint8Array", value);
}

/** The headers of a message, wherever they were given. */
export function checkMessageHeaders(value: unknown): Headers | undefined {
  return value === undefined ? undefined : parseHeaders(value, "headers");
}
