/**
 * The checkpoint: moves what stands only in the log to segments, snapshots the queues, and gives log files back for
 * reuse. It runs whenever the log has moved on to a new file, and once at open and at close.
 *
 * Order, each step durable before the next:
 *   1. capture the queues' states at the border between two log files (in the turn that crosses it)
 *   2. copy the batches of the older files to segments, except those whose tasks are all done
 *   3. fdatasync the segments, then the folders that hold new ones; from then on they are what is read
 *   4. make the log durable as far as it goes, if step 2 left out what only later entries say is done; in any case the
 *      name of the log file that follows
 *   5. write the snapshot
 *   6. reuse the older log files; remove segments that the snapshot no longer names
 * A crash at any point leaves either the old snapshot with all of its log, or the new one.
 */

import { isVarveError } from "../api/errors.js";
import type { BatchTable } from "../storage/batch-table.js";
import { isNoDescriptor, isNoSpace } from "../storage/disk.js";
import type { Run } from "../storage/segment.js";
import {
  encodeSnapshot,
  isSnapshotName,
  PREVIOUS_SNAPSHOT,
  snapshotPath,
  writeFileAtomically,
} from "../storage/snapshot.js";
import { type Gap, type Stream, withGap } from "../storage/stream.js";
import type { WalFile } from "../storage/wal.js";
import type { CapturedQueue, DeletedQueue } from "./catalog.js";
import { removeFiles } from "./deletion.js";
import type { Engine } from "./engine.js";
import { LogWindows } from "./log-windows.js";
import type { LogTime } from "./queue-state.js";
import { type MovedBatches, SegmentWriter } from "./segment-writer.js";
import { SharedSegments } from "./shared-segments.js";

/** A stream with less to store than this may share a segment ... */
const SMALL_STREAM_BYTES = 64 * 1024;
/** ... when there are more such streams than this. */
const SMALL_STREAMS_MIN = 16;
/** Wait before a checkpoint that ran out of disk space, or of file descriptors, is tried again. */
const RETRY_MS = 1000;
/** An index of fewer bytes of batches than this is rebuilt faster than it is read. */
const STORED_INDEX_BYTES_MIN = 1024 * 1024;

/** A rewritten run, durable, and those that it takes the place of: neighbours, and all of them sealed. */
export interface Replacement {
  readonly replaced: readonly Run[];
  /** Undefined when nothing is left of them. */
  readonly run: Run | undefined;
}

/** Replacements that take effect together. */
interface Rewritten {
  readonly stream: Stream;
  readonly replacements: readonly Replacement[];
  /** Called when they have taken effect in memory. */
  readonly published: () => void;
  /** Told whether they are durable; false when the old runs were no longer there. */
  readonly settle: (done: boolean) => void;
}

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
  readonly deleted: readonly DeletedQueue[];
  readonly requests: Buffer;
}

export class Checkpointer {
  readonly #engine: Engine;
  readonly #writer: SegmentWriter;
  readonly #windows = new LogWindows();
  readonly #shared: SharedSegments;
  #captured: Capture | undefined;
  /** Ran out of disk space or descriptors; tried again when nothing newer has been captured. */
  #failed: Capture | undefined;
  #running: Promise<void> | undefined;
  #retryTimer: { cancel(): void } | undefined;
  /** Batches were not moved because entries that may not yet be durable say that they are done. */
  #leftOut = false;
  /** What is written saves descriptors and seeks, but is not part of the checkpoint. */
  #consolidating = false;
  /** Wait for a checkpoint to put them in their places / for its snapshot to be durable. */
  #rewritten: Rewritten[] = [];
  #published: Rewritten[] = [];
  /** Wait for a checkpoint that covers the log up to `lsn`. */
  #awaited: { readonly lsn: number; readonly resolve: (done: boolean) => void }[] = [];
  /** Wait for a moment at which nothing is staged. */
  #between: (() => void)[] = [];
  /** Deleted queues whose files are being removed. */
  readonly #removing = new Set<DeletedQueue>();
  /** Called after each checkpoint but the last. */
  onCheckpoint: (() => void) | undefined;

  constructor(engine: Engine) {
    this.#engine = engine;
    this.#writer = new SegmentWriter(engine, (run) => (this.#consolidating ? run() : this.#withReserves(run)));
    this.#shared = new SharedSegments(engine, this.#writer, this.#windows);
    engine.onRotate = () => {
      this.#captured = this.#capture();
      this.#start();
    };
  }

  /**
   * Checkpoints everything before the current log file, in which nothing has been written yet. False when the disk has no
   * room for it: it is then tried again until it has.
   */
  async checkpointNow(): Promise<boolean> {
    const captured = this.#capture();
    try {
      await this.#withReserves(() => this.#checkpoint(captured, false));
      return true;
    } catch (error) {
      if (!isNoSpace(error)) throw error;
      this.#failed = captured;
      this.#retryLater();
      return false;
    }
  }

  /**
   * Has the next checkpoint put rewritten runs in the places of the old ones. Resolves when its snapshot is durable; false
   * when they were not wanted any more, and the new segments are to be removed by the caller.
   */
  publish(stream: Stream, replacements: readonly Replacement[], published: () => void): Promise<boolean> {
    return new Promise((settle) => {
      this.#rewritten.push({ stream, replacements, published, settle });
      if (this.#engine.failure !== undefined) this.withdraw();
    });
  }

  /** Resolves when a checkpoint that covers the log up to an lsn has been made; false when there will not be one. */
  covered(lsn: number): Promise<boolean> {
    return new Promise((resolve) => {
      this.#awaited.push({ lsn, resolve });
      if (this.#engine.failure !== undefined) this.withdraw();
    });
  }

  /** Calls back at a moment at which no checkpoint is adding to runs: now, or when the next one begins. */
  between(callback: () => void): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#between.push(() => {
        try {
          callback();
          resolve();
        } catch (error) {
          reject(error as Error);
        }
      });
      if (this.#running === undefined) this.#runBetween();
    });
  }

  #runBetween(): void {
    for (const callback of this.#between.splice(0)) callback();
  }

  get running(): boolean {
    return this.#running !== undefined;
  }

  /** Gives up on what has been rewritten and is not published. */
  withdraw(): void {
    for (const { resolve } of this.#awaited.splice(0)) resolve(false);
    for (const { settle } of this.#rewritten.splice(0)) settle(false);
    for (const { settle } of this.#published.splice(0)) settle(true);
  }

  /** Whether a file has been begun, or is to be removed, by a checkpoint that is not yet completed. */
  uses(path: string): boolean {
    return this.#writer.uses(path);
  }

  /** Resolves when no checkpoint is under way. */
  async settled(): Promise<void> {
    while (this.#running !== undefined) await this.#running;
  }

  /** Resolves when no checkpoint is under way, and none will be tried again. */
  async stop(): Promise<void> {
    await this.settled();
    this.#retryTimer?.cancel();
  }

  /** The last checkpoint of an orderly close: nothing is left to recover. No change may be staged any more. */
  async close(): Promise<void> {
    await this.stop();
    const captured = { ...this.#capture(), walSeq: this.#engine.wal.current.seq + 1 };
    await this.#withReserves(() => this.#checkpoint(captured, true));
    await this.#engine.wal.syncSpares();
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
    const walSeq = engine.wal.current.seq;
    const { deleted } = catalog;
    const [queues, requests] = [catalog.capture(), catalog.captureRequests()];
    return { lsn, crc, walSeq, time: engine.time(), queues, droppable, deleted, requests };
  }

  #retryLater(): void {
    this.#retryTimer ??= this.#engine.clock.setTimer(RETRY_MS, () => {
      this.#retryTimer = undefined;
      this.#captured ??= this.#failed;
      this.#start();
    });
  }

  #start(): void {
    if (this.#running !== undefined || this.#captured === undefined) return;
    this.#running = this.#runAll().finally(() => {
      this.#running = undefined;
      this.#runBetween();
      this.#start();
    });
  }

  async #runAll(): Promise<void> {
    try {
      for (let captured = this.#captured; captured !== undefined; captured = this.#captured) {
        this.#captured = undefined;
        this.#failed = captured;
        await this.#withReserves(() => this.#checkpoint(captured, false));
        this.#failed = undefined;
      }
    } catch (error) {
      if (isNoSpace(error) || isNoDescriptor(error)) this.#retryLater();
      else this.#engine.fail("the checkpoint", error);
      this.withdraw();
    }
  }

  /**
   * On a full disk, what is held in reserve is for this. It is given a piece at a time, to the very write that lacks it:
   * a kill in the midst of a checkpoint finds next to nothing that others could have taken.
   */
  async #withReserves<T>(run: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await run();
      } catch (error) {
        if (!isNoSpace(error)) throw error;
        this.#engine.noteShort(error);
        if (!(await this.#engine.reserves.giveUp())) throw error;
      }
    }
  }

  async #checkpoint(captured: Capture, closing: boolean): Promise<void> {
    const engine = this.#engine;
    if (this.#isGivenUp()) return;
    this.#runBetween();
    const files = engine.wal.files.filter((file) => file.seq < captured.walSeq);
    for (const { stream, neededFrom } of captured.droppable) {
      for (const run of stream.dropRunsBelow(neededFrom)) this.#writer.letGo(run);
    }
    for (const queue of captured.deleted) this.#letGoDeleted(queue);
    try {
      await this.#moveBatches(files);
      // It takes space, which is not held in reserve for it.
      this.#consolidating = true;
      if (engine.health === "ok") await this.#shared.consolidate();
      await this.#writer.sync();
    } catch (error) {
      this.#writer.abandon();
      throw error;
    } finally {
      this.#consolidating = false;
    }
    // What was copied from a log file of which a sync has failed meanwhile may be something else than was written there.
    if (this.#isGivenUp()) return;
    this.#writer.publish();
    this.#replaceRuns(captured);
    await this.#writer.storeFullIndexes();
    if (closing) await this.#storeIndexes();
    const sections = engine.catalog.sections(captured.queues, captured.deleted, captured.requests);
    if (this.#leftOut) await engine.syncFiles();
    else await engine.wal.files.find((file) => file.seq === captured.walSeq)?.named;
    // Where one sync of the log has failed, another one that succeeds proves nothing: what the snapshot asks for may be gone.
    if (this.#isGivenUp()) return;
    await this.#writeSnapshot(captured, sections, closing);
    this.#leftOut = false;
    if (!closing) for (const _ of files) engine.wal.recycleOldest();
    engine.checkpointed(captured.lsn, captured.time.elapsedMs);
    await this.#writer.removeGarbage();
    await this.#removeDeleted(captured.deleted, closing);
    for (const { settle } of this.#published.splice(0)) settle(true);
    const awaited = this.#awaited.splice(0);
    this.#awaited = awaited.filter(({ lsn }) => lsn > captured.lsn);
    for (const { lsn, resolve } of awaited) if (lsn <= captured.lsn) resolve(true);
    if (!closing) this.onCheckpoint?.();
  }

  /** Whether the log has failed: then nothing is made of what has been begun. */
  #isGivenUp(): boolean {
    if (this.#engine.failure === undefined) return false;
    this.#writer.abandon();
    this.withdraw();
    return true;
  }

  /** The snapshot will not name the queue any more. */
  #letGoDeleted(queue: DeletedQueue): void {
    const { streams } = queue;
    if (streams !== "unknown") {
      this.#writer.letGoShared(streams);
    } else {
      const unused = this.#engine.catalog.recountShared();
      if (unused === undefined) return;
      for (const segment of unused) this.#writer.letGoUnused(segment);
    }
    queue.streams = [];
  }

  /** Removes the files of deleted queues, when no rewrite is under way: it may be at one of them. */
  async #removeDeleted(queues: readonly DeletedQueue[], closing: boolean): Promise<void> {
    const { rewriter } = this.#engine;
    for (const queue of queues) {
      if (this.#removing.has(queue)) continue;
      if (closing || rewriter === undefined) {
        await this.#removeFiles(queue);
        continue;
      }
      this.#removing.add(queue);
      const removed = rewriter.exclusive(() => this.#removeFiles(queue)).finally(() => this.#removing.delete(queue));
      removed.catch((error: Error) => {
        // A later checkpoint goes on with it, or the next life.
        if (!isVarveError(error)) this.#engine.fail("removing a deleted queue", error);
      });
    }
  }

  async #removeFiles(queue: DeletedQueue): Promise<void> {
    const { disk, files, catalog, folders } = this.#engine;
    const { kind, name, lastStreamId } = queue;
    const folder = catalog.folderOf(queue);
    await removeFiles(disk, files, folder, lastStreamId, (path) => {
      if (catalog.find(kind, name) !== undefined) return false;
      folders.delete(path);
      return true;
    });
    // While runs of it may stand in shared segments, they are still to be counted.
    if (queue.streams !== "unknown") catalog.deleted = catalog.deleted.filter((each) => each !== queue);
  }

  /** Puts rewritten runs in their places. */
  #replaceRuns(captured: Capture): void {
    const streams = new Map(captured.queues.flatMap(({ streams }) => streams).map((each) => [each.stream, each]));
    for (const rewritten of this.#rewritten.splice(0)) {
      const { stream, replacements } = rewritten;
      const place = streams.get(stream);
      if (place === undefined) {
        // Read from its section since the capture: the next checkpoint's turn. Or its queue is gone.
        if (this.#engine.catalog.stream(stream.id) === stream) this.#rewritten.push(rewritten);
        else rewritten.settle(false);
        continue;
      }
      if (!replacements.every(({ replaced }) => standsTogether(stream, replaced))) {
        rewritten.settle(false);
        continue;
      }
      for (const replacement of replacements) {
        const gap = this.#replace(stream, replacement);
        if (gap !== undefined) place.gaps = withGap(place.gaps, gap);
      }
      // What was left out may be so because of entries that are not durable yet.
      this.#leftOut = true;
      rewritten.published();
      this.#published.push(rewritten);
    }
  }

  /** Puts a run in the place of those that are still there; returns the offsets at which nothing is left. */
  #replace(stream: Stream, { replaced, run }: Replacement): Gap | undefined {
    const still = replaced.filter((each) => stream.runs.includes(each));
    const [oldest] = still;
    if (oldest === undefined) {
      if (run !== undefined) this.#writer.letGo(run);
      return undefined;
    }
    stream.rewrites++;
    stream.hasHoles = true;
    stream.runs.splice(stream.runs.indexOf(oldest), still.length, ...(run === undefined ? [] : [run]));
    stream.bytes += run?.bytes ?? 0;
    for (const each of still) {
      stream.bytes -= each.bytes;
      this.#writer.letGo(each);
    }
    if (run !== undefined) return undefined;
    const gap = { from: oldest.first, to: still[still.length - 1]!.next };
    stream.addGap(gap);
    return gap;
  }

  async #writeSnapshot(
    captured: Capture,
    sections: Parameters<typeof encodeSnapshot>[1],
    closing: boolean,
  ): Promise<void> {
    const { disk, directory, directoryId, catalog, generation } = this.#engine;
    const { lsn, walSeq, crc, time } = captured;
    const header = {
      lsn,
      walSeq,
      generation: closing ? generation + 1 : generation,
      crc,
      clean: closing,
      elapsedMs: time.elapsedMs,
      wallMs: time.wallMs,
      directoryId,
      lastQueueId: catalog.lastQueueId,
      lastStreamId: catalog.lastStreamId,
      lastSharedId: catalog.lastSharedId,
    };
    const folder = `${directory}/snap`;
    const path = snapshotPath(folder, lsn);
    const snapshot = encodeSnapshot(header, sections);
    this.#engine.reserves.snapshotBytes = snapshot.reduce((sum, part) => sum + part.length, 0);
    await this.#withReserves(() => writeFileAtomically(disk, folder, path, snapshot));
    for (const name of disk.list(folder)) {
      const older = `${folder}/${name}`;
      // Never read by an open; what it says of a queue is worth a lot should this one be lost.
      if (isSnapshotName(name) && older < path) disk.rename(older, `${folder}/${PREVIOUS_SNAPSHOT}`);
    }
  }

  async #moveBatches(files: readonly WalFile[]): Promise<void> {
    const bytes = new Map<Stream, number>();
    for (const { batches } of files) {
      for (let row = 0; row < batches.length; row++) {
        const stream = batches.streamOf(row);
        bytes.set(stream, (bytes.get(stream) ?? 0) + batches.bytesOf(row));
      }
    }
    const small = new Set<Stream>();
    for (const [stream, total] of bytes) if (total < SMALL_STREAM_BYTES) small.add(stream);
    if (small.size <= SMALL_STREAMS_MIN) small.clear();
    const shared = new Map<Stream, MovedBatches[]>();
    for (const file of files) await this.#moveFile(file, small, shared);
    if (shared.size > 0) await this.#shared.move(files, shared);
    this.#writer.stageChange(() => {
      const going = new Set(files);
      for (const stream of bytes.keys()) stream.dropRecent(going);
      for (const file of files) file.batches.clear();
    });
  }

  /** Copies the batches of one log file to their streams' own segments; those of small streams are only collected. */
  async #moveFile(file: WalFile, small: ReadonlySet<Stream>, shared: Map<Stream, MovedBatches[]>): Promise<void> {
    const { batches } = file;
    const own = new Uint32Array(batches.length);
    const ofSmall = new Uint32Array(batches.length);
    let ownCount = 0;
    let smallCount = 0;
    for (let row = 0; row < batches.length; row++) {
      const stream = batches.streamOf(row);
      const next = batches.nextOf(row);
      if (next <= stream.head || !stream.isNeeded(batches.baseOf(row), next)) this.#leftOut = true;
      else if (small.has(stream)) ofSmall[smallCount++] = row;
      else own[ownCount++] = row;
    }
    for (const [stream, rows] of byStream(batches, ofSmall.subarray(0, smallCount))) {
      const list = shared.get(stream);
      if (list === undefined) shared.set(stream, [{ wal: file, rows }]);
      else list.push({ wal: file, rows });
    }
    await this.#windows.each(file, own.subarray(0, ownCount), async (read, buffer, start) => {
      for (const [stream, rows] of byStream(batches, read)) {
        await this.#writer.append(stream, { wal: file, rows }, buffer, start);
      }
    });
  }

  /** So that the next life finds its way in large segments that are not yet full. */
  async #storeIndexes(): Promise<void> {
    for (const state of this.#engine.catalog.loaded()) {
      for (const { runs } of state.streams) {
        const last = runs[runs.length - 1];
        if (last?.segment.sharedId === 0 && last.bytes >= STORED_INDEX_BYTES_MIN) await this.#writer.storeIndex(last);
      }
    }
  }
}

/** Whether runs are a stream's still, next to each other, except for the oldest ones that it has dropped. */
function standsTogether(stream: Stream, runs: readonly Run[]): boolean {
  const dropped = runs.findIndex((run) => stream.runs.includes(run));
  if (dropped < 0) return runs.every((run) => run.next <= stream.head);
  const at = stream.runs.indexOf(runs[dropped]!);
  if (dropped > 0 && at > 0) return false;
  return runs.slice(dropped).every((run, index) => stream.runs[at + index] === run);
}

/** Some of the batches of a log file, sorted by stream: each one's in order. */
function byStream(batches: BatchTable, rows: Uint32Array): Map<Stream, Uint32Array> {
  const counts = new Map<Stream, number>();
  for (let index = 0; index < rows.length; index++) {
    const stream = batches.streamOf(rows[index]!);
    counts.set(stream, (counts.get(stream) ?? 0) + 1);
  }
  const sorted = new Map<Stream, Uint32Array>();
  const all = new Uint32Array(rows.length);
  let end = 0;
  for (const [stream, count] of counts) {
    sorted.set(stream, all.subarray(end, end + count));
    end += count;
  }
  for (let index = rows.length - 1; index >= 0; index--) {
    const row = rows[index]!;
    const stream = batches.streamOf(row);
    const left = counts.get(stream)! - 1;
    counts.set(stream, left);
    sorted.get(stream)![left] = row;
  }
  return sorted;
}
