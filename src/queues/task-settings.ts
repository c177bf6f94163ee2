/** What changes a task queue as a whole: its rules, and the removal of all that waits. */

import type { Durability } from "../api/contract.js";
import type { TaskConfig } from "../api/options.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { type IdentifiedCommit, requestBytes } from "../engine/requests.js";
import { VARINT_BYTES_MAX } from "../storage/bytes.js";
import type { Request } from "./requested.js";
import { TaskOp, type TaskState } from "./task-state.js";

/** Stores other rules with the queue, made from those that it has. Does nothing when they are the same. */
export function configureTasks(
  engine: Engine,
  state: TaskState,
  change: (config: TaskConfig) => TaskConfig,
  durability: Durability,
  request?: IdentifiedCommit,
): Promise<void> {
  return new Promise((resolve, reject) => {
    // Changes on their way are seen by this one.
    engine.flush();
    const config = change(state.config);
    const text = JSON.stringify(config);
    if (text === JSON.stringify(state.config)) {
      resolve();
      return;
    }
    const metaBytes = OPERATION_HEADER_BYTES + VARINT_BYTES_MAX + text.length * 3 + requestBytes(request);
    engine.begin(0, 0, metaBytes, false);
    engine.operation(TaskOp.Configure, state.id).string(text);
    engine.endOperation();
    engine.add({ durability, apply: () => state.configured(config), settle: resolve, fail: reject }, request);
  });
}

/** Removes everything that is not leased. Resolves with how many tasks that were. */
export function purgeTasks(
  engine: Engine,
  state: TaskState,
  durability: Durability,
  request: Request<number> | undefined,
): Promise<number> {
  return new Promise((resolve, reject) => {
    const { lanes } = state.consumer;
    // What is on its way has arrived, and what comes later has not: in an entry, records come before operations.
    engine.flush();
    // Nothing comes between, so that what is purged is known now.
    const purged = state.count - state.consumer.leased;
    const identified = request?.tells(purged);
    const metaBytes = OPERATION_HEADER_BYTES + (1 + 2 * lanes.length) * VARINT_BYTES_MAX + requestBytes(identified);
    engine.begin(0, 0, metaBytes, true);
    const output = engine.operation(TaskOp.Clear, state.id);
    output.varint(lanes.length);
    for (const { number, stream } of lanes) {
      output.varint(number);
      output.varint(stream.staged);
    }
    engine.endOperation();
    const operation = {
      durability,
      apply() {
        for (const lane of lanes) lane.clear(lane.stream.staged);
        state.scheduled.clear();
        state.cursors.purged();
        state.purged(new Map(lanes.map(({ number, stream }) => [number, stream.staged])));
        state.handedOut();
      },
      settle: () => resolve(purged),
      fail: reject,
    };
    engine.add(operation, identified);
    engine.flush();
  });
}
