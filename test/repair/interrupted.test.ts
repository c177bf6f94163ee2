/** A repair that a power cut ends at any disk call: run again, it comes to the same. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspectDirectory } from "../../src/engine/inspect.js";
import type { MessageQueue } from "../../src/index.js";
import { inspector } from "../../src/queues/inspect.js";
import { repairLocked } from "../../src/queues/repair.js";
import type { CrashPolicy } from "../sim/sim-disk.js";
import { beforehand } from "../support/beforehand.js";
import { labelled } from "../support/expect.js";
import { Simulated } from "../support/simulated.js";
import { textsOf } from "../support/state.js";

const DIRECTORY = "/srv/data";
const POLICIES: readonly CrashPolicy[] = ["all", "random"];

async function fill(mq: MessageQueue): Promise<void> {
  const events = await mq.openLog("events");
  for (let batch = 0; batch < 40; batch++) {
    await events.appendBatch(Array.from({ length: 4 }, (_, index) => `${batch * 4 + index} ${"x".repeat(1000)}`));
  }
  const jobs = await mq.openTask("jobs");
  await jobs.enqueueBatch(["a", "b", "c"]);
}

function repairOn(machine: Simulated) {
  return repairLocked({ disk: machine.disk, clock: machine.clock, random: machine.random.fork() }, DIRECTORY);
}

/** Overwrites a stretch of every file that matches. */
async function damage(machine: Simulated, folder: string, pattern: RegExp, position: number): Promise<void> {
  for (const name of machine.disk.list(folder).filter((each) => pattern.test(each))) {
    const file = machine.disk.openFile(`${folder}/${name}`, "write");
    file.writeSync(Buffer.alloc(16, 0xa5), 0, 16, position);
    await machine.settle(file.sync());
    file.close();
  }
}

const interruptedAnywhere = await beforehand(async () => {
  const base = Simulated.boot(31);
  const mq = await base.open();
  await base.settle(fill(mq));
  await base.settle(mq.close());
  await damage(base, `${DIRECTORY}/log/events`, /seg$/, 30_000);
  await damage(base, `${DIRECTORY}/snap`, /snap$/, 0);
  await damage(base, DIRECTORY, /varve.json/, 0);

  const whole = base.copy(1);
  const report = await whole.settle(repairOn(whole));
  const lost = report.losses.reduce(
    (sum, { offsets }) => sum + (offsets === undefined ? 0 : offsets[1] - offsets[0] + 1),
    0,
  );
  assert.ok(lost > 0 && lost < 40, `${lost} records lost`);

  let trials = 0;
  const known = new Set<string>();
  for (let call = 1, reached = true; reached; call += call % 40 < 5 ? 1 : 36) {
    const machine = base.copy(call);
    machine.disk.haltAt(machine.disk.calls + call);
    const outcome = await machine.outcomeOf(repairOn(machine));
    if (outcome.kind === "rejected") throw outcome.error;
    reached = machine.disk.halted;
    for (const policy of POLICIES) {
      const next = machine.cutPower(policy);
      trials++;
      const left = next.disk.fingerprint();
      if (known.has(left)) continue;
      known.add(left);
      await labelled(
        () => `power cut at call ${call}, keeping ${policy}`,
        async () => {
          await next.settle(repairOn(next));
          const verified = await next.settle(inspectDirectory(next.disk, DIRECTORY, inspector));
          assert.deepEqual(verified.problems, []);
          const again = await next.open();
          const events = await next.settle(again.openLog("events"));
          const texts = await next.settle(textsOf(events));
          assert.equal(texts.length, 40 * 4 - lost);
          assert.equal((await next.settle((await next.settle(again.openTask("jobs"))).stats())).ready, 3);
          await next.settle(again.close());
        },
      );
    }
  }
  assert.ok(trials > 60, `${trials} trials`);
});

test("a repair may be interrupted anywhere and run again", interruptedAnywhere);
