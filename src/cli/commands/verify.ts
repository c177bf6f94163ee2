import type { Command } from "commander";
import { formatBytes } from "../../api/units.js";
import { verifyDirectory } from "../../index.js";
import { ExitCode } from "../exit.js";
import { plural } from "../format.js";
import { withDirectoryOptions } from "../options.js";
import { Progress } from "../progress.js";
import { action } from "../run.js";

export function registerVerify(program: Command): void {
  const command = program
    .command("verify")
    .summary("check every file of the directory")
    .description(
      "Reads every file of the directory and checks formats, checksums and the order of offsets. Changes nothing. Says where each problem is and which records it costs.",
    )
    .addHelpText("after", "\nExits with 5 when damage was found.\n\nExample:\n  $ varve verify --data-dir ./data");

  action(withDirectoryOptions(command), async (run) => {
    const progress = new Progress(run.options);
    const report = await verifyDirectory(run.options.dataDir, {
      onProgress: ({ bytesDone, bytesTotal }) => {
        progress.update(() => `checked ${formatBytes(bytesDone)} of ${formatBytes(bytesTotal)}`);
      },
    }).finally(() => progress.clear());
    const { ok, files, bytes, records, notes } = report;
    const problems = report.problems.map(({ file, position, queue, offsets, reason }) => {
      return { file, position, queue, offsets, reason };
    });
    await run.print({ ok, files, bytes, records, problems, notes }, () =>
      [
        ...notes.map((note) => run.paint("dim", `note: ${note}`)),
        ...problems.map(({ file, position, queue, offsets, reason }) => {
          const place = position === undefined ? file : `${file} at byte ${position}`;
          const cost = offsets === undefined ? "" : `, offsets ${offsets[0]} to ${offsets[1]}`;
          return run.paint("red", `${place}: ${reason}${queue === undefined ? "" : ` (${queue}${cost})`}`);
        }),
        `checked ${plural(files, "file")}, ${formatBytes(bytes)}, ${plural(records, "record")}: ${ok ? "no damage" : plural(problems.length, "problem")}`,
      ].join("\n"),
    );
    return ok ? undefined : ExitCode.damaged;
  });
}
