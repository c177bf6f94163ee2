import assert from "node:assert/strict";
import { test } from "node:test";
import type { Consumer } from "./consumer.js";
import { placeOf } from "./outcomes.js";
import { formatToken, parseToken } from "./task-token.js";

const consumerOf = (id: number, number: number) => ({ host: { id, name: "jobs" }, number }) as unknown as Consumer;

void test("a token says what its parts do as text, and is read back, whatever they are", () => {
  const numbers = [0, 1, 35, 36, 37, 36 ** 2 - 1, 36 ** 2, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1];
  const offsets = [...numbers, 36 ** 9 - 1, 36 ** 9, 36 ** 10, 2 ** 53 - 2, 2 ** 53 - 1];
  const bits = [0, 1, -1, 2 ** 31 - 1, -(2 ** 31), 0x0badf00d];
  for (const offset of offsets) {
    for (const [index, attempt] of numbers.entries()) {
      const high = bits[index % bits.length]!;
      const low = bits[(index + 1) % bits.length]!;
      const consumer = consumerOf(offset, attempt);
      const token = { lane: index, offset, attempt, high, low };
      const text = formatToken(consumer, token);
      const hex = [high, low].map((half) => (half >>> 0).toString(16).padStart(8, "0")).join("");
      const parts = [offset, attempt, index, offset, attempt].map((part) => part.toString(36));
      assert.equal(text, [...parts, hex].join("."));
      assert.deepEqual(parseToken(text, consumer), token);
    }
  }
});

void test("an id names a place if it is one, to the letter", () => {
  const places: readonly [string, number, number][] = [
    ["0", 0, 0],
    ["7", 0, 7],
    ["10", 0, 10],
    ["007", 0, 7],
    ["1-0", 1, 0],
    ["9-12", 9, 12],
    ["9007199254740991", 0, 2 ** 53 - 1],
    ["3-9007199254740991", 3, 2 ** 53 - 1],
  ];
  for (const [id, lane, offset] of places) assert.deepEqual(placeOf(id), { lane, offset }, id);
  const none = [
    "",
    "-",
    "1-",
    "0-1",
    "-1",
    "a",
    "1a",
    "a-1",
    "1-a",
    "1--1",
    "10-1",
    "1:1",
    "1/1",
    " 1",
    "1 ",
    "1.5",
    "1e3",
  ];
  for (const id of [...none, "1".repeat(17), `1-${"1".repeat(17)}`]) assert.equal(placeOf(id), undefined, id);
});
