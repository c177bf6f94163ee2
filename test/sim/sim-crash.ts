import { SECTOR_BYTES, type SimContent } from "./sim-content.js";
import {
  type BytesChange,
  type DataChange,
  firstSector,
  type HoleFiller,
  type NameChange,
  type Sectors,
  type SimInode,
  type SizeChange,
  type Survivors,
  sectorsEnd,
  withDependencies,
  withoutDependents,
} from "./sim-nodes.js";
import type { SimRandom } from "./sim-random.js";

/**
 * What a power cut keeps of the pending changes, in the order of the calls that made them:
 * - `prefix`: all up to some point, which may lie within a call;
 * - `random`: of each call nothing, all, or a random half of its sectors;
 * - `allButOne`: all but one sector, size or name;
 * - `last`: only what the last call changed.
 */
export type CrashPolicy = "none" | "all" | "prefix" | "random" | "allButOne" | "last";
export const CRASH_POLICIES: readonly CrashPolicy[] = ["none", "all", "prefix", "random", "allButOne", "last"];

/** What is read where a file has grown but its new sector was not written: zeros, what lay there before, or anything. */
export type HoleFilling = "zero" | "old" | "garbage" | "mixed";

/** Which pending changes the policy keeps. */
export function chooseSurvivors(
  inodes: readonly SimInode[],
  allNames: readonly NameChange[],
  policy: CrashPolicy,
  random: SimRandom,
): Survivors {
  const sizesFirst = random.chance(0.5);
  if (policy === "none") return { sectors: new Map(), sizes: new Set(), names: new Set() };
  if (policy === "all") return everything(inodes, allNames);
  const calls = pendingByCall(inodes, allNames, sizesFirst);
  const all = calls.flat();
  let chosen: readonly Unit[] = [];
  let names: Set<NameChange> | undefined;
  if (all.length > 0) {
    switch (policy) {
      case "prefix": {
        const cut = random.below(calls.length);
        chosen = [...calls.slice(0, cut).flat(), ...calls[cut]!.slice(0, random.below(calls[cut]!.length + 1))];
        break;
      }
      case "random":
        chosen = calls.flatMap((units) => {
          const share = random.pick([0, 0.5, 1]);
          return units.filter(() => random.chance(share));
        });
        break;
      case "allButOne": {
        // By call first: the thousand sectors of one write must not hide the others.
        const dropped = lastVersion(all, random.pick(random.pick(calls)));
        chosen = all.filter((unit) => unit !== dropped);
        if (dropped.kind === "names") names = withoutDependents(allNames, dropped.change);
        break;
      }
      case "last":
        chosen = calls.at(-1)!;
        break;
    }
  }
  const kept = { sectors: new Map<DataChange, Set<number>>(), sizes: new Set<DataChange>() };
  const chosenNames = new Set<NameChange>();
  for (const unit of chosen) {
    if (unit.kind === "names") chosenNames.add(unit.change);
    else if (unit.kind === "size") kept.sizes.add(unit.change);
    else {
      const sectors = kept.sectors.get(unit.change);
      if (sectors === undefined) kept.sectors.set(unit.change, new Set([unit.sector]));
      else sectors.add(unit.sector);
    }
  }
  return { ...kept, names: names ?? withDependencies(allNames, chosenNames) };
}

function everything(inodes: readonly SimInode[], allNames: readonly NameChange[]): Survivors {
  const sectors = new Map<DataChange, Sectors>();
  const sizes = new Set<DataChange>();
  for (const change of inodes.flatMap(({ pending }) => pending)) {
    if (change.kind === "size") sizes.add(change);
    else sectors.set(change, { has: () => true });
  }
  return { sectors, sizes, names: new Set(allNames) };
}

/** Decides for one file; `remains` are the contents of deleted files. */
export function holeFiller(holes: HoleFilling, remains: readonly SimContent[], random: SimRandom): HoleFiller {
  const filling = holes === "mixed" ? random.pick(["zero", "old", "garbage", "each"] as const) : holes;
  const before = remains.length > 0 ? random.pick(remains) : undefined;
  return (sector) => {
    switch (filling === "each" ? random.pick(["zero", "old", "garbage"] as const) : filling) {
      case "zero":
        return undefined;
      case "old":
        return before?.sector(sector);
      case "garbage": {
        const bytes = new Uint8Array(SECTOR_BYTES);
        random.fill(bytes);
        return bytes;
      }
    }
  };
}

/** All that is pending, call by call. Within a call, file systems differ on whether sizes or bytes come first. */
function pendingByCall(inodes: readonly SimInode[], names: readonly NameChange[], sizesFirst: boolean): Unit[][] {
  const byStamp = new Map<number, Unit[]>();
  const add = (unit: Unit) => {
    const units = byStamp.get(unit.change.stamp);
    if (units === undefined) byStamp.set(unit.change.stamp, [unit]);
    else units.push(unit);
  };
  for (const inode of inodes) {
    for (const change of inode.pending) {
      if (change.kind === "size") add({ kind: "size", inode, change });
      else {
        const end = sectorsEnd(change);
        for (let sector = firstSector(change); sector < end; sector++) add({ kind: "sector", inode, change, sector });
      }
    }
  }
  for (const change of names) add({ kind: "names", change });
  const calls = [...byStamp.keys()].sort((a, b) => a - b).map((stamp) => byStamp.get(stamp)!);
  if (sizesFirst) for (const units of calls) units.sort((a, b) => rank(a) - rank(b));
  return calls;
}

/** The smallest thing that a power cut keeps or drops. */
type Unit =
  | { readonly kind: "sector"; readonly inode: SimInode; readonly change: BytesChange; readonly sector: number }
  | { readonly kind: "size"; readonly inode: SimInode; readonly change: SizeChange }
  | { readonly kind: "names"; readonly change: NameChange };

function rank(unit: Unit): number {
  return unit.kind === "sector" ? 1 : 0;
}

/** The newest version of the same sector or size: dropping an older one would drop nothing. */
function lastVersion(units: readonly Unit[], unit: Unit): Unit {
  if (unit.kind === "names") return unit;
  return units.findLast(
    (other) =>
      other.kind === unit.kind &&
      other.inode === unit.inode &&
      (other.kind !== "sector" || unit.kind !== "sector" || other.sector === unit.sector),
  )!;
}
