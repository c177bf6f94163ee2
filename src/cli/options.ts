import { type Command, InvalidArgumentError, Option } from "commander";
import type { Durability, LogPosition, RateOptions, TaskSettings } from "../api/contract.js";
import { parseDuration, parseSize } from "../api/units.js";
import { UsageError } from "./exit.js";

/** Options that every command has. */
export interface CommonOptions {
  readonly dataDir: string;
  /** A daemon, in place of the directory. */
  readonly target?: string;
  readonly tlsCa?: string;
  readonly tlsCert?: string;
  readonly tlsKey?: string;
  readonly json?: boolean;
  readonly quiet?: boolean;
  readonly durability?: Durability;
}

export const DEFAULT_DATA_DIR = "./data";

/** Of commands that need the files, or serve them. */
function directoryOptions(): Option[] {
  return [
    new Option("-d, --data-dir <dir>", "the directory that holds the queues")
      .env("VARVE_DATA_DIR")
      .default(DEFAULT_DATA_DIR),
    new Option(
      "--durability <mode>",
      "when a change counts as done: on the disk, or with the operating system",
    ).choices(["sync", "async"]),
    new Option("--json", "print JSON, one value per line"),
    new Option("-q, --quiet", "print data and errors only"),
  ];
}

function targetOptions(): Option[] {
  return [
    new Option(
      "--target <url>",
      "a daemon in place of the directory: tcp://host:port, tls://host:port, unix:///path or pipe://name; its token is in VARVE_TOKEN",
    ).env("VARVE_TARGET"),
    new Option("--tls-ca <file>", "PEM file of the authority that a tls:// target is to be known by").env(
      "VARVE_TLS_CA",
    ),
    new Option("--tls-cert <file>", "PEM certificate of this client").env("VARVE_TLS_CERT"),
    new Option("--tls-key <file>", "PEM key of that certificate").env("VARVE_TLS_KEY"),
  ];
}

/** Commands that can talk to a daemon: for others, --target and --tls-* may mean something else. */
const dialling = new WeakSet<Command>();

/** Gives a command the common options, under their own heading in its help. */
export function withCommonOptions(command: Command): Command {
  dialling.add(command);
  for (const option of targetOptions()) command.addOption(option.helpGroup("Common options:"));
  return withDirectoryOptions(command);
}

/** The same without a daemon to talk to. */
export function withDirectoryOptions(command: Command): Command {
  for (const option of directoryOptions()) command.addOption(option.helpGroup("Common options:"));
  return command;
}

/** What holds for this run: options may stand before the command's name as well as behind it; behind it wins. */
export function resolveCommonOptions(command: Command): CommonOptions {
  const resolved: Record<string, unknown> = {};
  const typed = new Set<string>();
  const options = [...directoryOptions(), ...(dialling.has(command) ? targetOptions() : [])];
  for (const name of options.map((option) => option.attributeName())) {
    let holder = command;
    while (holder.getOptionValueSource(name) !== "cli" && holder.parent !== null) holder = holder.parent;
    if (holder.getOptionValueSource(name) === "cli") typed.add(name);
    else holder = command;
    resolved[name] = holder.getOptionValue(name);
  }
  if (typed.has("dataDir") && dialling.has(command)) {
    if (typed.has("target")) throw new UsageError("--data-dir and --target exclude each other");
    resolved.target = undefined; // what is typed counts more than the environment
  }
  return resolved as unknown as CommonOptions;
}

/** Parses a whole number from `least` to `most`. */
export function wholeNumber(least: number, most = Number.MAX_SAFE_INTEGER): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d+$/.test(text) || value < least || value > most) {
      const range = most === Number.MAX_SAFE_INTEGER ? `${least} or more` : `from ${least} to ${most}`;
      throw new InvalidArgumentError(`It must be a whole number, ${range}.`);
    }
    return value;
  };
}

/** A duration with its unit. Which ones are allowed is the queue's to say. */
export function duration(text: string): string {
  try {
    parseDuration(text, "");
  } catch {
    throw new InvalidArgumentError("It must be a duration with a unit, such as 250ms, 30s, 5m, 2h or 7d.");
  }
  return text;
}

/** A duration with its unit, or "unlimited". */
export function durationOrUnlimited(text: string): string | number {
  return text === "unlimited" ? Number.POSITIVE_INFINITY : duration(text);
}

/** A size with its unit, or "unlimited". */
export function sizeOrUnlimited(text: string): string | number {
  if (text === "unlimited") return Number.POSITIVE_INFINITY;
  try {
    parseSize(text, "");
  } catch {
    throw new InvalidArgumentError("It must be a size with a unit, such as 64KiB, 10MiB or 1GiB.");
  }
  return text;
}

export function finiteNumber(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) throw new InvalidArgumentError("It must be a number.");
  return value;
}

/** A number of attempts; "unlimited" for tasks that never die. The queue checks the range. */
export function attempts(text: string): number {
  return text === "unlimited" ? Number.POSITIVE_INFINITY : wholeNumber(1)(text);
}

/** What every task of a command has. */
export interface TaskTerms {
  readonly maxAttempts?: number;
  readonly priority?: number;
  readonly ttl?: string;
  readonly orderKey?: string;
}

export function withTaskTerms(command: Command): Command {
  return command
    .option("--max-attempts <n>", 'deliveries before the task is dead, or "unlimited"', attempts)
    .option("--priority <n>", "0 to 9, the most urgent (default: 0)", wholeNumber(0))
    .option("--ttl <duration>", "not delivered once this much time has passed", duration)
    .option("--order-key <key>", "worked on one after the other with others of this key");
}

/** What becomes of tasks whose time is over. */
export function onExpire(text: string): NonNullable<TaskSettings["onExpire"]> {
  if (text === "discard" || text === "dead") return text;
  if (text.startsWith("move:")) return { moveTo: text.slice("move:".length) };
  throw new InvalidArgumentError('It must be "discard", "dead" or move:QUEUE.');
}

/** Deliveries in a window of time: "100/1s"; "unlimited" for as many as are asked for. */
export function rate(text: string): RateOptions {
  if (text === "unlimited") return { limit: Number.POSITIVE_INFINITY };
  const parts = /^(\d+)\/(.+)$/.exec(text);
  if (parts === null)
    throw new InvalidArgumentError('It must be a number and a duration, such as 100/1s, or "unlimited".');
  return { limit: wholeNumber(1)(parts[1]!), per: duration(parts[2]!) };
}

/** ISO 8601, so that it means the same everywhere: "2026-07-01", "2026-07-01T09:30", "2026-07-01T09:30:00Z". */
export function moment(text: string): Date {
  const value = new Date(text);
  if (!/^\d{4}-\d{2}-\d{2}/.test(text) || Number.isNaN(value.getTime())) {
    throw new InvalidArgumentError("It must be an ISO time such as 2026-07-01T09:30:00Z.");
  }
  return value;
}

/** Where reading starts: "start", "end", an offset or an ISO time. */
export function position(text: string): LogPosition {
  if (text === "start" || text === "end") return text;
  if (/^\d+$/.test(text)) return wholeNumber(0)(text);
  try {
    return moment(text);
  } catch {
    throw new InvalidArgumentError('It must be "start", "end", an offset or an ISO time.');
  }
}

/** Collects `--header name=value`, repeatable. */
export function header(text: string, previous: Record<string, string> | undefined): Record<string, string> {
  const equals = text.indexOf("=");
  if (equals < 1) throw new InvalidArgumentError("It must have the form name=value.");
  // A definition rather than an assignment: a header may be called __proto__.
  const headers = { ...previous };
  Object.defineProperty(headers, text.slice(0, equals), {
    value: text.slice(equals + 1),
    enumerable: true,
    configurable: true,
    writable: true,
  });
  return headers;
}

/** Collects a repeatable option into an array. */
export function several(text: string, previous: readonly string[] | undefined): string[] {
  return [...(previous ?? []), text];
}
