import assert from "node:assert/strict";
import { test } from "node:test";
import { dial, type Task } from "../../src/index.js";
import { jsonLines, type Running, startVarve } from "../cli/program.js";
import { rejectsWith } from "../support/expect.js";
import { countsOf } from "../support/state.js";
import { WITH_SIGNALS, withDaemon } from "./served.js";

void test(
  "case 16: over the wire, the token of a worker that was blocked is refused on every connection",
  WITH_SIGNALS,
  () =>
    withDaemon(async (daemon) => {
      const mq = await dial(daemon.target);
      const jobs = await mq.openTask("jobs", { lease: 300, maxAttempts: 3, backoff: { initial: 0, jitter: 0 } });
      const { id } = await jobs.enqueue("x");
      const heard: string[] = [];
      let first!: Task;
      let other!: Running;
      const worker = jobs.work((task) => {
        first = task;
        worker.pause();
        // Another process waits for what this one cannot hold.
        other = startVarve([
          ...["dequeue", "jobs", "--target", daemon.target],
          ...["--wait", "1m", "--lease", "1h", "--json"],
        ]);
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1500);
      });
      const failed = new Promise<unknown>((resolve) => worker.on("failed", (_task, error) => resolve(error)));
      worker.on("completed", () => heard.push("completed"));
      worker.on("dead", () => heard.push("dead"));
      await rejectsWith("ERR_STALE_LEASE", async () => {
        throw await failed;
      });
      assert.deepEqual(heard, [], "no success is told of");
      await worker.close();
      const [second] = jsonLines((await other.ended).stdout);
      assert.deepEqual([first.id, first.attempt, second.id, second.attempt], [id, 1, id, 2]);

      const refused = async (): Promise<void> => {
        const newcomer = await dial(daemon.target);
        for (const queue of [jobs, await newcomer.openTask("jobs")]) {
          await rejectsWith("ERR_STALE_LEASE", queue.ack(first));
          await rejectsWith("ERR_STALE_LEASE", queue.nack(first, { error: "late" }));
          await rejectsWith("ERR_STALE_LEASE", queue.extend(first, "1h"));
          assert.deepEqual(countsOf(await queue.stats()), { ready: 0, scheduled: 0, leased: 1, dead: 0 });
        }
        await newcomer.close();
      };
      await refused();
      await daemon.kill();
      await daemon.start();
      await refused();
      const newcomer = await dial(daemon.target);
      await (await newcomer.openTask("jobs")).ack(second.token);
      await newcomer.close();
      await rejectsWith("ERR_STALE_LEASE", jobs.ack(first));
      assert.deepEqual(countsOf(await jobs.stats()), { ready: 0, scheduled: 0, leased: 0, dead: 0 });
      await mq.close();
      await daemon.stop();
    }),
);
