import { type Command, Option } from "commander";
import type { ScheduleInfo } from "../../api/contract.js";
import { formatDuration } from "../../api/units.js";
import { message } from "../../index.js";
import { table } from "../format.js";
import { duration, header, moment, type TaskTerms, wholeNumber, withCommonOptions, withTaskTerms } from "../options.js";
import { announceNew, existingTask } from "../queues.js";
import { action } from "../run.js";

interface ScheduleOptions extends TaskTerms {
  readonly cron?: string;
  readonly timeZone?: string;
  readonly every?: string;
  readonly from?: Date;
  readonly until?: Date;
  readonly missed?: "once" | "skip" | "all";
  readonly limit?: number;
  readonly key?: string;
  readonly header?: Record<string, string>;
}

export function registerSchedules(program: Command): void {
  registerSchedule(program);
  registerList(program);
  registerUnschedule(program);
}

function registerSchedule(program: Command): void {
  const command = program
    .command("schedule")
    .summary("have a task enqueued again and again")
    .description(
      "Makes a recurring schedule, or makes the one of that name anew: at the times of a cron expression, or every so often. It fires while a process has the task queue open, such as varve work. The queue is made if there is none.",
    )
    .argument("<task>", "name of the task queue")
    .argument("<name>", "name of the schedule")
    .argument("<message>", "payload of its tasks")
    .addOption(
      new Option("--cron <expression>", "minute, hour, day of month, month, day of week; in quotes").conflicts("every"),
    )
    .option("--time-zone <zone>", "of the cron expression, such as Europe/Berlin (default: UTC)")
    .option("--every <duration>", "a fixed period", duration)
    .option("--from <time>", "not before this moment", moment)
    .option("--until <time>", "not after this moment", moment)
    .addOption(
      new Option("--missed <rule>", "for times that passed while nobody had the queue open")
        .choices(["once", "skip", "all"])
        .default("once"),
    )
    .option("--limit <n>", "tasks in all", wholeNumber(1))
    .option("-k, --key <key>", "key of its tasks")
    .option("-H, --header <name=value>", "header of its tasks; may be repeated", header);
  withTaskTerms(command).addHelpText(
    "after",
    `
Examples:
  $ varve schedule jobs nightly "rebuild the index" --cron "0 3 * * *" --time-zone Europe/Berlin
  $ varve schedule jobs ping "ping" --every 5m --missed skip`,
  );

  action<[string, string, string], ScheduleOptions>(withCommonOptions(command), async (run, task, name, payload) => {
    const { key, header: headers, maxAttempts, priority, ttl, orderKey, ...rest } = run.options;
    const { cron, timeZone, every, from, until, missed, limit } = rest;
    const nextAt = await run.withDirectory("create", async (queue) => {
      await announceNew(run, queue, "task", task);
      const tasks = await queue.openTask(task);
      const spec = { cron, timeZone, every, from, until, missed, limit };
      await tasks.schedule(name, spec, message(payload, { key, headers }), { maxAttempts, priority, ttl, orderKey });
      return (await tasks.schedules()).find((info) => info.name === name)?.nextAt;
    });
    await run.report({ task, schedule: name, nextAt }, () => {
      return `schedule ${name} of ${task}${nextAt === undefined ? "" : ` fires next at ${isoTime(nextAt)}`}`;
    });
    return undefined;
  });
}

function registerList(program: Command): void {
  const command = program
    .command("schedules")
    .summary("list recurring schedules")
    .description("Lists the recurring schedules of a task queue, by name, with the time at which each fires next.")
    .argument("<task>", "name of the task queue")
    .addHelpText("after", "\nExample:\n  $ varve schedules jobs");

  action<[string], object>(withCommonOptions(command), async (run, task) => {
    await run.withDirectory("existing", async (queue) => {
      const all = await (await existingTask(queue, task)).schedules();
      if (run.options.json) {
        for (const info of all) await run.print({ task, ...info }, String);
      } else if (all.length === 0) {
        run.note(`${task} has no schedules`);
      } else {
        const rows = all.map((info) => [info.name, timesOf(info), info.missed, info.fired, isoTime(info.nextAt)]);
        await run.out.write(`${table(["NAME", "WHEN", "MISSED", "FIRED", "NEXT"], rows, run.paint)}\n`);
      }
    });
    return undefined;
  });
}

function registerUnschedule(program: Command): void {
  const command = program
    .command("unschedule")
    .summary("end a recurring schedule")
    .description("Ends a recurring schedule. Tasks that it has enqueued stay.")
    .argument("<task>", "name of the task queue")
    .argument("<name>", "name of the schedule")
    .addHelpText("after", "\nExample:\n  $ varve unschedule jobs nightly");

  action<[string, string], object>(withCommonOptions(command), async (run, task, name) => {
    const removed = await run.withDirectory("existing", async (queue) => {
      return await (await existingTask(queue, task)).unschedule(name);
    });
    await run.report({ task, schedule: name, removed }, () => {
      return removed ? `ended schedule ${name} of ${task}` : `${task} has no schedule ${name}`;
    });
    return undefined;
  });
}

function timesOf({ cron, timeZone, every }: ScheduleInfo): string {
  return cron === undefined ? `every ${formatDuration(every ?? 0)}` : `${cron} (${timeZone})`;
}

function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}
