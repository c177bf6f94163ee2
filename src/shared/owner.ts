/** A directory that this process owns and lets others use. */

import type { MessageQueue, OpenOptions } from "../api/contract.js";
import { resolveOpenOptions } from "../api/options.js";
import { NATIVE_DEFAULTS, NativeServer } from "../native/server.js";
import { nodePlatform, openEmbedded, resolvePath } from "../queues/open.js";
import { type DirectoryLock, lockDirectory } from "../storage/lock.js";
import { formatTarget, type Target } from "../wire/target.js";
import { placeOf } from "./place.js";

/** Calls of others that are under way get this long when the owner closes. */
const DRAIN_MS = 2000;

/** A directory that is open in this process, and what tells others where it can be reached. */
interface Opened {
  readonly queue: Awaited<ReturnType<typeof openEmbedded>>;
  readonly announce: DirectoryLock["announce"];
}

export class Owner {
  /** When it closes, others are told to go to the next owner, and what is under way is answered, before the directory is given up. */
  readonly queue: MessageQueue;
  /** Where others reach it. */
  readonly target: Target;

  private constructor(queue: MessageQueue, target: Target) {
    this.queue = queue;
    this.target = target;
  }

  /**
   * Locks and opens the directory, and begins to serve it. Neither the listener nor what others connect keeps this process
   * alive: should it end, another one takes over.
   * @throws VarveError as `open` does
   */
  static async take(directory: string, options: OpenOptions | undefined): Promise<Owner> {
    const { queue, announce } = await openLocked(directory, options, false);
    try {
      const target = await serve(queue, directory, options);
      announce(formatTarget(target));
      return new Owner(queue, target);
    } catch (error) {
      await queue.close().catch(() => {});
      throw error;
    }
  }
}

/**
 * Opens a directory for this process alone to own; others that open it as shared use it through this process, and when it ends
 * they wait for it to come back. Where no socket for them can be made, it is not shared, and a warning says why.
 * @throws VarveError as `open` does
 */
export async function openSole(path: string, options: OpenOptions | undefined): Promise<MessageQueue> {
  const directory = resolvePath(path);
  const { queue, announce } = await openLocked(directory, options, true);
  try {
    announce(formatTarget(await serve(queue, directory, options)));
  } catch (error) {
    announce(undefined);
    options?.logger?.warn({ directory, error }, "other processes of this machine cannot share the directory");
  }
  return queue;
}

async function openLocked(directory: string, options: OpenOptions | undefined, sole: boolean): Promise<Opened> {
  let lock: DirectoryLock | undefined;
  const platform = nodePlatform(async (root) => {
    lock = await lockDirectory(root, { shared: true, sole, durability: options?.durability ?? "sync" });
    return lock;
  });
  const queue = await openEmbedded(directory, options, platform);
  return { queue, announce: (target) => lock?.announce(target) };
}

/** Serves it to others of this machine until it closes. Returns where. */
async function serve(queue: Opened["queue"], directory: string, options: OpenOptions | undefined): Promise<Target> {
  const server = new NativeServer(queue, {
    // A batch may be as large as a commit.
    frameBytesMax: Math.max(NATIVE_DEFAULTS.frameBytesMax, 2 * resolveOpenOptions(options).maxMessageBytes),
    isBackground: true,
    ...(options?.logger && { logger: options.logger }),
  });
  const target = await server.listen({ target: placeOf(directory) });
  queue.beforeClose = () => server.close(DRAIN_MS);
  return target;
}
