/**
 * Gives back the space of segments that a few old tasks hold: runs most of whose tasks are done are rewritten with those
 * that are not.
 */

import type { Run } from "../storage/segment.js";
import type { Stream } from "../storage/stream.js";
import { type Rewriter, SMALL_PART } from "./rewriter.js";

/** A run is worth rewriting when less than this part of its records is still needed ... */
const NEEDED_PART = 1 / 4;
/** ... and its stream takes more than twice what is needed of it, and this much. */
const BYTES_MIN = 1024 * 1024;
/** Offsets that are tried first: most runs are needed whole, or nearly so. */
const SAMPLES = 32;
/** Checkpoints after which a run that was not worth it is looked at again: from one on, twice as many each time. */
const LOOKS_APART_MAX = 32;

interface Look {
  needed: number;
  /** Checkpoints to pass before the next look. */
  wait: number;
  apart: number;
}

const looks = new WeakMap<Run, Look>();

/** Rewrites what is worth it. Undefined when there cannot be anything. */
export function reclaim(rewriter: Rewriter, streams: readonly Stream[]): Promise<void> | undefined {
  const large = streams.filter((stream) => bytesOf(stream.runs) > bytesMin(rewriter));
  if (large.length === 0) return undefined;
  return (async () => {
    for (const stream of large) await reclaimStream(rewriter, stream);
  })();
}

async function reclaimStream(rewriter: Rewriter, stream: Stream): Promise<void> {
  let bytes = 0;
  let neededBytes = 0;
  const sparse = new Set<Run>();
  for (const run of [...stream.runs]) {
    const part = (await neededOf(rewriter, stream, run)) / run.count;
    bytes += run.bytes;
    neededBytes += run.bytes * part;
    if (part < NEEDED_PART) sparse.add(run);
  }
  if (sparse.size === 0 || bytes <= 2 * neededBytes + bytesMin(rewriter)) return;
  const last = stream.runs[stream.runs.length - 1];
  const runs = await rewriter.seal(stream, last !== undefined && sparse.has(last));
  for (const group of neighbours(runs, sparse, rewriter.segmentBytes * SMALL_PART)) {
    await rewriter.rewrite(
      stream,
      group,
      ({ offset }) => stream.isNeeded(offset, offset + 1),
      () => {},
    );
  }
}

/** Records of a run that are still needed, as of the last look. */
async function neededOf(rewriter: Rewriter, stream: Stream, run: Run): Promise<number> {
  const look = looks.get(run) ?? { needed: run.count, wait: 0, apart: 1 };
  looks.set(run, look);
  if (look.wait > 0) {
    look.wait--;
    return look.needed;
  }
  look.needed = await countNeeded(rewriter, stream, run);
  if (look.needed >= run.count * NEEDED_PART) {
    look.wait = look.apart;
    look.apart = Math.min(look.apart * 2, LOOKS_APART_MAX);
  }
  return look.needed;
}

async function countNeeded(rewriter: Rewriter, stream: Stream, run: Run): Promise<number> {
  const { first, next, count } = run;
  const from = Math.max(first, stream.head);
  if (!stream.isNeeded(from, next)) return 0;
  const span = next - first;
  if (span < 2 * count) {
    let hits = 0;
    for (let sample = 0; sample < SAMPLES; sample++) {
      const offset = first + Math.floor(((sample + 0.5) * span) / SAMPLES);
      if (stream.isNeeded(offset, offset + 1)) hits++;
    }
    if (hits > SAMPLES / 2) return count;
  }
  let needed = 0;
  if (span > 4 * count) {
    // Mostly holes, from an earlier rewrite: only the records themselves tell.
    await rewriter.scan(stream, from, next, ({ offset }) => {
      if (stream.isNeeded(offset, offset + 1)) needed++;
      return true;
    });
    return needed;
  }
  for (let offset = from; offset < next; offset++) {
    if (stream.isNeeded(offset, offset + 1)) needed++;
    if (offset % 1024 === 0) await rewriter.pause();
  }
  return Math.min(needed, count);
}

/** Stretches of neighbouring runs: the wanted ones, and small ones beside them, with which they can be merged. */
function neighbours(runs: readonly Run[], wanted: ReadonlySet<Run>, smallBytes: number): Run[][] {
  const groups: Run[][] = [];
  let group: Run[] = [];
  for (const run of runs) {
    if (wanted.has(run) || run.bytes < smallBytes) {
      if (group.length === 0) groups.push(group);
      group.push(run);
    } else {
      group = [];
    }
  }
  return groups.filter((each) => each.some((run) => wanted.has(run)));
}

function bytesMin({ segmentBytes }: Rewriter): number {
  return Math.min(BYTES_MIN, segmentBytes);
}

function bytesOf(runs: readonly Run[]): number {
  return runs.reduce((sum, run) => sum + run.bytes, 0);
}
