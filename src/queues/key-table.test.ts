import assert from "node:assert/strict";
import { test } from "node:test";
import { KeyTable } from "./key-table.js";

function counting() {
  let next = 1;
  return { uint32: () => next++ };
}

test("the last offset of each key", () => {
  const table = new KeyTable(counting(), 12_345, 1024 * 1024);
  const expected = new Map<string, number>();
  for (let offset = 0; offset < 50_000; offset++) {
    const key = `key ${(offset * 7919) % 12_345}`;
    assert.ok(table.note(Buffer.from(key), offset));
    expected.set(key, offset);
  }
  assert.equal(table.size, expected.size);
  for (const [key, offset] of expected) assert.equal(table.lastOf(Buffer.from(key)), offset);
  assert.equal(table.lastOf(Buffer.from("another")), undefined);
});

test("a full table takes what it has, and nothing else", () => {
  const bytes = 64 * 1024;
  const table = new KeyTable(counting(), 1_000_000, bytes);
  let taken = 0;
  while (table.note(Buffer.from(`key ${taken}`), taken)) taken++;
  assert.ok(taken > bytes / 24 / 3 && taken < bytes / 24, `${taken} keys in ${bytes} bytes`);
  assert.equal(table.lastOf(Buffer.from(`key ${taken}`)), undefined);
  assert.ok(table.note(Buffer.from("key 0"), taken));
  assert.equal(table.lastOf(Buffer.from("key 0")), taken);
  assert.equal(table.lastOf(Buffer.from("key 1")), 1);
});
