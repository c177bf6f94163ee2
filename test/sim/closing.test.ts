/** What close() waits for, and what it tells. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { isVarveError, type LogQueue, type MessageQueue } from "../../src/index.js";
import { Simulated, TINY } from "../support/simulated.js";

/** Enough that the read, and each step of closing, end in either order. */
const TRIALS = 60;
const RECORDS = 60;

void test("reads that are under way when the directory is closed end before it is given up, or with ERR_CLOSED", async () => {
  const seen = { read: 0, refused: 0 };
  for (let seed = 1; seed <= TRIALS; seed++) {
    const { machine, mq, log } = await reopened(seed);
    // From both ends of what stands in segments, one by one and as a replay, which reads ahead.
    const reads: Promise<unknown>[] = [log.read(0), log.read(RECORDS / 2), allOf(log)];
    const outcomes = reads.map(async (read) => {
      try {
        await read;
        seen.read++;
      } catch (error) {
        assert.ok(isVarveError(error, "ERR_CLOSED"), `seed ${seed}: ${error}`);
        seen.refused++;
      }
    });
    await machine.pass((seed % 8) / 8);
    await machine.settle(mq.close());
    const { calls } = machine.disk;
    await machine.settle(Promise.all(outcomes));
    await machine.pass(1000);
    assert.equal(machine.disk.calls, calls, `seed ${seed}: the disk was used after the directory had been given up`);
  }
  assert.ok(seen.read > 0 && seen.refused > 0, JSON.stringify(seen));
});

void test("close() fails if what was acknowledged before it was durable can no longer be made so", async () => {
  const machine = Simulated.boot(1);
  const mq = await machine.open({ ...TINY, durability: "async" });
  const log = await machine.settle(mq.openLog("events"));
  await machine.settle(log.append("acknowledged"));
  machine.disk.onCall = (kind, path, call) => {
    if (kind === "sync" && path.includes("/wal/")) machine.disk.failAt(call, { errno: "EIO", pages: "reverted" });
  };
  const closing = mq.close();
  await assert.rejects(machine.settle(closing), (error) => {
    return isVarveError(error, "ERR_OUTCOME_UNKNOWN") && (error.cause as NodeJS.ErrnoException).code === "EIO";
  });
  await assert.rejects(mq.close(), { code: "ERR_OUTCOME_UNKNOWN" }, "it says so each time");
  machine.disk.onCall = undefined;
  const again = await machine.open(TINY);
  await machine.settle(again.close());
});

void test("close() succeeds when only the last checkpoint fails: the log has everything", async () => {
  for (const errno of ["ENOSPC", "EIO"] as const) {
    const machine = Simulated.boot(2);
    const mq = await machine.open();
    const log = await machine.settle(mq.openLog("events"));
    await machine.settle(log.append("acknowledged"));
    let failed = 0;
    machine.disk.onCall = (kind, path, call) => {
      if (kind !== "write" || !path.includes("/snap/")) return;
      failed++;
      machine.disk.failAt(call, { errno });
    };
    await machine.settle(mq.close());
    assert.ok(failed > 0);
    const next = machine.cutPower("none");
    const again = await next.open();
    assert.equal((await next.settle(again.stats())).recovery.recovered, true);
    assert.deepEqual(await next.settle(allOf(await next.settle(again.openLog("events")))), ["acknowledged"]);
  }
});

void test("close() ends a compaction wherever it is", async () => {
  const seen = { done: 0, ended: 0 };
  for (let call = 1; call <= TRIALS; call++) {
    const machine = Simulated.boot(3);
    const mq = await machine.open();
    const log = await machine.settle(mq.openLog("state"));
    for (let value = 0; value < 5; value++) {
      await machine.settle(log.append({ key: "a", payload: Buffer.alloc(1000, value) }));
    }
    const last = machine.disk.calls + call;
    const compaction = log.compact().then(
      () => seen.done++,
      (error: unknown) => {
        assert.ok(isVarveError(error, "ERR_CLOSED"), String(error));
        seen.ended++;
      },
    );
    await machine.clock.run(() => machine.disk.calls >= last, 1000);
    await machine.settle(mq.close());
    await machine.settle(compaction);
    const again = await machine.open();
    const found = await machine.settle(allOf(await machine.settle(again.openLog("state"))));
    assert.equal(found.at(-1)?.charCodeAt(0), 4);
  }
  assert.ok(seen.done > 0 && seen.ended > 0, JSON.stringify(seen));
});

/** A directory whose records are in segments, and none of them in memory. */
async function reopened(seed: number): Promise<{ machine: Simulated; mq: MessageQueue; log: LogQueue }> {
  const machine = Simulated.boot(seed);
  const first = await machine.open();
  const filling = await machine.settle(first.openLog("events"));
  for (let count = 0; count < RECORDS; count++) await machine.settle(filling.append(Buffer.alloc(20_000)));
  await machine.settle(first.close());
  const mq = await machine.open();
  return { machine, mq, log: await machine.settle(mq.openLog("events")) };
}

async function allOf(log: LogQueue): Promise<string[]> {
  const payloads: string[] = [];
  for await (const batch of log.batches()) for (const { payload } of batch) payloads.push(payload.toString());
  return payloads;
}
