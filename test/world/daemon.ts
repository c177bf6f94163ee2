/** A daemon is killed under the load of Kestrel clients, which write down what they are told (test/kestrel/kill.ts). */

import { join } from "node:path";
import { killDaemons } from "../kestrel/kill.js";
import type { Outcome, Stage } from "./rounds.js";

const ROUNDS = 100;

export async function daemon({ random, folder, scale, isTimeUp }: Stage): Promise<Outcome> {
  const rounds = Math.max(1, Math.round(ROUNDS * scale));
  const { kills, stored, confirmed, open } = await killDaemons(join(folder, "data"), rounds, random, isTimeUp);
  return {
    line: `${kills} times a daemon was killed, ${stored} sets acknowledged, ${confirmed} reads confirmed, ${open} open at a kill`,
    ...(kills < rounds ? { leftOut: `kills of a daemon: ${rounds - kills}` } : {}),
  };
}
