import { openAt } from "../support/manual.js";
import { ManualClock } from "../support/manual-clock.js";
import { start } from "./embedded.js";
import { defineConformance } from "./suite.js";

defineConformance("embedded, while time stands still", {
  timeStandsStill: true,
  open: (options) => {
    const clock = new ManualClock();
    return start((directory) => openAt(clock, directory, options), {
      pass: (ms) => clock.pass(ms),
      wallMs: () => clock.wallMs(),
      stepWall: (ms) => clock.stepWall(ms),
    });
  },
});
