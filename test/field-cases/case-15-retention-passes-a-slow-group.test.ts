import assert from "node:assert/strict";
import { test } from "node:test";
import { CRASH_POLICIES } from "../sim/sim-disk.js";
import { withDirectory } from "../support/directories.js";
import { rejectsWith } from "../support/expect.js";
import { openAt } from "../support/manual.js";
import { ManualClock } from "../support/manual-clock.js";
import { cutAtEveryCall, Simulated } from "../support/simulated.js";

const OPTIONS = { walFileBytes: "1MiB", segmentBytes: "64KiB", maxMessageBytes: "64KiB" } as const;

void test("case 15: a group that retention passes is told of one gap, and goes on at the earliest record left", async () => {
  await withDirectory(async (directory) => {
    const clock = new ManualClock();
    let mq = await openAt(clock, directory, OPTIONS);
    let log = await mq.openLog("events", { retention: { maxCount: 5000 } });
    const fill = async (count: number): Promise<void> => {
      for (let index = 0; index < count; index += 100) {
        await log.appendBatch(Array.from({ length: 100 }, () => Buffer.alloc(200)));
      }
      await clock.pass(100);
    };
    await fill(200);
    const slow = await log.group("slow");
    await slow.read({ max: 100 });
    await slow.commit(99);
    await fill(9800);
    const { head, next } = await log.stats();
    assert.ok(head >= 4000 && head <= 5000, `about half is gone: the head is ${head}`);
    const [info] = await log.groups();
    assert.deepEqual([info?.committed, info?.lag, info?.lost], [head, next - head, head - 100]);
    await mq.close();
    mq = await openAt(clock, directory, OPTIONS);
    log = await mq.openLog("events");
    const again = await log.group("slow");
    const error = await rejectsWith("ERR_OFFSET_OUT_OF_RANGE", again.read());
    assert.deepEqual({ ...error.details }, { offset: 100, next: head, lost: head - 100 });
    assert.equal((await again.read({ max: 1 }))[0]?.offset, head, "never the newest");
    assert.equal((await again.read({ max: 1 }))[0]?.offset, head + 1, "told once");
    await mq.close();
  });
});

void test("case 15: where groups hold data, the log says which; one that is idle holds no longer", async () => {
  await withDirectory(async (directory) => {
    const clock = new ManualClock();
    const mq = await openAt(clock, directory, OPTIONS);
    const retention = { maxBytes: "100KiB", holdForGroups: "24h" } as const;
    const log = await mq.openLog("events", { retention });
    const idle = await log.group("idle");
    const busy = await log.group("busy");
    await log.sharedGroup("shared");
    for (let hour = 0; hour < 23; hour++) {
      await log.appendBatch(Array.from({ length: 100 }, () => Buffer.alloc(1000)));
      const read = await busy.read();
      await busy.commit(read.length + hour * 100 - 1);
      await clock.pass(3_600_000);
    }
    const { head, bytes, furthestBack } = await log.stats();
    assert.equal(head, 0, "the log grows");
    assert.ok(bytes > 2_000_000);
    assert.ok(["idle", "shared"].includes(furthestBack?.group ?? ""), `${furthestBack?.group} holds it`);
    assert.ok((furthestBack?.bytes ?? 0) > 2_000_000);
    const held = Object.fromEntries((await log.groups()).map(({ name, heldBytes }) => [name, heldBytes]));
    assert.equal(held.busy, 0);
    assert.equal(held.idle, furthestBack?.bytes);
    await clock.pass(2 * 3_600_000);
    await busy.seek("end");
    const after = await log.stats();
    assert.ok(after.count * 1000 < 200_000, `${after.count} records are left`);
    assert.ok(after.count * 1000 >= 90_000);
    const error = await rejectsWith("ERR_OFFSET_OUT_OF_RANGE", idle.read());
    assert.deepEqual({ ...error.details }, { offset: 0, next: after.head, lost: after.head });
    for (const { name, lag, lost } of await log.groups()) {
      assert.ok(lag >= 0, "a lag is never negative");
      assert.equal(lost, name === "busy" ? 0 : after.head);
    }
    await mq.close();
  });
});

void test("case 15: the count of what was lost is exact, wherever the power fails", async () => {
  const machine = Simulated.boot(1515);
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("events"));
  for (let index = 0; index < 40; index++) await machine.settle(log.append(`${index} ${"x".repeat(3000)}`));
  const group = await machine.settle(log.group("g"));
  await machine.settle(group.read({ max: 10 }));
  await machine.settle(group.commit(9));
  await machine.settle(mq.close());
  await cutAtEveryCall(
    machine,
    CRASH_POLICIES,
    async (running) => {
      const events = await running.openLog("events");
      await events.trim(25);
      const member = await events.group("g");
      await rejectsWith("ERR_OFFSET_OUT_OF_RANGE", member.read());
      await member.read({ max: 5 });
      await member.commit(29);
    },
    async ({ mq: again, machine: next, acknowledged }) => {
      const events = await next.settle(again.openLog("events"));
      const { head } = await next.settle(events.stats());
      const [info] = await next.settle(events.groups());
      assert.ok(head === 0 || head === 25);
      assert.equal(info?.lost, head === 0 ? 0 : 15, "each record is lost once");
      if (acknowledged) assert.equal(info?.committed, 30);
      else assert.ok([10, 25, 30].includes(info?.committed as number), `committed ${info?.committed}`);
      assert.equal(info?.lag, 40 - (info?.committed as number));
    },
  );
});
