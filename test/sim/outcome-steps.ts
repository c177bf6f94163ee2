/** What becomes of tasks, as clients ask for it and as workers say it: flows, results, progress, states. */

import { type Flow, isVarveError } from "../../src/index.js";
import type { Clients, SourceHandle } from "./clients.js";
import type { Commit, Item } from "./commit.js";
import { options, type Perform } from "./log-steps.js";
import { numberOf } from "./look.js";
import { placeOfId } from "./model-task.js";
import { payloadOf } from "./payload.js";
import type { Step, StepKind } from "./plan.js";

export const OUTCOME_STEPS = {
  flow,
  result,
  progress,
  status,
  list,
} satisfies Partial<Record<StepKind, Perform>>;

/** States that a task is in while it is not done. */
const STATES = ["ready", "scheduled", "leased", "blocked"] as const;

/** A task of a flow, with its item. */
interface Planned {
  readonly handle: SourceHandle;
  readonly item: Item;
  readonly flow: Flow;
  readonly children: readonly Planned[];
}

/** One parent and its children, of which the first may have some itself; in any queues. */
async function flow(clients: Clients, step: Step): Promise<void> {
  const { pick, count } = step;
  const handles: SourceHandle[] = [];
  for (let index = 0; index < 3; index++) {
    const handle = await clients.queue({ queue: step.queue + (pick % (index + 1)) });
    if (handle === undefined) return;
    handles.push(handle);
  }
  const commit = clients.begin("flow", step);
  const [parents, children, grandchildren] = handles as [SourceHandle, SourceHandle, SourceHandle];
  const below = pick % 4 === 0 ? [planned(clients, step, commit, grandchildren, [])] : [];
  const several = Array.from({ length: Math.min(count, 3) }, (_, index) => {
    return planned(clients, step, commit, children, index === 0 ? below : []);
  });
  const root = planned(clients, step, commit, parents, several);
  clients.track(commit, clients.machine.mq.flow(root.flow, options(step)), (enqueued) => {
    const name = ({ item, handle, children: some }: Planned, { task, children: ids }: typeof enqueued) => {
      item.id = task.id;
      clients.note(`${handle.name}: message ${item.number} got ${task.id}`);
      handle.model.placed(item, placeOfId(task.id));
      for (const [index, child] of some.entries()) name(child, ids[index]!);
    };
    name(root, enqueued);
  });
}

function planned(
  clients: Clients,
  { pick, ms, size }: Step,
  commit: Commit,
  handle: SourceHandle,
  children: readonly Planned[],
): Planned {
  const { priorities } = clients.machine.plan.tasks[Number(handle.name.slice("task/t".length))]!;
  const priority = pick % priorities;
  const delay = children.length === 0 && pick % 5 === 0 ? ms : 0;
  const item = clients.model.send(handle.name, commit, { priority, dueMs: delay > 0 ? commit.madeMs + delay : 0 });
  if (children.length > 0)
    clients.model.flows.add(
      item,
      children.map((child) => child.item),
    );
  const input = payloadOf(item.number, Math.min(size, 8000));
  const terms = { priority, ...(delay > 0 ? { delay } : {}) };
  const flow = { queue: handle.queue!, input, options: terms, children: children.map((child) => child.flow) };
  return { handle, item, flow, children };
}

/** A task of a queue whose name is known: of the last ones, so that it is often still there. */
async function named(clients: Clients, step: Step): Promise<{ handle: SourceHandle; item: Item } | undefined> {
  const handle = await clients.queue(step);
  const item = handle?.model.named.at(-1 - (step.pick % 12));
  return handle === undefined || item === undefined ? undefined : { handle, item };
}

async function result(clients: Clients, step: Step): Promise<void> {
  const chosen = await named(clients, step);
  if (chosen === undefined) return;
  const { handle, item } = chosen;
  const { results, now: askedNumber } = clients.model;
  const at = () => ({ askedNumber, nowMs: clients.nowMs });
  const run = handle.queue!.result(item.id!, { wait: step.pick % 3 === 0 ? Math.min(step.ms, 500) : 0 });
  clients.watch(
    `result of ${item.number}`,
    run,
    (value) => results.told(item, value, at()),
    (error) => {
      const code = isVarveError(error) ? error.code : "";
      if (["ERR_TIMEOUT", "ERR_TASK_DEAD", "ERR_NOT_FOUND"].includes(code) && isThere(clients, item))
        results.toldUndone(item, code, at());
    },
  );
}

/** Whether its queue is, as far as can be told. */
function isThere(clients: Clients, item: Item): boolean {
  return !item.deleted && !clients.model.isUncertain(item.queue);
}

async function progress(clients: Clients, { pick, mode }: Step): Promise<void> {
  const held = clients.held.at(-1 - (pick % 4));
  const handle = held && clients.sourceOf(held);
  const item = held && handle?.model.itemAt(held.place);
  if (handle?.queue === undefined || item === undefined) return;
  const { place, token } = held!;
  const commit = clients.begin("progress", { mode });
  const { model } = handle;
  const value = commit.number;
  clients.model.results.saying(item, { commit, token, value });
  const expected = model.settling(place, token, commit, false);
  const told = (refused: boolean) => {
    model.settled(place, commit, expected, refused);
    model.touched(place, commit);
  };
  clients.track(
    commit,
    handle.queue.progress(token, value, mode === undefined ? {} : { durability: mode }),
    () => told(false),
    (error) => {
      if (isVarveError(error, "ERR_STALE_LEASE")) told(true);
      else model.touched(place, commit);
    },
  );
}

async function status(clients: Clients, step: Step): Promise<void> {
  const chosen = await named(clients, step);
  if (chosen === undefined) return;
  const { handle, item } = chosen;
  const { results, now: askedNumber } = clients.model;
  clients.watch(`status of ${item.number}`, handle.queue!.status(item.id!), (told) => {
    // After a failure, what was on its way to the log is nowhere until the directory is opened again.
    if (!isThere(clients, item) || clients.machine.disk.faulted.length > 0) return;
    const { nowMs } = clients;
    handle.model.standing(item, told.state, askedNumber);
    const token = handle.model.tokenOf(item, nowMs);
    if (told.state === "leased") results.toldProgress(item, told.progress, token, { askedNumber, nowMs });
    if (told.state === "done") results.told(item, told.result, { askedNumber, nowMs });
  });
}

/** All that are in a state, page by page. */
async function list(clients: Clients, step: Step): Promise<void> {
  const handle = await clients.queue(step);
  if (handle === undefined) return;
  const { queue, name, model } = handle;
  const state = STATES[step.pick % STATES.length]!;
  const asked = clients.model.now;
  const all = async () => {
    const tasks = [];
    for (let after: string | undefined; ; after = tasks.at(-1)!.position) {
      const page = await queue!.list({ state, limit: step.count, ...(after === undefined ? {} : { after }) });
      tasks.push(...page);
      if (page.length < step.count) return tasks;
    }
  };
  clients.watch(`list of ${state}`, all(), (tasks) => {
    const seen = new Set<string>();
    for (const { position, payload, headers, state: shown } of tasks) {
      if (seen.has(position)) clients.model.violate(`${name}: the list of what is ${state} has ${position} twice`);
      seen.add(position);
      const item = model.item(
        position,
        numberOf(payload!, () => headers),
      );
      if (item !== undefined) model.standing(item, shown, asked);
    }
  });
}
