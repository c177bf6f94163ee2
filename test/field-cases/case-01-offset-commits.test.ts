import assert from "node:assert/strict";
import { test } from "node:test";
import type { GroupMember, LogQueue, SharedGroup, Task } from "../../src/index.js";
import { CRASH_POLICIES } from "../sim/sim-disk.js";
import { labelled } from "../support/expect.js";
import { scaled } from "../support/scale.js";
import { Seeded } from "../support/seeded.js";
import { Simulated } from "../support/simulated.js";

/** What clients know after several lives of one directory. */
interface Known {
  appended: number;
  /** Of the exclusive group: acknowledged, and asked for at most. */
  committed: number;
  asked: number;
  /** Of the shared group. */
  readonly done: Set<number>;
  readonly perhapsDone: Set<number>;
  trimmed: number;
  perhapsTrimmed: number;
}

/** Works until the machine stops. Each step is awaited, so at most one change is without an answer. */
async function work(
  log: LogQueue,
  group: GroupMember,
  shared: SharedGroup,
  random: Seeded,
  known: Known,
): Promise<void> {
  const inHand: Task[] = [];
  let read = -1;
  for (;;) {
    const dice = random.below(100);
    if (dice < 30) {
      const offsets = await log.appendBatch(Array.from({ length: 1 + random.below(4) }, () => random.bytes(1500)));
      known.appended = (offsets.at(-1) as number) + 1;
    } else if (dice < 50) {
      try {
        for (const { offset } of await group.read({ max: 5 })) {
          assert.ok(offset > read, "in order");
          assert.ok(offset >= known.committed, "what is committed is not read again");
          read = offset;
        }
      } catch (error) {
        assert.equal((error as { code?: string }).code, "ERR_OFFSET_OUT_OF_RANGE");
      }
    } else if (dice < 65) {
      if (read < 0) continue;
      known.asked = Math.max(known.asked, read + 1);
      await group.commit(read);
      known.committed = Math.max(known.committed, read + 1);
    } else if (dice < 80) {
      for (const task of await shared.dequeueBatch({ max: 3 })) {
        assert.ok(!known.done.has(Number(task.id)), `${task.id} is done and comes again`);
        inHand.push(task);
      }
    } else if (dice < 97) {
      const task = inHand.shift();
      if (task === undefined) continue;
      if (random.chance(0.7)) {
        known.perhapsDone.add(Number(task.id));
        await shared.ack(task);
        known.done.add(Number(task.id));
      } else if (random.chance(0.5)) {
        await shared.nack(task, { delay: 0 });
      } else {
        await shared.release(task, { to: "tail" });
      }
    } else {
      known.perhapsTrimmed = known.trimmed + random.below(Math.max(1, known.appended - known.trimmed));
      known.trimmed = await log.trim(known.perhapsTrimmed);
    }
  }
}

void test("case 1: positions and leases of groups outlive power cuts and kills", async () => {
  for (let seed = 1; seed <= scaled(25); seed++) {
    const random = new Seeded(1000 + seed);
    const known: Known = {
      appended: 0,
      committed: 0,
      asked: 0,
      done: new Set(),
      perhapsDone: new Set(),
      trimmed: 0,
      perhapsTrimmed: 0,
    };
    let machine = Simulated.boot(seed);
    for (let life = 0; life < 5; life++) {
      await labelled(
        () => `seed ${seed}, life ${life}`,
        async () => {
          const mq = await machine.open();
          const log = await machine.settle(mq.openLog("events"));
          const group = await machine.settle(log.group("exclusive"));
          const rules = { maxAttempts: 1000, backoff: { initial: 0, jitter: 0 } } as const;
          const shared = await machine.settle(log.sharedGroup("shared", rules));
          const { head, next } = await machine.settle(log.stats());
          assert.ok(next >= known.appended, "what was acknowledged is there");
          assert.ok(head >= known.trimmed && head <= Math.max(known.trimmed, known.perhapsTrimmed));
          known.trimmed = head;
          for (const { name, committed, lag, lost } of await machine.settle(log.groups())) {
            assert.ok(lag >= 0 && lost >= 0 && lag <= next, `${name}: lag ${lag}`);
            if (name !== "exclusive") continue;
            assert.ok(committed >= known.committed, `${committed} was ${known.committed}`);
            assert.ok(committed <= Math.max(known.asked, head), `${committed} was never committed`);
          }
          machine.disk.haltAt(machine.disk.calls + 20 + random.below(400));
          const outcome = await machine.outcomeOf(work(log, group, shared, random, known));
          if (outcome.kind === "rejected") throw outcome.error;
        },
      );
      machine = random.chance(0.7) ? machine.cutPower(random.pick(CRASH_POLICIES)) : machine.kill();
    }
    const mq = await machine.open();
    const log = await machine.settle(mq.openLog("events"));
    const shared = await machine.settle(log.sharedGroup("shared"));
    await machine.pass(60_000);
    const { head, next } = await machine.settle(log.stats());
    const left = new Set<number>();
    for (;;) {
      const tasks = await machine.settle(shared.dequeueBatch({ max: 1000 }));
      if (tasks.length === 0) break;
      for (const task of tasks) left.add(Number(task.id));
    }
    for (let offset = head; offset < next; offset++) {
      if (known.done.has(offset)) assert.ok(!left.has(offset), `seed ${seed}: ${offset} is done and comes again`);
      else if (!known.perhapsDone.has(offset)) assert.ok(left.has(offset), `seed ${seed}: ${offset} is lost`);
    }
    await machine.settle(mq.close());
  }
});
