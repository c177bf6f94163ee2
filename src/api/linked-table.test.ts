import assert from "node:assert/strict";
import { test } from "node:test";
import { type Linked, LinkedTable } from "./linked-table.js";

class Entry implements Linked<Entry> {
  readonly key: number;
  before: Entry | undefined;
  behind: Entry | undefined;
  inSlot: Entry | undefined;

  constructor(key: number) {
    this.key = key;
  }
}

const links = ({ before, behind, inSlot }: Entry) => [before, behind, inSlot];
const NONE = [undefined, undefined, undefined];

void test("entries are found by their keys, and stand in the order in which they were added", () => {
  const table = new LinkedTable<Entry>();
  // Keys that meet in one slot, large ones, and those behind them.
  const keys = [7, 7 + 64, 7 + 128, 2 ** 32 - 1, 2 ** 31, 2 ** 53 - 1, 1, 2];
  const added = keys.map((key) => new Entry(key));
  for (const entry of added) table.add(entry);
  assert.deepEqual([...table.keys()], keys);
  for (const entry of added) assert.equal(table.get(entry.key), entry);
  assert.equal(table.has(7 + 192), false);
  for (const at of [1, 0, 7, 3, 5]) assert.equal(table.delete(added[at]!), true);
  assert.deepEqual([...table.keys()], [7 + 128, 2 ** 31, 1]);
  assert.equal(table.has(7), false);
  assert.equal(table.get(7 + 128), added[2]);
  assert.equal(table.oldest, added[2]);
  assert.equal(table.size, 3);
  table.add(new Entry(7));
  assert.deepEqual([...table.keys()], [7 + 128, 2 ** 31, 1, 7]);
});

void test("an entry that is not there is not taken out, whatever it shares its slot or key with", () => {
  const table = new LinkedTable<Entry>();
  const entry = new Entry(3);
  table.add(entry);
  table.add(new Entry(3 + 64));
  assert.equal(table.delete(new Entry(3)), false);
  assert.equal(table.delete(new Entry(4)), false);
  assert.equal(table.delete(entry), true);
  assert.equal(table.delete(entry), false);
  assert.deepEqual([...table.keys()], [3 + 64]);
  assert.equal(table.size, 1);
});

void test("many come and go, and nothing that is out leads on", () => {
  const table = new LinkedTable<Entry>();
  const stays = new Entry(1);
  table.add(stays);
  const others = Array.from({ length: 4999 }, (_, index) => new Entry(2 + index));
  for (const entry of others) table.add(entry);
  assert.equal(table.size, 5000);
  for (const entry of others) assert.equal(table.get(entry.key), entry);
  for (const entry of others) {
    assert.equal(table.delete(entry), true);
    assert.deepEqual(links(entry), NONE);
  }
  assert.deepEqual([...table], [stays]);
  assert.deepEqual(links(stays), NONE);
  for (let key = 5001; key < 5200; key++) table.add(new Entry(key));
  assert.equal(table.get(1), stays);
  assert.deepEqual([...table.keys()], [1, ...Array.from({ length: 199 }, (_, index) => 5001 + index)]);
});

void test("a walk goes on when what it has come to is taken out, and what came before", () => {
  const table = new LinkedTable<Entry>();
  const added = [1, 2, 3, 4].map((key) => new Entry(key));
  for (const entry of added) table.add(entry);
  const seen: number[] = [];
  for (const entry of table) {
    seen.push(entry.key);
    if (entry.key === 3) table.delete(added[0]!);
    if (entry.key >= 2) table.delete(entry);
  }
  assert.deepEqual(seen, [1, 2, 3, 4]);
  assert.equal(table.size, 0);
});
