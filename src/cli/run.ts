import type { Command } from "commander";
import type { MessageQueue } from "../api/contract.js";
import { keepAlive } from "./alive.js";
import { connect } from "./connect.js";
import { OutputClosed } from "./exit.js";
import { type Paint, painter } from "./format.js";
import { type CommonOptions, resolveCommonOptions } from "./options.js";
import { Output } from "./output.js";

/** One execution of one command: its options, where its output goes, and when to stop. */
export class Run<O = unknown> {
  readonly options: O & CommonOptions;
  readonly out = new Output(process.stdout);
  readonly paint: Paint = painter(process.stdout);
  readonly #stop = new AbortController();
  #interruptedBy: "SIGINT" | "SIGTERM" | undefined;

  constructor(options: O & CommonOptions) {
    this.options = options;
    this.out.closed.addEventListener("abort", () => this.#stop.abort(), { once: true });
  }

  /** Aborted by SIGINT and SIGTERM while a directory is open, and when nobody reads our output any more. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** The exit code of a command that a signal kept from finishing; undefined if none came. */
  get interruptedCode(): number | undefined {
    if (this.#interruptedBy === undefined) return undefined;
    return this.#interruptedBy === "SIGINT" ? 130 : 143;
  }

  /** From here on the first signal asks for an orderly end; a second one has its usual effect, should that take long. */
  #listen(): void {
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      process.once(signal, () => {
        this.#interruptedBy ??= signal;
        this.#stop.abort();
      });
    }
  }

  /** Prints data: one line of JSON, or the text that people get. */
  async print(json: unknown, text: () => string): Promise<void> {
    await this.out.write(`${this.options.json ? JSON.stringify(json, nullForMissing) : text()}\n`);
  }

  /** Prints what a change did; `--quiet` keeps it silent. */
  async report(json: unknown, text: () => string): Promise<void> {
    if (!this.options.quiet) await this.print(json, text);
  }

  /** Tells people something beside the data, on standard error. */
  note(text: string): void {
    if (!this.options.quiet && !this.options.json) process.stderr.write(`varve: ${text}\n`);
  }

  /**
   * Opens the directory, or dials the daemon, runs the body and closes in order, whatever happened.
   * @param mode `existing` refuses a directory that is not there instead of making an empty one
   */
  async withDirectory<T>(mode: "create" | "existing", body: (queue: MessageQueue) => Promise<T>): Promise<T> {
    this.#listen();
    const queue = await connect(this.options, mode);
    let result: T;
    try {
      result = await body(queue);
    } catch (error) {
      // The first failure is the one to tell about.
      await queue.close().catch(() => {});
      throw error;
    }
    await queue.close();
    return result;
  }
}

/** Fields of the output never go missing. */
function nullForMissing(_name: string, value: unknown): unknown {
  return value === undefined ? null : value;
}

/** Sets what a command does. The body resolves to the exit code; nothing stands for success. */
export function action<A extends readonly unknown[], O>(
  command: Command,
  body: (run: Run<O>, ...args: A) => Promise<number | undefined>,
): Command {
  return command.action(async (...given: unknown[]) => {
    // Commander passes the command's arguments, its options and the command itself.
    const args = given.slice(0, -2) as unknown as A;
    const run = new Run<O>({ ...(given.at(-2) as O), ...resolveCommonOptions(command) });
    try {
      process.exitCode = (await keepAlive(() => body(run, ...args))) ?? 0;
    } catch (error) {
      if (!(error instanceof OutputClosed)) throw error;
    }
  });
}
