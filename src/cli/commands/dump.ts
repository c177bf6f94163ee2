import type { Command } from "commander";
import { dumpFile } from "../../index.js";
import { withCommonOptions } from "../options.js";
import { action } from "../run.js";

export function registerDump(program: Command): void {
  const command = program
    .command("dump")
    .summary("print a file of the directory readably")
    .description(
      "Prints what is in one file of a directory: a write-ahead log, a segment, a snapshot, ... Changes nothing.",
    )
    .argument("<file>", "path of the file")
    .addHelpText("after", "\nExample:\n  $ varve dump data/wal/0000000000000001.wal");

  action<[string], object>(withCommonOptions(command), async (run, file) => {
    for await (const item of dumpFile(file)) {
      await run.print(item, () => (typeof item === "string" ? item : JSON.stringify(item)));
      if (run.signal.aborted) break;
    }
    return run.interruptedCode;
  });
}
