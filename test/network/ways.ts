/** The ways by which clients come to the queues, each with what a round of it is like. */

import { join } from "node:path";
import type { Durability } from "../../src/index.js";
import { Seeded } from "../support/seeded.js";
import { playRound, type RoundResult } from "./round.js";
import type { Place } from "./shape.js";

/** Rounds of which one has all tasks worked off. */
const DRAINS_EVERY = 4;
const FAULTS_MAX = 4;

const PLACES = {
  /** The client has the directory open itself. */
  embedded: async (folder: string, durability: Durability): Promise<Place> => ({
    directory: join(folder, "data"),
    durability,
  }),
} as const;

export type Way = keyof typeof PLACES;
export const WAYS = Object.keys(PLACES) as Way[];

export function isWay(name: string): name is Way {
  return name in PLACES;
}

/** One round, as its seed has it. */
export async function playWay(way: Way, seed: number, folder: string): Promise<RoundResult> {
  const random = new Seeded(seed);
  const faults = random.between(1, FAULTS_MAX);
  const drains = seed % DRAINS_EVERY === 0;
  const durability = random.pick(["sync", "async"] as const);
  return await playRound({ random, folder, place: await PLACES[way](folder, durability), faults, drains });
}
