import assert from "node:assert/strict";
import { test } from "node:test";
import { dial, open, type Task } from "../../src/index.js";
import { RawClient } from "../kestrel/front.js";
import { eventually } from "../support/expect.js";
import { countsOf } from "../support/state.js";
import { WITH_SIGNALS, withDaemon } from "./served.js";

void test(
  "case 25: a daemon that gets SIGTERM loses nothing, gives back what its clients held, and ends",
  WITH_SIGNALS,
  () =>
    withDaemon(
      async (daemon, directory) => {
        const mq = await dial(daemon.target);
        const jobs = await mq.openTask("jobs", { lease: "1h", maxAttempts: 3, backoff: { initial: "1h" } });
        await jobs.enqueueBatch(["succeeds", "fails", "is held for the session"]);
        const release = new AbortController();
        let running = 0;
        const ended: string[] = [];
        const worker = jobs.work(
          async ({ payload }) => {
            running++;
            await new Promise((resolve) => release.signal.addEventListener("abort", resolve, { once: true }));
            if (payload.toString() === "fails") throw new Error("as it says");
          },
          { concurrency: 2 },
        );
        worker.on("completed", ({ payload }) => ended.push(`${payload} completed`));
        worker.on("failed", ({ payload }, error) => ended.push(`${payload} failed: ${(error as Error).message}`));
        await eventually("both handlers run", () => running === 2);
        worker.pause();
        const held = (await jobs.dequeue({ lease: "session" })) as Task;
        assert.equal(held.payload.toString(), "is held for the session");
        const memcache = await RawClient.connect(Number(daemon.kestrel?.split(":").at(-1)));
        assert.equal(await memcache.ask("set mails 0 0 1\r\nx\r\n"), "STORED\r\n");
        assert.equal(await memcache.ask("get mails/open\r\n", "END\r\n"), "VALUE mails 0 1\r\nx\r\nEND\r\n");
        const polling = (await mq.openTask("others")).dequeue({ wait: "1h" });

        await daemon.stop();
        memcache.destroy();
        const between = await open(directory);
        assert.equal((await between.stats()).recovery.recovered, false, "closed in order");
        const left = countsOf(await (await between.openTask("jobs")).stats());
        assert.deepEqual(
          left,
          { ready: 1, scheduled: 0, leased: 2, dead: 0 },
          "the session's is back, the worker's are not",
        );
        const read = await (await between.openTask("mails")).dequeue({ autoAck: true });
        assert.equal(read?.payload.toString(), "x", "what was read and not closed is back");
        await between.close();

        await daemon.start();
        release.abort();
        await eventually("what the handlers came to is recorded", () => ended.length === 2);
        assert.deepEqual(ended.sort(), ["fails failed: as it says", "succeeds completed"]);
        await worker.close();
        const counts = countsOf(await jobs.stats());
        assert.deepEqual(counts, { ready: 1, scheduled: 1, leased: 0, dead: 0 });
        await (await mq.openTask("others")).enqueue("after the restart");
        assert.equal((await polling)?.payload.toString(), "after the restart", "a long poll goes on");
        await mq.close();
        await daemon.stop();
      },
      ["--kestrel", "127.0.0.1:0"],
    ),
);
