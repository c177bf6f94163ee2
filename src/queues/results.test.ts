import { deepStrictEqual, equal, ok } from "node:assert/strict";
import { test } from "node:test";
import { Decoder, Encoder } from "../storage/bytes.js";
import { RESULT_BYTES_MAX, RESULTS_MAX, ResultTable, ResultWaiters } from "./results.js";

const TTL = 1000;

test("a result is kept for its time", () => {
  const table = new ResultTable();
  table.add("7", 0, 10, TTL, 100);
  deepStrictEqual(table.find("7", TTL, 1099), { offset: 0, bytes: 10, since: 100 });
  equal(table.find("7", TTL, 1100), undefined);
  equal(table.find("8", TTL, 100), undefined);
  equal(table.lowest(TTL, 100), 0);
  table.add("8", 1, 10, TTL, 1100);
  equal(table.lowest(TTL, 1100), 1, "the stream can let go of the first one");
  equal(table.size, 1);
});

test("a second result of a task replaces the first", () => {
  const table = new ResultTable();
  table.add("a", 0, 10, TTL, 0);
  table.add("b", 1, 10, TTL, 1);
  table.add("a", 2, 10, TTL, 2);
  equal(table.find("a", TTL, 2)?.offset, 2);
  equal(table.lowest(TTL, 2), 1);
  equal(table.lowest(TTL, 1001), 2, "what is too old is not needed");
});

test("count and bytes are bounded, the oldest goes first", () => {
  const table = new ResultTable();
  for (let index = 0; index <= RESULTS_MAX; index++) table.add(String(index), index, 1, TTL, 0);
  equal(table.size, RESULTS_MAX);
  ok(table.find("0", TTL, 0) === undefined && table.find("1", TTL, 0) !== undefined);
  table.add("large", 1e6, RESULT_BYTES_MAX - 5, TTL, 0);
  equal(table.size, 6);
  equal(table.lowest(TTL, 0), RESULTS_MAX - 4);
});

test("comes back from its encoding", () => {
  const table = new ResultTable();
  table.add("7", 3, 10, TTL, 100);
  table.add("p1-8", 4, RESULT_BYTES_MAX - 10, TTL, 200);
  const output = new Encoder(16);
  table.encode(output);
  const copy = ResultTable.decode(new Decoder(output.view()));
  deepStrictEqual(copy.find("7", TTL, 200), table.find("7", TTL, 200));
  copy.add("9", 5, 1, TTL, 300);
  equal(copy.find("7", TTL, 300), undefined, "the bytes are counted after a restart, too");
  equal(copy.size, 2);
});

test("those who wait are told when their task ends, and all of them when there is nothing to wait for", () => {
  const waiters = new ResultWaiters();
  const calls: string[] = [];
  const waiter = (name: string) => ({
    ended: (how: string) => calls.push(`${name} is ${how}`),
    fail: (error: Error) => calls.push(`${name}: ${error.message}`),
  });
  const [a, b, c] = [waiter("a"), waiter("b"), waiter("c")];
  waiters.add("1", a);
  waiters.add("1", b);
  waiters.add("2", c);
  waiters.tell("1", "done");
  waiters.tell("3", "done");
  deepStrictEqual(calls.splice(0), ["a is done", "b is done"]);
  waiters.remove("1", a);
  waiters.tell("1", "dead");
  waiters.remove("1", b);
  deepStrictEqual(waiters.ids(), ["2"]);
  waiters.close(new Error("over"));
  deepStrictEqual(calls, ["b is dead", "c: over"]);
  equal(waiters.size, 0);
});
