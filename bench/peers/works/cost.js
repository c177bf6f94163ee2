/** What a message costs the server once it has settled: processor time, and bytes given to the file system. */

import { setTimeout as sleep } from "node:timers/promises";
import { startAll, stopAll } from "../contestants.js";
import { processorMicros, writtenBytes } from "../process-info.js";
import { contestantsOf, QUEUES } from "./throughput.js";

const SIZES = [64, 1024];
/** Turns are longer here, so that preallocated files and work in the background are paid for by as much as they serve. */
const LONGER = 4;
/** For what is written in the background. */
const QUIET_MS = 1000;

export async function cost(survives, context) {
  const { seconds, scratch, skip, progress } = context;
  const specs = ["queue", "log"].flatMap((work) =>
    contestantsOf(work, survives, context)
      .filter(({ server, library, kind }) => server !== undefined && library === undefined && kind !== "floor")
      .map((spec) => (spec.name === "varve native" ? { ...spec, name: `varve native, ${work}` } : spec)),
  );
  const rows = [];
  for (const [index, spec] of specs.entries()) {
    const [contestant] = await startAll([spec], scratch, skip);
    if (contestant === undefined) continue;
    try {
      const { pid } = contestant;
      for (const [step, valueBytes] of SIZES.entries()) {
        progress((index + step / SIZES.length) / specs.length, `${spec.name}: ${valueBytes} B`);
        const turn = { connections: 50, pipeline: 16, queues: QUEUES, valueBytes };
        const pass = async () => {
          const before = { cpu: processorMicros(pid), written: writtenBytes(pid) };
          const { counts, done } = await contestant.take({ ...turn, operation: "put", seconds: LONGER * seconds });
          await contestant.take({ ...turn, operation: "take", counts });
          await sleep(QUIET_MS);
          return {
            cpu: (processorMicros(pid) - before.cpu) / done,
            written: (writtenBytes(pid) - before.written) / (done * valueBytes),
          };
        };
        await pass(); // warms up, and fills what is preallocated
        rows.push({ name: spec.name, kind: spec.kind, x: valueBytes, ...(await pass()) });
      }
    } finally {
      await stopAll([contestant]);
    }
  }
  return {
    form: "series",
    work: "cost",
    title: "what a message costs that is put and taken: 10 queues, 50 connections x 16",
    survives,
    x: "bytes of payload",
    columns: [
      { key: "cpu", title: "processor seconds of the server per million" },
      { key: "written", title: "bytes written per byte of payload" },
    ],
    rows,
  };
}
