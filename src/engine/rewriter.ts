/**
 * Rewrites sealed runs of a stream without the records that are no longer wanted. Offsets stay. In the background, one
 * job at a time, a little at a time: the event loop and the disk are the callers' first.
 *
 * Order: read the old runs and write what stays to a new segment; fdatasync it; then the next checkpoint puts the new
 * run in the place of the old ones and its snapshot says so; the old segments go when that snapshot is durable. A crash
 * at any point leaves the old runs or the new one. A reader in the middle of an old run goes on in the new one: records
 * have the same offsets there.
 *
 * Nothing that matters depends on a rewrite: when the disk has no room for the copy, it is removed, and tried again
 * after a later checkpoint.
 */

import { isVarveError, VarveError } from "../api/errors.js";
import { BATCH_HEADER_BYTES, type RecordCursor } from "../storage/batch.js";
import type { Timer } from "../storage/clock.js";
import { isNoDescriptor, isNoSpace } from "../storage/disk.js";
import { isOwnSegmentName, type Run, SEGMENT_HEADER_BYTES, streamIdOfName } from "../storage/segment.js";
import type { Stream } from "../storage/stream.js";
import { indexPathOf, StreamReader } from "../storage/stream-reader.js";
import type { Checkpointer, Replacement } from "./checkpoint.js";
import type { Engine } from "./engine.js";
import type { QueueState } from "./queue-state.js";
import { RunOutput } from "./run-output.js";
import { SegmentWriter } from "./segment-writer.js";
import { Slices } from "./slices.js";

/** Records between two looks at the clock. */
const LOOK_RECORDS = 8;
/** With more log files than this in use, the disk is busy enough with what is new. */
const WAL_FILES_BEHIND = 2;
/** Bytes written before they are made durable, so that no fdatasync has much to do and holds up that of the log. */
const SYNC_BYTES = 1024 * 1024;
/** Longest rest of the disk after that: twice as long as it took, so that the log has its turn. */
const SYNC_REST_MS_MAX = 100;
/** Bytes rewritten before they are published, and the space of the old segments comes free. */
const PUBLISH_BYTES = 256 * 1024 * 1024;
/** A run with less than this part of a segment in it is merged with a neighbour that is rewritten. */
export const SMALL_PART = 1 / 4;
/** An index of fewer bytes of batches than this is rebuilt faster than it is read. */
const STORED_INDEX_BYTES_MIN = 1024 * 1024;

export type Keep = (record: RecordCursor) => boolean;

export interface Rewritten {
  readonly recordsRemoved: number;
  readonly bytesRemoved: number;
}

/** A run, and what is to stay of it. */
interface Measured {
  readonly run: Run;
  readonly kept: number;
  readonly keptBytes: number;
  readonly removed: number;
}

export class Rewriter {
  readonly #engine: Engine;
  readonly #checkpointer: Checkpointer;
  readonly #writer: SegmentWriter;
  /** Ends with the last job that was asked for. */
  #last: Promise<unknown> = Promise.resolve();
  #stopping = false;
  /** Upkeep is waiting for its turn. */
  #woken = false;
  #timer: Timer | undefined;
  readonly #slices: Slices;
  /** Streams whose folders hold nothing that is left over from an earlier life. */
  readonly #tidied = new WeakSet<Stream>();
  /** Queues with segments that cannot be read: left alone, they need a repair. */
  readonly #unreadable = new WeakSet<QueueState>();

  constructor(engine: Engine, checkpointer: Checkpointer) {
    this.#engine = engine;
    this.#checkpointer = checkpointer;
    this.#writer = new SegmentWriter(engine);
    this.#slices = new Slices(
      engine.clock,
      () => engine.lsn,
      () => engine.wal.files.length > WAL_FILES_BEHIND,
    );
    engine.rewriter = this;
    checkpointer.onCheckpoint = () => this.wake();
  }

  get segmentBytes(): number {
    return this.#engine.options.segmentBytes;
  }

  /** Has the queues asked for what they have to do. */
  wake(): void {
    if (this.#woken || this.#stopping) return;
    this.#woken = true;
    const run = this.exclusive(() => {
      this.#woken = false;
      return this.#upkeep();
    });
    run.catch(() => {}); // stopped, or told by the engine
  }

  /** Runs a job when all that were asked for before have ended. */
  exclusive<T>(job: () => Promise<T>): Promise<T> {
    const run = this.#last.then(() => {
      this.#check();
      this.#slices.begin();
      return job();
    });
    this.#last = run.catch(() => {});
    return run;
  }

  /** Stops what is under way. */
  async close(): Promise<void> {
    this.#stopping = true;
    this.#timer?.cancel();
    this.#checkpointer.withdraw();
    await this.#last;
  }

  /** Has everything written so far put into segments. */
  async checkpoint(): Promise<void> {
    const { lsn } = this.#engine;
    this.#check();
    while (this.#engine.stalled) {
      await this.#checkpointer.covered(0);
      this.#check();
    }
    this.#engine.rotate();
    if (!(await this.#checkpointer.covered(lsn))) this.#noCheckpoint();
  }

  /** Told that a checkpoint was given up. */
  #noCheckpoint(): never {
    this.#check();
    throw Object.assign(new Error(`${this.#engine.directory}: a checkpoint has no room`), { code: "ENOSPC" });
  }

  /**
   * Runs that no checkpoint adds to any more.
   * @param all the last one as well: what comes goes to a new segment
   */
  async seal(stream: Stream, all: boolean): Promise<readonly Run[]> {
    let runs: Run[] = [];
    await this.#checkpointer.between(() => {
      this.#tidy(stream);
      runs = [...stream.runs];
      const last = runs[runs.length - 1];
      if (all && last !== undefined) stream.sealedTo = Math.max(stream.sealedTo, last.next);
      if (last !== undefined && last.segment.sharedId === 0 && last.next > stream.sealedTo) runs.pop();
    });
    this.#check();
    return runs;
  }

  /** Visits the records with offsets in [from, to) in order, until `visit` returns false. */
  async scan(stream: Stream, from: number, to: number, visit: (record: RecordCursor) => boolean): Promise<void> {
    await this.#visit(stream, from, to, (record) => visit(record));
  }

  /** Ends a stretch of work when it has been long enough. */
  async pause(): Promise<void> {
    this.#check();
    if (!this.#slices.over) return;
    await this.#slices.rest();
    this.#check();
  }

  /**
   * Rewrites those of the given runs, neighbours, that hold records to be removed. `keep` may be asked twice. Resolves
   * when this is durable, and the space has been given back.
   * @param published called when all of it has taken effect, before that is durable
   * @throws what reading and writing throw, `ERR_CLOSED`, `ERR_OVERLOADED` when the runs were replaced meanwhile
   */
  async rewrite(stream: Stream, runs: readonly Run[], keep: Keep, published: () => void): Promise<Rewritten> {
    const measured: Measured[] = [];
    for (const run of runs) measured.push(await this.#measure(stream, run, keep));
    const groups = this.#group(stream, measured);
    const result = { recordsRemoved: 0, bytesRemoved: 0 };
    if (groups.length === 0) published();
    let staged: Replacement[] = [];
    let bytes = 0;
    try {
      for (const [index, group] of groups.entries()) {
        const run = await this.#copy(stream, group, keep);
        const replaced = group.map((each) => each.run);
        staged.push({ replaced, run });
        bytes += run?.bytes ?? 0;
        result.recordsRemoved += group.reduce((sum, { removed }) => sum + removed, 0);
        result.bytesRemoved += replaced.reduce((sum, each) => sum + each.bytes, 0) - (run?.bytes ?? 0);
        const last = index === groups.length - 1;
        if (bytes < PUBLISH_BYTES && !last) continue;
        await this.#publish(stream, staged, last ? published : () => {});
        staged = [];
        bytes = 0;
      }
    } catch (error) {
      this.#writer.abandon();
      throw error;
    }
    return result;
  }

  // ------------------------------------------------------------------------------------------------------ background

  async #upkeep(): Promise<void> {
    const engine = this.#engine;
    let dueMs = Number.POSITIVE_INFINITY;
    for (const state of [...engine.catalog.loaded()]) {
      if (this.#stopping || engine.health !== "ok") return;
      if (this.#unreadable.has(state)) continue;
      try {
        await state.upkeep?.(this);
      } catch (error) {
        this.#failed(state, error);
      }
      dueMs = Math.min(dueMs, state.upkeepDue?.() ?? Number.POSITIVE_INFINITY);
    }
    this.#timer?.cancel();
    this.#timer = undefined;
    if (this.#stopping || dueMs === Number.POSITIVE_INFINITY) return;
    this.#timer = engine.clock.setTimer(Math.max(1000, dueMs - engine.clock.wallMs()), () => this.wake());
  }

  #failed(state: QueueState, error: unknown): void {
    const { logger, directory } = this.#engine;
    const queue = state.name;
    if (this.#stopping || this.#engine.failure !== undefined) return;
    if (isNoSpace(error) || isNoDescriptor(error)) {
      logger.info({ directory, queue, error }, "there is no room to rewrite segments now");
    } else if (isVarveError(error, "ERR_CORRUPT") || isVarveError(error, "ERR_IO")) {
      this.#unreadable.add(state);
      logger.warn({ directory, queue, error }, "segments that cannot be read are not rewritten");
    } else if (!isVarveError(error)) {
      this.#engine.fail("rewriting a segment", error);
    }
  }

  /** Throws when there is nothing more to be done. */
  #check(): void {
    const { failure, directory } = this.#engine;
    if (this.#stopping) throw new VarveError("ERR_CLOSED", `${directory} is closed. Open it again to go on.`);
    if (failure !== undefined) throw failure;
  }

  /** Removes what a crash has left of rewrites that were not published, or whose old segments were not removed yet. */
  #tidy(stream: Stream): void {
    if (this.#tidied.has(stream)) return;
    const { disk, files } = this.#engine;
    const { directory } = stream;
    const named = new Set(stream.runs.map((run) => run.segment.path));
    let names: string[] = [];
    try {
      // Those of a queue that had the name before are removed in their own time.
      names = disk.list(directory).filter((name) => isOwnSegmentName(name) && streamIdOfName(name) === stream.id);
    } catch (error) {
      if (isNoDescriptor(error)) throw error;
      const { code, message } = error as NodeJS.ErrnoException;
      if (code !== "ENOENT") throw new VarveError("ERR_IO", `${directory}: ${message}`, { cause: error });
    }
    for (const name of names.sort()) {
      const path = `${directory}/${name}`;
      if (named.has(path) || this.#checkpointer.uses(path)) continue;
      for (const each of [path, indexPathOf(path)]) {
        files.drop(each);
        if (disk.size(each) !== undefined) disk.unlink(each);
      }
    }
    this.#tidied.add(stream);
  }

  // ------------------------------------------------------------------------------------------------------- rewriting

  async #visit(
    stream: Stream,
    from: number,
    to: number,
    visit: (record: RecordCursor) => boolean | Promise<void>,
  ): Promise<void> {
    const reader = new StreamReader(stream, this.#engine, from);
    this.#slices.goOn();
    for (let count = 1; ; count++) {
      const found = reader.next(to);
      if (found === "end") return;
      if (found === "load") {
        await this.#slices.idle(reader.load());
        await this.pause();
        continue;
      }
      const go = visit(reader.record);
      if (go === false) return;
      if (go !== true) await this.#slices.idle(go);
      if (count % LOOK_RECORDS === 0) await this.pause();
    }
  }

  async #measure(stream: Stream, run: Run, keep: Keep): Promise<Measured> {
    const measured = { run, kept: 0, keptBytes: 0, removed: 0 };
    await this.scan(stream, run.first, run.next, (record) => {
      if (keep(record)) {
        measured.kept++;
        measured.keptBytes += record.copyBytesMax;
      } else {
        measured.removed++;
      }
      return true;
    });
    return measured;
  }

  /** Which neighbours become one run: what has something to be removed, and small ones beside it. */
  #group(stream: Stream, measured: readonly Measured[]): Measured[][] {
    const { segmentBytes } = this.#engine.options;
    const { roll } = stream;
    const bytesMax = Math.min(segmentBytes, roll.bytes) - SEGMENT_HEADER_BYTES - BATCH_HEADER_BYTES;
    const groups: Measured[][] = [];
    let group: Measured[] = [];
    let kept = 0;
    let keptBytes = 0;
    const end = () => {
      if (group.some(({ removed }) => removed > 0)) groups.push(group);
      group = [];
      kept = 0;
      keptBytes = 0;
    };
    for (const each of measured) {
      const oldest = group[0]?.run.firstTimestamp ?? each.run.firstTimestamp;
      const fits =
        keptBytes + each.keptBytes <= bytesMax &&
        kept + each.kept <= roll.records &&
        each.run.lastTimestamp - oldest <= roll.ageMs;
      if (!fits) end();
      // A run that stays as it is ends a group, unless it is small.
      if (each.removed === 0 && each.keptBytes >= segmentBytes * SMALL_PART) {
        end();
        continue;
      }
      group.push(each);
      kept += each.kept;
      keptBytes += each.keptBytes;
    }
    end();
    return groups;
  }

  /** Copies what stays of neighbouring runs to a new segment, and makes it durable. */
  async #copy(stream: Stream, group: readonly Measured[], keep: Keep): Promise<Run | undefined> {
    const { first } = group[0]!.run;
    const { next } = group[group.length - 1]!.run;
    const keptBytes = group.reduce((sum, each) => sum + each.keptBytes, 0);
    if (keptBytes === 0) return undefined;
    this.#makeSureOfSpace(stream, keptBytes);
    if (stream.deleted !== undefined) throw stream.deleted;
    const edition = 1 + Math.max(...group.map(({ run }) => run.segment.edition));
    const segment = await this.#writer.createOwn(stream, first, edition);
    const output = new RunOutput(this.#writer, segment, stream.id, first);
    let unsynced = 0;
    const flush = async () => {
      unsynced += await output.flush();
      if (unsynced < SYNC_BYTES) return;
      unsynced = 0;
      const { clock } = this.#engine;
      const startedMs = clock.elapsedMs();
      await this.#writer.syncFile(segment);
      const restMs = Math.min(2 * (clock.elapsedMs() - startedMs), SYNC_REST_MS_MAX);
      if (restMs >= 1) await new Promise<void>((resolve) => clock.setTimer(restMs, resolve, true));
    };
    await this.#visit(stream, first, next, (record) => {
      if (!keep(record)) return true;
      output.add(record);
      return output.full ? flush() : true;
    });
    const run = await output.finish(next);
    if (run === undefined) {
      // What was wanted when it was measured is no longer.
      this.#writer.discard(segment);
      return undefined;
    }
    await this.#writer.syncFile(segment);
    this.#check();
    await this.#writer.sync();
    return run;
  }

  /** The copy must not take the space that callers are about to need. */
  #makeSureOfSpace(stream: Stream, bytes: number): void {
    const { disk, directory, options } = this.#engine;
    const free = disk.freeBytes(directory);
    if (this.#engine.health === "ok" && (free === undefined || free >= bytes + options.walFileBytes)) return;
    const message = `${stream.directory}: rewriting it takes ${bytes} bytes, which the disk does not have to spare`;
    throw Object.assign(new Error(message), { code: "ENOSPC" });
  }

  async #publish(stream: Stream, replacements: readonly Replacement[], published: () => void): Promise<void> {
    // What waits for a checkpoint has been given up when this stops: nothing may be added to it after that.
    this.#check();
    let settled = false;
    const done = this.#checkpointer.publish(stream, replacements, published).then((result) => {
      settled = true;
      return result;
    });
    while (!settled && !this.#stopping) {
      // One that is under way may take this along; under load the next one soon will.
      if (!this.#checkpointer.running && !this.#engine.stalled) {
        try {
          this.#engine.rotate();
        } catch (error) {
          this.#checkpointer.withdraw();
          throw error;
        }
      }
      // One that is ending has told all who waited for it, and would not tell who asks only now.
      const over = this.#checkpointer.running ? this.#checkpointer.settled() : this.#checkpointer.covered(0);
      await Promise.race([done, over]);
    }
    if (!(await done)) {
      this.#check();
      if (stream.deleted !== undefined) throw stream.deleted;
      throw new VarveError("ERR_OVERLOADED", `${stream.directory}: its segments were changed meanwhile; try again`);
    }
    this.#writer.publish();
    for (const { run } of replacements) if (run !== undefined) await this.#storeIndex(stream, run);
  }

  /** As for any segment that is complete. */
  async #storeIndex(stream: Stream, run: Run): Promise<void> {
    if (run.bytes < STORED_INDEX_BYTES_MIN || run === stream.runs[stream.runs.length - 1]) return;
    if (stream.runs.includes(run) && (await this.#writer.storeIndex(run))) run.index = undefined;
  }
}
