/** Transactions over everything at once: several logs and queues, tasks of several sources, and the position of a group. */

import type { Clients, Held, LogHandle, SourceHandle } from "./clients.js";
import { memberOf } from "./group-steps.js";
import { options, type Perform } from "./log-steps.js";
import { payloadOf } from "./payload.js";
import type { Step, StepKind, TaskRules } from "./plan.js";

export const SPREAD_STEPS = { spread } satisfies Partial<Record<StepKind, Perform>>;

/** Bytes of each message, so that all of them fit one commit. */
const BYTES_MAX = 10_000;
const PARTS_MAX = 3;
/** What becomes of tasks that are held. */
const SETTLINGS = ["ack", "nack", "release", "bring"] as const;

async function spread(clients: Clients, step: Step): Promise<void> {
  const { pick, count } = step;
  const parts = Math.min(count, PARTS_MAX);
  const logs: LogHandle[] = [];
  const queues: (SourceHandle & Pick<TaskRules, "priorities">)[] = [];
  for (let index = 0; index < parts; index++) {
    const log = await clients.log({ queue: step.queue + index });
    const queue = await clients.queue({ queue: pick + index });
    if (log === undefined || queue === undefined) return;
    logs.push(log);
    const { priorities } = clients.machine.plan.tasks[(pick + index) % clients.machine.plan.tasks.length]!;
    queues.push({ ...queue, priorities });
  }
  const member = pick % 2 === 0 ? await memberOf(clients, step) : undefined;
  if (clients.halted) return;
  const commit = clients.begin("transaction", step);
  const upTo = (member?.reader.next ?? 0) - 1;
  const refusable = member !== undefined && upTo >= 0 && member.group.committing(member.reader, upTo, false, commit);
  const settled = heldOf(clients, pick, parts);
  clients.held = clients.held.filter((held) => !settled.some((each) => each.held === held));
  const expected = settled.map(({ held: { place, token }, handle, how }) => {
    commit.releases ||= how === "release";
    return handle.model.settling(place, token, commit, how === "ack" || how === "bring");
  });
  const bytes = Math.min(step.size, BYTES_MAX);
  const { results } = clients.model;
  const run = clients.machine.mq.transaction((tx) => {
    for (const { log, name } of logs) {
      tx.append(log, payloadOf(clients.model.send(name, commit, { bytes }).number, bytes));
    }
    for (const { queue, name, priorities } of queues) {
      const priority = pick % priorities;
      const delay = pick % 3 === 0 ? step.ms : 0;
      const dueMs = delay > 0 ? commit.madeMs + delay : 0;
      const { number } = clients.model.send(name, commit, { priority, dueMs });
      tx.enqueue(queue!, payloadOf(number, bytes), { priority, ...(delay > 0 ? { delay } : {}) });
    }
    for (const { held, handle, how } of settled) {
      const { source, queue, model } = handle;
      const { token } = held;
      const item = model.itemAt(held.place);
      if (how === "nack") tx.nack(source, token, { error: "simulated" });
      else if (how === "release") tx.release(source, token);
      else if (queue === undefined || item === undefined || how === "ack") tx.ack(source, token);
      else {
        results.bringing(item, commit, commit.number, model.resultTtlMs);
        tx.ack(queue, token, { result: commit.number });
      }
    }
    if (member !== undefined && upTo >= 0) tx.commitGroup(member.member, upTo);
  }, options(step));
  clients.track(commit, run, () => {
    member?.group.committed(refusable, commit);
    for (const [index, { held, handle }] of settled.entries()) {
      handle.model.settled(held.place, commit, expected[index]!, false);
    }
  });
}

interface Settled {
  readonly held: Held;
  readonly handle: SourceHandle;
  readonly how: (typeof SETTLINGS)[number];
}

/** Some tasks in clients' hands, of sources that are open, and what becomes of each. */
function heldOf(clients: Clients, pick: number, most: number): Settled[] {
  if (pick % 3 === 2) return [];
  const all = clients.held.flatMap((held, index): Settled[] => {
    const handle = clients.sourceOf(held);
    return handle === undefined ? [] : [{ held, handle, how: SETTLINGS[(pick + index) % SETTLINGS.length]! }];
  });
  return all.slice(-most);
}
