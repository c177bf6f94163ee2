import type { Command } from "commander";
import { formatBytes } from "../../api/units.js";
import { verifyDirectory } from "../../index.js";
import { ExitCode } from "../exit.js";
import { plural } from "../format.js";
import { withCommonOptions } from "../options.js";
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

  action(withCommonOptions(command), async (run) => {
    const progress = new Progress(run.options);
    const report = await verifyDirectory(run.options.dataDir, {
      onProgress: ({ bytes }) => progress.update(() => `${formatBytes(bytes)} checked`),
    }).finally(() => progress.clear());
    const problems = report.problems.map(({ file, position, queue, offsets, reason }) => ({
      file,
      position: position ?? null,
      queue: queue ?? null,
      offsets: offsets ?? null,
      reason,
    }));
    const { ok, files, bytes, records } = report;
    await run.print({ ok, files, bytes, records, problems }, () =>
      [
        ...problems.map(({ file, position, queue, offsets, reason }) => {
          const place = position === null ? file : `${file} at byte ${position}`;
          const cost = offsets === null ? "" : `, offsets ${offsets[0]} to ${offsets[1]}`;
          return run.paint("red", `${place}: ${reason}${queue === null ? "" : ` (${queue}${cost})`}`);
        }),
        `checked ${plural(files, "file")}, ${formatBytes(bytes)}, ${plural(records, "record")}: ${ok ? "no damage" : plural(problems.length, "problem")}`,
      ].join("\n"),
    );
    return ok ? undefined : ExitCode.damaged;
  });
}
