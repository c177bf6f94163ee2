/** What becomes of a task, as those who enqueued it and those who work on it see it. */

import type { Enqueued, ResultOptions, TaskStatus } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import { resolveResultOptions } from "../api/options.js";
import { show } from "../api/show.js";
import { onAbort } from "../api/signals.js";
import type { Engine } from "../engine/engine.js";
import { recordBytesMax } from "../storage/batch.js";
import type { Change } from "./commit.js";
import { SETTLE_BYTES_MAX } from "./consumer.js";
import type { EmbeddedDeadLetters } from "./dead-letters.js";
import { CHILD_DONE_BYTES_MAX } from "./flows.js";
import { type Outstanding, TaskPhase } from "./ledger.js";
import { RESULT_META_BYTES_MAX, resultParts } from "./outcomes.js";
import type { Ending, ResultWaiter } from "./results.js";
import { findUntaken, isFresh, placeOfId } from "./task-changes.js";
import type { TaskState } from "./task-state.js";
import type { TaskToken } from "./task-token.js";

/** Someone who can say what a task brought. */
interface ResultSource {
  result<R>(id: string, options?: ResultOptions): Promise<R>;
}

export class EnqueuedTask implements Enqueued {
  readonly id: string;
  readonly created: boolean;
  readonly #source: ResultSource;

  constructor(source: ResultSource, id: string, created: boolean) {
    this.#source = source;
    this.id = id;
    this.created = created;
  }

  result<R = unknown>(options?: ResultOptions): Promise<R> {
    return this.#source.result<R>(this.id, options);
  }
}

/** An ack that keeps what the task brought, as one part of a commit. */
export function ackWithResult(state: TaskState, token: TaskToken, json: string): Change {
  const { consumer, outcomes } = state;
  const id = outcomes.idAt(token.lane, token.offset);
  const parts = resultParts(id, json);
  let task: Outstanding | undefined;
  let kept = () => {};
  const release = () => {
    if (task !== undefined) task.reserved = false;
  };
  return {
    bulkBytes: recordBytesMax(parts),
    records: 1,
    metaBytes: SETTLE_BYTES_MAX + RESULT_META_BYTES_MAX + CHILD_DONE_BYTES_MAX,
    settles: false,
    reserve() {
      task = consumer.claimLease(token);
      try {
        state.openResults();
      } catch (error) {
        release();
        throw error;
      }
    },
    release,
    stage() {
      kept = outcomes.stageResult(id, parts, Buffer.byteLength(json));
      consumer.stageAck([task!]);
    },
    apply() {
      kept();
      consumer.acked([task!]);
    },
  };
}

/** What an inquiry after a task needs. */
export interface Inquiry {
  readonly engine: Engine;
  readonly state: TaskState;
  readonly dead: EmbeddedDeadLetters<unknown>;
}

export async function statusOf(inquiry: Inquiry, id: string): Promise<TaskStatus> {
  const { engine, state, dead } = inquiry;
  if (typeof id !== "string") throw new VarveError("ERR_ARGUMENT", `a task's id is a string; got ${show(id)}`);
  for (;;) {
    state.consumer.ripen();
    const named = placeOfId(state, id);
    const standing = await standingOf(inquiry, id);
    if (standing !== undefined) return standing;
    // Whatever it was that it ended with, it may not be visible yet.
    if (engine.failure === undefined) await committed(engine);
    const kept = state.outcomes.find(id);
    if (kept !== undefined) return status("done", 0, undefined, await state.outcomes.read(kept));
    const letter = state.consumer.dead.count > 0 ? await dead.find(id) : undefined;
    if (letter !== undefined) return status("dead", letter.attempts);
    const now = placeOfId(state, id);
    // If it stands elsewhere by now, it was redriven while it was looked for among the dead.
    if (now?.lane === named?.lane && now?.offset === named?.offset)
      return status(now === undefined ? "unknown" : "done");
  }
}

/** The status of a task that is in the queue; undefined when it is not, or not any more. */
async function standingOf({ engine, state }: Inquiry, id: string): Promise<TaskStatus | undefined> {
  for (;;) {
    // What is on its way to the log has been taken from where it stood, and is nowhere else yet.
    if (engine.failure === undefined) engine.flush();
    const named = placeOfId(state, id);
    if (named === undefined) return undefined;
    const { lane, offset } = named;
    const { outstanding } = lane.ledger;
    const task = outstanding.get(offset);
    if (task !== undefined) return statusOfOutstanding(task);
    if (state.flows.isWaiting(lane.number, offset)) return status("blocked");
    const place = await findUntaken(state, lane, offset);
    if (engine.failure === undefined) engine.flush();
    // It has been taken meanwhile, or its time has come.
    if (outstanding.has(offset) || state.flows.isWaiting(lane.number, offset)) continue;
    if (place === undefined) return undefined;
    return status(isFresh(place) ? "ready" : "scheduled");
  }
}

function statusOfOutstanding({ phase, attempt, progress }: Outstanding): TaskStatus {
  return status(STATES[phase] ?? "done", attempt, progress === undefined ? undefined : JSON.parse(progress));
}

const STATES: Record<number, TaskStatus["state"]> = {
  [TaskPhase.Leased]: "leased",
  [TaskPhase.Waiting]: "scheduled",
  [TaskPhase.Ready]: "ready",
  [TaskPhase.Returned]: "ready",
  [TaskPhase.Blocked]: "blocked",
};

function status(state: TaskStatus["state"], attempt = 0, progress?: unknown, result?: unknown): TaskStatus {
  return { state, attempt, progress, result };
}

/** What a task brought, when it is done. */
export async function resultOf(inquiry: Inquiry, id: string, options: ResultOptions | undefined): Promise<unknown> {
  const { engine, state, dead } = inquiry;
  const { waitMs, signal } = resolveResultOptions(options);
  const { waiters } = state.outcomes;
  const names = { id, queue: state.name };
  const told: { how?: Ending } = {};
  let waiter!: ResultWaiter;
  const end = new Promise<Ending>((resolve, reject) => {
    const ended = (how: Ending) => {
      told.how = how;
      resolve(how);
    };
    waiter = { ended, fail: reject };
  });
  end.catch(() => {}); // it may end with the queue while something else is waited for
  // From now on, so that no end is missed.
  waiters.add(id, waiter);
  try {
    const { state: before, result } = await statusOf(inquiry, id);
    // It may have ended while it was looked for.
    if (before === "done" && told.how === undefined) return result;
    if (before === "unknown") {
      throw new VarveError("ERR_NOT_FOUND", `there was never a task ${id} in ${state.name}`, { details: names });
    }
    const how = told.how ?? (before === "dead" ? before : await within(engine, end, waitMs, signal, names));
    if (engine.failure === undefined) await committed(engine);
    if (how === "done") {
      const kept = state.outcomes.find(id);
      return kept && (await state.outcomes.read(kept));
    }
    if (how === "dead" || how === "late") {
      const reason = (await dead.find(id))?.reason ?? "its dead letter is gone already";
      throw new VarveError("ERR_TASK_DEAD", `task ${id} of ${state.name} is dead: ${reason}`, {
        details: { ...names, reason },
      });
    }
    throw new VarveError("ERR_NOT_FOUND", `task ${id} of ${state.name} brings no result: it ${ENDED[how]}`, {
      details: { ...names, ended: how },
    });
  } finally {
    waiters.remove(id, waiter);
  }
}

const ENDED: Record<Exclude<Ending, "done" | "dead" | "late">, string> = {
  cancelled: "was cancelled.",
  purged: "was removed by a purge.",
  expired: "was not delivered before its time was over.",
  dropped: "was dropped to make room.",
  moved: "was not delivered before its time was over, and was moved to another queue.",
};

/** Waits for the end of a task, but not for ever. */
function within(
  engine: Engine,
  end: Promise<Ending>,
  waitMs: number,
  signal: AbortSignal | undefined,
  names: { readonly id: string; readonly queue: string },
): Promise<Ending> {
  const waited = `task ${names.id} of ${names.queue}`;
  const late = () => new VarveError("ERR_TIMEOUT", `${waited} was not done within ${waitMs} ms`, { details: names });
  const aborted = () => new VarveError("ERR_ABORTED", `the wait for ${waited} was given up`, { cause: signal?.reason });
  if (signal?.aborted === true) throw aborted();
  if (waitMs === 0) throw late();
  return new Promise<Ending>((resolve, reject) => {
    const timer = engine.clock.setTimer(waitMs, () => stop(() => reject(late())), true);
    const unwatch = signal === undefined ? undefined : onAbort(signal, () => stop(() => reject(aborted())));
    const stop = (settle: () => void) => {
      timer.cancel();
      unwatch?.();
      settle();
    };
    end.then(
      (how) => stop(() => resolve(how)),
      (error: Error) => stop(() => reject(error)),
    );
  });
}

/** Resolves when everything that has been done so far is committed in the directory's mode. */
function committed(engine: Engine): Promise<void> {
  return new Promise((settle, fail) => {
    engine.begin(0, 0, 0, true);
    engine.add({ durability: engine.options.durability, apply() {}, settle, fail });
  });
}
