import assert from "node:assert/strict";
import { test } from "node:test";
import { open } from "../../src/index.js";
import { killAgainAndAgain } from "../crash/rounds.js";
import { OPEN_OPTIONS } from "../crash/shape.js";
import { fingerprint } from "../support/directories.js";
import { positive } from "../support/scale.js";
import { seedOr, withSeed } from "../support/seeded.js";

void test("case 3: any number of kills leaves a directory that opens by itself, and the next open is silent", async () => {
  await withSeed(seedOr(Date.now()), (random) =>
    killAgainAndAgain(random, {
      rounds: positive("VARVE_CRASH_ROUNDS", 10),
      producers: 8,
      durabilities: ["sync"],
      afterwards: async (directory) => {
        const said: string[] = [];
        const say = (_fields: object, message: string): void => void said.push(message);
        const logger = { debug: () => {}, info: () => {}, warn: say, error: say };
        const settled = fingerprint(directory, isData);
        for (let time = 0; time < 2; time++) {
          const mq = await open(directory, { ...OPEN_OPTIONS, logger });
          const { recovery } = await mq.stats();
          assert.equal(recovery.recovered, false);
          assert.equal(recovery.replayedCommits, 0);
          assert.deepEqual(recovery.notes, []);
          await mq.close();
          assert.deepEqual(fingerprint(directory, isData), settled, "opening and closing changes no data file");
        }
        assert.deepEqual(said, []);
      },
    }),
  );
});

/** What holds records; the write-ahead log and the lock note down who opened them. */
function isData(path: string): boolean {
  return path.endsWith(".seg");
}
