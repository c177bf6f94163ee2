/** The ways by which clients come to the queues, each with what a round of it is like. */

import { createServer } from "node:net";
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
    shared: false,
  }),
  tcp: async (): Promise<Place> => ({ target: `tcp://127.0.0.1:${await freePort()}` }),
  unix: async (folder: string): Promise<Place> => ({ target: `unix://${join(folder, "socket")}` }),
  /** One of the clients owns the directory, whichever opened it first, and then another one. */
  shared: async (folder: string, durability: Durability): Promise<Place> => ({
    directory: join(folder, "data"),
    durability,
    shared: true,
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
  return await playRound({ random, folder, place: await PLACES[way](folder, durability), durability, faults, drains });
}

/** A port that nobody listens on, so that a daemon that is started again is found where it was. */
function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address !== null ? address.port : 0));
    });
  });
}
