/** Finds what is intact in segments, and copies it to new ones without what is not. */

import { getU32, getU64 } from "../api/integers.js";
import { batchFileBytes, type RecordCursor } from "../storage/batch.js";
import { align8 } from "../storage/bytes.js";
import type { Disk, DiskFile } from "../storage/disk.js";
import {
  encodeSegmentHeader,
  type Run,
  SEGMENT_HEADER_BYTES,
  type Segment,
  segmentHeaderProblem,
} from "../storage/segment.js";
import { FileWindow, paddingProblem, type Stretch, walkRecords, walkStretch } from "./inspect-window.js";

const COPY_BYTES = 1024 * 1024;

/** Intact batches of one stream that stand one behind another. */
export interface Piece {
  readonly position: number;
  /** The padding of the last batch included, unless that is damaged. */
  bytes: number;
  readonly first: number;
  next: number;
  count: number;
  readonly firstTimestamp: number;
  lastTimestamp: number;
  /** The offsets of its batches: between two that stand together some may be missing. */
  readonly covered: { readonly from: number; to: number }[];
}

/** A piece, and the stream that its batches say they belong to. */
export interface OwnedPiece extends Piece {
  readonly streamId: number;
}

export interface Survey {
  readonly pieces: OwnedPiece[];
  /** Everything was intact. */
  readonly sound: boolean;
  /** Why the file could not be read, or not to its end. */
  readonly failure: string | undefined;
}

export type HeaderState = "sound" | "damaged" | "foreign";

/** What the header of a segment file says of it. Stream undefined: any. */
export function headerState(
  disk: Disk,
  path: string,
  streamId: number | undefined,
  directoryId: string,
): { readonly state: HeaderState; readonly streamId: number; readonly base: number } {
  const buffer = headOf(disk, path, SEGMENT_HEADER_BYTES);
  if (buffer.length < SEGMENT_HEADER_BYTES) return { state: "damaged", streamId: 0, base: 0 };
  const named = getU32(buffer, 16);
  const base = getU64(buffer, 24);
  const own = buffer.toString("hex", 32, 48);
  // Sound in itself, and yet not this one: another file stands in its place.
  if (segmentHeaderProblem(buffer, named, own) !== undefined) return { state: "damaged", streamId: 0, base: 0 };
  const expected = segmentHeaderProblem(buffer, streamId ?? named, directoryId) === undefined;
  return { state: expected ? "sound" : "foreign", streamId: named, base };
}

/** The first bytes of a file, or all of a shorter one. */
export function headOf(disk: Disk, path: string, length: number): Buffer {
  const file = disk.openFile(path, "read");
  try {
    const buffer = Buffer.alloc(Math.min(length, file.size()));
    for (let done = 0; done < buffer.length; ) {
      const read = file.readSync(buffer, done, buffer.length - done, done);
      if (read === 0) return buffer.subarray(0, done);
      done += read;
    }
    return buffer;
  } finally {
    file.close();
  }
}

/** Finds the intact batches of a stretch of a file. */
export async function surveyStretch(
  disk: Disk,
  path: string,
  stretch: Stretch,
  check: (record: RecordCursor, streamId: number) => string | undefined,
): Promise<Survey> {
  const pieces: OwnedPiece[] = [];
  let sound = true;
  let file: DiskFile | undefined;
  try {
    file = disk.openFile(path, "read");
    const window = new FileWindow(file);
    for await (const found of walkStretch(window, stretch)) {
      if ("damage" in found) {
        sound = false;
        continue;
      }
      const { header, position, at } = found.batch;
      const last = pieces[pieces.length - 1];
      const early = last?.streamId === header.streamId && header.timestamp < last.lastTimestamp;
      let lastTimestamp = header.timestamp;
      const visit = (record: RecordCursor) => {
        lastTimestamp = record.timestamp;
        return check(record, header.streamId);
      };
      if (early || walkRecords(window.buffer, at, header, visit) !== undefined) {
        sound = false;
        continue;
      }
      const padded = (await paddingProblem(window, found.batch)) === undefined;
      if (!padded) sound = false;
      const bytes = padded ? batchFileBytes(header.bytes) : header.bytes;
      const next = header.baseOffset + header.span;
      if (last !== undefined && last.streamId === header.streamId && last.position + last.bytes === position) {
        last.bytes += bytes;
        last.next = next;
        last.count += header.count;
        last.lastTimestamp = lastTimestamp;
        const range = last.covered[last.covered.length - 1]!;
        if (range.to === header.baseOffset) range.to = next;
        else last.covered.push({ from: header.baseOffset, to: next });
      } else {
        pieces.push({
          streamId: header.streamId,
          position,
          bytes,
          first: header.baseOffset,
          next,
          count: header.count,
          firstTimestamp: header.timestamp,
          lastTimestamp,
          covered: [{ from: header.baseOffset, to: next }],
        });
      }
    }
    return { pieces, sound, failure: undefined };
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === undefined) throw error;
    return { pieces, sound: false, failure: code === "ENOENT" ? "the file is missing" : message };
  } finally {
    file?.close();
  }
}

/** The run that pieces, one behind another, make. */
export function runOf(pieces: readonly Piece[], segment: Segment): Run {
  const first = pieces[0]!;
  const last = pieces[pieces.length - 1]!;
  return {
    segment,
    position: first.position,
    bytes: pieces.reduce((sum, { bytes }) => sum + align8(bytes), 0),
    first: first.first,
    next: last.next,
    count: pieces.reduce((sum, { count }) => sum + count, 0),
    firstTimestamp: first.firstTimestamp,
    lastTimestamp: last.lastTimestamp,
    index: undefined,
  };
}

/** What goes to a new segment for one stream. */
export interface Move {
  /** Where each piece stands now. */
  readonly pieces: readonly { readonly path: string; readonly piece: Piece }[];
  /** Told where they stand in the new segment. */
  placed(position: number, bytes: number): void;
}

/** Writes a shared segment with the given pieces, durably. Its number must be new. */
export async function writeShared(
  disk: Disk,
  segment: Segment,
  directoryId: string,
  moves: readonly Move[],
): Promise<void> {
  disk.mkdir(segment.directory);
  const file = disk.openFile(segment.path, "create");
  try {
    await file.write([encodeSegmentHeader(0, 0, directoryId)], 0);
    let position = SEGMENT_HEADER_BYTES;
    for (const { pieces, placed } of moves) {
      const start = position;
      for (const { path, piece } of pieces) position = await copyPiece(disk, path, piece, file, position);
      placed(start, position - start);
    }
    await file.sync();
    segment.bytes = position;
  } finally {
    file.close();
  }
  await disk.syncDirectory(segment.directory);
  segment.runs = moves.length;
  segment.dirty = false;
  segment.unnamed = false;
}

async function copyPiece(disk: Disk, path: string, piece: Piece, to: DiskFile, position: number): Promise<number> {
  const from = disk.openFile(path, "read");
  try {
    const buffer = Buffer.alloc(Math.min(COPY_BYTES, align8(piece.bytes)));
    for (let done = 0; done < piece.bytes; ) {
      const length = Math.min(buffer.length, piece.bytes - done);
      if ((await from.read(buffer, 0, length, piece.position + done)) < length) {
        throw new Error(`${path}: ends within the batches at ${piece.position}`);
      }
      const padded = align8(length);
      buffer.fill(0, length, padded);
      await to.write([buffer.subarray(0, padded)], position + done);
      done += length;
    }
    return position + align8(piece.bytes);
  } finally {
    from.close();
  }
}
