/**
 * npm start [-- --exit] [--data-dir DIR]
 *
 * Installs and builds what is missing, runs the demonstration on a directory, and leaves its daemon serving that.
 */

import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { build, checkNode, fail, install, ROOT } from "./setup.mjs";

const USAGE = `npm start [-- [--exit] [--data-dir DIR]]

  --exit          end when the demonstration is over, instead of serving the directory until Ctrl-C
  --data-dir DIR  the directory to work on (default: data)`;

checkNode();
let flags;
try {
  flags = parseArgs({
    options: {
      exit: { type: "boolean", default: false },
      "data-dir": { type: "string", default: join(ROOT, "data") },
      help: { type: "boolean", short: "h", default: false },
    },
  }).values;
} catch (error) {
  fail(`${error.message}\n\n${USAGE}`, 2);
}
if (flags.help) {
  console.log(USAGE);
} else {
  install();
  await build();
  const { runDemo } = await import(pathToFileURL(join(ROOT, "dist/src/cli/demo.js")).href);
  try {
    await runDemo({ directory: resolve(flags["data-dir"]), exit: flags.exit });
  } catch (error) {
    fail(error.code === undefined ? String(error.stack) : `${error.message} (${error.code})`);
  }
}
