import { type Command, Option } from "commander";
import type { LogPosition, LogRecord } from "../../api/contract.js";
import { ExitCode } from "../exit.js";
import { attributes, jsonBytes, jsonBytesOrNull, printable, time } from "../format.js";
import { position, wholeNumber, withCommonOptions } from "../options.js";
import { existingLog } from "../queues.js";
import { action, type Run } from "../run.js";

interface ReadOptions extends RecordOptions {
  readonly offset?: number;
  readonly from?: LogPosition;
}

interface RecordOptions {
  readonly limit?: number;
  readonly raw?: boolean;
}

export function registerRead(program: Command): void {
  const command = program
    .command("read")
    .summary("print the records of a log")
    .description(
      "Prints records with their offset and time, oldest first, up to the end of the log. With --offset, that one record.",
    )
    .argument("<log>", "name of the log queue")
    .addOption(
      new Option("-o, --offset <n>", "only the record at this offset")
        .argParser(wholeNumber(0))
        .conflicts(["from", "limit"]),
    )
    .option(
      "--from <position>",
      'where to start: "start", "end", an offset or an ISO time (default: "start")',
      position,
    );
  withRecordOutput(command).addHelpText(
    "after",
    "\nExamples:\n  $ varve read events --from 2026-07-01T00:00:00Z --limit 100\n  $ varve read events --offset 7 --json",
  );

  action<[string], ReadOptions>(withCommonOptions(command), async (run, name) => {
    const { offset, from = "start" } = run.options;
    const printed = await run.withDirectory("existing", async (queue) => {
      const log = await existingLog(queue, name);
      if (offset === undefined) return printRecords(run, log.batches({ from, signal: run.signal }));
      const record = await log.read(offset);
      return record === undefined ? 0 : printRecords(run, [[record]]);
    });
    if (run.interruptedCode !== undefined) return run.interruptedCode;
    if (printed > 0) return undefined;
    run.note(offset === undefined ? `no records in ${name} from there on` : `no record at offset ${offset} of ${name}`);
    return ExitCode.nothing;
  });
}

export function registerTail(program: Command): void {
  const command = program
    .command("tail")
    .summary("follow a log")
    .description(
      "Prints records from a point on and goes on with each new one as it is committed, until SIGINT or SIGTERM, or until --limit is reached.",
    )
    .argument("<log>", "name of the log queue")
    .option("--from <position>", 'where to start: "start", "end", an offset or an ISO time', position, "end");
  withRecordOutput(command).addHelpText("after", "\nExample:\n  $ varve tail events --from start --json");

  action<[string], RecordOptions & { readonly from: LogPosition }>(withCommonOptions(command), async (run, name) => {
    await run.withDirectory("existing", async (queue) => {
      const log = await existingLog(queue, name);
      await printRecords(run, log.batches({ from: run.options.from, follow: true, signal: run.signal }));
    });
    return undefined;
  });
}

function withRecordOutput(command: Command): Command {
  return command
    .option("-n, --limit <n>", "stop after this many records", wholeNumber(1))
    .addOption(new Option("--raw", "print only the payloads, as they are, one per line").conflicts("json"));
}

/** Prints records until they end or `--limit` is reached. Returns how many. */
async function printRecords(
  run: Run<RecordOptions>,
  batches: AsyncIterable<LogRecord[]> | Iterable<LogRecord[]>,
): Promise<number> {
  const { limit = Number.POSITIVE_INFINITY, raw, json } = run.options;
  let printed = 0;
  for await (const batch of batches) {
    const records = batch.slice(0, limit - printed);
    printed += records.length;
    if (raw) await run.out.write(Buffer.concat(records.flatMap((record) => [record.payload, NEWLINE])));
    else await run.out.write(records.map((record) => `${json ? jsonLine(record) : textLine(run, record)}\n`).join(""));
    if (printed >= limit) break;
  }
  return printed;
}

const NEWLINE = Buffer.from("\n");

function jsonLine({ offset, timestamp, key, headers, payload }: LogRecord): string {
  return JSON.stringify({ offset, timestamp, key: jsonBytesOrNull(key), headers, payload: jsonBytes(payload) });
}

function textLine(run: Run, record: LogRecord): string {
  const place = run.paint("dim", `${record.offset}  ${time(record.timestamp)}${attributes(record)}`);
  return `${place}  ${printable(record.payload)}`;
}
