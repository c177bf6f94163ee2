import assert from "node:assert/strict";
import { test } from "node:test";
import type { Disk, DiskFile } from "./disk.js";
import { FileCache } from "./file-cache.js";
import { ChunkPool } from "./memory.js";
import { Reads } from "./reads.js";
import type { Run, Segment } from "./segment.js";
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
