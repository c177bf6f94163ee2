/**
 * npm test [-- [--built] FILTER...]
 *
 * Installs and builds what is missing, then runs the compiled tests with Node's own runner, whose summary and exit code
 * are the result. A filter that is part of a test file's path selects files; any other is a pattern for test names. What
 * begins with "-" goes to the runner as it is.
 *
 * --built   neither installs nor builds: what is there is up to date
 *
 * VARVE_TEST_CONCURRENCY=n   test files run at once (default: three more than there are processors)
 * VARVE_TEST_SCALE=n         makes the sized tests n times as large (1; 10 for a release)
 * VARVE_TEST_SEED=n          repeats what a failure named
 * TMPDIR=directory           where the tests work; one in memory, such as /dev/shm, keeps a slow disk out of it
 */

import { spawnSync } from "node:child_process";
import { availableParallelism } from "node:os";
import { build, checkNode, fail, install, listFiles, ROOT, step } from "./setup.mjs";

checkNode();
if (!process.argv.includes("--built")) {
  install();
  await build();
}

const files = [...listFiles("src", ".test.ts"), ...listFiles("test", ".test.ts")];
if (files.length === 0) fail("found no test files");

const flags = [];
const selected = new Set();
for (const argument of process.argv.slice(2).filter((each) => each !== "--built")) {
  const path = argument
    .replaceAll("\\", "/")
    .replace(/^\.\//, "")
    .replace(/^dist\//, "")
    .replace(/\.js$/, "");
  const matches = files.filter((file) => file.includes(path));
  if (argument.startsWith("-")) flags.push(argument);
  else if (matches.length > 0) for (const file of matches) selected.add(file);
  else flags.push(`--test-name-pattern=${argument}`);
}
// Many tests wait for a disk or for a process most of the time.
const concurrency = process.env.VARVE_TEST_CONCURRENCY || String(availableParallelism() + 3);
if (!/^[1-9]\d*$/.test(concurrency)) fail(`VARVE_TEST_CONCURRENCY must be a whole number >= 1; got "${concurrency}"`);
flags.push(`--test-concurrency=${concurrency}`);

const chosen = selected.size > 0 ? [...selected] : files;
step(`running ${chosen.length} of ${files.length} test files on Node ${process.versions.node} ...`);
const result = spawnSync(
  process.execPath,
  [
    "--enable-source-maps",
    "--test",
    "--test-reporter=spec",
    ...flags,
    ...chosen.map((file) => `dist/${file.replace(/\.ts$/, ".js")}`),
  ],
  { cwd: ROOT, stdio: ["ignore", "inherit", "inherit"] },
);
if (result.error !== undefined) fail(`the test runner could not be started: ${result.error.message}`);
process.exitCode = result.status ?? 1;
