/** A process is killed under load, again and again, on one directory, and after every round the directory is judged. */

import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { nowMs } from "./journal.js";
import { Judge } from "./judge.js";
import { journalOf, judgeCopy, type Outcome, type Stage, startWorker } from "./rounds.js";
import type { WorkerPlan } from "./worker.js";

const KILLS = 200;
/** Rounds of which one has every file checked as well. */
const CHECK_FILES_EVERY = 5;
/** Records that the log keeps from round to round, about. */
const RECORDS_KEPT = 500;

export async function kill(stage: Stage): Promise<Outcome> {
  const { random, folder, scale } = stage;
  const directory = join(folder, "data");
  const judge = new Judge();
  const wanted = Math.max(1, Math.round(KILLS * scale));
  let kills = 0;
  let round = 0;
  for (; kills < wanted && !stage.isTimeUp(); round++) {
    // Sometimes the one who is to recover is killed as well, perhaps in the midst of it.
    for (let again = true; again; again = random.chance(0.2)) {
      const life = `${kills++}`;
      const plan: WorkerPlan = {
        directory,
        journal: join(folder, `journal-${life}`),
        life,
        seed: random.uint32(),
        durability: random.pick(["sync", "async"]),
        mixed: random.chance(0.6),
        producers: 8,
        consumers: 8,
        ...(random.chance(0.3) ? { trimTo: Math.max(0, judge.next - RECORDS_KEPT) } : {}),
      };
      const child = startWorker(plan);
      const early = random.chance(0.15);
      if (!early) await child.message<{ ready?: boolean }>(({ ready }) => ready === true);
      await sleep(early ? random.between(30, 150) : random.between(5, 150));
      child.kill();
      const { signal, stderr } = await child.exited;
      if (signal !== "SIGKILL") throw new Error(`round ${round}: the worker ended by itself: ${stderr}`);
      judge.life(journalOf(plan), nowMs());
    }
    try {
      const checksFiles = round % CHECK_FILES_EVERY === 0;
      await judgeCopy(judge, directory, folder, { kind: "kill" }, undefined, {}, checksFiles);
    } catch (error) {
      throw new Error(`round ${round}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
    }
  }
  return {
    line:
      `${round} rounds, ${kills} kills, ${judge.acknowledged} calls acknowledged, ${judge.deliveries} deliveries, ` +
      `${judge.unknown} calls cut off`,
    ...(kills < wanted ? { leftOut: `kills: ${wanted - kills}` } : {}),
  };
}
