/** The queue of a directory in this process, as the suite opens it. One file for each kind, so that they run at once. */

import { setTimeout as sleep } from "node:timers/promises";
import type { MessageQueue, OpenOptions } from "../../src/index.js";
import { makeDirectory, removeDirectory } from "../support/directories.js";
import type { Implementation, Subject } from "./suite.js";

/** By the clock of the machine. */
export function embedded(
  openDirectory: (directory: string, options: OpenOptions) => Promise<MessageQueue>,
  durability: "sync" | "async",
): Implementation {
  return {
    open: (options) =>
      start((directory) => openDirectory(directory, { ...options, durability }), {
        pass: (ms) => sleep(ms),
        wallMs: Date.now,
      }),
  };
}

/** A subject on a directory of its own. */
export async function start(
  openDirectory: (directory: string) => Promise<MessageQueue>,
  time: Pick<Subject, "pass" | "wallMs" | "stepWall">,
): Promise<Subject> {
  const directory = makeDirectory();
  let mq = await openDirectory(directory);
  return {
    ...time,
    get mq() {
      return mq;
    },
    reopen: async () => {
      await mq.close();
      mq = await openDirectory(directory);
      return mq;
    },
    dispose: async () => {
      await mq.close();
      removeDirectory(directory);
    },
  };
}
