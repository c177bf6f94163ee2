import type { Command } from "commander";
import { withCommonOptions } from "../options.js";
import { existingTask } from "../queues.js";
import { action } from "../run.js";

export function registerStatus(program: Command): void {
  const command = program
    .command("status")
    .summary("say where a task stands")
    .description(
      "Prints the state of a task: ready, scheduled, leased, blocked, dead, done or unknown; its deliveries so far, what its worker said last of how far it is, and its result while that is kept.",
    )
    .argument("<task>", "name of the task queue")
    .argument("<id>", "id that enqueue printed")
    .addHelpText("after", "\nExample:\n  $ varve status jobs 17");

  action<[string, string], object>(withCommonOptions(command), async (run, task, id) => {
    const { state, attempt, progress, result } = await run.withDirectory("existing", async (queue) => {
      return await (await existingTask(queue, task)).status(id);
    });
    await run.print({ task, id, state, attempt, progress, result }, () => {
      const lines = [attempt === 0 ? state : `${state}, attempt ${attempt}`];
      if (progress !== undefined) lines.push(`progress  ${JSON.stringify(progress)}`);
      if (result !== undefined) lines.push(`result    ${JSON.stringify(result)}`);
      return lines.join("\n");
    });
    return undefined;
  });
}
