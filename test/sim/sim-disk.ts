/**
 * A disk in memory that is as unkind as real ones are allowed to be. It keeps two states: the cache, which the running
 * system sees, and the platter, which a power cut leaves behind. Between them stand the pending changes: bytes by
 * sector, file sizes, and names, each kind on its own. `sync` settles the bytes and the size of one file and no name;
 * `syncDirectory` settles the names in one directory and no byte.
 *
 * Every call has a number, counted from 1. Faults, and the end of the process, are scheduled by that number.
 */
import { createHash } from "node:crypto";
import type { Disk, DiskFile } from "../../src/storage/disk.js";
import type { SimClock } from "./sim-clock.js";
import { frozen, SECTOR_BYTES, SimContent } from "./sim-content.js";
import { type CrashPolicy, chooseSurvivors, type HoleFilling, holeFiller } from "./sim-crash.js";
import { type CallKind, type DiskInternals, type SimFault, SimFile, systemError } from "./sim-file.js";
import {
  applyNames,
  Copies,
  contains,
  type NameChange,
  persist,
  SimDirectory,
  SimInode,
  type SimNode,
  settleFile,
  walk,
  withDependencies,
} from "./sim-nodes.js";
import type { SimRandom } from "./sim-random.js";

export { CRASH_POLICIES, type CrashPolicy, type HoleFilling } from "./sim-crash.js";
export type { CallKind, SimFault } from "./sim-file.js";

export interface SimDiskOptions {
  readonly clock: SimClock;
  readonly random: SimRandom;
  /** Space for the contents of all files, in whole sectors. @defaultValue unlimited */
  readonly capacityBytes?: number;
}

/** Thrown at a process that is no more: its disk was taken away by `halt`, `kill` or `crash`. */
class ProcessEnded extends Error {
  readonly code = "ESIMENDED";
}
/** One for all: no one is left to read where it was thrown. */
const PROCESS_ENDED = new ProcessEnded("this simulated process has ended");

interface Counted {
  readonly call: number;
  readonly fault: SimFault | undefined;
}

/** A call in the simulated thread pool. */
interface InFlight {
  /** For writes: puts some part of it into the cache, as a process that dies meanwhile may leave it. */
  readonly interrupt?: (random: SimRandom) => void;
}

/** Contents of deleted files that holes may show. */
const REMAINS_MAX = 8;
const NAME_BYTES_MAX = 255;

export class SimDisk implements Disk {
  readonly clock: SimClock;
  readonly random: SimRandom;
  capacityBytes: number;
  /** How many calls there have been: the number of the latest. */
  calls = 0;
  /** Kinds of the calls that failed by a scheduled fault, in order. */
  readonly faulted: CallKind[] = [];
  /** No call fails. */
  sparing = false;
  /** Called before a call takes effect; may call `halt`. */
  onCall: ((kind: CallKind, path: string, call: number) => void) | undefined;

  #bootId: string;
  #root = new SimDirectory();
  #names: NameChange[] = [];
  #remains: SimContent[] = [];
  #usedSectors = 0;
  /** Number of the latest change; see DataChange. */
  #stamp = 0;
  #inFlight = new Set<InFlight>();
  #halted = false;
  #haltAt: { call: number; written: number } | undefined;
  #interrupted = false;
  readonly #faults = new Map<number, SimFault>();
  readonly #sticky = new Map<CallKind, SimFault>();
  readonly #shortWrites = new Map<number, number>();
  readonly #lostWrites = new Set<number>();
  readonly #misdirected = new Map<number, { deltaBytes: number; path: string | undefined }>();

  constructor({ clock, random, capacityBytes = Number.POSITIVE_INFINITY }: SimDiskOptions) {
    this.clock = clock;
    this.random = random;
    this.capacityBytes = capacityBytes;
    this.#bootId = newBootId(random);
  }

  // Faults.

  /** Makes one call fail, unless it is a `close`, which never does. */
  failAt(call: number, fault: SimFault): void {
    this.#faults.set(call, fault);
  }

  /** Makes a `writeSync` take only so many bytes, without an error. (`write` goes on by itself, so it shows nothing.) */
  shortWriteAt(call: number, bytes: number): void {
    this.#shortWrites.set(call, bytes);
  }

  /** Makes a write seem to succeed, and its sync too, though the platter never gets it. */
  loseWriteAt(call: number): void {
    this.#lostWrites.add(call);
  }

  /** Makes the platter get a write at another position, or in another file, than the cache. */
  misdirectWriteAt(call: number, deltaBytes: number, path?: string): void {
    this.#misdirected.set(call, { deltaBytes, path });
  }

  /** Forgets all faults that have not happened yet, and ends sticky ones. */
  clearFaults(): void {
    this.#faults.clear();
    this.#sticky.clear();
    this.#shortWrites.clear();
    this.#lostWrites.clear();
    this.#misdirected.clear();
  }

  /** Rot: flips one bit of a file in the cache and on the platter. */
  flipBit(path: string, byte: number, bit: number): void {
    const inode = this.#file(path, "flipBit");
    if (byte < 0 || byte >= inode.cache.size) throw new RangeError(`${path} has no byte ${byte}`);
    inode.cache.flipBit(byte, bit);
    if (byte < inode.platter.size) inode.platter.flipBit(byte, bit);
    inode.pending = inode.pending.map((change) => {
      if (change.kind !== "bytes" || byte < change.position || byte >= change.position + change.bytes.length) {
        return change;
      }
      const bytes = change.bytes.slice();
      bytes[byte - change.position]! ^= 1 << bit;
      return { ...change, bytes };
    });
  }

  /**
   * Ends the process at this call: it and all later ones throw. Of a `writeSync`, `written` bytes still reach the cache.
   */
  haltAt(call: number, written = 0): void {
    this.#haltAt = { call, written };
  }

  /** Ends the process now. What the disk then holds is decided by `kill` or `crash`. */
  halt(): void {
    this.#halted = true;
  }

  get halted(): boolean {
    return this.#halted;
  }

  // What tests may look at without it counting as a call.

  /** The contents of a file in the cache. */
  peek(path: string): Buffer {
    return this.#file(path, "peek").cache.toBuffer();
  }

  /** Paths of all files, in the cache. */
  files(): string[] {
    const paths: string[] = [];
    walk(this.#root, "", (path, node) => {
      if (node instanceof SimInode) paths.push(path);
    });
    return paths;
  }

  /** Equal for disks on which the same files hold the same bytes, and have the same to lose in a power cut. */
  fingerprint(): string {
    const hash = createHash("sha1");
    walk(this.#root, "", (path, node) => {
      hash.update(`${path} `);
      if (node instanceof SimInode) {
        node.cache.addTo(hash);
        for (const change of node.pending) {
          if (change.kind === "size") hash.update(`size ${change.size}`);
          else hash.update(`${change.position}`).update(change.bytes);
        }
      } else hash.update([...node.platter.keys()].join());
    });
    return hash.update(`${this.#names.length}`).digest("base64");
  }

  get usedBytes(): number {
    return this.#usedSectors * SECTOR_BYTES;
  }

  /** True if a power cut now, with any policy, would change nothing. */
  get settled(): boolean {
    return this.#names.length === 0 && this.#reachable().every((inode) => inode.pending.length === 0);
  }

  /** Makes everything durable, as a moment of rest before the trial may. */
  settle(): void {
    for (const inode of this.#reachable()) settleFile(inode, Number.POSITIVE_INFINITY);
    for (const change of this.#names) applyNames(change, (directory) => directory.platter);
    this.#names = [];
  }

  // The end of the process.

  /**
   * Kills the process and returns the disk of its successor: the cache survives. May be called several times, and
   * along with `crash`, to try different endings of one history.
   */
  kill(random: SimRandom, { clock = this.clock }: { clock?: SimClock } = {}): SimDisk {
    this.#end(random);
    const copies = new Copies((inode) => {
      const copy = new SimInode();
      copy.cache = inode.cache.clone();
      copy.platter = inode.platter.clone();
      copy.pending = [...inode.pending];
      return copy;
    });
    const next = this.#successor(clock, random);
    next.#bootId = this.#bootId;
    next.#root = copies.of(this.#root);
    next.#names = this.#names.map((change) => copies.change(change));
    next.#recount();
    return next;
  }

  /** Cuts the power and returns the disk as the next boot finds it. May be called several times, like `kill`. */
  crash(
    policy: CrashPolicy,
    random: SimRandom,
    { clock = this.clock, holes = "mixed" }: { clock?: SimClock; holes?: HoleFilling } = {},
  ): SimDisk {
    this.#end(random);
    const kept = chooseSurvivors(this.#reachable(), this.#names, policy, random);
    const copies = new Copies((inode) => {
      const copy = new SimInode();
      copy.platter = persist(inode, kept, holeFiller(holes, this.#remains, random));
      copy.cache = copy.platter.clone();
      return copy;
    });
    const next = this.#successor(clock, random);
    next.#root = copies.of(this.#root);
    for (const change of this.#names) {
      if (kept.names.has(change)) applyNames(copies.change(change), (directory) => directory.platter);
    }
    for (const directory of copies.directories()) directory.entries = new Map(directory.platter);
    next.#recount();
    return next;
  }

  #successor(clock: SimClock, random: SimRandom): SimDisk {
    const next = new SimDisk({ clock, random: random.fork(), capacityBytes: this.capacityBytes });
    next.#remains = [...this.#remains];
    next.#stamp = this.#stamp;
    return next;
  }

  #end(random: SimRandom): void {
    this.#halted = true;
    if (this.#interrupted) return;
    this.#interrupted = true;
    for (const call of this.#inFlight) call.interrupt?.(random);
    this.#inFlight.clear();
  }

  #recount(): void {
    this.#usedSectors = 0;
    walk(this.#root, "", (_path, node) => {
      if (!(node instanceof SimInode)) return;
      if (node.links++ === 0) this.#usedSectors += node.cache.sectors;
    });
  }

  /** Files that have a name, or had one or may have one again after a power cut. */
  #reachable(): SimInode[] {
    const nodes = new Set<SimNode>([this.#root]);
    for (const change of this.#names) for (const node of change.nodes) nodes.add(node);
    for (const node of nodes) {
      if (node instanceof SimInode) continue;
      for (const child of node.entries.values()) nodes.add(child);
      for (const child of node.platter.values()) nodes.add(child);
    }
    return [...nodes].filter((node) => node instanceof SimInode);
  }

  // Disk.

  openFile(path: string, mode: "read" | "write" | "create"): DiskFile {
    this.#call("open", path);
    const { directory, name } = this.#parent(path, "open");
    let node = directory.entries.get(name);
    if (mode === "create") {
      if (node !== undefined) throw systemError("EEXIST", "open", path);
      node = new SimInode();
      this.#change(++this.#stamp, [{ directory, name, node }], [node]);
    }
    if (node === undefined) throw systemError("ENOENT", "open", path);
    if (node instanceof SimDirectory) throw systemError("EISDIR", "open", path);
    return new SimFile(this.#internals, path, node, mode !== "read");
  }

  list(path: string): string[] {
    this.#call("list", path);
    return [...this.#directory(path, "list").entries.keys()];
  }

  size(path: string): number | undefined {
    this.#call("size", path);
    const node = this.#find(path);
    return node instanceof SimDirectory ? 4096 : node?.cache.size;
  }

  readFile(path: string): Buffer {
    this.#call("readFile", path);
    return this.#file(path, "readFile").cache.toBuffer();
  }

  mkdir(path: string): void {
    this.#call("mkdir", path);
    const stamp = ++this.#stamp;
    let directory = this.#root;
    const names = split(path);
    for (const [index, name] of names.entries()) {
      let node = directory.entries.get(name);
      if (node instanceof SimInode) throw systemError(index < names.length - 1 ? "ENOTDIR" : "EEXIST", "mkdir", path);
      if (node === undefined) {
        checkName(name, "mkdir", path);
        node = new SimDirectory();
        this.#change(stamp, [{ directory, name, node }], [node]);
      }
      directory = node;
    }
  }

  rename(from: string, to: string): void {
    this.#call("rename", from);
    const source = this.#parent(from, "rename");
    const target = this.#parent(to, "rename");
    const node = source.directory.entries.get(source.name);
    if (node === undefined) throw systemError("ENOENT", "rename", from);
    if (node instanceof SimDirectory && contains(node, target.directory)) throw systemError("EINVAL", "rename", from);
    const replaced = target.directory.entries.get(target.name);
    if (replaced === node) return;
    if (replaced !== undefined) {
      if (replaced instanceof SimDirectory) {
        if (contains(replaced, source.directory)) throw systemError("ENOTEMPTY", "rename", to);
        if (!(node instanceof SimDirectory)) throw systemError("EISDIR", "rename", to);
        if (replaced.entries.size > 0) throw systemError("ENOTEMPTY", "rename", to);
      } else if (node instanceof SimDirectory) throw systemError("ENOTDIR", "rename", to);
    }
    this.#change(
      ++this.#stamp,
      [
        { ...source, node: undefined },
        { ...target, node },
      ],
      replaced === undefined ? [node] : [node, replaced],
    );
  }

  unlink(path: string): void {
    this.#call("unlink", path);
    this.#unlink(path);
  }

  remove(path: string): Promise<void> {
    return this.#later("unlink", path, (_call, fault) => {
      if (fault !== undefined) throw systemError(fault.errno, "unlink", path);
      this.#unlink(path);
    });
  }

  #unlink(path: string): void {
    const { directory, name } = this.#parent(path, "unlink");
    const node = directory.entries.get(name);
    if (node === undefined) throw systemError("ENOENT", "unlink", path);
    if (node instanceof SimDirectory) throw systemError("EISDIR", "unlink", path);
    this.#change(++this.#stamp, [{ directory, name, node: undefined }], [node]);
  }

  rmdir(path: string): void {
    this.#call("rmdir", path);
    const { directory, name } = this.#parent(path, "rmdir");
    const node = directory.entries.get(name);
    if (node === undefined) throw systemError("ENOENT", "rmdir", path);
    if (node instanceof SimInode) throw systemError("ENOTDIR", "rmdir", path);
    if (node.entries.size > 0) throw systemError("ENOTEMPTY", "rmdir", path);
    this.#change(++this.#stamp, [{ directory, name, node: undefined }], [node]);
  }

  syncDirectory(path: string): Promise<void> {
    // What happens while it is under way, it need not cover.
    const stamp = this.#stamp;
    return this.#later("syncDirectory", path, (_call, fault) => {
      const directory = this.#directory(path, "syncDirectory");
      const names = this.#names.filter((change) => change.stamp <= stamp);
      const here = new Set(names.filter(({ entries }) => entries.some((entry) => entry.directory === directory)));
      if (fault !== undefined) {
        // The journal has given these up: the names stay visible, and no later sync makes them durable.
        this.#names = this.#names.filter((change) => !here.has(change));
        throw systemError(fault.errno, "syncDirectory", path);
      }
      const settled = withDependencies(names, here);
      for (const change of names) if (settled.has(change)) applyNames(change, (target) => target.platter);
      this.#names = this.#names.filter((change) => !settled.has(change));
    });
  }

  freeBytes(): number {
    return this.capacityBytes - this.usedBytes;
  }

  bootId(): string {
    return this.#bootId;
  }

  // Calls.

  /** Counts a call that answers at once. Throws if the process has ended, or the fault that is due. */
  #call(kind: CallKind, path: string): void {
    const { fault } = this.#count(kind, path);
    if (fault !== undefined) throw systemError(fault.errno, kind, path);
  }

  #count(kind: CallKind, path: string, onHalt?: (call: number, written: number) => void): Counted {
    this.#assertAlive();
    const call = ++this.calls;
    this.onCall?.(kind, path, call);
    if (this.#haltAt?.call === call) {
      onHalt?.(call, this.#haltAt.written);
      this.halt();
    }
    this.#assertAlive();
    const fault = kind === "close" || this.sparing ? undefined : (this.#faults.get(call) ?? this.#sticky.get(kind));
    if (fault !== undefined) this.faulted.push(kind);
    if (fault?.sticky === true) this.#sticky.set(kind, fault);
    return { call, fault };
  }

  #assertAlive(): void {
    if (this.#halted) throw PROCESS_ENDED;
  }

  /**
   * A call in the thread pool: counted now; done, and answered, when the clock says so. One under way when the process
   * ends is never answered; of a write a part may then have been done.
   */
  #later<T>(
    kind: CallKind,
    path: string,
    perform: (call: number, fault: SimFault | undefined) => T,
    interrupt?: (call: number, random: SimRandom) => void,
  ): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const { call, fault } = this.#count(kind, path);
      const flight: InFlight = interrupt === undefined ? {} : { interrupt: (random) => interrupt(call, random) };
      this.#inFlight.add(flight);
      this.clock.queueIo(() => {
        if (this.#halted) return;
        this.#inFlight.delete(flight);
        try {
          resolve(perform(call, fault));
        } catch (error) {
          reject(error);
        }
      });
    });
  }

  readonly #internals: DiskInternals = {
    call: (kind, path) => this.#call(kind, path),
    later: (kind, path, perform, interrupt) => this.#later(kind, path, perform, interrupt),
    writeNow: (path, inode, bytes, position) => {
      const { call, fault } = this.#count("writeSync", path, (haltCall, written) =>
        this.#store(haltCall, inode, bytes.subarray(0, untorn(inode, position, written)), position),
      );
      if (fault !== undefined) {
        this.#store(call, inode, bytes.subarray(0, fault.written ?? 0), position);
        throw systemError(fault.errno, "writeSync", path);
      }
      const wanted = bytes.subarray(0, this.#shortWrites.get(call));
      const taken = this.#store(call, inode, wanted, position);
      if (taken === 0 && wanted.length > 0) throw systemError("ENOSPC", "writeSync", path);
      return taken;
    },
    store: (call, inode, bytes, position) => this.#store(call, inode, bytes, position),
    stamp: () => this.#stamp,
    resize: (inode, size) => {
      if (size === inode.cache.size) return;
      this.#usedSectors -= inode.cache.sectors;
      inode.cache.resize(size);
      this.#usedSectors += inode.cache.sectors;
      inode.pending.push({ stamp: ++this.#stamp, kind: "size", size });
    },
    drop: (inode) => this.#release(inode),
  };

  /** Writes into the cache what there is space for; returns how much that was. */
  #store(call: number, inode: SimInode, bytes: Uint8Array, position: number): number {
    const length = this.#fit(inode, position, bytes.length);
    if (length === 0) return 0;
    const copy = frozen(bytes.subarray(0, length));
    const stamp = ++this.#stamp;
    this.#usedSectors -= inode.cache.sectors;
    inode.cache.write(copy, position);
    this.#usedSectors += inode.cache.sectors;
    if (!this.#lostWrites.has(call)) {
      const astray = this.#misdirected.get(call);
      const target = astray?.path === undefined ? inode : this.#file(astray.path, "misdirectWriteAt");
      const where = Math.max(0, position + (astray?.deltaBytes ?? 0));
      target.pending.push({ stamp, kind: "bytes", position: where, bytes: copy });
    }
    const end = position + length;
    if (end > inode.cache.size) {
      inode.cache.size = end;
      inode.pending.push({ stamp, kind: "size", size: end });
    }
    return length;
  }

  /** How many of these bytes have space: sectors that the file has already need none. */
  #fit(inode: SimInode, position: number, length: number): number {
    let free = Math.floor(this.capacityBytes / SECTOR_BYTES) - this.#usedSectors;
    if (free >= Math.ceil(length / SECTOR_BYTES) + 1) return length;
    const end = position + length;
    for (let sector = Math.floor(position / SECTOR_BYTES); sector * SECTOR_BYTES < end; sector++) {
      if (!inode.cache.isMapped(sector) && free-- <= 0) return Math.max(0, sector * SECTOR_BYTES - position);
    }
    return length;
  }

  #change(stamp: number, entries: NameChange["entries"], nodes: readonly SimNode[]): void {
    const change: NameChange = { stamp, entries, nodes };
    for (const { directory, name } of entries) this.#unlinked(directory.entries.get(name));
    applyNames(change, (directory) => directory.entries);
    for (const { node } of entries) if (node instanceof SimInode) node.links++;
    for (const node of nodes) if (node instanceof SimInode) this.#release(node);
    this.#names.push(change);
  }

  #unlinked(node: SimNode | undefined): void {
    if (node instanceof SimInode) node.links--;
  }

  /** Gives the space of a file back once it has neither a name nor a user. */
  #release(inode: SimInode): void {
    // When the process has ended, what it still does (closing files, say) must not touch what it left behind.
    if (this.#halted || inode.links > 0 || inode.handles > 0) return;
    this.#usedSectors -= inode.cache.sectors;
    this.#remains = [inode.cache, ...this.#remains].slice(0, REMAINS_MAX);
    // What was not written yet, no one will write any more.
    inode.pending = [];
    inode.cache = new SimContent();
  }

  // Paths.

  #find(path: string): SimNode | undefined {
    let node: SimNode | undefined = this.#root;
    for (const name of split(path)) node = node instanceof SimDirectory ? node.entries.get(name) : undefined;
    return node;
  }

  #directory(path: string, syscall: string): SimDirectory {
    const names = split(path);
    return this.#walkTo(names, names.length, syscall, path);
  }

  #file(path: string, syscall: string): SimInode {
    const { directory, name } = this.#parent(path, syscall);
    const node = directory.entries.get(name);
    if (node === undefined) throw systemError("ENOENT", syscall, path);
    if (node instanceof SimDirectory) throw systemError("EISDIR", syscall, path);
    return node;
  }

  #walkTo(names: readonly string[], count: number, syscall: string, path: string): SimDirectory {
    let directory = this.#root;
    for (let at = 0; at < count; at++) {
      const node = directory.entries.get(names[at]!);
      if (node === undefined) throw systemError("ENOENT", syscall, path);
      if (node instanceof SimInode) throw systemError("ENOTDIR", syscall, path);
      directory = node;
    }
    return directory;
  }

  #parent(path: string, syscall: string): { directory: SimDirectory; name: string } {
    const names = split(path);
    const name = names[names.length - 1];
    if (name === undefined) throw systemError("EBUSY", syscall, path);
    checkName(name, syscall, path);
    return { directory: this.#walkTo(names, names.length - 1, syscall, path), name };
  }
}

const splitPaths = new Map<string, readonly string[]>();
const SPLIT_PATHS_MAX = 10_000;

/** How much of a write a kill leaves: systems copy whole pages, so that what is replaced within a sector is not torn. */
function untorn({ cache }: SimInode, position: number, written: number): number {
  if (position % SECTOR_BYTES !== 0 || written >= SECTOR_BYTES) return written;
  const before = new Uint8Array(SECTOR_BYTES);
  cache.read(before, 0, SECTOR_BYTES, position);
  return before.some((byte) => byte !== 0) ? 0 : written;
}

function split(path: string): readonly string[] {
  let names = splitPaths.get(path);
  if (names === undefined) {
    names = path.split("/").filter((name) => name !== "");
    if (splitPaths.size >= SPLIT_PATHS_MAX) splitPaths.clear();
    splitPaths.set(path, names);
  }
  return names;
}

function checkName(name: string, syscall: string, path: string): void {
  if (Buffer.byteLength(name) > NAME_BYTES_MAX) throw systemError("ENAMETOOLONG", syscall, path);
  if (name.includes("\0") || name === "." || name === "..") throw systemError("EINVAL", syscall, path);
}

function newBootId(random: SimRandom): string {
  return `boot-${random.uint32().toString(16).padStart(8, "0")}`;
}
