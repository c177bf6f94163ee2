/**
 * Compares varve with other embedded stores doing the same work: all of them in one process, round by round in turn.
 * Prints rates, ratios, the settings of each store, and the ratios that varve aims for with what was measured.
 */

import { closeSync, fsyncSync, mkdirSync, openSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { CASES, OVERWRITE, OVERWRITE_BLOCKING, RAW_WRITE } from "./cases.js";
import {
  interleave,
  overwriteSync,
  ProgressBar,
  payloadsOf,
  ratio,
  ratios,
  rawWrite,
  spread,
  table,
  warmMemory,
  whole,
  withScratch,
} from "./entry.js";
import * as level from "./level.js";
import * as lmdb from "./lmdb.js";
import * as sqlite from "./sqlite.js";
import * as varve from "./varve.js";

const STORES = [varve, sqlite, sqlite.plain, lmdb, level];
const BATCH = 64;
const WORKERS = 8;
const CONCURRENCY = 64;
/** Memory made warm before each turn, at least; otherwise twice what the turn stores. */
const WARM_BYTES_MIN = 64 * 1024 * 1024;
/** Part of the messages in a smoke run, which only shows that everything works. */
const SMOKE_SHARE = 1 / 64;

const HELP = `Usage: node main.js [options]

  --rounds <n>      measured rounds, after one to warm up (default 5)
  --only <names>    comma-separated: ${CASES.map(({ id }) => id).join(", ")}
  --stores <names>  comma-separated: ${STORES.slice(1)
    .map(({ name }) => name)
    .join(", ")}
  --data-dir <dir>  where to make a directory for the run; it is removed afterwards (default .)
  --smoke           one short round: shows that it works, not how fast
  --json            print the results as JSON
`;

function listOf(text, known, option) {
  if (text === undefined) return known;
  const names = text.split(",").map((name) => name.trim());
  const unknown = names.find((name) => !known.includes(name));
  if (unknown !== undefined) throw new Error(`${option} names "${unknown}"; there are: ${known.join(", ")}`);
  return names;
}

function bareLoop(name, directory, messageBytes) {
  if (name === RAW_WRITE) return rawWrite(directory, messageBytes);
  return overwriteSync(directory, messageBytes, { [OVERWRITE]: "pool", [OVERWRITE_BLOCKING]: "blocking" }[name]);
}

/** Makes everything that a store has written durable, so that its write-back does not slow down the next one. */
function syncFiles(directory) {
  for (const name of readdirSync(directory)) {
    let fd;
    try {
      fd = openSync(join(directory, name), "r+");
    } catch (error) {
      // LevelDB removes files in the background.
      if (error.code === "ENOENT") continue;
      throw error;
    }
    fsyncSync(fd);
    closeSync(fd);
  }
}

/** A scan reports what it saw, so that a store which skips records is not taken for a fast one. */
function checked(store, contestant, work, path) {
  return {
    settle: () => syncFiles(path),
    ...contestant,
    name: store.name,
    async run(messages, probe) {
      const result = await contestant.run(messages, probe);
      if (typeof result === "number") return result;
      if (result.done !== work.messages || result.bytes !== work.messages * work.messageBytes) {
        throw new Error(`${store.name} read ${result.done} records with ${result.bytes} bytes, not what was written`);
      }
      return result.done;
    },
  };
}

async function runCase(one, directory, { rounds, share, stores, onRound }) {
  const payloads = payloadsOf(one.messageBytes, BATCH);
  const messagesOf = (name) => {
    const messages = (one.messages[name] ?? one.messages.peer) * share;
    return Math.max(2, Math.round(messages / BATCH)) * BATCH;
  };
  const contestants = [];
  try {
    for (const store of stores) {
      const start = store.cases[one.id];
      if (start === undefined) continue;
      const path = join(directory, store.name);
      mkdirSync(path, { recursive: true });
      const work = {
        payloads,
        messageBytes: one.messageBytes,
        workers: WORKERS,
        concurrency: CONCURRENCY,
        messages: messagesOf(store.name),
      };
      contestants.push(checked(store, await start(path, work), work, path));
    }
    for (const name of one.bare) contestants.push(bareLoop(name, directory, one.messageBytes));
    const timings = await interleave(contestants, {
      rounds,
      roundLimitMs: Number.POSITIVE_INFINITY,
      // Half of it warms up; a multiple of two batches stays whole.
      messages: ({ name }) => Math.ceil(messagesOf(name) / (2 * BATCH)) * 2 * BATCH,
      prepare: ({ name }) => {
        if (one.stores !== 0) warmMemory(directory, Math.max(WARM_BYTES_MIN, 2 * messagesOf(name) * one.messageBytes));
      },
      onRound,
    });
    const own = timings.get(contestants[0]);
    return {
      ...one,
      results: contestants.map((contestant) => {
        const timing = timings.get(contestant);
        const store = stores.find(({ name }) => name === contestant.name);
        return {
          name: contestant.name,
          settings: store?.settings[one.id] ?? store?.settings[one.durability],
          messagesPerSecond: spread(timing.rates),
          ratio: timing === own ? undefined : spread(ratios(own, timing)),
        };
      }),
    };
  } finally {
    for (const contestant of contestants) await contestant.close();
  }
}

function caseReport({ title, results }) {
  return [
    title,
    table(
      ["", "messages/s", "varve / this"],
      results.map(({ name, messagesPerSecond, ratio: against }) => [
        `  ${name}`,
        whole(messagesPerSecond.median),
        against === undefined ? "" : ratio(against),
      ]),
    ),
    ...results.filter(({ settings }) => settings !== undefined).map(({ name, settings }) => `    ${name}: ${settings}`),
  ].join("\n");
}

/** Each ratio that varve aims for, with what was measured; those against stores that did not run are left out. */
function targetsOf(cases) {
  return cases.flatMap(({ title, targets, results }) =>
    targets.flatMap(({ against, least }) => {
      const measured = results.find(({ name }) => name === against)?.ratio;
      return measured === undefined ? [] : [{ title, against, least, measured, met: measured.median >= least }];
    }),
  );
}

async function main() {
  const { values } = parseArgs({
    options: {
      rounds: { type: "string", default: "5" },
      only: { type: "string" },
      stores: { type: "string" },
      "data-dir": { type: "string", default: "." },
      smoke: { type: "boolean", default: false },
      json: { type: "boolean", default: false },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  if (values.help) {
    process.stdout.write(HELP);
    return;
  }
  const rounds = values.smoke ? 1 : Number(values.rounds);
  if (!Number.isInteger(rounds) || rounds < 1) throw new Error("--rounds must be a whole number, 1 or more");
  const ids = listOf(
    values.only,
    CASES.map(({ id }) => id),
    "--only",
  );
  const peers = listOf(
    values.stores,
    STORES.slice(1).map(({ name }) => name),
    "--stores",
  );
  const stores = STORES.filter(({ name }) => name === varve.name || peers.includes(name));
  const selected = CASES.filter(({ id }) => ids.includes(id));

  const progress = new ProgressBar(!values.json);
  const done = await withScratch(values["data-dir"], async (directory) => {
    const results = [];
    for (const [index, one] of selected.entries()) {
      const path = join(directory, one.id);
      mkdirSync(path);
      const onRound = ({ name }, round) =>
        progress.update((index + round / (rounds + 1)) / selected.length, `${one.id}: ${name}`);
      results.push(await runCase(one, path, { rounds, share: values.smoke ? SMOKE_SHARE : 1, stores, onRound }));
      rmSync(path, { recursive: true });
      if (!values.json) {
        progress.clear();
        process.stdout.write(`${caseReport(results.at(-1))}\n\n`);
      }
    }
    return results;
  }).finally(() => progress.clear());

  const targets = targetsOf(done);
  if (values.json) {
    process.stdout.write(
      `${JSON.stringify({ node: process.version, rounds, smoke: values.smoke, cases: done, targets })}\n`,
    );
    return;
  }
  process.stdout.write(
    `${table(
      ["work", "against", "target", "measured", ""],
      targets.map(({ title, against, least, measured, met }) => [
        title,
        against,
        `>= ${least}`,
        ratio(measured),
        met ? "met" : "MISSED",
      ]),
    )}\n\nnode ${process.version}, ${rounds} round${rounds === 1 ? "" : "s"}, median (min - max)${values.smoke ? "; a smoke run: the figures mean nothing" : ""}\n`,
  );
}

await main();
