/**
 * Inspects the write-ahead log. WalReader judges where it ends, as at open: a torn tail, or damage. Where it says
 * damage, what stands behind is surveyed entry by entry, so that every damaged place is told once, and what it costs.
 */

import { isVarveError } from "../api/errors.js";
import { align8 } from "../storage/bytes.js";
import { crc32 } from "../storage/crc32.js";
import type { Disk } from "../storage/disk.js";
import {
  decodeFileHeader,
  ENTRY_HEADER_BYTES,
  entryBytes,
  FILE_HEADER_BYTES,
  type WalFileHeader,
} from "../storage/wal-format.js";
import { type WalEntry, type WalPoint, WalReader, type WalSource } from "../storage/wal-reader.js";
import { type Findings, guarded } from "./inspect-report.js";
import { FileWindow, type FoundEntry, findEntry, walkRecords, walkStretch } from "./inspect-window.js";

export interface LogInspection {
  readonly disk: Disk;
  readonly directoryId: string;
  readonly findings: Findings;
  /** The name of the queue that a stream belongs to. */
  queueOf(streamId: number): string | undefined;
  /** Each entry that belongs to the log, in order. */
  visit(entry: WalEntry): void;
}

/**
 * Checks the entries behind a point.
 * @returns false when part of the log is damaged, so that what the entries would lead to is not known
 */
export async function inspectLog(
  inspection: LogInspection,
  sources: readonly WalSource[],
  from: WalPoint,
): Promise<boolean> {
  const { disk, directoryId, findings } = inspection;
  if (sources.length === 0) return true;
  const visit = (entry: WalEntry) => {
    findings.begin(entry.file.path);
    findings.progress(align8(entryBytes(entry.header)));
    inspection.visit(entry);
  };
  let intact = false;
  await guarded(findings, sources[0]!.path, async () => {
    try {
      const end = await new WalReader(disk, directoryId).replay(sources, from, visit);
      intact = true;
      for (const note of end.notes) findings.note(note);
      const commits = end.entries === 1 ? "1 commit" : `${end.entries} commits`;
      findings.note(`not closed in order: ${commits} in the log, which the next open repeats`);
    } catch (error) {
      if (!isVarveError(error, "ERR_CORRUPT")) throw error;
      const { file, position, lsn } = error.details as { file: string; position: number; lsn: number };
      const index = sources.findIndex((source) => source.path === file);
      const before = findings.problems;
      await new Survey(inspection, sources.slice(index), from.generation).run(position, lsn);
      if (findings.problems === before) findings.problem(file, position, error.message);
    }
  });
  return intact;
}

/** A place where the next entry should be and is not. */
interface Hole {
  readonly file: string;
  readonly position: number;
  readonly reason: string;
}

class Survey {
  readonly #inspection: LogInspection;
  readonly #sources: readonly WalSource[];
  readonly #generation: number;
  #lsn = 0;
  #hole: Hole | undefined;

  constructor(inspection: LogInspection, sources: readonly WalSource[], generation: number) {
    this.#inspection = inspection;
    this.#sources = sources;
    this.#generation = generation;
  }

  /** @param position, lsn where in the first file which entry cannot be read back */
  async run(position: number, lsn: number): Promise<void> {
    const durable = await this.#highestVoucher(position, lsn);
    this.#lsn = lsn;
    for (const [index, source] of this.#sources.entries()) {
      const from = index === 0 ? position : FILE_HEADER_BYTES;
      await this.#eachWindow(source, async (window) => {
        if (from === FILE_HEADER_BYTES) this.#checkHeader(await headerOf(window), source);
        await this.#surveyFile(window, source, from, durable);
      });
      if (this.#lsn > durable) return;
    }
  }

  /** Behind the highest entry that is known to have been durable, damage and a torn tail look the same. */
  async #highestVoucher(position: number, lsn: number): Promise<number> {
    let highest = 0;
    for (const [index, source] of this.#sources.entries()) {
      await this.#eachWindow(source, async (window) => {
        let from = index === 0 ? position : FILE_HEADER_BYTES;
        for (;;) {
          const entry = await findEntry(window, from, this.#generation, lsn);
          if (entry === undefined) return;
          highest = Math.max(highest, entry.header.watermark);
          from = entry.position + align8(entryBytes(entry.header));
        }
      });
    }
    return highest;
  }

  #checkHeader(header: WalFileHeader | string, source: WalSource): void {
    const { directoryId } = this.#inspection;
    let reason: string | undefined;
    if (typeof header === "string") reason = header;
    else if (header.directoryId !== directoryId) reason = "belongs to another directory";
    else if (header.seq !== source.seq) reason = `is number ${header.seq}, not ${source.seq}`;
    else if (header.generation !== this.#generation)
      reason = `generation ${header.generation}, not ${this.#generation}`;
    if (reason !== undefined) this.#hole = { file: source.path, position: 0, reason };
  }

  async #surveyFile(window: FileWindow, source: WalSource, start: number, durable: number): Promise<void> {
    let position = start;
    for (;;) {
      const entry = await findEntry(window, position, this.#generation, this.#lsn);
      if (entry === undefined) {
        // The entries missing here may go on in the next file.
        this.#hole ??= { file: source.path, position, reason: "the entry cannot be read" };
        return;
      }
      const missing = entry.header.lsn - this.#lsn;
      if (missing > 0 || entry.position !== position) this.#hole ??= { file: source.path, position, reason: "damaged" };
      if (this.#hole !== undefined) await this.#reportHole(window, source, this.#hole, entry);
      this.#hole = undefined;
      this.#lsn = entry.header.lsn;
      if (this.#lsn > durable) return;
      await this.#checkBulk(window, source, entry);
      this.#lsn++;
      position = entry.position + align8(entryBytes(entry.header));
    }
  }

  async #reportHole(window: FileWindow, source: WalSource, hole: Hole, next: FoundEntry): Promise<void> {
    const { findings, queueOf } = this.#inspection;
    const last = next.header.lsn - 1;
    const what =
      last < this.#lsn
        ? `before entry ${next.header.lsn}`
        : last === this.#lsn
          ? `entry ${last} is lost`
          : `entries ${this.#lsn} to ${last} are lost`;
    const reason = `${what} of the write-ahead log: ${hole.reason}`;
    let queue: string | undefined;
    let offsets: [number, number] | undefined;
    if (hole.file === source.path && hole.position > 0) {
      // Batches guard themselves: those of an entry whose header is damaged still say what they are.
      let streamId: number | undefined;
      const from = { position: hole.position + ENTRY_HEADER_BYTES, end: next.position, streamId: undefined };
      for await (const found of walkStretch(window, {
        ...from,
        firstOffset: 0,
        nextOffset: Number.POSITIVE_INFINITY,
      })) {
        if (!("batch" in found)) continue;
        const { header } = found.batch;
        streamId ??= header.streamId;
        if (header.streamId !== streamId) continue;
        offsets = [offsets?.[0] ?? header.baseOffset, header.baseOffset + header.span - 1];
      }
      if (streamId !== undefined) queue = queueOf(streamId);
    }
    findings.problem(hole.file, hole.position, reason, queue, offsets);
  }

  /** The batches of an entry that is intact itself. */
  async #checkBulk(window: FileWindow, source: WalSource, entry: FoundEntry): Promise<void> {
    const { findings, queueOf } = this.#inspection;
    const { lsn, bulkBytes, bulkCrc } = entry.header;
    const position = entry.position + ENTRY_HEADER_BYTES;
    const stretch = { position, end: position + bulkBytes, streamId: undefined };
    let crc = 0;
    let damaged = false;
    for await (const found of walkStretch(window, {
      ...stretch,
      firstOffset: 0,
      nextOffset: Number.POSITIVE_INFINITY,
    })) {
      if ("damage" in found) {
        damaged = true;
        const { damage } = found;
        const queue = damage.streamId === undefined ? undefined : queueOf(damage.streamId);
        findings.problem(source.path, damage.position, `in entry ${lsn}: ${damage.reason}`, queue, damage.offsets);
        continue;
      }
      const { header, at } = found.batch;
      crc = crc32(window.buffer, at, at + 4, crc);
      let records = 0;
      const reason = walkRecords(window.buffer, at, header, () => void records++);
      findings.records += records;
      const offsets = [header.baseOffset, header.baseOffset + header.span - 1] as const;
      if (reason !== undefined) {
        findings.problem(source.path, found.batch.position, reason, queueOf(header.streamId), offsets);
      }
    }
    if (!damaged && crc !== bulkCrc) {
      findings.problem(source.path, entry.position, `entry ${lsn} holds other batches than it was written with`);
    }
  }

  async #eachWindow(source: WalSource, look: (window: FileWindow) => Promise<void>): Promise<void> {
    const file = this.#inspection.disk.openFile(source.path, "read");
    try {
      await look(new FileWindow(file));
    } finally {
      file.close();
    }
  }
}

export async function headerOf(window: FileWindow): Promise<WalFileHeader | string> {
  const at = await window.at(0, FILE_HEADER_BYTES);
  return at < 0 ? "shorter than a header" : decodeFileHeader(window.buffer.subarray(at, at + FILE_HEADER_BYTES));
}
