/** One client that appends batches of 1 KiB records and reads them again: over each carrier, and in a directory of its own. */

import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { inRounds } from "../contestants.js";
import { rowsOf } from "../sections.js";
import { freshDirectory, startServer, unixPath } from "../servers.js";
import { Worker } from "../worker.js";

/** Turns are longer here: each fills several log files, so that checkpoints are part of all of them. */
const LONGER = 3;

const BATCHES = fileURLToPath(new URL("../load/batches.js", import.meta.url));

const CARRIERS = [
  { name: "varve over a Unix socket", kind: "varve", target: ({ port }) => `unix://${unixPath(port)}` },
  { name: "varve over tcp", kind: "varve", target: ({ host, port }) => `tcp://${host}:${port + 1}` },
  { name: "varve embedded", kind: "peer" },
];

async function start({ target }, scratch) {
  const directory = freshDirectory(scratch);
  const server = target === undefined ? undefined : await startServer("varve", directory);
  const where = server === undefined ? ["open", join(directory, "data")] : ["dial", target(server)];
  const worker = new Worker(BATCHES, where);
  return {
    ask: (task) => worker.ask({ ...task, pid: server?.pid }),
    async stop() {
      await worker.stop();
      await server?.stop();
    },
  };
}

export async function batches(survives, { rounds, seconds: given, scratch, progress }) {
  const contestants = [];
  const seconds = LONGER * given;
  try {
    for (const carrier of CARRIERS) contestants.push({ ...carrier, ...(await start(carrier, scratch)) });
    for (const { name, ask } of contestants) {
      progress(0, `${name}: warming up`);
      await ask({ operation: "append", seconds: 2 * seconds });
      await ask({ operation: "scan" });
    }
    const taken = await inRounds(
      contestants,
      rounds,
      async ({ ask }) => ({
        append: await ask({ operation: "append", seconds }),
        scan: await ask({ operation: "scan" }),
      }),
      ({ name }, round) => progress(round / (rounds + 1), name),
    );
    const rows = ["append", "scan"].flatMap((operation) => {
      const results = contestants.map((contestant) => ({
        name: contestant.name,
        kind: contestant.kind,
        taken: taken.get(contestant).map((round) => round[operation]),
      }));
      return rowsOf(results, { at: operation, where: { operation } });
    });
    return {
      form: "comparison",
      work: "batches",
      title: "one client: batches of 64 x 1 KiB appended, 8 at a time, and scanned",
      survives,
      measure: "rate",
      varve: ["varve over a Unix socket", "varve over tcp"],
      rows,
    };
  } finally {
    await Promise.all(contestants.map((contestant) => contestant.stop()));
  }
}
