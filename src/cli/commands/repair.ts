import type { Command } from "commander";
import { formatBytes } from "../../api/units.js";
import { type RepairReport, repairDirectory } from "../../index.js";
import { canAsk, confirmed } from "../confirm.js";
import { ExitCode, UsageError } from "../exit.js";
import { plural } from "../format.js";
import { withDirectoryOptions } from "../options.js";
import { Progress } from "../progress.js";
import { action, type Run } from "../run.js";

interface RepairFlags {
  readonly dryRun?: boolean;
  readonly yes?: boolean;
}

export function registerRepair(program: Command): void {
  const command = program
    .command("repair")
    .summary("make a damaged directory usable again")
    .description(
      "Makes a damaged directory one that opens, with every queue and record that is not damaged itself. Offsets stay as they are; where records are lost there is a gap, which readers pass. Whatever is removed or replaced is kept in the folder damaged. A directory without damage is left as it is. May be interrupted and run again.",
    )
    .option("-n, --dry-run", "only say what would be done and what is lost; do this first")
    .option("-y, --yes", "do it without asking")
    .addHelpText(
      "after",
      `
Asks before it changes anything; without a terminal, say --dry-run or --yes. Exits with 5 when there is damage that has
not been repaired.

Examples:
  $ varve repair --dry-run --data-dir ./data
  $ varve repair --yes --data-dir ./data`,
    );

  action<[], RepairFlags>(withDirectoryOptions(command), async (run) => {
    const { dryRun = false, yes = false } = run.options;
    const asks = !dryRun && !yes;
    if (asks && !canAsk(run.options)) {
      throw new UsageError("nobody can be asked here: say --dry-run to see what would be done, then --yes to do it");
    }
    let report = await repair(run, dryRun || asks);
    if (asks && !report.sound) {
      await run.print(report, () => describe(run, report));
      if (!(await confirmed("Do it?"))) return ExitCode.damaged;
      report = await repair(run, false);
    }
    await run.print(report, () => describe(run, report));
    return report.sound || !report.dryRun ? undefined : ExitCode.damaged;
  });
}

async function repair(run: Run<RepairFlags>, dryRun: boolean): Promise<RepairReport> {
  const progress = new Progress(run.options);
  return await repairDirectory(run.options.dataDir, {
    dryRun,
    onProgress: ({ bytesDone, bytesTotal }) => {
      progress.update(() => `checked ${formatBytes(bytesDone)} of ${formatBytes(bytesTotal)}`);
    },
  }).finally(() => progress.clear());
}

function describe(
  run: Run<RepairFlags>,
  { sound, dryRun, problems, actions, losses, notes, kept }: RepairReport,
): string {
  if (sound) return "no damage; nothing was changed";
  const would = dryRun ? "would be done" : "done";
  return [
    `${plural(problems.length, "problem")}; 'varve verify' lists them`,
    ...actions.map((line) => `${would}: ${line}`),
    ...losses.map(({ queue, offsets, reason }) => {
      const which = offsets === undefined ? "" : `, offsets ${offsets[0]} to ${offsets[1]}`;
      return run.paint("red", `lost: ${queue === undefined ? reason : `${queue}${which} (${reason})`}`);
    }),
    ...notes.map((note) => run.paint("dim", `note: ${note}`)),
    dryRun ? "nothing was changed" : `repaired${kept === undefined ? "" : `; what was replaced is in ${kept}`}`,
  ].join("\n");
}
