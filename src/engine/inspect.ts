/**
 * Checks everything in a directory and changes nothing: the marker, the snapshot, the log behind it, every segment and
 * index; then that the records which the queues still need are there. Damage in one place is one problem and does not
 * keep the rest from being checked.
 *
 * Nothing is opened for writing. The caller holds the lock where there is one.
 */

import { isVarveError } from "../api/errors.js";
import { batchFileBytes, type RecordCursor, readBatchHeader } from "../storage/batch.js";
import { Decoder, MalformedError } from "../storage/bytes.js";
import type { Disk } from "../storage/disk.js";
import { isOwnSegmentName, type Segment } from "../storage/segment.js";
import { decodeSnapshot, isSnapshotName, PREVIOUS_SNAPSHOT, type Snapshot, snapshotPath } from "../storage/snapshot.js";
import type { Stream } from "../storage/stream.js";
import { indexPath } from "../storage/stream-reader.js";
import { FAILED_MARK, Wal } from "../storage/wal.js";
import { decodeFileHeader, FILE_HEADER_BYTES } from "../storage/wal-format.js";
import type { WalEntry, WalSource } from "../storage/wal-reader.js";
import { Catalog, type CatalogEntry } from "./catalog.js";
import { DAMAGED_FOLDER, FORMAT, MARKER } from "./directory.js";
import { inspectLog } from "./inspect-log.js";
import { Findings, guarded, type VerifyProgress, type VerifyReport } from "./inspect-report.js";
import { inspectLoneSegment, inspectSegment, type OwnedRun } from "./inspect-segments.js";
import { walkRecords } from "./inspect-window.js";
import {
  decodeCreation,
  decodeDeletion,
  FIRST_QUEUE_OP,
  OP_ADD_STREAM,
  OP_CREATE_QUEUE,
  OP_DELETE_QUEUE,
  OP_REQUESTS,
  type QueueKinds,
  type QueueState,
} from "./queue-state.js";
import { mustFollow } from "./recovery.js";
import { decodeRequests } from "./requests.js";

/** What an inspection must know of queues; given by the layer that knows the kinds. */
export interface QueueInspector {
  readonly kinds: QueueKinds;
  /** The directory's folders that hold queues. */
  readonly folders: readonly string[];
  /** What a queue is called in a report. */
  label(kind: number, name: string): string;
  /** Why a record cannot be one that a stream of the queue keeps; undefined when it can. */
  recordProblem(state: QueueState, stream: Stream, record: RecordCursor): string | undefined;
  /** What is wrong with the state in itself. */
  stateProblems(state: QueueState): StateProblem[];
  /** The offsets, `to` excluded, whose records the queue still needs, in order; those that were never given out may be among them. */
  needed(state: QueueState, stream: Stream): Iterable<OffsetRange>;
}

export interface StateProblem {
  readonly reason: string;
  readonly offsets?: readonly [number, number];
}

export interface OffsetRange {
  readonly from: number;
  readonly to: number;
}

export interface InspectOptions {
  readonly onProgress?: ((progress: VerifyProgress) => void) | undefined;
  /** Said by the caller beforehand. */
  readonly notes?: readonly string[];
}

export async function inspectDirectory(
  disk: Disk,
  directory: string,
  inspector: QueueInspector,
  options: InspectOptions = {},
): Promise<VerifyReport> {
  const findings = new Findings(options.onProgress);
  for (const note of options.notes ?? []) findings.note(note);
  await new DirectoryInspection(disk, directory, inspector, findings).run();
  return findings.report();
}

/** Besides the folders of queues. */
const KNOWN_NAMES = new Set([MARKER, "LOCK", "LOCK.owner", "ballast", "wal", "snap", "shared", DAMAGED_FOLDER]);
/** Folders of a queue's streams stand this deep below the folder of their kind. */
const QUEUE_DEPTH = 2;

/** A stream and the queue that it is part of. */
interface Owner {
  readonly state: QueueState;
  readonly stream: Stream;
  readonly label: string;
}

class DirectoryInspection {
  readonly #disk: Disk;
  readonly #directory: string;
  readonly #inspector: QueueInspector;
  readonly #findings: Findings;
  #directoryId: string | undefined;
  #catalog: Catalog | undefined;
  /** By stream id; those of queues that can be read. */
  readonly #owners = new Map<number, Owner>();
  readonly #coverage = new Map<Stream, Coverage>();
  /** Queues whose state cannot be read, by folder: what they had is checked on its own. */
  readonly #lost = new Map<string, string>();
  /** Files that something refers to. */
  readonly #named = new Set<string>();
  /** Where the snapshot's bytes begin in the memory that its sections are views of. */
  #snapshotStart = 0;
  /** The state is that of the end of the log; not so when part of the log is damaged. */
  #current = true;
  #replaying = true;

  constructor(disk: Disk, directory: string, inspector: QueueInspector, findings: Findings) {
    this.#disk = disk;
    this.#directory = directory;
    this.#inspector = inspector;
    this.#findings = findings;
  }

  async run(): Promise<void> {
    const marker = `${this.#directory}/${MARKER}`;
    const snapshotFile = this.#newestSnapshot();
    this.#expect(marker);
    if (snapshotFile !== undefined) this.#expect(snapshotFile);
    await guarded(this.#findings, marker, () => this.#readMarker(marker));
    let snapshot: Snapshot | undefined;
    if (snapshotFile === undefined) {
      this.#findings.problem(
        `${this.#directory}/snap`,
        undefined,
        "there is no snapshot: it says which queues there are",
      );
    } else {
      await guarded(this.#findings, snapshotFile, () => {
        snapshot = this.#readSnapshot(snapshotFile);
      });
    }
    const sources = this.#logFiles(snapshot);
    if (snapshot === undefined) await this.#inspectWithoutSnapshot(sources);
    else await this.#inspectAll(snapshot, snapshotFile!, sources);
    this.#noteTheRest();
  }

  async #inspectAll(snapshot: Snapshot, snapshotFile: string, sources: readonly WalSource[]): Promise<void> {
    const catalog = this.#restore(snapshot, snapshotFile);
    const segments = this.#segments();
    const lone = this.#lost.size === 0 ? [] : this.#loneSegments();
    for (const { path } of [...segments.keys(), ...sources, ...lone]) this.#expect(path);
    for (const segment of segments.keys()) {
      if (segment.sharedId === 0) this.#expect(indexPath(segment), true);
    }
    this.#findings.start();
    this.#catalog = catalog;
    const log = {
      disk: this.#disk,
      directoryId: this.#directoryId ?? snapshot.header.directoryId,
      findings: this.#findings,
      queueOf: (id: number) => this.#owners.get(id)?.label,
      visit: (entry: WalEntry) => this.#replay(entry),
    };
    const { walSeq } = snapshot.header;
    const begun = this.#list(`${this.#directory}/wal`).flatMap((name) => Wal.begunSeqOf(name) ?? []);
    if (mustFollow(snapshot, begun) && sources[0]?.seq !== walSeq) {
      const missing = Wal.path(`${this.#directory}/wal`, walSeq);
      this.#findings.problem(missing, undefined, "the log file that follows the snapshot is missing");
      this.#current = false;
    }
    if (!(await inspectLog(log, sources, snapshot.header))) this.#current = false;
    for (const [segment, runs] of segments) {
      // What the log says is deleted may be removed at any time, and need not be well.
      const needed = runs.filter(({ stream }) => stream.deleted === undefined);
      if (needed.length > 0 || runs.length === 0) await inspectSegment(this.#segmentInspection, segment, needed);
    }
    for (const { path, queue } of lone) await inspectLoneSegment(this.#segmentInspection, path, queue);
    this.#checkQueues(catalog, snapshotFile);
  }

  /** Nothing says what belongs to what: every log file and every segment is checked on its own. */
  async #inspectWithoutSnapshot(sources: readonly WalSource[]): Promise<void> {
    const segments = this.#loneSegments();
    for (const { path } of [...sources, ...segments]) this.#expect(path);
    this.#findings.start();
    for (const source of sources) await this.#inspectLoneLog(source);
    for (const { path } of segments) await inspectLoneSegment(this.#segmentInspection, path, undefined);
  }

  async #inspectLoneLog(source: WalSource): Promise<void> {
    await guarded(this.#findings, source.path, async () => {
      const header = decodeFileHeader(this.#head(source.path, FILE_HEADER_BYTES));
      if (typeof header === "string") {
        this.#findings.problem(source.path, 0, header);
        return;
      }
      const log = {
        disk: this.#disk,
        directoryId: this.#directoryId ?? header.directoryId,
        findings: this.#findings,
        queueOf: () => undefined,
        visit: (entry: WalEntry) => this.#walkBatches(entry),
      };
      const from = { lsn: header.firstLsn - 1, crc: header.prevCrc, generation: header.generation };
      await inspectLog(log, [source], from);
    });
  }

  get #segmentInspection() {
    return { disk: this.#disk, directoryId: this.#directoryId, findings: this.#findings };
  }

  /** Counts a file that is going to be checked. */
  #expect(path: string, optional = false): void {
    const size = this.#sizeOf(path);
    if (size === undefined && optional) return;
    this.#named.add(path);
    this.#findings.expect(size ?? 0);
  }

  #sizeOf(path: string): number | undefined {
    try {
      return this.#disk.size(path);
    } catch {
      return undefined; // Opening it says why.
    }
  }

  // -------------------------------------------------------------------------------------------- marker and snapshot

  #readMarker(path: string): void {
    const findings = this.#findings;
    const bytes = this.#disk.readFile(path);
    findings.progress(bytes.length);
    let marker: { format?: unknown; id?: unknown } | null;
    try {
      marker = JSON.parse(bytes.toString("utf8")) as typeof marker;
    } catch {
      findings.problem(path, 0, "is not valid JSON");
      return;
    }
    if (marker?.format !== FORMAT) {
      findings.problem(path, 0, `names format ${JSON.stringify(marker?.format)}, not ${FORMAT}`);
    } else if (typeof marker.id !== "string" || !/^[0-9a-f]{32}$/.test(marker.id)) {
      findings.problem(path, 0, "does not name the directory's id");
    } else {
      this.#directoryId = marker.id;
    }
  }

  #newestSnapshot(): string | undefined {
    const names = this.#list(`${this.#directory}/snap`).filter(isSnapshotName).sort();
    const newest = names[names.length - 1];
    return newest && `${this.#directory}/snap/${newest}`;
  }

  #readSnapshot(path: string): Snapshot | undefined {
    const findings = this.#findings;
    const bytes = this.#disk.readFile(path);
    findings.progress(bytes.length);
    this.#snapshotStart = bytes.byteOffset;
    const snapshot = decodeSnapshot(bytes);
    if (typeof snapshot === "string") {
      findings.problem(path, 0, `${snapshot}; it says which queues there are`);
      return undefined;
    }
    const { lsn, directoryId } = snapshot.header;
    if (path !== snapshotPath(`${this.#directory}/snap`, lsn)) {
      findings.problem(path, 16, `is the snapshot as of entry ${lsn}, against its name`);
    }
    if (this.#directoryId !== undefined && directoryId !== this.#directoryId) {
      const marker = `${this.#directory}/${MARKER}`;
      if (this.#logNames(this.#directoryId)) {
        findings.problem(path, 60, `belongs to another directory: its id is ${directoryId}, not ${this.#directoryId}`);
        return undefined;
      }
      findings.problem(marker, 0, `names the id ${this.#directoryId}, but the files are of directory ${directoryId}`);
      this.#directoryId = directoryId;
    }
    const end = snapshot.sections.at(-1)?.body;
    if (end !== undefined && end.byteOffset + end.length < bytes.byteOffset + bytes.length) {
      findings.problem(path, end.byteOffset + end.length - this.#snapshotStart, "has bytes behind its last section");
    }
    return snapshot;
  }

  /** Whether any log file belongs to the directory of this id: of two that differ, the log knows which is right. */
  #logNames(id: string): boolean {
    const folder = `${this.#directory}/wal`;
    return this.#list(folder).some((name) => {
      if (Wal.seqOf(name) === undefined && !Wal.isSpare(name)) return false;
      try {
        const header = decodeFileHeader(this.#head(`${folder}/${name}`, FILE_HEADER_BYTES));
        return typeof header !== "string" && header.directoryId === id;
      } catch {
        return false; // Checking the log says why.
      }
    });
  }

  /** The first bytes of a file, or all of a shorter one. */
  #head(path: string, length: number): Buffer {
    const file = this.#disk.openFile(path, "read");
    try {
      const buffer = Buffer.alloc(Math.min(length, file.size()));
      let done = 0;
      while (done < buffer.length) {
        const read = file.readSync(buffer, done, buffer.length - done, done);
        if (read === 0) break;
        done += read;
      }
      return buffer;
    } finally {
      file.close();
    }
  }

  /** The queues of a snapshot; those whose section is damaged are set aside. */
  #restore(snapshot: Snapshot, path: string): Catalog {
    const { kinds, label } = this.#inspector;
    const findings = this.#findings;
    const positionOf = (body: Buffer) => body.byteOffset - this.#snapshotStart;
    let catalog: Catalog;
    let sharedKnown = true;
    try {
      catalog = new Catalog(this.#directory, kinds, snapshot);
    } catch (error) {
      if (!isVarveError(error, "ERR_CORRUPT") && !(error instanceof MalformedError)) throw error;
      const section = snapshot.sections.find(({ id }) => id === 0);
      const reason = "the list of shared segments is damaged, and with it every queue that has records in one";
      findings.problem(path, section && positionOf(section.body), reason);
      sharedKnown = false;
      catalog = new Catalog(this.#directory, kinds, {
        ...snapshot,
        sections: snapshot.sections.filter(({ id }) => id !== 0),
      });
    }
    const bodies = new Map(snapshot.sections.map(({ id, body }) => [id, body]));
    for (const entry of catalog.entries) {
      const name = label(entry.kind, entry.name);
      try {
        this.#own(catalog.load(entry), name);
      } catch (error) {
        if (!isVarveError(error, "ERR_CORRUPT")) throw error;
        this.#lost.set(`${this.#directory}/${kinds.folder(entry.kind, entry.name)}`, name);
        const reason = entry.damaged ?? error.message;
        if (!sharedKnown && reason.includes("is not listed")) continue;
        const body = bodies.get(entry.id);
        findings.problem(path, body && positionOf(body), reason, name);
      }
    }
    return catalog;
  }

  #own(state: QueueState, label: string): void {
    for (const stream of state.streams) {
      if (this.#coverage.has(stream)) continue;
      this.#owners.set(stream.id, { state, stream, label });
      this.#coverage.set(stream, new Coverage());
    }
  }

  // -------------------------------------------------------------------------------------------------------- the log

  #logFiles(snapshot: Snapshot | undefined): WalSource[] {
    const folder = `${this.#directory}/wal`;
    const sources: WalSource[] = [];
    for (const name of this.#list(folder).sort()) {
      const seq = Wal.seqOf(name);
      if (seq !== undefined && seq >= (snapshot?.header.walSeq ?? 0)) sources.push({ path: `${folder}/${name}`, seq });
      else if (seq !== undefined || Wal.isSpare(name)) this.#named.add(`${folder}/${name}`);
      else if (Wal.begunSeqOf(name) !== undefined) this.#named.add(`${folder}/${name}`);
    }
    return sources;
  }

  /** Repeats an entry as recovery does, for the state that an open would come to. */
  #replay(entry: WalEntry): void {
    this.#walkBatches(entry);
    if (!this.#replaying) return;
    const { header, buffer } = entry;
    const time = { elapsedMs: header.elapsedMs, wallMs: header.wallMs };
    const input = new Decoder(buffer, entry.metaStart, entry.metaEnd);
    try {
      while (!input.done) this.#operation(input, time);
    } catch (error) {
      if (!(error instanceof MalformedError)) throw error;
      const position = entry.bulkPosition + header.bulkBytes;
      this.#cannotRepeat(entry, position, `entry ${header.lsn} is intact but cannot be repeated: ${error.message}`);
    }
  }

  /** What comes behind cannot be repeated either; it is only read. */
  #cannotRepeat(entry: WalEntry, position: number, reason: string, label?: string): void {
    this.#findings.problem(entry.file.path, position, reason, label);
    this.#replaying = false;
    this.#current = false;
  }

  #operation(input: Decoder, time: { elapsedMs: number; wallMs: number }): void {
    const catalog = this.#catalog!;
    const code = input.u8();
    const queueId = input.varint();
    const fields = new Decoder(input.bytes(input.u32()));
    if (code === OP_CREATE_QUEUE) {
      const creation = decodeCreation(fields);
      const state = catalog.create(creation, queueId, time.wallMs);
      this.#own(state, this.#inspector.label(creation.kind, creation.name));
      return;
    }
    if (code === OP_REQUESTS) {
      const { run, answers } = decodeRequests(fields);
      catalog.requests.committed(run, answers, 0, time.elapsedMs, 0);
      return;
    }
    const entry = catalog.byId(queueId);
    if (entry === undefined) {
      if (catalog.hadQueue(queueId)) return;
      throw new MalformedError(`queue ${queueId} is not known`);
    }
    if (code === OP_DELETE_QUEUE) {
      catalog.delete(entry, decodeDeletion(fields).lastStreamId);
      this.#lost.delete(catalog.folderOf(entry));
      for (const { id } of entry.state?.streams ?? []) this.#owners.delete(id);
      return;
    }
    const { state } = entry;
    if (code === OP_ADD_STREAM) {
      if (state === undefined) return;
      catalog.addStream(state, fields.varint(), fields.string());
      this.#own(state, this.#inspector.label(state.kind, state.name));
      return;
    }
    if (code < FIRST_QUEUE_OP) throw new MalformedError(`operation ${code} is not known`);
    state?.replay(code, fields, time);
  }

  /** Notes the batches of an entry; those of queues that cannot be read are only checked. */
  #walkBatches(entry: WalEntry): void {
    const findings = this.#findings;
    const { buffer } = entry;
    for (let at = entry.bulkStart; at < entry.metaStart; ) {
      const header = readBatchHeader(buffer, at, entry.metaStart)!;
      const position = entry.bulkPosition + at - entry.bulkStart;
      const owner = this.#owners.get(header.streamId);
      const check = (record: RecordCursor) => owner && this.#inspector.recordProblem(owner.state, owner.stream, record);
      const next = header.baseOffset + header.span;
      const reason = walkRecords(buffer, at, header, check);
      if (reason === undefined) findings.records += header.count;
      else findings.problem(entry.file.path, position, reason, owner?.label, [header.baseOffset, next - 1]);
      if (owner !== undefined && this.#replaying) {
        const { stream } = owner;
        if (header.baseOffset < stream.next) {
          const wrong = `entry ${entry.header.lsn} has offsets from ${header.baseOffset} on of a stream that ends at ${stream.next}`;
          this.#cannotRepeat(entry, position, wrong, owner.label);
        } else {
          this.#coverage.get(stream)!.add(header.baseOffset, next);
          stream.next = next;
          stream.staged = next;
          stream.lastTimestamp = Math.max(stream.lastTimestamp, header.timestamp);
          stream.show(next);
        }
      } else if (this.#catalog?.hadStream(header.streamId) === false && this.#replaying && this.#lost.size === 0) {
        this.#cannotRepeat(entry, position, `a batch of stream ${header.streamId}, which no queue has`);
      }
      at += batchFileBytes(header.bytes);
    }
  }

  // ------------------------------------------------------------------------------------------------------- segments

  /** The segments that the snapshot names, with the runs in them. */
  #segments(): Map<Segment, OwnedRun[]> {
    const segments = new Map<Segment, OwnedRun[]>();
    for (const { state, stream, label } of this.#owners.values()) {
      for (const run of stream.runs) {
        const owned = {
          run,
          stream,
          queue: label,
          // Asked when the log has been repeated: what it trims counts.
          get neededFrom() {
            return state.neededFrom(stream);
          },
          checkRecord: (record: RecordCursor) => this.#inspector.recordProblem(state, stream, record),
          covers: (from: number, to: number) => this.#coverage.get(stream)!.add(from, to),
        };
        const list = segments.get(run.segment);
        if (list === undefined) segments.set(run.segment, [owned]);
        else list.push(owned);
      }
    }
    return segments;
  }

  /** Segments that nothing intact names, where that is the fault of damage. */
  #loneSegments(): { path: string; queue: string | undefined }[] {
    const found: { path: string; queue: string | undefined }[] = [];
    const visit = (folder: string, queue: string | undefined, depth: number): void => {
      for (const name of this.#list(folder).sort()) {
        const path = `${folder}/${name}`;
        if (isOwnSegmentName(name)) found.push({ path, queue });
        else if (depth > 0) visit(path, queue, depth - 1);
      }
    };
    if (this.#lost.size > 0) {
      for (const [folder, label] of this.#lost) visit(folder, label, 1);
      return found;
    }
    for (const folder of this.#inspector.folders) visit(`${this.#directory}/${folder}`, undefined, QUEUE_DEPTH);
    for (const name of this.#list(`${this.#directory}/shared`).sort()) {
      if (/^\d{16}\.seg$/.test(name)) found.push({ path: `${this.#directory}/shared/${name}`, queue: undefined });
    }
    return found;
  }

  // --------------------------------------------------------------------------------------------------------- queues

  #checkQueues(catalog: Catalog, snapshotFile: string): void {
    const findings = this.#findings;
    if (!this.#current) {
      findings.note("the log is damaged: whether the queues' records are all there was not checked");
      return;
    }
    const runs = new Map<Segment, number>();
    for (const entry of catalog.entries) {
      if (entry.state === undefined) continue;
      this.#checkQueue(entry, entry.state);
      for (const { segment } of entry.state.streams.flatMap((stream) => stream.runs)) {
        runs.set(segment, (runs.get(segment) ?? 0) + 1);
      }
    }
    // What is deleted stands in the snapshot's numbers, too.
    for (const { streams } of catalog.deleted) {
      if (streams === "unknown") return;
      for (const { segment } of streams.flatMap((stream) => stream.runs)) {
        runs.set(segment, (runs.get(segment) ?? 0) + 1);
      }
    }
    if (this.#lost.size > 0) return;
    for (const segment of catalog.shared.values()) {
      const count = runs.get(segment) ?? 0;
      if (count === segment.runs) continue;
      const reason = `lists ${segment.runs} runs in ${segment.path}, but its queues have ${count} there`;
      findings.problem(snapshotFile, undefined, reason);
    }
  }

  #checkQueue(entry: CatalogEntry, state: QueueState): void {
    const { label, kinds, stateProblems, needed } = this.#inspector;
    const name = label(entry.kind, entry.name);
    const folder = `${this.#directory}/${kinds.folder(entry.kind, entry.name)}`;
    for (const { reason, offsets } of stateProblems(state))
      this.#findings.problem(folder, undefined, reason, name, offsets);
    for (const stream of state.streams) {
      const coverage = this.#coverage.get(stream)!;
      for (const gap of stream.gaps) coverage.add(gap.from, gap.to);
      for (const { from, to } of needed(state, stream)) {
        for (const missing of coverage.missing(from, Math.min(to, stream.next))) {
          const reason = "records that the queue still needs stand in no segment and not in the log";
          this.#findings.problem(stream.directory, undefined, reason, name, [missing.from, missing.to - 1]);
        }
      }
    }
  }

  // ------------------------------------------------------------------------------------------------------- the rest

  /** Names what is in the directory and was not looked at. */
  #noteTheRest(): void {
    const findings = this.#findings;
    const { folders } = this.#inspector;
    for (const name of this.#list(this.#directory).sort()) {
      if (folders.includes(name)) this.#noteFiles(`${this.#directory}/${name}`, QUEUE_DEPTH);
      else if (!KNOWN_NAMES.has(name)) findings.note(`${this.#directory}/${name}: not of varve`);
    }
    for (const name of ["wal", "snap", "shared"]) this.#noteFiles(`${this.#directory}/${name}`, 0);
  }

  #noteFiles(folder: string, depth: number): void {
    const findings = this.#findings;
    for (const name of this.#list(folder).sort()) {
      const path = `${folder}/${name}`;
      if (this.#named.has(path)) continue;
      if (path === `${this.#directory}/snap/${PREVIOUS_SNAPSHOT}`) continue;
      if (path === `${this.#directory}/wal/${FAILED_MARK}`) findings.note(`${path}: a write or sync of the log failed`);
      else if (/^\d+(?:-s\d+)?(?:-\d+)?\.(?:wal|seg|idx|snap)(?:\.tmp)?$/.test(name))
        findings.note(`${path}: nothing refers to it`);
      else if (depth > 0 && this.#isFolder(path)) this.#noteFiles(path, depth - 1);
      else findings.note(`${path}: not of varve`);
    }
  }

  #isFolder(path: string): boolean {
    try {
      this.#disk.list(path);
      return true;
    } catch {
      return false;
    }
  }

  /** Names in a folder; none where there is no such folder. */
  #list(path: string): string[] {
    try {
      return this.#disk.list(path);
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      if (code !== "ENOENT" && code !== "ENOTDIR") {
        this.#findings.problem(path, undefined, `the folder cannot be read: ${message}`);
      }
      return [];
    }
  }
}

/** Which offsets of a stream have been accounted for. */
export class Coverage {
  #ranges: OffsetRange[] = [];
  #sorted = true;

  add(from: number, to: number): void {
    const last = this.#ranges[this.#ranges.length - 1];
    if (last !== undefined && last.to === from) this.#ranges[this.#ranges.length - 1] = { from: last.from, to };
    else this.#ranges.push({ from, to });
    this.#sorted = false;
  }

  /** The parts of [from, to) that are not accounted for. */
  missing(from: number, to: number): OffsetRange[] {
    const ranges = this.#merged();
    let low = 0;
    let high = ranges.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (ranges[middle]!.to <= from) low = middle + 1;
      else high = middle;
    }
    const missing: OffsetRange[] = [];
    let at = from;
    for (; low < ranges.length && ranges[low]!.from < to; low++) {
      const range = ranges[low]!;
      if (range.from > at) missing.push({ from: at, to: range.from });
      at = Math.max(at, range.to);
    }
    if (at < to) missing.push({ from: at, to });
    return missing;
  }

  #merged(): readonly OffsetRange[] {
    if (this.#sorted) return this.#ranges;
    this.#sorted = true;
    const merged: { from: number; to: number }[] = [];
    for (const { from, to } of [...this.#ranges].sort((a, b) => a.from - b.from)) {
      const last = merged[merged.length - 1];
      if (last !== undefined && from <= last.to) last.to = Math.max(last.to, to);
      else merged.push({ from, to });
    }
    this.#ranges = merged;
    return merged;
  }
}
