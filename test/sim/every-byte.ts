/**
 * Rot in every byte: one bit of it is flipped, and the log, or the stream that the byte belongs to, is read again. What
 * comes back is what was written, or is missed aloud. Only the reading is repeated, not the whole opening, which
 * bit-flips.ts does for a sample: that is what makes every byte affordable.
 */

import { resolveOpenOptions } from "../../src/api/options.js";
import { isVarveError } from "../../src/index.js";
import { batchFileBytes, readBatchHeader } from "../../src/storage/batch.js";
import type { Disk, DiskFile } from "../../src/storage/disk.js";
import { FileCache } from "../../src/storage/file-cache.js";
import { ChunkPool } from "../../src/storage/memory.js";
import { Reads } from "../../src/storage/reads.js";
import type { Run } from "../../src/storage/segment.js";
import { decodeSnapshot, isSnapshotName } from "../../src/storage/snapshot.js";
import type { Stream } from "../../src/storage/stream.js";
import { type ReaderContext, StreamReader } from "../../src/storage/stream-reader.js";
import { Wal } from "../../src/storage/wal.js";
import { ENTRY_HEADER_BYTES, FILE_HEADER_BYTES } from "../../src/storage/wal-format.js";
import { type WalEnd, WalReader, type WalSource } from "../../src/storage/wal-reader.js";
import type { Flips } from "./bit-flips.js";
import { drawPlan, type Plan } from "./plan.js";
import { SimClock } from "./sim-clock.js";
import type { SimDisk } from "./sim-disk.js";
import { SimRandom } from "./sim-random.js";
import { openDirectoryOf, Simulator } from "./simulator.js";

/** Bytes behind the end of the log that are flipped as well. */
const BEYOND_BYTES = 512;
const CHUNKS_BYTES = 4 * 1024 * 1024;

/** A life that ends in a kill, with as much behind it as there is room for. */
export function fullPlan(seed: number): Plan {
  const plan = drawPlan(seed, { rounds: 2, steps: 150 });
  const quiet = { haltAtCall: 0, faults: [], close: false, end: "kill", capacityBytes: 0 } as const;
  const rounds = plan.rounds.map(({ astray: _, haltOn: __, ...round }) => ({ ...round, ...quiet }));
  return { ...plan, rounds };
}

export interface EveryByte extends Flips {
  readonly logBytes: number;
  readonly segmentBytes: number;
}

/** @param bytesMax of the log, and of segments, at most */
export async function flipEveryByte(plan: Plan, bytesMax: number): Promise<EveryByte> {
  const simulator = new Simulator(plan, undefined);
  const report = await simulator.run(false);
  if (report.violations.length > 0) throw new Error(`the plan fails by itself: ${report.violations[0]}`);
  const { disk, vouchedLsn } = simulator;
  const random = new SimRandom(plan.seed);
  const files = new Files(disk);
  const log = await flipLog(files, vouchedLsn, random, bytesMax);
  const segments = await flipSegments(plan, disk, random, bytesMax);
  return {
    tried: log.tried + segments.tried,
    noticed: log.noticed + segments.noticed,
    unnoticed: [...log.unnoticed, ...segments.unnoticed],
    logBytes: log.tried,
    segmentBytes: segments.tried,
  };
}

/** Counts what came of the flips. */
class Tally implements Flips {
  tried = 0;
  noticed = 0;
  readonly unnoticed: string[] = [];

  /** @param outcome `undefined`: changed nothing; true: noticed; or what is wrong */
  add(place: string, outcome: string | true | undefined): void {
    this.tried++;
    if (outcome === true) this.noticed++;
    else if (outcome !== undefined) this.unnoticed.push(`${place}: ${outcome}`);
  }
}

/** The files of a disk, in memory that can be changed. */
class Files {
  readonly #files = new Map<string, Buffer>();

  constructor(disk: SimDisk) {
    for (const path of disk.files()) this.#files.set(path, disk.peek(path));
  }

  get paths(): string[] {
    return [...this.#files.keys()].sort();
  }

  bytes(path: string): Buffer {
    return this.#files.get(path)!;
  }

  /** As much of a disk as reading needs. */
  get disk(): Disk {
    const openFile = (path: string) => new MemoryFile(path, this.bytes(path)) as unknown as DiskFile;
    return { openFile } as unknown as Disk;
  }

  /** Calls `look` with one bit of a byte flipped. */
  async flip(path: string, byte: number, bit: number, look: () => Promise<string | true | undefined>) {
    const bytes = this.bytes(path);
    bytes[byte]! ^= 1 << bit;
    try {
      return await look();
    } finally {
      bytes[byte]! ^= 1 << bit;
    }
  }
}

class MemoryFile {
  readonly path: string;
  readonly #bytes: Buffer;

  constructor(path: string, bytes: Buffer) {
    this.path = path;
    this.#bytes = bytes;
  }

  size(): number {
    return this.#bytes.length;
  }

  readSync(buffer: Uint8Array, start: number, length: number, position: number): number {
    return this.#bytes.copy(buffer, start, position, Math.min(this.#bytes.length, position + length));
  }

  async read(buffer: Uint8Array, start: number, length: number, position: number): Promise<number> {
    return this.readSync(buffer, start, length, position);
  }

  close(): void {}
}

// ---------------------------------------------------------------------------------------------------------------- log

async function flipLog(files: Files, vouchedLsn: number, random: SimRandom, bytesMax: number): Promise<Tally> {
  const newest = files.paths.findLast((path) => path.startsWith("/data/snap/") && isSnapshotName(nameOf(path)))!;
  const snapshot = decodeSnapshot(files.bytes(newest));
  if (typeof snapshot === "string") throw new Error(`${newest}: ${snapshot}`);
  const { header } = snapshot;
  const sources = files.paths.flatMap((path): WalSource[] => {
    const seq = path.startsWith("/data/wal/") ? Wal.seqOf(nameOf(path)) : undefined;
    return seq === undefined || seq < header.walSeq ? [] : [{ path, seq }];
  });
  const { disk } = files;
  const entries: Buffer[] = [];
  const reader = new WalReader(disk, header.directoryId);
  const replay = async (visit: (entry: Buffer) => void): Promise<WalEnd> =>
    await reader.replay(sources, header, ({ buffer, bulkStart, metaStart, metaEnd }) =>
      visit(withoutPadding(buffer.subarray(bulkStart - ENTRY_HEADER_BYTES, metaEnd), metaStart - bulkStart)),
    );
  const sound = await replay((entry) => entries.push(entry));
  const look = async (): Promise<string | true | undefined> => {
    let at = 0;
    let wrong: string | undefined;
    try {
      const end = await replay((entry) => {
        if (!entries[at++]?.equals(entry)) wrong ??= `entry ${header.lsn + at} is not what was written`;
      });
      if (wrong !== undefined) return wrong;
      if (end.lsn === sound.lsn) return undefined;
      if (end.lsn < vouchedLsn) return `cut at entry ${end.lsn}, though ${vouchedLsn} was durable`;
      return end.notes.length > sound.notes.length ? true : `cut at entry ${end.lsn}, and nothing was said`;
    } catch (error) {
      if (!isVarveError(error, "ERR_CORRUPT")) throw error;
      return wrong ?? true;
    }
  };
  const tally = new Tally();
  for (const { path, seq } of sources) {
    const used = sound.ends.get(seq) ?? FILE_HEADER_BYTES;
    const end = Math.min(files.bytes(path).length, used + BEYOND_BYTES);
    for (let byte = 0; byte < end && tally.tried < bytesMax; byte++) {
      const bit = random.below(8);
      tally.add(`${path}, bit ${bit} of byte ${byte}`, await files.flip(path, byte, bit, look));
    }
  }
  return tally;
}

/** A copy of an entry, with zeros between its batches: that is what stands there, and no one looks. */
function withoutPadding(entry: Buffer, bulkBytes: number): Buffer {
  const copy = Buffer.from(entry);
  const end = ENTRY_HEADER_BYTES + bulkBytes;
  for (let at = ENTRY_HEADER_BYTES; at < end; ) {
    const { bytes } = readBatchHeader(copy, at, end)!;
    copy.fill(0, at + bytes, at + batchFileBytes(bytes));
    at += batchFileBytes(bytes);
  }
  return copy;
}

// ----------------------------------------------------------------------------------------------------------- segments

async function flipSegments(plan: Plan, disk: SimDisk, random: SimRandom, bytesMax: number): Promise<Tally> {
  const clock = new SimClock(random.fork(), { wallMs: disk.clock.wallMs(), elapsedMs: 5 });
  const copy = disk.kill(random, { clock });
  const options = { ...resolveOpenOptions({ walFileBytes: "256KiB", segmentBytes: "64KiB" }), ...plan };
  const { engine } = await clock.settle(openDirectoryOf({ disk: copy, clock, random: random.fork() }, options));
  const files = new Files(copy);
  const context: ReaderContext = {
    files: new FileCache(files.disk, 64),
    chunks: new ChunkPool(CHUNKS_BYTES),
    reads: new Reads(engine.directory),
    directoryId: engine.directoryId,
    readFile: () => undefined,
  };
  const runs = new Map<string, { stream: Stream; run: Run }[]>();
  for (const entry of engine.catalog.entries) {
    for (const stream of engine.catalog.load(entry).streams) {
      for (const run of stream.runs) {
        const list = runs.get(run.segment.path);
        if (list === undefined) runs.set(run.segment.path, [{ stream, run }]);
        else list.push({ stream, run });
      }
    }
  }
  const tally = new Tally();
  for (const [path, parts] of runs) {
    const sound: Map<number, Buffer>[] = [];
    for (const { stream, run } of parts) sound.push((await readRun(context, stream, run)).records);
    const look = async (): Promise<string | true | undefined> => {
      let noticed = false;
      for (const [at, { stream, run }] of parts.entries()) {
        const { records, complaints } = await readRun(context, stream, run);
        noticed ||= complaints.length > 0;
        for (const [offset, record] of records) {
          if (sound[at]!.get(offset)?.equals(record) !== true) return `record ${offset} is not what was written`;
        }
        for (const offset of sound[at]!.keys()) {
          if (records.has(offset) || complaints.some(({ from, to }) => offset >= from && offset < to)) continue;
          return `record ${offset} is missing, and nothing was said`;
        }
      }
      return noticed ? true : undefined;
    };
    const { length } = files.bytes(path);
    for (let byte = 0; byte < length && tally.tried < bytesMax; byte++) {
      const bit = random.below(8);
      tally.add(`${path}, bit ${bit} of byte ${byte}`, await files.flip(path, byte, bit, look));
    }
  }
  return tally;
}

/** What a run gives as it is now, with nothing known of it from before, and the offsets that it says are lost. */
async function readRun(
  context: ReaderContext,
  stream: Stream,
  run: Run,
): Promise<{ records: Map<number, Buffer>; complaints: { from: number; to: number }[] }> {
  Object.assign(run, { index: undefined, segment: { ...run.segment } });
  const records = new Map<number, Buffer>();
  const complaints: { from: number; to: number }[] = [];
  const first = Math.max(run.first, stream.head);
  const reader = new StreamReader(stream, context, first);
  for (let from = first; from < run.next; ) {
    try {
      const found = reader.next(run.next);
      if (found === "end") break;
      if (found === "load") {
        await reader.load();
        continue;
      }
      const { record } = reader;
      records.set(record.offset, Buffer.from(record.buffer.subarray(record.start, record.end)));
      from = record.offset + 1;
    } catch (error) {
      if (!isVarveError(error, "ERR_CORRUPT")) throw error;
      const { to = run.next } = error.details as { to?: number };
      complaints.push({ from, to });
      from = to;
      reader.seek(to);
    }
  }
  return { records, complaints };
}

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}
