import assert from "node:assert/strict";
import { test } from "node:test";
import { type InList, LinkedList } from "./linked-list.js";

class Entry implements InList<Entry> {
  before: Entry | undefined;
  behind: Entry | undefined;
}

const four = () => Array.from({ length: 4 }, () => new Entry());

void test("entries stand in the order in which they were added, wherever others are taken out", () => {
  for (const out of [0, 1, 3]) {
    const list = new LinkedList<Entry>();
    const entries = four();
    for (const entry of entries) list.add(entry);
    assert.equal(list.delete(entries[out]!), true);
    const left = entries.filter((_, place) => place !== out);
    assert.deepEqual([...list], left);
    assert.deepEqual([list.size, list.oldest, list.newest], [3, left[0], left[2]]);
    list.add(entries[out]!);
    assert.deepEqual([...list], [...left, entries[out]]);
  }
});

void test("what has been taken out leads to nothing, and is not taken out again", () => {
  const list = new LinkedList<Entry>();
  const entries = four();
  for (const entry of entries) {
    assert.equal(list.has(entry), false);
    assert.equal(list.delete(entry), false);
    list.add(entry);
  }
  for (const entry of entries) assert.equal(list.has(entry), true);
  for (const entry of [1, 3, 0, 2].map((place) => entries[place]!)) {
    assert.equal(list.delete(entry), true);
    assert.deepEqual([entry.before, entry.behind], [undefined, undefined]);
    assert.equal(list.has(entry), false);
    assert.equal(list.delete(entry), false);
  }
  assert.deepEqual([list.size, list.oldest, list.newest], [0, undefined, undefined]);
});
