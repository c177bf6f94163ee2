/** What changes a task queue as a whole: its rules, and the removal of all that waits. */

import type { Durability } from "../api/contract.js";
import type { TaskConfig } from "../api/options.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { VARINT_BYTES_MAX } from "../storage/bytes.js";
import { TaskOp, type TaskState } from "./task-state.js";

/** Stores other rules with the queue, made from those that it has. Does nothing when they are the same. */
export function configureTasks(
  engine: Engine,
  state: TaskState,
  change: (config: TaskConfig) => TaskConfig,
  durability: Durability,
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
    engine.begin(0, 0, OPERATION_HEADER_BYTES + VARINT_BYTES_MAX + text.length * 3, false);
    engine.operation(TaskOp.Configure, state.id).string(text);
    engine.endOperation();
    engine.add({ durability, apply: () => state.configured(config), settle: resolve, fail: reject });
  });
}

/** Removes everything that is not leased. Resolves with how many tasks that were. */
export function purgeTasks(engine: Engine, state: TaskState, durability: Durability): Promise<number> {
  return new Promise((resolve, reject) => {
    const { lanes } = state.consumer;
    // What is on its way has arrived, and what comes later has not: in an entry, records come before operations.
    engine.flush();
    engine.begin(0, 0, OPERATION_HEADER_BYTES + (1 + 2 * lanes.length) * VARINT_BYTES_MAX, true);
    const output = engine.operation(TaskOp.Clear, state.id);
    output.varint(lanes.length);
    for (const { number, stream } of lanes) {
      output.varint(number);
      output.varint(stream.staged);
    }
    engine.endOperation();
    let purged = 0;
    engine.add({
      durability,
      apply() {
        purged = state.count - state.consumer.leased;
        for (const lane of lanes) lane.clear(lane.stream.staged);
        state.scheduled.clear();
        state.cursors.purged();
        state.purged(new Map(lanes.map(({ number, stream }) => [number, stream.staged])));
        state.handedOut();
      },
      settle: () => resolve(purged),
      fail: reject,
    });
    engine.flush();
  });
}
