/** What clients do with a directory as a whole, and what happens to the machine. */

import type { Clients } from "./clients.js";
import type { Perform } from "./log-steps.js";
import type { Step, StepKind } from "./plan.js";

export const GENERAL_STEPS = { stats, sync, pass, stall, wall } satisfies Partial<Record<StepKind, Perform>>;

async function stats(clients: Clients): Promise<void> {
  const { mq, disk } = clients.machine;
  clients.watch("stats", mq.stats(), ({ health }) => {
    if (health === "failed" && disk.faulted.length === 0) clients.model.violate("failed without a fault");
  });
}

async function sync(clients: Clients): Promise<void> {
  const call = clients.model.now;
  clients.watch("sync", clients.machine.mq.sync(), () => clients.model.synced(call));
}

async function pass({ machine: { clock, disk } }: Clients, { ms }: Step): Promise<void> {
  await clock.run(() => disk.halted, ms * 5);
}

async function stall({ machine: { clock, model } }: Clients, { ms }: Step): Promise<void> {
  clock.stall(ms);
  model.stalled(ms);
}

async function wall({ machine: { clock, model } }: Clients, { pick, ms }: Step): Promise<void> {
  clock.stepWall(pick % 2 === 0 ? ms * 1000 : -ms * 1000);
  model.forgetDelays();
}
