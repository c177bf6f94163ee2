import { type Command, Option } from "commander";
import { message } from "../../index.js";
import { plural } from "../format.js";
import { commitMessages, type InputOptions } from "../input.js";
import { attempts, duration, moment, withCommonOptions } from "../options.js";
import { Progress } from "../progress.js";
import { announceNew } from "../queues.js";
import { action } from "../run.js";
import { withMessageInput } from "./append.js";

interface EnqueueOptions extends InputOptions {
  readonly key?: string;
  readonly header?: Record<string, string>;
  readonly delay?: string;
  readonly at?: Date;
  readonly maxAttempts?: number;
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
    .option("--max-attempts <n>", 'deliveries before the task is dead, or "unlimited"', attempts);
  withMessageInput(command).addHelpText(
    "after",
    `
With --json one line is printed per task, once it is durable as --durability says.

Examples:
  $ varve enqueue jobs "resize cat.png" --delay 5m
  $ ls *.png | varve enqueue jobs`,
  );

  action<[string, string[]], EnqueueOptions>(withCommonOptions(command), async (run, name, args) => {
    const { key, header: headers, delay, at, maxAttempts } = run.options;
    const progress = new Progress(run.options);
    let enqueued = 0;
    let onlyId: string | undefined;
    await run.withDirectory("create", async (queue) => {
      await announceNew(run, queue, "task", name);
      const tasks = await queue.openTask(name);
      try {
        await commitMessages(run, args, async (payloads) => {
          const inputs = payloads.map((payload) => message(payload, { key, headers }));
          const results = await tasks.enqueueBatch(inputs, { delay, at, maxAttempts });
          enqueued += results.length;
          onlyId = enqueued === 1 ? results[0]?.id : undefined;
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
      const which = onlyId === undefined ? "" : `, id ${onlyId}`;
      await run.report(undefined, () => `enqueued ${plural(enqueued, "task")} in ${name}${which}`);
    }
    return run.interruptedCode;
  });
}
