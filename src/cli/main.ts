#!/usr/bin/env node
import { createRequire } from "node:module";
import type { Command } from "commander";
import { describeFailure, ExitCode, type Failure } from "./exit.js";
import { buildProgram } from "./program.js";

function readVersion(): string {
  // Seen from dist/bin/varve.js, into which this file is bundled.
  const { version } = createRequire(import.meta.url)("../../package.json") as { version: string };
  return version;
}

function tell(failure: Failure, program: Command): void {
  const { code, message, details, stack } = failure;
  const args = process.argv.slice(2);
  // Looked up here, since a command line that does not parse has no options yet.
  if (args.includes("--json")) {
    process.stderr.write(`${JSON.stringify({ error: { code, message, details, stack } })}\n`);
    return;
  }
  process.stderr.write(`varve: ${code} ${message}\n`);
  if (stack !== undefined) process.stderr.write(`${stack}\n`);
  if (failure.exitCode !== ExitCode.usage) return;
  const command = args.find((word) => program.commands.some((candidate) => candidate.name() === word));
  process.stderr.write(`Try: varve ${command === undefined ? "" : `${command} `}--help\n`);
}

// Who reads the help through a pager, or the head of it, may leave before its end. Commands see to their own output.
process.stdout.on("error", ({ code }: NodeJS.ErrnoException) => {
  if (code !== "EPIPE") process.exitCode = ExitCode.failure;
});

const program = buildProgram(readVersion());
try {
  await program.parseAsync();
} catch (error) {
  const failure = describeFailure(error);
  if (failure !== undefined) {
    process.exitCode = failure.exitCode;
    tell(failure, program);
  }
}
