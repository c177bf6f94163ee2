import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";

/** A child process that runs a compiled test program and sends messages back. */
export interface Child {
  readonly process: ChildProcess;
  /** Everything it has sent so far, in order. All that was sent before a kill is here once `exited` has resolved. */
  readonly messages: unknown[];
  /** The first message for which the test holds, now or later; rejects if the child ends without it. */
  message<T>(test: (message: T) => boolean): Promise<T>;
  /** Resolves when it has ended and its last message has been read. */
  readonly exited: Promise<{ code: number | null; signal: NodeJS.Signals | null; stderr: string }>;
  kill(): void;
}

export interface ChildOptions {
  readonly args?: readonly string[];
  /** Node's own options, such as a heap limit. */
  readonly nodeOptions?: readonly string[];
}

/** Starts a program that lies beside the calling test: `startChild(import.meta.url, "./worker.js")`. */
export function startChild(from: string, program: string, options: ChildOptions = {}): Child {
  const child = fork(fileURLToPath(new URL(program, from)), [...(options.args ?? [])], {
    execArgv: [...(options.nodeOptions ?? [])],
    stdio: ["ignore", "ignore", "pipe", "ipc"],
  });
  const messages: unknown[] = [];
  const listeners = new Set<() => void>();
  let ended = false;
  let stderr = "";
  child.stderr?.setEncoding("utf8").on("data", (chunk: string) => {
    stderr += chunk;
  });
  const wake = (): void => {
    for (const listener of [...listeners]) listener();
  };
  child.on("message", (value) => {
    messages.push(value);
    wake();
  });
  const exited = new Promise<{ code: number | null; signal: NodeJS.Signals | null; stderr: string }>(
    (resolve, reject) => {
      child.once("error", reject);
      // "close" comes after the pipes have been drained, so that no message is missed.
      child.once("close", (code, signal) => {
        ended = true;
        wake();
        resolve({ code, signal, stderr });
      });
    },
  );
  exited.catch(() => {});
  return {
    process: child,
    messages,
    exited,
    kill: () => {
      child.kill("SIGKILL");
    },
    message: <T>(test: (message: T) => boolean) =>
      new Promise<T>((resolve, reject) => {
        const look = (): void => {
          const found = messages.find((value) => test(value as T));
          if (found !== undefined) {
            listeners.delete(look);
            resolve(found as T);
          } else if (ended) {
            listeners.delete(look);
            reject(new Error(`the child ended without the expected message; it wrote: ${stderr || "nothing"}`));
          }
        };
        listeners.add(look);
        look();
      }),
  };
}
