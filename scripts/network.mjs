/**
 * npm run network [-- --seed N] [--rounds N] [--jobs N] [--at-most SECONDS] [--keep] [WAY...]
 *
 * Clients in processes of their own, on one directory or behind a daemon, of which any is killed or made to stand still at
 * random moments (test/network). What each was told is judged after every round: docs/testing.md says for what. A failure
 * names the command that repeats its plan, and the folder with the history, for `npm run judge`.
 *
 *   embedded     one process, which has the directory open itself
 *   tcp, unix    a daemon and three processes that have dialled it
 *   shared       three processes that share a directory
 *
 *   --seed N     of the first round; each has the next one (default: chosen by the clock)
 *   --rounds N   of each way (default: 200)
 *   --jobs N     rounds at once (default: 2)
 *   --at-most SECONDS   begins no round later; each way has its share of that
 *   --keep       keeps all histories, and not only those with something wrong
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
run("npm run network", "--enable-source-maps", [resolve(ROOT, dist ?? "dist", "test/network/run.js"), ...args]);
