/** Logs: their order, what their readers were given, and what everything that was listed lacks. */

import type { Report } from "./anomalies.js";
import { type Commit, type LogFacts, type Sent, trimsOf } from "./facts.js";
import { firstFrom, LargestBefore } from "./search.js";

/** What is known of a log's offsets. */
export class KnownLog {
  readonly facts: LogFacts;
  /** Offsets whose payload is beyond doubt. */
  readonly offsets: readonly number[];
  /** The largest offset that was known by a time. */
  readonly end: LargestBefore;
  readonly trims: LargestBefore;

  constructor(facts: LogFacts) {
    this.facts = facts;
    const places = [...facts.places].filter(([, { suspect }]) => !suspect) as [number, Sent][];
    this.offsets = places.map(([offset]) => offset).sort((a, b) => a - b);
    this.end = new LargestBefore(places.map(([offset, { knownAt }]) => [knownAt, offset]));
    this.trims = trimsOf(facts);
  }

  at(offset: number): Sent {
    return this.facts.places.get(offset) as Sent;
  }

  /** The first known offset from `from` up to, not including, `to`, that was not removed by a time. */
  between(from: number, to: number, time: number): number | undefined {
    const first = this.offsets[firstFrom(this.offsets, Math.max(from, this.trims.before(time, 0)))];
    return first !== undefined && first < to ? first : undefined;
  }
}

export function judgeLog(log: KnownLog, report: Report): void {
  judgeOrder(log, report);
  judgeTails(log, report);
  judgeReads(log);
  judgeScans(log, report);
}

/** What was sent after something was known to be there stands behind it; payloads of one append stand in a row. */
function judgeOrder({ facts, end }: KnownLog, report: Report): void {
  const { name } = facts;
  for (const { call, sent } of facts.commits) {
    const before = end.before(call.invoke, -1);
    let previous: { readonly value: string; readonly place: number } | undefined;
    for (const { queue, value, place, suspect, knownAt } of sent) {
      if (queue !== facts || typeof place !== "number" || suspect) continue;
      const apart = previous !== undefined && place !== previous.place + 1;
      if (before > place) {
        const other = facts.places.get(before)?.value;
        report("reordered", knownAt, `${name}: ${value} at ${place}, though ${other} was at ${before} already`);
      } else if (apart && (call.op === "append" || place < (previous?.place ?? 0))) {
        report(
          "reordered",
          knownAt,
          `${name}: ${value} at ${place}, its predecessor ${previous?.value} at ${previous?.place}`,
        );
      }
      previous = { value, place };
    }
  }
}

function judgeTails(log: KnownLog, report: Report): void {
  const next = new Map<string, number>();
  for (const { client, reader, from, records = [], return: at } of log.facts.tails) {
    const name = `${client} ${reader}`;
    let expected = next.get(name) ?? (from === "start" ? 0 : typeof from === "number" ? from : undefined);
    for (const [offset, value] of records) {
      if (expected !== undefined) {
        if (offset < expected) {
          report(
            "non-monotonic",
            at,
            `${log.facts.name}: ${name} was given ${value} at ${offset} after ${expected - 1}`,
          );
        }
        const skipped = log.between(expected, offset, at);
        if (skipped !== undefined) {
          const passed = `${log.at(skipped).value} at ${skipped}`;
          report("poll-skip", at, `${log.facts.name}: ${name} was given ${value} at ${offset}, and not ${passed}`);
        }
      }
      expected = offset + 1;
    }
    if (expected !== undefined) next.set(name, expected);
  }
}

function judgeReads({ facts, trims }: KnownLog): void {
  for (const read of facts.reads) {
    const sent = read.value === null && read.outcome === "ok" ? facts.places.get(read.offset) : undefined;
    if (sent === undefined || sent.suspect || trims.before(read.return, 0) > read.offset) continue;
    if (sent.commit.visibleAt < read.invoke) sent.missingFrom ??= read;
  }
}

/** Whatever of a commit a list shows, it shows all of it. */
function judgeWhole({ facts }: KnownLog, found: ReadonlySet<number>, scan: LogFacts["scans"][number]): void {
  let previous: Commit | undefined;
  for (const offset of found) {
    const commit = facts.places.get(offset)?.commit;
    if (commit === undefined || commit === previous) continue;
    previous = commit;
    for (const sent of commit.sent) {
      if (sent.queue !== facts || sent.suspect || found.has(sent.place as number)) continue;
      if (sent.place === undefined || (sent.place as number) >= scan.from) sent.missingFrom ??= scan;
    }
  }
}

function judgeScans(log: KnownLog, report: Report): void {
  const { name, places } = log.facts;
  for (const scan of log.facts.scans) {
    const { from, records, invoke, return: at, outcome } = scan;
    if (outcome !== "ok" || records === undefined) continue;
    const found = new Set<number>();
    let previous = from - 1;
    for (const [offset, value] of records) {
      if (offset <= previous)
        report("non-monotonic", at, `${name}: ${value} at ${offset} was listed after ${previous}`);
      previous = offset;
      found.add(offset);
    }
    const end = Math.max(log.end.before(invoke, -1), previous);
    let index = firstFrom(log.offsets, Math.max(from, log.trims.before(at, 0)));
    for (; index < log.offsets.length && (log.offsets[index] as number) <= end; index++) {
      const offset = log.offsets[index] as number;
      if (found.has(offset)) continue;
      const sent = places.get(offset) as Sent;
      if (sent.commit.visibleAt < invoke) sent.missingFrom ??= scan;
    }
    if (log.trims.before(at, 0) <= from) judgeWhole(log, found, scan);
  }
  // Where a transaction put something is known only once it was seen.
  const last = log.facts.scans.findLast(({ outcome, from }) => outcome === "ok" && from === 0);
  if (last === undefined || log.trims.before(last.return, 0) > 0) return;
  for (const sent of log.facts.sent.values()) {
    if (sent.place === undefined && !sent.suspect && sent.commit.visibleAt < last.invoke) sent.missingFrom ??= last;
  }
}
