import assert from "node:assert/strict";
import { test } from "node:test";
import { Methods } from "../wire/methods.js";
import { Calls } from "./calls.js";
import { Pending } from "./pending.js";

const nothing = () => {};

function callOf(id: number, sequence = 0): Pending {
  return new Pending(id, Methods.ack, 1, Buffer.alloc(0), 0, 0, nothing, nothing, nothing, undefined, sequence);
}

const idsOf = (calls: Calls) => [...calls].map(({ id }) => id);

void test("calls are found by their ids, and stand in the order in which they were made", () => {
  const calls = new Calls();
  // Ids that meet in one slot, the largest there are, and those behind them.
  const ids = [7, 7 + 64, 7 + 128, 2 ** 32 - 1, 2 ** 31, 1, 2];
  const made = ids.map((id) => callOf(id));
  for (const call of made) calls.add(call);
  assert.deepEqual(idsOf(calls), ids);
  for (const call of made) assert.equal(calls.get(call.id), call);
  assert.equal(calls.get(7 + 192), undefined);
  for (const at of [1, 0, 6, 3]) assert.equal(calls.delete(made[at]!), true);
  assert.deepEqual(idsOf(calls), [7 + 128, 2 ** 31, 1]);
  assert.equal(calls.get(7), undefined);
  assert.equal(calls.get(7 + 128), made[2]);
  assert.equal(calls.size, 3);
  calls.add(callOf(7));
  assert.deepEqual(idsOf(calls), [7 + 128, 2 ** 31, 1, 7]);
});

void test("a call that is not there is not taken out, whatever it shares its slot or id with", () => {
  const calls = new Calls();
  const call = callOf(3);
  calls.add(call);
  calls.add(callOf(3 + 64));
  assert.equal(calls.delete(callOf(3)), false);
  assert.equal(calls.delete(callOf(4)), false);
  assert.equal(calls.delete(call), true);
  assert.equal(calls.delete(call), false);
  assert.deepEqual(idsOf(calls), [3 + 64]);
  assert.equal(calls.size, 1);
});

void test("many calls come and go, and nothing that is over leads on", () => {
  const calls = new Calls();
  const waiting = callOf(1);
  calls.add(waiting);
  const made: Pending[] = [];
  for (let id = 2; id <= 5000; id++) {
    const call = callOf(id);
    made.push(call);
    calls.add(call);
  }
  assert.equal(calls.size, 5000);
  for (const call of made) assert.equal(calls.get(call.id), call);
  for (const call of made) {
    assert.equal(calls.delete(call), true);
    assert.deepEqual([call.before, call.behind, call.inSlot], [undefined, undefined, undefined]);
  }
  assert.deepEqual(idsOf(calls), [1]);
  assert.deepEqual([waiting.before, waiting.behind, waiting.inSlot], [undefined, undefined, undefined]);
  for (let id = 5001; id < 5200; id++) calls.add(callOf(id));
  assert.equal(calls.get(1), waiting);
  assert.deepEqual(idsOf(calls), [1].concat(Array.from({ length: 199 }, (_, index) => 5001 + index)));
});

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
