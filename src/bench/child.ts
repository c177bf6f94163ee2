/**
 * Experiments that need a process of their own: memory is measured from a clean start, opening is timed in a process
 * that has opened nothing before, and a process can be killed. The child is this same program, started with the
 * hidden command `bench child`, so that it works from the bundled program too.
 */

import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { type ErrorCode, isVarveError, VarveError } from "../api/errors.js";
import type { Experiments } from "./experiments.js";
import type { OnProgress } from "./run.js";

/** How the child is started. */
export interface ChildSettings {
  /** Half of V8's young generation, in MiB; Node's default when undefined. It decides how much garbage piles up. */
  readonly semiSpaceMiB: number | undefined;
}

export function nodeOptionsOf({ semiSpaceMiB }: ChildSettings): string[] {
  return semiSpaceMiB === undefined ? [] : [`--max-semi-space-size=${semiSpaceMiB}`];
}

type Name = keyof Experiments;
type SettingsOf<N extends Name> = Parameters<Experiments[N]>[0];
type ResultOf<N extends Name> = Awaited<ReturnType<Experiments[N]>>;

interface Task {
  readonly name: Name;
  readonly settings: unknown;
}

type Report =
  | { readonly type: "progress"; readonly fraction: number; readonly label: string }
  | { readonly type: "result"; readonly value: unknown }
  | { readonly type: "error"; readonly code: ErrorCode | undefined; readonly message: string };

/**
 * Runs an experiment in a child process.
 * @param end `kill`: the child is killed as soon as it has reported, while it still holds the directory
 */
export async function runInChild<N extends Name>(
  name: N,
  settings: SettingsOf<N>,
  options: ChildSettings & { readonly end?: "exit" | "kill"; readonly onProgress?: OnProgress },
): Promise<ResultOf<N>> {
  const program = process.argv[1];
  if (program === undefined) throw new Error("the program's own file is unknown, so no child can be started");
  const child = fork(program, ["bench", "child"], {
    execArgv: nodeOptionsOf(options),
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  // Not "close": that never comes once this side has disconnected.
  const exited = once(child, "exit");
  try {
    return await conversation<ResultOf<N>>(child, { name, settings }, options.onProgress ?? (() => {}));
  } finally {
    if (options.end === "kill") child.kill("SIGKILL");
    else if (child.connected) child.disconnect();
    await exited;
  }
}

function conversation<T>(child: ChildProcess, task: Task, onProgress: OnProgress): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    child.on("message", (report: Report) => {
      if (report.type === "progress") onProgress(report.fraction, report.label);
      else if (report.type === "result") resolve(report.value as T);
      else if (report.code !== undefined) reject(new VarveError(report.code, report.message));
      else reject(new Error(report.message));
    });
    child.once("error", reject);
    child.once("exit", (code, signal) => reject(new Error(`the child process ended early (${signal ?? code})`)));
    child.send(task);
  });
}

function describe(error: unknown): Report {
  if (isVarveError(error)) return { type: "error", code: error.code, message: error.message };
  // Anything else is a defect: its stack is all that there is to go by.
  const message = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return { type: "error", code: undefined, message };
}

/** The child's side. Ends with the parent: nothing is left behind when that is interrupted. */
export function serveParent(experiments: Experiments): void {
  const send = (report: Report): void => {
    // With a callback a failure is no event: when the parent has just gone, "disconnect" ends this process anyway.
    if (process.connected) process.send?.(report, undefined, undefined, () => {});
  };
  process.once("disconnect", () => process.exit());
  // Not once: listening keeps this process alive until the parent lets go of it or kills it.
  process.on("message", (task: Task) => {
    const experiment = experiments[task.name] as (settings: unknown, onProgress: OnProgress) => Promise<unknown>;
    experiment(task.settings, (fraction, label) => send({ type: "progress", fraction, label })).then(
      (value) => send({ type: "result", value }),
      (error: unknown) => send(describe(error)),
    );
  });
}
