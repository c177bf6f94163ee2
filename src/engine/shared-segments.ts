/**
 * Shared segments: where very many streams each have little to store, their batches go together into one segment,
 * sorted by stream, so that a checkpoint costs a few large writes rather than a file per stream. A stream that has become
 * scattered over many of them gets a segment of its own.
 */

import { batchFileBytes } from "../storage/batch.js";
import { type Run, SEGMENT_HEADER_BYTES, type Segment } from "../storage/segment.js";
import type { Stream } from "../storage/stream.js";
import type { WalFile } from "../storage/wal.js";
import type { Engine } from "./engine.js";
import { type LogWindows, WINDOW_BYTES } from "./log-windows.js";
import { countOf, type MovedBatches, moved, type SegmentWriter } from "./segment-writer.js";

/** Pieces of a stream in shared segments, at most; past it they are moved to a segment of its own. */
const SHARED_RUNS_MAX = 32;
/** Streams moved out of shared segments by one checkpoint, at most. */
const MOVED_STREAMS_MAX = 256;

/** Where the batches of a log file go, by row: a position in the segment, or 0 where one does not go there. */
type Places = Float64Array;

export class SharedSegments {
  readonly #engine: Engine;
  readonly #writer: SegmentWriter;
  readonly #windows: LogWindows;

  constructor(engine: Engine, writer: SegmentWriter, windows: LogWindows) {
    this.#engine = engine;
    this.#writer = writer;
    this.#windows = windows;
  }

  /** Writes batches of many streams, from these log files, to one new segment, each stream's together. */
  async move(files: readonly WalFile[], batchesOf: ReadonlyMap<Stream, readonly MovedBatches[]>): Promise<void> {
    const segment = this.#engine.catalog.newShared();
    await this.#writer.create(segment, 0, 0);
    const places = new Map<WalFile, Places>();
    for (const file of files) places.set(file, new Float64Array(file.batches.length));
    const runs = new Map<Stream, Run>();
    let position = SEGMENT_HEADER_BYTES;
    for (const stream of [...batchesOf.keys()].sort((a, b) => a.id - b.id)) {
      const list = batchesOf.get(stream)!;
      const start = position;
      for (const { wal, rows } of list) {
        const ofFile = places.get(wal)!;
        for (let index = 0; index < rows.length; index++) {
          ofFile[rows[index]!] = position;
          position += batchFileBytes(wal.batches.bytesOf(rows[index]!));
        }
      }
      runs.set(stream, newRun(segment, list, start, position - start));
    }
    await this.#writeSorted(places, segment, position);
    this.#writer.stageChange(() => {
      segment.bytes = position;
      segment.runs = runs.size;
      this.#engine.catalog.shared.set(segment.sharedId, segment);
      for (const [stream, run] of runs) {
        stream.runs.push(run);
        moved(stream, batchesOf.get(stream)!);
      }
    });
  }

  /** Sorts by output position with bounded memory: one pass over the log files for each stretch of the output. */
  async #writeSorted(places: ReadonlyMap<WalFile, Places>, segment: Segment, end: number): Promise<void> {
    const passBytes = Math.min(this.#engine.options.cacheBytes, end - SEGMENT_HEADER_BYTES);
    const output = Buffer.allocUnsafeSlow(passBytes + WINDOW_BYTES);
    for (let start = SEGMENT_HEADER_BYTES; start < end; start += passBytes) {
      // A batch that begins in this stretch is written whole, even across its end.
      let first = Number.POSITIVE_INFINITY;
      let filled = 0;
      for (const [file, ofFile] of places) {
        const { batches } = file;
        const inPass = new Uint32Array(ofFile.length);
        let count = 0;
        for (let row = 0; row < ofFile.length; row++) {
          if (ofFile[row]! >= start && ofFile[row]! < start + passBytes) inPass[count++] = row;
        }
        await this.#windows.each(file, inPass.subarray(0, count), (rows, buffer, from) => {
          for (let index = 0; index < rows.length; index++) {
            const row = rows[index]!;
            const target = ofFile[row]! - start;
            const bytes = batchFileBytes(batches.bytesOf(row));
            const at = batches.positionOf(row) - from;
            buffer.copy(output, target, at, at + bytes);
            first = Math.min(first, target);
            filled = Math.max(filled, target + bytes);
          }
        });
      }
      if (filled > 0) await this.#writer.write(segment, [output.subarray(first, filled)], start + first);
    }
  }

  /** Moves streams that have become scattered over many shared segments to segments of their own. */
  async consolidate(): Promise<void> {
    let moved = 0;
    for (const state of this.#engine.catalog.loaded()) {
      for (const stream of state.streams) {
        if (moved >= MOVED_STREAMS_MAX) return;
        if (stream.runs.length <= SHARED_RUNS_MAX) continue;
        const shared = stream.runs.filter((run) => run.segment.sharedId !== 0);
        if (shared.length <= SHARED_RUNS_MAX) continue;
        moved++;
        await this.#moveRuns(stream, stream.runs.indexOf(shared[0]!));
      }
    }
  }

  /** Copies neighbouring shared runs, batch by batch as they stand, into one segment of the stream's own. */
  async #moveRuns(stream: Stream, from: number): Promise<void> {
    let to = from;
    while (to < stream.runs.length && stream.runs[to]!.segment.sharedId !== 0) to++;
    const replaced = stream.runs.slice(from, to);
    const buffers: Buffer[] = [];
    for (const run of replaced) buffers.push(await this.#readRun(run));
    const first = replaced[0]!;
    const last = replaced[replaced.length - 1]!;
    const segment = await this.#writer.createOwn(stream, first.first);
    await this.#writer.write(segment, buffers, SEGMENT_HEADER_BYTES);
    const bytes = buffers.reduce((sum, buffer) => sum + buffer.length, 0);
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
    this.#writer.stageChange(() => {
      segment.bytes += bytes;
      stream.runs.splice(stream.runs.indexOf(first), replaced.length, run);
      for (const each of replaced) this.#writer.letGo(each);
    });
  }

  async #readRun(run: Run): Promise<Buffer> {
    const { files } = this.#engine;
    const buffer = Buffer.allocUnsafeSlow(run.bytes);
    const held = files.hold(run.segment.path);
    try {
      if ((await held.file.read(buffer, 0, run.bytes, run.position)) < run.bytes) {
        throw new Error(`${run.segment.path}: ends before ${run.position + run.bytes}`);
      }
      return buffer;
    } finally {
      files.release(held);
    }
  }
}

function newRun(segment: Segment, list: readonly MovedBatches[], position: number, bytes: number): Run {
  const first = list[0]!;
  const last = list[list.length - 1]!;
  const firstRow = first.rows[0]!;
  const lastRow = last.rows[last.rows.length - 1]!;
  return {
    segment,
    position,
    bytes,
    first: first.wal.batches.baseOf(firstRow),
    next: last.wal.batches.nextOf(lastRow),
    count: list.reduce((sum, each) => sum + countOf(each), 0),
    firstTimestamp: first.wal.batches.timestampOf(firstRow),
    lastTimestamp: last.wal.batches.timestampOf(lastRow),
    index: undefined,
  };
}
