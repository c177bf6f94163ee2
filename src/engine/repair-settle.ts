/**
 * What follows from all that was found: which records are gone, and which segments are still in use. Runs once, when
 * nothing more is going to be found.
 *
 * - Every offset that a queue needs is covered, or is in a gap.
 * - A shared segment stays in the catalog if a run stays in it, and a segment is moved away only if none does.
 */

import type { Segment } from "../storage/segment.js";
import type { OffsetRange } from "./inspect.js";
import { type RepairState, raise } from "./repair-state.js";

/** What is missing of what the queues need becomes gaps, which readers pass. */
export function settleGaps(repair: RepairState): void {
  const { needed, forget, streamLabel, settle } = repair.repairer;
  for (const { state } of repair.catalog.entries) {
    const rebuilt = repair.rebuilt.has(state!);
    for (const stream of state!.streams) raise(stream, stream.head);
    settle(state!);
    for (const stream of state!.streams) {
      const coverage = repair.coverage.get(stream)!;
      for (const gap of stream.gaps) coverage.add(gap.from, gap.to);
      const missing: OffsetRange[] = [];
      for (const { from, to } of needed(state!, stream)) {
        missing.push(...coverage.missing(from, Math.min(to, stream.next)));
      }
      for (const range of missing) {
        const label = streamLabel(state!, stream);
        const offsets = [range.from, range.to - 1] as const;
        const reason = rebuilt ? "in no segment: damaged, or no longer needed" : "damaged";
        repair.findings.lost(label, reason, offsets);
        forget(state!, stream, range);
      }
      stream.gaps = joined([...stream.gaps, ...missing]);
      if (repair.skip > 0) stream.skip(repair.skip);
    }
  }
  if (repair.skip > 0) {
    repair.findings.note(
      `offsets go on past the next ${repair.skip}: records that are lost with the end of the log may have been read`,
    );
  }
}

/** Counts the runs in each segment; one without any is moved away. */
export function countRuns(repair: RepairState): void {
  const runs = new Map<Segment, number>();
  const moved = new Set(repair.replaced.map(({ run }) => run));
  for (const { state } of repair.catalog.entries) {
    for (const run of state!.streams.flatMap((stream) => stream.runs)) {
      if (!moved.has(run)) runs.set(run.segment, (runs.get(run.segment) ?? 0) + 1);
    }
  }
  for (const segment of [...repair.catalog.shared.values()]) {
    segment.runs = runs.get(segment) ?? 0;
    if (segment.runs > 0) continue;
    repair.catalog.shared.delete(segment.sharedId);
    if (repair.disk.size(segment.path) !== undefined) repair.toMove.add(segment.path);
  }
  // A segment that stays in use with other runs is not moved.
  for (const segment of runs.keys()) repair.toMove.delete(segment.path);
}

/** Ranges, with those that touch made one. */
function joined(ranges: readonly OffsetRange[]): OffsetRange[] {
  const result: { from: number; to: number }[] = [];
  for (const { from, to } of [...ranges].sort((a, b) => a.from - b.from)) {
    const last = result[result.length - 1];
    if (last !== undefined && from <= last.to) last.to = Math.max(last.to, to);
    else result.push({ from, to });
  }
  return result;
}
