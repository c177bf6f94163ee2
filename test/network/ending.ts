/** The end of a round: everything that is there is listed, once all else is quiet. */

import { setTimeout as sleep } from "node:timers/promises";
import type { ListOptions, LogRecord, TaskQueue } from "../../src/index.js";
import type { TaskEntry } from "../history/history.js";
import { nameOf, nowMs, type Recorder } from "../history/recorder.js";
import { GROUP, LEASE_MS, LOG, type Queues } from "./shape.js";

/** In this order nothing is missed that moves on by itself meanwhile: a lease that runs out, a delay that is over. */
const STATES: readonly ListOptions["state"][] = ["leased", "scheduled", "blocked", "ready"];
const LIST_MAX = 100_000;
/** The judge gives a task that is due so long until it must be handed out. */
const LATE_MS = 1000;
/** Who waits for less, the judge does not hear. */
const PATIENCE_MS = 1.2 * LATE_MS;
const LONGEST_DELAY_MS = 300;

export async function listAll(recorder: Recorder, { log, tasks }: Queues): Promise<void> {
  for (const queue of tasks) {
    // Twice: what was dead the first time must not be in the queue the second time.
    for (let time = 0; time < 2; time++) await listTasks(recorder, queue);
    await recorder.call(
      { op: "stats", queue: queue.name },
      () => queue.stats(),
      (stats) => ({
        stats: Object.fromEntries(Object.entries(stats).filter(([, value]) => typeof value === "number")),
      }),
    );
  }
  const { head } = await log.stats();
  await recorder.call(
    { op: "scan", log: LOG, from: head },
    async () => {
      const records: LogRecord[] = [];
      for await (const batch of log.batches({ from: head })) records.push(...batch);
      return records;
    },
    (records) => ({ records: records.map(({ offset, payload }) => [offset, nameOf(payload)]) }),
  );
  await recorder.call(
    { op: "position", log: LOG, group: GROUP },
    async () => (await log.groups()).find(({ name }) => name === GROUP),
    (group) => (group === undefined ? {} : { committed: group.committed, lag: group.lag }),
  );
}

async function listTasks(recorder: Recorder, queue: TaskQueue): Promise<void> {
  await recorder.call(
    { op: "contents", queue: queue.name },
    async () => {
      const tasks = new Map<string, TaskEntry>();
      for (const state of STATES) {
        for (const { id, raw, attempt } of await queue.list({ state, limit: LIST_MAX }))
          tasks.set(id, [id, nameOf(raw), attempt]);
      }
      const letters = await queue.dead.read({ limit: LIST_MAX });
      return { tasks: [...tasks.values()], letters };
    },
    ({ tasks, letters }) => ({ tasks, letters: letters.map(({ id, raw, attempts }) => [id, nameOf(raw), attempts]) }),
  );
}

/** Takes and acks everything, for so long that whatever is still there afterwards is held back by nobody. */
export async function drain(recorder: Recorder, { tasks }: Queues): Promise<void> {
  const untilMs = nowMs() + 2 * LEASE_MS + LONGEST_DELAY_MS + 2 * LATE_MS;
  const emptied = new Set<TaskQueue>();
  while (emptied.size < tasks.length) {
    for (const queue of tasks) {
      const late = nowMs() > untilMs;
      const told = await recorder.call(
        { op: "dequeue", queue: queue.name, max: 100 },
        () => queue.dequeueBatch({ max: 100, wait: late ? PATIENCE_MS : 20 }),
        (taken) => ({ tasks: taken.map(({ id, payload, attempt, token }) => [id, nameOf(payload), attempt, token]) }),
      );
      const taken = told.value ?? [];
      if (taken.length > 0) {
        const tokens = taken.map(({ token }) => token);
        await recorder.call({ op: "ack", queue: queue.name, tokens }, () => queue.ackBatch(tokens));
      } else if (late) emptied.add(queue);
    }
    await sleep(10);
  }
}
