import { type Command, Option } from "commander";
import type { ListedTask, ListOptions, TaskQueue } from "../../api/contract.js";
import { ExitCode, UsageError } from "../exit.js";
import { attributes, jsonBytes, jsonBytesOrNull, printable, time } from "../format.js";
import { duration, moment, wholeNumber, withCommonOptions } from "../options.js";
import { existingTask } from "../queues.js";
import { action, type Run } from "../run.js";

const PAGE = 100;
const STATES = ["ready", "scheduled", "leased", "blocked"] as const;

interface ListCommandOptions {
  readonly state: ListOptions["state"];
  readonly after?: string;
  readonly limit?: number;
}

/** Of tasks that nobody has, and of what hands them out. */
export function registerWaiting(program: Command): void {
  registerList(program);
  registerPause(program);
  registerResume(program);
  registerReschedule(program);
  registerCancel(program);
}

function registerList(program: Command): void {
  const command = program
    .command("list")
    .summary("list the tasks in a state")
    .description(
      "Lists the tasks of a queue that are in a state, without taking them: the most urgent first, then as they were enqueued. Dead ones are listed by varve dead.",
    )
    .argument("<task>", "name of the task queue")
    .addOption(new Option("-s, --state <state>", "which ones").choices([...STATES]).default("ready"))
    .option("-n, --limit <n>", "at most this many (default: all)", wholeNumber(1))
    .option("--after <position>", "only those behind this position, to page on")
    .addHelpText("after", "\nExamples:\n  $ varve list jobs\n  $ varve list jobs --state scheduled --limit 10 --json");

  action<[string], ListCommandOptions>(withCommonOptions(command), async (run, name) => {
    await run.withDirectory("existing", async (queue) => {
      const listed = await list(run, await existingTask(queue, name));
      if (listed === 0) run.note(`no task of ${name} is ${run.options.state}`);
    });
    return undefined;
  });
}

/** Page by page, so that memory does not grow with the queue. */
async function list(run: Run<ListCommandOptions>, tasks: TaskQueue): Promise<number> {
  const { state, limit = Number.POSITIVE_INFINITY } = run.options;
  let { after } = run.options;
  let printed = 0;
  while (printed < limit && !run.signal.aborted) {
    const page = await tasks.list({ state, after, limit: Math.min(PAGE, limit - printed) });
    for (const task of page) await printListed(run, task);
    printed += page.length;
    after = page.at(-1)?.position;
    if (page.length < PAGE) break;
  }
  return printed;
}

async function printListed(run: Run<ListCommandOptions>, task: ListedTask): Promise<void> {
  const { id, position, state, attempt, timestamp, priority, orderKey, expiresAt, dueAt, key, headers, raw } = task;
  const json = {
    id,
    position,
    state,
    attempt,
    timestamp,
    priority,
    orderKey,
    expiresAt,
    dueAt,
    key: jsonBytesOrNull(key),
    headers,
    payload: jsonBytes(raw),
  };
  await run.print(json, () => {
    const due = dueAt === undefined ? "" : `  due ${time(dueAt)}`;
    const place = run.paint("dim", `id ${id}  priority ${priority}  attempts ${attempt}${due}`);
    return `${place}${run.paint("dim", attributes(task))}\n${printable(raw)}`;
  });
}

function registerPause(program: Command): void {
  const command = program
    .command("pause")
    .summary("hand out no more tasks")
    .description(
      "Has a task queue hand out nothing until it is resumed, over restarts too. Enqueuing and settling go on.",
    )
    .argument("<task>", "name of the task queue")
    .addHelpText("after", "\nExample:\n  $ varve pause jobs");

  action<[string], object>(withCommonOptions(command), async (run, name) => {
    await run.withDirectory("existing", async (queue) => (await existingTask(queue, name)).pause());
    await run.report({ task: name, paused: true }, () => `${name} is paused`);
    return undefined;
  });
}

function registerResume(program: Command): void {
  const command = program
    .command("resume")
    .summary("hand out tasks again")
    .description("Ends a pause.")
    .argument("<task>", "name of the task queue")
    .addHelpText("after", "\nExample:\n  $ varve resume jobs");

  action<[string], object>(withCommonOptions(command), async (run, name) => {
    await run.withDirectory("existing", async (queue) => (await existingTask(queue, name)).resume());
    await run.report({ task: name, paused: false }, () => `${name} hands out tasks`);
    return undefined;
  });
}

function registerReschedule(program: Command): void {
  const command = program
    .command("reschedule")
    .summary("give a task another time")
    .description(
      "Gives a task that nobody has been handed another time, sooner or later. Its attempts so far count on.",
    )
    .argument("<task>", "name of the task queue")
    .argument("<id>", "id that enqueue printed; with --dedupe-key, a dedupe key")
    .option("--dedupe-key", "name the task by its dedupe key")
    .addOption(
      new Option("--delay <duration>", "due when this much time has passed").argParser(duration).conflicts("at"),
    )
    .addOption(new Option("--at <time>", "due at this moment").argParser(moment))
    .addHelpText(
      "after",
      "\nExamples:\n  $ varve reschedule jobs 17 --delay 0s\n  $ varve reschedule jobs 17 --at 2026-07-01",
    );

  interface RescheduleOptions {
    readonly dedupeKey?: boolean;
    readonly delay?: string;
    readonly at?: Date;
  }
  action<[string, string], RescheduleOptions>(withCommonOptions(command), async (run, task, name) => {
    const { dedupeKey, delay, at } = run.options;
    if (delay === undefined && at === undefined) throw new UsageError("say when: --delay or --at");
    const rescheduled = await run.withDirectory("existing", async (queue) => {
      const tasks = await existingTask(queue, task);
      return await tasks.reschedule(dedupeKey === true ? { dedupeKey: name } : name, { delay, at });
    });
    await run.report({ task, id: name, rescheduled }, () => {
      return rescheduled ? `${name} of ${task} has another time` : `${name} of ${task}: handed out, done or unknown`;
    });
    return rescheduled ? undefined : ExitCode.nothing;
  });
}

function registerCancel(program: Command): void {
  const command = program
    .command("cancel")
    .summary("have a task never come")
    .description(
      "Removes tasks that nobody has been handed: ready ones, delayed ones, and those that wait after a failure.",
    )
    .argument("<task>", "name of the task queue")
    .argument("<id...>", "ids that enqueue printed; with --dedupe-key, dedupe keys")
    .option("--dedupe-key", "name the tasks by their dedupe keys")
    .addHelpText("after", "\nExample:\n  $ varve cancel jobs 17 18");

  action<[string, string[]], { dedupeKey?: boolean }>(withCommonOptions(command), async (run, task, names) => {
    let cancelled = 0;
    await run.withDirectory("existing", async (queue) => {
      const tasks = await existingTask(queue, task);
      for (const name of names) {
        const done = await tasks.cancel(run.options.dedupeKey === true ? { dedupeKey: name } : name);
        if (done) cancelled++;
        else run.note(`${name}: handed out, done or unknown`);
      }
    });
    await run.report({ task, cancelled }, () => `cancelled ${cancelled} of ${names.length} in ${task}`);
    return undefined;
  });
}
