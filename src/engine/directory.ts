/**
 * The directory as such: is it ours, which format, and its parts.
 *
 *   varve.json   {"format": 1, "id": "<32 hex digits>", "created": "<ISO 8601>"}; written last when a directory is made
 *   LOCK         held by the one process that owns the directory
 *   ballast      disk space held in reserve (ballast.ts)
 *   wal/ snap/ shared/ log/ task/
 *   damaged/     what was damaged and has been replaced
 */

import { VarveError } from "../api/errors.js";
import type { Random } from "../storage/clock.js";
import type { Disk } from "../storage/disk.js";
import { isSegmentName } from "../storage/segment.js";
import { encodeSnapshot, isSnapshotName, snapshotPath, writeFileAtomically } from "../storage/snapshot.js";
import { Wal } from "../storage/wal.js";

export const FORMAT = 1;
export const MARKER = "varve.json";
/** What was found damaged and has been replaced, for people and for repair. */
export const DAMAGED_FOLDER = "damaged";
const OWN_NAMES = new Set([
  MARKER,
  `${MARKER}.tmp`,
  "LOCK",
  "LOCK.owner",
  "SOCKET",
  "wal",
  "snap",
  "shared",
  "log",
  "task",
  "ballast",
  DAMAGED_FOLDER,
]);

const FOREIGN_NOTES_MAX = 10;

export interface DirectoryMarker {
  readonly id: string;
}

/** Makes the folder when it is missing; refuses one that holds something else. */
export function prepareDirectory(disk: Disk, directory: string, create: boolean): void {
  let names: string[];
  try {
    names = disk.list(directory);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" && create) {
      makeDirectory(disk, directory);
      return;
    }
    throw accessError(directory, error);
  }
  // Without its marker it is refused once it is locked: until then another process may be about to make it.
  if (names.includes(MARKER) || usedFile(disk, directory) !== undefined) return;
  const foreign = names.filter(isForeign);
  if (foreign.length > 0) {
    throw new VarveError(
      "ERR_NOT_VARVE",
      `${directory} is not a varve directory: it holds ${JSON.stringify(foreign[0])}${foreign.length > 1 ? " and more" : ""} ` +
        "but no varve.json. Choose another directory, or an empty one.",
    );
  }
  if (!create) {
    throw new VarveError(
      "ERR_NOT_FOUND",
      `${directory} holds no varve directory. Open it with create: true to make one.`,
    );
  }
}

function isForeign(name: string): boolean {
  return !OWN_NAMES.has(name);
}

/** What else lies among varve's own: one line for each, up to ten. */
export function foreignNotes(disk: Disk, directory: string): string[] {
  const foreign = disk.list(directory).filter(isForeign).sort();
  const notes = foreign.slice(0, FOREIGN_NOTES_MAX).map((name) => `${directory}/${name}: not of varve, left alone`);
  const more = foreign.length - notes.length;
  return more === 0 ? notes : [...notes, `${directory}: ${more} more names that are not of varve`];
}

function makeDirectory(disk: Disk, directory: string): void {
  try {
    disk.mkdir(directory);
  } catch (error) {
    throw accessError(directory, error);
  }
}

function accessError(directory: string, error: unknown): VarveError {
  const { code } = error as NodeJS.ErrnoException;
  if (code === "ENOENT") {
    return new VarveError("ERR_NOT_FOUND", `${directory} does not exist. Open it with create: true to make it.`, {
      cause: error,
    });
  }
  if (code === "ENOTDIR" || code === "EEXIST") {
    return new VarveError("ERR_NOT_VARVE", `${directory} is not a directory.`, { cause: error });
  }
  if (code === "EACCES" || code === "EPERM" || code === "EROFS") {
    return new VarveError(
      "ERR_ACCESS",
      `${directory}: the operating system denies access (${code}). varve needs to read and write the directory.`,
      { cause: error },
    );
  }
  if (code === "ENOSPC" || code === "EDQUOT") {
    return new VarveError("ERR_DISK_FULL", `${directory}: the disk is full.`, { cause: error });
  }
  return error instanceof VarveError
    ? error
    : new VarveError("ERR_IO", `${directory}: ${error instanceof Error ? error.message : String(error)}`, {
        cause: error,
      });
}

/** What opening reports of the operating system's errors. */
export function openError(directory: string, error: unknown): VarveError {
  return accessError(directory, error);
}

/** Reads the marker, or completes the making of a directory that has none yet. Call with the lock held. */
export async function readMarker(
  disk: Disk,
  directory: string,
  random: Random,
  wallMs: number,
): Promise<DirectoryMarker> {
  const path = `${directory}/${MARKER}`;
  if (disk.size(path) === undefined) {
    const used = usedFile(disk, directory);
    if (used === undefined) return await createDirectory(disk, directory, path, random, wallMs);
    throw new VarveError(
      "ERR_CORRUPT",
      `${path} is missing, but the directory has been used: it holds ${used}. Nothing was changed. Put varve.json back ` +
        "from a copy, or have 'varve repair' write it again.",
      { details: { file: path } },
    );
  }
  const text = disk.readFile(path).toString("utf8");
  let marker: { format?: unknown; id?: unknown };
  try {
    marker = JSON.parse(text) as typeof marker;
  } catch (cause) {
    throw new VarveError(
      "ERR_CORRUPT",
      `${path} is not valid JSON. It should name the format and the directory's id. Put it back from a copy, or have ` +
        "'varve repair' write it again.",
      {
        cause,
        details: { file: path },
      },
    );
  }
  if (typeof marker?.format !== "number" || typeof marker.id !== "string" || !/^[0-9a-f]{32}$/.test(marker.id)) {
    throw new VarveError(
      "ERR_CORRUPT",
      `${path} does not name the format and the directory's id. Put it back from a copy, or have 'varve repair' write it again.`,
      {
        details: { file: path },
      },
    );
  }
  if (marker.format !== FORMAT) {
    throw new VarveError(
      "ERR_FORMAT_VERSION",
      `${directory} has format ${marker.format}; this version of varve reads format ${FORMAT}. Use the version that wrote it.`,
    );
  }
  // Whoever made it may have been killed before its name was durable.
  await disk.syncDirectory(directory);
  return { id: marker.id };
}

async function createDirectory(
  disk: Disk,
  directory: string,
  path: string,
  random: Random,
  wallMs: number,
): Promise<DirectoryMarker> {
  const word = () => random.uint32().toString(16).padStart(8, "0");
  const id = word() + word() + word() + word();
  // An earlier attempt may have left some of this, and a first snapshot, which is replaced.
  for (const part of ["wal", "snap", "shared"]) disk.mkdir(`${directory}/${part}`);
  const header = {
    lsn: 0,
    walSeq: 1,
    generation: 1,
    crc: 0,
    clean: true,
    elapsedMs: 0,
    wallMs,
    directoryId: id,
    lastQueueId: 0,
    lastStreamId: 0,
    lastSharedId: 0,
  };
  const snap = `${directory}/snap`;
  const engineSection = { id: 0, kind: 0, name: "", body: Buffer.from([0, 0]) };
  await writeFileAtomically(disk, snap, snapshotPath(snap, 0), encodeSnapshot(header, [engineSection]));
  const marker = { format: FORMAT, id, created: new Date(wallMs).toISOString() };
  await disk.syncDirectory(directory);
  await syncAncestors(disk, directory);
  await writeFileAtomically(disk, directory, path, [Buffer.from(`${JSON.stringify(marker)}\n`)]);
  return { id };
}

/** A file that only a directory which has been opened has; undefined when there is none. */
function usedFile(disk: Disk, directory: string): string | undefined {
  const first = snapshotPath("snap", 0);
  return (
    search(disk, directory, "wal", 0, (name) => Wal.seqOf(name) !== undefined || Wal.isSpare(name)) ??
    search(disk, directory, "snap", 0, (name) => isSnapshotName(name) && `snap/${name}` !== first) ??
    search(disk, directory, "shared", 0, isSegmentName) ??
    search(disk, directory, "log", 2, isSegmentName) ??
    search(disk, directory, "task", 2, isSegmentName)
  );
}

/** A file below a folder, `depth` folders down at most, whose name matches. */
function search(
  disk: Disk,
  directory: string,
  folder: string,
  depth: number,
  matches: (name: string) => boolean,
): string | undefined {
  let names: string[];
  try {
    names = disk.list(`${directory}/${folder}`).sort();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return undefined;
    throw error;
  }
  const found = names.find(matches);
  if (found !== undefined) return `${folder}/${found}`;
  for (const name of depth > 0 ? names : []) {
    const below = search(disk, directory, `${folder}/${name}`, depth - 1, matches);
    if (below !== undefined) return below;
  }
  return undefined;
}

/** Any of the folders above may have been made along with the directory, by this call or by one that was cut short. */
async function syncAncestors(disk: Disk, directory: string): Promise<void> {
  for (let end = directory.lastIndexOf("/"); end >= 0; end = directory.lastIndexOf("/", end - 1)) {
    try {
      await disk.syncDirectory(end === 0 ? "/" : directory.slice(0, end));
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // One that we may not read was not made by us.
      if (code !== "EACCES" && code !== "EPERM") throw error;
    }
    if (end === 0) return;
  }
}
