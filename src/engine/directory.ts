/**
 * The directory as such: is it ours, which format, and its parts.
 *
 *   varve.json   {"format": 1, "id": "<32 hex digits>", "created": "<ISO 8601>"}; written last when a directory is made
 *   LOCK         held by the one process that owns the directory
 *   ballast      disk space held in reserve (ballast.ts)
 *   wal/ snap/ shared/ log/ task/
 */

import { VarveError } from "../api/errors.js";
import type { Random } from "../storage/clock.js";
import type { Disk } from "../storage/disk.js";
import { encodeSnapshot, snapshotPath, writeFileAtomically } from "../storage/snapshot.js";

export const FORMAT = 1;
const MARKER = "varve.json";
const OWN_NAMES = new Set([
  MARKER,
  `${MARKER}.tmp`,
  "LOCK",
  "LOCK.owner",
  "wal",
  "snap",
  "shared",
  "log",
  "task",
  "ballast",
]);

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
  if (names.includes(MARKER)) return;
  const foreign = names.filter((name) => !OWN_NAMES.has(name));
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
  if (disk.size(path) === undefined) return await createDirectory(disk, directory, path, random, wallMs);
  const text = disk.readFile(path).toString("utf8");
  let marker: { format?: unknown; id?: unknown };
  try {
    marker = JSON.parse(text) as typeof marker;
  } catch (cause) {
    throw new VarveError(
      "ERR_CORRUPT",
      `${path} is not valid JSON. It should name the format and the directory's id.`,
      {
        cause,
        details: { file: path },
      },
    );
  }
  if (typeof marker?.format !== "number" || typeof marker.id !== "string" || !/^[0-9a-f]{32}$/.test(marker.id)) {
    throw new VarveError("ERR_CORRUPT", `${path} does not name the format and the directory's id.`, {
      details: { file: path },
    });
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
  for (const part of ["wal", "snap", "shared"]) disk.mkdir(`${directory}/${part}`);
  // Whatever an earlier attempt left: the directory has never been opened.
  for (const part of ["wal", "snap"]) {
    for (const name of disk.list(`${directory}/${part}`)) disk.unlink(`${directory}/${part}/${name}`);
  }
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
  const engineSection = { id: 0, kind: 0, name: "", body: Buffer.from([0]) };
  await writeFileAtomically(disk, snap, snapshotPath(snap, 0), encodeSnapshot(header, [engineSection]));
  const marker = { format: FORMAT, id, created: new Date(wallMs).toISOString() };
  await disk.syncDirectory(directory);
  await syncAncestors(disk, directory);
  await writeFileAtomically(disk, directory, path, [Buffer.from(`${JSON.stringify(marker)}\n`)]);
  return { id };
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
