/**
 * A process with clients of all kinds, which goes on until it is told to stop, or is killed. Its one argument is a
 * ClientPlan as JSON.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { isVarveError, type MessageQueue } from "../../src/index.js";
import { HistoryFile } from "../history/files.js";
import { Recorder } from "../history/recorder.js";
import { awake } from "../support/awake.js";
import { Seeded } from "../support/seeded.js";
import { consumer, groupReader, looker, producer, type Role, tailer, trimmer, worker } from "./actors.js";
import { openQueues, type Place, type Queues, reach } from "./shape.js";

export interface ClientPlan {
  /** Of the process; those of its clients begin with it and a dot. */
  readonly name: string;
  readonly place: Place;
  /** File of the history. */
  readonly history: string;
  readonly seed: number;
  readonly roles: Readonly<Partial<Record<RoleName, number>>>;
}

const ROLES = { producer, consumer, tailer, groupReader, looker, trimmer, worker } as const satisfies Record<
  string,
  Role
>;
export type RoleName = keyof typeof ROLES;

const AGAIN_MS = 20;

if (process.argv[1]?.endsWith("client.js")) {
  await awake(() => run(JSON.parse(process.argv[2] as string) as ClientPlan));
  process.exit(0);
}

async function run({ name, place, history, seed, roles }: ClientPlan): Promise<void> {
  const file = new HistoryFile(history);
  const random = new Seeded(seed);
  const stop = new AbortController();
  process.on("message", () => stop.abort());
  // Whoever started it is gone.
  process.on("disconnect", () => process.exit(1));
  const queues = await insist(place, stop.signal);
  if (queues === undefined) return;
  process.send?.({ ready: true });
  const actors = Object.entries(roles).flatMap(([role, count]) =>
    Array.from({ length: count }, (_, index) => {
      const recorder = new Recorder(`${name}.${role}${index}`, file);
      const actor = { recorder, random: new Seeded(random.uint32()), queues, signal: stop.signal };
      return ROLES[role as RoleName](actor);
    }),
  );
  await Promise.all(actors);
  try {
    await queues.mq.close();
  } catch (error) {
    // Nobody is there to close it for.
    if (!isVarveError(error)) throw error;
  }
}

/** The daemon may go away, and come back, while this client comes to it. */
async function insist(place: Place, signal: AbortSignal): Promise<Queues | undefined> {
  let mq: MessageQueue | undefined;
  while (!signal.aborted) {
    try {
      mq ??= await reach(place);
      return await openQueues(mq);
    } catch (error) {
      if (!isVarveError(error)) throw error;
      await sleep(AGAIN_MS);
    }
  }
  return undefined;
}
