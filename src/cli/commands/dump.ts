import type { Command } from "commander";
import { dumpFile } from "../../index.js";
import { type Paint, printable } from "../format.js";
import { withDirectoryOptions } from "../options.js";
import { action } from "../run.js";

export function registerDump(program: Command): void {
  const command = program
    .command("dump")
    .summary("print a file of the directory readably")
    .description(
      "Prints what is in one file of a directory, one part a line: a write-ahead log, a segment, an index, a snapshot or the marker. Changes nothing. What is damaged is shown as such.",
    )
    .argument("<file>", "path of the file")
    .addHelpText("after", "\nExample:\n  $ varve dump data/log/events/00000000000000000000.seg");

  action<[string], object>(withDirectoryOptions(command), async (run, file) => {
    for await (const part of dumpFile(file)) {
      await run.print(part, () => describe(part, run.paint));
    }
    return undefined;
  });
}

/** `record  position=64 offset=0 ...` */
function describe(part: object, paint: Paint): string {
  const { type, ...fields } = part as { readonly type?: unknown };
  const described = Object.entries(fields).map(([name, value]) => `${paint("dim", `${name}=`)}${show(value)}`);
  return `${paint("bold", String(type))}  ${described.join(" ")}`;
}

/** Plain words as they are, all else as JSON. */
function show(value: unknown): string {
  if (typeof value === "string" && /^[\w./:-]+$/.test(value)) return value;
  return printable(JSON.stringify(value) ?? "-");
}
