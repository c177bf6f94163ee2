/**
 * One directory: the group commit.
 *
 *   stage     in the caller's turn: checked, encoded into the current entry, its targets reserved
 *   write     once per turn of the event loop, or when a block is full: ONE write to the log for all that was staged
 *   apply     state changes, only now
 *   settle    async: at once; sync: when a shared fdatasync has made the entry durable
 *
 * An entry is the unit of the write and of recovery: all of it or nothing. What a single call stages is never split
 * over two entries, which makes every call, batch and transaction atomic.
 *
 * A failed write or fdatasync ends all changes until the directory is reopened: what the disk then holds is unknown,
 * and a retry that succeeds would prove nothing about the bytes that failed.
 */

import type { Durability, Logger } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import { putU32 } from "../api/integers.js";
import type { ResolvedOpenOptions } from "../api/options.js";
import type { Payloads } from "../api/put-each.js";
import {
  BATCH_BYTES_TARGET,
  BATCH_HEADER_BYTES,
  batchFileBytes,
  putPayload,
  putRecord,
  type RecordParts,
  sealBatch,
  written,
  zeroPadding,
} from "../storage/batch.js";
import type { BatchTable } from "../storage/batch-table.js";
import { align8, Encoder, VARINT_BYTES_MAX } from "../storage/bytes.js";
import type { Clock, Random } from "../storage/clock.js";
import { crc32 } from "../storage/crc32.js";
import { type Disk, isNoDescriptor, isNoSpace } from "../storage/disk.js";
import type { FileCache } from "../storage/file-cache.js";
import { BLOCK_BYTES, type Block, BlockRing, ChunkPool } from "../storage/memory.js";
import { closedError, Reads } from "../storage/reads.js";
import type { Stream } from "../storage/stream.js";
import type { ReaderContext } from "../storage/stream-reader.js";
import type { Wal, WalFile } from "../storage/wal.js";
import { ENTRY_HEADER_BYTES, type EntryHeader, sealEntry } from "../storage/wal-format.js";
import type { Catalog } from "./catalog.js";
import type { Operation } from "./operation.js";
import { type LogTime, OP_REQUESTS } from "./queue-state.js";
import {
  encodeRequests,
  type IdentifiedCommit,
  IdentifiedOperation,
  type NameRun,
  RequestsUnderWay,
} from "./requests.js";
import { Reserves } from "./reserves.js";
import type { Rewriter } from "./rewriter.js";
import type { Wake } from "./wake.js";

/** Log files in use at once; past it, changes wait for the checkpoint to catch up. */
export const WAL_FILES_MAX = 4;
/** Batches that are only in the log, at most: bounds the memory that describes them. */
const RECENT_BATCHES_MAX = 65_536;
/** Log space that only settling calls may use, so that a full disk can be drained. */
const SETTLE_RESERVE_BYTES = 128 * 1024;
/** Syncs of the log under way at once: while a disk is busy with one, others can make what they need ready for the next. */
const SYNCS_MAX = 2;
/** Calls that wait for the checkpoint, at most. */
const PARKED_CALLS_MAX = 65_536;
const PARKED_BYTES_MAX = 32 * 1024 * 1024;
/** Code, queue and length of an operation. */
export const OPERATION_HEADER_BYTES = 1 + VARINT_BYTES_MAX + 4;
/** Bytes that a staged batch may need beyond its records: header, padding on both sides. */
const BATCH_SLACK_BYTES = BATCH_HEADER_BYTES + 16;

export interface EnginePlatform {
  readonly disk: Disk;
  readonly clock: Clock;
  readonly random: Random;
}

/** What recovery found: where the engine goes on. */
export interface EngineStart {
  readonly directory: string;
  readonly directoryId: string;
  readonly options: ResolvedOpenOptions;
  readonly catalog: Catalog;
  readonly wal: Wal;
  readonly files: FileCache;
  readonly lsn: number;
  readonly crc: number;
  readonly generation: number;
  readonly elapsedMs: number;
  /** There are log files that the snapshot does not cover: no change is taken until a checkpoint does. */
  readonly recovering: boolean;
  /** Size of the snapshot. */
  readonly snapshotBytes: number;
}

/** Is filled in as it grows, and in full when it is closed. */
interface OpenBatch {
  stream: Stream;
  /** In the block. */
  position: number;
  base: number;
  next: number;
  count: number;
  bytes: number;
  timestamp: number;
}

/** How far a stream can be read when what was written is durable. */
interface Shown {
  readonly stream: Stream;
  readonly next: number;
}

/** What was written in one turn and is waiting to become durable. */
interface WrittenEntry {
  readonly lsn: number;
  readonly operations: Operation[];
  readonly shown: readonly Shown[];
}

/** A sync of the log, under way. */
interface Sync {
  /** It covers the entries up to this one. */
  readonly target: number;
  /** Changes that wait for it. */
  readonly changes: number;
  /** Settled when it and those before it have ended, whatever came of them. */
  readonly ended: Promise<void>;
}

interface Parked {
  readonly bytes: number;
  readonly run: () => void;
  readonly reject: (error: Error) => void;
}

export class Engine implements ReaderContext {
  readonly directory: string;
  readonly directoryId: string;
  readonly options: ResolvedOpenOptions;
  readonly logger: Logger;
  readonly disk: Disk;
  readonly clock: Clock;
  readonly random: Random;
  readonly catalog: Catalog;
  readonly wal: Wal;
  readonly files: FileCache;
  readonly blocks: BlockRing;
  readonly chunks: ChunkPool;
  readonly reads: Reads;
  readonly generation: number;
  /** Largest commit, in bytes of its encoded form. */
  readonly commitBytesMax: number;

  /** Log sequence number of the last entry written / known durable. */
  lsn: number;
  durableLsn: number;
  crc: number;
  commits = 0;
  checkpoints = 0;
  /** Space held back for draining a full disk. */
  readonly reserves: Reserves;
  /** Calls that may be repeated and have not been answered yet. */
  readonly underWay: RequestsUnderWay;
  /** Folders of segments that are known to exist. */
  readonly folders = new Set<string>();
  /** Set by the checkpointer: told when the log has moved on to a new file. */
  onRotate: (() => void) | undefined;
  /** Set by the rewriter. */
  rewriter: Rewriter | undefined;

  readonly #elapsedBase: number;
  /**
   * The next sync begins at the end of the turn that the last one ended in: those whose changes have just become durable
   * will have made further ones by then, which share it. Otherwise callers would split into two groups for ever.
   */
  readonly #syncNext = () => {
    this.#stageLast();
    this.flush();
    this.#syncIfAsked();
  };
  readonly #carriedOut = (run: NameRun, answers: readonly string[], at: number) => {
    this.catalog.requests.committed(run, answers, at, this.entryTime.elapsedMs, this.lsn);
  };
  readonly #endTurn = () => {
    try {
      this.#stageLast();
    } finally {
      this.#turnEnds = false;
      this.#wakesFollow = true;
      try {
        this.flush();
      } finally {
        this.#runWakes();
      }
    }
  };
  readonly #meta = new Encoder(64 * 1024);
  /** Of the entry that is written: made once, as every entry has one. */
  readonly #header: Omit<EntryHeader, "crc">;
  #block: Block;
  #operationStart = 0;
  #entryStart = 0;
  #bulkEnd = 0;
  #bulkCrc = 0;
  #batch: OpenBatch | undefined;
  #spareBatch: OpenBatch | undefined;
  /** Of the entry being staged. Lists are made for their first, as most stay at one: an empty one takes room for many when it gets it. */
  #operations: Operation[] | undefined;
  #staging = false;
  #wallMs = 0;
  /** Time of the entry being applied: what its operations count from, in life and in replay. */
  entryTime: LogTime = { elapsedMs: 0, wallMs: 0 };
  /** Batches that stand only in the log. */
  #recentBatches = 0;

  #waiting: WrittenEntry[] = [];
  /** Under way, the oldest first. */
  readonly #syncs: Sync[] = [];
  #syncTimer: { cancel(): void } | undefined;
  /** Elapsed time when the oldest entry was written that no sync under way or done, and no checkpoint, covers. */
  #unsyncedSince: number | undefined;
  #wakes: Wake[] = [];
  /** `#runWakes` is about to be called, so that the end of another turn need not be asked for. */
  #wakesFollow = false;
  #lastToStage: (() => void)[] | undefined;
  /** `#endTurn` will be called, and what is staged until then is written by it. */
  #turnEnds = false;

  /** The log is being marked, or is durably marked, as one in which commits are acknowledged early. */
  #noting = false;
  #asyncNoted = false;
  #failure: VarveError | undefined;
  #diskFull = false;
  /** What the disk said to a checkpoint that has not been made since: space that comes free is for that one. */
  #short: unknown;
  /** The log was read back, and nothing but the log stands for it yet. */
  #recovering: boolean;
  #stopping = false;
  #closed = false;
  readonly #unfinished = new Set<Promise<unknown>>();
  #stalled = false;
  #parked: Parked[] = [];
  #parkedBytes = 0;

  constructor(platform: EnginePlatform, start: EngineStart) {
    this.disk = platform.disk;
    this.clock = platform.clock;
    this.random = platform.random;
    this.directory = start.directory;
    this.directoryId = start.directoryId;
    this.underWay = new RequestsUnderWay(Number.parseInt(start.directoryId.slice(0, 8), 16));
    this.options = start.options;
    this.logger = start.options.logger;
    this.catalog = start.catalog;
    this.wal = start.wal;
    this.files = start.files;
    this.lsn = start.lsn;
    this.durableLsn = start.lsn;
    this.crc = start.crc;
    this.generation = start.generation;
    this.#recovering = start.recovering;
    this.#elapsedBase = start.elapsedMs - this.clock.elapsedMs();
    this.blocks = new BlockRing(start.options.cacheBytes / 2);
    this.reads = new Reads(start.directory);
    this.chunks = new ChunkPool(start.options.cacheBytes / 2);
    this.commitBytesMax = Math.floor(this.wal.entryBytesMax / 2);
    this.reserves = new Reserves(this.disk, this.directory, this.wal, start.snapshotBytes);
    this.#block = this.blocks.take(0);
    this.#meta.position = ENTRY_HEADER_BYTES;
    this.#header = {
      generation: this.generation,
      bulkBytes: 0,
      metaBytes: 0,
      lsn: 0,
      watermark: 0,
      elapsedMs: 0,
      wallMs: 0,
      prevCrc: 0,
      bulkCrc: 0,
    };
  }

  // -------------------------------------------------------------------------------------------------------- time

  /** Elapsed time of the directory in milliseconds, not rounded. */
  elapsedMs(): number {
    return this.#elapsedBase + this.clock.elapsedMs();
  }

  /** Rounded up, so that nothing counted from it comes early. */
  time(): LogTime {
    return { elapsedMs: Math.ceil(this.elapsedMs()), wallMs: this.clock.wallMs() };
  }

  // ----------------------------------------------------------------------------------------------------- staging

  /**
   * True when changes must wait for the checkpoint: then `park` the call instead of staging it. One that waits for disk
   * space itself may take for ever: they are refused.
   */
  get stalled(): boolean {
    return this.#stalled && this.#short === undefined && this.#failure === undefined && !this.#stopping;
  }

  get health(): "ok" | "failed" | "disk-full" {
    return this.#failure !== undefined ? "failed" : this.#diskFull ? "disk-full" : "ok";
  }

  get failure(): VarveError | undefined {
    return this.#failure;
  }

  /** True once new calls are refused. */
  get closed(): boolean {
    return this.#stopping;
  }

  checkOpen(): void {
    if (this.#stopping) throw closedError(this.directory);
  }

  /** Has `stop` wait for a call that was accepted and has not staged all of its changes yet. */
  async finishing<T>(call: Promise<T>): Promise<T> {
    this.#unfinished.add(call);
    try {
      return await call;
    } finally {
      this.#unfinished.delete(call);
    }
  }

  /** How a call that asks for `given` is committed. */
  durability(given: Durability | undefined): Durability {
    if (given === "async" && this.options.durability === "sync" && !this.#asyncNoted) return this.#noteAsync();
    return given ?? this.options.durability;
  }

  /**
   * Before anything in a `sync` directory is acknowledged early, the log must say, durably, that this may have happened:
   * after a power cut, offsets then go on past those that may have been given out. Until it does, calls are `sync`.
   */
  #noteAsync(): Durability {
    if (this.#failure === undefined && !this.#closed && !this.#noting) {
      this.#noting = true;
      try {
        this.wal.markAsync();
      } catch (error) {
        // The caller is in the midst of staging its change, which is refused when it would be written.
        this.#fail("marking the log", error);
        return "sync";
      }
      // Not at once: the caller is in the midst of staging its change.
      const noted = Promise.resolve().then(() => this.syncFiles());
      noted.then(
        () => {
          this.#asyncNoted = true;
        },
        () => {}, // the failure is everybody's already
      );
    }
    return "sync";
  }

  /** Calls `run` again when changes are taken once more. What waits is bounded. */
  park(bytes: number, run: () => void, reject: (error: Error) => void): void {
    if (this.#parked.length >= PARKED_CALLS_MAX || this.#parkedBytes + bytes > PARKED_BYTES_MAX) {
      const message =
        `${this.#parked.length} calls already wait for the disk; this one was refused. Await earlier calls before ` +
        "making more.";
      reject(new VarveError("ERR_OVERLOADED", message));
      return;
    }
    this.#parked.push({ bytes, run, reject });
    this.#parkedBytes += bytes;
  }

  /**
   * Makes room for a commit: everything that the caller then stages, until it returns to the event loop or calls
   * `begin` again, is one atomic part of an entry.
   * @param bulkBytes upper bound for its records, `recordBytesMax` of each
   * @param records how many, and to how many streams in turn they go at most
   * @param metaBytes upper bound for its operations
   * @param settles it frees space rather than needing it, and may use the reserve of a full disk
   */
  begin(bulkBytes: number, records: number, metaBytes: number, settles: boolean): void {
    if (this.#closed) throw closedError(this.directory);
    if (this.#failure !== undefined) throw readOnlyError(this.#failure);
    // An entry in this log file would not count for a recovery from the snapshot that there is.
    if (this.#recovering || (this.#short !== undefined && !settles)) throw this.#noSpace(this.#short);
    // A record may need a batch of its own when it does not go to the same stream as the one before.
    const own = (records === 0 ? 0 : bulkBytes + records * BATCH_SLACK_BYTES) + metaBytes + 16;
    if (ENTRY_HEADER_BYTES + own > this.commitBytesMax) {
      throw new VarveError(
        "ERR_TOO_LARGE",
        `the commit needs up to ${own} bytes; the limit is ${this.commitBytesMax}, half a log file. Split it, or raise ` +
          "walFileBytes.",
        { details: { size: own, limit: this.commitBytesMax } },
      );
    }
    if (this.#staging && !this.#hasRoomFor(own)) this.flush();
    if (!this.#staging) this.#open(own);
    if (this.#recentBatches >= RECENT_BATCHES_MAX || !this.wal.fits(this.#entryBytes() + own)) {
      this.rotate();
      this.#open(own);
    }
    if (settles) this.#allocateToSettle(own);
    else this.#allocateToGrow(own);
  }

  /** Encodes a record into the current entry and returns the offset that it gets. */
  append(stream: Stream, record: RecordParts): number {
    const batch = this.#batchFor(stream, record.payload.length);
    const offset = stream.staged++;
    this.#bulkEnd = putRecord(this.#block.buffer, this.#bulkEnd, record, 0);
    stream.payloadBytes += written.payloadBytes;
    batch.count++;
    return offset;
  }

  /** The same of records that are nothing but payloads; returns the offset of the first, on which the others follow. */
  appendAll(stream: Stream, { memories, starts, ends, bytes }: Payloads): number {
    const first = stream.staged;
    for (let index = 0; index < starts.length; index++) {
      const start = starts[index]!;
      const end = ends[index]!;
      const batch = this.#batchFor(stream, end - start);
      this.#bulkEnd = putPayload(this.#block.buffer, this.#bulkEnd, memories[index]!, start, end);
      stream.staged++;
      batch.count++;
    }
    stream.payloadBytes += bytes;
    return first;
  }

  /** @param payloadBytes of the record that is to go there, about */
  #batchFor(stream: Stream, payloadBytes: number): OpenBatch {
    const batch = this.#batch;
    if (batch === undefined || batch.stream !== stream) return this.#openBatch(stream);
    return this.#bulkEnd - batch.position + payloadBytes > BATCH_BYTES_TARGET ? this.#openBatch(stream) : batch;
  }

  /** Starts an operation on a queue in the current entry; its fields follow, then `endOperation`. */
  operation(code: number, queueId: number): Encoder {
    const meta = this.#meta;
    meta.u8(code);
    meta.varint(queueId);
    this.#operationStart = meta.position;
    meta.u32(0);
    return meta;
  }

  /** Writes the length of the operation that was started last before its fields. */
  endOperation(): void {
    const meta = this.#meta;
    putU32(meta.buffer, this.#operationStart, meta.position - this.#operationStart - 4);
  }

  /**
   * Hands over an operation that has been staged.
   * @param request that it carries out, or several; `requestBytes` of it are part of what `begin` was told
   */
  add(operation: Operation, request?: IdentifiedCommit): void {
    const whole = request === undefined ? operation : this.#identified(operation, request);
    if (this.#operations === undefined) this.#operations = [whole];
    else this.#operations.push(whole);
  }

  #identified(operation: Operation, request: IdentifiedCommit): Operation {
    const answers: string[] = [];
    for (const run of request.runs) {
      encodeRequests(this.operation(OP_REQUESTS, 0), request, run, answers);
      this.endOperation();
    }
    return new IdentifiedOperation(operation, request.runs, answers, this.#carriedOut);
  }

  /** Calls back once, before what this turn staged is written: to stage more of it. */
  atTurnEnd(callback: () => void): void {
    if (this.#lastToStage === undefined) this.#lastToStage = [callback];
    else this.#lastToStage.push(callback);
    this.#endTurnLater();
  }

  /** Calls back once at the end of the turn, when what it staged has been applied. */
  wake(wake: Wake): void {
    if (!wake.isDue) {
      wake.isDue = true;
      this.#wakes.push(wake);
    }
    if (!this.#wakesFollow) this.#endTurnLater();
  }

  // ----------------------------------------------------------------------------------------------------- writing

  /** Writes what is staged. */
  flush(): void {
    if (!this.#staging) return;
    this.#closeBatch();
    this.#staging = false;
    const operations = this.#operations ?? [];
    this.#operations = undefined;
    const { current } = this.wal;
    const { batches } = current;
    const { length: firstRow, staged } = batches;
    const meta = this.#meta;
    const metaBytes = meta.position - ENTRY_HEADER_BYTES;
    meta.position = ENTRY_HEADER_BYTES;
    if (this.#failure !== undefined) {
      // What the disk holds is unknown by now: nothing is written behind it.
      batches.discard();
      const refused = readOnlyError(this.#failure);
      for (const operation of operations) operation.fail(refused);
      return;
    }
    if (staged === 0 && metaBytes === 0) {
      // A sync that found nothing to write.
      this.#applied(operations, current, firstRow);
      return;
    }
    let buffer = meta.buffer;
    let start = 0;
    if (staged > 0) {
      buffer = this.#block.buffer;
      start = this.#entryStart;
      meta.buffer.copy(buffer, this.#bulkEnd, ENTRY_HEADER_BYTES, ENTRY_HEADER_BYTES + metaBytes);
    }
    const bulkBytes = staged > 0 ? this.#bulkEnd - start - ENTRY_HEADER_BYTES : 0;
    const end = start + ENTRY_HEADER_BYTES + bulkBytes + metaBytes;
    const lsn = this.lsn + 1;
    this.entryTime = this.time();
    const header = this.#header;
    header.bulkBytes = bulkBytes;
    header.metaBytes = metaBytes;
    header.lsn = lsn;
    header.watermark = this.durableLsn;
    header.elapsedMs = this.entryTime.elapsedMs;
    header.wallMs = this.entryTime.wallMs;
    header.prevCrc = this.crc;
    header.bulkCrc = this.#bulkCrc;
    const crc = sealEntry(buffer, start, end, header);
    let position: number;
    try {
      position = this.wal.write(buffer, start, end - start);
    } catch (error) {
      batches.discard();
      const unknown = this.#unknown(this.#fail("writing the log", error));
      for (const operation of operations) operation.fail(unknown);
      return;
    }
    this.lsn = lsn;
    this.crc = crc;
    this.#unsyncedSince ??= this.entryTime.elapsedMs;
    this.commits += operations.length;
    batches.commit(position - start);
    if (staged > 0) {
      this.#block.used = align8(end);
      // An entry larger than a block is not kept in memory.
      if (this.#block.buffer.length > BLOCK_BYTES) this.#block = this.blocks.take(0);
    }
    this.#recentBatches += staged;
    this.#applied(operations, current, firstRow);
  }

  /** Moves the log on to a new file. Throws ENOSPC as ERR_DISK_FULL. */
  rotate(): void {
    this.flush();
    const { current } = this.wal;
    const header = {
      firstLsn: this.lsn + 1,
      generation: this.generation,
      prevCrc: this.crc,
      async: this.options.durability === "async" || this.#noting,
    };
    try {
      this.wal.begin(header, current.seq + 1);
    } catch (error) {
      throw this.#noSpace(error);
    }
    this.wal.nameCurrent().catch((error) => this.fail("making the log durable", error));
    this.#recentBatches = 0;
    if (this.wal.files.length >= WAL_FILES_MAX) this.#stalled = true;
    this.onRotate?.();
  }

  /** Called by the checkpointer when a snapshot stands for the log up to `lsn`, and its files have been given up. */
  checkpointed(lsn: number, elapsedMs: number): void {
    this.checkpoints++;
    this.#short = undefined;
    this.#recovering = false;
    // What a checkpoint on a full disk has left over is kept from others: the next one may need it.
    if (this.#diskFull) this.#holdWhatIsThere(0);
    if (this.#unsyncedSince !== undefined) {
      // What is not covered was written after the capture.
      this.#unsyncedSince = lsn === this.lsn ? undefined : Math.max(this.#unsyncedSince, elapsedMs);
    }
    this.#becameDurable(lsn);
    this.#syncTimer?.cancel();
    this.#syncTimer = undefined;
    if (this.#syncs.length === 0) this.#syncLater();
    if (this.wal.files.length >= WAL_FILES_MAX) return;
    this.#stalled = false;
    this.#unpark();
  }

  // ------------------------------------------------------------------------------------------------------ syncing

  /** Resolves when everything written so far is durable. */
  async sync(): Promise<void> {
    this.flush();
    const target = this.lsn;
    while (this.durableLsn < target) {
      if (this.#failure !== undefined) throw readOnlyError(this.#failure);
      const covering = this.#syncs.find((sync) => sync.target >= target);
      if (covering !== undefined) await covering.ended;
      else if (this.#syncs.length < SYNCS_MAX) await this.#startSync();
      else await this.#syncs[0]!.ended;
    }
    if (this.#failure !== undefined) throw readOnlyError(this.#failure);
  }

  /** Makes the log files durable as they are now, also where no entry has been added. */
  async syncFiles(): Promise<void> {
    this.flush();
    while (this.#syncs.length >= SYNCS_MAX) await this.#syncs[0]!.ended;
    await this.#startSync();
    if (this.#failure !== undefined) throw readOnlyError(this.#failure);
  }

  /**
   * Begins a sync for the changes that wait for one. Beside another it is begun as soon as it would carry as many changes:
   * two groups of callers then go on without waiting for each other, and do not crumble into ever smaller ones.
   */
  #syncIfAsked(): void {
    const last = this.#syncs[this.#syncs.length - 1];
    const changes = this.#asking;
    if (changes === 0 || this.#syncs.length >= SYNCS_MAX) return;
    if (last === undefined || changes >= last.changes) void this.#startSync();
  }

  /** Changes that wait to become durable, and for which no sync is under way. */
  get #asking(): number {
    const covered = this.#syncs[this.#syncs.length - 1]?.target ?? 0;
    let changes = 0;
    for (let index = this.#waiting.length - 1; index >= 0; index--) {
      const { lsn, operations } = this.#waiting[index]!;
      if (lsn <= covered) break;
      changes += operations.length;
    }
    return changes;
  }

  #startSync(): Promise<void> {
    this.#syncTimer?.cancel();
    this.#syncTimer = undefined;
    const target = this.lsn;
    const changes = this.#asking;
    this.#unsyncedSince = undefined;
    const ended = this.#sync(target, this.#syncs[this.#syncs.length - 1]?.ended);
    this.#syncs.push({ target, changes, ended });
    return ended;
  }

  /** @param before those that were begun earlier: what they cover becomes durable first */
  async #sync(target: number, before: Promise<void> | undefined): Promise<void> {
    try {
      await this.wal.sync();
    } catch (error) {
      const failure = this.#fail("making the log durable", error);
      this.#abandon(this.#unknown(failure));
    }
    await before;
    this.#syncs.shift();
    if (this.#failure !== undefined) {
      // What was written while this sync was under way, before a write failed, will not be synced any more.
      this.#abandon(this.#unknown(this.#failure));
      return;
    }
    this.#becameDurable(target);
    if (this.#asking > 0) this.clock.defer(this.#syncNext);
    else if (this.#syncs.length === 0) this.#syncLater();
  }

  #becameDurable(lsn: number): void {
    this.durableLsn = Math.max(this.durableLsn, lsn);
    let done = 0;
    while (done < this.#waiting.length && this.#waiting[done]!.lsn <= lsn) done++;
    this.#wakesFollow = true;
    try {
      for (const entry of this.#waiting.splice(0, done)) {
        for (const { stream, next } of entry.shown) stream.show(next);
        for (const operation of entry.operations) operation.settle();
      }
    } finally {
      this.#runWakes();
    }
  }

  /** Sees to it that what was written becomes durable within the interval from when it was written. */
  #syncLater(): void {
    if (this.#unsyncedSince === undefined || this.#syncTimer !== undefined || this.#closed) return;
    const waitMs = this.#unsyncedSince + this.options.syncIntervalMs - this.elapsedMs();
    this.#syncTimer = this.clock.setTimer(Math.max(0, waitMs), () => {
      this.#syncTimer = undefined;
      void this.#startSync();
    });
  }

  // ------------------------------------------------------------------------------------------------------ closing

  /** Refuses changes from now on; what was accepted is made durable. */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.#unpark();
    const error = closedError(this.directory);
    for (const state of this.catalog.loaded()) state.close(error);
    while (this.#unfinished.size > 0) await Promise.allSettled(this.#unfinished);
    this.flush();
    this.#closed = true;
    if (this.#failure === undefined) {
      await this.sync().catch((failure: unknown) => {
        if (this.#failure === undefined) throw failure;
      });
    }
    // A checkpoint may have made durable what they were begun for; the files that they are at are closed next.
    while (this.#syncs.length > 0) await this.#syncs[0]!.ended;
    this.#syncTimer?.cancel();
    await this.reserves.stop();
  }

  /**
   * After `stop`: why what was acknowledged last, before it was to be durable, may not be. Undefined when all that has
   * been written is durable.
   */
  get unsaved(): VarveError | undefined {
    if (this.#failure === undefined || this.durableLsn >= this.lsn) return undefined;
    return new VarveError(
      "ERR_OUTCOME_UNKNOWN",
      `${this.#failure.message}: of what was written last, some may not be durable. Reopen the directory to see.`,
      { cause: this.#failure.cause },
    );
  }

  // ------------------------------------------------------------------------------------------------------ reading

  readFile(path: string): Buffer | undefined {
    return this.disk.size(path) === undefined ? undefined : this.disk.readFile(path);
  }

  // ------------------------------------------------------------------------------------------------------ private

  /** Bytes of the entry that is being staged, at most. */
  #entryBytes(): number {
    return this.#bulkEnd - this.#entryStart + this.#meta.position;
  }

  /** Whether the entry being staged can take this much more without becoming too large or leaving its block. */
  #hasRoomFor(bytes: number): boolean {
    const end = this.#bulkEnd + this.#meta.position + bytes;
    return end <= this.#block.buffer.length && end - this.#entryStart <= this.commitBytesMax;
  }

  #open(bytes: number): void {
    const needed = 2 * ENTRY_HEADER_BYTES + bytes;
    if (this.#block.used + needed > this.#block.buffer.length) this.#block = this.blocks.take(needed);
    this.#entryStart = this.#block.used;
    this.#bulkEnd = this.#entryStart + ENTRY_HEADER_BYTES;
    this.#bulkCrc = 0;
    this.#staging = true;
    this.#wallMs = this.clock.wallMs();
    this.#endTurnLater();
  }

  #endTurnLater(): void {
    if (this.#turnEnds) return;
    this.#turnEnds = true;
    this.clock.defer(this.#endTurn);
  }

  /** Makes sure that a change which needs space has it, and that the reserves for draining the disk stay whole. */
  #allocateToGrow(own: number): void {
    const bytes = this.#entryBytes() + own;
    const reserve = Math.min(SETTLE_RESERVE_BYTES, this.options.walFileBytes / 8);
    try {
      this.wal.allocate(this.wal.fits(bytes + reserve) ? bytes + reserve : bytes);
      this.wal.prepareSpare();
      this.wal.prepareAhead();
      this.reserves.hold(bytes);
    } catch (error) {
      throw this.#noSpace(error);
    }
    if (!this.#diskFull) return;
    this.#diskFull = false;
    this.wal.prepareAgain();
    this.logger.info({ directory: this.directory }, "there is space on the disk again");
  }

  /** Holds what a checkpoint can need, or as much of it as the disk has. */
  #holdWhatIsThere(bytes: number): void {
    try {
      this.reserves.hold(bytes);
    } catch (error) {
      this.#noSpace(error);
    }
  }

  /** Makes sure that a change which frees space can be logged, also on a full disk as far as the reserves go. */
  #allocateToSettle(own: number): void {
    try {
      this.wal.allocate(this.#entryBytes() + own);
    } catch (error) {
      const full = this.#noSpace(error);
      if (!this.wal.hasSpare) throw full;
      // The rest of this file cannot be had; the next one has been kept ready.
      this.rotate();
      this.#open(own);
      try {
        this.wal.allocate(this.#entryBytes() + own);
      } catch (again) {
        throw this.#noSpace(again);
      }
    }
    // Deliveries add to what a checkpoint needs as well. They are no reason to refuse them.
    if (!this.#diskFull) this.#holdWhatIsThere(this.#entryBytes() + own);
  }

  /** What the caller is told when log space could not be allocated. */
  #noSpace(error: unknown): VarveError {
    if (isNoDescriptor(error)) {
      const { code } = error as NodeJS.ErrnoException;
      return new VarveError(
        "ERR_IO",
        `${this.directory}: a file could not be opened, as there are too many open (${code}); nothing was changed. Close ` +
          "some, or raise the limit (ulimit -n).",
        { cause: error },
      );
    }
    if (!isNoSpace(error)) return readOnlyError(this.#fail("allocating log space", error));
    this.noteDiskFull();
    return new VarveError(
      "ERR_DISK_FULL",
      `${this.directory}: the disk is full; nothing was changed. Reads and acks go on; free space to write again.`,
      { cause: error },
    );
  }

  #openBatch(stream: Stream): OpenBatch {
    this.#closeBatch();
    const batch = this.#spareBatch ?? { stream, position: 0, base: 0, next: 0, count: 0, bytes: 0, timestamp: 0 };
    this.#spareBatch = undefined;
    batch.stream = stream;
    batch.position = this.#bulkEnd;
    batch.base = stream.staged;
    batch.count = 0;
    batch.timestamp = Math.max(this.#wallMs, stream.lastTimestamp);
    stream.lastTimestamp = batch.timestamp;
    this.#bulkEnd += BATCH_HEADER_BYTES;
    this.#batch = batch;
    return batch;
  }

  #closeBatch(): void {
    const batch = this.#batch;
    if (batch === undefined) return;
    this.#batch = undefined;
    this.#spareBatch = batch;
    const { stream, position, base, count, timestamp } = batch;
    const { buffer } = this.#block;
    const end = this.#bulkEnd;
    sealBatch(buffer, position, end, stream.id, count, base, timestamp, count);
    this.#bulkCrc = crc32(buffer, position, position + 4, this.#bulkCrc);
    this.#bulkEnd = position + batchFileBytes(end - position);
    zeroPadding(buffer, position, end - position);
    batch.next = base + count;
    batch.bytes = end - position;
    const block = buffer.length > BLOCK_BYTES ? undefined : this.#block;
    this.wal.current.batches.stage(batch, block, position);
  }

  /** @param firstRow of the file's batches, the first that the entry has brought */
  #applied(operations: Operation[], wal: WalFile, firstRow: number): void {
    const { batches } = wal;
    const end = batches.length;
    try {
      for (let row = firstRow; row < end; row++) batches.streamOf(row).add(wal, row);
      for (const operation of operations) operation.apply();
    } catch (error) {
      // What is in the log and what is in memory differ now: nothing may be acknowledged any more.
      this.#abandon(this.#unknown(this.#fail("applying a commit", error)));
      throw error;
    }
    const sync = this.options.durability === "sync";
    if (!sync) for (let row = firstRow; row < end; row++) batches.streamOf(row).show(batches.nextOf(row));
    let late: Operation[] | undefined;
    for (const operation of operations) {
      if (operation.durability === "sync") {
        late ??= [];
        late.push(operation);
      } else {
        operation.settle();
      }
    }
    if (late !== undefined || (sync && firstRow < end)) {
      this.#waiting.push({ lsn: this.lsn, operations: late ?? [], shown: sync ? shownOf(batches, firstRow, end) : [] });
    }
    if (late !== undefined) this.#syncIfAsked();
    else if (this.#syncs.length === 0) this.#syncLater();
  }

  #stageLast(): void {
    while (this.#lastToStage !== undefined) {
      const callbacks = this.#lastToStage;
      this.#lastToStage = undefined;
      for (const callback of callbacks) callback();
    }
  }

  /** Unless there is something to be applied before: then the end of the turn calls them back. */
  #runWakes(): void {
    this.#wakesFollow = false;
    if (this.#wakes.length === 0 || this.#staging) return;
    const wakes = this.#wakes;
    this.#wakes = [];
    // Before any of them runs, and may ask for another one, or throw.
    for (const wake of wakes) wake.isDue = false;
    for (const wake of wakes) wake.callback();
  }

  #unpark(): void {
    const parked = this.#parked;
    this.#parked = [];
    this.#parkedBytes = 0;
    for (const call of parked) call.run();
  }

  /** Turns the engine read-only for good. Returns what callers are told. */
  #fail(doing: string, error: unknown): VarveError {
    if (this.#failure === undefined) {
      const reason = error instanceof Error ? error.message : String(error);
      // What the operating system said, where that is behind it.
      const cause = error instanceof VarveError ? (error.cause ?? error) : error;
      this.#failure = new VarveError("ERR_READ_ONLY", `${this.directory}: ${doing} failed (${reason})`, { cause });
      this.logger.error({ directory: this.directory, error }, `${doing} failed; no more changes are taken`);
      this.wal.markFailed();
      this.#stalled = false;
      this.#unpark();
    }
    return this.#failure;
  }

  noteDiskFull(): void {
    if (!this.#diskFull) this.logger.error({ directory: this.directory }, "the disk is full");
    this.#diskFull = true;
  }

  /** For the checkpointer, whose checkpoint lacks space: until one has been made, it is first in line. */
  noteShort(error: unknown): void {
    this.noteDiskFull();
    this.#short = error;
    // Those who wait for it are refused by now.
    if (this.#parked.length > 0) this.clock.defer(() => this.#unpark());
  }

  /** For the checkpointer, whose failures are as final as a failed write. */
  fail(doing: string, error: unknown): void {
    this.#abandon(this.#unknown(this.#fail(doing, error)));
  }

  /** Tells those who wait for their changes to become durable that this will not be known. */
  #abandon(error: VarveError): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const entry of waiting) for (const operation of entry.operations) operation.fail(error);
  }

  #unknown(failure: VarveError): VarveError {
    return new VarveError(
      "ERR_OUTCOME_UNKNOWN",
      `${failure.message}: the change may or may not have been made. Reopen the directory to see.`,
      { cause: failure.cause },
    );
  }
}

/** What some batches let readers have. Their rows may be given up before they are durable: a checkpoint can be the faster. */
function shownOf(batches: BatchTable, from: number, to: number): Shown[] {
  const shown: Shown[] = [];
  for (let row = from; row < to; row++) shown.push({ stream: batches.streamOf(row), next: batches.nextOf(row) });
  return shown;
}

function readOnlyError(failure: VarveError): VarveError {
  return new VarveError(
    "ERR_READ_ONLY",
    `${failure.message}; no more changes are taken. Reads go on. Reopen the directory when the disk is well.`,
    { cause: failure.cause },
  );
}
