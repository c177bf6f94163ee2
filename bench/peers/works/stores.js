/** varve in a program beside SQLite, LMDB and LevelDB used as queues there, and beside loops that only make system calls. */

import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { rowsOf } from "../sections.js";
import { CASES, OVERWRITE, OVERWRITE_BLOCKING, RAW_WRITE } from "../stores/cases.js";
import { Worker } from "../worker.js";

const RUN = fileURLToPath(new URL("../stores/run.js", import.meta.url));
const BARE = [RAW_WRITE, OVERWRITE, OVERWRITE_BLOCKING];
export const STORES = ["better-sqlite3", "better-sqlite3 (plain)", "lmdb", "classic-level"];
const SURVIVES = { async: "process kill", sync: "power loss" };

export async function stores(survives, { rounds, share, scratch, progress, wants }) {
  const without = STORES.filter((name) => !wants({ name, kind: "peer" }));
  const cases = CASES.filter(({ durability }) => SURVIVES[durability] === survives);
  const worker = new Worker(RUN, []);
  const rows = [];
  const settings = new Map();
  try {
    for (const [index, { id, title }] of cases.entries()) {
      const directory = mkdtempSync(join(scratch, "stores-"));
      const results = await worker.ask({ id, directory, rounds, share, without }, ([fraction, name]) =>
        progress((index + fraction) / cases.length, `${id}: ${name}`),
      );
      rmSync(directory, { recursive: true });
      for (const { name, settings: each } of results) {
        if (each !== undefined) settings.set(name, (settings.get(name) ?? new Set()).add(each));
      }
      const named = results.map(({ name, rates }) => ({
        name,
        kind: name === "varve" ? "varve" : BARE.includes(name) ? "floor" : "peer",
        taken: rates.map((rate) => ({ rate })),
      }));
      rows.push(...rowsOf(named, { at: title, where: { id } }));
    }
  } finally {
    await worker.stop();
  }
  return {
    form: "comparison",
    work: "stores",
    title: "in one process: stores used as queues, and loops of system calls",
    survives,
    measure: "rate",
    varve: ["varve"],
    rows,
    notes: [...settings].map(([name, each]) => `${name}: ${[...each].join("; ")}`),
  };
}
