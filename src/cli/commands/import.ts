import type { Command } from "commander";
import { formatBytes } from "../../api/units.js";
import { parseAddress } from "../../daemon/address.js";
import { importKestrel } from "../../kestrel/import.js";
import { UsageError } from "../exit.js";
import { count, plural, table } from "../format.js";
import { several, wholeNumber, withCommonOptions } from "../options.js";
import { Progress } from "../progress.js";
import { action } from "../run.js";

interface ImportCommandOptions {
  readonly queue?: readonly string[];
  readonly parallel: number;
}

export function registerImport(program: Command): void {
  const command = program
    .command("import")
    .summary("move the queues of a Kestrel, Siberite or Darner server here")
    .description(
      "Moves what waits in the queues of a running server into task queues of the same names. An item is confirmed there " +
        "once it is on the disk here, so nothing is lost whatever stops; run it again to go on. The item of each queue that " +
        "was under way may then come twice. A child queue of Kestrel, queue+child, becomes queue:child.",
    )
    .argument("<url>", "kestrel://host:port")
    .option("--queue <name>", "only this queue; may be given several times", several)
    .option("--parallel <n>", "queues moved at the same time", wholeNumber(1), 8)
    .addHelpText("after", "\nExample:\n  $ varve import kestrel://127.0.0.1:22133 --data-dir ./data");

  action<[string], ImportCommandOptions>(withCommonOptions(command), async (run, url) => {
    const { host, port } = parseAddress(kestrelAddress(url), "the address");
    const { queue: queues, parallel } = run.options;
    const progress = new Progress(run.options);
    const moved = new Map<string, number>();
    return await run.withDirectory("create", async (mq) => {
      const { signal } = run;
      const imported = await importKestrel(mq, {
        host,
        port,
        queues,
        parallel,
        signal,
        onProgress: (each) => {
          moved.set(each.queue, each.moved);
          progress.update(() => `moved ${count([...moved.values()].reduce((sum, items) => sum + items, 0))} items`);
        },
      }).finally(() => progress.clear());
      await run.print({ queues: imported }, () => {
        if (imported.length === 0) return "nothing to move";
        return table(
          ["queue", "moved", "bytes"],
          imported.map(({ queue, into, moved, bytes }) => {
            return [queue === into ? queue : `${queue} as ${into}`, plural(moved, "item"), formatBytes(bytes)];
          }),
          run.paint,
        );
      });
      return run.interruptedCode;
    });
  });
}

function kestrelAddress(url: string): string {
  const address = /^kestrel:\/\/([^/]+)\/?$/.exec(url)?.[1];
  if (address === undefined)
    throw new UsageError(`the address must be kestrel://host:port; got ${JSON.stringify(url)}`);
  return address.includes(":") ? address : `${address}:22133`;
}
