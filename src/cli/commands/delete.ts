import { type Command, Option } from "commander";
import type { QueueKind } from "../../api/contract.js";
import { canAsk, confirmed } from "../confirm.js";
import { UsageError } from "../exit.js";
import { withCommonOptions } from "../options.js";
import { requireQueue } from "../queues.js";
import { action } from "../run.js";

interface DeleteOptions {
  readonly type: QueueKind;
  readonly yes?: boolean;
}

export function registerDelete(program: Command): void {
  const command = program
    .command("delete")
    .summary("delete a queue with everything in it")
    .description(
      "Deletes a queue with everything in it: records or tasks, dead letters, groups, schedules and settings. One that is damaged can be deleted as well. The name can be used again.",
    )
    .argument("<name>", "name of the queue")
    .addOption(new Option("-t, --type <type>", "kind of queue").choices(["log", "task"]).makeOptionMandatory())
    .option("-y, --yes", "do it without asking")
    .addHelpText(
      "after",
      "\nAsks before it deletes; without a terminal, say --yes.\n\nExample:\n  $ varve delete jobs --type task --yes",
    );

  action<[string], DeleteOptions>(withCommonOptions(command), async (run, name) => {
    const { type, yes = false } = run.options;
    if (!yes && !canAsk(run.options)) throw new UsageError("nobody can be asked here: say --yes to delete the queue");
    await run.withDirectory("existing", async (queue) => {
      const { count } = await requireQueue(queue, type, name);
      const what = `the ${type} queue "${name}" with ${count} ${type === "log" ? "records" : "unfinished tasks"}`;
      const deleted = (yes || (await confirmed(`Delete ${what}?`))) && (await queue.deleteQueue(type, name));
      await run.report({ kind: type, name, deleted }, () => (deleted ? `deleted ${what}` : "nothing was changed"));
    });
    return undefined;
  });
}
