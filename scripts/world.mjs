/**
 * npm run world [-- --seed N] [--scale X] [--at-most S] [PART...]
 *
 * The engine on the real machine, made to suffer (test/world). Each part prints one line with what it did; a violation
 * is named with the folder that is kept and the command that repeats it, and makes the exit code 1. A part that this
 * machine cannot run says so in a line that begins with SKIPPED.
 *
 *   kill         200 times kill -9 on one directory, judged after every round
 *   daemon       100 rounds of kill -9 on a daemon with Kestrel clients, judged by what they were told
 *   power        100 power cuts of an ext4 image on a loop device (needs root, mkfs.ext4, losetup, perl)
 *   full         a tmpfs filled to its last byte, drained, and written to again (needs root)
 *   files        a limit on the size of files (ulimit -f)
 *   descriptors  a limit on open files (ulimit -n)
 *   faults       calls that fail one at a time, by strace
 *
 *   --seed N     repeats the random choices of a run
 *   --scale X    does X times as much as by default
 *   --at-most S  begins no more kills and power cuts when they have had their part of S seconds, and says what was left out
 *   --dist DIR   uses a build that is there already
 */

import { resolve } from "node:path";
import { build, checkNode, install, ROOT, run } from "./setup.mjs";

checkNode();
const args = process.argv.slice(2);
const at = args.indexOf("--dist");
const dist = at < 0 ? undefined : args.splice(at, 2)[1];
if (dist === undefined) {
  install();
  await build();
}
run("npm run world", "--enable-source-maps", [resolve(ROOT, dist ?? "dist", "test/world/run.js"), ...args]);
