import type { Command } from "commander";
import { table } from "../format.js";
import { withCommonOptions } from "../options.js";
import { action } from "../run.js";

export function registerQueues(program: Command): void {
  const command = program
    .command("queues")
    .summary("list the queues")
    .description("Lists the queues of the directory with the number of records, or of unfinished tasks, in each.")
    .addHelpText("after", "\nExample:\n  $ varve queues --data-dir ./data");

  action(withCommonOptions(command), async (run) => {
    await run.withDirectory("existing", async (queue) => {
      const all = await queue.queues();
      if (run.options.json) {
        for (const info of all) {
          const { kind, name, count, createdAt, metadata, damaged } = info;
          await run.print({ kind, name, count, createdAt, metadata, damaged }, String);
        }
      } else if (all.length === 0) {
        run.note(`no queues in ${run.options.dataDir}`);
      } else {
        const rows = all.map((info) => [
          info.kind,
          info.name,
          info.count,
          info.damaged === undefined ? "" : `damaged: ${info.damaged}`,
        ]);
        await run.out.write(`${table(["TYPE", "NAME", "COUNT", ""], rows, run.paint)}\n`);
      }
    });
    return undefined;
  });
}
