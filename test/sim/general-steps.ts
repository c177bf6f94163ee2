/** What clients do with a directory as a whole, and what happens to the machine. */

import type { Clients } from "./clients.js";
import { forgetMembers } from "./group-steps.js";
import type { Perform } from "./log-steps.js";
import type { Step, StepKind } from "./plan.js";

export const GENERAL_STEPS = { stats, sync, pass, stall, wall, deleteQueue } satisfies Partial<
  Record<StepKind, Perform>
>;

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

/** Its name can be used again at once. */
async function deleteQueue(clients: Clients, { queue, pick }: Step): Promise<void> {
  const { plan, mq } = clients.machine;
  const kind = pick % 2 === 0 ? "log" : "task";
  const short = kind === "log" ? `l${queue % plan.logs.length}` : `t${queue % plan.tasks.length}`;
  const name = `${kind}/${short}`;
  const { model } = clients;
  if (!(model.logs.has(name) || model.sources.has(name)) || model.isUncertain(name)) return;
  const commit = model.begin("deleteQueue", true, clients.nowMs);
  model.deleting(name);
  clients.drop(name);
  forgetMembers(clients, short);
  await clients.awaitTracked(
    commit,
    mq.deleteQueue(kind, short, { durability: "sync" }),
    () => model.deleted(name),
    () => model.notDeleted(commit, name),
  );
}
