import assert from "node:assert/strict";
import { test } from "node:test";
import { Methods } from "../wire/methods.js";
import { Calls } from "./calls.js";
import { Pending } from "./pending.js";

const nothing = () => {};

function callOf(id: number, sequence = 0): Pending {
  return new Pending(id, Methods.ack, 1, Buffer.alloc(0), 0, 0, nothing, nothing, nothing, undefined, sequence);
}

void test("a walk passes over what is taken out on the way, and what is added", () => {
  const calls = new Calls();
  const made = [1, 2, 3, 4].map((id) => callOf(id));
  for (const call of made) calls.add(call);
  const seen: number[] = [];
  for (const { id } of calls) {
    seen.push(id);
    if (id !== 2) continue;
    calls.delete(made[2]!);
    calls.delete(made[1]!);
    calls.add(callOf(5));
  }
  assert.deepEqual(seen, [1, 2, 4]);
});

void test("the oldest named call is the first that has a name", () => {
  const calls = new Calls();
  assert.equal(calls.oldestSequence, undefined);
  const read = callOf(1);
  const first = callOf(2, 10);
  for (const call of [read, first, callOf(3), callOf(4, 11)]) calls.add(call);
  assert.equal(calls.oldestSequence, 10);
  calls.delete(first);
  assert.equal(calls.oldestSequence, 11);
});
