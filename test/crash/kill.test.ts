/**
 * Processes under load are killed at random moments, and what is left is judged by the journals they kept. This covers
 * the death of a process only; the simulated disk covers power cuts.
 *
 * VARVE_CRASH_ROUNDS sets the number of kills; hundreds for a release.
 */

import { test } from "node:test";
import { positive } from "../support/scale.js";
import { seedOr, withSeed } from "../support/seeded.js";
import { killAgainAndAgain } from "./rounds.js";

void test("crash: a killed process loses nothing acknowledged, and leaves nothing refused", async () => {
  await withSeed(seedOr(Date.now()), (random) =>
    killAgainAndAgain(random, {
      rounds: positive("VARVE_CRASH_ROUNDS", 20),
      producers: 6,
      durabilities: ["sync", "async"],
    }),
  );
});
