/**
 * One directory, several processes: the first one owns it, the others use it through the owner. When the owner ends, however
 * it does, one of the others takes over and the rest connect to that one.
 *
 *   opening --lock taken--> owner --close(), or the process ends--> gone
 *   opening --lock held by an owner that shares--> client --owner gone, lock taken--> client of the owner in this process
 *                                                  client --owner gone, lock held--> client of the next owner
 *
 * A sole owner, such as a daemon, is waited for instead: a command that is looking on must not keep it from starting again.
 */

import { setTimeout as sleep } from "node:timers/promises";
import type { MessageQueue, OpenOptions } from "../api/contract.js";
import { isVarveError, VarveError } from "../api/errors.js";
import { resolveOpenOptions } from "../api/options.js";
import { dialThrough } from "../client/dial.js";
import { open as openAlone, resolvePath } from "../queues/open.js";
import { saidOwner } from "../storage/lock.js";
import { parseTarget, type Target } from "../wire/target.js";
import { Owner } from "./owner.js";

/** An owner that opens a directory after a crash replays its log before it serves others. */
const WAIT_MS = 60_000;
/** One that has not said who it is may be about to. */
const UNKNOWN_MS = 5000;
const RETRY_MS_MIN = 5;
const RETRY_MS_MAX = 200;
/** An owner that says that it is opening the directory is believed for so long, then its lock is tried. */
const BELIEVE_MS = 1000;

/**
 * Opens a queue directory, creating it when it does not exist. It belongs to this process until it is closed or the process
 * ends, however it ends; with `shared`, to all processes that open it so.
 *
 * @throws VarveError `ERR_DIR_LOCKED` (the message names the owner), `ERR_NOT_VARVE`, `ERR_NOT_FOUND`, `ERR_ACCESS`,
 * `ERR_FORMAT_VERSION`, `ERR_CORRUPT`, `ERR_OPTION`, `ERR_LOCK_UNSUPPORTED`, `ERR_DISK_FULL`, `ERR_IO`
 */
export async function open(directory: string, options?: OpenOptions): Promise<MessageQueue> {
  if (options?.shared !== true) return await openAlone(directory, options);
  const path = resolvePath(directory);
  resolveOpenOptions(options);
  const { shared: _, ...own } = options;
  const search = new Search(path, own);
  for (const startedMs = performance.now(); ; ) {
    const found = await search.step();
    if (found instanceof Owner) return found.queue;
    if (found !== undefined) {
      try {
        return await dialOwner(search, found, own);
      } catch (error) {
        // It has ended just now.
        if (!isVarveError(error) || error.code !== "ERR_DISCONNECTED") throw error;
      }
    }
    const { locked } = search;
    if (locked !== undefined && performance.now() - startedMs > (isKnown(locked) ? WAIT_MS : UNKNOWN_MS)) throw locked;
    await search.rest();
  }
}

/** Looks for the owner of a directory, and becomes it when there is none. */
class Search {
  readonly #path: string;
  readonly #options: OpenOptions;
  /** When the owner took the lock whose socket has been tried already. */
  #tried: string | undefined;
  #believedMs = 0;
  #pauseMs = RETRY_MS_MIN;
  /** Of the owner that was found last. */
  #isSole = false;
  /** It has been used through its owner. */
  isClient = false;
  locked: VarveError | undefined;

  constructor(path: string, options: OpenOptions) {
    this.#path = path;
    this.#options = options;
  }

  /** @returns where the owner is reached, or it itself if it is this process now; undefined: neither yet */
  async step(): Promise<Owner | Target | undefined> {
    // Taking the lock starts a process on some systems, so it is asked first who has it.
    const said = saidOwner(this.#path);
    if (said !== undefined) this.#isSole = said.sole === true;
    if (said?.shared === true && (said.since !== this.#tried || (this.#isSole && this.isClient))) {
      if (said.target !== undefined) {
        this.#tried = said.since;
        return this.#targetOf(said);
      }
      this.#believedMs ||= performance.now();
      if (performance.now() - this.#believedMs < BELIEVE_MS) return undefined;
    }
    this.#believedMs = 0;
    if (this.#isSole && this.isClient) return undefined;
    try {
      return await Owner.take(this.#path, this.#options);
    } catch (error) {
      if (!isVarveError(error, "ERR_DIR_LOCKED") || (isKnown(error) && error.details.shared !== true)) throw error;
      this.locked = error;
      return error.details.target === undefined ? undefined : this.#targetOf(error.details);
    }
  }

  async rest(): Promise<void> {
    await sleep(this.#pauseMs * (0.5 + Math.random() / 2));
    this.#pauseMs = Math.min(2 * this.#pauseMs, RETRY_MS_MAX);
  }

  /** @throws VarveError `ERR_OPTION`: the owner's commits promise less than is asked for here */
  #targetOf({ target, durability }: { readonly target?: unknown; readonly durability?: unknown }): Target {
    if (this.#options.durability !== "async" && durability === "async") {
      throw new VarveError(
        "ERR_OPTION",
        "the process that owns the directory has opened it with durability async, and this one wants sync: open it with " +
          "async, too, and ask for sync in the calls that need it",
        { details: { option: "durability" } },
      );
    }
    return parseTarget(target);
  }
}

/** Whether the owner has written down who it is, which comes a moment after it has taken the lock. */
function isKnown({ details }: VarveError): boolean {
  return details.pid !== undefined;
}

/** A client of the owner, which becomes the owner itself when there is none. */
async function dialOwner(search: Search, first: Target, options: OpenOptions): Promise<MessageQueue> {
  let owner: Owner | undefined;
  let isClosed = false;
  let known: Target | undefined = first;
  const reach = async (): Promise<Target> => {
    if (owner !== undefined) return owner.target;
    const found = known ?? (await search.step());
    known = undefined;
    if (found === undefined) throw new VarveError("ERR_DISCONNECTED", "the next owner is opening the directory");
    if (!(found instanceof Owner)) return found;
    owner = found;
    if (isClosed) await owner.queue.close();
    return owner.target;
  };
  const route = {
    reach,
    retryMsMax: RETRY_MS_MAX,
    isBackground: true,
    async closed() {
      isClosed = true;
      await owner?.queue.close();
    },
  };
  const queue = await dialThrough(route, options.logger === undefined ? {} : { logger: options.logger });
  search.isClient = true;
  return queue;
}
