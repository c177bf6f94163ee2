/**
 * Which files a damaged directory has, told by their names: what is in them may be anything, so none is read.
 *
 * - A folder that is missing has no files.
 * - A queue's own segments from before its deletion are not listed, as soon as that is noted: they are not to come back.
 */

import { align8, Encoder } from "../storage/bytes.js";
import { isOwnSegmentName, streamIdOfName } from "../storage/segment.js";
import { isSnapshotName, type SnapshotSection } from "../storage/snapshot.js";
import { Stream } from "../storage/stream.js";
import { Wal } from "../storage/wal.js";
import type { WalSource } from "../storage/wal-reader.js";
import type { LostQueue, QueueId, RepairState } from "./repair-state.js";

/** The names in a folder. */
export function namesIn(repair: RepairState, path: string): string[] {
  try {
    return repair.disk.list(path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return [];
    throw error;
  }
}

/** The log files from a number on, in order. Notes the highest number that there is, whatever is asked for. */
export function walFilesFrom(repair: RepairState, seq: number): WalSource[] {
  const folder = `${repair.directory}/wal`;
  const sources: WalSource[] = [];
  for (const name of namesIn(repair, folder).sort()) {
    const number = Wal.seqOf(name);
    if (number === undefined) continue;
    repair.seqMax = Math.max(repair.seqMax, number);
    if (number >= seq) sources.push({ path: `${folder}/${name}`, seq: number });
  }
  return sources;
}

export function newestSnapshot(repair: RepairState): string | undefined {
  const names = namesIn(repair, `${repair.directory}/snap`).filter(isSnapshotName).sort();
  const newest = names[names.length - 1];
  return newest && `${repair.directory}/snap/${newest}`;
}

export function snapshotNumbers(repair: RepairState): number[] {
  return namesIn(repair, `${repair.directory}/snap`)
    .filter(isSnapshotName)
    .map((name) => Number(name.slice(0, 16)));
}

export function sharedNumbers(repair: RepairState): number[] {
  const names = namesIn(repair, `${repair.directory}/shared`).filter((name) => /^\d{16}\.seg$/.test(name));
  return names.map((name) => Number(name.slice(0, 16))).sort((a, b) => a - b);
}

/** The section that lists the shared segments, from the files that there are. */
export function listShared(repair: RepairState): SnapshotSection {
  const output = new Encoder(256);
  const numbers = sharedNumbers(repair);
  output.varint(numbers.length);
  for (const number of numbers) {
    output.varint(number);
    output.varint(align8(repair.disk.size(sharedPath(repair, number)) ?? 0));
    output.varint(1);
  }
  output.varint(0);
  return { id: 0, kind: 0, name: "", body: Buffer.from(output.view()), crc: 0, intact: true };
}

/** The queues that have folders of their own. */
export function queuesWithFolders(repair: RepairState): QueueId[] {
  const { folders, queueOf } = repair.repairer;
  return folders.flatMap((folder) => {
    return namesIn(repair, `${repair.directory}/${folder}`).flatMap((name) => queueOf(folder, name) ?? []);
  });
}

/** The folders of a queue's streams: those that it was made with, those that it is known to have got, those that are there. */
export function streamFoldersOf(
  repair: RepairState,
  { kind, name, previous }: Pick<LostQueue, "kind" | "name" | "previous">,
): string[] {
  const { kinds } = repair.repairer;
  const folders = new Set(kinds.streamFolders(kind));
  for (const { folder } of previous?.streams ?? []) folders.add(folder);
  for (const folder of namesIn(repair, `${repair.directory}/${kinds.folder(kind, name)}`).sort()) {
    if (kinds.mayAddStream(kind, folder)) folders.add(folder);
  }
  return [...folders];
}

/** The segments of a queue's stream, in the order of their names. */
export function ownSegments(repair: RepairState, { kind, name }: QueueId, streamFolder: string): string[] {
  const { directory: folder } = new Stream(
    0,
    `${repair.directory}/${repair.repairer.kinds.folder(kind, name)}`,
    streamFolder,
  );
  const goneTo = repair.deletions.get(`${kind} ${name}`) ?? 0;
  return namesIn(repair, folder)
    .filter((each) => isOwnSegmentName(each) && streamIdOfName(each)! > goneTo)
    .sort()
    .map((each) => `${folder}/${each}`);
}

/** Every segment, of the queues' own and shared. */
export function allSegments(repair: RepairState): string[] {
  const own = queuesWithFolders(repair).flatMap((queue) => {
    const folders = streamFoldersOf(repair, { ...queue, previous: undefined });
    return folders.flatMap((folder) => ownSegments(repair, queue, folder));
  });
  return [...own, ...sharedNumbers(repair).map((number) => sharedPath(repair, number))];
}

/** As the catalog's `sharedPath`: segments are looked for before there is a catalog. */
function sharedPath(repair: RepairState, number: number): string {
  return `${repair.directory}/shared/${String(number).padStart(16, "0")}.seg`;
}
