import assert from "node:assert/strict";
import type { LogRecord } from "../../src/index.js";
import { rejectsWith } from "../support/expect.js";
import { take } from "../support/state.js";
import type { Check } from "./suite.js";

const text = (record: LogRecord<Buffer>): string => record.payload.toString();

export function tailConformance(check: Check): void {
  check("tail: from the start, then each new record", async ({ mq }) => {
    const log = await mq.openLog("events");
    await log.appendBatch(["a", "b"]);
    const tail = log.tail({ from: "start" })[Symbol.asyncIterator]();
    assert.equal(text((await tail.next()).value), "a");
    assert.equal(text((await tail.next()).value), "b");
    const waiting = tail.next();
    await log.append("c");
    assert.equal(text((await waiting).value), "c");
    await tail.return?.();
  });

  check("tail: from the end, which is also the default, only what comes after", async ({ mq }) => {
    const log = await mq.openLog("events");
    await log.appendBatch(["old", "older"]);
    for (const options of [{ from: "end" } as const, {}]) {
      const tail = log.tail(options)[Symbol.asyncIterator]();
      const first = tail.next();
      const offset = await log.append("new");
      const { value } = await first;
      assert.equal(value.offset, offset);
      assert.equal(text(value), "new");
      await tail.return?.();
    }
  });

  check("tail: from an offset, also one that does not exist yet", async ({ mq }) => {
    const log = await mq.openLog("events");
    await log.appendBatch(["0", "1", "2"]);
    assert.deepEqual((await take(log.tail({ from: 1 }), 2)).map(text), ["1", "2"]);
    const future = take(log.tail({ from: 4 }), 1);
    await log.appendBatch(["3", "4"]);
    assert.deepEqual((await future).map(text), ["4"]);
  });

  check("tail: from a date", async ({ mq, pass }) => {
    const log = await mq.openLog("events");
    await log.append("before");
    await pass(20);
    await log.append("after");
    const moment = (await log.read(1))?.timestamp as number;
    assert.deepEqual((await take(log.tail({ from: new Date(moment) }), 1)).map(text), ["after"]);
    const later = take(log.tail({ from: new Date(moment + 1) }), 1);
    await pass(20);
    await log.append("latest");
    assert.deepEqual((await later).map(text), ["latest"]);
  });

  check("tail: a signal ends it without an error, waiting or not", async ({ mq }) => {
    const log = await mq.openLog("events");
    await log.appendBatch(["a", "b"]);
    const seen: string[] = [];
    const abort = new AbortController();
    for await (const record of log.tail({ from: "start", signal: abort.signal })) {
      seen.push(text(record));
      if (seen.length === 2) setImmediate(() => abort.abort());
    }
    assert.deepEqual(seen, ["a", "b"]);
    for await (const _ of log.tail({ from: "start", signal: AbortSignal.abort() })) assert.fail("already aborted");
    for await (const _ of log.batches({ follow: true, signal: AbortSignal.abort() })) assert.fail("already aborted");
    await log.append("c");
    assert.equal((await log.stats()).count, 3, "the log goes on");
  });

  check("tail: leaving the loop is enough, and every tail has its own position", async ({ mq }) => {
    const log = await mq.openLog("events");
    await log.appendBatch(["a", "b", "c"]);
    assert.deepEqual((await take(log.tail({ from: "start" }), 1)).map(text), ["a"]);
    assert.deepEqual((await take(log.tail({ from: "start" }), 3)).map(text), ["a", "b", "c"]);
  });

  check("tail: a trimmed offset is refused with the next one there", async ({ mq }) => {
    const log = await mq.openLog("events");
    await log.appendBatch(["a", "b", "c"]);
    await log.trim(2);
    const error = await rejectsWith("ERR_OFFSET_OUT_OF_RANGE", async () => take(log.tail({ from: 1 }), 1));
    assert.equal(error.details.next, 2);
    assert.deepEqual((await take(log.tail({ from: "start" }), 1)).map(text), ["c"]);
  });

  check("tail: batches with follow go on at the end of the log", async ({ mq }) => {
    const log = await mq.openLog("events");
    await log.appendBatch(["a", "b"]);
    const abort = new AbortController();
    const seen: string[] = [];
    for await (const batch of log.batches({ from: "start", follow: true, signal: abort.signal })) {
      assert.ok(batch.length > 0);
      seen.push(...batch.map(text));
      if (seen.length === 2) setImmediate(() => void log.appendBatch(["c", "d"]));
      if (seen.length === 4) abort.abort();
    }
    assert.deepEqual(seen, ["a", "b", "c", "d"]);
  });

  check("tail: a record is not seen before its append has been written", async ({ mq }) => {
    const log = await mq.openLog("events");
    let appended = -1;
    const abort = new AbortController();
    const reader = (async () => {
      for await (const record of log.tail({ from: "start", signal: abort.signal })) {
        const found = await log.read(record.offset);
        assert.equal(found?.offset, record.offset, "what a tail shows can be read");
        if (record.offset === 49) break;
      }
    })();
    for (let index = 0; index < 50; index++) {
      const append = log.append(`${index}`);
      if (index > 0) assert.notEqual(await log.read(appended), undefined, "what was acknowledged can be read");
      appended = await append;
    }
    await reader;
    abort.abort();
  });
}
