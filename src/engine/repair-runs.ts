/**
 * The runs of queues whose states are intact. A run that is sound stays where it is; of any other the intact batches go
 * to a new shared segment.
 *
 * - Exactly the offsets of intact batches are covered.
 * - A stream's bytes are those of its runs, also while one of them waits to be copied.
 */

import type { Run } from "../storage/segment.js";
import type { Stream } from "../storage/stream.js";
import { indexPath } from "../storage/stream-reader.js";
import type { QueueState } from "./queue-state.js";
import { headerState, type OwnedPiece, runOf, surveyStretch } from "./repair-segments.js";
import type { RepairState, ReplacedRun } from "./repair-state.js";

/** Looks at the segments of a queue whose state is known. */
export async function surveyRuns(repair: RepairState, state: QueueState): Promise<void> {
  for (const stream of state.streams) {
    repair.cover(stream);
    for (const run of [...stream.runs]) await surveyRun(repair, state, stream, run);
  }
}

async function surveyRun(repair: RepairState, state: QueueState, stream: Stream, run: Run): Promise<void> {
  const { segment, position, first, next } = run;
  const { path, sharedId } = segment;
  const label = repair.repairer.streamLabel(state, stream);
  let header: ReturnType<typeof headerState>["state"] = "sound";
  if (repair.disk.size(path) !== undefined) {
    const found = headerState(repair.disk, path, sharedId === 0 ? stream.id : 0, repair.directoryId);
    header = found.state === "sound" && sharedId === 0 && found.base !== first ? "foreign" : found.state;
  }
  const stretch = { position, end: position + run.bytes, streamId: stream.id, firstOffset: first, nextOffset: next };
  const survey =
    header === "foreign"
      ? { pieces: [] as OwnedPiece[], sound: false, failure: "another file stands in its place" }
      : await surveyStretch(repair.disk, path, stretch, (record) =>
          repair.repairer.recordProblem(state, stream, record),
        );
  const { pieces } = survey;
  for (const piece of pieces) repair.coverPiece(stream, piece);
  if (survey.sound && header === "sound") {
    const [only] = pieces;
    run.count = only!.count;
    run.lastTimestamp = only!.lastTimestamp;
    return;
  }
  if (survey.failure !== undefined) repair.findings.note(`${path}: ${survey.failure}`);
  replaceRun(
    repair,
    stream,
    run,
    pieces.map((piece) => ({ path, piece })),
  );
  const records = pieces.reduce((sum, { count }) => sum + count, 0);
  const what = records === 1 ? "the intact record" : `the ${records} intact records`;
  repair.findings.action(
    records === 0
      ? `${path}: nothing of ${label} can be read`
      : `${path}: ${what} of ${label} moved to another segment`,
  );
}

/** Puts what is intact of a run in its place. */
function replaceRun(repair: RepairState, stream: Stream, run: Run, pieces: ReplacedRun["pieces"]): void {
  const at = stream.runs.indexOf(run);
  stream.bytes -= run.bytes;
  if (run.segment.sharedId === 0) {
    for (const path of [run.segment.path, indexPath(run.segment)]) {
      if (repair.disk.size(path) !== undefined) repair.toMove.add(path);
    }
  }
  if (pieces.length === 0) {
    stream.runs.splice(at, 1);
    return;
  }
  const stand = runOf(
    pieces.map(({ piece }) => piece),
    run.segment,
  );
  stream.runs[at] = stand;
  stream.bytes += stand.bytes;
  repair.replaced.push({ stream, run: stand, pieces });
}
