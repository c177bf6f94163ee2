import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { dumpFile, open, type Task, verifyDirectory } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";

const OPTIONS = { walFileBytes: "1MiB", maxMessageBytes: "64KiB" } as const;

/** Groups of both types, with lost records, dead letters and redriven ones. Left open, as after a kill, or closed. */
async function prepared(directory: string): Promise<void> {
  const mq = await open(directory, OPTIONS);
  const log = await mq.openLog("events", { retention: { maxCount: 1000 } });
  await log.appendBatch(Array.from({ length: 20 }, (_, index) => `${index}`));
  const group = await log.group("exclusive");
  await group.read({ max: 5 });
  await group.commit(4);
  const shared = await log.sharedGroup("shared", { maxAttempts: 1, lease: "1h" });
  const tasks: Task[] = [];
  while (tasks.length < 6) tasks.push(...(await shared.dequeueBatch({ max: 6 - tasks.length })));
  for (const task of tasks.slice(0, 4)) await shared.nack(task, { error: "no" });
  await shared.dead.redrive({ limit: 2 });
  await shared.dequeue();
  await log.sharedGroup("gone", { maxAttempts: 1 });
  const gone = await log.sharedGroup("gone");
  await gone.nack((await gone.dequeue()) as Task);
  await log.deleteGroup("gone");
  await log.trim(8);
  await mq.close();
}

test("verify finds a log with groups sound, and so does the next open", () =>
  withDirectory(async (parent) => {
    const directory = join(parent, "data");
    await prepared(directory);
    const { ok, problems } = await verifyDirectory(directory);
    assert.deepEqual(problems, []);
    assert.ok(ok);
    const mq = await open(directory, OPTIONS);
    const groups = await (await mq.openLog("events")).groups();
    assert.deepEqual(
      groups.map(({ name, committed, lost, dead }) => [name, committed, lost, dead]),
      [
        ["exclusive", 8, 3, 0],
        ["shared", 4, 2, 2],
      ],
    );
    await mq.close();
  }));

test("dump shows the groups of a log and their operations in words", () =>
  withDirectory(async (parent) => {
    const directory = join(parent, "data");
    await prepared(directory);
    const parts: string[] = [];
    for (const folder of ["wal", "snap"]) {
      for (const name of readdirSync(join(directory, folder)).sort()) {
        if (!/\.(?:wal|snap)$/.test(name)) continue;
        for await (const part of dumpFile(join(directory, folder, name))) parts.push(JSON.stringify(part));
      }
    }
    const text = parts.join("\n");
    for (const name of ["CreateGroup", "DeleteGroup", "Commit", "Deliver", "Bury", "Exhume", "Trim"]) {
      assert.ok(text.includes(`"name":"${name}"`), `an operation ${name}`);
    }
    assert.match(text, /"type":"exclusive","name":"exclusive","committed":8/);
    assert.match(text, /"type":"shared","name":"shared","rules":\{"leaseMs":3600000,"maxAttempts":1/);
  }));
