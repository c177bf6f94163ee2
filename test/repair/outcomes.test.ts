import assert from "node:assert/strict";
import { cpSync, readdirSync } from "node:fs";
import path from "node:path";
import test from "node:test";
import type { MessageQueue } from "../../src/index.js";
import { dumpFile, open, verifyDirectory } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";

/** What anybody can know of the tasks with these ids. */
async function known(mq: MessageQueue, ids: Record<string, string[]>): Promise<object> {
  const all: Record<string, object> = {};
  for (const [queue, names] of Object.entries(ids)) {
    const tasks = await mq.openTask(queue);
    const { ready, scheduled, leased, blocked, dead } = await tasks.stats();
    const statuses = [];
    for (const id of names) statuses.push(await tasks.status(id));
    all[queue] = { counts: { ready, scheduled, leased, blocked, dead }, statuses };
  }
  return all;
}

test("results, progress, redriven tasks and flows are the same from the log as they were in memory", () =>
  withDirectory(async (directory) => {
    const live = path.join(directory, "live");
    const mq = await open(live);
    const jobs = await mq.openTask("jobs", { maxAttempts: 1 });
    const roots = await mq.openTask("roots");
    const ids: Record<string, string[]> = { jobs: [], roots: [] };
    let copies = 0;
    /** A copy of the directory as a kill would leave it. */
    const check = async () => {
      const copy = path.join(directory, `copy-${copies++}`);
      const before = await known(mq, ids);
      cpSync(live, copy, { recursive: true, filter: (file) => path.basename(file) !== "LOCK" });
      for (const place of ["wal", "snap"]) {
        const names = readdirSync(path.join(copy, place)).filter((name) => !name.endsWith(".begun"));
        for (const name of names) {
          for await (const item of dumpFile(path.join(copy, place, name))) assert.ok(!("error" in item));
        }
      }
      const recovered = await open(copy);
      assert.deepEqual(await known(recovered, ids), before);
      await recovered.close();
      assert.deepEqual((await verifyDirectory(copy)).problems, []);
      const again = await open(copy);
      assert.deepEqual(await known(again, ids), before, "from the snapshot");
      await again.close();
    };

    for (const { id } of await jobs.enqueueBatch(["a", "b", "c", "d"])) ids.jobs?.push(id);
    await jobs.ack((await jobs.dequeue())!, { result: { rows: [1] } });
    await jobs.progress((await jobs.dequeue())!, "half");
    await jobs.nack((await jobs.dequeue())!);
    await check();
    await jobs.dead.redrive();
    await check();
    await jobs.ackBatch(await jobs.dequeueBatch({ max: 2 }));
    await check();

    const flow = async (options = {}) => {
      const made = await mq.flow({
        queue: roots,
        input: "root",
        children: [
          { queue: jobs, input: "leaf", options },
          { queue: jobs, input: "leaf" },
        ],
      });
      ids.roots?.push(made.task.id);
      for (const { task } of made.children) ids.jobs?.push(task.id);
      return made;
    };
    const ended = (task: { result(options: object): Promise<unknown> }) => task.result({ wait: "30s" }).catch(() => {});
    await flow();
    await check();
    await jobs.ack((await jobs.dequeue())!);
    await check();
    await jobs.dequeue({ autoAck: true });
    await check();
    await flow();
    await jobs.nack((await jobs.dequeue())!);
    await check();
    await jobs.dead.redrive();
    await check();
    await jobs.ackBatch(await jobs.dequeueBatch({ max: 2 }));
    await check();
    const cancelled = await flow({ delay: "1h" });
    await jobs.cancel(cancelled.children[0]!.task.id);
    await ended(cancelled.task);
    await check();
    const expired = await flow({ expiresAt: new Date(1) });
    await jobs.ackBatch(await jobs.dequeueBatch({ max: 1 }));
    await jobs.expire();
    await ended(expired.task);
    await check();
    const dropped = await flow();
    await jobs.purge();
    await ended(dropped.task);
    await check();
    const buried = await flow();
    await jobs.nack((await jobs.dequeue())!);
    await jobs.dead.purge({ ids: [buried.children[0]!.task.id] });
    await ended(buried.task);
    await check();
    const other = await flow();
    await roots.cancel(other.task.id);
    await check();
    await mq.close();
  }));
