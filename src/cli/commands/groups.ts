import type { Command } from "commander";
import type { GroupMember, LogPosition, LogQueue } from "../../api/contract.js";
import { VarveError } from "../../api/errors.js";
import { formatBytes, formatDuration } from "../../api/units.js";
import { plural, table } from "../format.js";
import { position, wholeNumber, withCommonOptions } from "../options.js";
import { existingLog } from "../queues.js";
import { action } from "../run.js";

export function registerGroups(program: Command): void {
  const command = program
    .command("groups")
    .summary("list the groups of a log")
    .description(
      "Lists the groups that read a log: how far each is, how much it has before it, and what was removed before it was done.",
    )
    .argument("<log>", "name of the log queue")
    .addHelpText("after", "\nExample:\n  $ varve groups events --json");

  action<[string], object>(withCommonOptions(command), async (run, name) => {
    await run.withDirectory("existing", async (queue) => {
      const groups = await (await existingLog(queue, name)).groups();
      if (run.options.json) {
        for (const group of groups) await run.print({ log: name, ...group }, String);
      } else if (groups.length === 0) {
        run.note(`no groups read ${name}`);
      } else {
        const rows = groups.map((group) => [
          group.name,
          group.type,
          group.committed,
          group.lag,
          group.lag === 0 ? "-" : formatDuration(group.lagAge),
          formatBytes(group.heldBytes),
          group.lost,
          group.leased,
          group.dead,
        ]);
        const head = ["GROUP", "TYPE", "COMMITTED", "LAG", "BEHIND", "HOLDS", "LOST", "LEASED", "DEAD"];
        await run.out.write(`${table(head, rows, run.paint)}\n`);
      }
    });
    return undefined;
  });
}

export function registerSeek(program: Command): void {
  const command = program
    .command("seek")
    .summary("move a group to another place in its log")
    .description(
      "Moves a group of a log, forwards or back: what it reads next begins there. Members of a shared group lose what they have in hand.",
    )
    .argument("<log>", "name of the log queue")
    .argument("<group>", "name of the group")
    .argument("<position>", '"start", "end", an offset or an ISO time', position)
    .addHelpText("after", "\nExamples:\n  $ varve seek events billing start\n  $ varve seek events billing 2026-07-01");

  action<[string, string, LogPosition], object>(withCommonOptions(command), async (run, name, group, to) => {
    await run.withDirectory("existing", async (queue) => {
      const log = await existingLog(queue, name);
      const isShared = (await log.groups()).some((info) => info.name === group && info.type === "shared");
      const member = isShared ? await log.sharedGroup(group) : await existingGroup(log, group);
      const committed = await member.seek(to);
      const report = { log: name, group, committed };
      await run.report(report, () => `group "${group}" of "${name}" goes on at offset ${committed}`);
    });
    return undefined;
  });
}

export function registerCommit(program: Command): void {
  const command = program
    .command("commit")
    .summary("say that a group is done with records of its log")
    .description(
      "Moves an exclusive group of a log behind a record: that one and all before it are done. Never moves it back.",
    )
    .argument("<log>", "name of the log queue")
    .argument("<group>", "name of the group")
    .argument("<offset>", "offset of the last record that is done", wholeNumber(0))
    .addHelpText("after", "\nExample:\n  $ varve commit events billing 4711");

  action<[string, string, number], object>(withCommonOptions(command), async (run, name, group, offset) => {
    await run.withDirectory("existing", async (queue) => {
      const member = await existingGroup(await existingLog(queue, name), group);
      let { committed } = await member.position();
      if (committed <= offset) committed = await member.seek(offset + 1);
      const report = { log: name, group, committed };
      await run.report(report, () => `group "${group}" of "${name}" is done with what is below offset ${committed}`);
    });
    return undefined;
  });
}

export function registerDeleteGroup(program: Command): void {
  const command = program
    .command("delete-group")
    .summary("delete a group of a log")
    .description("Deletes a group with its position and, of a shared group, its dead letters. The log stays as it is.")
    .argument("<log>", "name of the log queue")
    .argument("<group>", "name of the group")
    .addHelpText("after", "\nExample:\n  $ varve delete-group events billing");

  action<[string, string], object>(withCommonOptions(command), async (run, name, group) => {
    await run.withDirectory("existing", async (queue) => {
      if (!(await (await existingLog(queue, name)).deleteGroup(group))) throw noGroup(name, group);
      await run.report({ log: name, group, deleted: true }, () => `deleted group "${group}" of "${name}"`);
    });
    return undefined;
  });
}

interface PurgeOptions {
  readonly before?: number;
}

export function registerPurge(program: Command): void {
  const command = program
    .command("purge")
    .summary("remove the records of a log")
    .description("Removes all records of a log, or those below an offset. Offsets go on.")
    .argument("<log>", "name of the log queue")
    .option("--before <offset>", "only the records below this offset", wholeNumber(0))
    .addHelpText("after", "\nExamples:\n  $ varve purge events\n  $ varve purge events --before 4711");

  action<[string], PurgeOptions>(withCommonOptions(command), async (run, name) => {
    await run.withDirectory("existing", async (queue) => {
      const log = await existingLog(queue, name);
      const { before } = run.options;
      const { count } = await log.stats();
      if (before === undefined) await log.purge();
      else await log.trim(before);
      const { head, count: left } = await log.stats();
      const report = { log: name, removed: count - left, head };
      await run.report(report, () => `removed ${plural(count - left, "record")} of ${name}; it begins at ${head} now`);
    });
    return undefined;
  });
}

export function registerCompact(program: Command): void {
  const command = program
    .command("compact")
    .summary("remove superseded records of a log, now")
    .description(
      "Removes the records of a log that a later one with the same key supersedes, and tombstones that have stood long enough. Offsets stay.",
    )
    .argument("<log>", "name of the log queue")
    .addHelpText("after", "\nExample:\n  $ varve compact prices");

  action<[string], object>(withCommonOptions(command), async (run, name) => {
    const result = await run.withDirectory("existing", async (queue) => (await existingLog(queue, name)).compact());
    const { recordsRemoved, bytesBefore, bytesAfter } = result;
    await run.report({ log: name, ...result }, () => {
      const bytes = `${formatBytes(bytesBefore)} became ${formatBytes(bytesAfter)}`;
      return `removed ${plural(recordsRemoved, "record")} of ${name}; ${bytes}`;
    });
    return undefined;
  });
}

/** Joins an exclusive group that exists: a mistyped name must not make a new one. */
async function existingGroup(log: LogQueue, name: string): Promise<GroupMember> {
  if (!(await log.groups()).some((group) => group.name === name)) throw noGroup(log.name, name);
  return await log.group(name);
}

function noGroup(log: string, name: string): VarveError {
  return new VarveError("ERR_NOT_FOUND", `there is no group "${name}" of the log "${log}"; varve groups lists them`);
}
