/** Tasks enqueued and handled through each system's own library and worker. */

import { fileURLToPath } from "node:url";
import { inRounds } from "../contestants.js";
import { rowsOf } from "../sections.js";
import { freshDirectory, startServer } from "../servers.js";
import { Worker } from "../worker.js";

const CYCLES = fileURLToPath(new URL("../load/cycles.js", import.meta.url));

/** `count`: tasks of a turn, so many that each takes about as long. */
const SYSTEMS = {
  "process kill": [
    { name: "varve dialled", kind: "varve", system: "varve dialled", server: "varve", count: 40_000 },
    { name: "varve embedded", kind: "varve", system: "varve embedded", durability: "async", count: 100_000 },
    { name: "bullmq on redis", kind: "peer", system: "bullmq", server: "redis", count: 5000 },
    { name: "beanstalkd", kind: "peer", system: "beanstalkd", server: "beanstalkd", count: 15_000 },
    { name: "plainjob", kind: "peer", system: "plainjob", durability: "async", count: 5000 },
    { name: "pg-boss on pglite", kind: "peer", system: "pg-boss", count: 500 },
  ],
  "power loss": [
    { name: "varve dialled", kind: "varve", system: "varve dialled", server: "varve sync", count: 20_000 },
    { name: "varve embedded", kind: "varve", system: "varve embedded", durability: "sync", count: 20_000 },
    { name: "bullmq on redis", kind: "peer", system: "bullmq", server: "redis always", count: 3000 },
    { name: "beanstalkd", kind: "peer", system: "beanstalkd", server: "beanstalkd sync", count: 3000 },
    { name: "plainjob", kind: "peer", system: "plainjob", durability: "sync", count: 2000 },
  ],
};

async function start({ system, server: kind, durability }, scratch) {
  const directory = freshDirectory(scratch);
  const server = kind === undefined ? undefined : await startServer(kind, directory);
  const where =
    server === undefined
      ? { directory, durability }
      : { host: server.host, port: system === "varve dialled" ? server.port + 1 : server.port };
  const worker = new Worker(CYCLES, [system, JSON.stringify(where)]);
  return {
    cycle: (count) => worker.ask({ count, pid: server?.pid }),
    async stop() {
      await worker.stop();
      await server?.stop();
    },
  };
}

export async function tasks(survives, { rounds, share, scratch, skip, progress, wants }) {
  const contestants = [];
  try {
    for (const spec of SYSTEMS[survives].filter(wants)) {
      try {
        contestants.push({ ...spec, ...(await start(spec, scratch)) });
      } catch (error) {
        if (spec.kind === "varve") throw error;
        skip(spec.name, error.message);
      }
    }
    const taken = await inRounds(
      contestants,
      rounds,
      ({ cycle, count }) => cycle(Math.ceil(count * share)),
      ({ name }, round) => progress(round / (rounds + 1), name),
    );
    const results = contestants.map((contestant) => ({ ...contestant, taken: taken.get(contestant) }));
    return {
      form: "comparison",
      work: "tasks",
      title: "tasks of 64 B enqueued one by one, 64 calls at a time, and handled by 64 handlers",
      survives,
      measure: "rate",
      varve: ["varve dialled", "varve embedded"],
      rows: rowsOf(results, { at: "cycle", where: {} }),
      notes: [
        "processor time of the library and the handlers is in it where the system works inside the program: embedded, plainjob, pg-boss",
      ],
    };
  } finally {
    await Promise.all(contestants.map((contestant) => contestant.stop()));
  }
}
