/**
 * Writes segments. What it has written is staged: nothing refers to it until `publish`, which comes after `sync`. So
 * what readers are given, and what a snapshot names, is durable, and a checkpoint that fails half-way leaves the log in
 * charge of everything that it had begun to move.
 */

import { VarveError } from "../api/errors.js";
import { batchFileBytes } from "../storage/batch.js";
import type { BatchTable } from "../storage/batch-table.js";
import { isNoSpace } from "../storage/disk.js";
import {
  encodeIndex,
  encodeSegmentHeader,
  type Run,
  SEGMENT_HEADER_BYTES,
  type Segment,
  SparseIndex,
  segmentPath,
} from "../storage/segment.js";
import type { Stream } from "../storage/stream.js";
import { indexPath } from "../storage/stream-reader.js";
import type { WalFile } from "../storage/wal.js";
import { removeIfThere } from "./deletion.js";
import type { Engine } from "./engine.js";
import { WINDOW_BYTES } from "./log-windows.js";

/** Pieces that are shorter than this on average are copied together: writing each of them would cost more. */
const COPIED_PIECE_BYTES_MAX = 1024;

/** Batches of one stream that go from a log file to a segment: rows of the file's table, in order; at least one. */
export interface MovedBatches {
  readonly wal: WalFile;
  readonly rows: Uint32Array;
}

/** A run as it will be. */
interface StagedRun {
  readonly run: Run;
  readonly isNew: boolean;
  bytes: number;
  next: number;
  count: number;
  lastTimestamp: number;
  /** What it gets that it has not had, in order. */
  readonly added: MovedBatches[];
}

type WithRoom = <T>(run: () => Promise<T>) => Promise<T>;

export class SegmentWriter {
  readonly #engine: Engine;
  readonly #withRoom: WithRoom;
  /** Written since the last sync. */
  readonly #dirty = new Set<Segment>();
  readonly #newDirectories = new Set<string>();
  /** Segments of an earlier life that have been gone on with. */
  readonly #continued = new WeakSet<Segment>();
  /** Runs that have been begun or gone on with, in order. */
  readonly #staged = new Map<Stream, StagedRun[]>();
  /** Runs that nothing more is appended to, whose indexes are still to be stored. */
  readonly #full = new Set<Run>();
  /** Further changes that `publish` makes. */
  #changes: (() => void)[] = [];
  /** Where short pieces are copied together: as large as it had to be so far. */
  #copied = Buffer.alloc(0);
  /** Segments begun since the last `publish`. */
  #created: Segment[] = [];
  /** No longer needed; removed once a snapshot without them is durable. */
  readonly #garbage: Segment[] = [];

  /** @param withRoom runs what needs disk space, and may be run again; a checkpoint's is given what is held in reserve */
  constructor(engine: Engine, withRoom: WithRoom = (run) => run()) {
    this.#engine = engine;
    this.#withRoom = withRoom;
  }

  /**
   * Appends batches, which follow on what the stream has in segments, to its own segment.
   * @param buffer holds what stands in their log file from `start` on
   */
  async append(stream: Stream, { wal, rows }: MovedBatches, buffer: Buffer, start: number): Promise<void> {
    const { batches } = wal;
    for (let from = 0; from < rows.length; ) {
      const staged = await this.#stage(stream, batches, rows[from]!);
      const { position, firstTimestamp } = staged.run;
      const extent = { position, firstTimestamp, bytes: staged.bytes, count: staged.count };
      let to = from;
      // At least one: a batch may be larger than a segment is meant to be.
      do {
        const row = rows[to++]!;
        extent.bytes += batchFileBytes(batches.bytesOf(row));
        extent.count += batches.countOf(row);
      } while (to < rows.length && this.#fits(stream, extent, batches, rows[to]!));
      await this.#appendTo(staged, { wal, rows: rows.subarray(from, to) }, buffer, start);
      from = to;
    }
  }

  async #appendTo(staged: StagedRun, added: MovedBatches, buffer: Buffer, start: number): Promise<void> {
    const { run } = staged;
    const { rows } = added;
    const { batches } = added.wal;
    const { pieces, bytes } = this.#piecesOf(batches, rows, buffer, start);
    await this.write(run.segment, pieces, run.position + staged.bytes);
    const last = rows[rows.length - 1]!;
    staged.added.push(added);
    staged.bytes += bytes;
    staged.next = batches.nextOf(last);
    staged.count += countOf(added);
    staged.lastTimestamp = batches.timestampOf(last);
  }

  /** What the batches are, with what pads them: as it stands in the buffer, or copied together. */
  #piecesOf(
    batches: BatchTable,
    rows: Uint32Array,
    buffer: Buffer,
    start: number,
  ): { pieces: Buffer[]; bytes: number } {
    let count = 0;
    let bytes = 0;
    eachPiece(batches, rows, (from, to) => {
      count++;
      bytes += to - from;
    });
    const pieces: Buffer[] = [];
    if (count === 1 || bytes > count * COPIED_PIECE_BYTES_MAX) {
      eachPiece(batches, rows, (from, to) => pieces.push(buffer.subarray(from - start, to - start)));
      return { pieces, bytes };
    }
    const copied = this.#bufferOf(bytes);
    let end = 0;
    eachPiece(batches, rows, (from, to) => {
      end += buffer.copy(copied, end, from - start, to - start);
    });
    return { pieces: [copied.subarray(0, bytes)], bytes };
  }

  #bufferOf(bytes: number): Buffer {
    if (this.#copied.length < bytes) {
      // All that was read at once: what is larger is a single batch, and one piece.
      this.#copied = Buffer.allocUnsafeSlow(Math.min(WINDOW_BYTES, Math.max(bytes, 2 * this.#copied.length)));
    }
    return this.#copied;
  }

  /** The run that further batches of a stream go to: its last, or a new one. */
  async #stage(stream: Stream, batches: BatchTable, row: number): Promise<StagedRun> {
    let list = this.#staged.get(stream);
    if (list === undefined) {
      list = [];
      this.#staged.set(stream, list);
    }
    const last = list[list.length - 1];
    if (last !== undefined) {
      const { position, firstTimestamp } = last.run;
      const extent = { position, firstTimestamp, bytes: last.bytes, count: last.count };
      if (this.#fits(stream, extent, batches, row)) return last;
    }
    const run = stream.runs[stream.runs.length - 1];
    if (last === undefined && run !== undefined && run.segment.sharedId === 0 && run.next > stream.sealedTo) {
      if (this.#fits(stream, run, batches, row)) {
        this.#continue(run.segment);
        const { bytes, next, count, lastTimestamp } = run;
        list.push({ run, isNew: false, bytes, next, count, lastTimestamp, added: [] });
        return list[0]!;
      }
      this.#full.add(run);
    }
    const first = batches.baseOf(row);
    const timestamp = batches.timestampOf(row);
    const begun: Run = {
      segment: await this.createOwn(stream, first),
      position: SEGMENT_HEADER_BYTES,
      bytes: 0,
      first,
      next: first,
      count: 0,
      firstTimestamp: timestamp,
      lastTimestamp: timestamp,
      index: new SparseIndex(),
    };
    const staged = { run: begun, isNew: true, bytes: 0, next: 0, count: 0, lastTimestamp: 0, added: [] };
    list.push(staged);
    return staged;
  }

  /** Whether a run of a stream's own segment goes on with a batch, rather than that a new segment is begun. */
  #fits(
    { roll }: Stream,
    run: Pick<Run, "position" | "bytes" | "count" | "firstTimestamp">,
    batches: BatchTable,
    row: number,
  ): boolean {
    const end = run.position + run.bytes + batchFileBytes(batches.bytesOf(row));
    if (end > Math.min(this.#engine.options.segmentBytes, roll.bytes)) return false;
    const ageMs = batches.timestampOf(row) - run.firstTimestamp;
    return run.count + batches.countOf(row) <= roll.records && ageMs <= roll.ageMs;
  }

  /** Has `publish` make a change that is not an append. */
  stageChange(change: () => void): void {
    this.#changes.push(change);
  }

  /** Forgets what is staged: a checkpoint has failed, the next one begins again. */
  abandon(): void {
    for (const segment of this.#created) {
      this.#dirty.delete(segment);
      this.#removeFile(segment.path);
    }
    this.#full.clear();
    this.#forgetStaged();
  }

  /** Removes a segment that was begun for nothing. */
  discard(segment: Segment): void {
    this.#created = this.#created.filter((each) => each !== segment);
    this.#dirty.delete(segment);
    this.#removeFile(segment.path);
  }

  #forgetStaged(): void {
    this.#staged.clear();
    this.#changes = [];
    this.#created = [];
  }

  /** Lets readers, and the next snapshot, have what has been written and synced. */
  publish(): void {
    for (const [stream, list] of this.#staged) {
      const last = list[list.length - 1]!.run;
      for (const { run, isNew, added, ...extent } of list) {
        let position = run.position + run.bytes;
        for (const { wal, rows } of added) {
          for (let index = 0; index < rows.length; index++) {
            const row = rows[index]!;
            run.index?.note(wal.batches.baseOf(row), position, wal.batches.timestampOf(row));
            position += batchFileBytes(wal.batches.bytesOf(row));
          }
        }
        Object.assign(run, extent);
        run.segment.bytes = run.position + run.bytes;
        if (isNew) stream.runs.push(run);
        if (run !== last) this.#full.add(run);
        moved(stream, added);
      }
    }
    for (const change of this.#changes) change();
    this.#forgetStaged();
  }

  /** An index that an earlier life stored is out of date once its segment grows. */
  #continue(segment: Segment): void {
    if (this.#continued.has(segment)) return;
    this.#continued.add(segment);
    this.#removeFile(indexPath(segment));
  }

  /** A new segment for one stream. */
  async createOwn(stream: Stream, baseOffset: number, edition = 0): Promise<Segment> {
    const { directory } = stream;
    const path = segmentPath(directory, stream.id, baseOffset, edition);
    const segment: Segment = { path, directory, sharedId: 0, edition, bytes: 0, dirty: true, unnamed: true, runs: 1 };
    this.#removeFile(indexPath(segment));
    await this.create(segment, stream.id, baseOffset);
    return segment;
  }

  async create(segment: Segment, streamId: number, baseOffset: number): Promise<void> {
    const { files, directoryId } = this.#engine;
    this.#created.push(segment);
    this.#continued.add(segment);
    await this.#withRoom(async () => {
      this.#makeDirectory(segment.directory);
      // A file of this name can only be what a checkpoint that did not complete left behind.
      this.#removeFile(segment.path);
      files.release(files.hold(segment.path, "create"));
    });
    await this.write(segment, [encodeSegmentHeader(streamId, baseOffset, directoryId)], 0);
    segment.bytes = SEGMENT_HEADER_BYTES;
  }

  async write(segment: Segment, pieces: readonly Uint8Array[], position: number): Promise<void> {
    const { files } = this.#engine;
    segment.dirty = true;
    this.#dirty.add(segment);
    const held = files.hold(segment.path);
    try {
      await this.#withRoom(() => held.file.write(pieces, position));
    } finally {
      files.release(held);
    }
  }

  /**
   * Stores the index of a run beside its segment. Only a hint: its name is not synced, it is rebuilt when it is missing,
   * and gone without where there is no space. False when it could not be stored.
   */
  async storeIndex(run: Run): Promise<boolean> {
    const { files, disk } = this.#engine;
    if (run.index === undefined) return true;
    // Under its name it is whole, also after a power cut: a part of an index would pass for a damaged one.
    const path = indexPath(run.segment);
    const temporary = `${path}.tmp`;
    this.#removeFile(temporary);
    const held = files.hold(temporary, "create");
    try {
      await held.file.write([encodeIndex(run)], 0);
      await held.file.sync();
    } catch (error) {
      this.#removeFile(temporary);
      if (!isNoSpace(error)) throw error;
      return false;
    } finally {
      files.release(held);
      files.drop(temporary);
    }
    files.drop(path);
    disk.rename(temporary, path);
    return true;
  }

  /** Stores the indexes of segments that have become full, and frees their memory: who reads there fetches them. */
  async storeFullIndexes(): Promise<void> {
    for (const run of this.#full) {
      this.#full.delete(run);
      if (await this.storeIndex(run)) run.index = undefined;
    }
  }

  /** Makes the contents of a segment durable that nothing depends on yet. A failure for want of space is just that. */
  async syncFile(segment: Segment): Promise<void> {
    const { files } = this.#engine;
    const held = files.hold(segment.path);
    try {
      await held.file.sync();
    } finally {
      files.release(held);
    }
  }

  /** Makes everything durable that has been written. */
  async sync(): Promise<void> {
    const { files, disk } = this.#engine;
    const directories = new Set(this.#newDirectories);
    for (const segment of this.#dirty) {
      const held = files.hold(segment.path);
      try {
        await onlyOnce(segment.path, held.file.sync());
      } finally {
        files.release(held);
      }
      segment.dirty = false;
      if (segment.unnamed) directories.add(segment.directory);
    }
    for (const directory of directories) await onlyOnce(directory, disk.syncDirectory(directory));
    for (const segment of this.#dirty) segment.unnamed = false;
    this.#dirty.clear();
    this.#newDirectories.clear();
  }

  /** A run is no longer needed. When its segment holds no other, that goes with the next `removeGarbage`. */
  letGo({ segment }: Run): void {
    segment.runs--;
    if (segment.runs > 0) return;
    if (segment.sharedId !== 0) this.#engine.catalog.shared.delete(segment.sharedId);
    this.#garbage.push(segment);
  }

  /** The queue of these streams has been deleted. Their own segments are removed with its folder. */
  letGoShared(streams: readonly Stream[]): void {
    for (const { runs } of streams) for (const run of runs) if (run.segment.sharedId !== 0) this.letGo(run);
  }

  /** A shared segment that turns out to hold nothing. */
  letGoUnused(segment: Segment): void {
    this.#engine.catalog.shared.delete(segment.sharedId);
    this.#garbage.push(segment);
  }

  /** Whether a file has been begun, or is to be removed, by a checkpoint that is not yet completed. */
  uses(path: string): boolean {
    const isThis = (segment: Segment) => segment.path === path;
    return this.#created.some(isThis) || this.#garbage.some(isThis);
  }

  /** Removes the segments that the snapshot which is now durable no longer names. */
  async removeGarbage(): Promise<void> {
    const { disk, files } = this.#engine;
    for (const segment of this.#garbage.splice(0)) {
      files.drop(segment.path);
      // The files of a deleted queue are removed by others as well.
      await removeIfThere(disk, segment.path);
      if (segment.sharedId !== 0) continue;
      this.#removeFile(indexPath(segment));
      this.#removeFile(`${indexPath(segment)}.tmp`);
    }
  }

  #removeFile(path: string): void {
    const { disk, files } = this.#engine;
    files.drop(path);
    if (disk.size(path) !== undefined) disk.unlink(path);
  }

  #makeDirectory(path: string): void {
    const { disk, directory, folders } = this.#engine;
    if (folders.has(path)) return;
    disk.mkdir(path);
    folders.add(path);
    // Each folder on the way may be new, and a folder is durable only once its parent is.
    for (let parent = path; parent.length > directory.length; ) {
      parent = parent.slice(0, parent.lastIndexOf("/"));
      this.#newDirectories.add(parent);
    }
  }
}

/** Calls back with the positions, in their log file, of each piece of it in which batches stand together. */
function eachPiece(batches: BatchTable, rows: Uint32Array, visit: (from: number, to: number) => void): void {
  let from = batches.positionOf(rows[0]!);
  let to = from;
  for (let index = 0; index < rows.length; index++) {
    const row = rows[index]!;
    const position = batches.positionOf(row);
    if (position !== to) {
      visit(from, to);
      from = position;
    }
    to = position + batchFileBytes(batches.bytesOf(row));
  }
  visit(from, to);
}

/** Notes that batches, in order, now stand in a run of their stream: they are no longer looked for in the log. */
export function moved(stream: Stream, added: readonly MovedBatches[]): void {
  let next = 0;
  for (const { wal, rows } of added) {
    for (let index = 0; index < rows.length; index++) {
      const bytes = wal.batches.bytesOf(rows[index]!);
      stream.bytes += batchFileBytes(bytes) - bytes;
    }
    next = wal.batches.nextOf(rows[rows.length - 1]!);
  }
  stream.forgetRecent(next);
}

export function countOf({ wal, rows }: MovedBatches): number {
  return rows.reduce((sum, row) => sum + wal.batches.countOf(row), 0);
}

/**
 * A failed sync, for want of space as for any other reason, is not made good by one that succeeds: what failed counts as
 * written by then, and is gone.
 */
async function onlyOnce(path: string, sync: Promise<void>): Promise<void> {
  try {
    await sync;
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new VarveError("ERR_IO", `${path}: making it durable failed (${reason})`, { cause });
  }
}
