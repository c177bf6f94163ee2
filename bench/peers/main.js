/** varve beside other queues and stores: `npm run bench:peers -- [options]`. What is measured, and how: docs/benchmarks.md */

import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus, release, totalmem } from "node:os";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { writeDocs } from "./docs.js";
import { ProgressBar, withScratch } from "./entry.js";
import { install } from "./install.js";
import { generatorText, sectionText, targetsText } from "./report.js";
import { aheadOf, targetsOf } from "./targets.js";
import { backlog } from "./works/backlog.js";
import { batches } from "./works/batches.js";
import { cost } from "./works/cost.js";
import { load, roundtrip, waiting } from "./works/latency.js";
import { opening } from "./works/open.js";
import { stores } from "./works/stores.js";
import { tasks } from "./works/tasks.js";
import { durability, throughput } from "./works/throughput.js";

const KILL = "process kill";
const POWER = "power loss";
const CLASSES = { kill: KILL, power: POWER };

/** In the order in which they run, with the classes that they run in and their part of a whole run's time. */
const WORKS = {
  queue: { run: throughput("queue"), classes: [KILL, POWER], share: 5 },
  log: { run: throughput("log"), classes: [KILL, POWER], share: 4 },
  durability: { run: durability, classes: [POWER], share: 0.3 },
  tasks: { run: tasks, classes: [KILL, POWER], share: 1 },
  batches: { run: batches, classes: [KILL], share: 0.3 },
  roundtrip: { run: roundtrip, classes: [KILL], share: 0.5 },
  load: { run: load, classes: [KILL], share: 0.5 },
  waiting: { run: waiting, classes: [KILL], share: 0.3 },
  cost: { run: cost, classes: [KILL, POWER], share: 1 },
  stores: { run: stores, classes: [KILL, POWER], share: 2 },
  backlog: { run: backlog, classes: [KILL], share: 2 },
  open: { run: opening, classes: [KILL], share: 1.5 },
};

const HELP = `Usage: npm run bench:peers -- [options]

  --quick              everything small and once: two or three minutes that show it works, not how fast
  --work <names>       ${Object.keys(WORKS).join(", ")} (all)
  --survives <class>   kill or power: only what survives a kill of the process, or a power loss (both)
  --peers <names>      only peers whose names hold one of these: redis,nats
  --kestrel <address>  host:port of another server of Kestrel's protocol, or name=host:port; repeatable
  --rounds <n>         measured rounds, after one to warm up (3)
  --seconds <n>        of one turn (0.3)
  --connections <list> 1,10,50,100,1000
  --pipeline <list>    1,16
  --backlog <n>        messages that wait at most (524288; 8388608 takes ten minutes and 10 GiB of memory for some peers)
  --backlog-bytes <n>  of each of them (1024)
  --open <n>           messages that the servers of "open" hold at most (1000000)
  --data-dir <dir>     where to make a directory for the run; it is removed afterwards (.)
  --json <file>        where the results go (bench/peers/results.json)
  --from <file>        takes results from there and measures nothing; repeatable, the later ones replace the earlier
  --write-docs         writes the results into docs/benchmarks and README.md
`;

const OPTIONS = {
  quick: { type: "boolean", default: false },
  work: { type: "string" },
  survives: { type: "string" },
  peers: { type: "string" },
  kestrel: { type: "string", multiple: true, default: [] },
  rounds: { type: "string" },
  seconds: { type: "string" },
  connections: { type: "string" },
  pipeline: { type: "string" },
  backlog: { type: "string" },
  "backlog-bytes": { type: "string", default: "1024" },
  open: { type: "string" },
  "data-dir": { type: "string", default: "." },
  json: { type: "string", default: fileURLToPath(new URL("./results.json", import.meta.url)) },
  from: { type: "string", multiple: true, default: [] },
  "write-docs": { type: "boolean", default: false },
  help: { type: "boolean", short: "h", default: false },
};

function numberOf(text, option) {
  const number = Number(text);
  if (!(number > 0)) throw new Error(`--${option} takes a number above 0; got "${text}"`);
  return number;
}

function namesOf(text, known, option) {
  if (text === undefined) return known;
  const names = text.split(",").map((name) => name.trim());
  const unknown = names.find((name) => !known.includes(name));
  if (unknown !== undefined) throw new Error(`--${option} takes ${known.join(", ")}; got "${unknown}"`);
  return names;
}

function settingsOf(values) {
  const { quick } = values;
  const given = (option, whole, small) => numberOf(values[option] ?? (quick ? small : whole), option);
  const list = (option, whole, small) =>
    (values[option] ?? (quick ? small : whole)).split(",").map((each) => numberOf(each, option));
  return {
    quick,
    rounds: given("rounds", 3, 1),
    seconds: given("seconds", 0.3, 0.2),
    connections: list("connections", "1,10,50,100,1000", "1,50"),
    pipeline: list("pipeline", "1,16", "1,16"),
    backlog: given("backlog", 524_288, 32_768),
    backlogBytes: numberOf(values["backlog-bytes"], "backlog-bytes"),
    openMessages: given("open", 1_000_000, 10_000),
    kestrel: values.kestrel,
    /** Part of the work where that is counted, not timed. */
    share: quick ? 1 / 8 : 1,
  };
}

function machineOf() {
  return {
    processor: cpus()[0]?.model.trim() ?? "unknown",
    processors: availableParallelism(),
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    system: `${process.platform} ${release()}`,
    node: process.version,
  };
}

function versionsOf(programs) {
  const read = (path) => JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8"));
  const { dependencies } = read("./package.json");
  return { varve: read("../../package.json").version, ...programs, ...dependencies };
}

async function measure(values) {
  const settings = settingsOf(values);
  const skipped = [];
  const skip = (name, reason) => {
    if (skipped.some((each) => each.name === name && each.reason === reason)) return;
    skipped.push({ name, reason });
    process.stderr.write(`\r\x1b[K${name} is left out: ${reason}\n`);
  };
  const versions = versionsOf(install(skip));
  const peers = values.peers?.split(",");
  const wants = ({ kind, name, address }) =>
    kind !== "peer" || address !== undefined || (peers?.some((peer) => name.includes(peer.trim())) ?? true);
  const works = namesOf(values.work, Object.keys(WORKS), "work");
  const classes = namesOf(values.survives, Object.keys(CLASSES), "survives").map((name) => CLASSES[name]);
  const shapes = settings.pipeline.flatMap((pipeline) =>
    settings.connections.map((connections) => ({ connections, pipeline })),
  );
  const turns = classes.flatMap((survives) =>
    works.filter((work) => WORKS[work].classes.includes(survives)).map((work) => ({ work, survives })),
  );
  const whole = turns.reduce((sum, { work }) => sum + WORKS[work].share, 0);
  const date = new Date().toISOString();
  const bar = new ProgressBar(true);
  const sections = await withScratch(resolve(values["data-dir"]), async (scratch) => {
    const done = [];
    let before = 0;
    for (const { work, survives } of turns) {
      const { run, share } = WORKS[work];
      if (!process.stderr.isTTY) process.stderr.write(`${work}, survives ${survives} ...\n`);
      const directory = `${scratch}/${done.length}`;
      mkdirSync(directory);
      const progress = (fraction, label) => bar.update((before + share * fraction) / whole, `${work}: ${label}`);
      const context = { ...settings, shapes, wants, skip, progress, scratch: directory };
      const section = await run(survives, context).catch((error) => {
        // What was measured before is not lost for it.
        process.stderr.write(`\r\x1b[K${error.stack}\n`);
        skip(`${work}, survives ${survives}`, error.message.split("\n")[0]);
        process.exitCode = 1;
        return undefined;
      });
      rmSync(directory, { recursive: true, force: true });
      before += share;
      bar.clear();
      if (section === undefined) continue;
      const measured = { ...section, date, rounds: settings.rounds };
      done.push(measured);
      process.stdout.write(`${sectionText(measured)}\n`);
      for (const text of aheadOf(measured)) process.stdout.write(`  ${text}\n`);
      process.stdout.write("\n");
    }
    return done;
  }).finally(() => bar.clear());
  return { date, machine: machineOf(), versions, settings, skipped, sections };
}

/** The later ones' sections replace the same of the earlier. */
function together(files) {
  const [first, ...others] = files.map((file) => JSON.parse(readFileSync(file, "utf8")));
  const sections = new Map();
  for (const { sections: each } of [first, ...others]) {
    for (const section of each) sections.set(`${section.work} ${section.survives}`, section);
  }
  const skipped = new Map(
    [first, ...others].flatMap((each) => each.skipped).map((each) => [`${each.name} ${each.reason}`, each]),
  );
  return { ...first, skipped: [...skipped.values()], sections: [...sections.values()] };
}

async function main() {
  const { values } = parseArgs({ options: OPTIONS });
  if (values.help) {
    process.stdout.write(HELP);
    return;
  }
  const results = values.from.length > 0 ? together(values.from) : await measure(values);
  if (values.from.length === 0) {
    mkdirSync(dirname(resolve(values.json)), { recursive: true });
    writeFileSync(values.json, `${JSON.stringify(results, undefined, 1)}\n`);
  }
  const targets = targetsOf(results.sections, results.settings.kestrel);
  const parts = [generatorText(results.sections), targets.length > 0 ? targetsText(targets) : ""];
  process.stdout.write(`${parts.filter((part) => part !== "").join("\n\n")}\n`);
  if (results.settings.quick) process.stdout.write("\na quick run: the figures mean nothing\n");
  if (values["write-docs"]) writeDocs(results);
}

await main();
