import { type Command, Option } from "commander";
import type { BackoffOptions, QueueKind, TaskOptions } from "../../api/contract.js";
import { UsageError } from "../exit.js";
import { attempts, duration, finiteNumber, withCommonOptions } from "../options.js";
import { action } from "../run.js";

interface CreateOptions {
  readonly type: QueueKind;
  readonly lease?: string;
  readonly maxAttempts?: number;
  readonly backoffInitial?: string;
  readonly backoffMax?: string;
  readonly backoffFactor?: number;
  readonly backoffJitter?: number;
}

export function registerCreate(program: Command): void {
  const command = program
    .command("create")
    .summary("make a queue, or change the settings of a task queue")
    .description(
      "Makes a queue. A task queue that exists gets the settings given here and keeps its others; a log that exists stays as it is.",
    )
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
    .addHelpText("after", "\nExample:\n  $ varve create --type task jobs --lease 1m --max-attempts 3");

  action<[string], CreateOptions>(withCommonOptions(command), async (run, name) => {
    const { type } = run.options;
    const settings = taskSettings(run.options);
    if (type === "log" && Object.keys(settings).length > 0) {
      throw new UsageError("leases, attempts and backoff are settings of task queues; a log has none");
    }
    await run.withDirectory("create", async (queue) => {
      const created = !(await queue.queues()).some((info) => info.kind === type && info.name === name);
      if (type === "log") await queue.openLog(name);
      else await queue.openTask(name, settings);
      await run.report({ kind: type, name, created }, () => {
        if (created) return `made ${type} queue "${name}"`;
        const changed = Object.keys(settings).length > 0 ? "its settings are updated" : "nothing to do";
        return `${type} queue "${name}" exists; ${changed}`;
      });
    });
    return undefined;
  });
}

/** Only what was given: an absent setting keeps its stored value. */
function taskSettings(options: CreateOptions): TaskOptions {
  const backoff: BackoffOptions = given({
    initial: options.backoffInitial,
    max: options.backoffMax,
    factor: options.backoffFactor,
    jitter: options.backoffJitter,
  });
  return given({
    lease: options.lease,
    maxAttempts: options.maxAttempts,
    backoff: Object.keys(backoff).length > 0 ? backoff : undefined,
  });
}

function given<T extends object>(settings: T): T {
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined)) as T;
}
