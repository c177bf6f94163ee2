import type { MessageQueue, OpenOptions } from "../../src/index.js";
import { openEmbedded } from "../../src/queues/open.js";
import { CryptoRandom } from "../../src/storage/node-clock.js";
import { NodeDisk } from "../../src/storage/node-disk.js";
import { lockInProcess } from "./alone.js";
import type { ManualClock } from "./manual-clock.js";

/** Opens a directory of the real disk in the time of a clock that the test moves. */
export function openAt(clock: ManualClock, directory: string, options: OpenOptions = {}): Promise<MessageQueue> {
  return openEmbedded(directory, options, {
    disk: new NodeDisk(),
    clock,
    random: new CryptoRandom(),
    lock: lockInProcess,
  });
}
