import assert from "node:assert/strict";
import { test } from "node:test";
import { Simulated, TINY } from "../support/simulated.js";
import { textsOf } from "../support/state.js";

for (const directory of ["/data", "/srv/data", "/srv/deep/er/data"]) {
  void test(`case 1: what is acknowledged in the new directory ${directory} is there after a power cut`, async () => {
    const machine = Simulated.boot(11);
    const mq = await machine.open(TINY, directory);
    const log = await machine.settle(mq.openLog("events"));
    await machine.settle(log.append("acknowledged"));
    const next = machine.cutPower("none");
    const again = await next.open({ ...TINY, create: false }, directory);
    assert.deepEqual(await next.settle(textsOf(await next.settle(again.openLog("events")))), ["acknowledged"]);
    await next.settle(again.close());
  });
}
