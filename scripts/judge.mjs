/**
 * npm run judge -- [--dist DIR] PATH...
 *
 * Judges saved histories of clients (test/history): names every anomaly, and exits with 1 if there is one. A folder is one
 * history, of all its files that end in .jsonl; files that are named singly make up one together.
 *
 *   --dist DIR   uses a build that is there already
 */

import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { build, checkNode, fail, install, ROOT } from "./setup.mjs";

const SHOWN_MAX = 20;

checkNode();
const { values, positionals } = parse();
if (positionals.length === 0) fail("usage: npm run judge -- [--dist DIR] PATH...", 2);
if (values.dist === undefined) {
  install();
  await build();
}
const modules = resolve(ROOT, values.dist ?? "dist", "test", "history");
const { historiesOf, loadHistory } = await import(join(modules, "files.js"));
const { judge } = await import(join(modules, "judge.js"));

for (const { name, files } of historiesOf(positionals)) {
  const startedMs = performance.now();
  const history = await loadHistory(files);
  const anomalies = judge(history);
  const seconds = ((performance.now() - startedMs) / 1000).toFixed(1);
  const unknown = history.calls.filter(({ outcome }) => outcome === "unknown").length;
  console.log(
    `${name}: ${history.calls.length} calls, ${unknown} of unknown outcome; ${anomalies.length} anomalies; ${seconds} s`,
  );
  for (const { kind, at, what } of anomalies.slice(0, SHOWN_MAX)) console.log(`  ${kind} at ${at.toFixed(1)}: ${what}`);
  if (anomalies.length > SHOWN_MAX) console.log(`  and ${anomalies.length - SHOWN_MAX} more`);
  if (anomalies.length > 0) process.exitCode = 1;
}

function parse() {
  try {
    return parseArgs({ allowPositionals: true, options: { dist: { type: "string" } } });
  } catch (error) {
    return fail(error.message, 2);
  }
}
