import assert from "node:assert/strict";
import type { LogQueue } from "../../src/index.js";
import { eventually, rejectsWith } from "../support/expect.js";
import { recordsOf } from "../support/state.js";
import { type Check, passUntil } from "./suite.js";

/** More than what retention may leave beyond its rule in these tests. */
const SLACK = 20;

async function append(log: LogQueue, count: number, bytes = 1000): Promise<void> {
  for (let index = 0; index < count; index += 10) {
    await log.appendBatch(Array.from({ length: Math.min(10, count - index) }, () => Buffer.alloc(bytes)));
  }
}

/** Waits until retention has removed what it does: at most so many are left, and it removes no more. */
async function settled(log: LogQueue, atMost: number, pass: (ms: number) => Promise<void>): Promise<void> {
  let last = -1;
  await eventually(
    "the oldest go",
    async () => {
      const { head, count } = await log.stats();
      const steady = head === last && count <= atMost;
      last = head;
      return steady;
    },
    pass,
  );
}

const headOf = async (log: LogQueue): Promise<number> => (await log.stats()).head;

export function retentionConformance(check: Check): void {
  check("retention by count: keeps as many as it says, and little more", async (subject) => {
    const log = await subject.mq.openLog("events", { retention: { maxCount: 100 } });
    await append(log, 100);
    await subject.pass(20);
    assert.equal(await headOf(log), 0, "nothing goes while there is not too much");
    await append(log, 400);
    await settled(log, 100 + SLACK, subject.pass);
    assert.ok((await log.stats()).count >= 100);
    const records = await recordsOf(log);
    assert.equal(records.at(-1)?.offset, 499, "the newest stay");
    assert.equal(records.length, (await log.stats()).count);
    const again = await (await subject.reopen()).openLog("events");
    assert.equal((await recordsOf(again))[0]?.offset, records[0]?.offset, "what is gone stays gone");
    await append(again, 400);
    await eventually(
      "the rule holds after a reopen",
      async () => (await again.stats()).count <= 100 + SLACK,
      subject.pass,
    );
    assert.ok((await again.stats()).count >= 100);
  });

  check("retention by bytes: keeps as much as it says, and little more", async (subject) => {
    const log = await subject.mq.openLog("events", { retention: { maxBytes: "100KiB" } });
    await append(log, 500);
    await settled(log, 105 + SLACK, subject.pass);
    const { count, next } = await log.stats();
    assert.ok(count >= 95, `${count} records of 1,000 bytes`);
    assert.equal(next, 500);
    await log.append(Buffer.alloc(200_000));
    await eventually("all but the newest go", async () => (await log.stats()).count <= 1, subject.pass);
    assert.equal((await recordsOf(log))[0]?.offset, 500, "the newest one stays, however large");
  });

  check(
    "retention by age: a record goes when it is old, and not before",
    async (subject) => {
      const log = await subject.mq.openLog("events", { retention: { maxAge: "10m" } });
      await append(log, 10);
      await subject.pass(5 * 60_000);
      await append(log, 10);
      await subject.pass(5 * 60_000 - 1);
      assert.equal(await headOf(log), 0);
      await subject.pass(1 + 60_000);
      assert.equal(await headOf(log), 10, "within a minute");
      await subject.pass(4 * 60_000 - 2000);
      assert.equal(await headOf(log), 10);
      await subject.pass(2000 + 60_000);
      assert.equal((await log.stats()).count, 0);
      await append(log, 10);
      const again = await (await subject.reopen()).openLog("events");
      await subject.pass(11 * 60_000);
      assert.equal(await headOf(again), 30, "records from before a reopen as well");
    },
    { exactTime: true },
  );

  check("retention: a rule that is set later holds for what is there", async (subject) => {
    const log = await subject.mq.openLog("events");
    await append(log, 200);
    await log.configure({ retention: { maxCount: 50 } });
    await settled(log, 50 + SLACK, subject.pass);
    assert.ok((await log.stats()).count >= 50);
    await log.configure({ retention: { maxCount: Number.POSITIVE_INFINITY } });
    const { count } = await log.stats();
    await append(log, 200);
    await subject.pass(30);
    assert.equal((await log.stats()).count, count + 200, "a rule that is lifted removes nothing");
  });

  check(
    "retention: a group that is passed gets one explicit gap, then goes on at the earliest left",
    async (subject) => {
      const log = await subject.mq.openLog("events", { retention: { maxCount: 100 } });
      const group = await log.group("slow");
      await append(log, 50);
      const read = await group.read({ max: 30 });
      await group.commit(29);
      assert.equal(read.length, 30);
      await append(log, 450);
      await settled(log, 100 + SLACK, subject.pass);
      const head = await headOf(log);
      const [info] = await log.groups();
      assert.deepEqual([info?.committed, info?.lag, info?.lost], [head, 500 - head, head - 30]);
      const error = await rejectsWith("ERR_OFFSET_OUT_OF_RANGE", group.read());
      assert.deepEqual({ ...error.details }, { offset: 30, next: head, lost: head - 30 });
      assert.equal((await group.read({ max: 1 }))[0]?.offset, head);
    },
  );

  check("retention: readers finish what they hold, or are told where to go on", async (subject) => {
    const log = await subject.mq.openLog("events", { retention: { maxCount: 100 } });
    await append(log, 100);
    const reader = log.batches({ maxBytes: 1000 })[Symbol.asyncIterator]();
    assert.equal((await reader.next()).value?.[0]?.offset, 0);
    await append(log, 400);
    await settled(log, 100 + SLACK, subject.pass);
    const head = await headOf(log);
    for (const read of [reader.next(), log.read(1)]) {
      assert.equal((await rejectsWith("ERR_OFFSET_OUT_OF_RANGE", read)).details.next, head);
    }
    assert.ok((await log.read(head)) !== undefined);
  });

  check(
    "retention: with holdForGroups it waits for a group, until that has been idle for so long",
    async (subject) => {
      const log = await subject.mq.openLog("events", { retention: { maxCount: 100, holdForGroups: "1h" } });
      const group = await log.group("slow");
      await append(log, 500);
      await subject.pass(30 * 60_000);
      assert.equal(await headOf(log), 0);
      assert.equal((await log.stats()).furthestBack?.group, "slow");
      await group.read({ max: 200 });
      await group.commit(199);
      await append(log, 10);
      await subject.pass(60_000);
      assert.equal(await headOf(log), 200, "what it is done with goes");
      await subject.pass(58 * 60_000);
      assert.equal(await headOf(log), 200);
      await subject.pass(3 * 60_000);
      const head = await headOf(log);
      assert.ok(head >= 510 - 100 - SLACK, "then it holds nothing any more");
      assert.equal((await rejectsWith("ERR_OFFSET_OUT_OF_RANGE", group.read())).details.lost, head - 200);
    },
    { exactTime: true },
  );

  check("retention: what it removes is not given to a tail that has not read it", async (subject) => {
    const log = await subject.mq.openLog("events", { retention: { maxCount: 50 } });
    const control = new AbortController();
    const tail = log.tail({ from: "start", signal: control.signal })[Symbol.asyncIterator]();
    await append(log, 10);
    assert.equal((await passUntil(subject, tail.next())).value?.offset, 0);
    await append(log, 400);
    await settled(log, 50 + SLACK, subject.pass);
    const head = await headOf(log);
    let next = 1;
    const error = await rejectsWith("ERR_OFFSET_OUT_OF_RANGE", async () => {
      for (;;) {
        const { value, done } = await tail.next();
        if (done === true) return;
        assert.equal(value.offset, next++, "no gap without a word");
      }
    });
    assert.equal(error.details.next, head);
    control.abort();
  });
}
