import type { Run } from "../storage/segment.js";
import type { Stream } from "../storage/stream.js";
import { type ReaderContext, StreamReader } from "../storage/stream-reader.js";

/** What has been counted: records of a run from an offset on. */
const counted = new WeakMap<Run, { readonly from: number; readonly records: number }>();

/**
 * Records that can be read. Where the head cuts a run that records have been removed from, those left of it are counted by
 * reading it, once.
 */
export async function countRecords(context: ReaderContext, stream: Stream): Promise<number> {
  const { head } = stream;
  const run = stream.runFor(head);
  if (run === undefined || run.first >= head || run.count >= stream.recordsBetween(run.first, run.next)) {
    return stream.recordsLeft(head, stream.visible);
  }
  let known = counted.get(run);
  if (known?.from !== head) {
    known = { from: head, records: await countIn(context, stream, head, run.next) };
    counted.set(run, known);
  }
  return known.records + stream.recordsLeft(run.next, stream.visible);
}

async function countIn(context: ReaderContext, stream: Stream, from: number, to: number): Promise<number> {
  const reader = new StreamReader(stream, context, from);
  let records = 0;
  for (;;) {
    const found = reader.next(to);
    if (found === "end") return records;
    if (found === "record") records++;
    else await reader.load();
  }
}
