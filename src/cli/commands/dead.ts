import { Argument, type Command, Option } from "commander";
import type { DeadLetter, DeadLetters } from "../../api/contract.js";
import { ExitCode, UsageError } from "../exit.js";
import { attributes, jsonBytes, jsonBytesOrNull, plural, printable, time } from "../format.js";
import { duration, several, wholeNumber, withCommonOptions } from "../options.js";
import { existingTask } from "../queues.js";
import { action, type Run } from "../run.js";

const PAGE = 100;

interface DeadOptions {
  readonly limit?: number;
  readonly id?: readonly string[];
  readonly after?: number;
  readonly olderThan?: string;
}

type DeadAction = "list" | "redrive" | "purge";

export function registerDead(program: Command): void {
  const command = program
    .command("dead")
    .summary("list, redrive or purge dead letters")
    .description(
      "Dead letters are the tasks that ran out of attempts. list shows them, oldest first; redrive moves them back to their queue with a fresh count of attempts; purge deletes them for good.",
    )
    .argument("<task>", "name of the task queue")
    .addArgument(new Argument("[action]", "what to do with them").choices(["list", "redrive", "purge"]).default("list"))
    .option("-n, --limit <n>", "at most this many, oldest first (default: all)", wholeNumber(1))
    .addOption(new Option("--id <id>", "only the task with this id; repeatable").argParser(several))
    .option("--older-than <duration>", "redrive, purge: only those that died at least so long ago", duration)
    .option("--after <offset>", "list: only those behind this offset, to page on", wholeNumber(0))
    .addHelpText(
      "after",
      "\nExamples:\n  $ varve dead jobs list\n  $ varve dead jobs redrive --limit 10\n  $ varve dead jobs purge --older-than 30d\n  $ varve dead jobs purge --id 17",
    );

  action<[string, DeadAction], DeadOptions>(withCommonOptions(command), async (run, name, what) => {
    const { id: ids, limit, after, olderThan } = run.options;
    if (after !== undefined && what !== "list") {
      throw new UsageError(`--after goes with list; choose what to ${what} with --id, --older-than or --limit`);
    }
    if (olderThan !== undefined && what === "list") throw new UsageError("--older-than goes with redrive and purge");
    return run.withDirectory("existing", async (queue) => {
      const { dead } = await existingTask(queue, name);
      if (what === "list") {
        const listed = await list(run, dead);
        if (listed === 0) run.note(`no dead letters in ${name}${after === undefined && !ids ? "" : " match"}`);
        return ids !== undefined && listed === 0 ? ExitCode.nothing : undefined;
      }
      const selection = { ids, olderThan, limit };
      const count = what === "redrive" ? await dead.redrive(selection) : await dead.purge(selection);
      await run.report(
        what === "redrive" ? { task: name, redriven: count } : { task: name, purged: count },
        () => `${what === "redrive" ? "moved back" : "deleted"} ${plural(count, "dead letter")} of ${name}`,
      );
      return ids !== undefined && count === 0 ? ExitCode.nothing : undefined;
    });
  });
}

/** Prints page by page, so that memory does not grow with the number of dead letters. Returns how many were printed. */
async function list(run: Run<DeadOptions>, dead: DeadLetters): Promise<number> {
  const { limit = Number.POSITIVE_INFINITY, id: ids } = run.options;
  let { after } = run.options;
  let printed = 0;
  while (printed < limit && !run.signal.aborted) {
    const page = await dead.read(after === undefined ? { limit: PAGE } : { limit: PAGE, after });
    for (const letter of page) {
      if (printed >= limit) break;
      if (ids !== undefined && !ids.includes(letter.id)) continue;
      await printLetter(run, letter);
      printed++;
    }
    after = page.at(-1)?.offset;
    if (page.length < PAGE) break;
  }
  return printed;
}

async function printLetter(run: Run, letter: DeadLetter): Promise<void> {
  const { id, offset, enqueuedAt, diedAt, attempts, reason, failures, key, headers, raw } = letter;
  const json = {
    offset,
    id,
    enqueuedAt,
    diedAt,
    attempts,
    reason,
    failures,
    key: jsonBytesOrNull(key),
    headers,
    payload: jsonBytes(raw),
  };
  await run.print(json, () =>
    [
      `${run.paint("dim", `offset ${offset}  id`)} ${id}${run.paint("dim", attributes(letter))}`,
      `  ${printable(raw)}`,
      `  ${run.paint("red", `died ${time(diedAt)} after ${plural(attempts, "attempt")}: ${printable(reason)}`)}`,
      ...failures.map((failure) =>
        run.paint("dim", `  attempt ${failure.attempt}  ${time(failure.at)}  ${printable(failure.error)}`),
      ),
    ].join("\n"),
  );
}
