import assert from "node:assert/strict";
import { test } from "node:test";
import { INDEX_INTERVAL_BYTES, SparseIndex } from "./segment.js";

test("an index finds the batch at or below an offset, also where an offset equals another batch's position", () => {
  const index = new SparseIndex();
  const first = { offset: 5 * INDEX_INTERVAL_BYTES, position: 64 };
  const second = { offset: first.offset + 100, position: 2 * INDEX_INTERVAL_BYTES };
  const third = { offset: second.offset + 100, position: second.offset };
  for (const { offset, position } of [first, second, third]) index.note(offset, position, 1_000_000_000_000 + offset);
  assert.equal(index.batchBefore(first.offset - 1), undefined);
  const found = (offset: number) => index.batchBefore(offset);
  assert.deepEqual(found(first.offset), { ...first, nextPosition: second.position });
  assert.deepEqual(found(second.offset - 1), { ...first, nextPosition: second.position });
  assert.deepEqual(found(second.offset), { ...second, nextPosition: third.position });
  assert.deepEqual(found(third.offset + 1000), { ...third, nextPosition: undefined });
  assert.equal(index.offsetBefore(1_000_000_000_000 + second.offset), first.offset);
});
