/**
 * npm run sim -- [--seed 0x... | --seeds N [--from S] | --minutes M | --schedule FILE] [--minimize] [--trace]
 *             [--jobs N] [--at-most S]
 * npm run sim -- [--exhaustive [--workloads N]] [--flips [--kib N]] [--from S] [--jobs N] [--at-most S]
 *
 * Runs the simulator (test/sim): the production engine on a simulated machine that fails, against a model. Each failure
 * is one line with what repeats it; the exit code is 1 if there was one. docs/testing.md says more.
 *
 *   --seed S       that seed alone, with its trace if asked for
 *   --seeds N      N seeds, from --from on (default: chosen by the clock). Every 50th is run twice, to see that it repeats
 *   --minutes M    as many seeds as fit
 *   --schedule F   what a schedule file holds
 *   --minimize     leaves out what the failure does not need, and writes the rest to sim-<seed>.json
 *   --exhaustive   ends N small workloads (default: 25) at every disk call in every way, and recovery once more; and fails
 *                  every disk call of theirs in every way
 *   --flips        flips a bit in every byte of N KiB of log and segments (default: 256)
 *   --at-most S    gives out no more work after S seconds, and says what was left out
 */

import { fork } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { build, checkNode, fail, install, ROOT, SIMULATOR_ARGS, step } from "./setup.mjs";

const TWICE_EVERY = 50;
/** A job, of a second or a minute, that takes so long will never end: something waits for what does not come. */
const JOB_MS_MAX = 300_000;
/**
 * The share of lives that have a second end when there are many seeds: what comes of more of them is less than of more seeds.
 * One seed by itself tries them all, those among them.
 */
const OTHER_ENDS = 0.45;
const FAILURES_MAX = 20;
/** Of each of the two rounds of a small workload, at most. */
const SWEEP_STEPS = 8;
/** Of the log, and of segments, that one workload leaves. */
const FLIPS_EACH_BYTES = 16 * 1024;

checkNode();
const options = parse();
if (options.build) {
  install();
  await build();
}
const modules = join(ROOT, options.dist, "test", "sim");

if (options.plan !== undefined || options.seed !== undefined) await runOne();
else if (options.exhaustive || options.flips) await runSweeps();
else await runMany();

function parse() {
  let values;
  try {
    ({ values } = parseArgs({
      options: {
        seed: { type: "string" },
        seeds: { type: "string" },
        from: { type: "string" },
        minutes: { type: "string" },
        schedule: { type: "string" },
        minimize: { type: "boolean", default: false },
        trace: { type: "boolean", default: false },
        jobs: { type: "string" },
        dist: { type: "string" },
        exhaustive: { type: "boolean", default: false },
        workloads: { type: "string", default: "25" },
        flips: { type: "boolean", default: false },
        kib: { type: "string", default: "256" },
        "at-most": { type: "string" },
      },
    }));
  } catch (error) {
    fail(error.message, 2);
  }
  return {
    seed: whole(values.seed, "--seed"),
    seeds: whole(values.seeds, "--seeds"),
    from: whole(values.from, "--from"),
    minutes: values.minutes === undefined ? undefined : Number(values.minutes),
    plan: values.schedule === undefined ? undefined : JSON.parse(readFileSync(values.schedule, "utf8")),
    minimize: values.minimize,
    trace: values.trace,
    exhaustive: values.exhaustive,
    workloads: whole(values.workloads, "--workloads"),
    flips: values.flips,
    kib: whole(values.kib, "--kib"),
    untilMs: performance.now() + 1000 * (whole(values["at-most"], "--at-most") ?? Number.POSITIVE_INFINITY),
    jobs: whole(values.jobs, "--jobs") ?? availableParallelism(),
    // A build that is there already, for those who work on the simulator.
    dist: values.dist ?? "dist",
    build: values.dist === undefined,
  };
}

function whole(text, name) {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 0) fail(`${name} must be a whole number, not "${text}"`, 2);
  return value;
}

async function runOne() {
  const { drawPlan } = await import(join(modules, "plan.js"));
  const { simulate } = await import(join(modules, "simulator.js"));
  const plan = options.plan ?? drawPlan(options.seed);
  const report = await simulate(plan, options.trace ? (line) => console.log(line) : undefined);
  show(report);
  if (report.violations.length === 0) {
    console.log(`seed ${hex(plan.seed)}: ${report.cycles} cycles, ${report.calls} disk calls, hash ${report.hash}`);
    return;
  }
  for (const violation of report.violations) console.log(`  ${violation}`);
  process.exitCode = 1;
  if (options.minimize) await minimizePlan(plan);
}

async function minimizePlan(plan) {
  const { minimize } = await import(join(modules, "minimize.js"));
  const size = ({ rounds }) =>
    `${rounds.length} rounds, ${rounds.reduce((sum, { steps }) => sum + steps.length, 0)} steps`;
  step(`minimizing ${size(plan)} ...`);
  const small = await minimize(plan);
  const file = `sim-${hex(plan.seed)}.json`;
  writeFileSync(file, `${JSON.stringify(small, undefined, 1)}\n`);
  console.log(`${file}: ${size(small)}; npm run sim -- --schedule ${file}`);
}

async function runMany() {
  const first = options.from ?? Date.now() % 2 ** 32;
  const count = options.seeds ?? (options.minutes === undefined ? 200 : Number.POSITIVE_INFINITY);
  const startedMs = performance.now();
  const endMs = options.minutes === undefined ? Number.POSITIVE_INFINITY : startedMs + options.minutes * 60_000;
  const untilMs = Math.min(endMs, options.untilMs);
  const total = { seeds: 0, cycles: 0, calls: 0, commits: 0, checkpoints: 0, failures: 0 };
  const failed = [];
  const rate = (amount) => (amount / ((performance.now() - startedMs) / 1000)).toFixed(1);
  let next = 0;
  const job = () => {
    if (next >= count || performance.now() >= untilMs || failed.length >= FAILURES_MAX) return undefined;
    return { seed: (first + next) % 2 ** 32, twice: next++ % TWICE_EVERY === 0, otherEnds: OTHER_ENDS };
  };
  const done = (report) => {
    total.seeds++;
    for (const key of ["cycles", "calls", "commits", "checkpoints"]) total[key] += report[key];
    if (report.violations.length > 0) {
      failed.push(report.seed);
      show(report);
    }
    if (total.seeds % 500 === 0) step(`${total.seeds} seeds, ${rate(total.seeds)}/s, ${rate(total.cycles)} cycles/s`);
  };
  await work(job, done, ({ seed }, how) => {
    total.seeds++;
    failed.push(seed);
    console.log(`FAILED npm run sim -- --seed ${hex(seed)}   ${how}`);
  });
  console.log(
    `${total.seeds} seeds, ${total.cycles} crash and recovery cycles, ${total.commits} commits, ${total.checkpoints} ` +
      `checkpoints, ${total.calls} disk calls; ${failed.length} failed`,
  );
  console.log(`${rate(total.seeds)} seeds/s, ${rate(total.cycles)} cycles/s with ${options.jobs} processes`);
  if (total.seeds < count && performance.now() >= options.untilMs) tellTimeUp(`seeds: ${count - total.seeds}`);
  if (failed.length > 0) process.exitCode = 1;
  if (options.minimize && failed.length > 0) {
    const { drawPlan } = await import(join(modules, "plan.js"));
    await minimizePlan(drawPlan(failed[0]));
  }
}

/** Every end, every fault and every byte of small workloads, whole workloads at a time. */
async function runSweeps() {
  const first = options.from ?? 1;
  const startedMs = performance.now();
  const total = {
    ends: { runs: 0, noticed: 0, workloads: 0 },
    faults: { runs: 0, noticed: 0, workloads: 0 },
    flips: { runs: 0, noticed: 0, workloads: 0 },
  };
  let failures = 0;
  const waiting = [];
  for (let seed = first; options.exhaustive && seed < first + options.workloads; seed++) {
    for (const sweep of ["ends", "faults"]) waiting.push({ sweep, seed, steps: SWEEP_STEPS, bytes: 0 });
  }
  let flipSeed = first;
  let flipsAsked = 0;
  const isTimeUp = () => performance.now() >= options.untilMs;
  const job = () => {
    if (failures >= FAILURES_MAX || isTimeUp()) return undefined;
    if (waiting.length > 0) return waiting.shift();
    // How much a workload leaves is not known before: what is under way counts as a whole share.
    const wanted = options.flips ? options.kib * 1024 - total.flips.runs - flipsAsked : 0;
    if (wanted <= 0) return undefined;
    const bytes = Math.min(FLIPS_EACH_BYTES, Math.ceil(wanted / 2));
    flipsAsked += 2 * bytes;
    return { sweep: "flips", seed: flipSeed++, steps: 0, bytes };
  };
  const done = (report, { sweep, seed, bytes }) => {
    const sum = total[sweep];
    sum.workloads++;
    sum.runs += report.runs;
    sum.noticed += report.noticed;
    if (sweep === "flips") flipsAsked -= 2 * bytes;
    for (const [index, { what, plan }] of report.failures.entries()) {
      failures++;
      const file = `sim-${sweep}-${hex(seed)}-${index}.json`;
      writeFileSync(file, `${JSON.stringify(plan, undefined, 1)}\n`);
      console.log(`FAILED npm run sim -- --schedule ${file}   ${sweep}: ${what.split("\n")[0]}`);
    }
  };
  await work(job, done, ({ sweep, seed }, how) => {
    failures++;
    console.log(`FAILED ${sweep} of workload ${hex(seed)}   ${how}`);
  });
  const { ends, faults, flips } = total;
  if (options.exhaustive) {
    console.log(`${ends.workloads} workloads ended at every disk call in every way: ${ends.runs} runs`);
    console.log(`${faults.workloads} workloads with every fault at every disk call: ${faults.runs} runs`);
  }
  if (options.flips)
    console.log(`${flips.runs} bytes with a flipped bit: ${flips.noticed} noticed, the others harmless`);
  const seconds = (performance.now() - startedMs) / 1000;
  const runs = ends.runs + faults.runs + flips.runs;
  const rate = (runs / seconds).toFixed(0);
  console.log(`${failures} failed; ${seconds.toFixed(0)} s, ${rate} trials/s with ${options.jobs} processes`);
  if (waiting.length > 0 && isTimeUp()) tellTimeUp(`sweeps: ${waiting.length}`);
  const bytesLeft = options.flips ? options.kib * 1024 - flips.runs : 0;
  if (bytesLeft > 0 && isTimeUp()) tellTimeUp(`bytes to flip: ${bytesLeft}`);
  if (failures > 0) process.exitCode = 1;
}

/** Has workers do what `job` gives out until it gives nothing more. One that ends in the midst of a job, or does not end it, is replaced. */
async function work(job, done, died) {
  const run = async () => {
    while (await runWorker(job, done, died));
  };
  await Promise.all(Array.from({ length: options.jobs }, run));
}

/** Resolves when the worker has ended: with whether it left a job undone. */
function runWorker(job, done, died) {
  return new Promise((resolve) => {
    const worker = fork(join(modules, "run.js"), { execArgv: ["--enable-source-maps", ...SIMULATOR_ARGS] });
    let current;
    let timer;
    let isEndless = false;
    const send = () => {
      clearTimeout(timer);
      current = job();
      if (current === undefined) worker.disconnect();
      else {
        timer = setTimeout(() => {
          isEndless = true;
          worker.kill("SIGKILL");
        }, JOB_MS_MAX);
        worker.send(current);
      }
    };
    worker.on("message", (report) => {
      const finished = current;
      current = undefined;
      done(report, finished);
      send();
    });
    worker.on("exit", (code, signal) => {
      clearTimeout(timer);
      const isUndone = current !== undefined;
      if (isUndone)
        died(
          current,
          isEndless ? `did not end within ${JOB_MS_MAX / 1000} s` : `ended its worker with ${signal ?? code}`,
        );
      resolve(isUndone);
    });
    send();
  });
}

/** `.ci/run` looks for this. */
function tellTimeUp(left) {
  console.log(`the time was up; left out, ${left}`);
}

function show({ seed, violations }) {
  if (violations.length === 0) return;
  console.log(`FAILED npm run sim -- --seed ${hex(seed)}   ${violations[0].split("\n")[0]}`);
}

function hex(seed) {
  return `0x${seed.toString(16)}`;
}
