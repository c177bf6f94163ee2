import { type Command, Option } from "commander";
import type {
  BackoffOptions,
  LogSettings,
  QueueKind,
  QueueLimits,
  RateOptions,
  TaskSettings,
} from "../../api/contract.js";
import { UsageError } from "../exit.js";
import {
  attempts,
  duration,
  durationOrUnlimited,
  finiteNumber,
  header,
  onExpire,
  rate,
  sizeOrUnlimited,
  wholeNumber,
  withCommonOptions,
} from "../options.js";
import { action } from "../run.js";

/** Settings of both kinds of queue. */
const COMMON: ReadonlySet<string> = new Set(["limits", "metadata"]);

interface CreateOptions {
  readonly type: QueueKind;
  readonly lease?: string;
  readonly maxAttempts?: number;
  readonly backoffInitial?: string;
  readonly backoffMax?: string;
  readonly backoffFactor?: number;
  readonly backoffJitter?: number;
  readonly ttl?: string | number;
  readonly onExpire?: TaskSettings["onExpire"];
  readonly dedupeWindow?: string;
  readonly dedupeMaxKeys?: number;
  readonly resultTtl?: string;
  readonly maxDeadLetters?: number;
  readonly concurrency?: number;
  readonly concurrencyPerKey?: number;
  readonly lookAhead?: number;
  readonly rate?: RateOptions;
  readonly ageing?: string | number;
  readonly retentionAge?: string | number;
  readonly retentionBytes?: string | number;
  readonly retentionCount?: number;
  readonly holdForGroups?: string | number;
  readonly compact?: boolean;
  readonly maxCount?: number;
  readonly maxBytes?: string | number;
  readonly maxMessageBytes?: string | number;
  readonly whenFull?: "refuse" | "wait" | "drop-oldest";
  readonly metadata?: Record<string, string>;
}

export function registerCreate(program: Command): void {
  const command = program
    .command("create")
    .summary("make a queue, or change its settings")
    .description("Makes a queue. One that exists gets the settings given here and keeps its others.")
    .argument("<name>", "1 to 200 characters of A-Z a-z 0-9 _ . : -")
    .addOption(new Option("-t, --type <type>", "kind of queue").choices(["log", "task"]).makeOptionMandatory())
    .option(
      "--lease <duration>",
      "task: how long a delivered task belongs to its receiver (30s when never set)",
      duration,
    )
    .option("--max-attempts <n>", 'task: deliveries before a task is dead, or "unlimited" (5)', attempts)
    .option("--backoff-initial <duration>", "task: wait after the first failure (1s)", duration)
    .option("--backoff-max <duration>", "task: longest wait after a failure (5m)", duration)
    .option("--backoff-factor <n>", "task: growth of the wait from failure to failure (2)", finiteNumber)
    .option("--backoff-jitter <n>", "task: random part of the wait, 0 to 1 (0.2)", finiteNumber)
    .option("--ttl <duration>", 'task: longest life of a task, or "unlimited" (unlimited)', durationOrUnlimited)
    .option(
      "--on-expire <what>",
      "task: what becomes of one whose time is over: discard, dead, or move:QUEUE (discard)",
      onExpire,
    )
    .option("--dedupe-window <duration>", "task: how long a dedupe key stands for its first task (10m)", duration)
    .option("--dedupe-max-keys <n>", "task: dedupe keys that are remembered (100000)", wholeNumber(1))
    .option("--result-ttl <duration>", "task: how long results are kept; 0s: not at all (1h)", duration)
    .option(
      "--max-dead-letters <n>",
      'task: dead letters kept; above that the oldest are dropped, and counted; or "unlimited" (unlimited)',
      attempts,
    )
    .option("--concurrency <n>", 'task: leased at once, or "unlimited" (unlimited)', attempts)
    .option("--concurrency-per-key <n>", "task: tasks of one order key under way at once (1)", wholeNumber(1))
    .option(
      "--look-ahead <n>",
      "task: tasks that others of their order key keep back and that are passed (1000)",
      wholeNumber(1),
    )
    .option("--rate <n/duration>", 'task: deliveries in a window of time, as 100/1s, or "unlimited" (unlimited)', rate)
    .option(
      "--ageing <duration>",
      'task: waiting that counts as much as one priority, or "unlimited" (unlimited: priorities are strict)',
      durationOrUnlimited,
    )
    .option("--retention-age <duration>", 'log: remove what is older, or "unlimited"', durationOrUnlimited)
    .option("--retention-bytes <size>", 'log: keep so much of the newest, or "unlimited"', sizeOrUnlimited)
    .option("--retention-count <n>", 'log: keep so many of the newest, or "unlimited"', attempts)
    .option(
      "--hold-for-groups <duration>",
      'log: how long retention waits for a group that does nothing (0s), or "unlimited"',
      durationOrUnlimited,
    )
    .option("--compact", "log: keep only the last record of each key")
    .option("--no-compact", "log: keep all records of a key")
    .option("--max-count <n>", 'at most so many records, or waiting tasks, or "unlimited"', attempts)
    .option("--max-bytes <size>", 'at most so many bytes of them, or "unlimited"', sizeOrUnlimited)
    .option("--max-message-bytes <size>", 'largest payload, or "unlimited": the directory\'s', sizeOrUnlimited)
    .addOption(
      new Option("--when-full <policy>", "what becomes of a message that does not fit (refuse)").choices([
        "refuse",
        "wait",
        "drop-oldest",
      ]),
    )
    .option("--metadata <name=value>", "stored with the queue; repeatable; replaces what it had", header)
    .addHelpText(
      "after",
      "\nExamples:\n  $ varve create --type task jobs --lease 1m --max-attempts 3\n  $ varve create --type log events --retention-age 7d --retention-bytes 10GiB",
    );

  action<[string], CreateOptions>(withCommonOptions(command), async (run, name) => {
    const { type } = run.options;
    const settings = { log: logSettings(run.options), task: taskSettings(run.options) };
    if (type === "log" && !Object.keys(settings.task).every((name) => COMMON.has(name))) {
      throw new UsageError("leases, attempts, expiry, keys and pace are settings of task queues; a log has none");
    }
    if (type === "task" && !Object.keys(settings.log).every((name) => COMMON.has(name))) {
      throw new UsageError("retention and compaction are settings of logs; a task queue has none");
    }
    await run.withDirectory("create", async (queue) => {
      const created = !(await queue.queues()).some((info) => info.kind === type && info.name === name);
      if (type === "log") await queue.openLog(name, settings.log);
      else await queue.openTask(name, settings.task);
      await run.report({ kind: type, name, created }, () => {
        if (created) return `made ${type} queue "${name}"`;
        const changed = Object.keys(settings[type]).length > 0 ? "its settings are updated" : "nothing to do";
        return `${type} queue "${name}" exists; ${changed}`;
      });
    });
    return undefined;
  });
}

/** Only what was given: an absent setting keeps its stored value. */
function taskSettings(options: CreateOptions): TaskSettings {
  const backoff: BackoffOptions = given({
    initial: options.backoffInitial,
    max: options.backoffMax,
    factor: options.backoffFactor,
    jitter: options.backoffJitter,
  });
  return given({
    lease: options.lease,
    maxAttempts: options.maxAttempts,
    backoff: unlessEmpty(backoff),
    ttl: options.ttl,
    onExpire: options.onExpire,
    dedupe: unlessEmpty(given({ window: options.dedupeWindow, maxKeys: options.dedupeMaxKeys })),
    limits: limitsOf(options),
    resultTtl: options.resultTtl,
    maxDeadLetters: options.maxDeadLetters,
    concurrency: options.concurrency,
    concurrencyPerKey: options.concurrencyPerKey,
    lookAhead: options.lookAhead,
    rate: options.rate,
    ageing: options.ageing,
    metadata: options.metadata,
  });
}

function logSettings(options: CreateOptions): LogSettings {
  const retention = given({
    maxAge: options.retentionAge,
    maxBytes: options.retentionBytes,
    maxCount: options.retentionCount,
    holdForGroups: options.holdForGroups,
  });
  return given({
    retention: unlessEmpty(retention),
    limits: limitsOf(options),
    compaction: options.compact,
    metadata: options.metadata,
  });
}

function limitsOf({ maxCount, maxBytes, maxMessageBytes, whenFull }: CreateOptions): QueueLimits | undefined {
  return unlessEmpty(given({ maxCount, maxBytes, maxMessageBytes, whenFull }));
}

function unlessEmpty<T extends object>(settings: T): T | undefined {
  return Object.keys(settings).length > 0 ? settings : undefined;
}

function given<T extends object>(settings: T): T {
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined)) as T;
}
