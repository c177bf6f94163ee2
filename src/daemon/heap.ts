import { setFlagsFromString } from "node:v8";

/**
 * Has this process give memory back rather than save work on it, as a daemon that stays should. Left to itself, V8 lets the space for young
 * objects grow to 32 MiB and the old ones to several times what is in use, which is most of what an idle daemon would keep.
 *
 * The options are those that V8 reads again at each collection, so they hold from here on, whatever Node was started with.
 */
export function keepHeapSmall(): void {
  // Young objects get no more than they have now: at the start of a process 1 to 2 MiB, twice.
  setFlagsFromString("--semi-space-growth-factor=1");
  // So little is collected faster by one thread than by several that have to be woken.
  setFlagsFromString("--no-parallel-scavenge");
  // A full collection is due when a tenth has been added to what the last one left.
  setFlagsFromString("--heap-growing-percent=10");
}
