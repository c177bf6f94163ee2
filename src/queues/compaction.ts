/**
 * Keyed compaction of a log: of the records with a key only the last one stays, and of those a tombstone only for its
 * grace period. Records without a key stay. Offsets stay.
 *
 * What stands in sealed segments is in two parts:
 *
 *       head                cleanTo                    end of the sealed segments
 *        |--- no key twice ----|--- not looked at yet -----|--- never touched ---
 *
 * A pass notes the last offset of each key of the second part, up to as many keys as its table takes, and then removes
 * from both what is superseded. So it reads what is there twice at most, and is worth it when the second part is a good
 * part of the whole: the log is at most as many times larger than what is left of it.
 *
 * A tombstone must not go before what it deletes: a pass removes in the order of offsets, and all that is superseded.
 */

import type { CompactionResult } from "../api/contract.js";
import { assert, isVarveError, VarveError } from "../api/errors.js";
import type { CompactionConfig } from "../api/options.js";
import type { Engine } from "../engine/engine.js";
import type { Rewriter, Rewritten } from "../engine/rewriter.js";
import type { RecordCursor } from "../storage/batch.js";
import { isNoDescriptor, isNoSpace, isSystemError } from "../storage/disk.js";
import type { Run } from "../storage/segment.js";
import type { Stream } from "../storage/stream.js";
import { KeyTable } from "./key-table.js";
import { countRecords } from "./log-count.js";
import { isTombstone } from "./tombstone.js";

/** Memory for the keys of a pass, at most. */
const TABLE_BYTES = 16 * 1024 * 1024;
/** Tombstones are removed when the oldest is older than the grace period by this part of it: many at a time. */
const GRACE_SLACK = 1 / 4;

export class Compaction {
  readonly #engine: Engine;
  readonly #stream: Stream;
  /** Both clocks when the log was opened. */
  readonly #openedMs: { readonly wall: number; readonly elapsed: number };
  readonly #tableBytes: number;

  constructor(engine: Engine, stream: Stream, tableBytes = TABLE_BYTES) {
    this.#engine = engine;
    this.#stream = stream;
    this.#openedMs = { wall: engine.clock.wallMs(), elapsed: engine.elapsedMs() };
    this.#tableBytes = tableBytes;
  }

  /** A pass over the sealed segments, if one is due. */
  upkeep(rewriter: Rewriter, { graceMs, minDirty }: CompactionConfig): Promise<void> | undefined {
    const stream = this.#stream;
    const sealed = stream.runs.slice(0, -1);
    const bytes = bytesOf(sealed);
    if (bytes === 0) return undefined;
    const dirty = bytesOf(sealed.filter((run) => run.next > stream.cleanTo));
    const due = dirty > 0 && dirty >= minDirty * bytes;
    if (!due && (this.dueMs(graceMs) ?? Number.POSITIVE_INFINITY) > this.#nowMs()) return undefined;
    return this.#passes(rewriter, graceMs, false).then(() => {});
  }

  /** When the next tombstones go, by the wall clock. */
  dueMs(graceMs: number): number | undefined {
    const { tombstonesFrom } = this.#stream;
    return tombstonesFrom === 0 ? undefined : tombstonesFrom + Math.ceil(graceMs * (1 + GRACE_SLACK));
  }

  /** Compacts all that has been written so far. */
  async run(graceMs: number): Promise<CompactionResult> {
    const stream = this.#stream;
    const { rewriter, directory } = this.#engine;
    assert(rewriter !== undefined, "an open directory has a rewriter");
    try {
      return await rewriter.exclusive(async () => {
        if (stream.recent.length > 0) await rewriter.checkpoint();
        const { bytes } = stream;
        const recordsBefore = await countRecords(this.#engine, stream);
        const { recordsRemoved, bytesRemoved } = await this.#passes(rewriter, graceMs, true);
        return { recordsBefore, recordsRemoved, bytesBefore: bytes, bytesAfter: bytes - bytesRemoved };
      });
    } catch (error) {
      throw compactionError(directory, error);
    }
  }

  /** Passes until all that is sealed now has been looked at: more than one when there are more keys than a pass takes. */
  async #passes(rewriter: Rewriter, graceMs: number, all: boolean): Promise<Rewritten> {
    const stream = this.#stream;
    const total = { recordsRemoved: 0, bytesRemoved: 0 };
    let target: number | undefined;
    for (;;) {
      const runs = await rewriter.seal(stream, all);
      const end = runs[runs.length - 1]?.next ?? 0;
      target ??= end;
      const { recordsRemoved, bytesRemoved } = await this.#pass(rewriter, runs, graceMs);
      total.recordsRemoved += recordsRemoved;
      total.bytesRemoved += bytesRemoved;
      if (stream.cleanTo >= Math.min(target, end)) return total;
    }
  }

  async #pass(rewriter: Rewriter, runs: readonly Run[], graceMs: number): Promise<Rewritten> {
    const stream = this.#stream;
    const last = runs[runs.length - 1];
    if (last === undefined) return { recordsRemoved: 0, bytesRemoved: 0 };
    const from = Math.max(stream.cleanTo, stream.head);
    const keysMax = runs.reduce((sum, run) => sum + (run.next > from ? run.count : 0), 0);
    const table = new KeyTable(this.#engine.random, keysMax, this.#tableBytes);
    let to = last.next;
    await rewriter.scan(stream, from, last.next, (record) => {
      const key = record.keyView();
      if (key === undefined || table.note(key, record.offset)) return true;
      to = record.offset;
      return false;
    });
    const expiredMs = this.#nowMs() - graceMs;
    let oldest = 0;
    const keep = (record: RecordCursor) => {
      if (record.offset >= to) return true;
      const key = record.keyView();
      if (key === undefined) return true;
      if ((table.lastOf(key) ?? record.offset) > record.offset) return false;
      if (!isTombstone(record)) return true;
      if (record.timestamp <= expiredMs) return false;
      if (oldest === 0 || record.timestamp < oldest) oldest = record.timestamp;
      return true;
    };
    const touched = runs.filter((run) => run.first < to);
    return await rewriter.rewrite(stream, touched, keep, () => {
      stream.cleanTo = Math.max(stream.cleanTo, to);
      stream.tombstonesFrom = oldest;
    });
  }

  /** The wall clock, but not further ahead than the log has been open: it may have been set. */
  #nowMs(): number {
    const { wall, elapsed } = this.#openedMs;
    return Math.min(this.#engine.clock.wallMs(), wall + this.#engine.elapsedMs() - elapsed);
  }
}

function bytesOf(runs: readonly Run[]): number {
  return runs.reduce((sum, run) => sum + run.bytes, 0);
}

/** What a caller is told of a compaction that failed; what was to be compacted is as it was. */
function compactionError(directory: string, error: unknown): unknown {
  if (isNoDescriptor(error)) {
    return new VarveError(
      "ERR_IO",
      `${directory}: a file could not be opened, as there are too many open; nothing was changed. Close some, or raise the ` +
        "limit (ulimit -n).",
      { cause: error },
    );
  }
  if (isNoSpace(error)) {
    return new VarveError(
      "ERR_DISK_FULL",
      `${directory}: the disk has no room for a copy of what a compaction rewrites; nothing was changed`,
      { cause: error },
    );
  }
  if (isVarveError(error) || !isSystemError(error)) return error;
  return new VarveError(
    "ERR_IO",
    `${directory}: a compaction failed (${error.message}). No record is affected; it can be tried again.`,
    {
      cause: error,
    },
  );
}
