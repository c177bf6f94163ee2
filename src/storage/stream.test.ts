import assert from "node:assert/strict";
import { test } from "node:test";
import type { Run } from "./segment.js";
import { rowFor, Stream } from "./stream.js";
import { newWalFile, type WalFile } from "./wal.js";

/** A run that holds so many records between two offsets. */
function run(first: number, next: number, count: number): Run {
  const segment = {
    path: "/log/segment",
    directory: "/log",
    sharedId: 0,
    edition: 1,
    bytes: 1,
    dirty: false,
    unnamed: false,
    runs: 1,
  };
  return { segment, position: 0, bytes: 1, first, next, count, firstTimestamp: 0, lastTimestamp: 0, index: undefined };
}

void test("a gap in a run counts for as long as the run does, also when the head has passed it", () => {
  const stream = new Stream(1, "/log", "", 0, 1020, 0, [{ from: 10, to: 1000 }]);
  stream.runs.push(run(0, 1020, 15));
  stream.hasHoles = true;
  assert.equal(stream.recordsLeft(1000, 1010), 5);
  stream.trimTo(1000);
  assert.equal(stream.recordsLeft(1000, 1010), 5);
  stream.dropRunsBelow(1020);
  stream.trimTo(1020);
  assert.deepEqual(stream.gaps, []);
});

void test("where no records have been removed, every offset outside gaps has one", () => {
  const stream = new Stream(1, "/log", "", 0, 40, 0, [{ from: 10, to: 30 }]);
  stream.runs.push(run(0, 40, 20));
  assert.equal(stream.recordsLeft(5, 35), 10);
});

/** A log file with a batch of 100 bytes for each of these stretches of a stream, among batches of others. */
function logged(stream: Stream, seq: number, stretches: readonly (readonly [base: number, next: number])[]): WalFile {
  const wal = newWalFile({} as WalFile["file"], seq, undefined, 0, 0);
  const other = new Stream(2, "/other", "");
  for (const [base, next] of stretches) {
    for (const each of [other, stream]) {
      const batch = { stream: each, base, next, count: next - base, bytes: 100, timestamp: 1000 + base };
      each.add(wal, wal.batches.add(batch, base));
    }
  }
  return wal;
}

void test("batches in the log are found by offset and by time, in whichever of its files they stand", () => {
  const stream = new Stream(1, "/log", "", 0);
  const [first, second] = [
    logged(stream, 1, [
      [0, 10],
      [10, 20],
      [30, 40],
    ]),
    logged(stream, 2, [
      [40, 41],
      [41, 60],
    ]),
  ];
  const found = (offset: number): unknown => {
    const recent = stream.recentFor(offset);
    return recent && [recent.wal.seq, recent.wal.batches.baseOf(rowFor(recent, offset))];
  };
  assert.deepEqual([0, 9, 10, 19, 20, 39].map(found), [
    [1, 0],
    [1, 0],
    [1, 10],
    [1, 10],
    [1, 30],
    [1, 30],
  ]);
  assert.deepEqual([40, 41, 59, 60].map(found), [[2, 40], [2, 41], [2, 41], undefined]);
  assert.deepEqual(
    [0, 25, 41, 60].map((offset) => stream.timestampAt(offset)),
    [1000, 1030, 1041, 0],
  );
  assert.deepEqual(
    [1000, 1001, 1030, 1040, 1041, 9999].map((time) => stream.offsetBefore(time)),
    [0, 0, 10, 30, 40, 41],
  );
  assert.deepEqual(
    [0, 10, 11, 41, 42].map((offset) => stream.recentBytesFrom(offset)),
    [500, 400, 300, 100, 0],
  );
  assert.deepEqual([stream.recentEnd, stream.next, stream.bytes], [60, 60, 500]);

  stream.forgetRecent(20);
  assert.deepEqual([0, 20, 40].map(found), [
    [1, 30],
    [1, 30],
    [2, 40],
  ]);
  stream.forgetRecent(40);
  assert.deepEqual([[2, 40], 1], [found(0), stream.recent.length]);
  stream.dropRecent(new Set([first]));
  assert.equal(stream.bytes, 500);
  stream.dropRecent(new Set([first, second]));
  assert.deepEqual([found(0), stream.recentEnd, stream.recent, stream.bytes], [undefined, undefined, [], 300]);
});

void test("what is left in log files that are reused goes, and what stands behind them stays", () => {
  const stream = new Stream(1, "/log", "", 0);
  const files = [1, 2, 3].map((seq) =>
    logged(stream, seq, [
      [seq * 10, seq * 10 + 5],
      [seq * 10 + 5, seq * 10 + 10],
    ]),
  );
  stream.dropRecent(new Set(files.slice(0, 2)));
  assert.deepEqual(
    stream.recent.map(({ wal }) => wal.seq),
    [3],
  );
  assert.equal(stream.bytes, 200);
});
