/** Throughput and memory while ever more messages wait. One server after another: some keep all of them in memory. */

import { rmSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { startAll } from "../contestants.js";
import { residentBytes } from "../process-info.js";
import { contestantsOf, QUEUES } from "./throughput.js";

const FIRST = 16_384;
const WARM_UP = 50_000;
/** Collectors of garbage and writers in the background come to rest in it. */
const QUIET_MS = 1500;
const MIB = 1024 * 1024;

export async function backlog(survives, context) {
  const { seconds, scratch, skip, progress, backlog: last, backlogBytes: valueBytes } = context;
  // One client speaks to each server here; the library in a process of its own has its own benchmark (varve bench backlog).
  const specs = contestantsOf("queue", survives, context).filter(
    ({ library, kind, onNative }) => library === undefined && kind !== "floor" && onNative !== true,
  );
  const depths = [0];
  for (let depth = Math.min(FIRST, last); depth <= last; depth *= 2) depths.push(depth);
  const rows = [];
  for (const [index, spec] of specs.entries()) {
    const [contestant] = await startAll([spec], scratch, skip);
    if (contestant === undefined) continue;
    try {
      const turn = { connections: 50, pipeline: 16, queues: QUEUES, valueBytes };
      const counts = (count) => Array.from({ length: QUEUES }, (_, queue) => Math.floor((count + queue) / QUEUES));
      for (const operation of ["put", "take"]) {
        await contestant.take({ ...turn, operation, counts: counts(Math.min(WARM_UP, last)) });
      }
      let depth = 0;
      for (const [step, next] of depths.entries()) {
        progress((index + step / depths.length) / specs.length, `${spec.name}: ${next} waiting`);
        if (next > depth) await contestant.take({ ...turn, operation: "put", counts: counts(next - depth) });
        depth = next;
        await sleep(QUIET_MS);
        const resident = residentBytes(contestant.pid) / MIB;
        const put = await contestant.take({ ...turn, operation: "put", seconds });
        const take = await contestant.take({ ...turn, operation: "take", counts: put.counts });
        rows.push({ name: spec.name, kind: spec.kind, x: depth, put: put.rate, take: take.rate, resident });
      }
    } catch (error) {
      if (spec.kind !== "peer") throw error;
      // The others are measured all the same.
      skip(`backlog, ${spec.name}`, error.message);
    } finally {
      await contestant.stop();
      // The next one needs the space.
      if (contestant.server.directory !== undefined) rmSync(contestant.server.directory, { recursive: true });
    }
  }
  return {
    form: "series",
    work: "backlog",
    title: `${valueBytes} B put and taken while others wait: 10 queues, 50 connections x 16`,
    survives,
    x: "messages waiting",
    columns: [
      { key: "put", title: "put, messages/s" },
      { key: "take", title: "taken, messages/s" },
      { key: "resident", title: "resident memory, MiB" },
    ],
    rows,
  };
}
