import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { withDirectory } from "../support/directories.js";
import { scaled } from "../support/scale.js";
import { seedOr } from "../support/seeded.js";
import { playWay, WAYS } from "./ways.js";

/** How many rounds each way has here; `npm run network` has more. */
const ROUNDS = scaled(1);

for (const way of WAYS) {
  void test(`clients and daemons that are killed and stand still: ${way}`, async () => {
    await withDirectory(async (directory) => {
      const first = seedOr(1);
      for (let seed = first; seed < first + ROUNDS; seed++) {
        const folder = join(directory, `${seed}`);
        mkdirSync(folder);
        const { calls, faults, anomalies } = await playWay(way, seed, folder);
        const found = anomalies.map(({ kind, what }) => `${kind}: ${what}`).join("\n");
        assert.equal(found, "", `npm run network -- --seed ${seed} --rounds 1 ${way}`);
        assert.ok(calls > 0 && faults > 1);
      }
    });
  });
}
