import assert from "node:assert/strict";
import { isVarveError, message } from "../../src/index.js";
import { rejectsWith } from "../support/expect.js";
import { Seeded, seedOr } from "../support/seeded.js";
import { recordsOf, textsOf } from "../support/state.js";
import type { Check } from "./suite.js";

export function logConformance(check: Check): void {
  check("log: append returns offsets from 0 on, and read returns what was appended", async ({ mq }) => {
    const log = await mq.openLog("events");
    assert.equal(log.kind, "log");
    assert.equal(log.name, "events");
    assert.equal(await log.append("zero"), 0);
    assert.equal(await log.append(Buffer.from("one")), 1);
    assert.equal(await log.append(new Uint8Array([0, 255, 128])), 2);
    const first = await log.read(0);
    assert.ok(first !== undefined);
    assert.equal(first.offset, 0);
    assert.ok(Buffer.isBuffer(first.payload));
    assert.equal(first.payload.toString(), "zero");
    assert.equal(first.key, undefined);
    assert.deepEqual({ ...first.headers }, {});
    assert.deepEqual((await log.read(2))?.payload, Buffer.from([0, 255, 128]));
  });

  check("log: strings are stored as UTF-8, and an empty payload is a payload", async ({ mq }) => {
    const log = await mq.openLog("events");
    await log.append("größe 漢字 🎈");
    await log.append("");
    await log.append(new Uint8Array(0));
    assert.equal((await log.read(0))?.payload.toString("utf8"), "größe 漢字 🎈");
    assert.equal((await log.read(1))?.payload.length, 0);
    assert.equal((await log.read(2))?.payload.length, 0);
    assert.equal((await log.stats()).count, 3);
  });

  check("log: keys and headers, in each of the three ways to give them", async ({ mq, reopen }) => {
    const headers = { "content-type": "text/plain", b: "2", a: "1", größe: "漢字", empty: "" };
    const log = await mq.openLog("events");
    await log.append("x", { key: "k", headers });
    await log.append({ payload: "x", key: "k", headers });
    await log.append(message("x", { key: Buffer.from("k"), headers }));
    await log.appendBatch([{ payload: "x", key: new Uint8Array([107]), headers }, message("y", { key: "" }), "z"]);
    const verify = async (records: Awaited<ReturnType<typeof recordsOf<Buffer>>>): Promise<void> => {
      for (const record of records.slice(0, 4)) {
        assert.deepEqual(record.key, Buffer.from("k"));
        assert.deepEqual(Object.entries(record.headers), Object.entries(headers), "headers keep their order");
        assert.equal(record.payload.toString(), "x");
      }
      assert.deepEqual(records[4]?.key, Buffer.alloc(0), "an empty key is not the same as none");
      assert.equal(records[5]?.key, undefined);
      assert.deepEqual({ ...records[5]?.headers }, {});
    };
    await verify(await recordsOf(log));
    await verify(await recordsOf(await (await reopen()).openLog("events")));
  });

  check("log: appendBatch returns consecutive offsets in order; an empty batch is no commit", async ({ mq }) => {
    const log = await mq.openLog("events");
    await log.append("before");
    assert.deepEqual(await log.appendBatch(["a", "b", "c"]), [1, 2, 3]);
    assert.deepEqual(await log.appendBatch([]), []);
    assert.deepEqual(await log.appendBatch(["d"]), [4]);
    assert.deepEqual(await textsOf(log), ["before", "a", "b", "c", "d"]);
  });

  check("log: there is no record past the end", async ({ mq }) => {
    const log = await mq.openLog("events");
    assert.equal(await log.read(0), undefined);
    await log.append("only");
    assert.equal(await log.read(1), undefined);
    assert.equal(await log.read(Number.MAX_SAFE_INTEGER), undefined);
    assert.deepEqual(await recordsOf(log).then((records) => records.length), 1);
  });

  check("log: stats tell head, next, count and bytes", async ({ mq }) => {
    const log = await mq.openLog("events");
    const empty = await log.stats();
    const none = { kind: "log", name: "events", head: 0, bytes: 0, groups: 0, furthestBack: undefined };
    assert.deepEqual({ ...empty, bytes: 0 }, { ...none, next: 0, count: 0 });
    await log.appendBatch(Array.from({ length: 100 }, () => Buffer.alloc(1000)));
    const full = await log.stats();
    assert.deepEqual({ ...full, bytes: 0 }, { ...none, next: 100, count: 100 });
    assert.ok(full.bytes >= 100_000, `${full.bytes} bytes`);
    await log.trim(60);
    const trimmed = await log.stats();
    assert.equal(trimmed.head, 60);
    assert.equal(trimmed.next, 100);
    assert.equal(trimmed.count, 40);
  });

  check("log: everything is there after a reopen, and offsets go on", async ({ mq, reopen }) => {
    const log = await mq.openLog("events");
    const texts = Array.from({ length: 500 }, (_, index) => `record ${index}`);
    await log.appendBatch(texts);
    const before = await recordsOf(log);
    const again = await (await reopen()).openLog("events");
    assert.deepEqual(await recordsOf(again), before);
    assert.equal(await again.append("next"), 500);
  });

  check("log: large records come back byte for byte", async ({ mq, reopen }) => {
    const random = new Seeded(11);
    const sizes = [1, 4095, 4096, 65_535, 262_144, 262_145, 1_048_576, 3_000_001];
    const payloads = sizes.map((size) => Buffer.alloc(size, random.bytes(257)));
    const log = await mq.openLog("events");
    for (const payload of payloads.slice(0, 4)) await log.append(payload);
    await log.appendBatch(payloads.slice(4));
    const verify = async (records: { payload: Buffer }[]): Promise<void> => {
      assert.equal(records.length, sizes.length);
      for (const [index, record] of records.entries()) {
        assert.ok(record.payload.equals(payloads[index] as Buffer), `the record of ${sizes[index]} bytes`);
      }
    };
    await verify(await recordsOf(log));
    await verify(await recordsOf(await (await reopen()).openLog("events")));
  });

  check("log: payloads handed out share no memory with the queue or with each other", async ({ mq }) => {
    const log = await mq.openLog("events");
    const given = Buffer.from("original");
    await log.append(given);
    given.fill("x");
    const first = await log.read(0);
    assert.equal(first?.payload.toString(), "original");
    first?.payload.fill("y");
    assert.equal((await log.read(0))?.payload.toString(), "original");
    for await (const batch of log.batches()) for (const record of batch) record.payload.fill("z");
    assert.equal((await log.read(0))?.payload.toString(), "original");
  });

  check("log: timestamps are the wall clock's and never fall", async ({ mq, pass, wallMs }) => {
    const log = await mq.openLog("events");
    const before = wallMs();
    await log.append("a");
    await pass(30);
    await log.appendBatch(["b", "c"]);
    const after = wallMs();
    const stamps = (await recordsOf(log)).map((record) => record.timestamp);
    assert.ok(
      stamps.every((stamp) => Number.isInteger(stamp) && stamp >= before && stamp <= after),
      String(stamps),
    );
    assert.ok((stamps[1] as number) > (stamps[0] as number), "time has passed between the two commits");
    assert.equal(stamps[1], stamps[2], "one commit has one time");
  });

  check("log: batches from start, end, an offset and a date", async ({ mq, pass }) => {
    const log = await mq.openLog("events");
    const texts = async (from: "start" | "end" | number | Date): Promise<string[]> => {
      const found: string[] = [];
      for await (const batch of log.batches({ from })) found.push(...batch.map((record) => record.payload.toString()));
      return found;
    };
    assert.deepEqual(await texts("start"), []);
    await log.appendBatch(["a", "b"]);
    await pass(20);
    await log.appendBatch(["c", "d"]);
    const third = (await log.read(2))?.timestamp as number;
    assert.deepEqual(await texts("start"), ["a", "b", "c", "d"]);
    assert.deepEqual(await texts("end"), []);
    assert.deepEqual(await texts(0), ["a", "b", "c", "d"]);
    assert.deepEqual(await texts(3), ["d"]);
    assert.deepEqual(await texts(4), []);
    assert.deepEqual(await texts(new Date(third)), ["c", "d"], "the first record at or after the time");
    assert.deepEqual(await texts(new Date(third - 1)), ["c", "d"]);
    assert.deepEqual(await texts(new Date(third + 1)), []);
    assert.deepEqual(await texts(new Date(0)), ["a", "b", "c", "d"]);
  });

  check("log: batches keep to maxBytes, except for one larger record", async ({ mq }) => {
    const log = await mq.openLog("events");
    await log.appendBatch(Array.from({ length: 64 }, () => Buffer.alloc(1024)));
    await log.append(Buffer.alloc(100_000));
    await log.appendBatch(Array.from({ length: 64 }, () => Buffer.alloc(1024)));
    const sizes: number[][] = [];
    let next = 0;
    for await (const batch of log.batches({ maxBytes: "8KiB" })) {
      assert.ok(batch.length > 0, "no empty arrays");
      for (const record of batch) assert.equal(record.offset, next++);
      sizes.push(batch.map((record) => record.payload.length));
    }
    assert.equal(next, 129);
    for (const batch of sizes) {
      const bytes = batch.reduce((sum, size) => sum + size, 0);
      assert.ok(batch.length === 1 || bytes <= 8192 + 1024, `${batch.length} records of ${bytes} bytes in one array`);
    }
    assert.ok(sizes.length >= 17, `${sizes.length} arrays`);
  });

  check("log: trim removes what is below, and says where to go on", async ({ mq, reopen }) => {
    const log = await mq.openLog("events");
    await log.appendBatch(["a", "b", "c", "d", "e"]);
    assert.equal(await log.trim(3), 3);
    const verify = async (trimmed: typeof log): Promise<void> => {
      for (const offset of [0, 1, 2]) {
        const error = await rejectsWith("ERR_OFFSET_OUT_OF_RANGE", trimmed.read(offset), /3/);
        assert.equal(error.details.next, 3);
      }
      assert.equal((await trimmed.read(3))?.payload.toString(), "d");
      assert.deepEqual(await textsOf(trimmed), ["d", "e"]);
      await rejectsWith("ERR_OFFSET_OUT_OF_RANGE", async () => {
        for await (const _ of trimmed.batches({ from: 2 }));
      });
    };
    await verify(log);
    assert.equal(await log.trim(1), 3, "trimming what is gone changes nothing");
    await verify(log);
    await verify(await (await reopen()).openLog("events"));
  });

  check(
    "log: offsets are never given out twice, also after trimming everything and a reopen",
    async ({ mq, reopen }) => {
      const log = await mq.openLog("events");
      await log.appendBatch(["a", "b", "c"]);
      assert.equal(await log.trim(3), 3);
      assert.deepEqual(await recordsOf(log), []);
      assert.equal((await log.stats()).count, 0);
      const second = await (await reopen()).openLog("events");
      assert.equal((await second.stats()).next, 3);
      assert.equal(await second.append("d"), 3);
      await second.trim(4);
      const third = await (await reopen()).openLog("events");
      assert.equal(await third.append("e"), 4);
      assert.deepEqual(await textsOf(third), ["e"]);
    },
  );

  check("log: trimming in the middle of a scan gives the scan one clear end", async ({ mq }) => {
    const log = await mq.openLog("events");
    const count = 400;
    for (let index = 0; index < count; index += 4) {
      await log.appendBatch([0, 1, 2, 3].map((step) => Buffer.alloc(2048, index + step)));
    }
    let next = 0;
    try {
      for await (const batch of log.batches({ maxBytes: 4096 })) {
        for (const record of batch) {
          assert.equal(record.offset, next++);
          assert.equal(record.payload[0], record.offset & 0xff, "never the bytes of another record");
        }
        if (next === 8) await log.trim(300);
      }
      assert.equal(next, count, "a scan that ends without an error has seen everything");
    } catch (error) {
      assert.ok(isVarveError(error, "ERR_OFFSET_OUT_OF_RANGE"), String(error));
      assert.equal(error.details.next, 300);
    }
  });

  check("log: durability can be chosen per call", async ({ mq, reopen }) => {
    const log = await mq.openLog("events");
    await log.append("a", { durability: "sync" });
    await log.append("b", { durability: "async" });
    await log.appendBatch(["c"], { durability: "sync" });
    await log.appendBatch(["d"], { durability: "async" });
    await log.trim(1, { durability: "async" });
    await mq.sync();
    assert.deepEqual(await textsOf(await (await reopen()).openLog("events")), ["b", "c", "d"]);
  });

  check("log: two handles of one queue are the same queue", async ({ mq }) => {
    const [one, two] = await Promise.all([mq.openLog("events"), mq.openLog("events")]);
    assert.equal(await one.append("a"), 0);
    assert.equal(await two.append("b"), 1);
    assert.deepEqual(await textsOf(one), ["a", "b"]);
    assert.deepEqual(await textsOf(two), ["a", "b"]);
  });

  check(
    "log: random appends, reads, trims and reopens agree with a list",
    async (subject) => {
      const random = new Seeded(seedOr(20_261));
      let log = await subject.mq.openLog("events");
      let head = 0;
      const model: { payload: Buffer; key: Buffer | undefined }[] = [];
      for (let step = 0; step < 400; step++) {
        const dice = random.below(100);
        if (dice < 40) {
          const key = random.chance(0.3) ? random.bytes(random.below(20)) : undefined;
          const payload = random.bytes(random.chance(0.1) ? random.below(6000) : random.below(200));
          assert.equal(await log.append(payload, { key }), model.push({ payload, key }) - 1);
        } else if (dice < 60) {
          const payloads = Array.from({ length: random.below(20) }, () => random.bytes(random.below(300)));
          const first = model.length;
          for (const payload of payloads) model.push({ payload, key: undefined });
          assert.deepEqual(
            await log.appendBatch(payloads),
            payloads.map((_, index) => first + index),
          );
        } else if (dice < 85) {
          const offset = random.below(model.length + 3);
          if (offset < head) await rejectsWith("ERR_OFFSET_OUT_OF_RANGE", log.read(offset));
          else {
            const record = await log.read(offset);
            assert.deepEqual(record?.payload, model[offset]?.payload, `payload at ${offset}`);
            assert.deepEqual(record?.key, model[offset]?.key, `key at ${offset}`);
          }
        } else if (dice < 93) {
          head = Math.max(head, Math.min(model.length, head + random.below(15)));
          assert.equal(await log.trim(head), head);
        } else if (dice < 97) {
          const records = await recordsOf(log);
          assert.equal(records[0]?.offset, head < model.length ? head : undefined);
          assert.deepEqual(
            records.map((record) => record.payload),
            model.slice(head).map((entry) => entry.payload),
          );
        } else {
          log = await (await subject.reopen()).openLog("events");
        }
      }
    },
    { segmentBytes: "64KiB", walFileBytes: "1MiB" },
  );
}
