import { availableParallelism, cpus } from "node:os";
import { type Command, InvalidArgumentError, Option } from "commander";
import type { Durability } from "../api/contract.js";
import { formatBytes, formatDuration, parseDuration, parseSize } from "../api/units.js";
import { nodeOptionsOf, runInChild, serveParent } from "./child.js";
import { benchCompaction } from "./compaction.js";
import { EXPERIMENTS } from "./experiments.js";
import { benchOpen } from "./open.js";
import { ProgressBar } from "./progress.js";
import { benchQueues } from "./queues.js";
import { backlogReport, compactionReport, openReport, queuesReport, runReport, scheduleReport } from "./report.js";
import { benchRun, type OnProgress } from "./run.js";
import { benchSchedule } from "./schedule.js";
import { withScratch } from "./scratch.js";
import { WORKLOADS } from "./workloads.js";

interface CommonOptions {
  readonly dataDir: string;
  readonly json: boolean;
  readonly quiet: boolean;
  readonly durability: Durability;
  readonly messageSize: number;
  readonly rounds: number;
}

function count(least: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d+$/.test(text) || !Number.isSafeInteger(value) || value < least) {
      throw new InvalidArgumentError(`It must be a whole number, ${least} or more.`);
    }
    return value;
  };
}

function size(text: string): number {
  try {
    return parseSize(/^\d+$/.test(text) ? Number(text) : text, "");
  } catch {
    throw new InvalidArgumentError("It must be a size, such as 1024, 512KiB or 10GiB.");
  }
}

function duration(text: string): number {
  try {
    return parseDuration(text, "");
  } catch {
    throw new InvalidArgumentError("It must be a duration, such as 500ms, 20s or 2m.");
  }
}

function names(text: string): string[] {
  return text.split(",").map((name) => name.trim());
}

function withCommon(command: Command, rounds: number, messageSize = 1024): Command {
  return command
    .option("-d, --data-dir <dir>", "where to make a directory for the benchmark; it is removed afterwards", ".")
    .addOption(
      new Option("--durability <mode>", "when a change counts as done: on the disk, or with the operating system")
        .choices(["sync", "async"])
        .default("async"),
    )
    .option("--message-size <size>", "payload of a message", size, messageSize)
    .option("--rounds <n>", "measured rounds, after one to warm up", count(1), rounds)
    .option("--json", "print the results as JSON", false)
    .option("-q, --quiet", "no progress bar", false);
}

function semiSpaceOption(): Option {
  return new Option(
    "--semi-space <mib>",
    "start the measured process with --max-semi-space-size: less memory for Node's young objects",
  ).argParser(count(1));
}

/** The common options: they may stand before the command's name as well as behind it; behind it wins. */
function commonOptions(command: Command): Pick<CommonOptions, "dataDir" | "durability" | "json" | "quiet"> {
  const resolve = (name: string): unknown => {
    for (let at: Command | null = command; at !== null; at = at.parent) {
      if (at.getOptionValueSource(name) === "cli") return at.getOptionValue(name);
    }
    return command.getOptionValue(name);
  };
  return {
    dataDir: resolve("dataDir") as string,
    durability: resolve("durability") as Durability,
    json: resolve("json") === true,
    quiet: resolve("quiet") === true,
  };
}

/** What the figures depend on besides the options. */
function machine() {
  return {
    node: process.version,
    nodeOptions: [process.env.NODE_OPTIONS ?? "", ...process.execArgv].filter((option) => option !== ""),
    platform: `${process.platform} ${process.arch}`,
    cpu: cpus()[0]?.model.trim() ?? "unknown",
    cores: availableParallelism(),
  };
}

/** Sets what a benchmark does: it runs in a scratch directory, then its result is printed. */
function benchmark<O extends CommonOptions, R>(
  command: Command,
  body: (directory: string, options: O, onProgress: OnProgress) => Promise<R>,
  describe: (options: O) => string,
  report: (result: R, options: O, dim: boolean) => string,
): void {
  command.action(async (given: O) => {
    const options = { ...given, ...commonOptions(command) };
    const { dataDir, json, quiet, ...parameters } = options;
    const progress = new ProgressBar(!json && !quiet);
    const settings = machine();
    const result = await withScratch(dataDir, (directory) => body(directory, options, progress.update)).finally(() =>
      progress.clear(),
    );
    if (json) {
      process.stdout.write(`${JSON.stringify({ benchmark: command.name(), machine: settings, parameters, result })}\n`);
      return;
    }
    const { node, nodeOptions, platform, cpu, cores } = settings;
    const started = nodeOptions.length === 0 ? "default Node options" : nodeOptions.join(" ");
    const dim = process.stdout.isTTY === true && !process.env.NO_COLOR;
    process.stdout.write(
      `${describe(options)}\n${options.durability}, ${options.rounds} round${options.rounds === 1 ? "" : "s"}: median (min - max)\n` +
        `node ${node} (${started}), ${platform}, ${cores} x ${cpu}\n\n${report(result, options, dim)}\n`,
    );
  });
}

interface RunOptions extends CommonOptions {
  readonly bytes: number;
  readonly batch: number;
  readonly workers: number;
  readonly concurrency: number;
  readonly queues: number;
  readonly roundLimit: number;
  readonly only: readonly string[];
}

function registerRun(parent: Command): void {
  const command = withCommon(
    parent
      .command("run")
      .summary("throughput, latency and memory of every operation")
      .description(
        "Appends, scans, reads, enqueues and works off tasks, round by round in turn with bare loops over system calls that move the same bytes. Prints throughput, latency, memory and the ratio to those loops.",
      ),
    5,
  )
    .option("--bytes <size>", "payload bytes of each workload, over all rounds", size, 1024 ** 3)
    .option("--batch <n>", "messages in a batch", count(1), 64)
    .option("--workers <n>", "loops that work in batches", count(1), 8)
    .option("--concurrency <n>", "loops that work one by one", count(1), 64)
    .option("--queues <n>", "queues that the work goes round", count(1), 1)
    .option("--round-limit <duration>", "a round ends after this time, done or not", duration, 20_000)
    .option("--only <names>", `comma-separated: ${WORKLOADS.map(({ name }) => name).join(", ")}`, names, [])
    .addHelpText("after", "\nExample:\n  $ varve bench run --bytes 10GiB --durability sync");
  benchmark(
    command,
    (directory, options: RunOptions, onProgress) =>
      benchRun(
        directory,
        { ...options, messageBytes: options.messageSize, roundLimitMs: options.roundLimit },
        onProgress,
      ),
    ({ bytes, messageSize, queues, roundLimit }) =>
      `varve bench run: ${formatBytes(bytes)} per workload, messages of ${formatBytes(messageSize)}, ` +
      `${queues} queue${queues === 1 ? "" : "s"}, at most ${formatDuration(roundLimit)} a round`,
    (results, _options, dim) => runReport(results, dim),
  );
}

interface BacklogOptions extends CommonOptions {
  readonly tasks: number;
  readonly roundTasks: number;
  readonly batch: number;
  readonly workers: number;
  readonly concurrency: number;
  readonly semiSpace?: number;
}

function childText(semiSpaceMiB: number | undefined): string {
  const options = nodeOptionsOf({ semiSpaceMiB });
  return options.length === 0 ? "a process with default options" : `a process with ${options.join(" ")}`;
}

function registerBacklog(parent: Command): void {
  const command = withCommon(
    parent
      .command("backlog")
      .summary("memory and speed with millions of tasks waiting")
      .description(
        "Fills a task queue and compares memory and the speed of enqueue + dequeue + ack with those of an empty queue in the same process.",
      ),
    5,
  )
    .option("--tasks <n>", "tasks that wait", count(1), 8_388_608)
    .option("--round-tasks <n>", "tasks that pass through a queue in a round", count(1), 131_072)
    .option("--batch <n>", "messages in a batch", count(1), 64)
    .option("--workers <n>", "loops that work in batches", count(1), 8)
    .option("--concurrency <n>", "loops that work one by one", count(1), 64)
    .addOption(semiSpaceOption());
  benchmark(
    command,
    (directory, options: BacklogOptions, onProgress) =>
      runInChild(
        "backlog",
        { ...options, directory: `${directory}/data`, messageBytes: options.messageSize },
        { semiSpaceMiB: options.semiSpace, onProgress },
      ),
    ({ tasks, messageSize, semiSpace }) =>
      `varve bench backlog: ${tasks.toLocaleString("en-US")} tasks of ${formatBytes(messageSize)} waiting, in ${childText(semiSpace)}`,
    (result, _options, dim) => backlogReport(result, dim),
  );
}

interface ScheduleOptions extends CommonOptions {
  readonly tasks: number;
  readonly batch: number;
  readonly horizon: number;
  readonly probes: number;
  readonly probeTime: number;
}

function registerSchedule(parent: Command): void {
  const command = withCommon(
    parent
      .command("schedule")
      .summary("memory and punctuality with many scheduled tasks")
      .description(
        "Schedules many tasks for later than the measurement, then waits for some that are due soon, with nothing else going on. One round.",
      ),
    1,
    32,
  )
    .option("--tasks <n>", "tasks that wait", count(1), 10_000_000)
    .option("--batch <n>", "tasks per enqueueBatch, which share a due time", count(1), 256)
    .option(
      "--horizon <duration>",
      "the due times are spread over so much; 0ms: the same for all",
      duration,
      30 * 86_400_000,
    )
    .option("--probes <n>", "tasks that are waited for", count(1), 1000)
    .option("--probe-time <duration>", "their due times are spread over so much", duration, 20_000);
  benchmark(
    command,
    (directory, options: ScheduleOptions, onProgress) =>
      benchSchedule(
        {
          ...options,
          directory,
          messageBytes: options.messageSize,
          horizonMs: options.horizon,
          probeMs: options.probeTime,
        },
        onProgress,
      ),
    ({ tasks, messageSize, horizon }) =>
      `varve bench schedule: ${tasks} tasks of ${formatBytes(messageSize)}, due within ${formatDuration(horizon)} of each other`,
    (result, _options, dim) => scheduleReport(result, dim),
  );
}

interface OpenOptions extends CommonOptions {
  readonly few: number;
  readonly many: number;
  readonly tail: number;
  readonly semiSpace?: number;
}

function registerOpen(parent: Command): void {
  const command = withCommon(
    parent
      .command("open")
      .summary("time to open a small and a large directory")
      .description(
        "Times opening after a clean close and after kill -9, each time in a new process, with few and with many records.",
      ),
    5,
    128,
  )
    .option("--few <n>", "records in the small directory", count(1), 10_000)
    .option("--many <n>", "records in the large directory", count(1), 10_000_000)
    .option("--tail <size>", "bytes appended to another log before each kill", size, 48 * 1024 ** 2)
    .addOption(semiSpaceOption());
  benchmark(
    command,
    (directory, options: OpenOptions, onProgress) =>
      benchOpen(
        directory,
        { ...options, messageBytes: options.messageSize, tailBytes: options.tail, semiSpaceMiB: options.semiSpace },
        onProgress,
      ),
    ({ messageSize, tail, semiSpace }) =>
      `varve bench open: records of ${formatBytes(messageSize)}, ${formatBytes(tail)} written before each kill, ` +
      `each time in ${childText(semiSpace)}`,
    (result, _options, dim) => openReport(result, dim),
  );
}

interface QueuesOptions extends CommonOptions {
  readonly queues: number;
  readonly concurrency: number;
  readonly roundMessages: number;
}

function registerQueues(parent: Command): void {
  const command = withCommon(
    parent
      .command("queues")
      .summary("speed, memory and open files with thousands of queues")
      .description("Appends to many queues in turn and compares with appends to a single one. Counts open files."),
    5,
  )
    .option("--queues <n>", "queues in the directory", count(1), 10_000)
    .option("--round-messages <n>", "messages in a round", count(1), 262_144)
    .option("--concurrency <n>", "appends at a time", count(1), 64);
  benchmark(
    command,
    (directory, options: QueuesOptions, onProgress) =>
      benchQueues(directory, { ...options, messageBytes: options.messageSize }, onProgress),
    ({ queues, messageSize }) =>
      `varve bench queues: ${queues.toLocaleString("en-US")} queues, messages of ${formatBytes(messageSize)}`,
    (result, { queues }, dim) => queuesReport(result, queues, dim),
  );
}

interface CompactionOptions extends CommonOptions {
  readonly bytes: number;
  readonly keys: number;
  readonly concurrency: number;
  readonly window: number;
}

function registerCompaction(parent: Command): void {
  const command = withCommon(
    parent
      .command("compaction")
      .summary("latency of appends while a log is compacted")
      .description(
        "Fills a log with records of keys that come again and again, compacts it, and compares the latency of appends to another log meanwhile with that before and after.",
      ),
    1,
  )
    .option("--bytes <size>", "payload bytes in the log that is compacted", size, 1024 ** 3)
    .option("--keys <n>", "keys, in turn", count(1), 100_000)
    .option("--concurrency <n>", "appends at a time", count(1), 16)
    .option("--window <duration>", "time without a compaction, before it and after", duration, 5000);
  benchmark(
    command,
    (directory, options: CompactionOptions, onProgress) =>
      benchCompaction(
        directory,
        { ...options, messageBytes: options.messageSize, windowMs: options.window },
        onProgress,
      ),
    ({ bytes, messageSize, keys, concurrency }) =>
      `varve bench compaction: ${formatBytes(bytes)} of messages of ${formatBytes(messageSize)}, ${keys.toLocaleString("en-US")} keys, ${concurrency} appends at a time`,
    (result, _options, dim) => compactionReport(result, dim),
  );
}

/** Adds `bench` with its benchmarks to the command line. */
export function registerBench(program: Command): void {
  const bench = program
    .command("bench")
    .summary("measure varve on this machine")
    .description("Measures varve on this machine, in a directory of its own that is removed afterwards.");
  registerRun(bench);
  registerBacklog(bench);
  registerOpen(bench);
  registerSchedule(bench);
  registerQueues(bench);
  registerCompaction(bench);
  bench.command("child", { hidden: true }).action(() => serveParent(EXPERIMENTS));
}
