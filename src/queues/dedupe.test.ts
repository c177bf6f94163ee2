import { deepStrictEqual, equal, ok } from "node:assert/strict";
import { test } from "node:test";
import { isVarveError } from "../api/errors.js";
import { Decoder, Encoder } from "../storage/bytes.js";
import { DedupeTable } from "./dedupe.js";

const RULES = { windowMs: 1000, maxKeys: 3 };

function commit(table: DedupeTable, key: string, id: string, at: number): void {
  const { claim, first } = table.claim(key, RULES, at, "q");
  ok(first, `${key} is new`);
  claim.id = id;
  table.committed(key, id, at);
}

function throwsFull(run: () => void): void {
  try {
    run();
  } catch (error) {
    ok(isVarveError(error, "ERR_QUEUE_FULL"));
    deepStrictEqual({ ...error.details }, { queue: "q", limit: "dedupe.maxKeys", max: 3 });
    return;
  }
  throw new Error("a key beyond the limit was taken");
}

test("a key stands for its first task until its window ends", () => {
  const table = new DedupeTable();
  commit(table, "k", "7", 100);
  equal(table.find("k", RULES, 1099)?.id, "7");
  equal(table.claim("k", RULES, 1099, "q").first, false);
  equal(table.find("k", RULES, 1100), undefined);
  commit(table, "k", "8", 1100);
  equal(table.find("k", RULES, 1100)?.id, "8");
  equal(table.size, 1);
});

test("a claim on its way blocks, and is gone when it is given up", () => {
  const table = new DedupeTable();
  const { claim } = table.claim("k", RULES, 0, "q");
  equal(table.claim("k", RULES, 5000, "q").claim, claim, "it has no age before it is committed");
  table.release(claim);
  equal(table.size, 0);
  commit(table, "k", "1", 0);
  table.release(claim);
  equal(table.find("k", RULES, 0)?.id, "1", "giving up an old claim does not touch a new one");
});

test("the number of keys is bounded, and ended windows make room", () => {
  const table = new DedupeTable();
  for (const [index, key] of ["a", "b", "c"].entries()) commit(table, key, String(index), index * 100);
  throwsFull(() => table.claim("d", RULES, 999, "q"));
  equal(table.claim("a", RULES, 999, "q").first, false, "known keys are answered all the same");
  commit(table, "d", "3", 1000);
  throwsFull(() => table.claim("e", RULES, 1000, "q"));
  equal(table.size, 3);
});

test("comes back from its encoding, without what was on its way", () => {
  const table = new DedupeTable();
  commit(table, "a", "1", 10);
  commit(table, "ü", "2", 20);
  table.claim("pending", RULES, 20, "q");
  const output = new Encoder(16);
  table.encode(output);
  const copy = DedupeTable.decode(new Decoder(output.view()));
  equal(copy.size, 2);
  deepStrictEqual([copy.find("a", RULES, 20)?.id, copy.find("ü", RULES, 20)?.id], ["1", "2"]);
  equal(copy.find("a", RULES, 1010), undefined);
});

test("a purge forgets the keys of the tasks that are gone", () => {
  const table = new DedupeTable();
  commit(table, "a", "1", 10);
  const { claim } = table.claim("b", RULES, 10, "q");
  table.clear();
  equal(table.find("a", RULES, 10), undefined);
  equal(table.find("b", RULES, 10), claim);
});
