import { CommanderError } from "commander";
import { type ErrorDetails, isVarveError } from "../api/errors.js";

/** What the shell is told. Part of the interface: scripts depend on these numbers. */
export const ExitCode = { ok: 0, failure: 1, usage: 2, nothing: 3, locked: 4, damaged: 5, unreachable: 6 } as const;

export const EXIT_CODES_HELP = `Exit codes:
  0  done; also when tail or stats --watch is ended by a signal
  1  failed
  2  wrong usage: unknown command or option, a value that does not fit
  3  nothing there: read, dequeue or a dead letter named by id found nothing
  4  another process owns the directory
  5  damage was found
  6  no daemon answers at the target
  130, 143  interrupted (SIGINT, SIGTERM); what was acknowledged before is kept`;

/** The command line does not make sense, in a way that its parser cannot see. */
export class UsageError extends Error {
  readonly code = "ERR_USAGE";
}

/** Thrown by writes once nobody reads our output; unwinds the command, which then ends quietly. */
export class OutputClosed extends Error {}

const EXIT_BY_CODE: Readonly<Record<string, number>> = {
  ERR_USAGE: ExitCode.usage,
  ERR_OPTION: ExitCode.usage,
  ERR_ARGUMENT: ExitCode.usage,
  ERR_QUEUE_NAME: ExitCode.usage,
  ERR_DIR_LOCKED: ExitCode.locked,
  ERR_CORRUPT: ExitCode.damaged,
  ERR_DISCONNECTED: ExitCode.unreachable,
};

export interface Failure {
  readonly code: string;
  readonly message: string;
  readonly exitCode: number;
  /** What VarveError says for programs; empty for other errors. */
  readonly details: ErrorDetails;
  /** Only for errors that carry no code: those are defects, and the stack belongs into a report about one. */
  readonly stack: string | undefined;
}

/** Describes whatever was thrown; undefined when commander has already printed what was asked for, such as help. */
export function describeFailure(error: unknown): Failure | undefined {
  if (error instanceof CommanderError) {
    if (error.exitCode === 0) return undefined;
    // A command group without a subcommand: commander has printed its help to standard error.
    if (error.code === "commander.help") return usage("a command is missing");
    return usage(error.message.replace(/^error: /, "").replace(/\n\((Did you mean .*)\)$/s, "; $1"));
  }
  const code = error instanceof Error ? (error as { code?: unknown }).code : undefined;
  if (error instanceof Error && typeof code === "string") {
    const exitCode = EXIT_BY_CODE[code] ?? ExitCode.failure;
    const details = isVarveError(error) ? error.details : {};
    // Node's own errors repeat their code in the message.
    const message = error.message.startsWith(`${code}: `) ? error.message.slice(code.length + 2) : error.message;
    return { code, message, exitCode, details, stack: undefined };
  }
  const message = error instanceof Error ? error.message : String(error);
  const stack = error instanceof Error ? error.stack : undefined;
  return { code: "ERR_UNEXPECTED", message, exitCode: ExitCode.failure, details: {}, stack };
}

function usage(message: string): Failure {
  return { code: "ERR_USAGE", message, exitCode: ExitCode.usage, details: {}, stack: undefined };
}
