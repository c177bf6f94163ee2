/**
 * Reads the records of a stream in order, from wherever they stand: memory, log file or segment. `next()` never waits;
 * when the bytes it needs are only on disk it says so, and `load()` fetches them.
 *
 * Every batch that comes from a file is checked against its checksum before a record of it is given out. A damaged
 * batch costs its own records: reading one of them fails with ERR_CORRUPT, which names the offsets lost, and those
 * behind it are found by looking for the next intact batch.
 */

import { isVarveError, VarveError } from "../api/errors.js";
import { getU32 } from "../api/integers.js";
import {
  BATCH_BYTES_TARGET,
  BATCH_HEADER_BYTES,
  BATCH_LENGTH_AT,
  type BatchHeader,
  batchFileBytes,
  batchIsIntact,
  batchStreamId,
  RecordCursor,
  readBatchHeader,
} from "./batch.js";
import { MalformedError } from "./bytes.js";
import type { FileCache } from "./file-cache.js";
import { type Block, CHUNK_BYTES, type Chunk, type ChunkPool, newChunk } from "./memory.js";
import type { Reads } from "./reads.js";
import {
  decodeIndex,
  type Run,
  SEGMENT_HEADER_BYTES,
  type Segment,
  SparseIndex,
  segmentHeaderIsIntact,
  segmentHeaderProblem,
} from "./segment.js";
import { type Recent, rowFor, type Stream } from "./stream.js";
import { Wal } from "./wal.js";

export interface ReaderContext {
  readonly files: FileCache;
  readonly chunks: ChunkPool;
  readonly reads: Reads;
  readonly directoryId: string;
  /** Whole contents of a small file, or undefined when there is none. */
  readFile(path: string): Buffer | undefined;
}

export interface ReaderOptions {
  /** Read into memory that is never reused, so that views of payloads stay valid; with this many bytes at a time. */
  readonly ownedChunkBytes?: number;
  /** One record is wanted: what is read is a stretch between two entries of the index, not a whole chunk. */
  readonly single?: boolean;
  /** That memory is used again after all, once what was given out of it has been `returned`. */
  readonly lendsChunks?: boolean;
}

/** A chunk that is being read, or has been, before it is wanted. */
interface Ahead {
  readonly chunk: Chunk;
  /** Where in the file it will end. */
  readonly end: number;
  ready: boolean;
  done: Promise<void> | undefined;
}

/** Read at once, at least. */
const READ_BYTES_MIN = 8 * 1024;
/** Chunks that a replay reads ahead of its consumer. */
const OWNED_READS_AHEAD = 2;
/** Chunks that are kept for reuse: the one that was given out, and the one before. */
const LENT_SPARE_MAX = 2;
/** More than a batch that is not a single large record takes. */
const STRADDLE_BYTES = BATCH_BYTES_TARGET + 8 * 1024;

/** Segments whose header has been checked in this life of the process. */
const checkedSegments = new WeakSet<Segment>();

export class StreamReader {
  /** The record that the last successful `next()` came to. */
  readonly record = new RecordCursor();
  /** Where the batch that it is in stands, its first offset, and the one behind it. */
  readonly #batch = { file: "", position: 0, base: 0, next: 0 };
  readonly #stream: Stream;
  readonly #context: ReaderContext;
  readonly #owned: number | undefined;
  /** Views of records are good until `returned` is called, or, of what is in memory, until the end of the turn. */
  readonly lends: boolean;
  readonly #single: boolean;
  /** Chunks that have been read through, and may still be lent; and those that can be used again. */
  #spent: Chunk[] = [];
  #spare: Chunk[] = [];
  #wanted: number;
  #block: Block | undefined;
  #blockLife = 0;
  #chunk: Chunk | undefined;
  /** Read ahead of the consumer; awaited by the next load that wants those bytes. */
  readonly #ahead: Ahead[] = [];
  /** Where the next batch starts, while a run is read in order. */
  #run: Run | undefined;
  #runPosition = 0;
  /** Offset behind the last intact batch seen in the run; what is missing from here on is damage. */
  #runOffset = 0;
  /** The batch at the place in the run is damaged, and the next intact one still to be found. */
  #isDamaged = false;
  /** Where the next batch stands among those of a log file, most likely. */
  #recentIndex = 0;
  /** What was lost before the batch that was found. */
  #damage: VarveError | undefined;
  #sequentialLoads = 0;
  /** Where the last read of a pooled chunk began, and how much is read at once: less where chunks are taken away unread. */
  #readFile: object | undefined;
  #readFrom = 0;
  #readBytes = CHUNK_BYTES;
  /** The last chunk was taken away. */
  #isLost = false;

  constructor(stream: Stream, context: ReaderContext, offset: number, options: ReaderOptions = {}) {
    this.#stream = stream;
    this.#context = context;
    this.#wanted = offset;
    this.#owned = options.ownedChunkBytes;
    this.lends = options.lendsChunks === true;
    this.#single = options.single === true;
  }

  /** Nobody looks any more at the records that were given out. */
  returned(): void {
    for (const chunk of this.#spent) if (this.#spare.length < LENT_SPARE_MAX) this.#spare.push(chunk);
    this.#spent = [];
  }

  /** The lowest offset that the next record may have. */
  get position(): number {
    return this.#wanted;
  }

  /** True when views of the current record's bytes stay valid. */
  get stable(): boolean {
    return this.#block === undefined && this.#owned !== undefined;
  }

  /** There may be nothing to read for long: whoever waits for it needs no memory of his own. */
  rest(): void {
    if (this.#owned !== undefined) this.#setChunk(undefined);
    this.#ahead.length = 0;
    this.#spent = [];
    this.#spare = [];
  }

  /** Nothing more is read: its memory is another reader's. */
  close(): void {
    this.record.leave();
    this.#setChunk(undefined);
    this.rest();
  }

  seek(offset: number): void {
    if (offset === this.#wanted) return;
    this.#wanted = offset;
    this.record.leave();
    this.#run = undefined;
    this.#sequentialLoads = 0;
  }

  /**
   * Steps to the next record below `limit`.
   * - "record": `record` describes it.
   * - "end": there is none.
   * - "load": call `load()`, then `next()` again.
   * @throws VarveError `ERR_CORRUPT`; `ERR_NOT_FOUND`: the stream's queue has been deleted
   */
  next(limit: number): "record" | "end" | "load" {
    const record = this.record;
    const { deleted } = this.#stream;
    if (deleted !== undefined) throw deleted;
    for (;;) {
      if (record.left > 0 && this.#current()) {
        this.#step();
        if (record.offset < this.#wanted) continue;
        if (record.offset >= limit) {
          // Cannot be given yet: stand before it again.
          this.#leaveBatch();
          return "end";
        }
        this.#wanted = record.offset + 1;
        return "record";
      }
      // With records left, the memory that they stood in was taken away.
      if (record.left > 0) this.#leaveBatch();
      if (this.#wanted < this.#stream.head) this.#wanted = this.#stream.head;
      if (this.#wanted >= limit) return "end";
      const entered = this.#enter(limit);
      if (entered !== "record") return entered;
    }
  }

  /**
   * Fetches the bytes that `next()` asked for.
   * @throws VarveError `ERR_IO`, `ERR_CORRUPT`, `ERR_CLOSED`, `ERR_NOT_FOUND`
   */
  async load(): Promise<void> {
    this.#context.reads.begin();
    const run = this.#stream.runFor(this.#wanted);
    try {
      await this.#load(run);
    } catch (error) {
      // Its files may be gone already.
      if (this.#stream.deleted !== undefined) throw this.#stream.deleted;
      // The segment was given up, and perhaps removed, while it was being read: next() finds what has taken its place.
      if (run !== this.#stream.runFor(this.#wanted)) return;
      throw readError(this.#stream, error);
    } finally {
      this.#context.reads.end();
    }
  }

  async #load(run: Run | undefined): Promise<void> {
    if (run !== undefined) {
      if (run !== this.#run) await this.#locate(run);
      if (this.#isDamaged) {
        this.#isDamaged = false;
        await this.#passDamage(run);
        return;
      }
      // The stream may have changed meanwhile; next() finds out.
      const available = run.position + run.bytes - this.#runPosition;
      if (available <= 0) return;
      const needed = this.#neededBytes(available);
      await this.#fill(run.segment, this.#runPosition, needed, run.position + run.bytes);
      return;
    }
    const recent = this.#stream.recentFor(this.#wanted);
    if (recent !== undefined) await this.#fillFromWal(recent);
  }

  /** Steps to the next record of the batch. One that matches its checksum and is malformed was written by no varve. */
  #step(): void {
    try {
      this.record.next();
    } catch (error) {
      if (!(error instanceof MalformedError)) throw error;
      this.#leaveBatch();
      const { file, position, next } = this.#batch;
      throw damaged(file, position, this.#wanted, next, error.message);
    }
  }

  /** Leaves a batch before its end: it must be looked for again, as the place in the run is behind it already. */
  #leaveBatch(): void {
    this.record.leave();
    this.#run = undefined;
  }

  /** True while the memory that the current batch stands in still holds it. */
  #current(): boolean {
    if (this.#block !== undefined) return this.#block.life === this.#blockLife;
    return this.#chunk !== undefined && this.#chunk.owner === this;
  }

  #enter(limit: number): "record" | "end" | "load" {
    const run = this.#stream.runFor(this.#wanted);
    if (run !== undefined) return run.first >= limit ? "end" : this.#enterRun(run, limit);
    this.#run = undefined;
    const recent = this.#stream.recentFor(this.#wanted);
    return recent === undefined ? "end" : this.#enterRecent(recent, limit);
  }

  #enterRecent(recent: Recent, limit: number): "record" | "end" | "load" {
    const { wal } = recent;
    const { batches } = wal;
    const index = batches.indexBehind(recent.rows, this.#wanted, this.#recentIndex);
    this.#recentIndex = index + 1;
    const row = recent.rows[index]!;
    const base = batches.baseOf(row);
    if (base >= limit) return "end";
    const position = batches.positionOf(row);
    const next = batches.nextOf(row);
    const block = batches.blockOf(row);
    if (block !== undefined) {
      this.#block = block;
      this.#blockLife = block.life;
      this.#enterBatch(wal.file.path, position, base, next);
      this.record.enter(block.buffer, batches.startOf(row), batches.countOf(row), base, batches.timestampOf(row));
      return "record";
    }
    const bytes = batches.bytesOf(row);
    const at = this.#inChunk(wal, position, bytes);
    if (at < 0) return "load";
    const { buffer } = this.#chunk!;
    this.#chunk!.isNew = false;
    const header = readBatchHeader(buffer, at, at + bytes);
    if (header === undefined || header.baseOffset !== base || !batchIsIntact(buffer, at, bytes)) {
      throw damaged(wal.file.path, position, Math.max(base, this.#wanted), next);
    }
    this.#block = undefined;
    this.#enterBatch(wal.file.path, position, base, next);
    this.record.enter(buffer, at, batches.countOf(row), base, batches.timestampOf(row));
    return "record";
  }

  #enterBatch(file: string, position: number, base: number, next: number): void {
    this.#batch.file = file;
    this.#batch.position = position;
    this.#batch.base = base;
    this.#batch.next = next;
  }

  #enterRun(run: Run, limit: number): "record" | "end" | "load" {
    if (this.#run !== run) return "load";
    if (this.#damage !== undefined) {
      const damage = this.#damage;
      this.#run = undefined;
      throw damage;
    }
    const end = run.position + run.bytes;
    while (this.#runPosition < end) {
      const headerAt = this.#reach(run, this.#runPosition, BATCH_HEADER_BYTES);
      if (headerAt < 0) return "load";
      const header = readBatchHeader(this.#chunk!.buffer, headerAt, this.#chunk!.buffer.length);
      if (header !== undefined && plausible(header, this.#stream.id, this.#runOffset, run.next)) {
        if (header.bytes <= end - this.#runPosition) {
          const at = this.#reach(run, this.#runPosition, header.bytes);
          if (at < 0) return "load";
          const { buffer } = this.#chunk!;
          this.#chunk!.isNew = false;
          if (batchIsIntact(buffer, at, header.bytes)) {
            const missing = this.#missingBefore(run, header.baseOffset);
            if (missing !== undefined && missing < limit) {
              const { path } = run.segment;
              this.#run = undefined;
              throw damaged(path, this.#runPosition, missing, header.baseOffset, "a batch is not where it was written");
            }
            if (header.baseOffset >= limit) return "end";
            const { baseOffset, span } = header;
            this.#enterBatch(run.segment.path, this.#runPosition, baseOffset, baseOffset + span);
            this.#runPosition += batchFileBytes(header.bytes);
            this.#runOffset = baseOffset + span;
            if (this.#runOffset <= this.#wanted) continue;
            this.#block = undefined;
            this.record.enter(buffer, at, header.count, header.baseOffset, header.timestamp);
            return "record";
          }
        }
      }
      // What stands behind it is looked for where there is time to wait.
      this.#isDamaged = true;
      return "load";
    }
    // All of the run has been read and nothing at or above the wanted offset is left in it.
    if (this.#runOffset < run.next) {
      const from = Math.max(this.#runOffset, this.#wanted);
      this.#wanted = run.next;
      throw damaged(run.segment.path, this.#runPosition, from, run.next);
    }
    this.#wanted = Math.max(this.#wanted, run.next);
    return this.#wanted >= limit ? "end" : this.#enter(limit);
  }

  /**
   * The first wanted offset that should have a record before the batch that the run goes on with: where a write went astray,
   * one intact batch can stand in the place of another. It can be told where nothing was ever left out of the run.
   */
  #missingBefore(run: Run, base: number): number | undefined {
    if (base <= this.#runOffset) return undefined;
    const stream = this.#stream;
    const missing = stream.skipGaps(Math.max(this.#runOffset, this.#wanted));
    if (missing >= base || run.count !== stream.recordsBetween(run.first, run.next)) return undefined;
    return missing;
  }

  /**
   * Stands before the next intact batch behind a damaged one, or at the end of the run. If the damage covers the wanted
   * offset, `next()` says so.
   */
  async #passDamage(run: Run): Promise<void> {
    const from = this.#runPosition;
    const end = run.position + run.bytes;
    const header = await this.#findIntact(run, from + 8, end);
    this.#runPosition = header === undefined ? end : header.position;
    if (header === undefined) return;
    const lost = Math.max(this.#runOffset, this.#wanted);
    this.#runOffset = header.baseOffset;
    if (header.baseOffset > this.#wanted) {
      this.#damage = damaged(run.segment.path, from, lost, header.baseOffset);
    }
  }

  /** The next intact batch of the stream at or behind a position, wherever it is aligned. */
  async #findIntact(
    run: Run,
    from: number,
    end: number,
  ): Promise<{ position: number; baseOffset: number } | undefined> {
    const held = this.#context.files.hold(run.segment.path);
    let buffer = Buffer.allocUnsafeSlow(Math.min(CHUNK_BYTES, end - from + 8));
    try {
      for (let position = from; position + BATCH_HEADER_BYTES <= end; ) {
        const read = await held.file.read(buffer, 0, Math.min(buffer.length, end - position), position);
        let at = 0;
        for (; at + BATCH_HEADER_BYTES <= read; at += 8) {
          // The common case, not one of the stream's batches, must be cheap: this looks at every eighth byte.
          if (batchStreamId(buffer, at) !== this.#stream.id) continue;
          const header = readBatchHeader(buffer, at, read);
          if (header === undefined || !plausible(header, this.#stream.id, this.#runOffset, run.next)) continue;
          if (header.bytes > end - position - at) continue;
          // Read again from where it begins, with as much memory as it takes.
          if (at + header.bytes > read) break;
          if (batchIsIntact(buffer, at, header.bytes))
            return { position: position + at, baseOffset: header.baseOffset };
        }
        const wanted = readBatchHeader(buffer, at, read)?.bytes ?? 0;
        if (at + BATCH_HEADER_BYTES <= read && wanted > buffer.length) buffer = Buffer.allocUnsafeSlow(wanted);
        else if (at === 0) return undefined;
        position += at;
      }
      return undefined;
    } finally {
      this.#context.files.release(held);
    }
  }

  /** Finds where in a run to start reading for the wanted offset. */
  async #locate(run: Run): Promise<void> {
    this.#noteLoss();
    this.#setChunk(undefined);
    const { segment } = run;
    if (!checkedSegments.has(segment)) {
      const buffer = Buffer.alloc(SEGMENT_HEADER_BYTES);
      const held = this.#context.files.hold(segment.path);
      try {
        await held.file.read(buffer, 0, SEGMENT_HEADER_BYTES, 0);
      } finally {
        this.#context.files.release(held);
      }
      const streamId = segment.sharedId === 0 ? this.#stream.id : 0;
      const problem = segmentHeaderProblem(buffer, streamId, this.#context.directoryId);
      if (problem !== undefined && segmentHeaderIsIntact(buffer))
        throw damaged(segment.path, 0, Math.max(run.first, this.#wanted), run.next, problem);
      checkedSegments.add(segment);
    }
    const isInBatch = this.#isInBatch(run);
    if (
      run.index === undefined &&
      this.#wanted > run.first &&
      !isInBatch &&
      (segment.sharedId === 0 || run.bytes > CHUNK_BYTES)
    ) {
      const stored = segment.sharedId === 0 ? this.#context.readFile(indexPath(segment)) : undefined;
      run.index = (stored && decodeIndex(stored, run)) ?? (await this.#buildIndex(run));
    }
    this.#run = run;
    this.#isDamaged = false;
    this.#damage = undefined;
    this.#sequentialLoads = 0;
    this.#runPosition = run.position;
    this.#runOffset = run.first;
    if (isInBatch) {
      this.#runPosition = this.#batch.position;
      this.#runOffset = this.#batch.base;
    } else if (this.#wanted > run.first) {
      const batch = run.index?.batchBefore(this.#wanted);
      if (batch !== undefined) {
        this.#runPosition = batch.position;
        this.#runOffset = batch.offset;
        if (this.#single && batch.nextPosition !== undefined) this.#readBytes = batch.nextPosition - batch.position;
      }
    }
  }

  /** What is wanted stands in the batch that was left, or lost, half-way. */
  #isInBatch(run: Run): boolean {
    const { file, position, base, next } = this.#batch;
    if (file !== run.segment.path || position < run.position || position >= run.position + run.bytes) return false;
    return base <= this.#wanted && this.#wanted < next;
  }

  /** Derives a run's index from its batches. Damaged ones are left out: reading them says so. */
  async #buildIndex(run: Run): Promise<SparseIndex> {
    const index = new SparseIndex();
    const held = this.#context.files.hold(run.segment.path);
    const buffer = Buffer.allocUnsafeSlow(Math.min(CHUNK_BYTES, run.bytes));
    try {
      const end = run.position + run.bytes;
      let offset = run.first;
      for (let position = run.position; position < end; ) {
        const read = await held.file.read(buffer, 0, Math.min(buffer.length, end - position), position);
        let at = 0;
        while (at + BATCH_HEADER_BYTES <= read) {
          // Passing over what is damaged must be cheap: that looks at every eighth byte.
          const header = batchStreamId(buffer, at) === this.#stream.id ? readBatchHeader(buffer, at, read) : undefined;
          const known = header !== undefined && plausible(header, this.#stream.id, offset, run.next);
          if (known && (at + header.bytes > read || batchIsIntact(buffer, at, header.bytes))) {
            index.note(header.baseOffset, position + at, header.timestamp);
            offset = header.baseOffset + header.span;
            at += batchFileBytes(header.bytes);
          } else {
            at += 8;
          }
        }
        if (at === 0) break;
        position += at;
      }
    } finally {
      this.#context.files.release(held);
    }
    return index;
  }

  /** Bytes to read at least: the whole batch when its header is at hand, else what a chunk holds. */
  #neededBytes(available: number): number {
    const chunk = this.#chunk;
    if (chunk !== undefined && chunk.owner === this && this.#run !== undefined) {
      const at = this.#inChunk(this.#run.segment, this.#runPosition, BATCH_HEADER_BYTES);
      if (at >= 0) {
        const header = readBatchHeader(chunk.buffer, at, chunk.buffer.length);
        if (header !== undefined && plausible(header, this.#stream.id, this.#runOffset, this.#run.next)) {
          return Math.min(header.bytes, available);
        }
      }
    }
    return Math.min(BATCH_HEADER_BYTES, available);
  }

  /** The same as `#inChunk`, but goes on to the chunk that was read ahead when it is there and has what is wanted. */
  #reach(run: Run, position: number, bytes: number): number {
    const at = this.#inChunk(run.segment, position, bytes);
    if (at >= 0) return at;
    const ahead = this.#ahead[0];
    if (ahead === undefined || !ahead.ready || !this.#holds(ahead.chunk, run.segment, position, bytes)) return -1;
    this.#ahead.shift();
    this.#setChunk(ahead.chunk);
    this.#readAhead(run.segment, run.position + run.bytes);
    return position - ahead.chunk.start;
  }

  #holds(chunk: Chunk, file: object, position: number, bytes: number): boolean {
    return chunk.owner === this && chunk.file === file && chunk.start <= position && chunk.end >= position + bytes;
  }

  /** Index in the chunk of a stretch of a file, or -1 when the chunk does not hold it. */
  #inChunk(file: object, position: number, bytes: number): number {
    const chunk = this.#chunk;
    return chunk !== undefined && this.#holds(chunk, file, position, bytes) ? position - chunk.start : -1;
  }

  async #fill(segment: Segment, position: number, needed: number, limit: number): Promise<void> {
    for (let ahead = this.#ahead.shift(); ahead !== undefined; ahead = this.#ahead.shift()) {
      await ahead.done;
      if (this.#holds(ahead.chunk, segment, position, needed)) {
        this.#setChunk(ahead.chunk);
        this.#readAhead(segment, limit);
        return;
      }
    }
    this.#sequentialLoads++;
    if (this.#owned === undefined && !this.#single) this.#adaptReads(segment, position);
    const chunk = this.#take(Math.max(needed, this.#owned ?? 0));
    await this.#read(
      segment,
      chunk,
      position,
      Math.min(limit, position + Math.max(needed, this.#owned ?? this.#readBytes)),
    );
    this.#setChunk(chunk);
    if ((this.#sequentialLoads > 1 && !this.#single) || this.#owned !== undefined) this.#readAhead(segment, limit);
  }

  /**
   * Where many take turns, a chunk is taken away before it has been read through: no more is read from then on than twice
   * what was of use the last time.
   */
  #adaptReads(file: object, position: number): void {
    this.#noteLoss();
    let used = this.#readBytes;
    if (this.#isLost) used = file === this.#readFile ? Math.max(0, position - this.#readFrom) : 0;
    this.#isLost = false;
    this.#readBytes = Math.min(CHUNK_BYTES, Math.max(READ_BYTES_MIN, 2 * used));
    this.#readFile = file;
    this.#readFrom = position;
  }

  #noteLoss(): void {
    if (this.#chunk !== undefined && this.#chunk.owner !== this) this.#isLost = true;
  }

  /**
   * Starts reading what comes next. A batch that straddles a border must be had whole: one chunk ahead begins where the
   * current one's last whole batch ends; to be two ahead, without knowing yet what stands in the first, each begins
   * early enough for any batch of usual size.
   */
  #readAhead(segment: Segment, limit: number): void {
    const bytes = this.#owned ?? CHUNK_BYTES;
    if (this.#owned === undefined || bytes < 4 * STRADDLE_BYTES) {
      if (this.#ahead.length > 0 || this.#readBytes < CHUNK_BYTES) return;
      const start = this.#lastBatchBorder(this.#chunk!.end);
      this.#startRead(segment, start, bytes, limit);
      return;
    }
    while (this.#ahead.length < OWNED_READS_AHEAD) {
      const end = this.#ahead[this.#ahead.length - 1]?.end ?? this.#chunk!.end;
      if (end >= limit) return;
      this.#startRead(segment, Math.max(0, end - STRADDLE_BYTES), bytes, limit);
    }
  }

  #startRead(segment: Segment, start: number, bytes: number, limit: number): void {
    if (start >= limit || this.#context.reads.closed) return;
    const chunk = this.#owned === undefined ? this.#context.chunks.spare(this) : this.#take(bytes);
    if (chunk === undefined) return;
    this.#context.reads.begin();
    const ahead: Ahead = { chunk, end: Math.min(start + chunk.buffer.length, limit), ready: false, done: undefined };
    ahead.done = this.#read(segment, chunk, start, limit).then(
      () => {
        ahead.ready = true;
      },
      () => {
        // An error is met again, and reported, by the load that wants these bytes.
        chunk.file = undefined;
      },
    );
    void ahead.done.then(() => this.#context.reads.end());
    this.#ahead.push(ahead);
  }

  /** The position in the current chunk behind which no whole batch stands any more. */
  #lastBatchBorder(end: number): number {
    const chunk = this.#chunk!;
    let at = this.#runPosition;
    while (at >= chunk.start && at + BATCH_HEADER_BYTES <= end) {
      // Whether it is one is seen when it is read: most of the time there are many.
      const bytes = getU32(chunk.buffer, at - chunk.start + BATCH_LENGTH_AT);
      if (bytes <= BATCH_HEADER_BYTES || at + bytes > end) break;
      at += batchFileBytes(bytes);
    }
    return at;
  }

  async #read(segment: Segment, chunk: Chunk, position: number, limit: number): Promise<void> {
    const held = this.#context.files.hold(segment.path);
    chunk.busy = true;
    try {
      const length = Math.min(chunk.buffer.length, limit - position);
      const read = await held.file.read(chunk.buffer, 0, length, position);
      if (read < length) {
        throw damaged(segment.path, position + read, this.#wanted, undefined, "the file ends too early");
      }
      chunk.file = segment;
      chunk.start = position;
      chunk.end = position + read;
      chunk.isNew = true;
    } finally {
      chunk.busy = false;
      this.#context.files.release(held);
    }
  }

  async #fillFromWal(recent: Recent): Promise<void> {
    const { wal } = recent;
    const row = rowFor(recent, this.#wanted);
    // Before it waits: rows are given up when a checkpoint has moved them.
    const position = wal.batches.positionOf(row);
    const needed = wal.batches.bytesOf(row);
    if (this.#owned === undefined) this.#adaptReads(wal, position);
    const chunk = this.#take(Math.max(needed, this.#owned ?? 0));
    chunk.busy = true;
    wal.readers++;
    try {
      const wanted = Math.max(needed, this.#owned ?? this.#readBytes);
      const length = Math.min(chunk.buffer.length, wanted, wal.position - position);
      const read = await wal.file.read(chunk.buffer, 0, length, position);
      chunk.file = wal;
      chunk.start = position;
      chunk.end = position + read;
      chunk.isNew = true;
      this.#setChunk(chunk);
    } finally {
      chunk.busy = false;
      Wal.release(wal);
    }
  }

  /** Goes on with another chunk and gives the present one back, unless it is the consumer's to keep, or the same again. */
  #setChunk(chunk: Chunk | undefined): void {
    const { chunks } = this.#context;
    const present = this.#chunk;
    if (present !== undefined && present !== chunk) {
      if (this.lends) this.#spent.push(present);
      else if (present.owner === this && this.#owned === undefined) chunks.release(present);
    }
    this.#chunk = chunk;
    if (chunk !== undefined) chunks.touch(chunk);
  }

  #take(bytes: number): Chunk {
    if (this.#owned === undefined) return this.#context.chunks.take(this, bytes);
    return (bytes <= this.#owned ? this.#spare.pop() : undefined) ?? newChunk(this, bytes);
  }
}

/**
 * Has one record used in the turn in which it is found: the memory that it stands in may be taken away after that.
 * Undefined when there is none at the offset.
 */
export async function readRecord<T>(
  stream: Stream,
  context: ReaderContext,
  offset: number,
  use: (record: RecordCursor) => T,
): Promise<{ readonly used: T } | undefined> {
  const reader = new StreamReader(stream, context, offset, { single: true });
  try {
    for (;;) {
      const found = reader.next(offset + 1);
      if (found === "record") return { used: use(reader.record) };
      if (found === "end") return undefined;
      await reader.load();
    }
  } finally {
    reader.close();
  }
}

export function indexPath(segment: Segment): string {
  return indexPathOf(segment.path);
}

/** Path of the index of the segment at a path. */
export function indexPathOf(path: string): string {
  return `${path.slice(0, -".seg".length)}.idx`;
}

/** A header that can be the next batch of a stream: its own, in order, within what the run holds. */
function plausible(header: BatchHeader, streamId: number, from: number, to: number): boolean {
  return header.streamId === streamId && header.baseOffset >= from && header.baseOffset + header.span <= to;
}

function damaged(path: string, position: number, from: number, to: number | undefined, reason?: string): VarveError {
  const lost = to === undefined ? `offsets from ${from} on` : `offsets ${from} to ${to - 1}`;
  return new VarveError(
    "ERR_CORRUPT",
    `${path} at ${position}: ${reason ?? "a batch does not match its checksum"}; ${lost} cannot be read. ` +
      "What stands before and behind is intact.",
    { details: { file: path, position, from, to } },
  );
}

function readError(stream: Stream, error: unknown): VarveError {
  if (isVarveError(error)) return error;
  const reason = error instanceof Error ? error.message : String(error);
  return new VarveError("ERR_IO", `${stream.directory}: reading failed (${reason})`, { cause: error });
}
