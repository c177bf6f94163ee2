import type { DialledMessageQueue } from "../../src/client/message-queue.js";
import { openAt } from "../support/manual.js";
import { ManualClock } from "../support/manual-clock.js";
import { EXCEPTIONS, start } from "./dialled.js";
import { defineConformance } from "./suite.js";

defineConformance("dialled over unix, while time stands still", {
  timeStandsStill: true,
  exceptions: EXCEPTIONS,
  open: (options) => {
    let client: () => DialledMessageQueue;
    const clock = new ManualClock(async () => {
      // There and back again, so that what is on its way has arrived.
      for (let trip = 0; trip < 2; trip++) {
        for (let turn = 0; turn < 4; turn++) await new Promise((resolve) => setImmediate(resolve));
        await client()
          .ping()
          .catch(() => {});
      }
    });
    return start(
      "unix",
      { timers: clock },
      (directory) => openAt(clock, directory, options),
      (current) => {
        client = current;
        return {
          pass: (ms) => clock.pass(ms),
          wallMs: () => clock.wallMs(),
          stepWall: (ms) => clock.stepWall(ms),
        };
      },
    );
  },
});
