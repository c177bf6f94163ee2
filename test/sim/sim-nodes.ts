import { SECTOR_BYTES, SimContent } from "./sim-content.js";

/** A file as the simulated disk knows it, whatever its names. */
export class SimInode {
  cache = new SimContent();
  platter = new SimContent();
  /** What the platter has yet to learn, oldest first. */
  pending: DataChange[] = [];
  /** Names in the cache. */
  links = 0;
  handles = 0;
}

/**
 * One step from the platter's state towards the cache's. `stamp` numbers the steps of a disk in the order in which they
 * took effect; those of one call have the same.
 */
export type DataChange = BytesChange | SizeChange;
export interface BytesChange {
  readonly stamp: number;
  readonly kind: "bytes";
  readonly position: number;
  readonly bytes: Uint8Array;
}
export interface SizeChange {
  readonly stamp: number;
  readonly kind: "size";
  readonly size: number;
}

function applyChange(content: SimContent, change: DataChange): void {
  if (change.kind === "bytes") content.write(change.bytes, change.position);
  else content.resize(change.size);
}

/** The first sector that a change touches. */
export function firstSector({ position }: BytesChange): number {
  return Math.floor(position / SECTOR_BYTES);
}

/** The sector behind the last one that a change touches. */
export function sectorsEnd({ position, bytes }: BytesChange): number {
  return Math.ceil((position + bytes.length) / SECTOR_BYTES);
}

/** Brings the platter up to what had happened by `stamp`. */
export function settleFile(inode: SimInode, stamp: number): void {
  for (const change of inode.pending) if (change.stamp <= stamp) applyChange(inode.platter, change);
  inode.pending = inode.pending.filter((change) => change.stamp > stamp);
}

/** A sync that failed: the bytes written by `stamp` count as clean, though the platter does not have them. */
export function forsakeBytes(inode: SimInode, stamp: number, pages: "kept" | "reverted"): void {
  const forsaken = (change: DataChange) => change.kind === "bytes" && change.stamp <= stamp;
  const gone = inode.pending.filter(forsaken) as BytesChange[];
  inode.pending = inode.pending.filter((change) => !forsaken(change));
  if (pages === "kept") return;
  const sectors = new Set<number>();
  for (const change of gone) {
    for (let sector = firstSector(change); sector < sectorsEnd(change); sector++) sectors.add(sector);
  }
  for (const sector of sectors) {
    const start = sector * SECTOR_BYTES;
    inode.cache.write(inode.platter.sector(sector).subarray(0, Math.max(0, inode.cache.size - start)), start);
  }
  for (const change of inode.pending) if (change.kind === "bytes") applyChange(inode.cache, change);
}

/**
 * What is on the platter after a power cut that kept some of the pending changes. A kept sector is written as the cache
 * had it right after the change: disks write sectors, not bytes. Sectors of the file that should have been written for
 * the first time, and were not, are holes.
 */
export function persist(inode: SimInode, kept: Survivors, fillHole: HoleFiller): SimContent {
  const result = inode.platter.clone();
  if (inode.pending.length === 0) return result;
  const running = inode.platter.clone();
  const missing = new Set<number>();
  for (const change of inode.pending) {
    applyChange(running, change);
    if (change.kind === "size") {
      if (kept.sizes.has(change)) result.resize(change.size);
      continue;
    }
    const survivors = kept.sectors.get(change);
    const end = sectorsEnd(change);
    for (let first = firstSector(change); first < end; ) {
      const survives = survivors?.has(first) === true;
      let next = first + 1;
      while (next < end && (survivors?.has(next) === true) === survives) next++;
      if (survives) result.copySectors(running, first, next);
      else for (let sector = first; sector < next; sector++) missing.add(sector);
      first = next;
    }
  }
  for (const sector of missing) {
    if (sector * SECTOR_BYTES >= result.size || result.isMapped(sector)) continue;
    const filling = fillHole(sector);
    if (filling !== undefined) result.write(filling, sector * SECTOR_BYTES);
  }
  result.clearBeyondEnd();
  return result;
}

/** Sectors of one change. */
export interface Sectors {
  has(sector: number): boolean;
}

/** The pending changes that a power cut keeps. */
export interface Survivors {
  readonly sectors: ReadonlyMap<DataChange, Sectors>;
  readonly sizes: Set<DataChange>;
  readonly names: Set<NameChange>;
}

/** What a hole's sector reads as; undefined for zeros. */
export type HoleFiller = (sector: number) => Uint8Array | undefined;

export class SimDirectory {
  /** Names as the running system sees them. */
  entries = new Map<string, SimNode>();
  /** Names as the next boot will find them. */
  platter = new Map<string, SimNode>();
}

export type SimNode = SimInode | SimDirectory;

/** A creation, removal or renaming: all of it becomes durable, or nothing. */
export interface NameChange {
  readonly stamp: number;
  readonly entries: readonly { directory: SimDirectory; name: string; node: SimNode | undefined }[];
  /** The files and directories that gain or lose a name by it. */
  readonly nodes: readonly SimNode[];
}

/**
 * True if `later` cannot be durable without `earlier`: both change the same name or move the same file. Every file
 * system keeps at least this order; a simulation that did not would, for example, give one file two names.
 */
function dependsOn(later: NameChange, earlier: NameChange): boolean {
  return (
    later.nodes.some((node) => earlier.nodes.includes(node)) ||
    later.entries.some((a) => earlier.entries.some((b) => a.directory === b.directory && a.name === b.name))
  );
}

/** Adds to the chosen changes all that they depend on. */
export function withDependencies(all: readonly NameChange[], chosen: ReadonlySet<NameChange>): Set<NameChange> {
  const result = new Set(chosen);
  for (let i = all.length - 1; i >= 0; i--) {
    if (!result.has(all[i]!)) continue;
    for (let j = 0; j < i; j++) if (dependsOn(all[i]!, all[j]!)) result.add(all[j]!);
  }
  return result;
}

/** All changes but the one dropped and those that depend on it. */
export function withoutDependents(all: readonly NameChange[], dropped: NameChange): Set<NameChange> {
  const gone = new Set([dropped]);
  for (const change of all.slice(all.indexOf(dropped) + 1)) {
    if ([...gone].some((earlier) => dependsOn(change, earlier))) gone.add(change);
  }
  return new Set(all.filter((change) => !gone.has(change)));
}

export function applyNames(change: NameChange, names: (directory: SimDirectory) => Map<string, SimNode>): void {
  for (const { directory, name, node } of change.entries) {
    if (node === undefined) names(directory).delete(name);
    else names(directory).set(name, node);
  }
}

/** Calls back for everything below a directory, as the cache has it. */
export function walk(directory: SimDirectory, path: string, visit: (path: string, node: SimNode) => void): void {
  for (const [name, node] of directory.entries) {
    visit(`${path}/${name}`, node);
    if (node instanceof SimDirectory) walk(node, `${path}/${name}`, visit);
  }
}

/** True if `inner` is the directory `outer` or lies below it. */
export function contains(outer: SimDirectory, inner: SimDirectory): boolean {
  if (outer === inner) return true;
  return [...outer.entries.values()].some((node) => node instanceof SimDirectory && contains(node, inner));
}

/** Copies a tree node by node, so that files with several names, now or on the platter, stay one file. */
export class Copies {
  readonly #copyFile: (inode: SimInode) => SimInode;
  readonly #copies = new Map<SimNode, SimNode>();

  constructor(copyFile: (inode: SimInode) => SimInode) {
    this.#copyFile = copyFile;
  }

  of<T extends SimNode>(node: T): T {
    let copy = this.#copies.get(node);
    if (copy === undefined) {
      if (node instanceof SimInode) copy = this.#copyFile(node);
      else copy = new SimDirectory();
      this.#copies.set(node, copy);
      if (node instanceof SimDirectory) this.#fill(copy as SimDirectory, node);
    }
    return copy as T;
  }

  change({ stamp, entries, nodes }: NameChange): NameChange {
    return {
      stamp,
      entries: entries.map(({ directory, name, node }) => ({
        directory: this.of(directory),
        name,
        node: node && this.of(node),
      })),
      nodes: nodes.map((node) => this.of(node)),
    };
  }

  directories(): SimDirectory[] {
    return [...this.#copies.values()].filter((node) => node instanceof SimDirectory);
  }

  #fill(copy: SimDirectory, original: SimDirectory): void {
    for (const [name, node] of original.entries) copy.entries.set(name, this.of(node));
    for (const [name, node] of original.platter) copy.platter.set(name, this.of(node));
  }
}
