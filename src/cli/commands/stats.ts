import { setTimeout as sleep } from "node:timers/promises";
import { type Command, InvalidArgumentError, Option } from "commander";
import type { LogStats, MessageQueue, QueueInfo, Stats, TaskStats } from "../../api/contract.js";
import { VarveError } from "../../api/errors.js";
import { formatBytes, formatDuration } from "../../api/units.js";
import { count, plural, table } from "../format.js";
import { withCommonOptions } from "../options.js";
import { action, type Run } from "../run.js";

interface StatsOptions {
  /** Seconds between two looks. */
  readonly watch?: number;
}

type QueueStats = LogStats | TaskStats | (QueueInfo & { readonly damaged: string });

export function registerStats(program: Command): void {
  const command = program
    .command("stats")
    .summary("show counters of the directory and its queues")
    .description("Shows the state of the directory and of its queues, or of the queues named.")
    .argument("[queue...]", "names of queues (default: all)")
    .addOption(
      new Option("--watch [seconds]", "show them again and again, until SIGINT or SIGTERM")
        .preset("2")
        .argParser(seconds),
    )
    .addHelpText("after", "\nExamples:\n  $ varve stats\n  $ varve stats jobs --watch 5 --json");

  action<[string[]], StatsOptions>(withCommonOptions(command), async (run, names) => {
    const { watch, json } = run.options;
    const redraw = watch !== undefined && !json && process.stdout.isTTY === true;
    await run.withDirectory("existing", async (queue) => {
      do {
        const directory = await queue.stats();
        const queues = await statsOf(queue, names);
        if (redraw) await run.out.write("\x1b[H\x1b[2J");
        await run.print({ directory, queues }, () => describe(run, directory, queues));
        if (watch !== undefined) await pause(watch, run.signal);
      } while (watch !== undefined && !run.signal.aborted);
    });
    return undefined;
  });
}

function seconds(text: string): number {
  const value = Number(text);
  if (!(value >= 0.1 && value <= 86_400))
    throw new InvalidArgumentError("It must be a number of seconds, 0.1 or more.");
  return value;
}

async function pause(seconds: number, signal: AbortSignal): Promise<void> {
  // The signal is how watching ends; that is no failure.
  await sleep(seconds * 1000, undefined, { signal }).catch(() => {});
}

async function statsOf(queue: MessageQueue, names: readonly string[]): Promise<QueueStats[]> {
  const all = await queue.queues();
  const unknown = names.find((name) => !all.some((info) => info.name === name));
  if (unknown !== undefined) {
    throw new VarveError("ERR_NOT_FOUND", `there is no queue "${unknown}"; varve queues lists them`);
  }
  const stats: QueueStats[] = [];
  for (const info of all) {
    if (names.length > 0 && !names.includes(info.name)) continue;
    if (info.damaged !== undefined) stats.push({ ...info, damaged: info.damaged });
    else if (info.kind === "log") stats.push(await (await queue.openLog(info.name)).stats());
    else stats.push(await (await queue.openTask(info.name)).stats());
  }
  return stats;
}

function describe(run: Run, directory: Stats, queues: readonly QueueStats[]): string {
  const parts = [describeDirectory(run, directory)];
  const logs = queues.filter((stats): stats is LogStats => stats.kind === "log" && !("damaged" in stats));
  const tasks = queues.filter((stats): stats is TaskStats => stats.kind === "task" && !("damaged" in stats));
  if (logs.length > 0) {
    const rows = logs.map((log) => [
      log.name,
      log.count,
      log.head,
      log.next,
      formatBytes(log.bytes),
      log.groups,
      log.furthestBack === undefined ? "-" : `${log.furthestBack.group}, ${formatBytes(log.furthestBack.bytes)}`,
    ]);
    parts.push(table(["LOG", "RECORDS", "HEAD", "NEXT", "SIZE", "GROUPS", "FURTHEST BACK"], rows, run.paint));
  }
  if (tasks.length > 0) {
    const rows = tasks.map((task) => [
      task.name,
      task.ready,
      task.scheduled,
      task.leased,
      task.deadDropped === 0 ? task.dead : `${task.dead} (${count(task.deadDropped)} dropped)`,
      task.ready > 0 ? formatDuration(task.oldestReadyAge) : "-",
      task.nextDueIn === undefined ? "-" : formatDuration(task.nextDueIn),
      formatBytes(task.bytes),
    ]);
    const head = ["TASK", "READY", "SCHEDULED", "LEASED", "DEAD", "OLDEST READY", "NEXT DUE", "SIZE"];
    parts.push(table(head, rows, run.paint));
  }
  for (const stats of queues) {
    if ("damaged" in stats) parts.push(run.paint("red", `${stats.kind} ${stats.name} is damaged: ${stats.damaged}`));
  }
  return parts.join("\n\n");
}

function describeDirectory(run: Run, stats: Stats): string {
  const { wal, queues, memory, recovery } = stats;
  const health = stats.health === "ok" ? "ok" : run.paint("red", `${stats.health} ${stats.failure ?? ""}`.trimEnd());
  const damaged = queues.damaged > 0 ? `, ${count(queues.damaged)} damaged` : "";
  const lines: [string, string][] = [
    ["directory", run.options.dataDir],
    ["health", health],
    ["durability", stats.durability],
    ["queues", `${count(queues.log)} log, ${count(queues.task)} task, ${count(queues.open)} open${damaged}`],
    ["WAL", `${plural(wal.files, "file")}, ${formatBytes(wal.bytes)}`],
    [
      "since open",
      `${plural(wal.commits, "commit")}, ${formatBytes(wal.writtenBytes)}, ${plural(wal.syncs, "sync")}, ${plural(wal.checkpoints, "checkpoint")}`,
    ],
    ["memory", `${formatBytes(memory.blockBytes)} of blocks, ${formatBytes(memory.chunkBytes)} read ahead`],
    ["open files", count(stats.openFiles)],
    [
      "opening",
      recovery.recovered
        ? `recovered ${plural(recovery.replayedCommits, "commit")} (${formatBytes(recovery.replayedBytes)}), cut ${formatBytes(recovery.cutBytes)}`
        : "after a clean close",
    ],
    ...recovery.notes.map((note): [string, string] => ["", note]),
  ];
  return lines.map(([name, value]) => `${run.paint("dim", name.padEnd(10))}  ${value}`).join("\n");
}
