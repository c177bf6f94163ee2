/**
 * Stores that are used as queues, in one process, round by round in turn. `fork`ed; carries out one case at a time.
 */

import { closeSync, fsyncSync, mkdirSync, openSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { interleave, overwriteSync, payloadsOf, rawWrite, warmMemory } from "../entry.js";
import { serve } from "../worker.js";
import { CASES, OVERWRITE, OVERWRITE_BLOCKING, RAW_WRITE } from "./cases.js";
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
    return contestants.map((contestant) => {
      const store = stores.find(({ name }) => name === contestant.name);
      return {
        name: contestant.name,
        rates: timings.get(contestant).rates,
        settings: store?.settings[one.id] ?? store?.settings[one.durability],
      };
    });
  } finally {
    for (const contestant of contestants) await contestant.close();
  }
}

serve(async ({ id, directory, rounds, share, without }, onProgress) => {
  const one = CASES.find((each) => each.id === id);
  const stores = STORES.filter(({ name }) => !without.includes(name));
  const onRound = ({ name }, round) => onProgress([round / (rounds + 1), name]);
  return runCase(one, directory, { rounds, share, stores, onRound });
});
