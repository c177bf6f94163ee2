/** Both fronts of a daemon look out for the next request when they have been sent something. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { BusyPoll } from "../src/net/busy-poll.js";
import { withFront } from "./kestrel/front.js";
import { withNative } from "./native/raw-native.js";

function looks(): { readonly busyPoll: BusyPoll; seen(): Promise<boolean> } {
  let count = 0;
  return {
    busyPoll: new BusyPoll(1, { nowMs: () => 0, nextTurn: () => count++ }),
    async seen() {
      for (let waits = 0; waits < 5000 && count === 0; waits++) await setTimeout(1);
      return count > 0;
    },
  };
}

test("the Kestrel front looks out for the next request", async () => {
  const { busyPoll, seen } = looks();
  await withFront({ kestrel: { busyPoll } }, async ({ client }) => {
    (await client()).socket.write("version\r\n");
    assert.ok(await seen());
  });
});

test("the native front looks out for the next request", async () => {
  const { busyPoll, seen } = looks();
  await withNative({ native: { busyPoll } }, async ({ connect }) => {
    (await connect()).socket.write("v");
    assert.ok(await seen());
  });
});
