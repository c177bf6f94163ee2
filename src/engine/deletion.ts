/**
 * Deletion of a queue: one operation of the log, in an entry of its own, so that nothing behind it in the same entry can
 * be for a queue. Handles, waits and reads end when it is applied; space comes free step by step:
 *
 *   1. the checkpoint that covers the deletion moves none of the queue's batches, and lets its runs in shared segments go
 *   2. its snapshot no longer names the queue, but lists it among those whose files are to be removed
 *   3. the queue's own segments are removed, then its folders; the next snapshot lists it no more
 *
 * A crash at any point leaves the queue as it was, or the rest of this to be done again. A queue made meanwhile under the
 * same name has the same folder and other streams, whose segments have other names: what is removed is told by the last
 * stream id that had been given out before.
 */

import type { Durability } from "../api/contract.js";
import { VARINT_BYTES_MAX } from "../storage/bytes.js";
import type { Disk } from "../storage/disk.js";
import type { FileCache } from "../storage/file-cache.js";
import { streamIdOfName } from "../storage/segment.js";
import type { CatalogEntry } from "./catalog.js";
import { type Engine, OPERATION_HEADER_BYTES } from "./engine.js";
import { OP_DELETE_QUEUE } from "./queue-state.js";
import { type IdentifiedCommit, requestBytes } from "./requests.js";

/** Folders of streams stand below the folder of the queue. */
const DEPTH = 1;

/** What other queues are told in the commit that deletes one. */
export interface WithDeletion {
  readonly metaBytes: number;
  /** Stages operations of other queues. */
  stage(engine: Engine): void;
  apply(): void;
}

/** Deletes a queue. Resolves when that is committed. Not between `begin` and `add`. */
export function deleteQueue(
  engine: Engine,
  entry: CatalogEntry,
  durability: Durability,
  request?: IdentifiedCommit,
  told?: WithDeletion,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const { catalog } = engine;
    const { id, kind, name } = entry;
    engine.flush();
    const ownBytes = OPERATION_HEADER_BYTES + 3 * VARINT_BYTES_MAX + name.length;
    engine.begin(0, 0, ownBytes + requestBytes(request) + (told?.metaBytes ?? 0), true);
    told?.stage(engine);
    const { lastStreamId } = catalog;
    const output = engine.operation(OP_DELETE_QUEUE, id);
    output.u8(kind);
    output.string(name);
    output.varint(lastStreamId);
    engine.endOperation();
    const apply = () => {
      catalog.delete(entry, lastStreamId);
      told?.apply();
    };
    engine.add({ durability, apply, settle: resolve, fail: reject }, request);
    engine.flush();
  });
}

/**
 * Removes the files of a deleted queue from its folder, as far as they are there; what is not of varve stays.
 * @param gone whether an empty folder goes as well
 */
export async function removeFiles(
  disk: Disk,
  files: FileCache,
  folder: string,
  lastStreamId: number,
  gone: (folder: string) => boolean,
): Promise<void> {
  await removeBelow(disk, files, folder, lastStreamId, DEPTH, gone);
}

async function removeBelow(
  disk: Disk,
  files: FileCache,
  folder: string,
  lastStreamId: number,
  depth: number,
  gone: (folder: string) => boolean,
): Promise<void> {
  const names = namesIn(disk, folder);
  if (names === undefined) return;
  for (const name of names.sort()) {
    const path = `${folder}/${name}`;
    const streamId = streamIdOfName(name);
    if (streamId === undefined) {
      if (depth > 0) await removeBelow(disk, files, path, lastStreamId, depth - 1, gone);
    } else if (streamId <= lastStreamId) {
      files.drop(path);
      await removeIfThere(disk, path);
    }
  }
  if (namesIn(disk, folder)?.length === 0 && gone(folder)) disk.rmdir(folder);
}

/** Removes a file that may be gone already. */
export async function removeIfThere(disk: Disk, path: string): Promise<void> {
  try {
    await disk.remove(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
}

/** Undefined where there is no such folder. */
function namesIn(disk: Disk, folder: string): string[] | undefined {
  try {
    return disk.list(folder);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return undefined;
    throw error;
  }
}
