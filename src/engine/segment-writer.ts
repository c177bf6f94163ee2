/**
 * Writes segments. What it has written counts (is named in `run.bytes` and read from) at once, and is made durable by
 * the next `sync`, before a snapshot names it.
 */

import { VarveError } from "../api/errors.js";
import { batchFileBytes } from "../storage/batch.js";
import {
  encodeIndex,
  encodeSegmentHeader,
  type Run,
  SEGMENT_HEADER_BYTES,
  type Segment,
  SparseIndex,
} from "../storage/segment.js";
import type { BatchRef, Stream } from "../storage/stream.js";
import { indexPath } from "../storage/stream-reader.js";
import { segmentPath } from "./catalog.js";
import type { Engine } from "./engine.js";

export class SegmentWriter {
  readonly #engine: Engine;
  /** Written since the last sync began. */
  #dirty = new Set<Segment>();
  #newDirectories = new Set<string>();
  /** Known to exist. */
  readonly #directories = new Set<string>();
  /** Segments of an earlier life that have been gone on with. */
  readonly #continued = new WeakSet<Segment>();
  /** No longer needed; removed once a snapshot without them is durable. */
  #garbage: Segment[] = [];

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  /**
   * Appends batches, which stand in one buffer and follow on what the stream has in segments, to the stream's own
   * segment. From then on they are read from there.
   */
  async append(
    stream: Stream,
    refs: readonly BatchRef[],
    buffer: Buffer,
    positionOf: (ref: BatchRef) => number,
  ): Promise<void> {
    for (let from = 0; from < refs.length; ) {
      const run = await this.#runFor(stream, refs[from]!);
      let space = this.#engine.options.segmentBytes - run.segment.bytes;
      let to = from;
      // At least one: a batch may be larger than a segment is meant to be.
      do space -= batchFileBytes(refs[to++]!.bytes);
      while (to < refs.length && space >= batchFileBytes(refs[to]!.bytes));
      await this.#appendToRun(stream, run, refs.slice(from, to), buffer, positionOf);
      from = to;
    }
  }

  async #appendToRun(
    stream: Stream,
    run: Run,
    refs: readonly BatchRef[],
    buffer: Buffer,
    positionOf: (ref: BatchRef) => number,
  ): Promise<void> {
    const { segment } = run;
    const pieces: Buffer[] = [];
    let bytes = 0;
    // Batches that stand together in the buffer are written as one piece.
    for (let from = 0; from < refs.length; ) {
      const start = positionOf(refs[from]!);
      let end = start + batchFileBytes(refs[from]!.bytes);
      let to = from + 1;
      while (to < refs.length && positionOf(refs[to]!) === end) end += batchFileBytes(refs[to++]!.bytes);
      pieces.push(buffer.subarray(start, end));
      bytes += end - start;
      from = to;
    }
    await this.write(segment, pieces, segment.bytes);
    let position = segment.bytes;
    for (const ref of refs) {
      run.index?.note(ref.base, position, ref.timestamp);
      position += batchFileBytes(ref.bytes);
    }
    // Only now: a run that holds nothing would look like one that is no longer needed.
    if (run.bytes === 0) stream.runs.push(run);
    const last = refs[refs.length - 1]!;
    run.count += countOf(refs);
    run.next = last.next;
    run.lastTimestamp = last.timestamp;
    run.bytes += bytes;
    segment.bytes += bytes;
    this.moved(stream, refs);
  }

  /** Notes that batches now stand in a run of their stream: they are no longer looked for in the log. */
  moved(stream: Stream, refs: readonly BatchRef[]): void {
    for (const ref of refs) stream.bytes += batchFileBytes(ref.bytes) - ref.bytes;
    const { next } = refs[refs.length - 1]!;
    let count = 0;
    while (count < stream.recent.length && stream.recent[count]!.next <= next) count++;
    stream.recent.splice(0, count);
  }

  /** The run that further batches of a stream go to: its last, or a new one that holds nothing yet. */
  async #runFor(stream: Stream, first: BatchRef): Promise<Run> {
    const last = stream.runs[stream.runs.length - 1];
    if (last !== undefined && last.segment.sharedId === 0) {
      if (last.segment.bytes + batchFileBytes(first.bytes) <= this.#engine.options.segmentBytes) {
        this.#continue(last.segment);
        return last;
      }
      await this.storeIndex(last);
      last.index = undefined;
    }
    const segment = await this.createOwn(stream, first.base);
    return {
      segment,
      position: SEGMENT_HEADER_BYTES,
      bytes: 0,
      first: first.base,
      next: first.base,
      count: 0,
      firstTimestamp: first.timestamp,
      lastTimestamp: first.timestamp,
      index: new SparseIndex(),
    };
  }

  /** An index that an earlier life stored is out of date once its segment grows. */
  #continue(segment: Segment): void {
    if (this.#continued.has(segment)) return;
    this.#continued.add(segment);
    this.#removeFile(indexPath(segment));
  }

  /** A new segment for one stream. */
  async createOwn(stream: Stream, baseOffset: number): Promise<Segment> {
    const { directory } = stream;
    const path = segmentPath(directory, baseOffset);
    const segment: Segment = { path, directory, sharedId: 0, bytes: 0, dirty: true, unnamed: true, runs: 1 };
    this.#removeFile(indexPath(segment));
    await this.create(segment, stream.id, baseOffset);
    return segment;
  }

  async create(segment: Segment, streamId: number, baseOffset: number): Promise<void> {
    const { files, directoryId } = this.#engine;
    this.#makeDirectory(segment.directory);
    // A file of this name can only be what a checkpoint that did not complete left behind.
    this.#removeFile(segment.path);
    this.#continued.add(segment);
    files.release(files.hold(segment.path, "create"));
    await this.write(segment, [encodeSegmentHeader(streamId, baseOffset, directoryId)], 0);
    segment.bytes = SEGMENT_HEADER_BYTES;
  }

  async write(segment: Segment, pieces: readonly Uint8Array[], position: number): Promise<void> {
    const { files } = this.#engine;
    segment.dirty = true;
    this.#dirty.add(segment);
    const held = files.hold(segment.path);
    try {
      await held.file.write(pieces, position);
    } finally {
      files.release(held);
    }
  }

  /** Stores the index of a run beside its segment. Only a hint: it is not synced, and rebuilt when it is missing. */
  async storeIndex(run: Run): Promise<void> {
    const { files } = this.#engine;
    if (run.index === undefined) return;
    const path = indexPath(run.segment);
    this.#removeFile(path);
    const held = files.hold(path, "create");
    try {
      await held.file.write([encodeIndex(run)], 0);
    } finally {
      files.release(held);
      files.drop(path);
    }
  }

  /** Makes everything durable that was written before the call. */
  async sync(): Promise<void> {
    const { files, disk } = this.#engine;
    const dirty = this.#dirty;
    const directories = this.#newDirectories;
    this.#dirty = new Set();
    this.#newDirectories = new Set();
    for (const segment of dirty) {
      const held = files.hold(segment.path);
      try {
        await onlyOnce(segment.path, held.file.sync());
      } finally {
        files.release(held);
      }
      segment.dirty = this.#dirty.has(segment);
      if (segment.unnamed) directories.add(segment.directory);
    }
    for (const directory of directories) await onlyOnce(directory, disk.syncDirectory(directory));
    for (const segment of dirty) segment.unnamed = false;
  }

  /** A run is no longer needed. When its segment holds no other, that goes with the next `removeGarbage`. */
  letGo(run: Run): void {
    run.segment.runs--;
    if (run.segment.runs === 0) this.discard(run.segment);
  }

  discard(segment: Segment): void {
    if (segment.sharedId !== 0) this.#engine.catalog.shared.delete(segment.sharedId);
    this.#dirty.delete(segment);
    this.#garbage.push(segment);
  }

  /** Removes the segments that the snapshot which is now durable no longer names. */
  removeGarbage(): void {
    for (const segment of this.#garbage) {
      this.#removeFile(segment.path);
      if (segment.sharedId === 0) this.#removeFile(indexPath(segment));
    }
    this.#garbage = [];
  }

  #removeFile(path: string): void {
    const { disk, files } = this.#engine;
    files.drop(path);
    if (disk.size(path) !== undefined) disk.unlink(path);
  }

  #makeDirectory(path: string): void {
    const { disk, directory } = this.#engine;
    if (this.#directories.has(path)) return;
    disk.mkdir(path);
    this.#directories.add(path);
    // Each folder on the way may be new, and a folder is durable only once its parent is.
    for (let parent = path; parent.length > directory.length; ) {
      parent = parent.slice(0, parent.lastIndexOf("/"));
      this.#newDirectories.add(parent);
    }
  }
}

export function countOf(refs: readonly BatchRef[]): number {
  return refs.reduce((sum, ref) => sum + ref.count, 0);
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
