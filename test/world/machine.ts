/** The real disk, with what only a test knows about it. */

import type { MessageQueue, OpenOptions } from "../../src/index.js";
import { openEmbedded } from "../../src/queues/open.js";
import type { Clock } from "../../src/storage/clock.js";
import type { DiskFile } from "../../src/storage/disk.js";
import { lockDirectory } from "../../src/storage/lock.js";
import { CryptoRandom, SystemClock } from "../../src/storage/node-clock.js";
import { NodeDisk } from "../../src/storage/node-disk.js";
import { ManualClock } from "../support/manual-clock.js";
import type { Journal } from "./journal.js";

/** A disk whose machine was started again if the test says so, and which notes the syncs. */
class WatchedDisk extends NodeDisk {
  readonly #boot: string;
  readonly #journal: Journal | undefined;

  constructor(boot: string, journal: Journal | undefined) {
    super();
    this.#boot = boot;
    this.#journal = journal;
  }

  override bootId(): string {
    return this.#boot;
  }

  override openFile(path: string, mode: "read" | "write" | "create"): DiskFile {
    const file = super.openFile(path, mode);
    const sync = file.sync.bind(file);
    file.sync = () => this.#noted(sync);
    return file;
  }

  override syncDirectory(path: string): Promise<void> {
    return this.#noted(() => super.syncDirectory(path));
  }

  async #noted(sync: () => Promise<void>): Promise<void> {
    this.#journal?.write({ kind: "syncing" });
    await sync();
    this.#journal?.write({ kind: "synced" });
  }
}

export function openOn(
  directory: string,
  options: OpenOptions,
  machine: { readonly boot?: string | undefined; readonly journal?: Journal; readonly clock?: Clock },
): Promise<MessageQueue> {
  const { boot, journal, clock = new SystemClock() } = machine;
  const disk = boot === undefined ? new NodeDisk() : new WatchedDisk(boot, journal);
  return openEmbedded(directory, options, { disk, clock, random: new CryptoRandom(), lock: lockDirectory });
}

/** Shows the time of day and then stands still, so that a judge need not wait for leases to run out. */
export function judgesClock(): ManualClock {
  const clock = new ManualClock();
  clock.stepWall(Date.now() - clock.wallMs());
  return clock;
}
