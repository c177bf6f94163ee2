import { getHeapSpaceStatistics, setFlagsFromString } from "node:v8";

/**
 * What young objects may take; V8 keeps as much again to move the living to. Requests wait for a third of a millisecond whenever it is
 * full. With a quarter of it, to which V8 cuts it down in a process that rests, that happens every 60 requests or so, and the slowest
 * hundredth of them is made of it.
 */
const YOUNG_BYTES = 2 * 1024 * 1024;
/** Objects of 32 bytes that are made at a time for the space to grow, and in all, at most. */
const STEP_OBJECTS = 8192;
const OBJECTS_MAX = 24 * STEP_OBJECTS;

/** Tells of the end of a full collection: V8 cuts down the space for young objects in one. */
const collected = new FinalizationRegistry(keepYoungSpace);
let canGrow = true;

/**
 * Has this process give memory back rather than save work on it, as a daemon that stays should. Left to itself, V8 lets the space for young
 * objects grow to 32 MiB and the old ones to several times what is in use, which is most of what an idle daemon would keep.
 *
 * The options are those that V8 reads again at each collection, so they hold from here on, whatever Node was started with.
 */
export function keepHeapSmall(): void {
  // So little is collected faster by one thread than by several that have to be woken.
  setFlagsFromString("--no-parallel-scavenge");
  // A full collection is due when a tenth has been added to what the last one left.
  setFlagsFromString("--heap-growing-percent=10");
  keepYoungSpace();
}

/** Sees to it that young objects have the space that they are to have, from here on, and no more. */
function keepYoungSpace(): void {
  if (canGrow && youngSpaceBytes() < 2 * YOUNG_BYTES) growYoungSpace();
  setFlagsFromString("--semi-space-growth-factor=1");
  collected.register({}, undefined);
}

/**
 * V8 has no call for it, and doubles the space when as much as it holds has outlived collections: so objects are made, and kept for
 * a little, until that has happened. It takes some milliseconds, at the start and where nothing else goes on.
 */
function growYoungSpace(): void {
  setFlagsFromString("--semi-space-growth-factor=2");
  // Those made last stay alive beside the next: some are, whenever it is that V8 collects.
  let alive: object[][] = [];
  for (let made = 0; canGrow && youngSpaceBytes() < 2 * YOUNG_BYTES; made += STEP_OBJECTS) {
    alive = [...alive.slice(-1), Array.from({ length: STEP_OBJECTS }, (_, index) => ({ index }))];
    // Node may have been started with a lower limit.
    canGrow = made < OBJECTS_MAX;
  }
}

/** Both halves. */
function youngSpaceBytes(): number {
  return getHeapSpaceStatistics().find(({ space_name }) => space_name === "new_space")?.space_size ?? 2 * YOUNG_BYTES;
}
