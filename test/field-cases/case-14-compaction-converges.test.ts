import assert from "node:assert/strict";
import { test } from "node:test";
import type { LogQueue, MessageQueue } from "../../src/index.js";
import { message } from "../../src/index.js";
import { CRASH_POLICIES } from "../sim/sim-disk.js";
import { bytesBelow, fingerprint, withDirectory } from "../support/directories.js";
import { eventually } from "../support/expect.js";
import { openAt } from "../support/manual.js";
import { ManualClock } from "../support/manual-clock.js";
import { scaled } from "../support/scale.js";
import { Seeded } from "../support/seeded.js";
import { cutAtEveryCall, Simulated } from "../support/simulated.js";
import { recordsOf } from "../support/state.js";

const OPTIONS = {
  durability: "async",
  walFileBytes: "1MiB",
  segmentBytes: "256KiB",
  maxMessageBytes: "64KiB",
} as const;
const KEYS = scaled(1000);
const UPDATES = scaled(300_000);
const DELETES = KEYS / 10;
const GRACE_MS = 3_600_000;

/** The last payload under each key, as a replay from the start finds it; "" for what was deleted. */
async function replay(log: LogQueue): Promise<Map<string, string>> {
  const map = new Map<string, string>();
  for await (const records of log.batches()) {
    for (const { key, payload, tombstone } of records) {
      map.set(key?.toString() ?? "", tombstone ? "" : payload.toString());
    }
  }
  return map;
}

/** The same without the keys that were deleted. */
function living(map: ReadonlyMap<string, string>): [string, string][] {
  return [...map].filter(([, payload]) => payload !== "").sort(([a], [b]) => (a < b ? -1 : 1));
}

void test("case 14: a log stays in proportion to its keys, and forgets what was deleted in the end", async () => {
  await withDirectory(async (directory) => {
    const random = new Seeded(1414);
    const clock = new ManualClock();
    const model = new Map<string, string>();
    let mq: MessageQueue = await openAt(clock, directory, OPTIONS);
    const openLog = () => mq.openLog("prices", { compaction: { grace: GRACE_MS } });
    let log = await openLog();
    const body = "x".repeat(60);
    const rounds = 6;
    for (let round = 0; round < rounds; round++) {
      for (let count = 0; count < UPDATES / rounds; ) {
        const changes: Promise<number>[] = [];
        for (let each = 0; each < 500; each++, count++) {
          const key = `key ${random.below(KEYS)}`;
          const payload = `${round} ${count} ${body}`;
          changes.push(log.append(message(payload, { key })));
          model.set(key, payload);
        }
        await Promise.all(changes);
      }
      // In the background, which gets to it when there is less to do.
      const live = [...model].reduce((sum, [key, payload]) => sum + key.length + payload.length, 0);
      const newest = 256 * 1024 + 4 * 1024 * 1024;
      await eventually("the log is in proportion to its keys", async () => {
        await clock.pass(1000); // the rewriter rests by the clock while checkpoints are behind
        return (await log.stats()).bytes <= 3 * live + newest;
      });
      await mq.close();
      mq = await openAt(clock, directory, OPTIONS);
      log = await openLog();
    }
    const live = [...model].reduce((sum, [key, payload]) => sum + key.length + payload.length, 0);
    const { count } = await log.stats();
    assert.ok(count < UPDATES / 4, `${count} of ${UPDATES} records`);
    assert.deepEqual(living(await replay(log)), living(model));

    for (let index = 0; index < DELETES; index++) {
      await log.delete(`key ${index}`);
      model.set(`key ${index}`, "");
    }
    await log.compact();
    assert.equal((await log.stats()).count, model.size, "one record for each key, tombstones among them");
    assert.deepEqual([...(await replay(log))].sort(), [...model].sort());
    const segments = (path: string) => path.endsWith(".seg");
    const before = fingerprint(directory, segments);
    assert.equal((await log.compact()).recordsRemoved, 0);
    assert.deepEqual(fingerprint(directory, segments), before, "a pass over unchanged data rewrites nothing");

    await clock.pass(GRACE_MS + GRACE_MS / 4 + 60_000);
    await log.append(message("the last", { key: "last" }));
    model.set("last", "the last");
    await log.compact();
    const records = await recordsOf(log);
    assert.ok(
      records.every(({ tombstone }) => !tombstone),
      "no tombstone is left",
    );
    assert.equal(records.length, living(model).length);
    assert.deepEqual(living(await replay(log)), living(model));
    await mq.close();
    assert.ok(bytesBelow(`${directory}/log`) < 3 * live + 64 * 1024, "what is superseded is gone from the disk");
  });
});

/** Two segments and the rest in the log, with every key again and again, two of them deleted. */
async function prepared(): Promise<{ machine: Simulated; model: Map<string, string> }> {
  const machine = Simulated.boot(141);
  const mq = await machine.open();
  const log = await machine.settle(mq.openLog("prices"));
  const model = new Map<string, string>();
  for (let index = 0; index < 120; index++) {
    const key = `key ${index % 9}`;
    const payload = `${index} ${"x".repeat(index % 10 === 0 ? 12_000 : 1000)}`;
    await machine.settle(log.append(message(payload, { key })));
    model.set(key, payload);
  }
  for (const key of ["key 3", "key 5"]) {
    await machine.settle(log.delete(key));
    model.set(key, "");
  }
  await machine.pass(25 * 3_600_000);
  await machine.settle(mq.close());
  return { machine, model };
}

void test("case 14: wherever the power fails in a pass, a replay gives the same", async () => {
  const { machine: base, model } = await prepared();
  let compacted = 0;
  const trials = await cutAtEveryCall(
    base,
    CRASH_POLICIES,
    async (mq) => {
      await (await mq.openLog("prices")).compact();
    },
    async ({ mq, machine, acknowledged }) => {
      const log = await machine.settle(mq.openLog("prices"));
      assert.deepEqual(living(await machine.settle(replay(log))), living(model));
      const { count, next } = await machine.settle(log.stats());
      assert.equal(next, 122);
      if (acknowledged) assert.equal(count, 7, "durable when it says so");
      assert.ok(count === 122 || count === 7, `all of it or nothing: ${count} records`);
      if (count === 7) compacted++;
      // What the crash has left is no obstacle, and does not stay.
      await machine.settle(log.compact());
      assert.equal((await machine.settle(log.stats())).count, 7);
      assert.deepEqual(living(await machine.settle(replay(log))), living(model));
      const folder = "/srv/data/log/prices";
      const left = machine.disk.list(folder).filter((name) => name.endsWith(".seg"));
      assert.ok(left.length <= 2, `segments: ${left.join(", ")}`);
    },
  );
  assert.ok(trials > 20 * CRASH_POLICIES.length, `${trials} trials`);
  assert.ok(compacted > 0 && compacted < trials, `${compacted} of ${trials} power cuts came after it was done`);
});

void test("case 14: a full disk stops a pass, and nothing else", async () => {
  const { machine: base, model } = await prepared();
  for (let free = 0; ; free += 4096) {
    const machine = base.copy(free + 1);
    const mq = await machine.open();
    const log = await machine.settle(mq.openLog("prices"));
    machine.disk.capacityBytes = machine.disk.usedBytes + free;
    const outcome = await machine.outcomeOf(log.compact());
    assert.notEqual(outcome.kind, "unanswered");
    if (outcome.kind === "rejected") {
      assert.equal((outcome.error as { code: string }).code, "ERR_DISK_FULL");
      machine.disk.capacityBytes = Number.POSITIVE_INFINITY;
      assert.deepEqual(living(await machine.settle(replay(log))), living(model));
      assert.equal(await machine.settle(log.append("more")), 122, "writes work again");
      await machine.settle(log.compact());
    }
    assert.equal((await machine.settle(log.stats())).count, outcome.kind === "rejected" ? 8 : 7);
    await machine.settle(mq.close());
    if (outcome.kind === "resolved") {
      assert.ok(free > 0, "it was full at least once");
      return;
    }
  }
});
