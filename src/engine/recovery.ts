/**
 * Opening a directory: snapshot, then the log behind it, then a checkpoint of what was found.
 *
 * Nothing on disk changes until the whole log has been read and judged (wal-reader.ts). Then a log file of a new
 * generation is begun, so that nothing beyond a cut can ever join up with what is written from now on, and a
 * checkpoint makes durable what so far may only have been in the page cache. A crash at any point of this leaves
 * the same recovery to be done again.
 */

import type { RecoveryReport } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import type { ResolvedOpenOptions } from "../api/options.js";
import { batchFileBytes, payloadBytesIn, readBatchHeader } from "../storage/batch.js";
import { Decoder, MalformedError } from "../storage/bytes.js";
import { type Disk, isNoSpace } from "../storage/disk.js";
import { FileCache } from "../storage/file-cache.js";
import { decodeSnapshot, isSnapshotName, type Snapshot, snapshotPath } from "../storage/snapshot.js";
import type { Stream } from "../storage/stream.js";
import { FAILED_MARK, type NextFileHeader, Wal, type WalFile } from "../storage/wal.js";
import { FILE_HEADER_BYTES, type WalFileHeader } from "../storage/wal-format.js";
import { type WalEnd, type WalEntry, WalReader, type WalSource } from "../storage/wal-reader.js";
import { Catalog } from "./catalog.js";
import { Checkpointer } from "./checkpoint.js";
import { keepCopy } from "./damaged.js";
import { foreignNotes, readMarker } from "./directory.js";
import { Engine, type EnginePlatform, WAL_FILES_MAX } from "./engine.js";
import {
  decodeCreation,
  decodeDeletion,
  FIRST_QUEUE_OP,
  type LogTime,
  OP_ADD_STREAM,
  OP_CREATE_QUEUE,
  OP_DELETE_QUEUE,
  OP_REQUESTS,
  type QueueKinds,
} from "./queue-state.js";
import { decodeRequests } from "./requests.js";
import { Rewriter } from "./rewriter.js";

/** Bytes of the smallest record. */
const RECORD_BYTES_MIN = 6;

export interface OpenedDirectory {
  readonly engine: Engine;
  readonly checkpointer: Checkpointer;
  readonly report: RecoveryReport;
}

/** Opens a directory whose lock is held. */
export async function openDirectory(
  platform: EnginePlatform,
  directory: string,
  options: ResolvedOpenOptions,
  kinds: QueueKinds,
): Promise<OpenedDirectory> {
  const { disk, clock } = platform;
  const marker = await readMarker(disk, directory, platform.random, clock.wallMs());
  const foreign = foreignNotes(disk, directory);
  const { snapshot, bytes: snapshotBytes } = readSnapshot(disk, directory);
  if (snapshot.header.directoryId !== marker.id) {
    throw corrupt(`${directory}/snap`, "the snapshot belongs to another directory");
  }
  // Its writer may have been killed before its name was durable. Log files that only an older one needs are reused next.
  await disk.syncDirectory(`${directory}/snap`);
  const catalog = new Catalog(directory, kinds, snapshot);
  const walDirectory = `${directory}/wal`;
  const bootId = disk.bootId() ?? "";
  const wal = new Wal(disk, walDirectory, { fileBytes: options.walFileBytes, directoryId: marker.id, bootId });
  const { sources, old, begun, seqMax } = listLog(disk, walDirectory, snapshot.header.walSeq);
  const following = mustFollow(snapshot, begun);
  if (following && sources[0]?.seq !== snapshot.header.walSeq) {
    const missing = Wal.path(walDirectory, snapshot.header.walSeq);
    throw corrupt(missing, "the log file that follows the snapshot is missing");
  }

  const replay = new Replay(catalog, wal, sources);
  const end = await replay.run(new WalReader(disk, marker.id), snapshot);
  const notes = [...foreign, ...end.notes, ...replay.notes];
  const report: RecoveryReport = {
    recovered: sources.length > 0,
    replayedCommits: end.entries,
    replayedBytes: end.bytes,
    cutBytes: end.cutBytes,
    notes,
  };
  const last = replay.time ?? { elapsedMs: snapshot.header.elapsedMs, wallMs: snapshot.header.wallMs };
  const generation = sources.length > 0 ? end.generationMax + 1 : snapshot.header.generation;
  const engine = new Engine(platform, {
    directory,
    directoryId: marker.id,
    options,
    catalog,
    wal,
    files: new FileCache(disk, options.maxOpenFiles),
    lsn: end.lsn,
    crc: end.crc,
    generation,
    elapsedMs: last.elapsedMs,
    recovering: sources.length > 0,
    snapshotBytes,
  });
  catalog.resume(last, engine.time());
  const failedMark = `${walDirectory}/${FAILED_MARK}`;
  const failed = disk.size(failedMark) !== undefined;
  // Behind an orderly close, a log file that was not noted as begun is from an open that took no change.
  const served = following || end.entries > 0;
  if (served && mayHaveLostRecords(end.header, bootId, failed)) {
    const lost = offsetsToSkip(Math.max(options.walFileBytes, end.fileBytesMax));
    for (const entry of catalog.entries) {
      if (entry.damaged !== undefined) continue;
      for (const stream of catalog.load(entry).streams) stream.skip(lost);
    }
  }

  let checkpointer: Checkpointer | undefined;
  try {
    await keepDamaged(engine, replay.leftOut, notes);
    wal.mayHaveHoles = sources.length > 0 && (bootId === "" || end.header?.bootId !== bootId);
    for (const name of old) wal.adoptSpare(name);
    const header = { firstLsn: end.lsn + 1, generation, prevCrc: end.crc, async: options.durability === "async" };
    await beginLog(engine, header, seqMax + 1);
    try {
      await wal.sync();
    } catch (error) {
      // Of what was read back, the last may have been in memory alone, and be gone with this.
      wal.markFailed();
      throw error;
    }
    checkpointer = new Checkpointer(engine);
    new Rewriter(engine, checkpointer);
    let covered = true;
    if (sources.length > 0) {
      covered = await checkpointer.checkpointNow();
      if (engine.failure !== undefined) throw engine.failure;
      if (!covered) {
        // After a failed write, what was read back may be in memory alone, whatever a sync says. No checkpoint writes it.
        if (failed) await wal.writeAgain();
        notes.push(`${directory}: the disk is full; reads go on, changes are taken when there is space`);
      }
      options.logger.info({ directory, ...report }, "recovered after an unclean stop");
    } else {
      // From the first change on the snapshot, which says that nothing follows it, does not count alone any more.
      await wal.markBegun();
    }
    if (covered) {
      for (const seq of begun) if (seq !== wal.current.seq) disk.unlink(Wal.begunPath(walDirectory, seq));
      if (failed) disk.unlink(failedMark);
    }
    return { engine, checkpointer, report };
  } catch (error) {
    // Whoever opens the directory next must not find this life still at work in it.
    await engine.rewriter?.close();
    await checkpointer?.stop();
    await engine.reserves.stop();
    wal.close();
    engine.files.close();
    throw error;
  }
}

/** Begins the log file of the new life: on a full disk in what is held in reserve, or in what old files do not need. */
async function beginLog(engine: Engine, header: NextFileHeader, seq: number): Promise<void> {
  const { wal } = engine;
  try {
    await withReserves(engine, () => wal.begin(header, seq));
  } catch (error) {
    if (!isNoSpace(error)) throw error;
    await wal.giveUpUnused();
    wal.begin(header, seq, FILE_HEADER_BYTES);
  }
}

/** Repeats what has no space for as long as there are reserves to be given up. */
async function withReserves<T>(engine: Engine, run: () => T | Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await run();
    } catch (error) {
      if (!isNoSpace(error)) throw error;
      engine.noteDiskFull();
      if (!(await engine.reserves.giveUp())) throw error;
    }
  }
}

/**
 * Where commits did not wait to be durable, a power cut (the operating system has restarted) or a failed write may have
 * taken acknowledged records with it.
 */
export function mayHaveLostRecords(header: WalFileHeader | undefined, bootId: string, failed: boolean): boolean {
  if (header === undefined) return true;
  return header.async && (failed || bootId === "" || header.bootId !== bootId);
}

/** As many records as all log files can hold: offsets go on past them, so that none is ever given out twice. */
export function offsetsToSkip(walFileBytes: number): number {
  return Math.ceil((WAL_FILES_MAX * walFileBytes) / RECORD_BYTES_MIN);
}

function readSnapshot(disk: Disk, directory: string): { snapshot: Snapshot; bytes: number } {
  const folder = `${directory}/snap`;
  let names: string[];
  try {
    names = disk.list(folder).filter(isSnapshotName).sort();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    names = [];
  }
  const newest = names[names.length - 1];
  if (newest === undefined) throw corrupt(folder, "there is no snapshot: it says which queues there are");
  const path = `${folder}/${newest}`;
  const contents = disk.readFile(path);
  const snapshot = decodeSnapshot(contents);
  if (typeof snapshot === "string") throw corrupt(path, snapshot);
  if (path !== snapshotPath(folder, snapshot.header.lsn)) throw corrupt(path, "the name does not match the contents");
  return { snapshot, bytes: contents.length };
}

/** Whether a log file that follows the snapshot must be there. After an orderly close there is none until the next open. */
export function mustFollow(snapshot: Snapshot, begun: readonly number[]): boolean {
  return !snapshot.header.clean || begun.includes(snapshot.header.walSeq);
}

function listLog(
  disk: Disk,
  directory: string,
  fromSeq: number,
): { sources: WalSource[]; old: string[]; begun: number[]; seqMax: number } {
  const sources: WalSource[] = [];
  const old: string[] = [];
  const begun: number[] = [];
  let seqMax = fromSeq - 1;
  for (const name of disk.list(directory).sort()) {
    const begunSeq = Wal.begunSeqOf(name);
    if (begunSeq !== undefined) begun.push(begunSeq);
    const seq = Wal.seqOf(name);
    if (seq === undefined) {
      if (Wal.isSpare(name)) old.push(name);
      continue;
    }
    seqMax = Math.max(seqMax, seq);
    if (seq < fromSeq) old.push(name);
    else sources.push({ path: `${directory}/${name}`, seq });
  }
  return { sources, old, begun, seqMax };
}

/**
 * Keeps copies of the log files with changes of damaged queues: the checkpoint that comes next gives the files up. Copies,
 * as the files themselves are needed until its snapshot is durable.
 */
async function keepDamaged(engine: Engine, files: Iterable<string>, notes: string[]): Promise<void> {
  for (const path of files) {
    const kept = await withReserves(engine, () => keepCopy(engine.disk, engine.directory, path));
    notes.push(`${kept}: a copy of the log file with the changes of damaged queues that were left out`);
  }
}

/** Repeats the log behind a snapshot. */
class Replay {
  readonly notes: string[] = [];
  /** Log files with changes that were left out. */
  readonly leftOut = new Set<string>();
  /** Of the last entry. */
  time: LogTime | undefined;
  readonly #catalog: Catalog;
  readonly #wal: Wal;
  readonly #sources: readonly WalSource[];
  readonly #files = new Map<number, WalFile>();
  #dropped = 0;

  constructor(catalog: Catalog, wal: Wal, sources: readonly WalSource[]) {
    this.#catalog = catalog;
    this.#wal = wal;
    this.#sources = sources;
  }

  async run(reader: WalReader, snapshot: Snapshot): Promise<WalEnd> {
    this.#catalog.beginReplay();
    try {
      for (const source of this.#sources) this.#files.set(source.seq, this.#wal.adopt(source.seq));
      const end = await reader.replay(this.#sources, snapshot.header, (entry) => this.#entry(entry));
      for (const [seq, file] of this.#files) file.position = end.ends.get(seq) ?? 0;
      if (this.#dropped > 0) this.notes.push(`${this.#dropped} changes of damaged queues were left out`);
      return end;
    } catch (error) {
      this.#wal.close();
      throw error;
    } finally {
      this.#catalog.endReplay();
    }
  }

  #entry(entry: WalEntry): void {
    const { header, buffer } = entry;
    this.time = { elapsedMs: header.elapsedMs, wallMs: header.wallMs };
    try {
      this.#batches(entry);
      const input = new Decoder(buffer, entry.metaStart, entry.metaEnd);
      while (!input.done) this.#operation(input, this.time, entry);
    } catch (error) {
      if (!(error instanceof MalformedError)) throw error;
      throw corrupt(entry.file.path, `entry ${header.lsn} is intact but cannot be repeated: ${error.message}`);
    }
  }

  #batches(entry: WalEntry): void {
    for (let at = entry.bulkStart; at < entry.metaStart; ) {
      const header = readBatchHeader(entry.buffer, at, entry.metaStart)!;
      const stream = this.#stream(header.streamId, entry);
      if (stream !== undefined) {
        if (header.baseOffset < stream.next) {
          throw new MalformedError(`batch at offset ${header.baseOffset} of a stream that ends at ${stream.next}`);
        }
        const wal = this.#files.get(entry.file.seq)!;
        const next = header.baseOffset + header.span;
        const { baseOffset: base, count, bytes, timestamp } = header;
        const batch = { stream, base, next, count, bytes, timestamp };
        stream.add(wal, wal.batches.add(batch, entry.bulkPosition + at - entry.bulkStart));
        stream.payloadBytes += payloadBytesIn(entry.buffer, at, header);
        stream.show(next);
      }
      at += batchFileBytes(header.bytes);
    }
  }

  #stream(id: number, entry: WalEntry): Stream | undefined {
    const stream = this.#damagedIsUndefined(() => this.#catalog.stream(id));
    if (stream !== undefined) return stream;
    if (this.#catalog.hasDamage) this.#leaveOut(entry);
    else if (!this.#catalog.hadStream(id)) throw new MalformedError(`stream ${id} is not known`);
    return undefined;
  }

  #operation(input: Decoder, time: LogTime, from: WalEntry): void {
    const code = input.u8();
    const queueId = input.varint();
    // Each operation is framed, so that those of a damaged queue can be passed over.
    const fields = new Decoder(input.bytes(input.u32()));
    if (code === OP_CREATE_QUEUE) {
      this.#catalog.create(decodeCreation(fields), queueId, time.wallMs);
      return;
    }
    if (code === OP_REQUESTS) {
      const { run, answers } = decodeRequests(fields);
      this.#catalog.requests.committed(run, answers, 0, time.elapsedMs, 0);
      return;
    }
    if (code < FIRST_QUEUE_OP && code !== OP_ADD_STREAM && code !== OP_DELETE_QUEUE) {
      throw new MalformedError(`operation ${code} is not known`);
    }
    const entry = this.#catalog.byId(queueId);
    if (entry === undefined) {
      if (this.#catalog.hadQueue(queueId)) return;
      throw new MalformedError(`queue ${queueId} is not known`);
    }
    if (code === OP_DELETE_QUEUE) {
      this.#catalog.delete(entry, decodeDeletion(fields).lastStreamId);
      return;
    }
    const state = this.#damagedIsUndefined(() => this.#catalog.load(entry));
    if (state === undefined) this.#leaveOut(from);
    else if (code === OP_ADD_STREAM) this.#catalog.addStream(state, fields.varint(), fields.string());
    else state.replay(code, fields, time);
  }

  #leaveOut(entry: WalEntry): void {
    this.#dropped++;
    this.leftOut.add(entry.file.path);
  }

  #damagedIsUndefined<T>(load: () => T): T | undefined {
    try {
      return load();
    } catch (error) {
      if (error instanceof VarveError && error.code === "ERR_CORRUPT") return undefined;
      throw error;
    }
  }
}

function corrupt(file: string, reason: string): VarveError {
  return new VarveError("ERR_CORRUPT", `${file}: ${reason}. Nothing was changed. 'varve verify' shows the extent.`, {
    details: { file },
  });
}
