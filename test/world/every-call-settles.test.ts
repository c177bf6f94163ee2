import assert from "node:assert/strict";
import { test } from "node:test";
import { isVarveError } from "../../src/index.js";
import { Simulated } from "../support/simulated.js";

const WRITERS = 4;
const APPENDS = 20;

void test("a write that fails while a sync is under way leaves no call without an answer", async () => {
  let failures = 0;
  for (let nth = 1; nth <= WRITERS * APPENDS; nth++) {
    const machine = Simulated.boot(nth);
    const mq = await machine.open();
    const log = await machine.settle(mq.openLog("events"));
    let writes = 0;
    machine.disk.onCall = (kind, _, call) => {
      if (kind === "writeSync" && ++writes === nth) machine.disk.failAt(call, { errno: "EIO" });
    };
    // Those that do not wait for syncs see to it that a sync for others is often under way.
    const write = async (writer: number): Promise<void> => {
      for (let index = 0; index < APPENDS; index++) {
        try {
          await log.append(`${writer} ${index}`, {
            durability: writer === 0 || (writer + index) % 2 === 0 ? "async" : "sync",
          });
        } catch (error) {
          if (!isVarveError(error)) throw error;
          failures++;
        }
      }
    };
    const outcome = await machine.outcomeOf(Promise.all(Array.from({ length: WRITERS }, (_, writer) => write(writer))));
    if (outcome.kind === "rejected") throw outcome.error;
    assert.equal(outcome.kind, "resolved", `write ${nth} fails`);
  }
  assert.ok(failures > WRITERS * APPENDS);
});
