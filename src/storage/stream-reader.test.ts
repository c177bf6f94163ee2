import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { BATCH_HEADER_BYTES, batchFileBytes, putRecord, sealBatch } from "./batch.js";
import type { Disk, DiskFile } from "./disk.js";
import { FileCache } from "./file-cache.js";
import { CHUNK_BYTES, ChunkPool } from "./memory.js";
import { Reads } from "./reads.js";
import { encodeSegmentHeader, INDEX_INTERVAL_BYTES, type Run, type Segment } from "./segment.js";
import { Stream } from "./stream.js";
import { StreamReader } from "./stream-reader.js";

const PATH = "/d/log/events/00000000000000000000.seg";

function scene(whileRead: (stream: Stream, files: FileCache) => void) {
  const stream = new Stream(1, "/d/log/events", "", 0, 10);
  const segment: Segment = {
    path: PATH,
    directory: stream.directory,
    sharedId: 0,
    edition: 0,
    bytes: 1064,
    dirty: false,
    unnamed: false,
    runs: 1,
  };
  const run: Run = {
    segment,
    position: 64,
    bytes: 1000,
    first: 0,
    next: 10,
    count: 10,
    firstTimestamp: 1,
    lastTimestamp: 1,
    index: undefined,
  };
  stream.runs.push(run);
  let opened = 0;
  const read = async () => {
    whileRead(stream, files);
    return 0;
  };
  const openFile = (path: string) => {
    if (opened++ > 0) throw Object.assign(new Error(`ENOENT: ${path}`), { code: "ENOENT" });
    return { path, read, close() {} } as unknown as DiskFile;
  };
  const files = new FileCache({ openFile } as unknown as Disk, 8);
  const context = {
    files,
    chunks: new ChunkPool(0),
    reads: new Reads("/d"),
    directoryId: "",
    readFile: () => undefined,
  };
  return { reader: new StreamReader(stream, context, 5), opened: () => opened };
}

test("a segment that is given up while it is being read is no error: what is behind it is next", async () => {
  const { reader, opened } = scene((stream, files) => {
    stream.trimTo(10);
    stream.dropRunsBelow(10);
    files.drop(PATH);
  });
  assert.equal(reader.next(10), "load");
  await reader.load();
  assert.equal(opened(), 2, "it was opened again, in vain");
  assert.equal(reader.next(10), "end");
});

test("a segment that is missing although it is needed is an error", async () => {
  const { reader } = scene((_stream, files) => files.drop(PATH));
  assert.equal(reader.next(10), "load");
  await assert.rejects(reader.load(), { code: "ERR_IO" });
});

/** A segment of many batches with so many records each, the memory that it was read into, and how many bytes were read. */
function segmentScene(records: number, payloadBytes: number, perBatch = 1) {
  const stream = new Stream(1, "/d/log/events", "", 0, records);
  const directoryId = "00112233445566778899aabbccddeeff";
  const batches = Buffer.alloc(records * (payloadBytes + 128));
  let end = 0;
  for (let offset = 0; offset < records; offset += perBatch) {
    let recordEnd = end + BATCH_HEADER_BYTES;
    for (let each = offset; each < offset + perBatch; each++) {
      const payload = Buffer.alloc(payloadBytes, `${each} `);
      recordEnd = putRecord(
        batches,
        recordEnd,
        { payload, key: undefined, headers: undefined, attributes: undefined },
        0,
      );
    }
    sealBatch(batches, end, recordEnd, 1, perBatch, offset, 1, perBatch);
    end += batchFileBytes(recordEnd - end);
  }
  const header = encodeSegmentHeader(1, 0, directoryId);
  const bytes = Buffer.concat([header, batches.subarray(0, end)]);
  const segment: Segment = {
    path: PATH,
    directory: stream.directory,
    sharedId: 0,
    edition: 0,
    bytes: bytes.length,
    dirty: false,
    unnamed: false,
    runs: 1,
  };
  const run: Run = {
    segment,
    position: header.length,
    bytes: end,
    first: 0,
    next: records,
    count: records,
    firstTimestamp: 1,
    lastTimestamp: 1,
    index: undefined,
  };
  stream.runs.push(run);
  const memories = new Set<ArrayBufferLike>();
  const done = { bytes: 0 };
  const read = async (buffer: Buffer, start: number, length: number, position: number) => {
    await turn();
    if (length > header.length) memories.add(buffer.buffer);
    done.bytes += length;
    return bytes.copy(buffer, start, position, position + length);
  };
  const openFile = (path: string) => ({ path, read, close() {} }) as unknown as DiskFile;
  const context = {
    files: new FileCache({ openFile } as unknown as Disk, 8),
    chunks: new ChunkPool(0),
    reads: new Reads("/d"),
    directoryId,
    readFile: () => undefined,
  };
  return { stream, context, memories, done, bytes: bytes.length };
}

test("memory that is lent is used again, and not before what was given out of it is returned", async () => {
  const [records, payloadBytes] = [400, 10_000];
  const { stream, context, memories } = segmentScene(records, payloadBytes);
  const reader = new StreamReader(stream, context, 0, { ownedChunkBytes: 64 * 1024, lendsChunks: true });
  let lent: [number, Buffer][] = [];
  const check = () => {
    for (const [offset, payload] of lent) assert.ok(payload.equals(Buffer.alloc(payloadBytes, `${offset} `)));
  };
  for (let offset = 0; offset < records; ) {
    const found = reader.next(records);
    if (found === "record") {
      lent.push([offset++, reader.record.payloadView()]);
    } else {
      assert.equal(found, "load");
      await reader.load();
    }
    // What is read ahead arrives meanwhile.
    for (let turns = 0; turns < 5; turns++) await turn();
    check();
    if (offset % 10 !== 0) continue;
    lent = [];
    reader.returned();
  }
  assert.ok(memories.size < 12, `${memories.size} buffers for ${records * payloadBytes} bytes`);
  reader.rest();
  assert.equal(reader.next(records), "end");
});

for (const perBatch of [1, 50]) {
  test(`readers that are more than there is memory for all read on, ${perBatch} records a batch`, async () => {
    const records = 1000;
    const { stream, context, done, bytes } = segmentScene(records, 64, perBatch);
    const readers = Array.from({ length: 40 }, () => new StreamReader(stream, context, 0));
    for (let offset = 0; offset < records; offset++) {
      const waiting: StreamReader[] = [];
      // One after another, so that each could take what the one before it has read.
      for (const reader of readers) {
        if (reader.next(records) === "record") continue;
        await reader.load();
        waiting.push(reader);
      }
      for (const reader of waiting) {
        // The batch was longer than what is read at once.
        if (reader.next(records) === "load") {
          await reader.load();
          assert.equal(reader.next(records), "record");
        }
      }
      for (const reader of readers) assert.equal(reader.record.offset, offset);
    }
    const readOver = done.bytes / readers.length / bytes;
    assert.ok(readOver < 20, `all was read ${readOver.toFixed(1)} times`);
  });
}

test("a single record costs a read of one stretch of the index, and its memory is there for the next", async () => {
  const { stream, context, done } = segmentScene(5000, 64);
  const read = async (offset: number) => {
    const before = done.bytes;
    const reader = new StreamReader(stream, context, offset, { single: true });
    let loads = 0;
    while (reader.next(offset + 1) === "load") {
      await reader.load();
      loads++;
    }
    assert.equal(reader.record.offset, offset);
    assert.equal(reader.record.payload().toString("latin1", 0, 5), `${offset} `.repeat(3).slice(0, 5));
    assert.ok(loads < 3);
    reader.close();
    return done.bytes - before;
  };
  await read(2500); // makes the index
  for (const offset of [4000, 17, 2500]) assert.ok((await read(offset)) < 2 * INDEX_INTERVAL_BYTES);
  assert.equal(context.chunks.bytes, CHUNK_BYTES);
});
