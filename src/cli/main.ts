import { createRequire } from "node:module";
import { describeFailure, type Failure } from "./exit.js";
import { buildProgram } from "./program.js";

function readVersion(): string {
  // Seen from dist/bin/varve.js, into which this file is bundled.
  const { version } = createRequire(import.meta.url)("../../package.json") as { version: string };
  return version;
}

function tell(failure: Failure, asJson: boolean): void {
  const { code, message, details, stack } = failure;
  const text = asJson
    ? JSON.stringify({ error: { code, message, ...(details && { details }), ...(stack && { stack }) } })
    : `varve: ${code} ${message}${stack === undefined ? "" : `\n${stack}`}`;
  process.stderr.write(`${text}\n`);
}

async function main(): Promise<void> {
  try {
    await buildProgram(readVersion()).parseAsync();
  } catch (error) {
    const failure = describeFailure(error);
    if (failure !== undefined) {
      process.exitCode = failure.exitCode;
      // Looked up here, since a command line that does not parse has no options yet.
      tell(failure, process.argv.includes("--json"));
    }
  }
}

await main();
