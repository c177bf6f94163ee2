import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { eventually } from "../support/expect.js";

/** The built program. Tests are compiled to dist/test/cli, beside which it lies in dist/bin. */
const PROGRAM = fileURLToPath(new URL("../../bin/varve.js", import.meta.url));

export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  readonly input?: string | Uint8Array;
  readonly env?: NodeJS.ProcessEnv;
  readonly cwd?: string;
}

/** Runs the program to its end. Standard input is empty unless given. */
export function varve(args: readonly string[], options: RunOptions = {}): Promise<Ended> {
  const running = startVarve(args, options);
  running.child.stdin.end(options.input ?? "");
  return running.ended;
}

export interface Running {
  readonly child: ChildProcessWithoutNullStreams;
  readonly ended: Promise<Ended>;
  /** What standard output holds once it fits the pattern; rejects when the program ends before. */
  printed(pattern: RegExp): Promise<string>;
}

/** Starts the program and leaves its standard input open. */
export function startVarve(args: readonly string[], options: RunOptions = {}): Running {
  return startNode([PROGRAM, ...args], options);
}

/** Starts Node itself, with whatever arguments. */
export function startNode(args: readonly string[], options: RunOptions = {}): Running {
  const child = spawn(process.execPath, args, {
    cwd: options.cwd,
    env: {
      ...process.env,
      VARVE_DATA_DIR: undefined,
      INIT_CWD: undefined,
      NO_COLOR: undefined,
      FORCE_COLOR: undefined,
      ...options.env,
    },
  });
  let stdout = "";
  let stderr = "";
  const watchers = new Set<() => void>();
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
    stdout += chunk;
    for (const watch of [...watchers]) watch();
  });
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => {
    stderr += chunk;
  });
  // The program may end without reading all its input.
  child.stdin.on("error", () => {});
  const ended = new Promise<Ended>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => resolve({ code, stdout, stderr }));
  });
  const printed = (pattern: RegExp): Promise<string> =>
    new Promise((resolve, reject) => {
      const watch = (): void => {
        if (!pattern.test(stdout)) return;
        watchers.delete(watch);
        resolve(stdout);
      };
      watchers.add(watch);
      watch();
      void ended.then(() => reject(new Error(`it ended without printing ${pattern}; it wrote: ${stdout}${stderr}`)));
    });
  return { child, ended, printed };
}

/** Waits until the running program owns the directory, without getting in its way. */
export async function owns(directory: string, running: Running): Promise<void> {
  const file = join(directory, process.platform === "win32" ? "LOCK.owner" : "LOCK");
  const pid = new RegExp(`\\b${running.child.pid}\\b`);
  await eventually("the program owns the directory", () => existsSync(file) && pid.test(readFileSync(file, "utf8")));
}

/** The values of JSON output, one a line. */
// biome-ignore lint/suspicious/noExplicitAny: tests look into whatever shape comes out
export function jsonLines(output: string): any[] {
  return output
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as unknown);
}
