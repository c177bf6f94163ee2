import assert from "node:assert/strict";
import { test } from "node:test";
import { SimClock } from "./sim-clock.js";
import { SimRandom } from "./sim-random.js";

const newClock = (seed = 1) => new SimClock(new SimRandom(seed));

test("time stands still until the run loop has nothing else to do", async () => {
  const clock = newClock();
  const order: string[] = [];
  clock.setTimer(3_600_000, () => order.push("an hour"));
  clock.setTimer(10, () => order.push("10 ms"));
  clock.defer(() => {
    assert.equal(clock.elapsedMs(), 0);
    order.push("deferred");
  });
  order.push("now");
  assert.equal(await clock.run(), false);
  assert.deepEqual(order, ["now", "deferred", "10 ms", "an hour"]);
  assert.ok(clock.elapsedMs() >= 3_600_000);
});

test("a timer is never early, sometimes late, and never before 1 ms", async () => {
  let late = 0;
  const clock = newClock();
  for (let i = 0; i < 200; i++) {
    const ms = (i % 20) / 2;
    const startMs = clock.elapsedMs();
    await clock.settle(new Promise<void>((resolve) => clock.setTimer(ms, resolve)));
    const tookMs = clock.elapsedMs() - startMs;
    assert.ok(tookMs >= Math.max(1, ms) - 1e-6, `${ms} ms took ${tookMs}`);
    if (tookMs > Math.max(1, ms) + 0.1) late++;
  }
  assert.ok(late > 5 && late < 100, `${late} of 200 late`);
});

test("timers ring in order of their time whatever order they were set in", async () => {
  const clock = newClock();
  const random = new SimRandom(9);
  const rang: number[] = [];
  for (let i = 0; i < 500; i++) clock.setTimer(random.below(10_000), () => rang.push(clock.elapsedMs()));
  await clock.run();
  assert.equal(rang.length, 500);
  assert.deepEqual(
    rang,
    rang.toSorted((a, b) => a - b),
  );
});

test("a cancelled timer neither rings nor moves time", async () => {
  const clock = newClock();
  clock.setTimer(50, () => assert.fail("rang")).cancel();
  assert.equal(await clock.run(), false);
  assert.equal(clock.elapsedMs(), 0);
});

test("microtasks of one event are done before the next event", async () => {
  const clock = newClock();
  const order: string[] = [];
  const busy = async (name: string) => {
    for (let i = 0; i < 50; i++) await undefined;
    order.push(name);
  };
  clock.defer(() => void busy("first"));
  clock.defer(() => order.push("second"));
  await clock.run();
  assert.deepEqual(order, ["first", "second"]);
});

test("the wall clock can be stepped without elapsed time noticing", async () => {
  const clock = newClock();
  const startMs = clock.wallMs();
  let rang = false;
  clock.setTimer(100, () => {
    rang = true;
  });
  clock.stepWall(-86_400_000);
  await clock.runFor(50);
  assert.equal(rang, false);
  assert.equal(clock.elapsedMs(), 50);
  assert.equal(clock.wallMs(), startMs - 86_400_000 + 50);
  clock.stepWall(2 * 86_400_000);
  await clock.run();
  assert.equal(rang, true);
  assert.ok(clock.elapsedMs() < 200);
});

test("a stall lets time pass while nothing runs", async () => {
  const clock = newClock();
  const rang: string[] = [];
  clock.setTimer(10, () => rang.push("a"));
  clock.setTimer(20, () => rang.push("b"));
  clock.stall(5000);
  assert.deepEqual(rang, []);
  assert.equal(clock.elapsedMs(), 5000);
  await clock.run();
  assert.deepEqual(rang.toSorted(), ["a", "b"]);
  assert.equal(clock.elapsedMs(), 5000);
});

test("run stops where it is told to", async () => {
  const clock = newClock();
  let ticks = 0;
  const tick = () => {
    ticks++;
    clock.setTimer(10, tick);
  };
  tick();
  assert.equal(await clock.run(() => ticks === 5), true);
  assert.equal(ticks, 5);
  await clock.runFor(1000);
  assert.ok(ticks > 50 && ticks < 105, `${ticks} ticks`);
});

test("settle gives the promise's value or error, and notices when it never comes", async () => {
  const clock = newClock();
  assert.equal(await clock.settle(new Promise((resolve) => clock.setTimer(5, () => resolve(42)))), 42);
  const failing = new Promise((_, reject) => clock.setTimer(5, () => reject(new Error("no"))));
  await assert.rejects(clock.settle(failing), /no/);
  await assert.rejects(clock.settle(new Promise(() => {})), /stuck/);
});

test("an event that throws ends the run with its error", async () => {
  const clock = newClock();
  clock.defer(() => {
    throw new Error("uncaught");
  });
  await assert.rejects(clock.run(), /uncaught/);
});

test("a restart silences the old process and carries the wall clock on", async () => {
  const old = newClock();
  old.setTimer(10, () => assert.fail("a timer of the dead process"));
  old.defer(() => assert.fail("a callback of the dead process"));
  old.queueIo(() => assert.fail("an answer to the dead process"));
  await old.run(() => true);
  const wallMs = old.wallMs();
  const next = old.restart(60_000);
  old.setTimer(1, () => assert.fail("set after death"));
  old.defer(() => assert.fail("deferred after death"));
  await old.run();
  assert.equal(next.wallMs(), wallMs + 60_000);
  assert.notEqual(next.elapsedMs(), old.elapsedMs());
  await next.settle(new Promise<void>((resolve) => next.setTimer(1, resolve)));
});

test("the seed decides the interleaving: the same for the same, others for others", async () => {
  const trace = async (seed: number) => {
    const clock = newClock(seed);
    const order: string[] = [];
    for (let i = 0; i < 8; i++) {
      clock.queueIo(() => {
        order.push(`io ${i} at ${clock.elapsedMs()}`);
        clock.defer(() => order.push(`after ${i}`));
      });
      clock.setTimer(1, () => order.push(`timer ${i}`));
    }
    await clock.run();
    return order.join();
  };
  const traces = await Promise.all([1, 1, 2, 3, 4].map(trace));
  assert.equal(traces[0], traces[1]);
  assert.equal(new Set(traces).size, 4);
});
