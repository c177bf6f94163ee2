import assert from "node:assert/strict";
import { json, type LogQueue, message } from "../../src/index.js";
import { rejectsWith } from "../support/expect.js";
import { recordsOf } from "../support/state.js";
import type { Check } from "./suite.js";

const SMALL = { walFileBytes: "256KiB", segmentBytes: "64KiB", cacheBytes: "4MiB", maxMessageBytes: "32KiB" } as const;

/** Key, payload and offset of what a replay gives. */
async function replay(log: LogQueue): Promise<[string | undefined, string, number][]> {
  const records = await recordsOf(log);
  return records.map(({ key, payload, offset }) => [key?.toString(), payload.toString(), offset]);
}

async function put(log: LogQueue, key: string | undefined, payload: string): Promise<number> {
  return await log.append(message(payload, key === undefined ? {} : { key }));
}

export function compactionConformance(check: Check): void {
  check("compaction: the last record of each key stays where it was, and records without a key", async ({ mq }) => {
    const log = await mq.openLog("prices");
    for (const [key, payload] of [
      ["a", "a1"],
      ["b", "b1"],
      [undefined, "no key"],
      ["a", "a2"],
      ["", "empty key"],
      ["c", "c1"],
      ["b", "b2"],
      ["a", "a3"],
    ] as const) {
      await put(log, key, payload);
    }
    const before = await log.stats();
    const result = await log.compact();
    assert.equal(result.recordsBefore, 8);
    assert.equal(result.recordsRemoved, 3);
    assert.ok(result.bytesAfter < result.bytesBefore);
    const expected = [
      [undefined, "no key", 2],
      ["", "empty key", 4],
      ["c", "c1", 5],
      ["b", "b2", 6],
      ["a", "a3", 7],
    ];
    assert.deepEqual(await replay(log), expected);
    const after = await log.stats();
    assert.deepEqual([after.head, after.next, after.count], [before.head, before.next, 5]);
    assert.equal(await log.read(0), undefined);
    assert.equal((await log.read(6))?.payload.toString(), "b2");
    assert.equal(await put(log, "a", "a4"), 8, "offsets go on");
    assert.equal((await log.stats()).count, 6);
  });

  check("compaction: nothing to be removed, nothing rewritten", async ({ mq }) => {
    const log = await mq.openLog("prices");
    assert.deepEqual(await log.compact(), { recordsBefore: 0, recordsRemoved: 0, bytesBefore: 0, bytesAfter: 0 });
    await put(log, "a", "a1");
    await put(log, "b", "b1");
    for (let round = 0; round < 2; round++) {
      const { recordsBefore, recordsRemoved, bytesBefore, bytesAfter } = await log.compact();
      assert.deepEqual([recordsBefore, recordsRemoved], [2, 0]);
      assert.equal(bytesAfter, bytesBefore);
    }
    assert.equal((await replay(log)).length, 2);
  });

  check(
    "compaction: what it left is the same after a reopen, and compacts on",
    async ({ mq, reopen }) => {
      const log = await mq.openLog("prices");
      for (let index = 0; index < 300; index++) await put(log, `key ${index % 7}`, `${index} ${"x".repeat(800)}`);
      await log.compact();
      const left = await replay(log);
      assert.deepEqual(
        left.map(([, , offset]) => offset),
        [293, 294, 295, 296, 297, 298, 299],
      );
      const again = await (await reopen()).openLog("prices");
      assert.deepEqual(await replay(again), left);
      assert.equal((await again.stats()).count, 7);
      assert.equal((await again.compact()).recordsRemoved, 0);
      await put(again, "key 3", "new");
      assert.equal((await again.compact()).recordsRemoved, 1);
      assert.equal((await again.stats()).count, 7);
    },
    SMALL,
  );

  check(
    "compaction: reads and appends go on meanwhile, in order and whole",
    async ({ mq }) => {
      const log = await mq.openLog("prices");
      const body = "x".repeat(1500);
      for (let index = 0; index < 600; index++) await put(log, `key ${index % 50}`, `${index} ${body}`);
      const seen: number[] = [];
      const reading = (async () => {
        for await (const records of log.batches({ maxBytes: "4KiB" })) {
          for (const { offset, key, payload } of records) {
            assert.equal(key?.toString(), `key ${offset % 50}`);
            assert.equal(payload.toString(), `${offset} ${body}`);
            seen.push(offset);
          }
          await new Promise((resolve) => setImmediate(resolve));
        }
      })();
      const compacting = log.compact();
      for (let index = 600; index < 700; index++) await put(log, `key ${index % 50}`, `${index} ${body}`);
      await compacting;
      await reading;
      assert.deepEqual(
        seen,
        [...seen].sort((a, b) => a - b),
      );
      // Whatever the reader met, it has met every key's last record.
      for (let offset = 550; offset < 600; offset++) assert.ok(seen.includes(offset) || seen.includes(offset + 50));
      await log.compact();
      assert.equal((await log.stats()).count, 50);
      assert.deepEqual(
        (await replay(log)).map(([, , offset]) => offset),
        Array.from({ length: 50 }, (_, index) => 650 + index),
      );
    },
    SMALL,
  );

  check(
    "compaction: a tombstone removes its key, stays for its time, and then goes",
    async ({ mq, pass }) => {
      const log = await mq.openLog("prices", { compaction: { grace: "1h" } });
      await put(log, "a", "a1");
      await put(log, "b", "b1");
      assert.equal(await log.delete("a"), 2);
      const [, , tombstone] = await recordsOf(log);
      assert.deepEqual([tombstone?.tombstone, tombstone?.key?.toString(), tombstone?.payload.length], [true, "a", 0]);
      assert.equal((await log.read(1))?.tombstone, false);
      await log.compact();
      assert.deepEqual(await replay(log), [
        ["b", "b1", 1],
        ["a", "", 2],
      ]);
      await pass(3_599_000);
      assert.equal((await log.compact()).recordsRemoved, 0);
      await pass(2000);
      assert.equal((await log.compact()).recordsRemoved, 1);
      assert.deepEqual(await replay(log), [["b", "b1", 1]]);
      await put(log, "a", "a2");
      await log.compact();
      assert.deepEqual(await replay(log), [
        ["b", "b1", 1],
        ["a", "a2", 3],
      ]);
    },
    { exactTime: true },
  );

  check("compaction: a log can be emptied of all that it had", async ({ mq, pass, reopen }) => {
    const log = await mq.openLog("prices", { compaction: { grace: 0 } });
    for (const key of ["a", "b"]) await put(log, key, "1");
    for (const key of ["a", "b"]) await log.delete(key);
    await pass(10);
    assert.equal((await log.compact()).recordsRemoved, 4);
    const stats = await log.stats();
    assert.deepEqual([stats.head, stats.next, stats.count], [0, 4, 0]);
    assert.deepEqual(await replay(log), []);
    const again = await (await reopen()).openLog("prices");
    assert.equal((await again.stats()).count, 0);
    assert.equal(await put(again, "a", "2"), 4);
    assert.deepEqual(await replay(again), [["a", "2", 4]]);
  });

  check("compaction: counts are exact where a trim cuts what has been compacted", async ({ mq }) => {
    const log = await mq.openLog("prices");
    for (let index = 0; index < 40; index++) await put(log, index < 30 ? "same" : `key ${index}`, "x");
    await log.compact();
    assert.equal((await log.stats()).count, 11);
    for (const head of [5, 29, 30, 35, 40]) {
      await log.trim(head);
      assert.equal((await log.stats()).count, head <= 29 ? 11 : 40 - head);
      assert.equal((await replay(log)).length, (await log.stats()).count);
    }
  });

  check("compaction: where the codec makes nothing of no bytes, a tombstone's payload is undefined", async ({ mq }) => {
    const log = await mq.openLog("prices", { codec: json<{ price: number }>() });
    await log.append({ price: 1 }, { key: "a" });
    await log.delete(Buffer.from("a"));
    const payloads: unknown[] = [];
    for await (const records of log.batches()) for (const { payload } of records) payloads.push(payload);
    assert.deepEqual(payloads, [{ price: 1 }, undefined]);
  });

  check("compaction: calls at the same time are done one after another; delete wants a key", async ({ mq }) => {
    const log = await mq.openLog("prices");
    for (let index = 0; index < 10; index++) await put(log, "a", `${index}`);
    const results = await Promise.all([log.compact(), log.compact(), log.compact()]);
    assert.deepEqual(
      results.map(({ recordsRemoved }) => recordsRemoved),
      [9, 0, 0],
    );
    await rejectsWith("ERR_OPTION", log.delete(undefined as unknown as string));
    await rejectsWith("ERR_OPTION", log.delete(7 as unknown as string));
    await mq.close();
    await rejectsWith("ERR_CLOSED", log.compact());
    await rejectsWith("ERR_CLOSED", log.delete("a"));
  });
}
