/**
 * Real power cuts: a worker on an ext4 image whose device is cut off in the midst of its work, so that what was not
 * synced is gone. The journals lie outside.
 */

import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Durability } from "../../src/index.js";
import type { Child } from "../support/child.js";
import { nowMs } from "./journal.js";
import { Judge } from "./judge.js";
import { Image, PowerSwitch, Refused } from "./mounts.js";
import { journalOf, judgeCopy, type Outcome, type Stage, startWorker } from "./rounds.js";
import type { WorkerPlan } from "./worker.js";

const ROUNDS = 100;
const IMAGE_BYTES = 96 * 1024 * 1024;
const SYNC_INTERVAL_MS = 50;
/** What calls may meet between the cut and the death of their process. */
const AFTER_THE_CUT = ["ERR_OUTCOME_UNKNOWN", "ERR_READ_ONLY", "ERR_IO", "ERR_ACCESS", "ERR_CLOSED"];

export async function power(stage: Stage): Promise<Outcome> {
  let image: Image;
  try {
    image = new Image(join(stage.folder, "image"), join(stage.folder, "mount"), IMAGE_BYTES);
  } catch (error) {
    if (error instanceof Refused) return { skipped: error.message };
    throw error;
  }
  try {
    try {
      image.mount.mount();
      await tryTheSwitch(image);
    } catch (error) {
      if (error instanceof Refused) return { skipped: error.message };
      throw error;
    }
    return await cutAgainAndAgain(stage, image);
  } finally {
    image.remove();
  }
}

async function tryTheSwitch(image: Image): Promise<void> {
  const power = new PowerSwitch(image.mount.path);
  try {
    await power.ready();
    await power.cut();
  } finally {
    await power.end();
  }
  image.mount.unmount();
  image.mount.mount();
}

async function cutAgainAndAgain(stage: Stage, image: Image): Promise<Outcome> {
  const { random, folder, scale } = stage;
  const rounds = Math.max(1, Math.round(ROUNDS * scale));
  const total = { directories: 0, acknowledged: 0, lost: 0, lossy: 0, unknown: 0, early: 0 };
  let judge = new Judge(AFTER_THE_CUT);
  let directory = "";
  let lives = 0;
  const finish = (): void => {
    total.acknowledged += judge.acknowledged;
    total.lost += judge.lost;
    total.unknown += judge.unknown;
  };
  let round = 0;
  for (; round < rounds && !stage.isTimeUp(); round++) {
    if (round === 0 || random.chance(0.15)) {
      // A new directory, whose making is cut short now and then.
      if (round > 0) finish();
      judge = new Judge(AFTER_THE_CUT);
      directory = join(image.mount.path, `data-${total.directories++}`);
    }
    const boot = `boot-${round}`;
    const start = (durability: Durability): { plan: WorkerPlan; child: Child } => {
      const plan: WorkerPlan = {
        directory,
        journal: join(folder, `journal-${lives}`),
        life: `${lives++}`,
        seed: random.uint32(),
        durability,
        mixed: random.chance(0.3),
        producers: random.between(1, 8),
        consumers: random.between(1, 4),
        options: { syncInterval: SYNC_INTERVAL_MS },
        boot,
        ...(random.chance(0.3) ? { trimTo: Math.max(0, judge.next - 500) } : {}),
      };
      return { plan, child: startWorker(plan) };
    };
    if (random.chance(0.25)) {
      // The one before was only killed: what the next one reads back is in the page cache, which proves nothing.
      const { plan, child } = start(random.pick(["sync", "async"]));
      await child.message<{ ready?: boolean }>(({ ready }) => ready === true);
      await sleep(random.between(5, 100));
      child.kill();
      await child.exited;
      judge.life(journalOf(plan), nowMs());
    }
    const { plan, child } = start(random.pick(["sync", "async"]));
    const power = new PowerSwitch(image.mount.path);
    await power.ready();
    const early = random.chance(0.2);
    if (early) total.early++;
    else await child.message<{ ready?: boolean }>(({ ready }) => ready === true);
    await sleep(early ? random.between(60, 200) : random.between(5, 250));
    const cutAt = nowMs();
    await power.cut();
    child.kill();
    const { code, stderr } = await child.exited;
    await power.end();
    // It may have noticed and ended in order.
    if (code !== null && code !== 0) throw new Error(`round ${round}: the worker broke down: ${stderr}`);
    image.mount.unmount();
    image.mount.mount();
    judge.life(journalOf(plan), cutAt);
    const before = judge.lost;
    try {
      const end = { kind: "cut", syncIntervalMs: SYNC_INTERVAL_MS } as const;
      await judgeCopy(judge, directory, folder, end, `boot-${round + 1}`);
    } catch (error) {
      throw new Error(`round ${round}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
    }
    if (judge.lost > before) total.lossy++;
  }
  finish();
  return {
    line:
      `${round} power cuts (${total.early} while opening) of ${total.directories} directories, ${total.acknowledged} calls ` +
      `acknowledged, ${total.unknown} unknown; ${total.lossy} cuts took ${total.lost} calls, all acknowledged early`,
    ...(round < rounds ? { leftOut: `power cuts: ${rounds - round}` } : {}),
  };
}
