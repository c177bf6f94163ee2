import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { CryptoRandom, SystemClock } from "./node-clock.js";

const clock = new SystemClock();

/** The tests' own timer keeps the process alive while one of varve's, which does not, is awaited. */
async function awake<T>(promise: Promise<T>): Promise<T> {
  const alarm = setInterval(() => {}, 1000);
  try {
    return await promise;
  } finally {
    clearInterval(alarm);
  }
}

test("a timer never rings before its time", async () => {
  for (const ms of [0, 0.4, 1, 1.5, 3.3, 7]) {
    const startMs = clock.elapsedMs();
    await awake(new Promise<void>((resolve) => clock.setTimer(ms, resolve)));
    assert.ok(clock.elapsedMs() - startMs >= ms, `${ms} ms`);
  }
});

test("a cancelled timer stays silent", async () => {
  let rang = false;
  const timer = clock.setTimer(2, () => {
    rang = true;
  });
  timer.cancel();
  await awake(new Promise<void>((resolve) => clock.setTimer(5, resolve)));
  assert.equal(rang, false);
});

test("a timer longer than setTimeout can count does not ring at once", async () => {
  let rang = false;
  const timer = clock.setTimer(2 ** 40, () => {
    rang = true;
  });
  await awake(new Promise<void>((resolve) => clock.setTimer(10, resolve)));
  timer.cancel();
  assert.equal(rang, false);
});

test("a timer does not keep the process alive", () => {
  const script = `
    import { SystemClock } from ${JSON.stringify(new URL("./node-clock.js", import.meta.url).href)};
    new SystemClock().setTimer(3_600_000, () => {});
  `;
  const child = spawnSync(process.execPath, ["--input-type=module", "-e", script], { timeout: 60_000 });
  assert.equal(child.status, 0, child.stderr.toString());
});

test("defer calls back after the microtasks of this turn", async () => {
  const order: string[] = [];
  await new Promise<void>((resolve) => {
    clock.defer(() => {
      order.push("deferred");
      resolve();
    });
    void Promise.resolve()
      .then(() => Promise.resolve())
      .then(() => order.push("microtask"));
    order.push("now");
  });
  assert.deepEqual(order, ["now", "microtask", "deferred"]);
});

test("random integers cover 32 bits and do not repeat across refills", () => {
  const random = new CryptoRandom();
  const seen = new Set<number>();
  let ones = 0;
  let zeros = 0xffffffff;
  for (let i = 0; i < 4096; i++) {
    const value = random.uint32();
    assert.ok(Number.isInteger(value) && value >= 0 && value <= 0xffffffff);
    seen.add(value);
    ones |= value;
    zeros &= value;
  }
  assert.ok(seen.size > 4000, "a repeated pool would give at most 1024 values");
  assert.equal(ones >>> 0, 0xffffffff);
  assert.equal(zeros >>> 0, 0);
});
