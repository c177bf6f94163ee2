import assert from "node:assert/strict";
import { test } from "node:test";
import { isVarveError, type LogQueue, type LogRecord, type MessageQueue } from "../../src/index.js";
import { scaled } from "../support/scale.js";
import { Seeded } from "../support/seeded.js";
import { Simulated, TINY } from "../support/simulated.js";

const RECORD_BYTES = 500;
/** A segment of such a log, and what the log file holds. */
const SLACK_BYTES = 64 * 1024 + 256 * 1024;

/** The bytes of a record tell where it stands, so that bytes of a reused file would show. */
function payloadAt(offset: number): Buffer {
  return Buffer.alloc(RECORD_BYTES, `${offset};`);
}

function verify(record: LogRecord<Buffer>): void {
  assert.ok(record.payload.equals(payloadAt(record.offset)), `the payload of ${record.offset}`);
}

/** Reads at a pace of its own until the log is closed; goes on where it is told to when retention has passed it. */
async function follow(log: LogQueue, from: number, maxBytes: number): Promise<{ read: number; gaps: number }> {
  let next = from;
  let read = 0;
  let gaps = 0;
  for (;;) {
    try {
      for await (const records of log.batches({ from: next, maxBytes, follow: true })) {
        for (const record of records) {
          assert.equal(record.offset, next, "contiguous, or an explicit gap");
          verify(record);
          next++;
          read++;
        }
      }
      return { read, gaps };
    } catch (error) {
      if (isVarveError(error, "ERR_CLOSED")) return { read, gaps };
      assert.ok(isVarveError(error, "ERR_OFFSET_OUT_OF_RANGE"), String(error));
      const first = error.details.next as number;
      assert.ok(first > next, "the gap lies ahead");
      next = first;
      gaps++;
    }
  }
}

void test("case 8: retention by bytes under readers at many places, over many reopens", async () => {
  let machine = Simulated.boot(808);
  const random = new Seeded(8);
  const maxBytes = 200_000;
  let next = 0;
  let gaps = 0;
  for (let life = 0; life < scaled(12); life++) {
    const mq: MessageQueue = await machine.open(TINY);
    const log = await machine.settle(mq.openLog("events", life === 0 ? { retention: { maxBytes } } : {}));
    const { head } = await machine.settle(log.stats());
    const readers = Array.from({ length: 8 }, () =>
      follow(log, head + random.below(Math.max(1, next - head)), 500 * (1 + random.below(40))),
    );
    for (let round = 0; round < 40; round++) {
      const count = 1 + random.below(60);
      const batch = Array.from({ length: count }, (_, index) => payloadAt(next + index));
      await machine.settle(log.appendBatch(batch));
      next += count;
      if (random.chance(0.3)) await machine.pass(random.below(50));
      const { bytes, count: kept, next: end } = await machine.settle(log.stats());
      assert.equal(end, next);
      if (next * RECORD_BYTES > 2 * maxBytes) {
        assert.ok(kept * RECORD_BYTES >= maxBytes * 0.9, `${kept} records are left`);
      }
      assert.ok(bytes <= maxBytes + 2 * SLACK_BYTES, `${bytes} bytes`);
    }
    await machine.pass(1000);
    const first = (await machine.settle(log.stats())).head;
    const record = await machine.settle(log.read(first));
    assert.ok(record !== undefined);
    verify(record);
    await machine.settle(mq.close());
    for (const ended of await machine.settle(Promise.all(readers))) {
      assert.ok(ended.read > 0, "no reader starves");
      gaps += ended.gaps;
    }
    machine = machine.kill();
  }
  assert.ok(gaps > 0, "some readers were passed");
});

void test("case 8: retention by age holds for segments of before a restart and of before a change of the rule", async () => {
  let machine = Simulated.boot(809);
  let mq = await machine.open(TINY);
  let log = await machine.settle(mq.openLog("events"));
  const append = async (count: number): Promise<void> => {
    for (let index = 0; index < count; index += 20) {
      await machine.settle(log.appendBatch(Array.from({ length: 20 }, () => Buffer.alloc(RECORD_BYTES))));
    }
  };
  await append(1000);
  await machine.settle(log.configure({ retention: { maxAge: "1h" } }));
  await machine.pass(30 * 60_000);
  await append(1000);
  await machine.settle(mq.close());
  machine = machine.kill();
  mq = await machine.open(TINY);
  log = await machine.settle(mq.openLog("events"));
  await append(1000);
  assert.equal((await machine.settle(log.stats())).head, 0, "nothing is removed early");
  await machine.pass(32 * 60_000);
  const { head } = await machine.settle(log.stats());
  assert.ok(head >= 1000 && head < 1200, `the first thousand are gone, and little more: the head is ${head}`);
  await machine.pass(40 * 60_000);
  assert.equal((await machine.settle(log.stats())).count, 0);
  await machine.settle(mq.close());
});

void test("case 8: a clock that jumps ahead removes nothing by age at once; set right again, nothing is lost", async () => {
  const machine = Simulated.boot(810);
  const mq = await machine.open(TINY);
  const log = await machine.settle(mq.openLog("events", { retention: { maxAge: "7d" } }));
  await machine.settle(log.appendBatch(["a", "b"]));
  await machine.pass(120_000);
  machine.clock.stepWall(10 * 365 * 86_400_000);
  await machine.pass(30 * 60_000);
  assert.equal((await machine.settle(log.stats())).count, 2, "ten years in a moment are not believed");
  machine.clock.stepWall(-10 * 365 * 86_400_000);
  await machine.pass(3 * 3_600_000);
  assert.equal((await machine.settle(log.stats())).count, 2);
  await machine.pass(8 * 86_400_000);
  assert.equal((await machine.settle(log.stats())).count, 0, "in its time it goes");
  await machine.settle(mq.close());
});
