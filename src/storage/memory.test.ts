import assert from "node:assert/strict";
import { test } from "node:test";
import { CHUNK_BYTES, ChunkPool } from "./memory.js";

const CHUNKS = 4;

/** A pool whose chunks have been read into, each for a reader of its own. */
function fullPool() {
  const pool = new ChunkPool(CHUNKS * CHUNK_BYTES);
  const chunks = Array.from({ length: CHUNKS }, () => pool.take({}, 1));
  return { pool, chunks };
}

test("a chunk is taken from the reader that used its own the longest time ago, and none for a read ahead", () => {
  const { pool, chunks } = fullPool();
  assert.equal(pool.spare({}), undefined);
  pool.touch(chunks[0]!);
  assert.equal(pool.take({}, 1), chunks[1]);
  assert.equal(pool.take({}, 1), chunks[2]);
});

test("a read ahead gets what has not been used for long", () => {
  const { pool, chunks } = fullPool();
  for (let uses = 0; uses < 100; uses++) pool.touch(chunks[uses % 3]!);
  const owner = {};
  assert.equal(pool.spare(owner), chunks[3]);
  assert.equal(chunks[3]!.owner, owner);
});

test("what nobody has looked at is not taken, unless nobody comes back for it", () => {
  const { pool, chunks } = fullPool();
  for (const chunk of chunks) chunk.isNew = true;
  assert.ok(!chunks.includes(pool.take({}, 1)), "one beside the pool");
  let takes = 1;
  while (!chunks.includes(pool.take({}, 1))) takes++;
  assert.ok(takes > 100 && takes < 1000, `after ${takes} others`);
});
