/**
 * A small fixed part of what `npm run sim` does at length, and a proof that the simulator would notice: engines that break
 * one promise each, which it must convict.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Ledger } from "../../src/queues/ledger.js";
import { Stream } from "../../src/storage/stream.js";
import { Wal } from "../../src/storage/wal.js";
import { beforehand } from "../support/beforehand.js";
import { scaled } from "../support/scale.js";
import { flipBits } from "./bit-flips.js";
import { endAtEveryCall, FAULTS, failEveryCall, type Sweep, smallPlan } from "./exhaustive.js";
import { drawPlan, type Round } from "./plan.js";
import { runJob } from "./run.js";
import { simulate } from "./simulator.js";

const FIRST_SEED = 0x7a72;
const SEEDS = scaled(25);
/** Seeds within which a broken engine must be found out. */
const SEEDS_TO_CONVICT = 40;

const sound = await beforehand(async () => {
  for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS; seed++) {
    const { violations } = await runJob({ seed });
    assert.deepEqual(violations, [], `npm run sim -- --seed 0x${seed.toString(16)}`);
  }
});

const repeated = await beforehand(async () => {
  const hashes = new Set<string>();
  for (let seed = FIRST_SEED; seed < FIRST_SEED + 5; seed++) {
    const { violations, hash } = await runJob({ seed, twice: true });
    assert.deepEqual(violations, []);
    hashes.add(hash);
  }
  assert.equal(hashes.size, 5, "different seeds differ");
});

const ended = await beforehand(async () => {
  for (const seed of [1, 2]) assertSound(await endAtEveryCall(smallPlan(seed, 8), 4));
});

const failed = await beforehand(async () => {
  assertSound(await failEveryCall(smallPlan(3, 8), FAULTS, 3));
});

const flipped = await beforehand(async () => {
  let flips = { tried: 0, noticed: 0, unnoticed: [] as readonly string[] };
  // Some plans leave nothing to flip.
  for (let seed = 1; flips.tried <= 100; seed++) {
    flips = await flipBits(drawPlan(seed, { rounds: 1, steps: 40 }), 2000);
    assert.deepEqual(flips.unnoticed, [], `seed ${seed}`);
  }
  const { tried, noticed } = flips;
  assert.ok(noticed > 0, `${noticed} of ${tried} flips noticed`);
});

test("nothing acknowledged is lost, nothing refused turns up, every task comes to its end", sound);
test("the same seed makes the same disk calls and answers", repeated);
test("the process may end at any disk call, in any way, and again while it recovers", ended);
test("any disk call may fail", failed);
test("a flipped bit changes nothing or is noticed", flipped);

test("an engine that acknowledges before it has synced is convicted", async (context) => {
  context.mock.method(Wal.prototype, "sync", async () => {});
  await assertConvicted(/is lost|does not open|was /);
});

test("an engine that gives out offsets twice after a power cut is convicted", async (context) => {
  context.mock.method(Stream.prototype, "skip", () => {});
  await assertConvicted(/was given to message/);
});

test("an engine that ends leases early is convicted", async (context) => {
  const { deliver } = Ledger.prototype;
  context.mock.method(
    Ledger.prototype,
    "deliver",
    function (this: Ledger, ...[task, nowMs, leaseMs]: DeliverArguments) {
      deliver.call(this, task, nowMs, Math.floor(leaseMs / 2));
    },
  );
  await assertConvicted(/while leased|before its time|good \w+ was refused/);
});

type DeliverArguments = Parameters<Ledger["deliver"]>;

function assertSound({ runs, failures }: Sweep): void {
  assert.ok(runs > 20, `only ${runs} runs`);
  const told = failures.map(({ plan, report }) => `${report.violations[0]}\n${JSON.stringify(plan)}`);
  assert.deepEqual(told, []);
}

test("a life that was killed is judged by what a power cut would have left of it as well", async (context) => {
  context.mock.method(Wal.prototype, "sync", async () => {});
  const met: string[] = [];
  for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS_TO_CONVICT; seed++) {
    const plan = drawPlan(seed);
    const rounds = plan.rounds.map(({ astray: _, ...round }): Round => ({ ...round, faults: [], end: "kill" }));
    const { violations } = await simulate({ ...plan, rounds });
    // The comparison of a killed life itself finds nothing.
    if (violations[0]?.includes("(had the end been ") === true) return;
    met.push(...violations.slice(0, 1));
  }
  assert.fail(`not convicted by ${SEEDS_TO_CONVICT} seeds; met ${met.slice(0, 3).join("\n")}`);
});

async function assertConvicted(pattern: RegExp): Promise<void> {
  const met: string[] = [];
  for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS_TO_CONVICT; seed++) {
    const { violations } = await runJob({ seed });
    if (violations.some((violation) => pattern.test(violation))) return;
    met.push(...violations.slice(0, 1));
  }
  assert.fail(`not convicted by ${SEEDS_TO_CONVICT} seeds; met ${met.slice(0, 3).join("\n")}`);
}
