import { type Command, Option } from "commander";
import type { Enqueued } from "../../api/contract.js";
import { message } from "../../index.js";
import { UsageError } from "../exit.js";
import { plural } from "../format.js";
import { commitMessages, type InputOptions } from "../input.js";
import { duration, moment, type TaskTerms, withCommonOptions, withTaskTerms } from "../options.js";
import { Progress } from "../progress.js";
import { announceNew } from "../queues.js";
import { action } from "../run.js";
import { withMessageInput } from "./append.js";

interface EnqueueOptions extends InputOptions, TaskTerms {
  readonly key?: string;
  readonly header?: Record<string, string>;
  readonly delay?: string;
  readonly at?: Date;
  readonly expiresAt?: Date;
  readonly dedupeKey?: string;
}

export function registerEnqueue(program: Command): void {
  const command = program
    .command("enqueue")
    .summary("add tasks to a task queue")
    .description(
      "Enqueues tasks: the messages given as arguments, in one commit, or else the lines of standard input. The queue is made if there is none.",
    )
    .argument("<task>", "name of the task queue")
    .argument("[message...]", "payloads; put -- before them if one begins with a dash")
    .addOption(
      new Option("--delay <duration>", "not delivered before this much time has passed")
        .argParser(duration)
        .conflicts("at"),
    )
    .addOption(
      new Option("--at <time>", "not delivered before this moment, such as 2026-07-01T09:30:00Z").argParser(moment),
    )
    .addOption(new Option("--expires-at <time>", "not delivered after this moment").argParser(moment).conflicts("ttl"))
    .option("--dedupe-key <key>", "names the task: while an earlier one with this key counts, nothing is enqueued");
  withMessageInput(withTaskTerms(command)).addHelpText(
    "after",
    `
With --json one line is printed per task, once it is durable as --durability says.

Examples:
  $ varve enqueue jobs "resize cat.png" --delay 5m
  $ varve enqueue transfers "42 to ada" --order-key account-7 --dedupe-key transfer-9
  $ ls *.png | varve enqueue jobs`,
  );

  action<[string, string[]], EnqueueOptions>(withCommonOptions(command), async (run, name, args) => {
    const { key, header: headers, delay, at, maxAttempts, priority, ttl, expiresAt, orderKey, dedupeKey } = run.options;
    if (dedupeKey !== undefined && (args.length > 1 || (args.length === 0 && !run.options.whole))) {
      throw new UsageError("--dedupe-key names one task: give one message, or --whole");
    }
    const terms = { delay, at, maxAttempts, priority, ttl, expiresAt, orderKey };
    const progress = new Progress(run.options);
    let enqueued = 0;
    let only: Enqueued | undefined;
    await run.withDirectory("create", async (queue) => {
      await announceNew(run, queue, "task", name);
      const tasks = await queue.openTask(name);
      try {
        await commitMessages(run, args, async (payloads) => {
          const inputs = payloads.map((payload) => message(payload, { key, headers }));
          const dedupeKeys = dedupeKey === undefined ? undefined : inputs.map(() => dedupeKey);
          const results = await tasks.enqueueBatch(inputs, { ...terms, dedupeKeys });
          enqueued += results.length;
          only = enqueued === 1 ? results[0] : undefined;
          progress.update(() => `${plural(enqueued, "task")} enqueued`);
          if (run.options.json) {
            for (const { id, created } of results) await run.report({ task: name, id, created }, String);
          }
        });
      } catch (error) {
        progress.clear();
        if (enqueued > 0) run.note(`${plural(enqueued, "task")} enqueued before this failure`);
        throw error;
      }
    });
    progress.clear();
    if (!run.options.json) {
      const which = only === undefined ? "" : `, id ${only.id}`;
      const text = `enqueued ${plural(enqueued, "task")} in ${name}${which}`;
      const known = `nothing was enqueued in ${name}: task ${only?.id} has the key ${dedupeKey}`;
      await run.report(undefined, () => (only?.created === false ? known : text));
    }
    return run.interruptedCode;
  });
}
