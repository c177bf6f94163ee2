/**
 * Makes queues that are lost again, from the segments that they have.
 *
 * - A queue keeps its id and the ids of its streams wherever anything tells them: its records and the log name them.
 * - No two streams get the same id.
 * - Records that cannot be told whose they are get logs of their own; none is left behind.
 */

import { Decoder, MalformedError } from "../storage/bytes.js";
import { Stream } from "../storage/stream.js";
import type { QueueState } from "./queue-state.js";
import { ownSegments, streamFoldersOf } from "./repair-files.js";
import { fillStream, sharedPieces } from "./repair-pieces.js";
import { headerState } from "./repair-segments.js";
import type { LostQueue, RepairState } from "./repair-state.js";

/** Makes queues again from the segments that they have. */
export async function rebuildLost(repair: RepairState, lost: readonly LostQueue[], all: boolean): Promise<void> {
  if (lost.length === 0) return;
  const { label } = repair.repairer;
  const claimed = new Set([...repair.catalog.entries].flatMap(({ state }) => state!.streams.map(({ id }) => id)));
  const wanted = new Map<number, Stream>();
  for (const queue of lost) {
    const ids = streamIdsOf(repair, queue, claimed);
    for (const id of ids) claimed.add(id);
    const state = createQueue(repair, queue, ids);
    for (const stream of state.streams) wanted.set(stream.id, stream);
    repair.findings.action(
      `${label(queue.kind, queue.name)}: made again from its records${all ? "" : ` (${queue.reason})`}`,
    );
  }
  const shared = await sharedPieces(repair, (id) => wanted.has(id));
  for (const state of repair.rebuilt) {
    for (const stream of state.streams) {
      await fillStream(repair, state, stream, shared.get(stream.id) ?? []);
    }
    repair.repairer.begin(state);
  }
}

/** Records of streams that nothing tells the queues of: they are kept in logs of their own. */
export async function claimTheRest(repair: RepairState): Promise<void> {
  const known = new Set([...repair.catalog.entries].flatMap(({ state }) => state!.streams.map(({ id }) => id)));
  const rest = await sharedPieces(repair, (id) => !known.has(id));
  for (const [streamId, pieces] of rest) {
    const id = repair.repairer.nameOfLost(streamId);
    const queue = { ...id, id: undefined, streamIds: [streamId], reason: "" };
    const state = createQueue(repair, queue, [streamId]);
    await fillStream(repair, state, state.streams[0]!, pieces);
    repair.repairer.begin(state);
    const label = repair.repairer.label(id.kind, id.name);
    repair.findings.action(`${label}: made for the records of stream ${streamId}, of which nothing tells the queue`);
  }
}

function createQueue(repair: RepairState, queue: LostQueue, streamIds: readonly number[]): QueueState {
  const id = queue.id ?? ++repair.catalog.lastQueueId;
  const state = restoreQueue(repair, queue, id, streamIds) ?? beginQueue(repair, queue, id, streamIds);
  for (const stream of state.streams) repair.cover(stream);
  repair.rebuilt.add(state);
  repair.catalog.lastQueueId = Math.max(repair.catalog.lastQueueId, id);
  repair.catalog.lastStreamId = Math.max(repair.catalog.lastStreamId, ...streamIds);
  return state;
}

/** A queue of which only its records tell. */
function beginQueue(repair: RepairState, queue: LostQueue, id: number, streamIds: readonly number[]): QueueState {
  const { kind, name, config = repair.repairer.defaultConfig(kind), createdAt = 0 } = queue;
  const count = repair.repairer.kinds.streamFolders(kind).length;
  const first = streamIds.slice(0, count);
  const state = repair.catalog.create({ kind, name, streamIds: first, config }, id, createdAt);
  const folders = streamFoldersOf(repair, queue);
  for (let index = count; index < streamIds.length; index++) {
    repair.catalog.addStream(state, streamIds[index]!, folders[index]!);
  }
  return state;
}

/** A queue as the snapshot before the lost one has it: what was done by then is done, whatever came after. */
function restoreQueue(
  repair: RepairState,
  queue: LostQueue,
  id: number,
  streamIds: readonly number[],
): QueueState | undefined {
  const { kind, name, previous } = queue;
  if (previous === undefined) return undefined;
  const folders = streamFoldersOf(repair, queue);
  const streams = streamIds.map((streamId, index) => {
    const { head = 0, next = 0, lastTimestamp = 0, gaps = [] } = previous.streams[index] ?? {};
    const { directory } = repair.catalog.newStream(kind, name, streamId, "");
    const stream = new Stream(streamId, directory, folders[index]!, head, next, lastTimestamp, [...gaps]);
    stream.payloadBytes = previous.streams[index]?.payloadBytes ?? 0;
    return stream;
  });
  const known = streams.slice(0, previous.streams.length);
  try {
    const state = repair.repairer.kinds.restore(kind, id, name, known, new Decoder(previous.state));
    repair.catalog.adopt(state, previous.createdAt);
    for (const { id: streamId, folder } of streams.slice(known.length)) {
      repair.catalog.addStream(state, streamId, folder);
    }
    return state;
  } catch (error) {
    if (error instanceof MalformedError) return undefined;
    throw error;
  }
}

/** The ids of a lost queue's streams: from its segments, or because ids are given out in order; else new ones. */
function streamIdsOf(repair: RepairState, queue: LostQueue, claimed: ReadonlySet<number>): number[] {
  const folders = streamFoldersOf(repair, queue);
  const count = repair.repairer.kinds.streamFolders(queue.kind).length;
  const ids: (number | undefined)[] = folders.map((_, index) => queue.streamIds[index]);
  for (const [index, folder] of folders.entries()) {
    for (const path of ownSegments(repair, queue, folder)) {
      if (ids[index] !== undefined) break;
      const { state, streamId } = headerState(repair.disk, path, undefined, repair.directoryId);
      if (state === "sound" && streamId !== 0) ids[index] = streamId;
    }
  }
  // The streams that a queue is made with get their ids one after another.
  const known = ids.slice(0, count).findIndex((id) => id !== undefined);
  if (known >= 0) {
    for (let index = 0; index < count; index++) ids[index] ??= ids[known]! + index - known;
  } else if (queue.id !== undefined) {
    const between = idsAround(repair, queue.id);
    if (between.length === count) for (const [index, id] of between.entries()) ids[index] = id;
  }
  return ids.map((id) => (id === undefined || claimed.has(id) ? ++repair.catalog.lastStreamId : id));
}

/** Stream ids that were given out after those of the queue created before, and before those of the next. */
function idsAround(repair: RepairState, queueId: number): number[] {
  let from = 1;
  let to = repair.catalog.lastStreamId + 1;
  for (const { id, state } of repair.catalog.entries) {
    const ids = state!.streams.map((stream) => stream.id);
    if (id < queueId) from = Math.max(from, ...ids.map((each) => each + 1));
    else to = Math.min(to, ...ids);
  }
  return Array.from({ length: Math.max(0, to - from) }, (_, index) => from + index);
}
