import { deepStrictEqual, equal, ok } from "node:assert/strict";
import { test } from "node:test";
import { Decoder, Encoder } from "../storage/bytes.js";
import {
  BLOCK_ENTRIES_MAX,
  type Block,
  decodeEntries,
  ENTRIES_KEPT,
  ENTRIES_MAX,
  LEAD_MS,
  type TimetableEntry,
  Wheel,
} from "./timetable.js";

/** A wheel with a stream of blocks, as a queue drives it. */
class Driven {
  readonly wheel = new Wheel();
  readonly stored = new Map<number, Buffer>();
  #next = 0;
  loads = 0;
  peak = 0;

  add(due: number, offset: number, now: number): void {
    this.wheel.add(due, offset);
    this.#spill(now);
  }

  /** Everything that is due, in the order in which it comes. */
  take(now: number): TimetableEntry[] {
    const taken: TimetableEntry[] = [];
    for (;;) {
      for (let block = this.wheel.blockToLoad(now); block !== undefined; block = this.wheel.blockToLoad(now)) {
        this.loads++;
        this.wheel.unspill(block.offset, decodeEntries(this.stored.get(block.offset)!));
        this.stored.delete(block.offset);
        this.#spill(now);
      }
      const entry = this.wheel.popDue(now);
      if (entry === undefined) return taken;
      taken.push(entry);
    }
  }

  #spill(now: number): void {
    this.peak = Math.max(this.peak, this.wheel.inMemory);
    const groups = this.wheel.outgoing(now);
    if (groups.length === 0) return;
    const blocks = groups.map(({ count, bytes }) => {
      ok(count <= BLOCK_ENTRIES_MAX);
      this.stored.set(this.#next, Buffer.from(bytes));
      return { offset: this.#next++, count };
    });
    this.wheel.spill(blocks);
    equal(this.wheel.inMemory, ENTRIES_KEPT);
  }
}

/** A repeatable sequence of numbers in [0, 1). */
function sequence(): () => number {
  let state = 12345;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

function copyOf(wheel: Wheel): Wheel {
  const output = new Encoder(16);
  wheel.encode(output);
  return Wheel.decode(new Decoder(output.view()));
}

test("entries come out by due time, then offset, and never early", () => {
  const wheel = new Wheel();
  const random = sequence();
  const entries: TimetableEntry[] = [];
  for (let offset = 0; offset < 2000; offset++) {
    const due = Math.floor(random() * 500);
    entries.push({ due, offset });
    wheel.add(due, offset);
  }
  entries.sort((a, b) => a.due - b.due || a.offset - b.offset);
  equal(wheel.firstDue, entries[0]!.due);
  equal(wheel.popDue(entries[0]!.due - 1), undefined);
  const taken: TimetableEntry[] = [];
  for (let now = 0; now <= 500; now += 7) {
    for (let entry = wheel.popDue(now); entry !== undefined; entry = wheel.popDue(now)) {
      ok(entry.due <= now);
      taken.push(entry);
    }
  }
  for (let entry = wheel.popDue(500); entry !== undefined; entry = wheel.popDue(500)) taken.push(entry);
  deepStrictEqual(taken, entries);
});

test("an entry can be taken out of the middle", () => {
  const wheel = new Wheel();
  for (let offset = 0; offset < 100; offset++) wheel.add((offset * 37) % 100, offset);
  for (let offset = 0; offset < 100; offset += 3) ok(wheel.remove(offset));
  ok(!wheel.remove(0) && !wheel.has(0) && wheel.has(1));
  let last = -1;
  let count = 0;
  for (let entry = wheel.popDue(100); entry !== undefined; entry = wheel.popDue(100)) {
    ok(entry.due > last && entry.offset % 3 !== 0);
    last = entry.due;
    count++;
  }
  equal(count, 66);
});

test("far entries go out to blocks and come back before they are due, none lost and none twice", () => {
  const driven = new Driven();
  const random = sequence();
  const dues = new Map<number, number>();
  const spans = [1000, 60_000, 3_600_000, 86_400_000, 31_536_000_000];
  for (let offset = 0; offset < 200_000; offset++) {
    const due = 1 + Math.floor(random() ** 2 * spans[offset % spans.length]!);
    dues.set(offset, due);
    driven.add(due, offset, 0);
  }
  equal(driven.wheel.size, 200_000);
  ok(driven.wheel.blockCount < 1500, `${driven.wheel.blockCount} blocks`);
  const seen = new Set<number>();
  for (let now = 1; driven.wheel.size > 0; now = Math.max(now + 1, Math.ceil(driven.wheel.nextDue ?? 0))) {
    // Looked at at every moment that something may be due, in steps that grow where there is nothing.
    const taken = driven.take(now);
    for (const { due, offset } of taken) {
      equal(due, dues.get(offset));
      ok(due <= now && !seen.has(offset));
      seen.add(offset);
    }
    const first = driven.wheel.nextDue;
    ok(first === undefined || first > now, "what is due was taken");
    if (taken.length === 0 && first !== undefined && first - now > LEAD_MS) now = first - LEAD_MS;
  }
  equal(seen.size, 200_000);
  ok(driven.peak <= ENTRIES_MAX + BLOCK_ENTRIES_MAX, `${driven.peak} entries in memory`);
});

test("all due at the same moment: they are read back as they are taken", () => {
  const driven = new Driven();
  for (let offset = 0; offset < 150_000; offset++) driven.add(5000, offset, 0);
  equal(driven.wheel.dueCount(4999), 0);
  equal(driven.wheel.dueCount(5000), 150_000);
  deepStrictEqual(driven.take(4999), []);
  ok(driven.wheel.inMemory < ENTRIES_KEPT + BLOCK_ENTRIES_MAX, "no more is read ahead than is kept");
  const loads = driven.loads;
  const taken = driven.take(5000);
  equal(taken.length, 150_000);
  equal(new Set(taken.map(({ offset }) => offset)).size, 150_000);
  ok(driven.loads > loads && driven.loads <= 150_000 / BLOCK_ENTRIES_MIN);
});

const BLOCK_ENTRIES_MIN = 256;

test("an entry in a block can be struck out, also while the block is coming back", () => {
  const driven = new Driven();
  for (let offset = 0; offset < 40_000; offset++) driven.add(100_000 + offset, offset, 0);
  const { wheel } = driven;
  const [block] = wheel.blocks();
  ok(block !== undefined);
  const victim = block.lowest;
  ok(!wheel.has(victim));
  const { size } = wheel;
  ok(wheel.strike(block.offset, victim));
  ok(!wheel.strike(block.offset, victim), "it is not struck out twice");
  equal(wheel.size, size - 1);
  const copy = copyOf(wheel);
  copy.unspill(block.offset, decodeEntries(driven.stored.get(block.offset)!));
  ok(!copy.has(victim) && copy.has(victim + 1));
  equal(copy.size, size - 1);
  // The block is back by the time that the second one is struck.
  ok(copy.strike(block.offset, victim + 1));
  equal(copy.size, size - 2);
});

test("a block whose entries are all struck out is gone", () => {
  const driven = new Driven();
  for (let offset = 0; offset < 33_000; offset++) driven.add(offset === 32_999 ? 9e9 : 1e6 + offset, offset, 0);
  const before = driven.wheel.blockCount;
  const blocks = [...driven.wheel.blocks()];
  const last = blocks.at(-1)!;
  for (const { offset } of decodeEntries(driven.stored.get(last.offset)!)) driven.wheel.strike(last.offset, offset);
  equal(driven.wheel.blockCount, before - 1);
  equal(driven.wheel.block(last.offset), undefined);
});

test("comes back from its encoding", () => {
  const driven = new Driven();
  const random = sequence();
  for (let offset = 0; offset < 50_000; offset++) driven.add(Math.floor(random() * 1e9), 50_000 - offset, 0);
  const { wheel } = driven;
  const [block] = wheel.blocks();
  wheel.strike(block!.offset, block!.lowest);
  const copy = copyOf(wheel);
  deepStrictEqual([...copy.entries()], [...wheel.entries()]);
  deepStrictEqual([...copy.blocks()].map(plain), [...wheel.blocks()].map(plain));
  equal(copy.size, wheel.size);
  equal(copy.nextDue, wheel.nextDue);
  equal(copy.lowest, 1);
  equal(copy.lowestBlock, 0);
  const again = new Encoder(16);
  copy.encode(again);
  const first = new Encoder(16);
  wheel.encode(first);
  ok(again.view().equals(first.view()), "what is repeated is the same to the byte");
});

function plain({ offset, count, firstDue, lastDue, lowest, highest, struck }: Block): unknown {
  return { offset, count, firstDue, lastDue, lowest, highest, struck };
}

test("knows which tasks may still be needed", () => {
  const wheel = new Wheel();
  equal(wheel.lowest, Number.POSITIVE_INFINITY);
  ok(!wheel.mayHold(0, 1e9));
  wheel.add(10, 500);
  equal(wheel.lowest, 500);
  ok(wheel.mayHold(500, 501) && !wheel.mayHold(501, 600) && !wheel.mayHold(0, 500));
  wheel.clear();
  equal(wheel.size, 0);
});
