import type { Command } from "commander";
import { message } from "../../index.js";
import { plural } from "../format.js";
import { commitMessages, type InputOptions } from "../input.js";
import { header, wholeNumber, withCommonOptions } from "../options.js";
import { Progress } from "../progress.js";
import { announceNew } from "../queues.js";
import { action } from "../run.js";

interface AppendOptions extends InputOptions {
  readonly key?: string;
  readonly header?: Record<string, string>;
}

export function registerAppend(program: Command): void {
  const command = program
    .command("append")
    .summary("add records to a log")
    .description(
      "Appends messages to a log queue: those given as arguments, in one commit, or else the lines of standard input. The log is made if there is none.",
    )
    .argument("<log>", "name of the log queue")
    .argument("[message...]", "payloads; put -- before them if one begins with a dash");
  withMessageInput(command).addHelpText(
    "after",
    `
With --json one line is printed per commit, once it is durable as --durability says.

Examples:
  $ varve append events "user 7 signed up" --key user-7
  $ tail -f app.log | varve append app --durability async`,
  );

  action<[string, string[]], AppendOptions>(withCommonOptions(command), async (run, name, args) => {
    const attributes = { key: run.options.key, headers: run.options.header };
    const progress = new Progress(run.options);
    let appended = 0;
    let first: number | undefined;
    let last: number | undefined;
    await run.withDirectory("create", async (queue) => {
      await announceNew(run, queue, "log", name);
      const log = await queue.openLog(name);
      try {
        await commitMessages(run, args, async (payloads) => {
          const offsets = await log.appendBatch(payloads.map((payload) => message(payload, attributes)));
          const [firstOffset, lastOffset] = [offsets[0], offsets.at(-1)];
          first ??= firstOffset;
          last = lastOffset;
          appended += offsets.length;
          progress.update(() => `${plural(appended, "message")} appended`);
          if (run.options.json) await run.report({ log: name, count: offsets.length, firstOffset, lastOffset }, String);
        });
      } catch (error) {
        progress.clear();
        if (appended > 0) run.note(`${plural(appended, "message")} appended before this failure`);
        throw error;
      }
    });
    progress.clear();
    if (!run.options.json) {
      const where = first === undefined ? "" : first === last ? `, offset ${first}` : `, offsets ${first} to ${last}`;
      await run.report(undefined, () => `appended ${plural(appended, "message")} to ${name}${where}`);
    }
    return run.interruptedCode;
  });
}

/** The options of the commands that take messages. */
export function withMessageInput(command: Command): Command {
  return command
    .option("-k, --key <key>", "key of every message")
    .option("-H, --header <name=value>", "header of every message; repeatable", header)
    .option("-f, --file <path>", "read the messages from a file instead of standard input")
    .option("--whole", "take the whole input as one message instead of one message per line")
    .option("--batch <n>", "most messages committed together", wholeNumber(1), 512);
}
