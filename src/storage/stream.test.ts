import assert from "node:assert/strict";
import { test } from "node:test";
import type { Run } from "./segment.js";
import { Stream } from "./stream.js";

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
