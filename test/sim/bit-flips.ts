/** Rot: one flipped bit anywhere must change nothing, or be noticed. */

import { resolveOpenOptions } from "../../src/api/options.js";
import { isVarveError } from "../../src/index.js";
import { LogState } from "../../src/queues/log-state.js";
import { TaskState } from "../../src/queues/task-state.js";
import { StreamReader } from "../../src/storage/stream-reader.js";
import { lookAtTasks, numberOf } from "./look.js";
import type { Plan } from "./plan.js";
import { SimClock } from "./sim-clock.js";
import type { SimDisk } from "./sim-disk.js";
import { SimRandom } from "./sim-random.js";
import { openDirectoryOf, Simulator } from "./simulator.js";

export interface Flips {
  readonly tried: number;
  /** Refused, reported when reading, or noted when opening. */
  readonly noticed: number;
  readonly unnoticed: readonly string[];
}

/** What a directory holds, and whether it said that anything is amiss. */
interface Contents {
  readonly records: ReadonlyMap<string, number | undefined>;
  readonly complaints: readonly string[];
}

/** Runs a plan, leaves the directory as a killed process does, and flips one bit of every so many bytes of every file. */
export async function flipBits(plan: Plan, strideBytes: number): Promise<Flips> {
  const simulator = new Simulator(plan, undefined);
  const report = await simulator.run(false);
  if (report.violations.length > 0) throw new Error(`the plan fails by itself: ${report.violations[0]}`);
  const random = new SimRandom(plan.seed);
  const { disk } = simulator;
  const sound = await contentsOf(plan, disk, random);
  if (sound.complaints.length > 0) throw new Error(`a sound directory complains: ${sound.complaints[0]}`);
  const unnoticed: string[] = [];
  let tried = 0;
  let noticed = 0;
  for (const path of disk.files()) {
    const { length } = disk.peek(path);
    for (let byte = random.below(strideBytes); byte < length; byte += 1 + random.below(2 * strideBytes)) {
      const bit = random.below(8);
      const found = await contentsOf(plan, disk, random, (copy) => copy.flipBit(path, byte, bit));
      tried++;
      if (found.complaints.length > 0) noticed++;
      const difference = compare(sound, found);
      if (difference !== undefined) unnoticed.push(`${path}, bit ${bit} of byte ${byte}: ${difference}`);
    }
  }
  return { tried, noticed, unnoticed };
}

/** How what was found differs from what there was, other than by saying so. */
function compare(sound: Contents, found: Contents): string | undefined {
  for (const [place, item] of found.records) {
    if (item === undefined) return `${place} is nobody's message`;
    if (!sound.records.has(place)) {
      if (found.complaints.length === 0) return `${place} came from nowhere`;
    } else if (sound.records.get(place) !== item) return `${place} holds message ${item}`;
  }
  if (found.complaints.length > 0) return undefined;
  for (const place of sound.records.keys())
    if (!found.records.has(place)) return `${place} is missing, and nothing was said`;
  return undefined;
}

async function contentsOf(
  plan: Plan,
  disk: SimDisk,
  random: SimRandom,
  damage: (copy: SimDisk) => void = () => {},
): Promise<Contents> {
  const clock = new SimClock(random.fork(), { wallMs: disk.clock.wallMs(), elapsedMs: 5 });
  const copy = disk.kill(random, { clock });
  damage(copy);
  const records = new Map<string, number | undefined>();
  const complaints: string[] = [];
  const complain = (error: unknown) => {
    if (!isVarveError(error)) throw error;
    complaints.push(`${error.code}: ${error.message}`);
  };
  const look = async () => {
    const options = { ...resolveOpenOptions({ walFileBytes: "256KiB", segmentBytes: "64KiB" }), ...plan };
    const { engine, report } = await openDirectoryOf({ disk: copy, clock, random: random.fork() }, options);
    complaints.push(...report.notes);
    for (const entry of engine.catalog.entries) {
      try {
        const state = engine.catalog.load(entry);
        if (state instanceof LogState) {
          const reader = new StreamReader(state.stream, engine, state.stream.head);
          for (let found = reader.next(state.stream.next); found !== "end"; found = reader.next(state.stream.next)) {
            if (found === "load") await reader.load();
            else
              records.set(
                `log/${entry.name} ${reader.record.offset}`,
                numberOf(reader.record.payload(), () => reader.record.headers()),
              );
          }
        } else if (state instanceof TaskState) {
          const { name, live, dead } = await lookAtTasks(engine, state);
          for (const task of live) records.set(`${name} ${task.place} ${task.attempt} ${task.leased}`, task.item);
          for (const letter of dead) records.set(`${name} dead ${letter.id}`, letter.item);
        }
      } catch (error) {
        complain(error);
      }
    }
  };
  await clock.settle(look().catch(complain));
  return { records, complaints };
}
