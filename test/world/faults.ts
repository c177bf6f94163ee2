/**
 * Single faults of the real thing: strace makes the n-th call of one kind fail. After each the directory must be as its
 * worker was told, and of an input or output error the worker must have been told.
 */

import { execFileSync } from "node:child_process";
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { nowMs } from "./journal.js";
import { Judge } from "./judge.js";
import { runLimited } from "./limits.js";
import { Refused } from "./mounts.js";
import { judgeCopy, type Outcome, type Stage } from "./rounds.js";
import type { WorkerPlan } from "./worker.js";

const POINTS = 40;
const CALLS = 1500;
/** pwrite64 writes the log, pwritev segments and snapshots, fdatasync and fsync make files and folders durable. */
const FAULTS = [
  ["fdatasync", "EIO"],
  ["pwrite64", "EIO"],
  ["fsync", "EIO"],
  ["pwritev", "EIO"],
  ["pwrite64", "ENOSPC"],
  ["fdatasync", "EIO"],
  ["pwritev", "ENOSPC"],
] as const;
/**
 * What fails there costs nothing: who owned the directory, hints, a log file made ready before it is needed, or one that a
 * checkpoint took the place of while its sync began.
 */
const NEEDLESS = /\/LOCK(\.owner)?>|\.idx>|\/ahead\.wal>|\/spare-\d+\.wal>/;
const CALLS_TRACED = "fdatasync,fsync,pwrite64,pwritev";
const TOLD = ["ERR_READ_ONLY", "ERR_OUTCOME_UNKNOWN", "ERR_DISK_FULL", "ERR_IO"];

export async function faults(stage: Stage): Promise<Outcome> {
  const { random, folder, scale } = stage;
  try {
    tryStrace();
  } catch (error) {
    if (error instanceof Refused) return { skipped: error.message };
    throw error;
  }
  const points = Math.max(1, Math.round(POINTS * scale));
  const total = { injected: 0, told: 0, acknowledged: 0 };
  // How many calls of each kind one thread makes when nothing fails.
  let usual: Map<string, number> | undefined;
  for (let point = -1; point < points; point++) {
    const [call, errno] = FAULTS[(point + FAULTS.length) % FAULTS.length] as (typeof FAULTS)[number];
    const trace = join(folder, `trace-${point}`);
    const plan: WorkerPlan = {
      directory: join(folder, `data-${point}`),
      journal: join(folder, `journal-${point}`),
      life: `${point}`,
      seed: random.uint32(),
      durability: random.pick(["sync", "async"]),
      mixed: random.chance(0.5),
      producers: 6,
      consumers: 2,
      calls: CALLS,
    };
    const when = random.between(1, Math.max(1, usual?.get(call) ?? 1));
    const inject = usual === undefined ? [] : ["-e", `inject=${call}:error=${errno}:when=${when}`];
    const strace = ["strace", "-f", "-y", "--seccomp-bpf", "-q", "-o", trace, "-e", `trace=${CALLS_TRACED}`, ...inject];
    const where = `point ${point}: ${call} number ${when} fails with ${errno}`;
    try {
      const entries = await runLimited(plan, "true", strace);
      const lines = readFileSync(trace, "latin1").split("\n");
      usual ??= countCalls(lines);
      const injected = lines.filter((line) => line.includes("(INJECTED)"));
      const judge = new Judge(TOLD);
      judge.life(entries, nowMs());
      await judgeCopy(judge, plan.directory, folder, { kind: "kill" });
      total.injected += injected.length;
      total.acknowledged += judge.acknowledged;
      const told = entries.some(
        (entry) =>
          entry.kind === "logged" ||
          ((entry.kind === "failed" || entry.kind === "trouble") && entry.code !== "ERR_STALE_LEASE") ||
          (entry.kind === "health" && entry.health !== "ok"),
      );
      if (told) total.told++;
      else if (errno === "EIO" && injected.some((line) => !NEEDLESS.test(line))) throw new Error("nobody was told");
    } catch (error) {
      throw new Error(`${where}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
    }
    rmSync(trace);
    rmSync(plan.directory, { recursive: true, force: true });
  }
  if (total.injected < points / 2) throw new Error(`only ${total.injected} of ${points} faults were met`);
  return {
    line:
      `${points} points, ${total.injected} faults injected, ${total.told} told, ${total.acknowledged} calls ` +
      "acknowledged",
  };
}

function tryStrace(): void {
  try {
    const inject = ["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO"];
    execFileSync("strace", ["-f", "--seccomp-bpf", "-q", ...inject, "true"], { stdio: ["ignore", "ignore", "pipe"] });
  } catch (error) {
    const { code, stderr } = error as { code?: string; stderr?: Buffer };
    throw new Refused(code === "ENOENT" ? "strace is not installed" : `strace: ${String(stderr).trim()}`);
  }
}

/** By kind, the most that any one thread made: strace counts for each thread by itself. */
function countCalls(lines: readonly string[]): Map<string, number> {
  const perThread = new Map<string, number>();
  const most = new Map<string, number>();
  for (const line of lines) {
    const match = /^(\d+) +(\w+)\(/.exec(line);
    if (match === null) continue;
    const [, thread = "", call = ""] = match;
    const key = `${thread} ${call}`;
    const count = (perThread.get(key) ?? 0) + 1;
    perThread.set(key, count);
    most.set(call, Math.max(most.get(call) ?? 0, count));
  }
  return most;
}
