import path from "node:path";
import type { MessageQueue, OpenOptions } from "../api/contract.js";
import { isVarveError, VarveError } from "../api/errors.js";
import { resolveOpenOptions } from "../api/options.js";
import { openError, prepareDirectory } from "../engine/directory.js";
import type { EnginePlatform } from "../engine/engine.js";
import { openDirectory } from "../engine/recovery.js";
import { type DirectoryLock, lockDirectory } from "../storage/lock.js";
import { CryptoRandom, SystemClock } from "../storage/node-clock.js";
import { NodeDisk } from "../storage/node-disk.js";
import { kinds } from "./kinds.js";
import { EmbeddedMessageQueue } from "./message-queue.js";

/** What the engine stands on. */
export interface Platform extends EnginePlatform {
  /** Locks the directory against a second owner. Without it, the caller sees to that. */
  lock?(directory: string): Promise<Pick<DirectoryLock, "release">>;
}

/**
 * Opens a queue directory in this process, creating it when it does not exist. The directory belongs to this process
 * until it is closed or the process ends, however it ends.
 *
 * @throws VarveError `ERR_DIR_LOCKED` (the message names the owner), `ERR_NOT_VARVE`, `ERR_NOT_FOUND`, `ERR_ACCESS`,
 * `ERR_FORMAT_VERSION`, `ERR_CORRUPT`, `ERR_OPTION`, `ERR_LOCK_UNSUPPORTED`, `ERR_DISK_FULL`, `ERR_IO`
 */
export async function open(directory: string, options?: OpenOptions): Promise<MessageQueue> {
  return await openEmbedded(resolvePath(directory), options, nodePlatform(lockDirectory));
}

/** What stands below the engine in a process of its own. */
export function nodePlatform(lock: NonNullable<Platform["lock"]>): Platform {
  return { disk: new NodeDisk(), clock: new SystemClock(), random: new CryptoRandom(), lock };
}

/** A path in the form that the engine takes. @throws VarveError `ERR_ARGUMENT` */
export function resolvePath(directory: string): string {
  if (typeof directory !== "string" || directory === "" || directory.includes("\0")) {
    throw new VarveError("ERR_ARGUMENT", "open() takes the path of a directory; got something else, or an empty path");
  }
  return path.resolve(directory).split(path.sep).join("/");
}

/** The same on a platform of the caller's choice. */
export async function openEmbedded(
  directory: string,
  options: OpenOptions | undefined,
  platform: Platform,
): Promise<EmbeddedMessageQueue> {
  const resolved = resolveOpenOptions(options);
  let lock: Pick<DirectoryLock, "release"> | undefined;
  try {
    prepareDirectory(platform.disk, directory, resolved.create);
    lock = await platform.lock?.(directory);
    const { engine, checkpointer, report } = await openDirectory(platform, directory, resolved, kinds);
    const held = lock;
    return new EmbeddedMessageQueue(engine, checkpointer, report, () => held?.release());
  } catch (error) {
    lock?.release();
    throw isVarveError(error) ? error : openError(directory, error);
  }
}
