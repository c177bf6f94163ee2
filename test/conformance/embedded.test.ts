import { setTimeout as sleep } from "node:timers/promises";
import { type MessageQueue, open } from "../../src/index.js";
import { makeDirectory, removeDirectory } from "../support/directories.js";
import { openAt } from "../support/manual.js";
import { ManualClock } from "../support/manual-clock.js";
import { defineConformance, type Subject } from "./suite.js";

for (const durability of ["sync", "async"] as const) {
  defineConformance(`embedded, ${durability}`, {
    open: (options) =>
      start((directory) => open(directory, { ...options, durability }), { pass: (ms) => sleep(ms), wallMs: Date.now }),
  });
}

defineConformance("embedded, while time stands still", {
  timeStandsStill: true,
  open: (options) => {
    const clock = new ManualClock();
    return start((directory) => openAt(clock, directory, options), {
      pass: (ms) => clock.pass(ms),
      wallMs: () => clock.wallMs(),
      stepWall: (ms) => clock.stepWall(ms),
    });
  },
});

async function start(
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
