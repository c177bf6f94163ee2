/**
 * Which directory this is. The marker, the snapshot, log files and segments each name the id of the directory that they
 * belong to; what most of them say counts, so that a lost marker or a few files from elsewhere do no harm.
 *
 * - An id is made up only if no file names one.
 * - A directory of a newer format is refused before anything is changed.
 */

import { VarveError } from "../api/errors.js";
import { SEGMENT_HEADER_BYTES } from "../storage/segment.js";
import { type Snapshot, writeFileAtomically } from "../storage/snapshot.js";
import { FORMAT, MARKER } from "./directory.js";
import { allSegments, walFilesFrom } from "./repair-files.js";
import { walHeader } from "./repair-log.js";
import { headerState, headOf } from "./repair-segments.js";
import type { RepairState } from "./repair-state.js";

/** Finds the directory's id, and whether the marker has it. */
export function identify(repair: RepairState, snapshot: Snapshot | undefined): void {
  const votes = new Map<string, number>();
  const vote = (id: string, weight: number) => votes.set(id, (votes.get(id) ?? 0) + weight);
  const named = markerId(repair);
  for (const { path } of walFilesFrom(repair, 0)) {
    const header = walHeader(repair.disk, path);
    if (header !== undefined) vote(header.directoryId, 1);
  }
  for (const path of allSegments(repair)) {
    const head = headOf(repair.disk, path, SEGMENT_HEADER_BYTES);
    if (headerState(repair.disk, path, undefined, head.toString("hex", 32, 48)).state === "sound") {
      vote(head.toString("hex", 32, 48), 1);
    }
  }
  // Where as many files say one thing as another, the snapshot decides, then the marker.
  if (snapshot !== undefined) vote(snapshot.header.directoryId, 1.2);
  if (named !== undefined) vote(named, 1.1);
  const [best] = [...votes].sort((a, b) => b[1] - a[1]);
  const word = () => repair.platform.random.uint32().toString(16).padStart(8, "0");
  repair.directoryId = best?.[0] ?? word() + word() + word() + word();
  repair.markerIsSound = named === repair.directoryId;
}

/** The id in varve.json; undefined when that is damaged or missing. */
function markerId(repair: RepairState): string | undefined {
  const path = `${repair.directory}/${MARKER}`;
  if (repair.disk.size(path) === undefined) return undefined;
  let marker: { format?: unknown; id?: unknown } | null;
  try {
    marker = JSON.parse(repair.disk.readFile(path).toString("utf8")) as typeof marker;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
  if (typeof marker?.id !== "string" || !/^[0-9a-f]{32}$/.test(marker.id)) return undefined;
  if (typeof marker.format === "number" && marker.format > FORMAT) {
    throw new VarveError(
      "ERR_FORMAT_VERSION",
      `${repair.directory} has format ${marker.format}; this version of varve knows ${FORMAT}. Nothing was changed.`,
    );
  }
  return marker.format === FORMAT ? marker.id : undefined;
}

/** Writes varve.json again, in one step. */
export async function writeMarker(repair: RepairState, path: string): Promise<void> {
  const created = new Date(repair.platform.clock.wallMs()).toISOString();
  const marker = { format: FORMAT, id: repair.directoryId, created };
  await writeFileAtomically(repair.disk, repair.directory, path, [Buffer.from(`${JSON.stringify(marker)}\n`)]);
}
