/**
 * Streams of which it is not known which runs they have: they get all the intact batches that there are of them, from
 * segments of their own and from shared ones.
 *
 * - No offset is there twice: of a piece that overlaps the one before, only the batches behind that one count.
 * - A piece stays where it is only if nothing about its segment is damaged that an open relies on: the header and, of a
 *   stream's own, also the name, and that nothing else is in it. Otherwise it is copied to a new shared segment.
 */

import type { RecordCursor } from "../storage/batch.js";
import { align8 } from "../storage/bytes.js";
import type { Disk } from "../storage/disk.js";
import { editionOf, SEGMENT_HEADER_BYTES, type Segment, segmentPath } from "../storage/segment.js";
import type { Stream } from "../storage/stream.js";
import type { QueueState } from "./queue-state.js";
import { ownSegments, sharedNumbers } from "./repair-files.js";
import { headerState, type Piece, runOf, surveyStretch } from "./repair-segments.js";
import { type RepairState, raise } from "./repair-state.js";

/** A piece of a stream whose runs are not known. */
export interface FoundPiece {
  readonly path: string;
  readonly piece: Piece;
  /** The shared segment that it may stay in. */
  readonly shared: Segment | undefined;
  /** The stream's own segment may stay as it is. */
  readonly stays: boolean;
}

/** Intact batches in shared segments, of the streams that are asked for. */
export async function sharedPieces(
  repair: RepairState,
  wants: (streamId: number) => boolean,
): Promise<Map<number, FoundPiece[]>> {
  const found = new Map<number, FoundPiece[]>();
  for (const number of sharedNumbers(repair)) {
    const path = repair.catalog.sharedPath(number);
    const { state } = headerState(repair.disk, path, 0, repair.directoryId);
    if (state === "foreign") continue;
    const survey = await surveyStretch(repair.disk, path, wholeFile(repair.disk, path, undefined), () => undefined);
    for (const piece of survey.pieces) {
      if (!wants(piece.streamId)) continue;
      let shared = repair.catalog.shared.get(number);
      if (shared === undefined) {
        shared = newSharedSegment(repair.directory, path, number, align8(repair.disk.size(path) ?? 0));
        repair.catalog.shared.set(number, shared);
      }
      const list = found.get(piece.streamId) ?? [];
      list.push({ path, piece, shared: state === "sound" ? shared : undefined, stays: false });
      found.set(piece.streamId, list);
    }
  }
  return found;
}

/** Gives a stream whose runs are not known all the intact batches that there are of it. */
export async function fillStream(
  repair: RepairState,
  state: QueueState,
  stream: Stream,
  shared: readonly FoundPiece[],
): Promise<void> {
  const { kind, name } = state;
  const found: FoundPiece[] = [...shared];
  for (const path of ownSegments(repair, { kind, name }, stream.folder)) {
    const { state: header } = headerState(repair.disk, path, stream.id, repair.directoryId);
    if (header === "foreign") {
      repair.findings.note(`${path}: another file stands in its place`);
      continue;
    }
    const stretch = wholeFile(repair.disk, path, stream.id);
    const survey = await surveyStretch(repair.disk, path, stretch, (record) =>
      repair.repairer.recordProblem(state, stream, record),
    );
    if (survey.failure !== undefined) repair.findings.note(`${path}: ${survey.failure}`);
    const stays = header === "sound" && survey.pieces.length === 1 && namesOwn(path, stream, survey.pieces[0]!);
    for (const piece of survey.pieces) found.push({ path, piece, shared: undefined, stays });
    if (!stays) repair.toMove.add(path);
    const hint = `${path.slice(0, -".seg".length)}.idx`;
    if (repair.disk.size(hint) !== undefined) repair.toMove.add(hint);
  }
  // Of two that begin together, the longer one was written later, and of two that end together, the later edition.
  const edition = ({ path }: FoundPiece) => editionOf(path);
  found.sort((a, b) => a.piece.first - b.piece.first || b.piece.next - a.piece.next || edition(b) - edition(a));
  for (const each of found) await addPiece(repair, state, stream, each);
  const [oldest] = stream.runs;
  if (oldest !== undefined) stream.head = Math.max(stream.head, oldest.first);
}

/** Whether a file has the name that a stream's own segment with this piece has. */
function namesOwn(path: string, stream: Stream, piece: Piece): boolean {
  return (
    piece.position === SEGMENT_HEADER_BYTES &&
    path === segmentPath(stream.directory, stream.id, piece.first, editionOf(path))
  );
}

/** Pieces come in the order of their offsets. */
async function addPiece(
  repair: RepairState,
  state: QueueState,
  stream: Stream,
  { path, piece, shared, stays }: FoundPiece,
): Promise<void> {
  const runsEnd = stream.runs[stream.runs.length - 1]?.next ?? 0;
  if (piece.next <= runsEnd) {
    if (shared === undefined) repair.toMove.add(path);
    return;
  }
  let pieces: readonly Piece[] = [piece];
  if (piece.first < runsEnd) {
    // Begins with what is there already.
    const stretch = { ...wholeFile(repair.disk, path, stream.id), position: piece.position, firstOffset: runsEnd };
    const end = piece.position + align8(piece.bytes);
    const check = (record: RecordCursor) => repair.repairer.recordProblem(state, stream, record);
    pieces = (await surveyStretch(repair.disk, path, { ...stretch, end }, check)).pieces;
  }
  for (const each of pieces) {
    const fits = each === piece && each.bytes % 8 === 0;
    const segment = shared ?? ownSegment(stream, path, each.bytes);
    const run = runOf([each], segment);
    stream.runs.push(run);
    stream.bytes += run.bytes;
    raise(stream, each.next);
    stream.lastTimestamp = Math.max(stream.lastTimestamp, each.lastTimestamp);
    repair.coverPiece(stream, each);
    if (fits && (shared !== undefined || stays)) continue;
    repair.replaced.push({ stream, run, pieces: [{ path, piece: each }] });
    if (shared === undefined) repair.toMove.add(path);
  }
}

/** Where batches may stand in a file of which nothing is known. */
function wholeFile(disk: Disk, path: string, streamId: number | undefined) {
  const end = align8(disk.size(path) ?? 0);
  const position = SEGMENT_HEADER_BYTES;
  return { position, end, streamId, firstOffset: 0, nextOffset: Number.POSITIVE_INFINITY };
}

function ownSegment(stream: Stream, path: string, bytes: number): Segment {
  return {
    path,
    directory: stream.directory,
    sharedId: 0,
    edition: editionOf(path),
    bytes: SEGMENT_HEADER_BYTES + bytes,
    dirty: false,
    unnamed: false,
    runs: 1,
  };
}

function newSharedSegment(directory: string, path: string, sharedId: number, bytes: number): Segment {
  const edition = 0;
  return { path, directory: `${directory}/shared`, sharedId, edition, bytes, dirty: false, unnamed: false, runs: 0 };
}
