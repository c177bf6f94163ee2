/**
 * Does again what the log says, as far as what it needs is still there: first as an open does it, and behind the first
 * damage by what is safe to use (repair-log.ts).
 *
 * - Batches go to streams that are known, and only behind what their segments have.
 * - An operation is repeated as it is while none before it is missing and its queue is intact; otherwise only as far as
 *   it cannot cost a record.
 * - Where the end of the log may be lost, as many offsets are left out as it can have held.
 */

import { isVarveError } from "../api/errors.js";
import { type Decoder, MalformedError } from "../storage/bytes.js";
import type { Snapshot } from "../storage/snapshot.js";
import type { Stream } from "../storage/stream.js";
import { FAILED_MARK, newWalFile, Wal, type WalFile } from "../storage/wal.js";
import { FILE_HEADER_BYTES } from "../storage/wal-format.js";
import { type WalEnd, WalReader, type WalSource } from "../storage/wal-reader.js";
import { keptPath } from "./damaged.js";
import {
  decodeCreation,
  decodeDeletion,
  FIRST_QUEUE_OP,
  type LogTime,
  OP_ADD_STREAM,
  OP_CREATE_QUEUE,
  OP_DELETE_QUEUE,
  OP_REQUESTS,
  type QueueState,
} from "./queue-state.js";
import { mayHaveLostRecords, mustFollow, offsetsToSkip } from "./recovery.js";
import { namesIn, snapshotNumbers } from "./repair-files.js";
import {
  batchesOf,
  type LoggedBatch,
  type LogStart,
  operationsIn,
  salvageLog,
  UNKNOWN_START,
  walHeader,
} from "./repair-log.js";
import { type RepairState, raise } from "./repair-state.js";
import { decodeRequests } from "./requests.js";

export class LogReplay {
  readonly #repair: RepairState;
  /** Batches and operations that were left out, as what they need is lost. */
  #dropped = 0;

  constructor(repair: RepairState) {
    this.#repair = repair;
  }

  /** @param snapshot what the log goes on from; undefined when that is lost */
  async read(snapshot: Snapshot | undefined, sources: readonly WalSource[]): Promise<void> {
    const repair = this.#repair;
    const { findings } = repair;
    const files = new Map(sources.map((source) => [source.path, this.#adopt(source)]));
    const headers = sources.flatMap(({ path }) => walHeader(repair.disk, path) ?? []);
    const header = snapshot?.header;
    repair.lsn = Math.max(header?.lsn ?? 0, ...snapshotNumbers(repair));
    repair.crc = header?.crc ?? 0;
    repair.elapsedMs = header?.elapsedMs ?? 0;
    repair.generation = Math.max(header?.generation ?? 0, ...headers.map(({ generation }) => generation)) + 1;
    const batch = (batch: LoggedBatch) => this.#addBatch(batch, files.get(batch.source.path)!);
    const operations = (meta: Buffer, time: LogTime, complete: boolean) => this.#repeat(meta, time, complete);
    let damaged = snapshot === undefined;
    const missing = (from: number, to: number, file: string) => {
      damaged = true;
      const what = from === to ? `entry ${from} is` : `entries ${from} to ${to} are`;
      findings.lost(
        undefined,
        `${file}: ${what} lost from the write-ahead log; what was done in it, only its records may be left`,
      );
    };
    let start: LogStart = {
      lsn: header?.lsn ?? 0,
      crc: header?.crc ?? 0,
      generation: header?.generation ?? headers[0]?.generation ?? 1,
      position: FILE_HEADER_BYTES,
      complete: snapshot !== undefined,
      anyGeneration: snapshot === undefined,
    };
    await this.#readKept();
    let from = 0;
    let end: WalEnd | undefined;
    const begun = namesIn(repair, `${repair.directory}/wal`).flatMap((name) => Wal.begunSeqOf(name) ?? []);
    repair.seqMax = Math.max(repair.seqMax, header?.walSeq ?? 0, ...begun);
    if (snapshot !== undefined) {
      if (mustFollow(snapshot, begun) && sources[0]?.seq !== snapshot.header.walSeq) {
        damaged = true;
        const path = Wal.path(`${repair.directory}/wal`, snapshot.header.walSeq);
        findings.lost(undefined, `${path} is missing: whatever was changed in it is lost`);
      }
      const last = { lsn: start.lsn, crc: start.crc };
      try {
        end = await new WalReader(repair.disk, repair.directoryId).replay(sources, snapshot.header, (entry) => {
          for (const each of batchesOf(entry)) batch(each);
          const { elapsedMs, wallMs, lsn, crc } = entry.header;
          operations(Buffer.from(entry.buffer.subarray(entry.metaStart, entry.metaEnd)), { elapsedMs, wallMs }, true);
          Object.assign(last, { lsn, crc });
          repair.elapsedMs = Math.max(repair.elapsedMs, elapsedMs);
        });
        from = sources.length;
      } catch (error) {
        if (!isVarveError(error, "ERR_CORRUPT")) throw error;
        damaged = true;
        const { file, position } = error.details as { file: string; position: number };
        from = sources.findIndex(({ path }) => path === file);
        start = { ...start, ...last, position };
      }
      repair.lsn = Math.max(repair.lsn, last.lsn);
    }
    if (from < sources.length) {
      const salvaged = await salvageLog(repair.disk, sources.slice(from), start, { batch, operations, missing });
      repair.lsn = Math.max(repair.lsn, salvaged.lsn);
      repair.elapsedMs = Math.max(repair.elapsedMs, salvaged.elapsedMs);
    }
    if (this.#dropped > 0) findings.note(`${this.#dropped} changes in the log were left out: what they need is lost`);
    for (const { path } of damaged || this.#dropped > 0 ? sources : []) repair.toCopy.add(path);
    if (damaged && sources.length > 0) findings.action("the log: what can be read of it goes to segments");
    const failed = repair.disk.size(`${repair.directory}/wal/${FAILED_MARK}`) !== undefined;
    const { walFileBytes } = repair.options;
    const bootId = repair.disk.bootId() ?? "";
    if (damaged || (sources.length > 0 && mayHaveLostRecords(end?.header, bootId, failed))) {
      repair.skip = offsetsToSkip(Math.max(walFileBytes, ...headers.map(({ fileBytes }) => fileBytes)));
    }
  }

  /** What opens have left out of the log because the queue was damaged. */
  async #readKept(): Promise<void> {
    const repair = this.#repair;
    if (repair.rebuilt.size === 0) return;
    const folder = keptPath(repair.directory, `${repair.directory}/wal`);
    for (const name of namesIn(repair, folder).sort()) {
      const seq = Wal.seqOf(name);
      if (seq === undefined) continue;
      const source = { path: `${folder}/${name}`, seq };
      const wal = this.#adopt(source);
      await salvageLog(repair.disk, [source], UNKNOWN_START, {
        missing: () => {},
        batch: (batch) => {
          const stream = repair.catalog.stream(batch.streamId);
          if (stream !== undefined && this.#rebuiltOf(stream) !== undefined) this.#addBatch(batch, wal);
        },
        operations: (meta, time) => {
          for (const { code, queueId, fields } of operationsIn(meta)) {
            const state = repair.catalog.byId(queueId)?.state;
            if (state !== undefined && repair.rebuilt.has(state))
              this.#tryOperation(code, queueId, fields, time, false);
          }
        },
      });
    }
  }

  /** Keeps a log file open: its batches are copied from there to segments. */
  #adopt({ path, seq }: WalSource): WalFile {
    const file = this.#repair.disk.openFile(path, "read");
    const wal = { ...newWalFile(file, seq, undefined, file.size()), dirty: false, unnamed: false };
    this.#repair.walFiles.push(wal);
    return wal;
  }

  /** Adds a batch to its stream, where it stays in the log until the closing checkpoint. */
  #addBatch(batch: LoggedBatch, wal: WalFile): void {
    const stream = this.#repair.catalog.stream(batch.streamId);
    if (stream === undefined) {
      this.#dropped++;
      return;
    }
    const { base, next, count, bytes, timestamp, position } = batch;
    // A segment has it already, or it is of an earlier life. The end that an older snapshot names is not that of the runs.
    const last = stream.recentEnd ?? stream.runs[stream.runs.length - 1]?.next;
    const rebuilt = this.#rebuiltOf(stream);
    if (base < (rebuilt === undefined ? stream.next : (last ?? 0))) return;
    const row = wal.batches.add({ stream, base, next, count, bytes, timestamp }, position);
    if (rebuilt !== undefined && last === undefined) {
      stream.head = Math.max(stream.head, base);
      this.#repair.repairer.begin(rebuilt);
    }
    const end = stream.next;
    stream.add(wal, row);
    raise(stream, end);
    stream.show(next);
    this.#repair.coverage.get(stream)!.add(base, next);
  }

  /** The queue of a stream, if it was made again. */
  #rebuiltOf(stream: Stream): QueueState | undefined {
    for (const state of this.#repair.rebuilt) if (state.streams.includes(stream)) return state;
    return undefined;
  }

  #repeat(meta: Buffer, time: LogTime, complete: boolean): void {
    for (const { code, queueId, fields } of operationsIn(meta)) {
      this.#tryOperation(code, queueId, fields, time, complete);
    }
  }

  /** Counts an operation that cannot be repeated. */
  #tryOperation(code: number, queueId: number, fields: Decoder, time: LogTime, complete: boolean): void {
    try {
      if (!this.#operation(code, queueId, fields, time, complete)) this.#dropped++;
    } catch (error) {
      if (!(error instanceof MalformedError)) throw error;
      this.#dropped++;
    }
  }

  /** False when the operation is left out. */
  #operation(code: number, queueId: number, fields: Decoder, time: LogTime, complete: boolean): boolean {
    const catalog = this.#repair.catalog;
    if (code === OP_CREATE_QUEUE) {
      const creation = decodeCreation(fields);
      const { kind, name } = creation;
      if (catalog.byId(queueId) !== undefined || catalog.find(kind, name) !== undefined) return true;
      const state = catalog.create(creation, queueId, time.wallMs);
      for (const stream of state.streams) this.#repair.cover(stream);
      return true;
    }
    if (code === OP_REQUESTS) {
      const { run, answers } = decodeRequests(fields);
      catalog.requests.committed(run, answers, 0, time.elapsedMs, 0);
      return true;
    }
    const state = catalog.byId(queueId)?.state;
    if (code === OP_DELETE_QUEUE) {
      this.#delete(queueId, fields);
      return true;
    }
    if (code === OP_ADD_STREAM && state !== undefined) {
      const [streamId, folder] = [fields.varint(), fields.string()];
      if (state.streams.some((stream) => stream.folder === folder)) return true;
      this.#repair.cover(catalog.addStream(state, streamId, folder));
      return true;
    }
    if (code < FIRST_QUEUE_OP || state === undefined) return false;
    if (!complete || this.#repair.rebuilt.has(state)) return this.#repair.repairer.salvage(state, code, fields, time);
    state.replay(code, fields, time);
    return true;
  }

  /** Deletes a queue as the log says, also one that has been made again with another id. */
  #delete(queueId: number, fields: Decoder): void {
    const catalog = this.#repair.catalog;
    const { kind, name, lastStreamId } = decodeDeletion(fields);
    this.#repair.noteDeletion(kind, name, lastStreamId);
    const named = catalog.find(kind, name);
    const isIt = named?.state?.streams.every(({ id }) => id <= lastStreamId) === true;
    const entry = catalog.byId(queueId) ?? (isIt ? named : undefined);
    if (entry === undefined) return;
    const { streams } = entry.state!;
    catalog.delete(entry, lastStreamId);
    this.#repair.rebuilt.delete(entry.state!);
    // None of its runs counts any more, nor needs to be moved.
    for (const stream of streams) stream.runs = [];
    const others = this.#repair.replaced.filter(({ stream }) => !streams.includes(stream));
    this.#repair.replaced.splice(0, this.#repair.replaced.length, ...others);
  }
}
