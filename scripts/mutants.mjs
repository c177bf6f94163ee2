/**
 * npm run mutants -- [--only TEXT] [--some N [--from S]] [--jobs N] [--find] [--at-most S]
 *
 * Tests the tests: breaks one step of the engine at a time (test/mutants), and expects what is named there to notice. The
 * exit code is 1 if a mutant survives, if its text is not in the source any more, or if what should find it fails on the
 * engine as it is, and so proves nothing.
 *
 *   --only T   mutants whose name or file holds this text; may be given several times
 *   --some N   N of these, which --from chooses (default: the clock); that the text of the others is there is checked all the same
 *   --find     writes to test/mutants/seeds.json what has been found by searching, where the seed there does not do any more
 *   --at-most S  begins no more of them after S seconds, and says what was left out
 */

import { fork, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import {
  cpSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import ts from "typescript";
import { build, checkNode, fail, install, ROOT, SIMULATOR_ARGS } from "./setup.mjs";

/** One seed takes a fraction of a second, a test file some seconds. */
const SEED_SECONDS_MAX = 60;
const TEST_SECONDS_MAX = 45;
const SEEDS_FILE = join(ROOT, "test/mutants/seeds.json");

checkNode();
const options = parse();
if (options.build) {
  install();
  await build();
}
const dist = resolve(ROOT, options.dist);
const { mutants } = await import(join(dist, "test/mutants/list.js"));
const { SEARCHED_SEEDS } = await import(join(dist, "test/mutants/mutant.js"));
const seeds = JSON.parse(readFileSync(SEEDS_FILE, "utf8"));
const meant = mutants.filter(({ name, file }) => options.only.some((text) => `${name} ${file}`.includes(text)));
const chosen = someOf(meant);
const problems = [];
const startedMs = performance.now();
const trees = mkdtempSync(join(tmpdir(), "varve-mutants-"));
process.on("exit", () => rmSync(trees, { recursive: true, force: true }));
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));

const names = new Set();
for (const { name } of mutants) {
  if (names.has(name)) problems.push(`two mutants are called "${name}"`);
  names.add(name);
}
const outputs = new Map();
for (const mutant of meant) {
  const source = mutated(mutant);
  const output = source !== undefined && chosen.includes(mutant) ? compile(mutant, source) : undefined;
  if (output !== undefined) outputs.set(mutant, output);
}
if (chosen.length < meant.length) {
  console.log(`${chosen.length} of ${meant.length} mutants: --some ${options.some} --from ${options.from}`);
}
/** A killer, as text -> the seeds with which it was used. */
const used = new Map();
const killed = [];
let leftOut = 0;
await eachInParallel(soonestFirst([...outputs.keys()]), async (mutant, tree) => {
  if (performance.now() >= startedMs + 1000 * options.atMostSeconds) {
    leftOut++;
    return;
  }
  const file = join(tree, "dist", mutant.file.replace(/\.ts$/, ".js"));
  const original = readFileSync(file);
  replace(file, outputs.get(mutant));
  const began = performance.now();
  const finding = await tryKiller(tree, mutant.killer, seedsFor(mutant));
  replace(file, original);
  const took = `${((performance.now() - began) / 1000).toFixed(1)} s`;
  if (finding.what === undefined) {
    problems.push(`SURVIVED  ${mutant.name} (${mutant.file}): ${mutant.breaks}`);
    console.log(`SURVIVED  ${mutant.name}   ${describe(mutant.killer)}, ${took}`);
    return;
  }
  killed.push(mutant);
  const key = JSON.stringify(mutant.killer);
  used.set(key, [...(used.get(key) ?? []), finding.seed]);
  const by = mutant.killer.by === "simulator" ? `seed ${hex(finding.seed)}` : describe(mutant.killer);
  const hint =
    mutant.killer.by !== "simulator" || seeds[mutant.name] === finding.seed ? "" : ", not the one in seeds.json";
  if (options.find && mutant.killer.by === "simulator" && hint !== "") keepSeed(mutant.name, finding.seed);
  console.log(`killed    ${mutant.name}   ${by}${hint}, ${took}: ${finding.what.split("\n")[0].slice(0, 140)}`);
});

// What finds a mutant must find nothing where there is none.
await eachInParallel([...used], async ([key, values], tree) => {
  const killer = JSON.parse(key);
  const finding = await tryKiller(tree, killer, [...new Set(values)]);
  if (finding.what === undefined) return;
  const which = killer.by === "simulator" ? `seed ${hex(finding.seed)}` : describe(killer);
  problems.push(`${which} fails without a mutant, so it proves nothing: ${finding.what.split("\n")[0]}`);
});

for (const problem of problems) console.log(problem);
const seconds = ((performance.now() - startedMs) / 1000).toFixed(0);
console.log(`${killed.length} of ${chosen.length} mutants killed in ${seconds} s with ${options.jobs} processes`);
// `.ci/run` looks for this.
if (leftOut > 0) console.log(`the time was up; left out, mutants: ${leftOut}`);
if (problems.length > 0 || killed.length + leftOut < chosen.length || killed.length === 0) process.exitCode = 1;

function parse() {
  try {
    const { values } = parseArgs({
      options: {
        only: { type: "string", multiple: true, default: [""] },
        some: { type: "string", default: "Infinity" },
        from: { type: "string", default: String(Date.now() % 2 ** 32) },
        jobs: { type: "string", default: String(availableParallelism()) },
        find: { type: "boolean", default: false },
        "at-most": { type: "string", default: "Infinity" },
        dist: { type: "string" },
      },
    });
    const jobs = Number(values.jobs);
    if (!Number.isSafeInteger(jobs) || jobs < 1) throw new Error(`--jobs must be a whole number from 1 on`);
    const some = Number(values.some);
    if (!(some >= 1)) throw new Error("--some must be a number of mutants, from 1 on");
    const atMostSeconds = Number(values["at-most"]);
    if (!(atMostSeconds > 0)) throw new Error("--at-most must be a number of seconds");
    // A build that is there already, for those who work on the mutants.
    return { ...values, some, jobs, atMostSeconds, dist: values.dist ?? "dist", build: values.dist === undefined };
  } catch (error) {
    return fail(error.message, 2);
  }
}

/** As many as are asked for, others with every `from`, and the same whatever is added to the list. */
function someOf(list) {
  const rank = ({ name }) => createHash("sha256").update(`${options.from} ${name}`).digest("hex");
  const ranks = new Map(list.map((mutant) => [mutant, rank(mutant)]));
  const first = [...list].sort((a, b) => (ranks.get(a) < ranks.get(b) ? -1 : 1)).slice(0, options.some);
  return list.filter((mutant) => first.includes(mutant));
}

/** The source of the mutated file; undefined when there is no such mutant any more. */
function mutated({ name, file, search, replacement }) {
  const source = readFileSync(join(ROOT, file), "utf8");
  const times = source.split(search).length - 1;
  if (times === 1) return source.replace(search, () => replacement);
  problems.push(`NO MUTANT  ${name}: what it replaces stands ${times} times in ${file}`);
  return undefined;
}

/** The same, compiled; undefined when it does not compile. */
function compile({ name, file }, source) {
  const { outputText, diagnostics } = ts.transpileModule(source, {
    fileName: file,
    reportDiagnostics: true,
    compilerOptions: { target: ts.ScriptTarget.ES2023, module: ts.ModuleKind.ESNext, verbatimModuleSyntax: true },
  });
  if (diagnostics.length === 0) return outputText;
  problems.push(`NO MUTANT  ${name}: ${ts.flattenDiagnosticMessageText(diagnostics[0].messageText, " ")}`);
  return undefined;
}

/** Those whose killer is known to find them at once before those for which it has to search. */
function soonestFirst(list) {
  const mustSearch = ({ name, killer }) => killer.by === "simulator" && seeds[name] === undefined;
  return [...list.filter((mutant) => !mustSearch(mutant)), ...list.filter(mustSearch)];
}

/** Calls `work` for each item, in one tree per process. */
async function eachInParallel(items, work) {
  let next = 0;
  const run = async (_, index) => {
    const tree = join(trees, String(index));
    makeTree(tree);
    while (next < items.length) await work(items[next++], tree);
    rmSync(tree, { recursive: true, force: true });
  };
  await Promise.all(Array.from({ length: options.jobs }, run));
}

/** The compiled tree again, of hard links: files in it are replaced, never changed. */
function makeTree(tree) {
  for (const folder of ["src", "test"]) {
    for (const entry of readdirSync(join(dist, folder), { recursive: true, withFileTypes: true })) {
      if (!entry.isFile() || !/\.(?:js|json)$/.test(entry.name)) continue;
      const source = join(entry.parentPath ?? entry.path, entry.name);
      const target = join(tree, "dist", source.slice(dist.length));
      mkdirSync(dirname(target), { recursive: true });
      try {
        linkSync(source, target);
      } catch {
        cpSync(source, target); // another file system
      }
    }
  }
  writeFileSync(join(tree, "package.json"), '{"type": "module"}\n');
  symlinkSync(join(ROOT, "node_modules"), join(tree, "node_modules"), "junction");
}

function replace(file, contents) {
  rmSync(file);
  writeFileSync(file, contents);
}

function seedsFor({ name }) {
  const searched = Array.from({ length: SEARCHED_SEEDS }, (_, index) => index + 1);
  return seeds[name] === undefined ? searched : [seeds[name], ...searched];
}

/** At once, so that nothing is lost of a search that is given up. */
function keepSeed(name, seed) {
  seeds[name] = seed;
  const known = mutants.filter((mutant) => mutant.killer.by === "simulator" && mutant.name in seeds);
  const sorted = Object.fromEntries(known.map((mutant) => [mutant.name, seeds[mutant.name]]));
  writeFileSync(SEEDS_FILE, `${JSON.stringify(sorted, undefined, 2)}\n`);
}

async function tryKiller(tree, killer, tried) {
  return killer.by === "test" ? await runTest(tree, killer) : await hunt(tree, killer, tried);
}

/** The first seed that fails, and how. */
function hunt(tree, killer, tried) {
  return new Promise((resolve) => {
    const worker = fork(join(tree, "dist/test/mutants/kill.js"), {
      execArgv: SIMULATOR_ARGS,
      stdio: ["ignore", "ignore", "pipe", "ipc"],
    });
    let finding = { seed: undefined, what: "the worker ended by itself" };
    let errors = "";
    const watchOver = () =>
      after(SEED_SECONDS_MAX, () => {
        finding = { ...finding, what: "it does not end" };
        worker.kill("SIGKILL");
      });
    let watch = watchOver();
    worker.stderr.on("data", (data) => {
      errors = `${errors}${data}`.slice(0, 2000);
    });
    worker.on("message", (message) => {
      watch.stop();
      if (message.kind === "trying") {
        finding = { ...finding, seed: message.seed };
        watch = watchOver();
        return;
      }
      finding = message.kind === "found" ? message : { seed: undefined, what: undefined };
      // What is broken may keep it from ending by itself.
      worker.kill("SIGKILL");
    });
    worker.on("exit", () => {
      watch.stop();
      // Nothing that was tried can have failed yet: the mutant cannot even be loaded.
      if (finding.seed === undefined && finding.what !== undefined) problems.push(`a worker failed: ${errors}`);
      resolve(finding);
    });
    worker.send({ killer, seeds: tried });
  });
}

/** Calls back after so many seconds, not counting those in which this machine or process stood still. */
function after(seconds, callback) {
  let left = seconds;
  const timer = setInterval(() => {
    if (--left > 0) return;
    clearInterval(timer);
    callback();
  }, 1000);
  return { stop: () => clearInterval(timer) };
}

function runTest(tree, { file, only }) {
  return new Promise((resolve) => {
    // By itself, not by `node --test`, whose child would outlive a runner that is killed.
    const args = ["--test-reporter=tap", ...(only === undefined ? [] : [`--test-name-pattern=${only}`])];
    const runner = spawn(process.execPath, [...args, join(tree, "dist", file.replace(/\.ts$/, ".js"))], {
      stdio: ["ignore", "pipe", "ignore"],
      env: { ...process.env, NODE_TEST_CONTEXT: undefined },
    });
    let output = "";
    const watch = after(TEST_SECONDS_MAX, () => runner.kill("SIGKILL"));
    runner.stdout.on("data", (data) => {
      output += data;
    });
    runner.on("exit", (code) => {
      watch.stop();
      const passed = Number(/^# pass (\d+)/m.exec(output)?.[1] ?? 0);
      if (code === 0 && passed === 0) problems.push(`${file}: no test matches ${only}`);
      const what = /^ *not ok \d+ - (.*)$/m.exec(output)?.[1] ?? "the test does not end";
      resolve({ seed: 0, what: code === 0 ? undefined : what });
    });
  });
}

function describe(killer) {
  return killer.by === "test"
    ? `${killer.file} ${killer.only ?? ""}`.trim()
    : `${killer.by} ${killer.seed ?? ""}`.trim();
}

function hex(seed) {
  return `0x${seed?.toString(16)}`;
}
