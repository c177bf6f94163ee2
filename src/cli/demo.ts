/**
 * The story that `npm start` tells, in a few seconds: a log and a task queue at work in a real directory, then a daemon that
 * serves it to two kinds of clients.
 */

import { relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { styleText } from "node:util";
import type { LogQueue, MessageQueue, TaskQueue } from "../api/contract.js";
import { json, open, text } from "../index.js";
import { keepAlive } from "./alive.js";
import { type Out, PORTS, type Ports, type Serving, serve, tellDialled, tellMemcache } from "./demo-daemon.js";
import { plural } from "./format.js";
import { DEFAULT_DATA_DIR } from "./options.js";

export interface DemoOptions {
  /** Made if missing. The demo's queues go by names of their own, so any directory will do. @defaultValue "./data" */
  readonly directory?: string | undefined;
  /** End with the story, instead of serving the directory until SIGINT or SIGTERM. @defaultValue true */
  readonly exit?: boolean | undefined;
  /** Where it is served; free ports if these are taken. @defaultValue 22133 for memcache clients, 7420 for varve's own */
  readonly ports?: Ports | undefined;
  /** Takes the story line by line. @defaultValue prints to standard output */
  readonly out?: ((line: string) => void) | undefined;
}

const LOG = "demo-events";
const TASKS = "demo-jobs";

interface Job {
  readonly job: string;
  /** How many attempts at it fail before one succeeds. */
  readonly failures: number;
  readonly error?: string;
}

const JOBS: readonly Job[] = [
  { job: "make a thumbnail of cat.png", failures: 0 },
  { job: "send the receipt to ada@example.com", failures: 1, error: "mail server is busy" },
  { job: "charge the expired card", failures: 99, error: "card declined" },
];
const MAX_ATTEMPTS = 3;

/** Where the reader's shell stands: npm runs scripts in the package's folder, wherever it was called. */
const SHELL_DIRECTORY = process.env.INIT_CWD ?? process.cwd();

/** Runs the story. It works again and again on the same directory. Rejects with what `open` and the queues throw. */
export function runDemo(options: DemoOptions = {}): Promise<void> {
  return keepAlive(() => tell(options));
}

async function tell(options: DemoOptions): Promise<void> {
  const { directory = DEFAULT_DATA_DIR, exit = true, out = (line) => console.log(line) } = options;
  const coloured = options.out === undefined && process.stdout.isTTY === true && !process.env.NO_COLOR;
  const heading = (line: string): void => {
    out("");
    out(coloured ? styleText("bold", line) : line);
  };

  out(`varve keeps queues in a directory. This one is ${shown(directory)}`);
  const mq = await open(directory);
  try {
    const log = await mq.openLog(LOG, { codec: text() });
    heading("1. A log keeps every record, in order, under an offset that never changes");
    await tellAppend(log, out);
    heading("2. A tail gets each new record as soon as it is safe on the disk");
    await tellTail(log, out);

    const tasks = await mq.openTask(TASKS, {
      codec: json<Job>(),
      maxAttempts: MAX_ATTEMPTS,
      backoff: { initial: "100ms", factor: 1 },
    });
    heading("3. A task belongs to one worker at a time and comes back until it is done");
    await tellTasks(tasks, out);
    heading(`4. What fails ${MAX_ATTEMPTS} times becomes a dead letter, kept with its history`);
    await tellDeadLetters(tasks, out);

    heading("5. It is all on the disk");
    await tellQueues(mq, out);
  } catch (error) {
    // The first failure is the one to tell about.
    await mq.close().catch(() => {});
    throw error;
  }
  await mq.close();
  out("   The directory is closed, and free for the next process.");

  const serving = await serve(directory, options.ports ?? PORTS);
  try {
    heading("6. A daemon serves the same directory; any memcache client can use it, in any language");
    await tellMemcache(serving, out);
    heading("7. dial() in place of open(): the whole API over a connection");
    await tellDialled(serving, LOG, out);
    if (!exit) {
      heading("Now you: the daemon goes on until you press Ctrl-C. In another shell");
      for (const line of [...conversations(serving), ...commands(directory)]) out(`   ${line}`);
      await new Promise<void>((resolve) => {
        for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => resolve());
      });
    }
  } finally {
    await serving.close();
  }
  out("   Stopped in order: nothing is left to recover.");
  if (!exit) return;
  heading("Now you");
  const daemon = `daemon --kestrel 127.0.0.1:${PORTS.kestrel} --target tcp://127.0.0.1:${PORTS.native}`;
  for (const line of [...commands(directory), `${commandLine()} ${daemon}${where(directory)}`]) out(`   ${line}`);
}

/** How to talk to the daemon while it runs. nc comes with most systems. */
function conversations({ kestrel: { host, port }, target }: Serving): string[] {
  return [
    `printf 'set greetings 0 0 5\\r\\nhello\\r\\nquit\\r\\n' | nc ${host} ${port}`,
    `printf 'get greetings\\r\\nquit\\r\\n' | nc ${host} ${port}`,
    `${commandLine()} tail ${LOG} --from start --target ${target}`,
    `${commandLine()} enqueue greetings "hello" --target ${target}`,
  ];
}

async function tellAppend(log: LogQueue<string, string>, out: Out): Promise<void> {
  const offsets: number[] = [];
  for (const event of ["order 1001 was placed", "order 1001 was paid", "order 1001 was shipped"]) {
    const offset = await log.append(event);
    offsets.push(offset);
    out(`   append  ${event.padEnd(22)}  -> offset ${offset}`);
  }
  const from = offsets[1] ?? 0;
  out(`   Replayed from offset ${from}, as often as you like:`);
  for await (const records of log.batches({ from })) {
    for (const record of records) out(`   read    offset ${record.offset}: ${record.payload}`);
  }
}

async function tellTail(log: LogQueue<string, string>, out: Out): Promise<void> {
  const news = ["order 1002 was placed", "order 1002 was paid"];
  // From a known offset rather than from the end: nothing that is appended now can slip by before the tail is there.
  const { next } = await log.stats();
  const appending = (async () => {
    for (const event of news) await log.append(event);
  })();
  let seen = 0;
  for await (const record of log.tail({ from: next })) {
    out(`   tail    offset ${record.offset}: ${record.payload}`);
    if (++seen === news.length) break;
  }
  await appending;
}

async function tellTasks(tasks: TaskQueue<Job, Job>, out: Out): Promise<void> {
  const open = new Set((await tasks.enqueueBatch(JOBS)).map((enqueued) => enqueued.id));
  for (const { job } of JOBS) out(`   enqueue ${job}`);
  while (open.size > 0) {
    const task = await tasks.dequeue({ wait: "5s" });
    if (task === undefined) throw new Error("the demo's tasks did not come back");
    if (!open.has(task.id)) {
      // Left by an earlier run, or enqueued by hand since.
      await tasks.ack(task);
      out(`   attempt ${task.attempt} of task ${task.id}, which was there before: done, acked`);
      continue;
    }
    const { job, failures, error = "failed" } = task.payload;
    if (task.attempt > failures) {
      await tasks.ack(task);
      out(`   attempt ${task.attempt} ${job}: done, acked`);
      open.delete(task.id);
    } else {
      await tasks.nack(task, { error });
      const dead = task.attempt >= MAX_ATTEMPTS;
      out(`   attempt ${task.attempt} ${job}: ${error}, ${dead ? "no attempts left" : "again after a pause"}`);
      if (dead) open.delete(task.id);
    }
  }
}

async function tellDeadLetters(tasks: TaskQueue<Job, Job>, out: Out): Promise<void> {
  // The newest one is this run's; earlier runs have left theirs.
  let letters = await tasks.dead.read();
  let newest = letters.at(-1);
  while (letters.length > 0) {
    newest = letters.at(-1);
    letters = await tasks.dead.read(newest === undefined ? {} : { after: newest.offset });
  }
  if (newest === undefined) return;
  out(`   dead    ${newest.payload?.job ?? newest.raw.toString()}`);
  for (const failure of newest.failures) out(`           attempt ${failure.attempt}: ${failure.error}`);
}

async function tellQueues(mq: MessageQueue, out: Out): Promise<void> {
  for (const queue of await mq.queues()) {
    if (queue.name === LOG) out(`   log     ${queue.name}: ${plural(queue.count, "record")}`);
  }
  const { ready, scheduled, leased, dead } = await (await mq.openTask(TASKS)).stats();
  out(`   tasks   ${TASKS}: ${plural(ready + scheduled + leased, "task")} to do, ${plural(dead, "dead letter")}`);
}

/** Commands that work as they stand, typed where the demo was started. */
function commands(directory: string): string[] {
  const varve = commandLine();
  const at = where(directory);
  return [
    `${varve} read ${LOG}${at}`,
    `${varve} append ${LOG}${at} "hello from the shell"`,
    `${varve} dead ${TASKS} list${at}`,
    `${varve} stats${at}`,
    `${varve} --help`,
  ];
}

function where(directory: string): string {
  const isDefault = resolve(directory) === resolve(SHELL_DIRECTORY, DEFAULT_DATA_DIR);
  return isDefault ? "" : ` --data-dir ${shellWord(shown(directory))}`;
}

function commandLine(): string {
  const program = fileURLToPath(new URL("../../bin/varve.js", import.meta.url));
  return `node ${shellWord(relative(SHELL_DIRECTORY, program))}`;
}

/** A path as the reader would type it. */
function shown(directory: string): string {
  const path = relative(SHELL_DIRECTORY, directory);
  return path === "" ? "." : path.startsWith("..") ? resolve(directory) : path;
}

function shellWord(word: string): string {
  if (/^[A-Za-z0-9_./:=@%+,-]+$/.test(word)) return word;
  return process.platform === "win32" ? `"${word}"` : `'${word.replaceAll("'", "'\\''")}'`;
}
