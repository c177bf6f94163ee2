import assert from "node:assert/strict";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { isVarveError, type LogQueue, message, open, repairDirectory, verifyDirectory } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";
import { rejectsWith } from "../support/expect.js";
import { recordsOf } from "../support/state.js";

const OPTIONS = { walFileBytes: "1MiB", segmentBytes: "256KiB", maxMessageBytes: "64KiB" } as const;
const COUNT = 3000;

/** What a compaction leaves: nine records out of ten are gone, and the tail was appended behind it. */
function left(): number[] {
  return Array.from({ length: COUNT }, (_, offset) => offset).filter((offset) => offset % 10 === 0 || offset >= 2900);
}

async function write(directory: string): Promise<void> {
  const mq = await open(directory, { ...OPTIONS, durability: "async" });
  const log = await mq.openLog("prices");
  const put = (offset: number) => {
    const key = offset % 10 === 0 ? `once ${offset}` : "again";
    return log.append(message(`${offset} ${"x".repeat(500)}`, { key }));
  };
  for (let offset = 0; offset < 2900; offset++) await put(offset);
  await log.append(message("last", { key: "again" }));
  await log.compact();
  for (let offset = 2901; offset < COUNT; offset++) await put(offset);
  await mq.close();
}

async function offsetsOf(log: LogQueue): Promise<number[]> {
  return (await recordsOf(log)).map(({ offset }) => offset);
}

async function check(directory: string, expected: readonly number[]): Promise<void> {
  const report = await verifyDirectory(directory);
  assert.deepEqual(report.problems, []);
  const mq = await open(directory, OPTIONS);
  const log = await mq.openLog("prices");
  assert.deepEqual(await offsetsOf(log), expected);
  assert.equal((await log.stats()).count, expected.length);
  await mq.close();
}

/** The largest rewritten segment. */
function rewritten(directory: string): string {
  const folder = join(directory, "log", "prices");
  const name = readdirSync(folder).find((each) => /-1\.seg$/.test(each));
  assert.ok(name !== undefined, "something was rewritten");
  return join(folder, name);
}

void test("holes are no damage: not for verify, not for counts, not for readers that begin in one", async () => {
  await withDirectory(async (parent) => {
    const directory = join(parent, "data");
    await write(directory);
    await check(directory, left());
    const mq = await open(directory, OPTIONS);
    const log = await mq.openLog("prices");
    assert.equal(await log.read(5), undefined);
    assert.equal((await log.read(1230))?.offset, 1230);
    for await (const [record] of log.batches({ from: 1231 })) {
      assert.equal(record?.offset, 1240);
      break;
    }
    await mq.close();
  });
});

void test("damage in a rewritten segment costs its batch, says which offsets, and can be repaired", async () => {
  await withDirectory(async (parent) => {
    const directory = join(parent, "data");
    await write(directory);
    const path = rewritten(directory);
    const bytes = readFileSync(path);
    const at = Math.floor(bytes.length / 2);
    bytes[at] = bytes[at]! ^ 4;
    writeFileSync(path, bytes);
    const { problems } = await verifyDirectory(directory);
    assert.equal(problems.length, 1);
    const [first, last] = problems[0]!.offsets!;
    const mq = await open(directory, OPTIONS);
    const log = await mq.openLog("prices");
    const outside = left().filter((offset) => offset < first || offset > last);
    assert.ok(outside.length > 200 && outside.length < left().length);
    for (const offset of outside.filter((_, index) => index % 7 === 0))
      assert.equal((await log.read(offset))?.offset, offset);
    const lost = left().find((offset) => offset >= first && offset <= last)!;
    await assert.rejects(log.read(lost), (error) => isVarveError(error, "ERR_CORRUPT"));
    await log.append(message("newer", { key: "again" }));
    await rejectsWith("ERR_CORRUPT", log.compact());
    await mq.close();
    await repairDirectory(directory);
    await check(directory, [...outside, COUNT]);
  });
});

void test("a lost snapshot: the rewritten segments are found", async () => {
  await withDirectory(async (parent) => {
    const directory = join(parent, "data");
    await write(directory);
    for (const name of readdirSync(join(directory, "snap"))) rmSync(join(directory, "snap", name));
    await repairDirectory(directory);
    const mq = await open(directory, OPTIONS);
    assert.deepEqual(await offsetsOf(await mq.openLog("prices")), left());
    await mq.close();
    assert.deepEqual((await verifyDirectory(directory)).problems, []);
  });
});
