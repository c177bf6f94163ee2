import { VARINT_BYTES_MAX } from "../storage/bytes.js";
import type { Stream } from "../storage/stream.js";
import { type Engine, OPERATION_HEADER_BYTES } from "./engine.js";
import { OP_ADD_STREAM, type QueueState } from "./queue-state.js";

/**
 * Gives a queue a further stream, at once and in an entry of its own: records of it may be staged from now on. Not
 * between `begin` and `add`.
 *
 * @param settled called when the stream is durable: were it lost with what it holds, its successor would give out the
 * same offsets again. Until then, what names its offsets to anybody must be committed as `sync`.
 * @throws what `begin` throws; then nothing has changed
 */
export function addStream(engine: Engine, state: QueueState, folder: string, settled: () => void = () => {}): Stream {
  engine.begin(0, 0, OPERATION_HEADER_BYTES + 2 * VARINT_BYTES_MAX + folder.length, false);
  const streamId = ++engine.catalog.lastStreamId;
  const output = engine.operation(OP_ADD_STREAM, state.id);
  output.varint(streamId);
  output.string(folder);
  engine.endOperation();
  let added: Stream | undefined;
  let failure: Error | undefined;
  engine.add({
    durability: "sync",
    apply() {
      added = engine.catalog.addStream(state, streamId, folder);
    },
    settle: settled,
    fail(error) {
      failure = error;
    },
  });
  engine.flush();
  if (added === undefined) throw failure;
  return added;
}
