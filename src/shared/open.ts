/**
 * One directory, several processes: the first one owns it, the others use it through the owner. When the owner ends, however
 * it does, one of the others takes over and the rest connect to that one.
 *
 *   opening --lock taken--> owner --close(), or the process ends--> gone
 *   opening --lock held by an owner that shares--> client --owner gone, lock taken--> client of the owner in this process
 *                                                  client --owner gone, lock held--> client of the next owner
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { Logger, MessageQueue, OpenOptions } from "../api/contract.js";
import { isVarveError, VarveError } from "../api/errors.js";
import { dialThrough } from "../client/dial.js";
import { open as openAlone, resolvePath } from "../queues/open.js";
import { parseTarget, type Target } from "../wire/target.js";
import { OwnedQueue } from "./owned-queue.js";
import { Owner } from "./owner.js";

/** An owner that opens a directory after a crash replays its log before it serves others. */
const WAIT_MS = 60_000;
const RETRY_MS_MAX = 100;
/** A new owner is looked for at least so often: it is to be there within a second. */
const RECONNECT_MS_MAX = 200;

/**
 * Opens a queue directory, creating it when it does not exist. It belongs to this process until it is closed or the process
 * ends, however it ends; with `shared`, to all processes that open it so.
 *
 * @throws VarveError `ERR_DIR_LOCKED` (the message names the owner), `ERR_NOT_VARVE`, `ERR_NOT_FOUND`, `ERR_ACCESS`,
 * `ERR_FORMAT_VERSION`, `ERR_CORRUPT`, `ERR_OPTION`, `ERR_LOCK_UNSUPPORTED`, `ERR_DISK_FULL`, `ERR_IO`
 */
export async function open(directory: string, options?: OpenOptions): Promise<MessageQueue> {
  if (options?.shared !== true) return await openAlone(directory, options);
  const path = resolvePath(checkedPath(directory));
  const { shared: _, ...own } = options;
  for (const startedMs = performance.now(); ; ) {
    try {
      return new OwnedQueue(await Owner.take(path, own));
    } catch (error) {
      const target = targetOf(error);
      if (target !== undefined) {
        try {
          return await dialOwner(path, own, target);
        } catch (failed) {
          // It has ended just now, or has not begun to listen yet.
          if (!isVarveError(failed) || failed.code !== "ERR_DISCONNECTED") throw failed;
        }
      }
      if (performance.now() - startedMs > WAIT_MS) throw error;
    }
    await sleep(1 + Math.random() * RETRY_MS_MAX);
  }
}

/** A client of the owner, which becomes the owner when there is none. */
async function dialOwner(path: string, options: OpenOptions, first: Target): Promise<MessageQueue> {
  let owner: Owner | undefined;
  let isClosed = false;
  let known: Target | undefined = first;
  const reach = async (): Promise<Target> => {
    if (owner !== undefined) return owner.target;
    if (known !== undefined) {
      const target = known;
      known = undefined;
      return target;
    }
    try {
      owner = await Owner.take(path, options);
    } catch (error) {
      const target = targetOf(error);
      if (target !== undefined) return target;
      throw isLockedByOwner(error) ? new VarveError("ERR_DISCONNECTED", "the next owner is opening the directory") : error;
    }
    if (isClosed) await owner.close();
    return owner.target;
  };
  const logger: { logger?: Logger } = options.logger === undefined ? {} : { logger: options.logger };
  return await dialThrough({
    reach,
    reconnectMsMax: RECONNECT_MS_MAX,
    isBackground: true,
    options: logger,
    onClosed: async () => {
      isClosed = true;
      await owner?.close();
    },
  });
}

function checkedPath(directory: string): string {
  if (typeof directory === "string" && directory !== "" && !directory.includes("\0")) return directory;
  throw new VarveError("ERR_ARGUMENT", "open() takes the path of a directory; got something else, or an empty path");
}

/** Whether the directory is locked by a process that shares it. */
function isLockedByOwner(error: unknown): error is VarveError {
  return isVarveError(error) && error.code === "ERR_DIR_LOCKED" && error.details.shared === true;
}

/** Where the owner of a locked directory is reached; undefined when that is not known yet. @throws what it is given */
function targetOf(error: unknown): Target | undefined {
  if (!isLockedByOwner(error)) throw error;
  const { target } = error.details;
  return typeof target === "string" ? parseTarget(target) : undefined;
}
