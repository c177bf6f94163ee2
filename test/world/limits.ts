/**
 * Limits of the process: no file may grow past a size (`ulimit -f`), or there is next to no descriptor left
 * (`ulimit -n`). Whatever cannot be done then is refused with a stable code, and nothing acknowledged is lost.
 */

import { spawn } from "node:child_process";
import { createWriteStream } from "node:fs";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { fileURLToPath } from "node:url";
import type { OpenOptions } from "../../src/index.js";
import { type Entry, nowMs, STANDARD_OUTPUT } from "./journal.js";
import { Judge } from "./judge.js";
import { journalOf, judgeCopy, type Outcome, type Stage } from "./rounds.js";
import type { WorkerPlan } from "./worker.js";

const TRIALS = 12;
const TOO_LONG_MS = 120_000;
const DESCRIPTORS = 160;

/** Where each limit bites: while opening, in the log, in a segment, in the reserve; or nowhere. */
const FILE_SIZES: readonly { readonly kib: number; readonly options: OpenOptions }[] = [
  { kib: 100, options: {} },
  { kib: 400, options: {} },
  { kib: 700, options: { walFileBytes: "4MiB" } },
  { kib: 1500, options: { walFileBytes: "4MiB" } },
  { kib: 600, options: { segmentBytes: "8MiB" } },
  { kib: 1100, options: { segmentBytes: "8MiB" } },
];

/** Runs a worker under a shell's limits. Its journal comes through a pipe, which has no size. */
export async function runLimited(plan: WorkerPlan, limits: string, prefix: readonly string[] = []): Promise<Entry[]> {
  const worker = fileURLToPath(new URL("./worker.js", import.meta.url));
  const planned = JSON.stringify({ ...plan, journal: STANDARD_OUTPUT });
  const command = [...prefix, process.execPath, worker, planned];
  const child = spawn("bash", ["-c", `${limits}; exec "$@"`, "bash", ...command], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, UV_THREADPOOL_SIZE: "1" },
    // A group of its own, so that nothing is left behind of a shell, a tracer and a worker.
    detached: true,
  });
  let errors = "";
  child.stderr.on("data", (chunk: Buffer) => {
    errors += chunk.toString();
  });
  const timer = setTimeout(() => process.kill(-(child.pid as number), "SIGKILL"), TOO_LONG_MS);
  const closed = new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (...end) => resolve(end));
  });
  await pipeline(child.stdout, createWriteStream(plan.journal));
  const [code, signal] = await closed;
  clearTimeout(timer);
  if (code !== 0) throw new Error(`the worker ended with ${String(code ?? signal)}: ${errors.slice(-2000)}`);
  return journalOf(plan);
}

export async function files(stage: Stage): Promise<Outcome> {
  const { random, folder, scale } = stage;
  const codes = new Map<string, number>();
  let acknowledged = 0;
  const trials = Math.max(1, Math.round(TRIALS * scale));
  for (let trial = 0; trial < trials; trial++) {
    const { kib, options } = FILE_SIZES[trial % FILE_SIZES.length] as (typeof FILE_SIZES)[number];
    const plan: WorkerPlan = {
      directory: join(folder, `data-${trial}`),
      journal: join(folder, `journal-${trial}`),
      life: `${trial}`,
      seed: random.uint32(),
      durability: random.pick(["sync", "async"]),
      mixed: random.chance(0.3),
      producers: 6,
      consumers: 2,
      options,
      calls: 4000,
    };
    const entries = await runLimited(plan, `ulimit -f ${kib}`);
    const refusals = countCodes(entries, codes);
    if (refusals === 0) throw new Error(`trial ${trial}: a limit of ${kib} KiB was never met`);
    const judge = new Judge(["ERR_READ_ONLY", "ERR_OUTCOME_UNKNOWN", "ERR_DISK_FULL", "ERR_IO"]);
    judge.life(entries, nowMs());
    await judgeCopy(judge, plan.directory, folder, { kind: "kill" }, undefined, options);
    acknowledged += judge.acknowledged;
  }
  return {
    line: `${trials} limits on the size of files, ${acknowledged} calls acknowledged; failed with ${list(codes)}`,
  };
}

export async function descriptors(stage: Stage): Promise<Outcome> {
  const { random, folder, scale } = stage;
  const codes = new Map<string, number>();
  const judge = new Judge(["ERR_IO"]);
  const directory = join(folder, "data");
  const trials = Math.max(1, Math.round(TRIALS * scale));
  for (let trial = 0; trial < trials; trial++) {
    const plan: WorkerPlan = {
      directory,
      journal: join(folder, `journal-${trial}`),
      life: `${trial}`,
      seed: random.uint32(),
      durability: random.pick(["sync", "async"]),
      mixed: random.chance(0.3),
      producers: 6,
      consumers: 3,
      options: { maxOpenFiles: 8 },
      calls: 2500,
      hungry: true,
      ...(random.chance(0.5) ? { trimTo: Math.max(0, judge.next - 500) } : {}),
    };
    const entries = await runLimited(plan, `ulimit -n ${DESCRIPTORS}`);
    countCodes(entries, codes);
    const end = entries.findLast(({ kind }) => kind === "health");
    if (end?.kind !== "health" || end.health !== "ok") {
      throw new Error(`trial ${trial}: with descriptors again, the directory is ${JSON.stringify(end)}`);
    }
    const setAside = entries.find((entry) => entry.kind === "logged" && /task cannot be read/.test(entry.message));
    if (setAside !== undefined) throw new Error(`trial ${trial}: a task was set aside for want of a descriptor`);
    judge.life(entries, nowMs());
    await judgeCopy(judge, directory, folder, { kind: "kill" });
  }
  if (codes.size === 0) throw new Error("nothing ever failed for want of a descriptor");
  return {
    line: `${trials} workers short of descriptors, ${judge.acknowledged} calls acknowledged; failed with ${list(codes)}`,
  };
}

function countCodes(entries: readonly Entry[], codes: Map<string, number>): number {
  let refusals = 0;
  for (const entry of entries) {
    if (entry.kind !== "failed" && entry.kind !== "trouble") continue;
    if (entry.code === "ERR_STALE_LEASE") continue;
    refusals++;
    codes.set(entry.code, (codes.get(entry.code) ?? 0) + 1);
  }
  return refusals;
}

function list(codes: ReadonlyMap<string, number>): string {
  return [...codes].map(([code, count]) => `${code} ${count}`).join(", ") || "nothing";
}
