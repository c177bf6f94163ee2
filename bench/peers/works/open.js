/** How long a server takes from its start to the first message that it has acknowledged, by the messages that it holds. */

import { rmSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { spread } from "../entry.js";
import { freshDirectory, startServer } from "../servers.js";
import { Worker } from "../worker.js";
import { contestantsOf, QUEUES } from "./throughput.js";

const GENERATOR = fileURLToPath(new URL("../load/generator.js", import.meta.url));
const VALUE_BYTES = 64;

export async function opening(survives, context) {
  const { rounds, scratch, skip, progress, openMessages } = context;
  const specs = [...contestantsOf("queue", survives, context), ...contestantsOf("log", survives, context)].filter(
    ({ library, server, onNative, name }) =>
      library === undefined && server !== undefined && onNative !== true && name !== "floor native",
  );
  const sizes = [openMessages / 100, openMessages / 10, openMessages].map(Math.round);
  const rows = [];
  for (const [index, { name, kind, server: program, protocol }] of specs.entries()) {
    const generator = new Worker(GENERATOR, [protocol]);
    try {
      for (const [step, size] of sizes.entries()) {
        progress((index + step / sizes.length) / specs.length, `${name}: ${size} messages`);
        const directory = freshDirectory(scratch);
        const put = ({ host, port }, counts) =>
          generator.ask({
            ...{ host, port, operation: "put", valueBytes: VALUE_BYTES, counts, queues: counts.length },
            ...(counts.length === 1 ? { connections: 1, pipeline: 1 } : { connections: 50, pipeline: 16 }),
          });
        let server = await startServer(program, directory);
        await put(server, Array(QUEUES).fill(Math.ceil(size / QUEUES)));
        const row = { name, kind, x: size };
        for (const [key, signal] of [
          ["stop", "SIGTERM"],
          ["kill", "SIGKILL"],
        ]) {
          const times = [];
          for (let round = 0; round < rounds; round++) {
            await server.stop(signal);
            const startedMs = performance.now();
            server = await startServer(program, directory);
            await untilDone(() => put(server, [1]));
            times.push(performance.now() - startedMs);
          }
          row[key] = spread(times).median;
        }
        rows.push(row);
        await server.stop();
        rmSync(directory, { recursive: true });
      }
    } catch (error) {
      if (kind !== "peer") throw error;
      skip(name, error.message);
    } finally {
      await generator.stop();
    }
  }
  return {
    form: "series",
    work: "open",
    title: "from the start of the server to the first message acknowledged, by the messages of 64 B that it holds",
    survives,
    x: "messages held",
    columns: [
      { key: "stop", title: "after a clean stop, ms" },
      { key: "kill", title: "after kill -9, ms" },
    ],
    rows,
  };
}

/** Some accept connections before they have read what they hold, and refuse all requests until then. */
async function untilDone(attempt) {
  for (let attempts = 0; ; attempts++) {
    try {
      return await attempt();
    } catch (error) {
      if (attempts > 12_000) throw error;
      await sleep(5);
    }
  }
}
