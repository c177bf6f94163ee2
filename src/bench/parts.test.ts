import assert from "node:assert/strict";
import { existsSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { withDirectory } from "../../test/support/directories.js";
import { overwriteSync, rawRead, rawScan, rawWrite } from "./baseline.js";
import { type Contestant, drive, interleave, ratios } from "./interleave.js";
import { Probe, spread } from "./measure.js";
import { payloadsOf, random } from "./payload.js";
import { ratio, table } from "./report.js";
import { withScratch } from "./scratch.js";

test("the spread of an even number of values has the mean of the middle two as its median", () => {
  assert.deepEqual(spread([9, 1, 5]), { median: 5, min: 1, max: 9 });
  assert.deepEqual(spread([4, 1, 2, 10]), { median: 3, min: 1, max: 10 });
});

test("a probe keeps percentiles in microseconds, forgets the warm-up and knows when its time is over", () => {
  const probe = new Probe();
  probe.lap(performance.now() - 500);
  probe.reset();
  assert.equal(probe.latency().maxUs, 0);
  probe.begin(60_000);
  for (let i = 0; i < 99; i++) assert.equal(probe.lap(performance.now() - 10), false);
  probe.begin(0);
  assert.equal(probe.lap(performance.now() - 1000), true);
  const { p50Us, maxUs } = probe.latency();
  assert.ok(p50Us >= 9_900 && p50Us < maxUs, `${p50Us}`);
  assert.ok(maxUs >= 990_000, `${maxUs}`);
});

test("contestants take turns, backwards in every other round, and the warm-up does not count", async () => {
  const order: string[] = [];
  const contestant = (name: string): Contestant => ({
    name,
    run(messages) {
      order.push(`${name}${messages}`);
      return messages;
    },
    settle() {
      order.push(`${name}.`);
    },
  });
  const [a, b] = [contestant("a"), contestant("b")];
  const timings = await interleave([a, b], {
    rounds: 2,
    roundLimitMs: 1e6,
    messages: ({ name }) => (name === "a" ? 10 : 20),
  });
  assert.equal(order.join(" "), "a5 a. b10 b. b20 b. a10 a. a10 a. b20 b.");
  assert.equal(timings.get(a)?.messages, 20);
  assert.equal(timings.get(b)?.rates.length, 2);
});

test("ratios pair the rates of the same round", () => {
  const timing = (rates: number[]) => ({ messages: 0, seconds: 0, rates, probe: new Probe() });
  assert.deepEqual(ratios(timing([10, 30]), timing([5, 10])), [2, 3]);
});

test("drive keeps as many operations in flight as it has loops, and does exactly what was asked", async () => {
  let inFlight = 0;
  let most = 0;
  let calls = 0;
  const done = await drive(4, 10, 3, new Probe(), async () => {
    calls += 1;
    inFlight += 1;
    most = Math.max(most, inFlight);
    await new Promise(setImmediate);
    inFlight -= 1;
  });
  assert.deepEqual({ done, calls, most }, { done: 10, calls: 10, most: 4 });
});

test("drive ends early when the time is over, and stops all loops when one fails", async () => {
  const probe = new Probe();
  probe.begin(0);
  const done = await drive(1, 1000, 10, probe, () => Promise.resolve());
  assert.ok(done >= 1 && done <= 10, `${done}`);

  let calls = 0;
  const failing = drive(2, 1000, 10, new Probe(), async () => {
    calls += 1;
    if (calls === 5) throw new Error("no");
  });
  await assert.rejects(failing, /no/);
  await new Promise(setImmediate);
  assert.ok(calls < 10, `${calls}`);
});

test("the bare loops handle what they are asked for and leave no file behind", () =>
  withDirectory(async (directory) => {
    const writing = rawWrite(directory, 1000);
    assert.equal(writing.run(200, new Probe()), 200);
    assert.equal(statSync(join(directory, "raw-write")).size, 200_000);
    await writing.settle?.();
    assert.deepEqual(readdirSync(directory), []);
    const loops = [
      writing,
      rawScan(directory, 1000, 100),
      rawRead(directory, 1000, 100),
      overwriteSync(directory, 1000, "pool"),
      overwriteSync(directory, 1000, "blocking"),
    ];
    // More than the file holds: reading starts over.
    for (const loop of loops) assert.equal(await loop.run(250, new Probe()), 250, loop.name);
    for (const loop of loops) loop.close();
    assert.deepEqual(readdirSync(directory), []);
  }));

test("payloads differ from each other and are the same in every run", () => {
  const [a, b] = payloadsOf(64, 2);
  assert.notDeepEqual(a, b);
  assert.deepEqual(payloadsOf(64, 2), [a, b]);
  const next = random(3);
  const drawn = Array.from({ length: 1000 }, () => next(10));
  assert.equal(new Set(drawn).size, 10);
  assert.ok(drawn.every((value) => Number.isInteger(value) && value >= 0 && value < 10));
});

test("a scratch directory is gone afterwards, also after a failure", () =>
  withDirectory(async (parent) => {
    let made = "";
    const failing = withScratch(parent, async (directory) => {
      made = directory;
      assert.ok(existsSync(directory));
      throw new Error("no");
    });
    await assert.rejects(failing, /no/);
    assert.notEqual(made, "");
    assert.deepEqual(readdirSync(parent), []);
  }));

test("tables align names left and numbers right", () => {
  assert.equal(table(["name", "n"], [["a", "1,000"]]), "name      n\na     1,000");
  assert.equal(ratio({ median: 12.34, min: 0.456, max: 1234 }), "12.3 (0.46 - 1234)");
});
