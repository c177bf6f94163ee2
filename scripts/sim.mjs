/**
 * npm run sim -- [--seed 0x... | --seeds N [--from S] | --minutes M | --schedule FILE] [--minimize] [--trace] [--jobs N]
 *
 * Runs the simulator (test/sim): the production engine on a simulated machine that fails, against a model. Each failure
 * is one line with the seed that repeats it; the exit code is 1 if there was one.
 *
 *   --seed S       that seed alone, with its trace if asked for
 *   --seeds N      N seeds, from --from on (default: chosen by the clock). Every 50th is run twice, to see that it repeats
 *   --minutes M    as many seeds as fit
 *   --schedule F   what a schedule file holds
 *   --minimize     leaves out what the failure does not need, and writes the rest to sim-<seed>.json
 */

import { fork } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { build, checkNode, fail, install, ROOT, step } from "./setup.mjs";

const TWICE_EVERY = 50;
const FAILURES_MAX = 20;

checkNode();
const options = parse();
if (options.build) {
  install();
  await build();
}
const modules = join(ROOT, options.dist, "test", "sim");

if (options.plan !== undefined || options.seed !== undefined) await runOne();
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
  const untilMs = options.minutes === undefined ? Number.POSITIVE_INFINITY : startedMs + options.minutes * 60_000;
  const total = { seeds: 0, cycles: 0, calls: 0, commits: 0, checkpoints: 0, failures: 0 };
  const failed = [];
  let next = 0;
  const more = () => next < count && performance.now() < untilMs && failed.length < FAILURES_MAX;
  const rate = (amount) => (amount / ((performance.now() - startedMs) / 1000)).toFixed(1);
  const work = () =>
    new Promise((resolve) => {
      const worker = fork(join(modules, "run.js"), { execArgv: ["--enable-source-maps"] });
      let seed;
      const send = () => {
        if (!more()) {
          worker.disconnect();
          return;
        }
        seed = (first + next) % 2 ** 32;
        worker.send({ seed, twice: next % TWICE_EVERY === 0 });
        next++;
      };
      worker.on("message", (report) => {
        seed = undefined;
        total.seeds++;
        for (const key of ["cycles", "calls", "commits", "checkpoints"]) total[key] += report[key];
        if (report.violations.length > 0) {
          failed.push(report.seed);
          show(report);
        }
        if (total.seeds % 500 === 0)
          step(`${total.seeds} seeds, ${rate(total.seeds)}/s, ${rate(total.cycles)} cycles/s`);
        send();
      });
      worker.on("exit", (code) => {
        if (seed !== undefined) {
          failed.push(seed);
          console.log(`seed ${hex(seed)}: the worker ended with ${code}`);
        }
        resolve();
      });
      send();
    });
  await Promise.all(Array.from({ length: options.jobs }, work));
  console.log(
    `${total.seeds} seeds, ${total.cycles} crash and recovery cycles, ${total.commits} commits, ${total.checkpoints} ` +
      `checkpoints, ${total.calls} disk calls; ${failed.length} failed`,
  );
  console.log(`${rate(total.seeds)} seeds/s, ${rate(total.cycles)} cycles/s with ${options.jobs} processes`);
  if (failed.length > 0) process.exitCode = 1;
  if (options.minimize && failed.length > 0) {
    const { drawPlan } = await import(join(modules, "plan.js"));
    await minimizePlan(drawPlan(failed[0]));
  }
}

function show({ seed, violations }) {
  if (violations.length === 0) return;
  console.log(`FAILED npm run sim -- --seed ${hex(seed)}   ${violations[0].split("\n")[0]}`);
}

function hex(seed) {
  return `0x${seed.toString(16)}`;
}
