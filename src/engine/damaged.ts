/**
 * The folder `damaged`: copies of what was found damaged, or belongs to a queue that is, before anything takes its place.
 * Nothing in it is ever read, changed or removed by an open.
 */

import type { Disk } from "../storage/disk.js";
import { DAMAGED_FOLDER } from "./directory.js";

const COPY_BYTES = 1024 * 1024;

/**
 * Copies a file of the directory to `damaged/`, durably, under the path that it has in the directory.
 * @param below folder within `damaged` for it
 * @returns the path of the copy
 */
export async function keepCopy(disk: Disk, directory: string, path: string, below = ""): Promise<string> {
  const target = keptPath(directory, path, below);
  disk.mkdir(folderOf(target));
  const temporary = `${target}.tmp`;
  if (disk.size(temporary) !== undefined) disk.unlink(temporary);
  const from = disk.openFile(path, "read");
  try {
    const to = disk.openFile(temporary, "create");
    try {
      const buffer = Buffer.allocUnsafeSlow(COPY_BYTES);
      for (let position = 0; ; ) {
        const read = await from.read(buffer, 0, buffer.length, position);
        if (read === 0) break;
        await to.write([buffer.subarray(0, read)], position);
        position += read;
      }
      await to.sync();
    } finally {
      to.close();
    }
  } finally {
    from.close();
  }
  disk.rename(temporary, target);
  await syncUpTo(disk, directory, folderOf(target));
  return target;
}

/** Where a file of the directory is kept. */
export function keptPath(directory: string, path: string, below = ""): string {
  const folder = below === "" ? DAMAGED_FOLDER : `${DAMAGED_FOLDER}/${below}`;
  return `${directory}/${folder}/${path.slice(directory.length + 1)}`;
}

export function folderOf(path: string): string {
  return path.slice(0, path.lastIndexOf("/"));
}

/** Makes the names in a folder durable, and those of the folders that lead to it. */
export async function syncUpTo(disk: Disk, directory: string, folder: string): Promise<void> {
  for (let at = folder; at.length >= directory.length; at = folderOf(at)) await disk.syncDirectory(at);
}
