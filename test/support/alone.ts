import { type MessageQueue, type OpenOptions, VarveError } from "../../src/index.js";
import { nodePlatform, openEmbedded, type Platform, resolvePath } from "../../src/queues/open.js";

const held = new Set<string>();

/**
 * Stands for the kernel's lock in tests that are about something else and open directories all the time: on Linux that one
 * starts a process each time. A directory that this process has open already is noticed as well.
 */
export const lockInProcess: NonNullable<Platform["lock"]> = async (directory) => {
  if (held.has(directory)) throw new VarveError("ERR_DIR_LOCKED", `${directory} is open already`);
  held.add(directory);
  return { release: () => held.delete(directory) };
};

/** As `open()`, with that lock. */
export function openAlone(directory: string, options?: OpenOptions): Promise<MessageQueue> {
  return openEmbedded(resolvePath(directory), options, nodePlatform(lockInProcess));
}
