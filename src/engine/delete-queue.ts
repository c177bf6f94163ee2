import type { CatalogEntry } from "./catalog.js";
import { type Engine, OPERATION_HEADER_BYTES } from "./engine.js";
import { OP_DELETE_QUEUE, type QueueState } from "./queue-state.js";

/**
 * Takes a queue away with all that it holds, at once and in an entry of its own; whoever waits for something from it is
 * told `why`. Always durable when the promise resolves: were it not, the queue could come back with what has been
 * done to its successor of the same name.
 */
export function deleteQueue(engine: Engine, entry: CatalogEntry, state: QueueState, why: Error): Promise<void> {
  return new Promise((resolve, reject) => {
    // What was staged before is applied before.
    engine.flush();
    engine.begin(0, 0, OPERATION_HEADER_BYTES, true);
    engine.operation(OP_DELETE_QUEUE, entry.id);
    engine.endOperation();
    engine.add({
      durability: "sync",
      apply() {
        engine.catalog.delete(entry);
        state.close(why);
      },
      settle: resolve,
      fail: reject,
    });
    engine.flush();
  });
}
