/**
 * Which queues there are: those whose sections in the snapshot are intact, with their states, and those that are lost and
 * have to be made again, with whatever else tells of them: the log, the snapshot before, their folders.
 *
 * - A queue is in one of the two, never in both.
 * - What was deleted does not come back, unless the log or its segments show that it was created again.
 * - New stream ids come behind every one that a snapshot, the log, a deletion or a stream's own segment names.
 */

import { isVarveError } from "../api/errors.js";
import { Decoder, MalformedError } from "../storage/bytes.js";
import { PREVIOUS_SNAPSHOT, type Snapshot, type SnapshotSection } from "../storage/snapshot.js";
import { Wal } from "../storage/wal.js";
import type { WalSource } from "../storage/wal-reader.js";
import { type DeletedQueue, readDeleted, readSection, type SectionParts } from "./catalog.js";
import { decodeCreation, decodeDeletion, type LogTime, OP_CREATE_QUEUE, OP_DELETE_QUEUE } from "./queue-state.js";
import {
  allSegments,
  listShared,
  namesIn,
  ownSegments,
  queuesWithFolders,
  sharedNumbers,
  streamFoldersOf,
} from "./repair-files.js";
import { operationsIn, salvageLog, UNKNOWN_START } from "./repair-log.js";
import { headerState } from "./repair-segments.js";
import { salvageSnapshot } from "./repair-snapshot.js";
import type { LostQueue, QueueId, RepairState } from "./repair-state.js";
import { RequestTable } from "./requests.js";

/** Stands for the header of a snapshot that is lost. */
const EMPTY_HEADER = {
  lsn: 0,
  walSeq: 0,
  generation: 1,
  crc: 0,
  clean: false,
  elapsedMs: 0,
  wallMs: 0,
  directoryId: "",
  lastQueueId: 0,
  lastStreamId: 0,
  lastSharedId: 0,
};

/** The queues that the log, or what is left of it in files kept for reuse, says were created. */
export async function loggedCreations(
  repair: RepairState,
  sources: readonly WalSource[],
): Promise<Map<number, LostQueue>> {
  const created = new Map<number, LostQueue>();
  const deleted = new Set<number>();
  const reason = "the snapshot is lost";
  const folder = `${repair.directory}/wal`;
  const spares = namesIn(repair, folder).filter(Wal.isSpare);
  const files = [...spares.map((name) => ({ path: `${folder}/${name}`, seq: 0 })), ...sources];
  const visitor = {
    batch: () => {},
    missing: () => {},
    operations: (meta: Buffer, time: LogTime) => {
      for (const { code, queueId: id, fields } of operationsIn(meta)) {
        if (code === OP_CREATE_QUEUE) {
          created.set(id, { ...decodeCreation(fields), id, createdAt: time.wallMs, reason });
        } else if (code === OP_DELETE_QUEUE) {
          deleted.add(id);
          const { kind, name, lastStreamId } = decodeDeletion(fields);
          repair.noteDeletion(kind, name, lastStreamId);
        }
      }
    },
  };
  // Each by itself: in files kept for reuse stands what is older.
  for (const file of files) await salvageLog(repair.disk, [file], UNKNOWN_START, visitor);
  for (const id of deleted) created.delete(id);
  return created;
}

/** What of the snapshot is intact, as a snapshot; and the queues whose sections are not. */
export function intactSections(
  repair: RepairState,
  snapshot: Snapshot | undefined,
  created: ReadonlyMap<number, LostQueue>,
): { sections: Snapshot; lost: LostQueue[] } {
  const lost: LostQueue[] = [];
  const before = previousSections(repair);
  let shared = snapshot?.sections.find(({ id }) => id === 0);
  const queues: SnapshotSection[] = [];
  for (const section of snapshot?.sections ?? []) {
    if (section.id === 0) continue;
    if (section.intact) {
      queues.push(section);
    } else {
      const { id, kind, name } = section;
      const reason = "its state in the snapshot does not match its checksum";
      const known = before.get(`${kind} ${name}`);
      lost.push(known?.id === id ? { ...known, reason } : { id, kind, name, streamIds: [], reason });
    }
  }
  for (const { kind, name, lastStreamId } of deletedIn(shared)) repair.noteDeletion(kind, name, lastStreamId);
  if (shared === undefined || !shared.intact || !canList(shared.body)) {
    if (shared !== undefined) {
      repair.findings.action("the list of shared segments is damaged: made again from the files");
    }
    shared = listShared(repair);
  }
  let lastQueueId = snapshot?.header.lastQueueId ?? 0;
  let lastStreamId = snapshot?.header.lastStreamId ?? 0;
  if (snapshot === undefined) {
    const reason = "the snapshot is lost";
    const known = new Map(before);
    for (const [key, { streamIds }] of before) if (isDeleted(repair, key, streamIds)) known.delete(key);
    for (const each of created.values()) {
      const key = `${each.kind} ${each.name}`;
      if (known.get(key)?.id !== each.id) known.set(key, each);
    }
    for (const { kind, name } of queuesWithFolders(repair)) {
      const key = `${kind} ${name}`;
      if (repair.deletions.has(key) && !hasSegments(repair, { kind, name })) continue;
      known.set(key, known.get(key) ?? { id: undefined, kind, name, streamIds: [], reason });
    }
    lost.push(...known.values());
    for (const { id, streamIds } of known.values()) {
      lastQueueId = Math.max(lastQueueId, id ?? 0);
      lastStreamId = Math.max(lastStreamId, ...streamIds.map((streamId) => streamId ?? 0));
    }
    for (const streamId of repair.deletions.values()) lastStreamId = Math.max(lastStreamId, streamId);
    // Ids that have been used may stand where nothing tells: stay well away from them.
    for (const path of allSegments(repair)) {
      lastStreamId = Math.max(lastStreamId, headerState(repair.disk, path, undefined, repair.directoryId).streamId);
    }
  }
  const lastSharedId = Math.max(snapshot?.header.lastSharedId ?? 0, ...sharedNumbers(repair));
  const header = { ...(snapshot?.header ?? EMPTY_HEADER), lastQueueId, lastStreamId, lastSharedId };
  return { sections: { header, sections: [shared, ...queues] }, lost };
}

/** Loads the queues whose sections are intact; what turns out not to make sense is lost as well. */
export function loadIntact(repair: RepairState, lost: LostQueue[]): void {
  const { label, stateProblems } = repair.repairer;
  for (const entry of [...repair.catalog.entries]) {
    let reason: string | undefined;
    try {
      const state = repair.catalog.load(entry);
      reason = stateProblems(state)[0]?.reason;
    } catch (error) {
      if (!isVarveError(error, "ERR_CORRUPT")) throw error;
      reason = entry.damaged ?? error.message;
    }
    if (reason === undefined) continue;
    repair.catalog.remove(entry);
    lost.push({ id: entry.id, kind: entry.kind, name: entry.name, streamIds: [], reason });
    repair.findings.note(`${label(entry.kind, entry.name)}: ${reason}`);
  }
}

/** The intact sections of the snapshot before the newest one, by kind and name. */
function previousSections(repair: RepairState): Map<string, LostQueue> {
  const path = `${repair.directory}/snap/${PREVIOUS_SNAPSHOT}`;
  const found = new Map<string, LostQueue>();
  if (repair.disk.size(path) === undefined) return found;
  const snapshot = salvageSnapshot(repair.disk.readFile(path))?.snapshot;
  if (snapshot === undefined || snapshot.header.directoryId !== repair.directoryId) return found;
  for (const { id, kind, name, body, intact } of snapshot.sections) {
    if (id === 0 || !intact) continue;
    const previous = sectionParts(body);
    if (previous === undefined) continue;
    const streamIds = previous.streams.map((stream) => stream.id);
    const { createdAt } = previous;
    found.set(`${kind} ${name}`, { id, kind, name, streamIds, previous, createdAt, reason: "the snapshot is lost" });
  }
  return found;
}

/** Whether a queue that the snapshot before names was deleted since. */
function isDeleted(repair: RepairState, key: string, streamIds: readonly (number | undefined)[]): boolean {
  return streamIds.every((id) => id !== undefined && id <= (repair.deletions.get(key) ?? 0));
}

/** Whether a queue has segments of its own that are not of a deleted one of its name. */
function hasSegments(repair: RepairState, queue: QueueId): boolean {
  const folders = streamFoldersOf(repair, { ...queue, previous: undefined });
  return folders.some((folder) => ownSegments(repair, queue, folder).length > 0);
}

/** Undefined when the section is intact, and yet not well formed. */
function sectionParts(body: Buffer): SectionParts | undefined {
  try {
    return readSection(body);
  } catch (error) {
    if (error instanceof MalformedError) return undefined;
    throw error;
  }
}

/** The deleted queues that the engine's section lists. */
function deletedIn(section: SnapshotSection | undefined): DeletedQueue[] {
  if (section?.intact !== true || !canList(section.body)) return [];
  const input = new Decoder(section.body);
  skipShared(input);
  return readDeleted(input);
}

function skipShared(input: Decoder): void {
  for (let numbers = input.varint() * 3; numbers > 0; numbers--) input.varint();
}

/** Whether the engine's section, which lists the shared segments, deleted queues and requests, is well formed. */
function canList(body: Buffer): boolean {
  try {
    const input = new Decoder(body);
    skipShared(input);
    readDeleted(input);
    RequestTable.decode(input);
    return input.done;
  } catch (error) {
    if (error instanceof MalformedError) return false;
    throw error;
  }
}
