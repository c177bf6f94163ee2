/**
 * The checkpoint: moves what stands only in the log to segments, snapshots the queues, and gives log files back for
 * reuse. It runs whenever the log has moved on to a new file, and once at open and at close.
 *
 * Order, each step durable before the next:
 *   1. capture the queues' states at the border between two log files (in the turn that crosses it)
 *   2. copy the batches of the older files to segments, except those whose tasks are all done
 *   3. fdatasync the segments, then the folders that hold new ones
 *   4. make the log durable as far as it goes, if step 2 left out what only later entries say is done; in any case the
 *      name of the log file that follows
 *   5. write the snapshot
 *   6. reuse the older log files; remove segments that the snapshot no longer names
 * A crash at any point leaves either the old snapshot with all of its log, or the new one.
 *
 * Where very many queues each have little to store, their batches go to one shared segment, sorted by stream, so that
 * a checkpoint costs a few large writes rather than a file per queue.
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
import { encodeSnapshot, isSnapshotName, snapshotPath, writeFileAtomically } from "../storage/snapshot.js";
import type { BatchRef, Stream } from "../storage/stream.js";
import { indexPath } from "../storage/stream-reader.js";
import type { WalFile } from "../storage/wal.js";
import { type CapturedQueue, segmentPath } from "./catalog.js";
import { type Engine, isNoSpace } from "./engine.js";
import type { LogTime } from "./queue-state.js";

/**
 * Log bytes moved at a time. Each step waits for a turn of the event loop, which under load is long: few large steps.
 */
const WINDOW_BYTES = 4 * 1024 * 1024;
/** Bytes written to segments before the disk is asked to begin with them. */
const EARLY_SYNC_BYTES = 8 * 1024 * 1024;
/** A stream with less to store than this may share a segment ... */
const SMALL_STREAM_BYTES = 64 * 1024;
/** ... when there are more such streams than this. */
const SMALL_STREAMS_MIN = 16;
/** Pieces of a stream in shared segments, at most; past it they are moved to a segment of its own. */
const SHARED_RUNS_MAX = 32;
/** Wait before a checkpoint that ran out of disk space is tried again. */
const RETRY_MS = 1000;
/** Streams moved out of shared segments by one checkpoint, at most. */
const MOVED_STREAMS_MAX = 256;

/** The directory as of the border between two log files. */
interface Capture {
  readonly lsn: number;
  readonly crc: number;
  /** First log file whose entries are not covered. */
  readonly walSeq: number;
  readonly time: LogTime;
  readonly queues: readonly CapturedQueue[];
  /** Streams that have runs which were no longer needed then, and what they needed. */
  readonly droppable: readonly { readonly stream: Stream; readonly neededFrom: number }[];
}

/** Bytes of a log file with the batches [from, to) of a list, while they are read into memory and after. */
interface Window {
  readonly from: number;
  readonly to: number;
  readonly buffer: Buffer;
  /** Position of the first byte in the file. */
  readonly start: number;
  readonly done: Promise<void>;
}

/** A batch on its way to a shared segment. */
interface Placed {
  readonly ref: BatchRef;
  readonly position: number;
}

export class Checkpointer {
  readonly #engine: Engine;
  #captured: Capture | undefined;
  /** Ran out of disk space; tried again when nothing newer has been captured. */
  #failed: Capture | undefined;
  #running: Promise<void> | undefined;
  readonly #windows: Buffer[] = [];
  /** Written since the last sync. */
  readonly #dirty = new Set<Segment>();
  /** Known to exist. */
  readonly #directories = new Set<string>();
  readonly #newDirectories = new Set<string>();
  #retryTimer: { cancel(): void } | undefined;
  /** Batches were not moved because entries that may not yet be durable say that they are done. */
  #leftOut = false;
  #unsyncedBytes = 0;
  readonly #earlySyncs: Promise<void>[] = [];
  /** No longer needed; removed once a snapshot without them is durable. */
  #garbage: Segment[] = [];

  constructor(engine: Engine) {
    this.#engine = engine;
    engine.onRotate = () => {
      this.#captured = this.#capture();
      this.#running ??= this.#runAll();
    };
  }

  /** Checkpoints everything before the current log file, in which nothing has been written yet. */
  async checkpointNow(): Promise<void> {
    await this.#withBallast(this.#capture(), false);
  }

  /** Resolves when no checkpoint is under way. */
  async settled(): Promise<void> {
    while (this.#running !== undefined) await this.#running;
  }

  /** The last checkpoint of an orderly close: nothing is left to recover. No change may be staged any more. */
  async close(): Promise<void> {
    await this.settled();
    this.#retryTimer?.cancel();
    await this.#withBallast({ ...this.#capture(), walSeq: this.#engine.wal.current.seq + 1 }, true);
  }

  #capture(): Capture {
    const engine = this.#engine;
    const { lsn, crc, catalog } = engine;
    const droppable: { stream: Stream; neededFrom: number }[] = [];
    for (const state of catalog.loaded()) {
      for (const stream of state.streams) {
        const oldest = stream.runs[0];
        if (oldest === undefined) continue;
        const neededFrom = state.neededFrom(stream);
        if (oldest.next <= neededFrom) droppable.push({ stream, neededFrom });
      }
    }
    return { lsn, crc, walSeq: engine.wal.current.seq, time: engine.time(), queues: catalog.capture(), droppable };
  }

  #retryLater(): void {
    this.#retryTimer ??= this.#engine.clock.setTimer(RETRY_MS, () => {
      this.#retryTimer = undefined;
      this.#captured ??= this.#failed;
      this.#running ??= this.#runAll();
    });
  }

  async #runAll(): Promise<void> {
    try {
      for (let captured = this.#captured; captured !== undefined; captured = this.#captured) {
        this.#captured = undefined;
        this.#failed = captured;
        await this.#withBallast(captured, false);
        this.#failed = undefined;
      }
    } catch (error) {
      if (isNoSpace(error)) this.#retryLater();
      else this.#engine.fail("the checkpoint", error);
    } finally {
      this.#running = undefined;
    }
  }

  /** On a full disk, what is held in reserve is for this. What has been moved to segments stays moved. */
  async #withBallast(captured: Capture, closing: boolean): Promise<void> {
    try {
      await this.#checkpoint(captured, closing);
    } catch (error) {
      if (!isNoSpace(error)) throw error;
      this.#engine.noteDiskFull();
      if (!this.#engine.ballast.release()) throw error;
      await this.#checkpoint(captured, closing);
    }
  }

  async #checkpoint(captured: Capture, closing: boolean): Promise<void> {
    const engine = this.#engine;
    if (engine.failure !== undefined) return;
    const files = engine.wal.files.filter((file) => file.seq < captured.walSeq);
    for (const { stream, neededFrom } of captured.droppable) {
      for (const run of stream.dropRunsBelow(neededFrom)) this.#letGo(run);
    }
    await this.#moveBatches(files);
    await this.#consolidate();
    await this.#syncSegments();
    if (this.#leftOut) await engine.syncFiles();
    else await engine.wal.files.find((file) => file.seq === captured.walSeq)?.named;
    this.#leftOut = false;
    const { lsn, crc, walSeq, time } = captured;
    const { directoryId, catalog } = engine;
    const header = {
      lsn,
      walSeq,
      generation: closing ? engine.generation + 1 : engine.generation,
      crc,
      clean: closing,
      elapsedMs: time.elapsedMs,
      wallMs: time.wallMs,
      directoryId,
      lastQueueId: catalog.lastQueueId,
      lastStreamId: catalog.lastStreamId,
      lastSharedId: catalog.lastSharedId,
    };
    const directory = `${engine.directory}/snap`;
    const path = snapshotPath(directory, lsn);
    const snapshot = encodeSnapshot(header, catalog.sections(captured.queues));
    engine.snapshotBytes = snapshot.reduce((sum, part) => sum + part.length, 0);
    await writeFileAtomically(engine.disk, directory, path, snapshot);
    for (const name of engine.disk.list(directory)) {
      const older = `${directory}/${name}`;
      if (isSnapshotName(name) && older < path) engine.disk.unlink(older);
    }
    if (!closing) for (const _ of files) engine.wal.recycleOldest();
    this.#removeGarbage();
    engine.checkpointed(lsn, time.elapsedMs);
  }

  #letGo(run: Run): void {
    run.segment.runs--;
    if (run.segment.runs > 0) return;
    if (run.segment.sharedId !== 0) this.#engine.catalog.shared.delete(run.segment.sharedId);
    this.#garbage.push(run.segment);
  }

  #removeGarbage(): void {
    const { disk, files } = this.#engine;
    for (const segment of this.#garbage) {
      files.drop(segment.path);
      this.#dirty.delete(segment);
      if (disk.size(segment.path) !== undefined) disk.unlink(segment.path);
      if (segment.sharedId === 0 && disk.size(indexPath(segment)) !== undefined) disk.unlink(indexPath(segment));
    }
    this.#garbage = [];
  }

  // ------------------------------------------------------------------------------------------- from log to segments

  async #moveBatches(files: readonly WalFile[]): Promise<void> {
    const bytes = new Map<Stream, number>();
    for (const file of files) {
      for (const { stream, bytes: batch } of file.batches) bytes.set(stream, (bytes.get(stream) ?? 0) + batch);
    }
    const small = new Set<Stream>();
    for (const [stream, total] of bytes) if (total < SMALL_STREAM_BYTES) small.add(stream);
    if (small.size <= SMALL_STREAMS_MIN) small.clear();
    const sharedRefs = new Map<Stream, BatchRef[]>();
    for (const file of files) await this.#moveFile(file, small, sharedRefs);
    if (sharedRefs.size > 0) await this.#moveShared(files, sharedRefs);
    // Small streams have been taken care of together; what is left of the rest was dead.
    for (const file of files) file.batches.length = 0;
    for (const stream of bytes.keys()) forgetBatches(stream, files);
  }

  /** Copies the batches of one log file to their streams' own segments; those of small streams are only collected. */
  async #moveFile(file: WalFile, small: ReadonlySet<Stream>, sharedRefs: Map<Stream, BatchRef[]>): Promise<void> {
    const own: BatchRef[] = [];
    for (const ref of file.batches) {
      const { stream } = ref;
      // Moved by a checkpoint that did not complete?
      if ((stream.runs[stream.runs.length - 1]?.next ?? 0) >= ref.next) continue;
      if (ref.next <= stream.head || !stream.isNeeded(ref.base, ref.next)) {
        this.#leftOut = true;
        continue;
      }
      if (!small.has(ref.stream)) {
        own.push(ref);
      } else {
        const refs = sharedRefs.get(ref.stream);
        if (refs === undefined) sharedRefs.set(ref.stream, [ref]);
        else refs.push(ref);
      }
    }
    await this.#eachWindow(file, own, async (refs, buffer, start) => {
      const byStream = new Map<Stream, BatchRef[]>();
      for (const ref of refs) {
        const list = byStream.get(ref.stream);
        if (list === undefined) byStream.set(ref.stream, [ref]);
        else list.push(ref);
      }
      for (const [stream, list] of byStream) await this.#appendToSegment(stream, list, buffer, start);
    });
  }

  /** Reads the stretches of a log file that hold the given batches, the next one while the last is being used. */
  async #eachWindow(
    file: WalFile,
    refs: readonly BatchRef[],
    visit: (refs: readonly BatchRef[], buffer: Buffer, start: number) => Promise<void> | void,
  ): Promise<void> {
    let reading = this.#readWindow(file, refs, 0, 0);
    for (let count = 1; reading !== undefined; count++) {
      const { from, to, buffer, start, done } = reading;
      await done;
      reading = this.#readWindow(file, refs, to, count);
      // Should the visit fail, the read that is then under way has nobody left to report to.
      reading?.done.catch(() => {});
      await visit(refs.slice(from, to), buffer, start);
    }
  }

  #readWindow(file: WalFile, refs: readonly BatchRef[], from: number, count: number): Window | undefined {
    const first = refs[from];
    if (first === undefined) return undefined;
    const start = first.position;
    let to = from + 1;
    while (to < refs.length && refs[to]!.position + batchFileBytes(refs[to]!.bytes) - start <= WINDOW_BYTES) to++;
    const last = refs[to - 1]!;
    const length = last.position + batchFileBytes(last.bytes) - start;
    const buffer = length > WINDOW_BYTES ? Buffer.allocUnsafeSlow(length) : this.#windowBuffer(count % 2);
    const done = file.file.read(buffer, 0, length, start).then((read) => {
      if (read < length) throw new Error(`${file.file.path}: ends at ${start + read} while being read`);
    });
    return { from, to, buffer, start, done };
  }

  #windowBuffer(index: number): Buffer {
    this.#windows[index] ??= Buffer.allocUnsafeSlow(WINDOW_BYTES);
    return this.#windows[index];
  }

  async #appendToSegment(stream: Stream, refs: readonly BatchRef[], buffer: Buffer, start: number): Promise<void> {
    const run = await this.#ownRun(stream, refs[0]!);
    const { segment } = run;
    const pieces: Buffer[] = [];
    let bytes = 0;
    // Batches that stand together in the log are written as one piece.
    for (let from = 0; from < refs.length; ) {
      const first = refs[from]!;
      let end = first.position + batchFileBytes(first.bytes);
      let to = from + 1;
      while (to < refs.length && refs[to]!.position === end) end += batchFileBytes(refs[to++]!.bytes);
      pieces.push(buffer.subarray(first.position - start, end - start));
      bytes += end - first.position;
      from = to;
    }
    await this.#write(segment, pieces, segment.bytes);
    let position = segment.bytes;
    for (const ref of refs) {
      run.index?.note(ref.base, position, ref.timestamp);
      position += batchFileBytes(ref.bytes);
      run.count += ref.count;
      stream.bytes += batchFileBytes(ref.bytes) - ref.bytes;
    }
    const last = refs[refs.length - 1]!;
    run.next = last.next;
    run.lastTimestamp = last.timestamp;
    run.bytes += bytes;
    segment.bytes += bytes;
    dropRecentBelow(stream, last.next);
  }

  /** The run at the end of a stream that further batches go to: in a segment of its own that is not full. */
  async #ownRun(stream: Stream, first: BatchRef): Promise<Run> {
    const last = stream.runs[stream.runs.length - 1];
    if (last !== undefined && last.segment.sharedId === 0) {
      if (last.segment.bytes < this.#engine.options.segmentBytes) return last;
      await this.#storeIndex(last);
    }
    const segment: Segment = {
      path: segmentPath(stream.directory, first.base),
      directory: stream.directory,
      sharedId: 0,
      bytes: 0,
      dirty: true,
      unnamed: true,
      runs: 1,
    };
    await this.#create(segment, stream.id, first.base);
    const run: Run = {
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
    stream.runs.push(run);
    return run;
  }

  async #create(segment: Segment, streamId: number, base: number): Promise<void> {
    const { disk, files, directoryId } = this.#engine;
    this.#makeDirectory(segment.directory);
    // A file of this name can only be what a checkpoint that did not complete left behind.
    if (disk.size(segment.path) !== undefined) {
      files.drop(segment.path);
      disk.unlink(segment.path);
    }
    files.release(files.hold(segment.path, "create"));
    await this.#write(segment, [encodeSegmentHeader(streamId, base, directoryId)], 0);
    segment.bytes = SEGMENT_HEADER_BYTES;
  }

  #makeDirectory(path: string): void {
    const { disk, directory } = this.#engine;
    if (this.#directories.has(path)) return;
    this.#directories.add(path);
    disk.mkdir(path);
    // Each folder on the way may be new, and a folder is durable only once its parent is.
    for (let parent = path; parent.length > directory.length; ) {
      parent = parent.slice(0, parent.lastIndexOf("/"));
      this.#newDirectories.add(parent);
    }
  }

  async #write(segment: Segment, pieces: readonly Uint8Array[], position: number): Promise<void> {
    const { files } = this.#engine;
    segment.dirty = true;
    this.#dirty.add(segment);
    const held = files.hold(segment.path);
    try {
      await held.file.write(pieces, position);
    } finally {
      files.release(held);
    }
    for (const piece of pieces) this.#unsyncedBytes += piece.length;
    if (this.#unsyncedBytes >= EARLY_SYNC_BYTES) {
      this.#unsyncedBytes = 0;
      this.#syncEarly(segment);
    }
  }

  /**
   * Lets the disk begin with what a checkpoint has written, so that the sync which ends it finds little left. A failure
   * counts: the operating system may report it only once.
   */
  #syncEarly(segment: Segment): void {
    const { files } = this.#engine;
    const held = files.hold(segment.path);
    const sync = onlyOnce(segment.path, held.file.sync()).finally(() => files.release(held));
    sync.catch(() => {});
    this.#earlySyncs.push(sync);
  }

  /** The index of a segment that is complete. Only a hint: it is not synced, and rebuilt when it is missing. */
  async #storeIndex(run: Run): Promise<void> {
    const { disk, files } = this.#engine;
    if (run.index === undefined) return;
    const path = indexPath(run.segment);
    if (disk.size(path) !== undefined) disk.unlink(path);
    const held = files.hold(path, "create");
    try {
      await held.file.write([encodeIndex(run)], 0);
    } finally {
      files.release(held);
      files.drop(path);
    }
    run.index = undefined;
  }

  // --------------------------------------------------------------------------------------------- shared segments

  /** Writes the batches of small streams to one shared segment, each stream's together. */
  async #moveShared(files: readonly WalFile[], sharedRefs: ReadonlyMap<Stream, readonly BatchRef[]>): Promise<void> {
    const { catalog } = this.#engine;
    const segment = catalog.newShared();
    try {
      await this.#fillShared(segment, files, sharedRefs);
    } catch (error) {
      catalog.shared.delete(segment.sharedId);
      this.#garbage.push(segment);
      throw error;
    }
  }

  async #fillShared(
    segment: Segment,
    files: readonly WalFile[],
    sharedRefs: ReadonlyMap<Stream, readonly BatchRef[]>,
  ): Promise<void> {
    await this.#create(segment, 0, 0);
    const placed = new Map<WalFile, Placed[]>();
    const runs = new Map<Stream, Run>();
    let position = SEGMENT_HEADER_BYTES;
    for (const stream of [...sharedRefs.keys()].sort((a, b) => a.id - b.id)) {
      const refs = sharedRefs.get(stream)!;
      const first = position;
      for (const ref of refs) {
        const list = placed.get(ref.wal);
        if (list === undefined) placed.set(ref.wal, [{ ref, position }]);
        else list.push({ ref, position });
        position += batchFileBytes(ref.bytes);
      }
      runs.set(stream, newRun(segment, refs, first, position - first));
    }
    for (const list of placed.values()) list.sort((a, b) => a.ref.position - b.ref.position);
    await this.#writeSorted(files, placed, segment, position);
    segment.bytes = position;
    segment.runs = runs.size;
    for (const [stream, run] of runs) {
      stream.runs.push(run);
      for (const ref of sharedRefs.get(stream)!) stream.bytes += batchFileBytes(ref.bytes) - ref.bytes;
      dropRecentBelow(stream, run.next);
    }
  }

  /** Sorts by output position with bounded memory: one pass over the log files for each stretch of the output. */
  async #writeSorted(
    files: readonly WalFile[],
    placed: ReadonlyMap<WalFile, readonly Placed[]>,
    segment: Segment,
    end: number,
  ): Promise<void> {
    const passBytes = Math.min(this.#engine.options.cacheBytes, end - SEGMENT_HEADER_BYTES);
    const output = Buffer.allocUnsafeSlow(passBytes + WINDOW_BYTES);
    for (let start = SEGMENT_HEADER_BYTES; start < end; start += passBytes) {
      // A batch that begins in this stretch is written whole, even across its end.
      let filled = 0;
      for (const file of files) {
        const inPass = (placed.get(file) ?? []).filter(
          (each) => each.position >= start && each.position < start + passBytes,
        );
        let at = 0;
        await this.#eachWindow(
          file,
          inPass.map((each) => each.ref),
          (refs, buffer, from) => {
            for (const ref of refs) {
              const target = inPass[at++]!.position - start;
              const bytes = batchFileBytes(ref.bytes);
              buffer.copy(output, target, ref.position - from, ref.position - from + bytes);
              filled = Math.max(filled, target + bytes);
            }
          },
        );
      }
      const skip = start === SEGMENT_HEADER_BYTES ? 0 : firstPosition(placed, start) - start;
      await this.#write(segment, [output.subarray(skip, filled)], start + skip);
    }
  }

  /** Moves streams that have become scattered over many shared segments to segments of their own. */
  async #consolidate(): Promise<void> {
    let moved = 0;
    for (const state of this.#engine.catalog.loaded()) {
      for (const stream of state.streams) {
        if (moved >= MOVED_STREAMS_MAX) return;
        if (stream.runs.length <= SHARED_RUNS_MAX) continue;
        const shared = stream.runs.filter((run) => run.segment.sharedId !== 0);
        if (shared.length <= SHARED_RUNS_MAX) continue;
        moved++;
        await this.#moveRuns(stream, shared);
      }
    }
  }

  /** Copies neighbouring shared runs, batch by batch as they stand, into one segment of the stream's own. */
  async #moveRuns(stream: Stream, shared: readonly Run[]): Promise<void> {
    const from = stream.runs.indexOf(shared[0]!);
    let to = from;
    const buffers: Buffer[] = [];
    let bytes = 0;
    while (to < stream.runs.length && stream.runs[to]!.segment.sharedId !== 0) {
      const run = stream.runs[to++]!;
      const buffer = Buffer.allocUnsafeSlow(run.bytes);
      const held = this.#engine.files.hold(run.segment.path);
      try {
        if ((await held.file.read(buffer, 0, run.bytes, run.position)) < run.bytes) {
          throw new Error(`${run.segment.path}: ends before ${run.position + run.bytes}`);
        }
      } finally {
        this.#engine.files.release(held);
      }
      buffers.push(buffer);
      bytes += run.bytes;
    }
    const replaced = stream.runs.slice(from, to);
    const first = replaced[0]!;
    const last = replaced[replaced.length - 1]!;
    const path = segmentPath(stream.directory, first.first);
    const segment: Segment = {
      path,
      directory: stream.directory,
      sharedId: 0,
      bytes: 0,
      dirty: true,
      unnamed: true,
      runs: 1,
    };
    await this.#create(segment, stream.id, first.first);
    await this.#write(segment, buffers, SEGMENT_HEADER_BYTES);
    segment.bytes += bytes;
    const run: Run = {
      segment,
      position: SEGMENT_HEADER_BYTES,
      bytes,
      first: first.first,
      next: last.next,
      count: replaced.reduce((sum, each) => sum + each.count, 0),
      firstTimestamp: first.firstTimestamp,
      lastTimestamp: last.lastTimestamp,
      index: undefined,
    };
    stream.runs.splice(from, to - from, run);
    for (const each of replaced) this.#letGo(each);
  }

  async #syncSegments(): Promise<void> {
    const { files, disk } = this.#engine;
    const directories = new Set(this.#newDirectories);
    const early = this.#earlySyncs.splice(0);
    for (const sync of early) await sync;
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

function newRun(segment: Segment, refs: readonly BatchRef[], position: number, bytes: number): Run {
  const first = refs[0]!;
  const last = refs[refs.length - 1]!;
  return {
    segment,
    position,
    bytes,
    first: first.base,
    next: last.next,
    count: refs.reduce((sum, ref) => sum + ref.count, 0),
    firstTimestamp: first.timestamp,
    lastTimestamp: last.timestamp,
    index: undefined,
  };
}

/** Where the first batch at or behind a position stands. */
function firstPosition(placed: ReadonlyMap<WalFile, readonly Placed[]>, from: number): number {
  let lowest = Number.POSITIVE_INFINITY;
  for (const list of placed.values()) {
    for (const { position } of list) if (position >= from && position < lowest) lowest = position;
  }
  return lowest;
}

/** Batches that now stand in a segment are no longer looked for in the log. */
function dropRecentBelow(stream: Stream, offset: number): void {
  let count = 0;
  while (count < stream.recent.length && stream.recent[count]!.next <= offset) count++;
  stream.recent.splice(0, count);
}

/** Forgets the batches of files that are about to be reused; those still listed were not needed. */
function forgetBatches(stream: Stream, files: readonly WalFile[]): void {
  const going = new Set(files);
  let count = 0;
  while (count < stream.recent.length && going.has(stream.recent[count]!.wal))
    stream.bytes -= stream.recent[count++]!.bytes;
  stream.recent.splice(0, count);
}
