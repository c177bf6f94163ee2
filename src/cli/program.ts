import { Command } from "commander";
import { registerBench } from "../bench/command.js";
import { registerAppend } from "./commands/append.js";
import { registerCreate } from "./commands/create.js";
import { registerDaemon } from "./commands/daemon.js";
import { registerDead } from "./commands/dead.js";
import { registerDelete } from "./commands/delete.js";
import { registerDequeue } from "./commands/dequeue.js";
import { registerDump } from "./commands/dump.js";
import { registerEnqueue } from "./commands/enqueue.js";
import {
  registerCommit,
  registerCompact,
  registerDeleteGroup,
  registerGroups,
  registerPurge,
  registerSeek,
} from "./commands/groups.js";
import { registerImport } from "./commands/import.js";
import { registerPing } from "./commands/ping.js";
import { registerQueues } from "./commands/queues.js";
import { registerRead, registerTail } from "./commands/read.js";
import { registerRepair } from "./commands/repair.js";
import { registerSchedules } from "./commands/schedules.js";
import { registerSettle } from "./commands/settle.js";
import { registerStats } from "./commands/stats.js";
import { registerStatus } from "./commands/status.js";
import { registerToken } from "./commands/token.js";
import { registerVerify } from "./commands/verify.js";
import { registerWaiting } from "./commands/waiting.js";
import { registerWork } from "./commands/work.js";
import { EXIT_CODES_HELP } from "./exit.js";
import { painter } from "./format.js";
import { withCommonOptions } from "./options.js";

/** The whole command line. Parsing errors are thrown, not printed. */
export function buildProgram(version: string): Command {
  const paint = painter(process.stdout);
  const program = new Command("varve")
    .description(
      "A durable message queue in a directory: logs that are appended to and replayed, and tasks that are leased until they are done.",
    )
    .version(version, "-V, --version", "print the version")
    .helpOption("-h, --help", "print this help")
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({ outputError: () => {} })
    .configureHelp({ styleTitle: (title) => paint("bold", title) });
  withCommonOptions(program).addHelpText(
    "after",
    `
A queue's type is part of what it is: the log "a" and the task queue "a" are two queues. Several commands, and processes
that open the directory as shared, can use it at once; one that has it to itself is named. Messages, keys and headers are UTF-8 text; other bytes
come out as {"base64": "..."} with --json. Failures go to standard error as "varve: ERR_CODE message".

${EXIT_CODES_HELP}

Examples:
  $ varve append events "hello"
  $ varve read events
  $ varve enqueue jobs "resize cat.png"
  $ varve dequeue jobs --wait 30s`,
  );

  program.commandsGroup("Queues:");
  registerCreate(program);
  registerQueues(program);
  registerStats(program);
  registerDelete(program);
  program.commandsGroup("Logs:");
  registerAppend(program);
  registerRead(program);
  registerTail(program);
  registerPurge(program);
  registerCompact(program);
  registerGroups(program);
  registerSeek(program);
  registerCommit(program);
  registerDeleteGroup(program);
  program.commandsGroup("Tasks:");
  registerEnqueue(program);
  registerDequeue(program);
  registerWork(program);
  registerSettle(program);
  registerStatus(program);
  registerWaiting(program);
  registerSchedules(program);
  registerDead(program);
  program.commandsGroup("Serving:");
  registerDaemon(program, version);
  registerPing(program);
  registerToken(program);
  registerImport(program);
  program.commandsGroup("Files and speed:");
  registerVerify(program);
  registerRepair(program);
  registerDump(program);
  registerBench(program);
  program.helpCommand("help [command]", "print the help of a command");
  return program;
}
