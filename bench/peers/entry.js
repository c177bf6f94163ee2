/**
 * The built varve and its own measuring tools. VARVE_ENTRY names the index.js of another build, so that two of them
 * can be compared on one machine.
 */

import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const built = fileURLToPath(new URL("../../dist/src/index.js", import.meta.url));
const entry = process.env.VARVE_ENTRY ? resolve(process.env.VARVE_ENTRY) : built;
if (!existsSync(entry)) {
  process.stderr.write(`varve is not built: there is no ${entry}; run "npm run build" first\n`);
  process.exit(2);
}

/** The command line program of the same build. */
export const PROGRAM = fileURLToPath(new URL("../bin/varve.js", pathToFileURL(entry)));

const load = (path) => import(new URL(path, pathToFileURL(entry)).href);

export const { dial, open } = await load("./index.js");
export const { drive, interleave, ratios } = await load("./bench/interleave.js");
export const { overwriteSync, rawWrite } = await load("./bench/baseline.js");
export const { spread } = await load("./bench/measure.js");
export const { payloadsOf } = await load("./bench/payload.js");
export const { ProgressBar } = await load("./bench/progress.js");
export const { ratio, table, whole } = await load("./bench/report.js");
export const { withScratch } = await load("./bench/scratch.js");
export const { cycle, cycleBatch } = await load("./bench/consumers.js");
export const { warmMemory } = await load("./bench/warm.js");
export const { rest } = await load("./bench/rest.js");
