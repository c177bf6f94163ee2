import assert from "node:assert/strict";
import { test } from "node:test";
import { type BatchExtent, BatchTable } from "./batch-table.js";
import { BlockRing } from "./memory.js";
import { Stream } from "./stream.js";
import { newWalFile, type WalFile } from "./wal.js";

const words = new Stream(1, "/words", "");
const tasks = new Stream(2, "/tasks", "");

/** A batch in which everything is another number. */
function extent(stream: Stream, index: number): BatchExtent {
  const base = 2 ** 40 + index * 10;
  return { stream, base, next: base + 7, count: 3, bytes: 100 + index, timestamp: 2 ** 41 + index };
}

function rowOf(table: BatchTable, row: number): BatchExtent & { readonly position: number } {
  return {
    stream: table.streamOf(row),
    base: table.baseOf(row),
    next: table.nextOf(row),
    count: table.countOf(row),
    bytes: table.bytesOf(row),
    timestamp: table.timestampOf(row),
    position: table.positionOf(row),
  };
}

void test("rows that are staged are in the log when they are committed, and not when they are discarded", () => {
  const table = new BatchTable();
  table.stage(extent(words, 0), undefined, 128);
  table.stage(extent(tasks, 1), undefined, 256);
  assert.deepEqual([table.length, table.staged], [0, 2]);
  table.commit(2 ** 33);
  assert.deepEqual([table.length, table.staged], [2, 0]);
  table.stage(extent(words, 2), undefined, 64);
  table.discard();
  assert.deepEqual([table.length, table.staged], [2, 0]);
  assert.equal(table.add(extent(tasks, 3), 2 ** 34), 2);
  assert.deepEqual(rowOf(table, 0), { ...extent(words, 0), position: 2 ** 33 + 128 });
  assert.deepEqual(rowOf(table, 1), { ...extent(tasks, 1), position: 2 ** 33 + 256 });
  assert.deepEqual(rowOf(table, 2), { ...extent(tasks, 3), position: 2 ** 34 });
});

void test("a table grows, and is filled again when it has been cleared", () => {
  const wal: WalFile = newWalFile({} as WalFile["file"], 1, undefined, 0, 0);
  const table = wal.batches;
  for (const round of [1, 2]) {
    const streams = Array.from({ length: 3 }, (_, index) => new Stream(index, `/${round}`, ""));
    const streamAt = (index: number): Stream => streams[(index * index) % 3]!;
    for (let index = 0; index < 3000; index++) {
      const row = table.add(extent(streamAt(index), round + index), index * 8);
      assert.equal(row, index);
      streamAt(index).add(wal, row);
    }
    for (let row = 0; row < 3000; row++) {
      assert.deepEqual(rowOf(table, row), { ...extent(streamAt(row), round + row), position: row * 8 });
    }
    table.clear();
    assert.equal(table.length, 0);
  }
});

void test("a batch is in memory for as long as its block holds it", () => {
  const blocks = new BlockRing(0);
  const table = new BatchTable();
  const [first, second] = [blocks.take(0), blocks.take(0)];
  for (const [block, start] of [
    [first, 16],
    [first, 32],
    [undefined, 48],
    [second, 64],
    [first, 80],
  ] as const) {
    table.stage(extent(words, start), block, start);
  }
  table.commit(0);
  const held = (): unknown[] => [0, 1, 2, 3, 4].map((row) => table.blockOf(row));
  assert.deepEqual(held(), [first, first, undefined, second, first]);
  assert.deepEqual(
    [0, 1, 2, 3, 4].map((row) => table.startOf(row)),
    [16, 32, 48, 64, 80],
  );
  assert.equal(blocks.take(0), first);
  assert.deepEqual(held(), [undefined, undefined, undefined, second, undefined]);
  table.stage(extent(words, 96), first, 0);
  table.commit(0);
  assert.deepEqual(held(), [undefined, undefined, undefined, second, undefined]);
  assert.equal(table.blockOf(5), first);
});

void test("a batch is found by its offset whatever was guessed", () => {
  const table = new BatchTable();
  const rows = [1, 2, 4].map((index) => table.add(extent(words, index), index));
  const ends = rows.map((row) => table.nextOf(row));
  for (const [offset, index] of [
    [0, 0],
    [ends[0]! - 1, 0],
    [ends[0]!, 1],
    [ends[1]! - 1, 1],
    [ends[1]!, 2],
    [ends[2]!, 3],
  ] as const)
    for (const guess of [0, 1, 2, 3, 99]) assert.equal(table.indexBehind(rows, offset, guess), index);
});
