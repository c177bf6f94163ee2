/** A directory that this process owns and lets others use. */

import type { MessageQueue, OpenOptions } from "../api/contract.js";
import { NativeServer } from "../native/server.js";
import { nodePlatform, openEmbedded } from "../queues/open.js";
import { lockDirectory } from "../storage/lock.js";
import { formatTarget, type Target } from "../wire/target.js";
import { placeOf } from "./place.js";

/** Calls of others that are under way get this long when the owner closes. */
const DRAIN_MS = 2000;

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
    let announce = (_: string) => {};
    const platform = nodePlatform(async (root) => {
      const lock = await lockDirectory(root, { shared: true, durability: options?.durability ?? "sync" });
      announce = (target) => lock.announce(target);
      return lock;
    });
    const queue = await openEmbedded(directory, options, platform);
    try {
      const server = new NativeServer(queue, {
        isBackground: true,
        ...(options?.logger && { logger: options.logger }),
      });
      const target = await server.listen({ target: placeOf(directory) });
      queue.beforeClose = () => server.close(DRAIN_MS);
      announce(formatTarget(target));
      return new Owner(queue, target);
    } catch (error) {
      await queue.close().catch(() => {});
      throw error;
    }
  }
}
