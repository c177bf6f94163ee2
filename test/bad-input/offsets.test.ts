import assert from "node:assert/strict";
import { rejectsWith } from "../support/expect.js";
import { badInput } from "./scene.js";

const OFFSETS: readonly [title: string, offset: unknown][] = [
  ["negative", -1],
  ["fractional", 2.5],
  ["beyond what a number holds exactly", 2 ** 53],
  ["infinite", Number.POSITIVE_INFINITY],
  ["not a number", Number.NaN],
  ["a string", "3"],
  ["a bigint", 3n],
  ["missing", undefined],
  ["null", null],
];

for (const [title, offset] of OFFSETS) {
  badInput(`an offset that is ${title}`, async ({ log }) => {
    await rejectsWith("ERR_ARGUMENT", log.read(offset as number), /offset must be a whole number from 0/);
    await rejectsWith("ERR_ARGUMENT", log.trim(offset as number), /offset must be a whole number from 0/);
  });
}

badInput("reading what was trimmed away", async ({ log }) => {
  for (const offset of [0, 1]) {
    const error = await rejectsWith("ERR_OFFSET_OUT_OF_RANGE", log.read(offset), /2/);
    assert.equal(error.details.next, 2, "where to go on");
  }
});

badInput("reading past the end", async ({ log }) => {
  for (const offset of [10, 11, 2 ** 40, Number.MAX_SAFE_INTEGER]) {
    assert.equal(await log.read(offset), undefined);
    for await (const _ of log.batches({ from: offset })) assert.fail("there is nothing");
  }
});

badInput("trimming past the end", async ({ log }) => {
  await rejectsWith("ERR_ARGUMENT", log.trim(11), /10/);
  await rejectsWith("ERR_ARGUMENT", log.trim(Number.MAX_SAFE_INTEGER), /10/);
});
