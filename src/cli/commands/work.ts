import { spawn } from "node:child_process";
import { once } from "node:events";
import type { Command } from "commander";
import type { Task, TaskQueue, Worker } from "../../api/contract.js";
import { plural } from "../format.js";
import { duration, wholeNumber, withCommonOptions } from "../options.js";
import { existingTask } from "../queues.js";
import { action } from "../run.js";

interface WorkOptions {
  readonly concurrency: number;
  readonly lease?: string;
  readonly timeout?: string;
  readonly grace: string;
  readonly drain?: boolean;
}

/** What is kept of a command's standard error for the task's history: its end says most. */
const ERROR_CHARS = 512;

export function registerWork(program: Command): void {
  const command = program
    .command("work")
    .summary("run a command for each task")
    .description(
      "Runs a command for each task, with the payload on its standard input. When it exits with 0 the task is done; anything else is a failure, with the end of its standard error as the reason: the task is delivered again after the queue's backoff, until its attempts have run out. Its lease is kept alive meanwhile.",
    )
    .argument("<task>", "name of the task queue")
    .argument("<command...>", "the command and its arguments, behind --")
    .option("-c, --concurrency <n>", "commands that run at once", wholeNumber(1), 1)
    .option("--lease <duration>", "lease of each delivery instead of the queue's", duration)
    .option("--timeout <duration>", "longest time for one command; then it is killed, and has failed", duration)
    .option("--grace <duration>", "time that running commands get at the end", duration, "30s")
    .option("--drain", "end once no task is ready, instead of waiting for more")
    .addHelpText(
      "after",
      "\nThe command finds VARVE_TASK_ID, VARVE_TASK_ATTEMPT and, if the task has one, VARVE_TASK_KEY in its environment.\nSIGINT or SIGTERM ends the work in order: no more tasks are taken, commands may finish within --grace, and the\ntasks of those that do not are given back.\n\nExamples:\n  $ varve work jobs -c 4 -- ./resize.sh\n  $ varve work mails --drain --timeout 1m -- sendmail -t",
    );

  action<[string, string[]], WorkOptions>(withCommonOptions(command), async (run, name, [program = "", ...args]) => {
    const { concurrency, lease, timeout, grace, drain } = run.options;
    const told = { completed: 0, failed: 0, dead: 0 };
    await run.withDirectory("existing", async (queue) => {
      const tasks = await existingTask(queue, name);
      const worker = tasks.work((task, { signal }) => runCommand(program, args, task, signal), {
        concurrency,
        lease,
        timeout,
      });
      worker.on("completed", () => told.completed++);
      const failed = (event: "failed" | "dead") => (task: Task, error: unknown) => {
        told[event]++;
        const reason = error instanceof Error ? error.message : String(error);
        run.note(`task ${task.id}, attempt ${task.attempt}, ${event}: ${reason}`);
      };
      worker.on("failed", failed("failed"));
      worker.on("dead", failed("dead"));
      let failure: Error | undefined;
      worker.on("error", (error, task) => {
        failure = error;
        run.note(`${task === undefined ? name : `task ${task.id}`}: ${error.message}`);
      });
      const stop = () => void worker.close({ timeout: grace });
      if (run.signal.aborted) stop();
      else run.signal.addEventListener("abort", stop, { once: true });
      if (drain === true) closeWhenEmpty(tasks, worker);
      await worker.closed;
      // Ended by neither of us: the queue has failed.
      if (failure !== undefined && !run.signal.aborted && drain !== true) throw failure;
    });
    const { completed, failed, dead } = told;
    await run.report(
      { task: name, completed, failed, dead },
      () => `finished ${plural(completed, "task")} of ${name}; ${failed} failed, ${dead} dead`,
    );
    return undefined;
  });
}

/** Closes the worker as soon as it is idle and nothing is ready. */
function closeWhenEmpty(tasks: TaskQueue, worker: Worker): void {
  const look = async (): Promise<void> => {
    try {
      if (worker.running === 0 && (await tasks.stats()).ready === 0 && worker.running === 0) await worker.close();
    } catch {
      // The queue is closed, and the worker with it.
    }
  };
  for (const event of ["completed", "failed", "dead"] as const) worker.on(event, () => void look());
  void look();
}

async function runCommand(program: string, args: readonly string[], task: Task, signal: AbortSignal): Promise<void> {
  const { id, attempt, key, payload } = task;
  const child = spawn(program, args, {
    stdio: ["pipe", "inherit", "pipe"],
    signal,
    env: {
      ...process.env,
      VARVE_TASK_ID: id,
      VARVE_TASK_ATTEMPT: String(attempt),
      ...(key === undefined ? {} : { VARVE_TASK_KEY: key.toString() }),
    },
  });
  let complaint = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    process.stderr.write(text);
    complaint = (complaint + text).slice(-ERROR_CHARS);
  });
  // A command may end without reading all its input.
  child.stdin.on("error", () => {});
  child.stdin.end(payload);
  const [code, killedBy] = (await once(child, "close")) as [number | null, NodeJS.Signals | null];
  if (code === 0) return;
  const ended = code === null ? `ended by ${killedBy}` : `exit code ${code}`;
  throw new Error(complaint.trim() === "" ? ended : `${ended}: ${complaint.trim()}`);
}
