import { type Command, Option } from "commander";
import type { Task } from "../../api/contract.js";
import { ExitCode, UsageError } from "../exit.js";
import { attributes, jsonBytes, jsonBytesOrNull, printable } from "../format.js";
import { duration, wholeNumber, withCommonOptions } from "../options.js";
import { existingTask } from "../queues.js";
import { action, type Run } from "../run.js";

interface DequeueOptions {
  readonly wait: string;
  readonly max: number;
  readonly lease?: string;
  readonly ack?: boolean;
  readonly raw?: boolean;
}

export function registerDequeue(program: Command): void {
  const command = program
    .command("dequeue")
    .summary("take tasks under a lease")
    .description(
      "Takes ready tasks and prints each one's payload and token. A task belongs to you until its lease ends: by then ack it, nack it or extend the lease with the token. A lease outlives this command.",
    )
    .argument("<task>", "name of the task queue")
    .option("-w, --wait <duration>", "how long to wait when no task is ready", duration, "0s")
    .option("-n, --max <n>", "most tasks to take", wholeNumber(1), 1)
    .option("--lease <duration>", "lease of this delivery instead of the queue's", duration)
    .option("--ack", "acknowledge the tasks once they are printed")
    .addOption(new Option("--raw", "print only the payloads, as they are, one per line; needs --ack").conflicts("json"))
    .addHelpText(
      "after",
      "\nExits with 3 when there was no task.\n\nExamples:\n  $ varve dequeue jobs --wait 30s\n  $ varve dequeue jobs --max 100 --ack --raw",
    );

  action<[string], DequeueOptions>(withCommonOptions(command), async (run, name) => {
    const { wait, max, lease, ack, raw } = run.options;
    if (raw && !ack)
      throw new UsageError("--raw leaves out the token, without which a task cannot be settled: add --ack");
    const taken = await run.withDirectory("existing", async (queue) => {
      const tasks = await existingTask(queue, name);
      let count = 0;
      let batch: Task[];
      // A delivery hands out what is in memory, so as many as were asked for may take several; only the first one waits.
      do {
        batch = await tasks.dequeueBatch({ max: max - count, wait: count === 0 ? wait : 0, lease, signal: run.signal });
        count += batch.length;
        for (const task of batch) await printTask(run, task);
        if (ack && batch.length > 0) {
          // Acknowledged only once the reader of our output has them: a task may be seen twice but never get lost.
          await run.out.flush();
          await tasks.ackBatch(batch);
        }
      } while (batch.length > 0 && count < max && !run.signal.aborted);
      return count;
    });
    if (taken > 0) return undefined;
    if (run.interruptedCode !== undefined) return run.interruptedCode;
    run.note(`no task is ready in ${name}`);
    return ExitCode.nothing;
  });
}

async function printTask(run: Run<DequeueOptions>, task: Task): Promise<void> {
  const { id, attempt, token, timestamp, key, headers, payload } = task;
  if (run.options.raw) {
    await run.out.write(payload);
    await run.out.write("\n");
    return;
  }
  await run.print(
    { id, attempt, token, timestamp, key: jsonBytesOrNull(key), headers, payload: jsonBytes(payload) },
    () => {
      const place = run.paint("dim", `id ${id}  attempt ${attempt}  token`);
      return `${place} ${token}${run.paint("dim", attributes(task))}\n${printable(payload)}`;
    },
  );
}
