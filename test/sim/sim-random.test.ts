import assert from "node:assert/strict";
import { test } from "node:test";
import { SimRandom } from "./sim-random.js";

const draw = (random: SimRandom, n: number) => Array.from({ length: n }, () => random.uint32());

test("a seed repeats its sequence, and another gives another", () => {
  assert.deepEqual(draw(new SimRandom(7), 100), draw(new SimRandom(7), 100));
  assert.notDeepEqual(draw(new SimRandom(7), 4), draw(new SimRandom(8), 4));
  assert.equal(new Set(draw(new SimRandom(0), 1000)).size, 1000);
});

test("seeds next to each other are unrelated", () => {
  const firsts = Array.from({ length: 1000 }, (_, seed) => new SimRandom(seed).uint32());
  assert.equal(new Set(firsts).size, 1000);
  const low = firsts.filter((value) => value < 2 ** 31).length;
  assert.ok(low > 400 && low < 600, `${low} of 1000 in the lower half`);
});

test("each bit is set about half the time", () => {
  const values = draw(new SimRandom(1), 4000);
  for (let bit = 0; bit < 32; bit++) {
    const ones = values.filter((value) => (value >>> bit) & 1).length;
    assert.ok(ones > 1800 && ones < 2200, `bit ${bit}: ${ones} of 4000`);
  }
});

test("below, between, chance and pick keep their bounds and reach them", () => {
  const random = new SimRandom(3);
  assert.deepEqual([...new Set(Array.from({ length: 200 }, () => random.below(4)))].sort(), [0, 1, 2, 3]);
  assert.deepEqual([...new Set(Array.from({ length: 200 }, () => random.between(-1, 1)))].sort(), [-1, 0, 1]);
  assert.deepEqual([...new Set(Array.from({ length: 200 }, () => random.pick(["a", "b"])))].sort(), ["a", "b"]);
  assert.equal(random.chance(0), false);
  assert.equal(random.chance(1), true);
  assert.throws(() => random.pick([]), RangeError);
});

test("a fork goes its own way: drawing from it does not change its parent", () => {
  const [a, b] = [new SimRandom(5), new SimRandom(5)];
  const fork = a.fork();
  b.fork();
  const drawn = draw(fork, 10);
  const rest = draw(a, 10);
  assert.deepEqual(rest, draw(b, 10));
  assert.notDeepEqual(drawn, rest);
});
