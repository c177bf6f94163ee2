import assert from "node:assert/strict";
import { cpSync, readdirSync, readFileSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { dumpFile, open, repairDirectory, type Task, type TaskCursor, verifyDirectory } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";

const OPTIONS = { walFileBytes: "1MiB", maxMessageBytes: "64KiB", segmentBytes: "256KiB" } as const;
const PAYLOAD_BYTES = 10_000;

/** A cursor that holds on to what its queue has given away long since, of which nothing else is left. */
async function prepared(directory: string, beforeWork = () => {}): Promise<void> {
  const mq = await open(directory, OPTIONS);
  const jobs = await mq.openTask("jobs");
  const enqueue = (from: number, to: number) => {
    return jobs.enqueueBatch(Array.from({ length: to - from }, (_, index) => `${from + index}`.padEnd(PAYLOAD_BYTES)));
  };
  await enqueue(0, 40);
  const cursor = await jobs.cursor("audit");
  const [first, second] = (await cursor.dequeueBatch({ max: 2, lease: "session" })) as [Task, Task];
  await cursor.release(second);
  await cursor.release(first);
  await jobs.cursor("gone");
  await jobs.deleteCursor("gone");
  const reset = await jobs.cursor("reset");
  await reset.dequeue({ autoAck: true });
  await reset.reset();
  beforeWork();
  for (let done = 0; done < 40; done++) await jobs.dequeue({ autoAck: true });
  await enqueue(40, 45);
  await mq.close();
}

async function drained(directory: string): Promise<string[]> {
  const mq = await open(directory, OPTIONS);
  const cursor: TaskCursor = await (await mq.openTask("jobs")).cursor("audit", { create: false });
  const read: string[] = [];
  for (;;) {
    const task = await cursor.dequeue({ autoAck: true });
    if (task === undefined) break;
    read.push(task.payload.toString().trimEnd());
  }
  await mq.close();
  return read;
}

test("verify finds a queue with cursors sound, and they read what they hold", () =>
  withDirectory(async (parent) => {
    const directory = join(parent, "data");
    await prepared(directory);
    assert.deepEqual((await verifyDirectory(directory)).problems, []);
    assert.deepEqual(await drained(directory), ["1", "0", "40", "41", "42", "43", "44"]);
  }));

test("verify reports damage to a record that only a cursor needs, and a repair lets the cursor go on without it", () =>
  withDirectory(async (parent) => {
    const directory = join(parent, "data");
    await prepared(directory);
    const folder = join(directory, "task", "jobs", "p0");
    const name = readdirSync(folder)
      .filter((each) => each.endsWith(".seg"))
      .sort()[0]!;
    const bytes = readFileSync(join(folder, name));
    bytes.fill(0xee, 1000, 2000); // in the payload of task 0
    writeFileSync(join(folder, name), bytes);
    assert.equal((await verifyDirectory(directory)).ok, false);
    await repairDirectory(directory);
    assert.deepEqual((await verifyDirectory(directory)).problems, []);
    const read = await drained(directory);
    assert.ok(!read.includes("0"), `${read}`);
    assert.deepEqual(read.slice(-5), ["40", "41", "42", "43", "44"]);
  }));

test("a lost snapshot: cursors are made again as far as the log and the snapshot before tell", () =>
  withDirectory(async (parent) => {
    const directory = join(parent, "data");
    const mq = await open(directory, OPTIONS);
    const jobs = await mq.openTask("jobs");
    await jobs.enqueueBatch(["0", "1", "2"]);
    const cursor = await jobs.cursor("audit");
    await cursor.dequeue({ autoAck: true });
    await cursor.ack((await cursor.dequeue())!);
    await mq.sync();
    // As a kill leaves it: the log has it all.
    const copy = join(parent, "copy");
    cpSync(directory, copy, { recursive: true });
    await mq.close();
    for (const name of readdirSync(join(copy, "snap"))) {
      if (name.endsWith(".snap")) unlinkSync(join(copy, "snap", name));
    }
    await repairDirectory(copy);
    assert.deepEqual((await verifyDirectory(copy)).problems, []);
    assert.deepEqual((await drained(copy)).at(-1), "2");
  }));

test("dump shows cursors and their operations in words", () =>
  withDirectory(async (parent) => {
    const directory = join(parent, "data");
    const asKilled = join(parent, "killed");
    await prepared(directory, () => cpSync(directory, asKilled, { recursive: true }));
    assert.match(
      await dumped(join(directory, "snap")),
      /"lastCursor":3,"cursors":\[\{"cursor":1,"name":"audit","lanes":\[\{"lane":0,"cursor":2,/,
    );
    const log = await dumped(join(asKilled, "wal"));
    assert.match(
      log,
      /"name":"CreateCursor","cursor":1,"cursorName":"audit","positions":\[\{"lane":0,"position":0\}\]/,
    );
    assert.match(log, /"name":"DeleteCursor","cursor":2/);
    assert.match(log, /"name":"ResetCursor","cursor":3,"positions":\[\{"lane":0,"position":0\}\]/);
  }));

async function dumped(folder: string): Promise<string> {
  const parts: string[] = [];
  for (const name of readdirSync(folder).sort()) {
    if (!/\.(?:wal|snap)$/.test(name)) continue;
    for await (const part of dumpFile(join(folder, name))) parts.push(JSON.stringify(part));
  }
  return parts.join("\n");
}
