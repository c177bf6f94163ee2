import { type Command, Option } from "commander";
import { plural } from "../format.js";
import { duration, withCommonOptions } from "../options.js";
import { existingTask } from "../queues.js";
import { action } from "../run.js";

const TOKEN = "token that dequeue printed";

interface NackOptions {
  readonly delay?: string;
  readonly error?: string;
  readonly dead?: boolean;
}

export function registerSettle(program: Command): void {
  registerAck(program);
  registerNack(program);
  registerExtend(program);
}

function registerAck(program: Command): void {
  const command = program
    .command("ack")
    .summary("finish tasks for good")
    .description(
      "Finishes delivered tasks for good, in one commit: if one token is refused, none of the tasks is finished.",
    )
    .argument("<task>", "name of the task queue")
    .argument("<token...>", TOKEN)
    .addHelpText("after", "\nExample:\n  $ varve ack jobs TOKEN");

  action<[string, string[]], object>(withCommonOptions(command), async (run, name, tokens) => {
    await run.withDirectory("existing", async (queue) => {
      await (await existingTask(queue, name)).ackBatch(tokens);
    });
    await run.report(
      { task: name, acked: tokens.length },
      () => `finished ${plural(tokens.length, "task")} of ${name}`,
    );
    return undefined;
  });
}

function registerNack(program: Command): void {
  const command = program
    .command("nack")
    .summary("give a task back")
    .description(
      "Gives a delivered task back. It is delivered again after the queue's backoff, or moved to the dead letters when its attempts have run out.",
    )
    .argument("<task>", "name of the task queue")
    .argument("<token>", TOKEN)
    .option("--delay <duration>", "wait this long before the next delivery instead of the backoff", duration)
    .option("-e, --error <text>", "why it failed; kept with the task")
    .addOption(new Option("--dead", "move it to the dead letters, whatever attempts are left").conflicts("delay"))
    .addHelpText("after", '\nExample:\n  $ varve nack jobs TOKEN --error "mail server is down" --delay 1m');

  action<[string, string], NackOptions>(withCommonOptions(command), async (run, name, token) => {
    const { delay, error, dead: buried } = run.options;
    const { dead } = await run.withDirectory("existing", async (queue) => {
      return await (await existingTask(queue, name)).nack(token, { delay, error, dead: buried });
    });
    await run.report({ task: name, nacked: 1, dead }, () => {
      return dead ? `the task is a dead letter of ${name} now` : `gave the task back to ${name}`;
    });
    return undefined;
  });
}

function registerExtend(program: Command): void {
  const command = program
    .command("extend")
    .summary("prolong a lease")
    .description("Makes the lease of a delivered task end later: the given time from now, or else the queue's lease.")
    .argument("<task>", "name of the task queue")
    .argument("<token>", TOKEN)
    .option("--lease <duration>", "time from now until the lease ends (default: the queue's lease)", duration)
    .addHelpText("after", "\nExample:\n  $ varve extend jobs TOKEN --lease 10m");

  action<[string, string], { lease?: string }>(withCommonOptions(command), async (run, name, token) => {
    await run.withDirectory("existing", async (queue) => {
      await (await existingTask(queue, name)).extend(token, run.options.lease);
    });
    await run.report({ task: name, extended: 1 }, () => `extended the lease of the task in ${name}`);
    return undefined;
  });
}
