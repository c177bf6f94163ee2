import assert from "node:assert/strict";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Durability, open, type RecoveryReport } from "../../src/index.js";
import { startChild } from "../support/child.js";
import { withDirectory } from "../support/directories.js";
import type { Seeded } from "../support/seeded.js";
import { readJournal } from "./journal.js";
import { Judge } from "./judge.js";
import { OPEN_OPTIONS } from "./shape.js";

export interface RoundsOptions {
  readonly rounds: number;
  readonly producers: number;
  readonly durabilities: readonly Durability[];
  /** Runs at the end, with the directory closed. */
  readonly afterwards?: (directory: string) => Promise<void>;
}

/**
 * Kills a process under load, again and again, on one directory. After some of the kills the directory is looked at,
 * after others the next process is the first to open it; some are killed before they have even opened it.
 */
export async function killAgainAndAgain(random: Seeded, options: RoundsOptions): Promise<void> {
  await withDirectory(async (parent) => {
    const directory = join(parent, "data");
    const journal = join(parent, "journal");
    let judge: Judge | undefined;
    let read = 0;
    const judgeNow = (): Judge => {
      const entries = readJournal(journal);
      judge ??= new Judge([]);
      judge.extend(entries.slice(read));
      read = entries.length;
      return judge;
    };
    let opened = 0;
    for (let round = 0; round < options.rounds; round++) {
      const child = startChild(import.meta.url, "./worker.js", {
        args: [
          directory,
          journal,
          `${round}`,
          `${random.uint32()}`,
          random.pick(options.durabilities),
          `${options.producers}`,
        ],
      });
      const early = round > 0 && random.chance(0.2);
      if (!early) {
        await child.message<{ recovery: RecoveryReport }>(({ recovery }) => recovery !== undefined);
        opened++;
      }
      await sleep(random.between(early ? 20 : 5, early ? 120 : 300));
      child.kill();
      const { signal, stderr } = await child.exited;
      assert.equal(signal, "SIGKILL", `the worker ended by itself: ${stderr}`);
      if (random.chance(0.4)) {
        const mq = await open(directory, OPEN_OPTIONS);
        await judgeNow().look(mq);
        const { next } = await (await mq.openLog("events")).stats();
        if (random.chance(0.5)) await (await mq.openLog("events")).trim(random.below(next + 1));
        await mq.close();
      }
    }
    const mq = await open(directory, OPEN_OPTIONS);
    const last = judgeNow();
    await last.look(mq);
    await last.drain(mq);
    await mq.close();
    assert.ok(last.acknowledged >= opened, "the workers did work");
    await options.afterwards?.(directory);
  });
}
