import assert from "node:assert/strict";
import { test } from "node:test";
import type { GroupInfo, LogQueue } from "../../src/index.js";
import { withDirectory } from "../support/directories.js";
import { openAt } from "../support/manual.js";
import { ManualClock } from "../support/manual-clock.js";
import { scaled } from "../support/scale.js";

async function infoOf(log: LogQueue, name: string): Promise<GroupInfo> {
  return (await log.groups()).find((group) => group.name === name) as GroupInfo;
}

void test("case 27: the lag of a group, in records and in time, advances while nothing moves", async () => {
  await withDirectory(async (directory) => {
    const clock = new ManualClock();
    let mq = await openAt(clock, directory);
    let log = await mq.openLog("events");
    const group = await log.group("exclusive");
    const shared = await log.sharedGroup("shared", { lease: "1h" });
    assert.deepEqual([(await infoOf(log, "exclusive")).lagAge, (await infoOf(log, "shared")).lagAge], [0, 0]);
    await log.append("a");
    await clock.pass(10_000);
    await log.append("b");
    await clock.pass(50_000);
    for (const name of ["exclusive", "shared"]) {
      const { lag, lagAge } = await infoOf(log, name);
      assert.deepEqual([lag, lagAge], [2, 60_000], name);
    }
    await group.read();
    await group.commit(0);
    const task = await shared.dequeue();
    await clock.pass(5000);
    assert.equal((await infoOf(log, "exclusive")).lagAge, 55_000);
    assert.equal((await infoOf(log, "shared")).lagAge, 65_000, "what is in hand is not done");
    await shared.ack(task?.token as string);
    await mq.close();
    mq = await openAt(clock, directory);
    log = await mq.openLog("events");
    await clock.pass(5000);
    for (const name of ["exclusive", "shared"]) {
      // In a segment the times of single records are only known about: "b" is 10 seconds younger than "a".
      const { lagAge } = await infoOf(log, name);
      assert.ok(lagAge >= 60_000 && lagAge <= 70_000, `${name}: a reopen does not make it young: ${lagAge} ms`);
    }
    await mq.close();
  });
});

void test("case 27: the lag of a group costs the same whatever the backlog", async () => {
  await withDirectory(async (directory) => {
    const clock = new ManualClock();
    const options = { durability: "async", walFileBytes: "1MiB", segmentBytes: "1MiB" } as const;
    const mq = await openAt(clock, directory, options);
    const [log, empty] = [await mq.openLog("events"), await mq.openLog("empty")];
    for (const each of [log, empty]) await each.group("g");
    for (let index = 0; index < scaled(50_000); index += 500) {
      await log.appendBatch(Array.from({ length: 500 }, () => "x".repeat(100)));
    }
    const cost = async (each: LogQueue): Promise<number> => {
      const start = performance.now();
      for (let round = 0; round < 200; round++) await each.groups();
      return performance.now() - start;
    };
    await cost(empty);
    const nothing = await cost(empty);
    const much = await cost(log);
    assert.ok(much < 50 * nothing + 200, `${much} ms for 200 calls, ${nothing} ms when there is nothing`);
    await mq.close();
  });
});
