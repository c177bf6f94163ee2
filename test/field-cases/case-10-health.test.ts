import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { dial, open } from "../../src/index.js";
import { jsonLines, startVarve } from "../cli/program.js";
import { copyDirectory, withDirectory } from "../support/directories.js";
import { scaled } from "../support/scale.js";
import { WITH_SIGNALS } from "./served.js";

/** A port that nobody uses: it has to be known before the daemon can tell it. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, "close");
  return port;
}

/** What the health check says; undefined when nobody answers. */
async function ask(port: number): Promise<{ readonly code: number; readonly status: string } | undefined> {
  try {
    const response = await fetch(`http://127.0.0.1:${port}/health`);
    return { code: response.status, status: ((await response.json()) as { status: string }).status };
  } catch {
    return undefined;
  }
}

void test(
  "case 10: a daemon that reads back a long log says that it is starting, and then that it is well",
  WITH_SIGNALS,
  () =>
    withDirectory(async (parent) => {
      const [source, directory] = [join(parent, "source"), join(parent, "data")];
      const mq = await open(source, { durability: "async" });
      const jobs = await mq.openTask("jobs");
      const count = scaled(200_000);
      for (let index = 0; index < count; index += 1000) {
        await jobs.enqueueBatch(Array.from({ length: 1000 }, (_, step) => `${index + step}`));
        await jobs.dequeueBatch({ max: 1000, autoAck: index % 5000 !== 0 });
      }
      // As a kill would leave it.
      copyDirectory(source, directory);
      await mq.close();

      const port = await freePort();
      const arguments_ = ["--target", "tcp://127.0.0.1:0", "--health", `127.0.0.1:${port}`];
      const running = startVarve(["daemon", "-d", directory, "--json", ...arguments_]);
      try {
        const heard: string[] = [];
        for (let ended = false; heard.at(-1) !== "200 ok" && !ended; await sleep(2)) {
          const answer = await ask(port);
          if (answer !== undefined) heard.push(`${answer.code} ${answer.status}`);
          ended = running.child.exitCode !== null;
        }
        assert.equal(heard[0], "503 starting");
        assert.deepEqual([...new Set(heard)], ["503 starting", "200 ok"]);
        assert.equal((await fetch(`http://127.0.0.1:${port}/`)).status, 404);
        const [told] = jsonLines(await running.printed(/\n/));
        const client = await dial(told.targets[0]);
        assert.equal((await client.stats()).recovery.recovered, true);
        await client.close();
        running.child.kill("SIGTERM");
        const { code, stderr } = await running.ended;
        assert.equal(code, 0, stderr);
        assert.equal(await ask(port), undefined);
      } finally {
        running.child.kill("SIGKILL");
      }
    }),
);
