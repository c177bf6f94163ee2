/** What the simulated disk does not do by itself: files and batches that are taken away or exchanged, rot in use. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { isVarveError } from "../../src/index.js";
import { BATCH_HEADER_BYTES, putRecord, sealBatch } from "../../src/storage/batch.js";
import { align8 } from "../../src/storage/bytes.js";
import { crc32 } from "../../src/storage/crc32.js";
import { SEGMENT_HEADER_BYTES } from "../../src/storage/segment.js";
import { ENTRY_HEADER_BYTES, encodeFileHeader, FILE_HEADER_BYTES, sealEntry } from "../../src/storage/wal-format.js";
import { WalReader } from "../../src/storage/wal-reader.js";
import { Simulated } from "../support/simulated.js";
import type { SimDisk } from "./sim-disk.js";

void test("a log file that is taken away is missed", async () => {
  const machine = Simulated.boot(7);
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("events"));
  await machine.settle(log.append("acknowledged"));
  const next = machine.kill();
  const logs = next.disk.files().filter((path) => path.endsWith(".wal") && !path.includes("spare"));
  const last = logs[logs.length - 1]!;
  next.disk.unlink(last);
  await assert.rejects(next.open(), (error) => isVarveError(error, "ERR_CORRUPT") && error.message.includes(last));
});

void test("an entry whose batch is another's, whole as that is, is not read", async () => {
  const directoryId = "0123456789abcdef0123456789abcdef";
  const file = Buffer.alloc(64 * 1024);
  const header = { seq: 1, firstLsn: 1, generation: 1, prevCrc: 0, directoryId, bootId: "", async: false };
  encodeFileHeader({ ...header, fileBytes: file.length }).copy(file);
  const start = FILE_HEADER_BYTES;
  const batchAt = start + ENTRY_HEADER_BYTES;
  const batchEnd = putBatch(file, batchAt, "sent");
  const bulkBytes = align8(batchEnd - batchAt);
  const bulkCrc = crc32(file, batchAt, batchAt + 4);
  const times = { elapsedMs: 0, wallMs: 0 };
  const end = batchAt + bulkBytes;
  sealEntry(file, start, end, { ...header, bulkBytes, metaBytes: 0, lsn: 1, watermark: 0, ...times, bulkCrc });
  assert.equal(await entriesIn(file, directoryId), 1);
  assert.equal(putBatch(file, batchAt, "kept"), batchEnd, "of the same size");
  assert.equal(await entriesIn(file, directoryId), 0);
});

void test("a change that is not what was written is damage, and not read", async () => {
  const machine = Simulated.boot(11);
  const mq = await machine.open();
  const jobs = await machine.settle(mq.openTask("jobs"));
  await machine.settle(jobs.enqueue("task"));
  const task = await machine.settle(jobs.dequeue());
  await machine.settle(jobs.nack(task!, { error: "the reason" }));
  // Says that the change before it was durable.
  await machine.settle(jobs.enqueue("another"));
  const next = machine.kill();
  const path = next.disk.files().find((file) => file.endsWith(".wal") && next.disk.peek(file).includes("the reason"))!;
  next.disk.flipBit(path, next.disk.peek(path).indexOf("the reason"), 3);
  await assert.rejects(next.open(), (error) => isVarveError(error, "ERR_CORRUPT"));
});

void test("the batch of another stream, whole as it is, is not taken for one's own", async () => {
  const machine = Simulated.boot(8);
  const mq = await machine.open();
  for (const name of ["mine", "other"]) {
    const log = await machine.settle(mq.openLog(name));
    await machine.settle(log.append(`in ${name.slice(0, 4)}`));
  }
  await machine.settle(mq.close());
  const next = machine.kill();
  const [mine, other] = ["mine", "othe"].map((text) => segmentWith(next.disk, `in ${text}`));
  const bytes = next.disk.peek(other!).subarray(SEGMENT_HEADER_BYTES);
  next.disk.openFile(mine!, "write").writeSync(bytes, 0, bytes.length, SEGMENT_HEADER_BYTES);
  const again = await next.open();
  const log = await next.settle(again.openLog("mine"));
  await assert.rejects(next.settle(log.read(0)), (error) => isVarveError(error, "ERR_CORRUPT"));
});

void test("a damaged batch costs its own records, and says so", async () => {
  const machine = Simulated.boot(10);
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("events"));
  for (const text of ["first", "second", "third", "fourth"]) await machine.settle(log.append(`the ${text}`));
  await machine.settle(mq.close());
  const next = machine.kill();
  const path = segmentWith(next.disk, "the second");
  next.disk.flipBit(path, next.disk.peek(path).indexOf("the second"), 3);
  const again = await next.open();
  const queue = await next.settle(again.openLog("events"));
  const isDamage = (error: unknown) => isVarveError(error, "ERR_CORRUPT");
  await assert.rejects(next.settle(queue.read(1)), isDamage);
  assert.equal((await next.settle(queue.read(2)))?.payload.toString(), "the third");
  const met: number[] = [];
  const scan = async () => {
    for await (const batch of queue.batches()) for (const { offset } of batch) met.push(offset);
  };
  await assert.rejects(next.settle(scan()), isDamage);
  assert.deepEqual(met, [0]);
});

void test("intact batches that were written over others are not taken for all that there is", async () => {
  const machine = Simulated.boot(12);
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("events"));
  for (let number = 0; number < 4; number++) await machine.settle(log.append(`number ${number}`));
  await machine.settle(mq.close());
  const next = machine.kill();
  const path = segmentWith(next.disk, "number 1");
  const bytes = next.disk.peek(path);
  const batchBytes = bytes.indexOf("number 1") - bytes.indexOf("number 0");
  const rest = bytes.subarray(SEGMENT_HEADER_BYTES + batchBytes);
  next.disk.openFile(path, "write").writeSync(rest, 0, rest.length, SEGMENT_HEADER_BYTES);
  const again = await next.open();
  const queue = await next.settle(again.openLog("events"));
  const isDamage = (error: unknown) => isVarveError(error, "ERR_CORRUPT") && error.details.from === 0;
  await assert.rejects(next.settle(queue.read(0)), isDamage);
  const scan = async () => {
    for await (const batch of queue.batches())
      assert.fail(`nothing stands before the damage, and ${batch.length} came`);
  };
  await assert.rejects(next.settle(scan()), isDamage);
  for (const number of [1, 2, 3]) {
    assert.equal((await next.settle(queue.read(number)))?.payload.toString(), `number ${number}`);
  }
});

void test("rot in a log file is noticed when it is read while the directory is open", async () => {
  const machine = Simulated.boot(9);
  const mq = await machine.open({ walFileBytes: "8MiB", cacheBytes: "4MiB" });
  const log = await machine.settle(mq.openLog("events"));
  await machine.settle(log.append("the first of many"));
  for (let count = 0; count < 80; count++) await machine.settle(log.append(Buffer.alloc(32 * 1024)));
  const path = machine.disk.files().find((each) => each.endsWith("1.wal"))!;
  assert.equal((await machine.settle(log.read(0)))?.payload.toString(), "the first of many");
  machine.disk.flipBit(path, machine.disk.peek(path).indexOf("the first of many"), 3);
  await assert.rejects(machine.settle(log.read(0)), (error) => isVarveError(error, "ERR_CORRUPT"));
});

function segmentWith(disk: SimDisk, text: string): string {
  const found = disk.files().find((path) => path.endsWith(".seg") && disk.peek(path).includes(text));
  assert.ok(found !== undefined, `${text} stands in a segment`);
  return found;
}

function putBatch(file: Buffer, at: number, payload: string): number {
  const record = { payload, key: undefined, headers: undefined, attributes: undefined };
  const end = putRecord(file, at + BATCH_HEADER_BYTES, record, 0);
  sealBatch(file, at, end, 1, 1, 0, 0, 1);
  return end;
}

async function entriesIn(bytes: Buffer, directoryId: string): Promise<number> {
  const { disk } = Simulated.boot(1);
  disk.openFile("/log", "create").writeSync(bytes, 0, bytes.length, 0);
  const reader = new WalReader(disk, directoryId);
  const { clock } = disk;
  const from = { lsn: 0, crc: 0, generation: 1 };
  const end = await clock.settle(reader.replay([{ path: "/log", seq: 1 }], from, () => {}));
  return end.entries;
}
