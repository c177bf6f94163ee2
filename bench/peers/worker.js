/** Processes that do one thing at a time for the one that started them. */

import { fork } from "node:child_process";

/** They end with their parent. */
const running = new Set();
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});

/** The parent's side. */
export class Worker {
  #child;
  #ended;

  constructor(program, args) {
    this.#child = fork(program, args, { stdio: ["ignore", "inherit", "inherit", "ipc"] });
    running.add(this.#child);
    this.#ended = new Promise((resolve) => this.#child.once("exit", resolve)).then(() => running.delete(this.#child));
  }

  get pid() {
    return this.#child.pid;
  }

  /** @param {(progress: unknown) => void} [onProgress] */
  ask(task, onProgress = () => {}) {
    return new Promise((resolve, reject) => {
      const onExit = (code, signal) => reject(new Error(`the process that measures ended (${signal ?? code})`));
      const onMessage = ({ progress, done, error }) => {
        if (progress !== undefined) {
          onProgress(progress);
          return;
        }
        this.#child.off("exit", onExit).off("message", onMessage);
        if (error === undefined) resolve(done);
        else reject(new Error(error));
      };
      this.#child.once("exit", onExit).on("message", onMessage).send(task);
    });
  }

  async stop() {
    if (this.#child.connected) this.#child.disconnect();
    await this.#ended;
  }
}

/**
 * The worker's side.
 * @param {(task: any, onProgress: (progress: unknown) => void) => Promise<unknown>} carryOut
 */
export function serve(carryOut) {
  process.on("disconnect", () => process.exit());
  process.on("message", (task) => {
    carryOut(task, (progress) => process.send({ progress })).then(
      (done) => process.send({ done: done ?? null }),
      (error) => process.send({ error: error?.stack ?? String(error) }),
    );
  });
}
