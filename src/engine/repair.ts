/**
 * Repairs a directory whose lock is held: makes one of it that opens, with every queue and record that is undamaged.
 *
 *   look     the marker, the snapshot, every run of every queue, the log: what is intact, and whose it is (reads only)
 *   keep     copies of the marker, the snapshot and the log files that are damaged go to damaged/<time>/
 *   write    intact batches of damaged runs go to new shared segments; then a checkpoint moves what is in the log to
 *            segments and writes a new snapshot: the one switch
 *   tidy     files that the new snapshot no longer names go to damaged/<time>/ as well
 *
 * Everything new has a name that nothing had before. An interruption before the switch leaves the damage as it was, and
 * one after it a directory that opens; repair can be run again in either case.
 *
 * Offsets never change. Where records are missing there is a gap, which readers pass.
 */

import { isVarveError, VarveError } from "../api/errors.js";
import type { ResolvedOpenOptions } from "../api/options.js";
import { batchFileBytes, type RecordCursor, readBatchHeader } from "../storage/batch.js";
import { align8, Decoder, Encoder, MalformedError } from "../storage/bytes.js";
import type { Disk } from "../storage/disk.js";
import { FileCache } from "../storage/file-cache.js";
import {
  editionOf,
  isOwnSegmentName,
  type Run,
  SEGMENT_HEADER_BYTES,
  type Segment,
  segmentPath,
  streamIdOfName,
} from "../storage/segment.js";
import {
  isSnapshotName,
  PREVIOUS_SNAPSHOT,
  type Snapshot,
  type SnapshotSection,
  snapshotPath,
  writeFileAtomically,
} from "../storage/snapshot.js";
import { Stream } from "../storage/stream.js";
import { indexPath } from "../storage/stream-reader.js";
import { FAILED_MARK, newWalFile, Wal, type WalFile } from "../storage/wal.js";
import { decodeFileHeader, FILE_HEADER_BYTES, type WalFileHeader } from "../storage/wal-format.js";
import { type WalEnd, type WalEntry, WalReader, type WalSource } from "../storage/wal-reader.js";
import { Catalog, type DeletedQueue, readDeleted, readSection, type SectionParts } from "./catalog.js";
import { Checkpointer } from "./checkpoint.js";
import { folderOf, keepCopy, keptPath, syncUpTo } from "./damaged.js";
import { FORMAT, MARKER } from "./directory.js";
import { Engine, type EnginePlatform } from "./engine.js";
import { Coverage, type OffsetRange, type QueueInspector } from "./inspect.js";
import type { VerifyProblem } from "./inspect-report.js";
import {
  decodeCreation,
  decodeDeletion,
  FIRST_QUEUE_OP,
  type LogTime,
  OP_ADD_STREAM,
  OP_CREATE_QUEUE,
  OP_DELETE_QUEUE,
  type QueueState,
} from "./queue-state.js";
import { mayHaveLostRecords, mustFollow, offsetsToSkip } from "./recovery.js";
import { type LoggedBatch, type LogStart, salvageLog } from "./repair-log.js";
import { RepairFindings, type RepairReport } from "./repair-report.js";
import { headerState, headOf, type OwnedPiece, type Piece, surveyStretch, writeShared } from "./repair-segments.js";
import { salvageSnapshot } from "./repair-snapshot.js";

/** What a repair must know of queues; given by the layer that knows the kinds. */
export interface QueueRepairer extends QueueInspector {
  /** The queue that a folder below one of `folders` belongs to. */
  queueOf(folder: string, name: string): QueueId | undefined;
  /** What a queue whose state is lost is configured with. */
  defaultConfig(kind: number): Buffer;
  /** The queue's state is lost: all records that its streams have are there, and nothing has been done with them. */
  begin(state: QueueState): void;
  /**
   * Repeats an operation although some before it may be missing, as far as that cannot cost a record.
   * @returns false if it was left out
   */
  salvage(state: QueueState, code: number, fields: Decoder, time: LogTime): boolean;
  /** Everything that there is has been found: forgets what refers to nothing. */
  settle(state: QueueState): void;
  /** The records with these offsets are gone: nothing may wait for them. */
  forget(state: QueueState, stream: Stream, range: OffsetRange): void;
  /** What a stream of a queue is called in a report. */
  streamLabel(state: QueueState, stream: Stream): string;
  /** A name for what is left of a stream that cannot be told whose it was. */
  nameOfLost(streamId: number): QueueId;
}

export interface QueueId {
  readonly kind: number;
  readonly name: string;
}

/** A run of which not everything is intact: what is goes to another segment. */
interface Replaced {
  readonly stream: Stream;
  readonly run: Run;
  readonly pieces: readonly { readonly path: string; readonly piece: Piece }[];
}

/** Where a queue that is to be rebuilt may have records. */
interface Lost extends QueueId {
  readonly id: number | undefined;
  /** What is known of its streams' ids, by index. */
  readonly streamIds: readonly (number | undefined)[];
  readonly config?: Buffer;
  /** What the snapshot before the lost one says. */
  readonly previous?: SectionParts | undefined;
  readonly createdAt?: number;
  readonly reason: string;
}

export class DirectoryRepair {
  readonly #platform: EnginePlatform;
  readonly #disk: Disk;
  readonly #directory: string;
  readonly #options: ResolvedOpenOptions;
  readonly #repairer: QueueRepairer;
  readonly #problems: readonly VerifyProblem[];
  readonly #findings = new RepairFindings();
  #directoryId = "";
  #markerIsSound = false;
  #catalog!: Catalog;
  /** Queues whose states come from nothing but their records. */
  readonly #rebuilt = new Set<QueueState>();
  readonly #coverage = new Map<Stream, Coverage>();
  readonly #replaced: Replaced[] = [];
  readonly #walFiles: WalFile[] = [];
  /** The last stream id before a queue was deleted, by kind and name: what is up to there is not to come back. */
  readonly #deletions = new Map<string, number>();
  /** Files that are replaced while their names stay in use: copied beforehand. */
  readonly #toCopy = new Set<string>();
  /** Files that nothing will refer to: moved away afterwards. */
  readonly #toMove = new Set<string>();
  #dropped = 0;
  #lsn = 0;
  #crc = 0;
  #elapsedMs = 0;
  #generation = 1;
  #seqMax = 0;
  #skip = 0;

  constructor(
    platform: EnginePlatform,
    directory: string,
    options: ResolvedOpenOptions,
    repairer: QueueRepairer,
    problems: readonly VerifyProblem[],
  ) {
    this.#platform = platform;
    this.#disk = platform.disk;
    this.#directory = directory;
    this.#options = options;
    this.#repairer = repairer;
    this.#problems = problems;
  }

  /** @param dryRun only says what would be done */
  async run(dryRun: boolean): Promise<RepairReport> {
    try {
      return await this.#run(dryRun);
    } finally {
      for (const { file } of this.#walFiles) file.close();
    }
  }

  async #run(dryRun: boolean): Promise<RepairReport> {
    const marker = `${this.#directory}/${MARKER}`;
    const newest = this.#newestSnapshot();
    const salvaged = newest === undefined ? undefined : salvageSnapshot(this.#disk.readFile(newest));
    this.#identify(salvaged?.snapshot);
    const indexes = this.#problems.filter(({ file }) => file.endsWith(".idx"));
    for (const { file } of indexes) this.#moveAway(file, "the index is damaged; it is derived again when needed");
    const others = this.#problems.length - indexes.length;
    const ofMarker = this.#problems.filter(({ file }) => file === marker).length;
    const state = others > ofMarker || salvaged === undefined;
    if (!this.#markerIsSound) {
      if (this.#disk.size(marker) !== undefined) this.#toCopy.add(marker);
      this.#findings.action(`${marker}: written again, with the id ${this.#directoryId} that the other files name`);
    }
    if (state) await this.#look(newest, salvaged);
    const kept = `${this.#directory}/damaged/${stamp(this.#platform.clock.wallMs())}`;
    const keeps = this.#toCopy.size + this.#toMove.size > 0;
    const report = this.#findings.report(dryRun, this.#problems, dryRun || !keeps ? undefined : kept);
    if (dryRun) return report;
    const below = kept.slice(kept.lastIndexOf("/") + 1);
    for (const path of this.#toCopy) await keepCopy(this.#disk, this.#directory, path, below);
    if (!this.#markerIsSound) await this.#writeMarker(marker);
    if (state) await this.#write();
    await this.#tidy(below);
    return report;
  }

  // ----------------------------------------------------------------------------------------------------- identity

  /** Which directory this is: what most of its files say. */
  #identify(snapshot: Snapshot | undefined): void {
    const votes = new Map<string, number>();
    const vote = (id: string, weight: number) => votes.set(id, (votes.get(id) ?? 0) + weight);
    const named = this.#markerId();
    for (const { path } of this.#walFilesFrom(0)) {
      const header = this.#walHeader(path);
      if (header !== undefined) vote(header.directoryId, 1);
    }
    for (const path of this.#allSegments()) {
      const head = headOf(this.#disk, path, SEGMENT_HEADER_BYTES);
      if (headerState(this.#disk, path, undefined, head.toString("hex", 32, 48)).state === "sound") {
        vote(head.toString("hex", 32, 48), 1);
      }
    }
    if (snapshot !== undefined) vote(snapshot.header.directoryId, 1.2);
    if (named !== undefined) vote(named, 1.1);
    const [best] = [...votes].sort((a, b) => b[1] - a[1]);
    const word = () => this.#platform.random.uint32().toString(16).padStart(8, "0");
    this.#directoryId = best?.[0] ?? word() + word() + word() + word();
    this.#markerIsSound = named === this.#directoryId;
  }

  /** The id in varve.json; undefined when that is damaged or missing. */
  #markerId(): string | undefined {
    const path = `${this.#directory}/${MARKER}`;
    if (this.#disk.size(path) === undefined) return undefined;
    let marker: { format?: unknown; id?: unknown } | null;
    try {
      marker = JSON.parse(this.#disk.readFile(path).toString("utf8")) as typeof marker;
    } catch (error) {
      if (error instanceof SyntaxError) return undefined;
      throw error;
    }
    if (typeof marker?.id !== "string" || !/^[0-9a-f]{32}$/.test(marker.id)) return undefined;
    if (typeof marker.format === "number" && marker.format > FORMAT) {
      throw new VarveError(
        "ERR_FORMAT_VERSION",
        `${this.#directory} has format ${marker.format}; this version of varve knows ${FORMAT}. Nothing was changed.`,
      );
    }
    return marker.format === FORMAT ? marker.id : undefined;
  }

  async #writeMarker(path: string): Promise<void> {
    const created = new Date(this.#platform.clock.wallMs()).toISOString();
    const marker = { format: FORMAT, id: this.#directoryId, created };
    await writeFileAtomically(this.#disk, this.#directory, path, [Buffer.from(`${JSON.stringify(marker)}\n`)]);
  }

  // --------------------------------------------------------------------------------------------------------- look

  async #look(path: string | undefined, salvaged: ReturnType<typeof salvageSnapshot>): Promise<void> {
    const findings = this.#findings;
    let snapshot = salvaged?.snapshot;
    if (path !== undefined) this.#toCopy.add(path);
    if (snapshot !== undefined && path !== snapshotPath(`${this.#directory}/snap`, snapshot.header.lsn)) {
      snapshot = undefined;
    }
    if (snapshot !== undefined && snapshot.header.directoryId !== this.#directoryId) snapshot = undefined;
    if (snapshot === undefined) {
      findings.action("the snapshot is lost: the queues are made again from their segments and the log");
      findings.note("all tasks that are still there will be delivered again, except those the log says are done");
    } else if (salvaged!.corrected) {
      findings.action(`${path}: its checksum tells which byte was damaged, and what it was`);
    }
    const sources = this.#walFilesFrom(snapshot?.header.walSeq ?? 0);
    const created = snapshot === undefined ? await this.#creations(sources) : new Map<number, Lost>();
    const { sections, lost } = this.#sections(snapshot, created);
    this.#catalog = new Catalog(this.#directory, this.#repairer.kinds, sections);
    this.#loadAll(lost);
    for (const entry of this.#catalog.entries) await this.#surveyRuns(entry.state!);
    await this.#rebuild(lost, snapshot === undefined);
    await this.#readLog(snapshot, sources);
    if (snapshot === undefined) await this.#claimTheRest();
    this.#settleGaps();
    this.#countRuns();
  }

  #newestSnapshot(): string | undefined {
    const names = this.#list(`${this.#directory}/snap`).filter(isSnapshotName).sort();
    const newest = names[names.length - 1];
    return newest && `${this.#directory}/snap/${newest}`;
  }

  /** The intact sections of the snapshot before the newest one, by kind and name. */
  #previousSections(): Map<string, Lost> {
    const path = `${this.#directory}/snap/${PREVIOUS_SNAPSHOT}`;
    const found = new Map<string, Lost>();
    if (this.#disk.size(path) === undefined) return found;
    const snapshot = salvageSnapshot(this.#disk.readFile(path))?.snapshot;
    if (snapshot === undefined || snapshot.header.directoryId !== this.#directoryId) return found;
    for (const { id, kind, name, body, intact } of snapshot.sections) {
      if (id === 0 || !intact) continue;
      const previous = sectionParts(body);
      if (previous === undefined) continue;
      const streamIds = previous.streams.map((stream) => stream.id);
      const { createdAt } = previous;
      found.set(`${kind} ${name}`, { id, kind, name, streamIds, previous, createdAt, reason: "the snapshot is lost" });
    }
    return found;
  }

  /** What of the snapshot is intact, as a snapshot; and the queues whose sections are not. */
  #sections(snapshot: Snapshot | undefined, created: ReadonlyMap<number, Lost>): { sections: Snapshot; lost: Lost[] } {
    const lost: Lost[] = [];
    const before = this.#previousSections();
    let shared = snapshot?.sections.find(({ id }) => id === 0);
    const queues: SnapshotSection[] = [];
    for (const section of snapshot?.sections ?? []) {
      if (section.id === 0) continue;
      if (section.intact) {
        queues.push(section);
      } else {
        const { id, kind, name } = section;
        const reason = "its state in the snapshot does not match its checksum";
        const known = before.get(`${kind} ${name}`);
        lost.push(known?.id === id ? { ...known, reason } : { id, kind, name, streamIds: [], reason });
      }
    }
    for (const { kind, name, lastStreamId } of deletedIn(shared)) this.#noteDeletion(kind, name, lastStreamId);
    if (shared === undefined || !shared.intact || !canList(shared.body)) {
      if (shared !== undefined)
        this.#findings.action("the list of shared segments is damaged: made again from the files");
      shared = this.#listShared();
    }
    let lastQueueId = snapshot?.header.lastQueueId ?? 0;
    let lastStreamId = snapshot?.header.lastStreamId ?? 0;
    if (snapshot === undefined) {
      const reason = "the snapshot is lost";
      const known = new Map(before);
      for (const [at, { streamIds }] of before) if (this.#isDeleted(at, streamIds)) known.delete(at);
      for (const each of created.values()) {
        const at = `${each.kind} ${each.name}`;
        if (known.get(at)?.id !== each.id) known.set(at, each);
      }
      for (const { kind, name } of this.#folders()) {
        if (this.#deletions.has(`${kind} ${name}`) && !this.#hasSegments({ kind, name })) continue;
        known.set(
          `${kind} ${name}`,
          known.get(`${kind} ${name}`) ?? { id: undefined, kind, name, streamIds: [], reason },
        );
      }
      lost.push(...known.values());
      for (const { id, streamIds } of known.values()) {
        lastQueueId = Math.max(lastQueueId, id ?? 0);
        lastStreamId = Math.max(lastStreamId, ...streamIds.map((streamId) => streamId ?? 0));
      }
      for (const streamId of this.#deletions.values()) lastStreamId = Math.max(lastStreamId, streamId);
      // Ids that have been used may stand where nothing tells: stay well away from them.
      for (const path of this.#allSegments()) {
        lastStreamId = Math.max(lastStreamId, headerState(this.#disk, path, undefined, this.#directoryId).streamId);
      }
    }
    const lastSharedId = Math.max(snapshot?.header.lastSharedId ?? 0, ...this.#sharedNumbers());
    const header = { ...(snapshot?.header ?? EMPTY_HEADER), lastQueueId, lastStreamId, lastSharedId };
    return { sections: { header, sections: [shared, ...queues] }, lost };
  }

  /** Loads the queues whose sections are intact; what turns out not to make sense is lost as well. */
  #loadAll(lost: Lost[]): void {
    const { label, stateProblems } = this.#repairer;
    for (const entry of [...this.#catalog.entries]) {
      let reason: string | undefined;
      try {
        const state = this.#catalog.load(entry);
        reason = stateProblems(state)[0]?.reason;
      } catch (error) {
        if (!isVarveError(error, "ERR_CORRUPT")) throw error;
        reason = entry.damaged ?? error.message;
      }
      if (reason === undefined) continue;
      this.#catalog.remove(entry);
      lost.push({ id: entry.id, kind: entry.kind, name: entry.name, streamIds: [], reason });
      this.#findings.note(`${label(entry.kind, entry.name)}: ${reason}`);
    }
  }

  // ----------------------------------------------------------------------------------------------------- segments

  /** Looks at the segments of a queue whose state is known. */
  async #surveyRuns(state: QueueState): Promise<void> {
    for (const stream of state.streams) {
      this.#cover(stream);
      for (const run of [...stream.runs]) await this.#surveyRun(state, stream, run);
    }
  }

  async #surveyRun(state: QueueState, stream: Stream, run: Run): Promise<void> {
    const { segment, position, first, next } = run;
    const { path, sharedId } = segment;
    const label = this.#repairer.streamLabel(state, stream);
    let header: ReturnType<typeof headerState>["state"] = "sound";
    if (this.#disk.size(path) !== undefined) {
      const found = headerState(this.#disk, path, sharedId === 0 ? stream.id : 0, this.#directoryId);
      header = found.state === "sound" && sharedId === 0 && found.base !== first ? "foreign" : found.state;
    }
    const stretch = { position, end: position + run.bytes, streamId: stream.id, firstOffset: first, nextOffset: next };
    const survey =
      header === "foreign"
        ? { pieces: [] as OwnedPiece[], sound: false, failure: "another file stands in its place" }
        : await surveyStretch(this.#disk, path, stretch, (record) =>
            this.#repairer.recordProblem(state, stream, record),
          );
    const { pieces } = survey;
    for (const piece of pieces) this.#coverPiece(stream, piece);
    if (survey.sound && header === "sound") {
      const [only] = pieces;
      run.count = only!.count;
      run.lastTimestamp = only!.lastTimestamp;
      return;
    }
    if (survey.failure !== undefined) this.#findings.note(`${path}: ${survey.failure}`);
    this.#replace(
      stream,
      run,
      pieces.map((piece) => ({ path, piece })),
    );
    const records = pieces.reduce((sum, { count }) => sum + count, 0);
    const what = records === 1 ? "the intact record" : `the ${records} intact records`;
    this.#findings.action(
      records === 0
        ? `${path}: nothing of ${label} can be read`
        : `${path}: ${what} of ${label} moved to another segment`,
    );
  }

  /** Puts what is intact of a run in its place. */
  #replace(stream: Stream, run: Run, pieces: Replaced["pieces"]): void {
    const at = stream.runs.indexOf(run);
    stream.bytes -= run.bytes;
    if (run.segment.sharedId === 0) {
      for (const path of [run.segment.path, indexPath(run.segment)]) {
        if (this.#disk.size(path) !== undefined) this.#toMove.add(path);
      }
    }
    if (pieces.length === 0) {
      stream.runs.splice(at, 1);
      return;
    }
    const stand: Run = {
      ...runOf(
        pieces.map(({ piece }) => piece),
        run.segment,
      ),
    };
    stream.runs[at] = stand;
    stream.bytes += stand.bytes;
    this.#replaced.push({ stream, run: stand, pieces });
  }

  // ---------------------------------------------------------------------------------------------------- rebuilding

  /** Makes queues again from the segments that they have. */
  async #rebuild(lost: readonly Lost[], all: boolean): Promise<void> {
    if (lost.length === 0) return;
    const { label } = this.#repairer;
    const claimed = new Set([...this.#catalog.entries].flatMap(({ state }) => state!.streams.map(({ id }) => id)));
    const wanted = new Map<number, Stream>();
    for (const queue of lost) {
      const ids = this.#streamIdsOf(queue, claimed);
      for (const id of ids) claimed.add(id);
      const state = this.#create(queue, ids);
      for (const stream of state.streams) wanted.set(stream.id, stream);
      this.#findings.action(
        `${label(queue.kind, queue.name)}: made again from its records${all ? "" : ` (${queue.reason})`}`,
      );
    }
    const shared = await this.#sharedPieces((id) => wanted.has(id));
    for (const state of this.#rebuilt) {
      for (const stream of state.streams) {
        await this.#fillStream(state, stream, shared.get(stream.id) ?? []);
      }
      this.#repairer.begin(state);
    }
  }

  #create(queue: Lost, streamIds: readonly number[]): QueueState {
    const id = queue.id ?? ++this.#catalog.lastQueueId;
    const state = this.#restore(queue, id, streamIds) ?? this.#begin(queue, id, streamIds);
    for (const stream of state.streams) this.#cover(stream);
    this.#rebuilt.add(state);
    this.#catalog.lastQueueId = Math.max(this.#catalog.lastQueueId, id);
    this.#catalog.lastStreamId = Math.max(this.#catalog.lastStreamId, ...streamIds);
    return state;
  }

  #begin(queue: Lost, id: number, streamIds: readonly number[]): QueueState {
    const { kind, name, config = this.#repairer.defaultConfig(kind), createdAt = 0 } = queue;
    const count = this.#repairer.kinds.streamFolders(kind).length;
    const first = streamIds.slice(0, count);
    const state = this.#catalog.create({ kind, name, streamIds: first, config }, id, createdAt);
    const folders = this.#streamFoldersOf(queue);
    for (let index = count; index < streamIds.length; index++) {
      this.#catalog.addStream(state, streamIds[index]!, folders[index]!);
    }
    return state;
  }

  /** A queue as the snapshot before the lost one has it: what was done by then is done, whatever came after. */
  #restore(queue: Lost, id: number, streamIds: readonly number[]): QueueState | undefined {
    const { kind, name, previous } = queue;
    if (previous === undefined) return undefined;
    const folders = this.#streamFoldersOf(queue);
    const streams = streamIds.map((streamId, index) => {
      const { head = 0, next = 0, lastTimestamp = 0, gaps = [] } = previous.streams[index] ?? {};
      const { directory } = this.#catalog.newStream(kind, name, streamId, "");
      const stream = new Stream(streamId, directory, folders[index]!, head, next, lastTimestamp, [...gaps]);
      stream.payloadBytes = previous.streams[index]?.payloadBytes ?? 0;
      return stream;
    });
    const known = streams.slice(0, previous.streams.length);
    try {
      const state = this.#repairer.kinds.restore(kind, id, name, known, new Decoder(previous.state));
      this.#catalog.adopt(state, previous.createdAt);
      for (const { id: streamId, folder } of streams.slice(known.length)) {
        this.#catalog.addStream(state, streamId, folder);
      }
      return state;
    } catch (error) {
      if (error instanceof MalformedError) return undefined;
      throw error;
    }
  }

  /** The ids of a lost queue's streams: from its segments, or because ids are given out in order; else new ones. */
  #streamIdsOf(queue: Lost, claimed: ReadonlySet<number>): number[] {
    const folders = this.#streamFoldersOf(queue);
    const count = this.#repairer.kinds.streamFolders(queue.kind).length;
    const ids: (number | undefined)[] = folders.map((_, index) => queue.streamIds[index]);
    for (const [index, folder] of folders.entries()) {
      for (const path of this.#ownSegments(queue, folder)) {
        if (ids[index] !== undefined) break;
        const { state, streamId } = headerState(this.#disk, path, undefined, this.#directoryId);
        if (state === "sound" && streamId !== 0) ids[index] = streamId;
      }
    }
    // The streams that a queue is made with get their ids one after another.
    const known = ids.slice(0, count).findIndex((id) => id !== undefined);
    if (known >= 0) {
      for (let index = 0; index < count; index++) ids[index] ??= ids[known]! + index - known;
    } else if (queue.id !== undefined) {
      const between = this.#idsAround(queue.id);
      if (between.length === count) for (const [index, id] of between.entries()) ids[index] = id;
    }
    return ids.map((id) => (id === undefined || claimed.has(id) ? ++this.#catalog.lastStreamId : id));
  }

  /** Stream ids that were given out after those of the queue created before, and before those of the next. */
  #idsAround(queueId: number): number[] {
    let from = 1;
    let to = this.#catalog.lastStreamId + 1;
    for (const { id, state } of this.#catalog.entries) {
      const ids = state!.streams.map((stream) => stream.id);
      if (id < queueId) from = Math.max(from, ...ids.map((each) => each + 1));
      else to = Math.min(to, ...ids);
    }
    return Array.from({ length: Math.max(0, to - from) }, (_, index) => from + index);
  }

  /** Gives a stream whose runs are not known all the intact batches that there are of it. */
  async #fillStream(state: QueueState, stream: Stream, shared: readonly FoundPiece[]): Promise<void> {
    const { kind, name } = state;
    const found: FoundPiece[] = [...shared];
    for (const path of this.#ownSegments({ kind, name }, stream.folder)) {
      const { state: header } = headerState(this.#disk, path, stream.id, this.#directoryId);
      if (header === "foreign") {
        this.#findings.note(`${path}: another file stands in its place`);
        continue;
      }
      const stretch = wholeFile(this.#disk, path, stream.id);
      const survey = await surveyStretch(this.#disk, path, stretch, (record) =>
        this.#repairer.recordProblem(state, stream, record),
      );
      if (survey.failure !== undefined) this.#findings.note(`${path}: ${survey.failure}`);
      const stays = header === "sound" && survey.pieces.length === 1 && this.#namesOwn(path, stream, survey.pieces[0]!);
      for (const piece of survey.pieces) found.push({ path, piece, shared: undefined, stays });
      if (!stays) this.#toMove.add(path);
      const hint = `${path.slice(0, -".seg".length)}.idx`;
      if (this.#disk.size(hint) !== undefined) this.#toMove.add(hint);
    }
    // Of two that begin together, the longer one was written later, and of two that end together, the later edition.
    const edition = ({ path }: FoundPiece) => editionOf(path);
    found.sort((a, b) => a.piece.first - b.piece.first || b.piece.next - a.piece.next || edition(b) - edition(a));
    for (const each of found) await this.#addPiece(state, stream, each);
    const [oldest] = stream.runs;
    if (oldest !== undefined) stream.head = Math.max(stream.head, oldest.first);
  }

  #namesOwn(path: string, stream: Stream, piece: Piece): boolean {
    return (
      piece.position === SEGMENT_HEADER_BYTES &&
      path === segmentPath(stream.directory, stream.id, piece.first, editionOf(path))
    );
  }

  async #addPiece(state: QueueState, stream: Stream, { path, piece, shared, stays }: FoundPiece): Promise<void> {
    const runsEnd = stream.runs[stream.runs.length - 1]?.next ?? 0;
    if (piece.next <= runsEnd) {
      if (shared === undefined) this.#toMove.add(path);
      return;
    }
    let pieces: readonly Piece[] = [piece];
    if (piece.first < runsEnd) {
      // Begins with what is there already.
      const stretch = { ...wholeFile(this.#disk, path, stream.id), position: piece.position, firstOffset: runsEnd };
      const end = piece.position + align8(piece.bytes);
      const check = (record: RecordCursor) => this.#repairer.recordProblem(state, stream, record);
      pieces = (await surveyStretch(this.#disk, path, { ...stretch, end }, check)).pieces;
    }
    for (const each of pieces) {
      const fits = each === piece && each.bytes % 8 === 0;
      const segment = shared ?? ownSegment(stream, path, each.bytes);
      const run = runOf([each], segment);
      stream.runs.push(run);
      stream.bytes += run.bytes;
      raise(stream, each.next);
      stream.lastTimestamp = Math.max(stream.lastTimestamp, each.lastTimestamp);
      this.#coverPiece(stream, each);
      if (fits && (shared !== undefined || stays)) continue;
      this.#replaced.push({ stream, run, pieces: [{ path, piece: each }] });
      if (shared === undefined) this.#toMove.add(path);
    }
  }

  /** Intact batches in shared segments, of the streams that are asked for. */
  async #sharedPieces(wants: (streamId: number) => boolean): Promise<Map<number, FoundPiece[]>> {
    const found = new Map<number, FoundPiece[]>();
    for (const number of this.#sharedNumbers()) {
      const path = this.#catalog.sharedPath(number);
      const { state } = headerState(this.#disk, path, 0, this.#directoryId);
      if (state === "foreign") continue;
      const survey = await surveyStretch(this.#disk, path, wholeFile(this.#disk, path, undefined), () => undefined);
      for (const piece of survey.pieces) {
        if (!wants(piece.streamId)) continue;
        let shared = this.#catalog.shared.get(number);
        if (shared === undefined) {
          shared = newSharedSegment(this.#directory, path, number, align8(this.#disk.size(path) ?? 0));
          this.#catalog.shared.set(number, shared);
        }
        const list = found.get(piece.streamId) ?? [];
        list.push({ path, piece, shared: state === "sound" ? shared : undefined, stays: false });
        found.set(piece.streamId, list);
      }
    }
    return found;
  }

  /** Records of streams that nothing tells the queues of: they are kept in logs of their own. */
  async #claimTheRest(): Promise<void> {
    const known = new Set([...this.#catalog.entries].flatMap(({ state }) => state!.streams.map(({ id }) => id)));
    const rest = await this.#sharedPieces((id) => !known.has(id));
    for (const [streamId, pieces] of rest) {
      const id = this.#repairer.nameOfLost(streamId);
      const queue = { ...id, id: undefined, streamIds: [streamId], reason: "" };
      const state = this.#create(queue, [streamId]);
      await this.#fillStream(state, state.streams[0]!, pieces);
      this.#repairer.begin(state);
      const label = this.#repairer.label(id.kind, id.name);
      this.#findings.action(`${label}: made for the records of stream ${streamId}, of which nothing tells the queue`);
    }
  }

  // ------------------------------------------------------------------------------------------------------------ log

  async #readLog(snapshot: Snapshot | undefined, sources: readonly WalSource[]): Promise<void> {
    const findings = this.#findings;
    const files = new Map(sources.map((source) => [source.path, this.#adopt(source)]));
    const headers = sources.flatMap(({ path }) => this.#walHeader(path) ?? []);
    const header = snapshot?.header;
    this.#lsn = Math.max(header?.lsn ?? 0, ...this.#snapshotNumbers());
    this.#crc = header?.crc ?? 0;
    this.#elapsedMs = header?.elapsedMs ?? 0;
    this.#generation = Math.max(header?.generation ?? 0, ...headers.map(({ generation }) => generation)) + 1;
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
    const begun = this.#list(`${this.#directory}/wal`).flatMap((name) => Wal.begunSeqOf(name) ?? []);
    this.#seqMax = Math.max(this.#seqMax, header?.walSeq ?? 0, ...begun);
    if (snapshot !== undefined) {
      if (mustFollow(snapshot, begun) && sources[0]?.seq !== snapshot.header.walSeq) {
        damaged = true;
        const path = Wal.path(`${this.#directory}/wal`, snapshot.header.walSeq);
        findings.lost(undefined, `${path} is missing: whatever was changed in it is lost`);
      }
      const last = { lsn: start.lsn, crc: start.crc };
      try {
        end = await new WalReader(this.#disk, this.#directoryId).replay(sources, snapshot.header, (entry) => {
          for (const each of batchesOf(entry)) batch(each);
          const { elapsedMs, wallMs, lsn, crc } = entry.header;
          operations(Buffer.from(entry.buffer.subarray(entry.metaStart, entry.metaEnd)), { elapsedMs, wallMs }, true);
          Object.assign(last, { lsn, crc });
          this.#elapsedMs = Math.max(this.#elapsedMs, elapsedMs);
        });
        from = sources.length;
      } catch (error) {
        if (!isVarveError(error, "ERR_CORRUPT")) throw error;
        damaged = true;
        const { file, position } = error.details as { file: string; position: number };
        from = sources.findIndex(({ path }) => path === file);
        start = { ...start, ...last, position };
      }
      this.#lsn = Math.max(this.#lsn, last.lsn);
    }
    if (from < sources.length) {
      const salvaged = await salvageLog(this.#disk, sources.slice(from), start, { batch, operations, missing });
      this.#lsn = Math.max(this.#lsn, salvaged.lsn);
      this.#elapsedMs = Math.max(this.#elapsedMs, salvaged.elapsedMs);
    }
    if (this.#dropped > 0) findings.note(`${this.#dropped} changes in the log were left out: what they need is lost`);
    for (const { path } of damaged || this.#dropped > 0 ? sources : []) this.#toCopy.add(path);
    if (damaged && sources.length > 0) findings.action("the log: what can be read of it goes to segments");
    const failed = this.#disk.size(`${this.#directory}/wal/${FAILED_MARK}`) !== undefined;
    const { walFileBytes } = this.#options;
    const bootId = this.#disk.bootId() ?? "";
    if (damaged || (sources.length > 0 && mayHaveLostRecords(end?.header, bootId, failed))) {
      this.#skip = offsetsToSkip(Math.max(walFileBytes, ...headers.map(({ fileBytes }) => fileBytes)));
    }
  }

  /** What opens have left out of the log because the queue was damaged. */
  async #readKept(): Promise<void> {
    if (this.#rebuilt.size === 0) return;
    const folder = keptPath(this.#directory, `${this.#directory}/wal`);
    for (const name of this.#list(folder).sort()) {
      const seq = Wal.seqOf(name);
      if (seq === undefined) continue;
      const source = { path: `${folder}/${name}`, seq };
      const wal = this.#adopt(source);
      await salvageLog(this.#disk, [source], UNKNOWN_START, {
        missing: () => {},
        batch: (batch) => {
          const stream = this.#catalog.stream(batch.streamId);
          if (stream !== undefined && this.#rebuiltOf(stream) !== undefined) this.#addBatch(batch, wal);
        },
        operations: (meta, time) => {
          for (const { code, queueId, fields } of operationsIn(meta)) {
            const state = this.#catalog.byId(queueId)?.state;
            if (state !== undefined && this.#rebuilt.has(state)) this.#tryOperation(code, queueId, fields, time, false);
          }
        },
      });
    }
  }

  #adopt({ path, seq }: WalSource): WalFile {
    const file = this.#disk.openFile(path, "read");
    const wal = { ...newWalFile(file, seq, undefined, file.size()), dirty: false, unnamed: false };
    this.#walFiles.push(wal);
    return wal;
  }

  #addBatch(batch: LoggedBatch, wal: WalFile): void {
    const stream = this.#catalog.stream(batch.streamId);
    if (stream === undefined) {
      this.#dropped++;
      return;
    }
    const { base, next, count, bytes, timestamp, position } = batch;
    // A segment has it already, or it is of an earlier life. The end that an older snapshot names is not that of the runs.
    const last = stream.recent[stream.recent.length - 1] ?? stream.runs[stream.runs.length - 1];
    const rebuilt = this.#rebuiltOf(stream);
    if (base < (rebuilt === undefined ? stream.next : (last?.next ?? 0))) return;
    const ref = {
      stream,
      base,
      next,
      count,
      bytes,
      timestamp,
      block: undefined,
      life: 0,
      blockStart: 0,
      wal,
      position,
    };
    wal.batches.push(ref);
    if (rebuilt !== undefined && last === undefined) {
      stream.head = Math.max(stream.head, base);
      this.#repairer.begin(rebuilt);
    }
    const end = stream.next;
    stream.add(ref);
    raise(stream, end);
    stream.show(next);
    this.#coverage.get(stream)!.add(base, next);
  }

  #rebuiltOf(stream: Stream): QueueState | undefined {
    for (const state of this.#rebuilt) if (state.streams.includes(stream)) return state;
    return undefined;
  }

  #repeat(meta: Buffer, time: LogTime, complete: boolean): void {
    for (const { code, queueId, fields } of operationsIn(meta)) {
      this.#tryOperation(code, queueId, fields, time, complete);
    }
  }

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
    const catalog = this.#catalog;
    if (code === OP_CREATE_QUEUE) {
      const creation = decodeCreation(fields);
      const { kind, name } = creation;
      if (catalog.byId(queueId) !== undefined || catalog.find(kind, name) !== undefined) return true;
      const state = catalog.create(creation, queueId, time.wallMs);
      for (const stream of state.streams) this.#cover(stream);
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
      this.#cover(catalog.addStream(state, streamId, folder));
      return true;
    }
    if (code < FIRST_QUEUE_OP || state === undefined) return false;
    if (!complete || this.#rebuilt.has(state)) return this.#repairer.salvage(state, code, fields, time);
    state.replay(code, fields, time);
    return true;
  }

  /** Deletes a queue as the log says, also one that has been made again with another id. */
  #delete(queueId: number, fields: Decoder): void {
    const catalog = this.#catalog;
    const { kind, name, lastStreamId } = decodeDeletion(fields);
    this.#noteDeletion(kind, name, lastStreamId);
    const named = catalog.find(kind, name);
    const isIt = named?.state?.streams.every(({ id }) => id <= lastStreamId) === true;
    const entry = catalog.byId(queueId) ?? (isIt ? named : undefined);
    if (entry === undefined) return;
    const { streams } = entry.state!;
    catalog.delete(entry, lastStreamId);
    this.#rebuilt.delete(entry.state!);
    // None of its runs counts any more, nor needs to be moved.
    for (const stream of streams) stream.runs = [];
    const others = this.#replaced.filter(({ stream }) => !streams.includes(stream));
    this.#replaced.splice(0, this.#replaced.length, ...others);
  }

  #noteDeletion(kind: number, name: string, lastStreamId: number): void {
    const at = `${kind} ${name}`;
    this.#deletions.set(at, Math.max(this.#deletions.get(at) ?? 0, lastStreamId));
  }

  #isDeleted(at: string, streamIds: readonly (number | undefined)[]): boolean {
    return streamIds.every((id) => id !== undefined && id <= (this.#deletions.get(at) ?? 0));
  }

  /** Whether a queue has segments of its own that are not of a deleted one of its name. */
  #hasSegments(queue: QueueId): boolean {
    const folders = this.#streamFoldersOf({ ...queue, previous: undefined });
    return folders.some((folder) => this.#ownSegments(queue, folder).length > 0);
  }

  /** The queues that the log, or what is left of it in files kept for reuse, says were created. */
  async #creations(sources: readonly WalSource[]): Promise<Map<number, Lost>> {
    const created = new Map<number, Lost>();
    const deleted = new Set<number>();
    const reason = "the snapshot is lost";
    const folder = `${this.#directory}/wal`;
    const spares = this.#list(folder).filter(Wal.isSpare);
    const files = [...spares.map((name) => ({ path: `${folder}/${name}`, seq: 0 })), ...sources];
    const visitor = {
      batch: () => {},
      missing: () => {},
      operations: (meta: Buffer, time: LogTime) => {
        for (const { code, queueId: id, fields } of operationsIn(meta)) {
          if (code === OP_CREATE_QUEUE) {
            created.set(id, { ...decodeCreation(fields), id, createdAt: time.wallMs, reason });
          } else if (code === OP_DELETE_QUEUE) {
            deleted.add(id);
            const { kind, name, lastStreamId } = decodeDeletion(fields);
            this.#noteDeletion(kind, name, lastStreamId);
          }
        }
      },
    };
    // Each by itself: in files kept for reuse stands what is older.
    for (const file of files) await salvageLog(this.#disk, [file], UNKNOWN_START, visitor);
    for (const id of deleted) created.delete(id);
    return created;
  }

  // ------------------------------------------------------------------------------------------------------ afterwards

  /** What is missing of what the queues need becomes gaps, which readers pass. */
  #settleGaps(): void {
    const { needed, forget, streamLabel, settle } = this.#repairer;
    for (const { state } of this.#catalog.entries) {
      const rebuilt = this.#rebuilt.has(state!);
      for (const stream of state!.streams) raise(stream, stream.head);
      settle(state!);
      for (const stream of state!.streams) {
        const coverage = this.#coverage.get(stream)!;
        for (const gap of stream.gaps) coverage.add(gap.from, gap.to);
        const missing: OffsetRange[] = [];
        for (const { from, to } of needed(state!, stream)) {
          missing.push(...coverage.missing(from, Math.min(to, stream.next)));
        }
        for (const range of missing) {
          const label = streamLabel(state!, stream);
          const offsets = [range.from, range.to - 1] as const;
          const reason = rebuilt ? "in no segment: damaged, or no longer needed" : "damaged";
          this.#findings.lost(label, reason, offsets);
          forget(state!, stream, range);
        }
        stream.gaps = joined([...stream.gaps, ...missing]);
        if (this.#skip > 0) stream.skip(this.#skip);
      }
    }
    if (this.#skip > 0) {
      this.#findings.note(
        `offsets go on past the next ${this.#skip}: records that are lost with the end of the log may have been read`,
      );
    }
  }

  #countRuns(): void {
    const runs = new Map<Segment, number>();
    const moved = new Set(this.#replaced.map(({ run }) => run));
    for (const { state } of this.#catalog.entries) {
      for (const run of state!.streams.flatMap((stream) => stream.runs)) {
        if (!moved.has(run)) runs.set(run.segment, (runs.get(run.segment) ?? 0) + 1);
      }
    }
    for (const segment of [...this.#catalog.shared.values()]) {
      segment.runs = runs.get(segment) ?? 0;
      if (segment.runs > 0) continue;
      this.#catalog.shared.delete(segment.sharedId);
      if (this.#disk.size(segment.path) !== undefined) this.#toMove.add(segment.path);
    }
    // A segment that stays in use with other runs is not moved.
    for (const segment of runs.keys()) this.#toMove.delete(segment.path);
  }

  #coverPiece(stream: Stream, piece: Piece): void {
    for (const { from, to } of piece.covered) this.#coverage.get(stream)!.add(from, to);
  }

  #cover(stream: Stream): void {
    this.#coverage.set(stream, new Coverage());
  }

  // ---------------------------------------------------------------------------------------------------------- write

  async #write(): Promise<void> {
    const disk = this.#disk;
    const directory = this.#directory;
    for (const folder of ["wal", "snap", "shared"]) disk.mkdir(`${directory}/${folder}`);
    await disk.syncDirectory(directory);
    await this.#writeSegments();
    const wal = new Wal(disk, `${directory}/wal`, {
      fileBytes: this.#options.walFileBytes,
      directoryId: this.#directoryId,
      bootId: disk.bootId() ?? "",
    });
    const engine = new Engine(this.#platform, {
      directory,
      directoryId: this.#directoryId,
      options: this.#options,
      catalog: this.#catalog,
      wal,
      files: new FileCache(disk, this.#options.maxOpenFiles),
      lsn: this.#lsn + 1,
      crc: this.#crc,
      generation: this.#generation,
      elapsedMs: this.#elapsedMs,
      recovering: false,
      snapshotBytes: 0,
    });
    try {
      wal.files.push(...this.#walFiles);
      const header = { firstLsn: this.#lsn + 2, generation: this.#generation, prevCrc: this.#crc, async: false };
      wal.begin(header, this.#seqMax + 1);
      await wal.sync();
      await new Checkpointer(engine).close();
      if (engine.failure !== undefined) throw engine.failure;
    } finally {
      engine.files.close();
      wal.close();
    }
  }

  /** The intact parts of damaged segments, each segment's in a new one. */
  async #writeSegments(): Promise<void> {
    const bySource = new Map<string, Replaced[]>();
    for (const replaced of this.#replaced) {
      const { path } = replaced.pieces[0]!;
      const list = bySource.get(path);
      if (list === undefined) bySource.set(path, [replaced]);
      else list.push(replaced);
    }
    for (const list of bySource.values()) {
      const segment = this.#catalog.newShared();
      const moves = list.map(({ stream, run, pieces }) => ({
        pieces,
        placed: (position: number, bytes: number) => {
          stream.bytes += bytes - run.bytes;
          stream.runs[stream.runs.indexOf(run)] = { ...run, segment, position, bytes };
        },
      }));
      await writeShared(this.#disk, segment, this.#directoryId, moves);
      this.#catalog.shared.set(segment.sharedId, segment);
    }
  }

  async #tidy(below: string): Promise<void> {
    const disk = this.#disk;
    for (const path of this.#toMove) {
      if (disk.size(path) === undefined) continue;
      const target = keptPath(this.#directory, path, below);
      disk.mkdir(folderOf(target));
      disk.rename(path, target);
      await syncUpTo(disk, this.#directory, folderOf(target));
      await disk.syncDirectory(folderOf(path));
    }
    const failed = `${this.#directory}/wal/${FAILED_MARK}`;
    if (this.#skip > 0 && disk.size(failed) !== undefined) disk.unlink(failed);
  }

  #moveAway(path: string, reason: string): void {
    if (this.#disk.size(path) === undefined) return;
    this.#toMove.add(path);
    this.#findings.action(`${path}: ${reason}`);
  }

  // ---------------------------------------------------------------------------------------------------------- files

  #walFilesFrom(seq: number): WalSource[] {
    const folder = `${this.#directory}/wal`;
    const sources: WalSource[] = [];
    for (const name of this.#list(folder).sort()) {
      const number = Wal.seqOf(name);
      if (number === undefined) continue;
      this.#seqMax = Math.max(this.#seqMax, number);
      if (number >= seq) sources.push({ path: `${folder}/${name}`, seq: number });
    }
    return sources;
  }

  #walHeader(path: string): WalFileHeader | undefined {
    const header = decodeFileHeader(headOf(this.#disk, path, FILE_HEADER_BYTES));
    return typeof header === "string" ? undefined : header;
  }

  #snapshotNumbers(): number[] {
    return this.#list(`${this.#directory}/snap`)
      .filter(isSnapshotName)
      .map((name) => Number(name.slice(0, 16)));
  }

  #sharedNumbers(): number[] {
    const names = this.#list(`${this.#directory}/shared`).filter((name) => /^\d{16}\.seg$/.test(name));
    return names.map((name) => Number(name.slice(0, 16))).sort((a, b) => a - b);
  }

  /** The section that lists the shared segments, from the files that there are. */
  #listShared(): SnapshotSection {
    const output = new Encoder(256);
    const numbers = this.#sharedNumbers();
    output.varint(numbers.length);
    for (const number of numbers) {
      output.varint(number);
      output.varint(align8(this.#disk.size(`${this.#directory}/shared/${String(number).padStart(16, "0")}.seg`) ?? 0));
      output.varint(1);
    }
    output.varint(0);
    return { id: 0, kind: 0, name: "", body: Buffer.from(output.view()), crc: 0, intact: true };
  }

  #folders(): QueueId[] {
    const { folders, queueOf } = this.#repairer;
    return folders.flatMap((folder) => {
      return this.#list(`${this.#directory}/${folder}`).flatMap((name) => queueOf(folder, name) ?? []);
    });
  }

  /** The folders of a queue's streams: those that it was made with, those that it is known to have got, those that are there. */
  #streamFoldersOf({ kind, name, previous }: Pick<Lost, "kind" | "name" | "previous">): string[] {
    const { kinds } = this.#repairer;
    const folders = new Set(kinds.streamFolders(kind));
    for (const { folder } of previous?.streams ?? []) folders.add(folder);
    for (const folder of this.#list(`${this.#directory}/${kinds.folder(kind, name)}`).sort()) {
      if (kinds.mayAddStream(kind, folder)) folders.add(folder);
    }
    return [...folders];
  }

  #ownSegments({ kind, name }: QueueId, streamFolder: string): string[] {
    const { directory: folder } = new Stream(
      0,
      `${this.#directory}/${this.#repairer.kinds.folder(kind, name)}`,
      streamFolder,
    );
    const goneTo = this.#deletions.get(`${kind} ${name}`) ?? 0;
    return this.#list(folder)
      .filter((each) => isOwnSegmentName(each) && streamIdOfName(each)! > goneTo)
      .sort()
      .map((each) => `${folder}/${each}`);
  }

  #allSegments(): string[] {
    const own = this.#folders().flatMap((queue) => {
      const folders = this.#streamFoldersOf({ ...queue, previous: undefined });
      return folders.flatMap((folder) => this.#ownSegments(queue, folder));
    });
    const shared = this.#sharedNumbers().map((number) => String(number).padStart(16, "0"));
    return [...own, ...shared.map((number) => `${this.#directory}/shared/${number}.seg`)];
  }

  #list(path: string): string[] {
    try {
      return this.#disk.list(path);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "ENOENT" || code === "ENOTDIR") return [];
      throw error;
    }
  }
}

/** A piece of a stream whose runs are not known. */
interface FoundPiece {
  readonly path: string;
  readonly piece: Piece;
  /** The shared segment that it may stay in. */
  readonly shared: Segment | undefined;
  /** The stream's own segment may stay as it is. */
  readonly stays: boolean;
}

/** Reads a log file of which it is not known what came before. */
const UNKNOWN_START: LogStart = {
  lsn: 0,
  crc: 0,
  generation: 0,
  position: FILE_HEADER_BYTES,
  complete: false,
  anyGeneration: true,
};

const EMPTY_HEADER = {
  lsn: 0,
  walSeq: 0,
  generation: 1,
  crc: 0,
  clean: false,
  elapsedMs: 0,
  wallMs: 0,
  directoryId: "",
  lastQueueId: 0,
  lastStreamId: 0,
  lastSharedId: 0,
};

function wholeFile(disk: Disk, path: string, streamId: number | undefined) {
  const end = align8(disk.size(path) ?? 0);
  const position = SEGMENT_HEADER_BYTES;
  return { position, end, streamId, firstOffset: 0, nextOffset: Number.POSITIVE_INFINITY };
}

function ownSegment(stream: Stream, path: string, bytes: number): Segment {
  return {
    path,
    directory: stream.directory,
    sharedId: 0,
    edition: editionOf(path),
    bytes: SEGMENT_HEADER_BYTES + bytes,
    dirty: false,
    unnamed: false,
    runs: 1,
  };
}

function newSharedSegment(directory: string, path: string, sharedId: number, bytes: number): Segment {
  const edition = 0;
  return { path, directory: `${directory}/shared`, sharedId, edition, bytes, dirty: false, unnamed: false, runs: 0 };
}

/** The run that pieces, one behind another, make. */
function runOf(pieces: readonly Piece[], segment: Segment): Run {
  const first = pieces[0]!;
  const last = pieces[pieces.length - 1]!;
  return {
    segment,
    position: first.position,
    bytes: pieces.reduce((sum, { bytes }) => sum + align8(bytes), 0),
    first: first.first,
    next: last.next,
    count: pieces.reduce((sum, { count }) => sum + count, 0),
    firstTimestamp: first.firstTimestamp,
    lastTimestamp: last.lastTimestamp,
    index: undefined,
  };
}

/** No offset below the given one is given out again. */
function raise(stream: Stream, next: number): void {
  stream.next = Math.max(stream.next, next);
  stream.staged = stream.next;
  stream.visible = stream.next;
}

function joined(ranges: readonly OffsetRange[]): OffsetRange[] {
  const result: { from: number; to: number }[] = [];
  for (const { from, to } of [...ranges].sort((a, b) => a.from - b.from)) {
    const last = result[result.length - 1];
    if (last !== undefined && from <= last.to) last.to = Math.max(last.to, to);
    else result.push({ from, to });
  }
  return result;
}

/** The batches of an entry that was read back whole. */
function* batchesOf(entry: WalEntry): Generator<LoggedBatch> {
  for (let at = entry.bulkStart; at < entry.metaStart; ) {
    const {
      streamId,
      baseOffset: base,
      span,
      count,
      bytes,
      timestamp,
    } = readBatchHeader(entry.buffer, at, entry.metaStart)!;
    const position = entry.bulkPosition + at - entry.bulkStart;
    yield { source: entry.file, position, streamId, base, next: base + span, count, bytes, timestamp };
    at += batchFileBytes(bytes);
  }
}

function* operationsIn(meta: Buffer): Generator<{ code: number; queueId: number; fields: Decoder }> {
  const input = new Decoder(meta);
  while (!input.done) {
    const code = input.u8();
    const queueId = input.varint();
    yield { code, queueId, fields: new Decoder(input.bytes(input.u32())) };
  }
}

function sectionParts(body: Buffer): SectionParts | undefined {
  try {
    return readSection(body);
  } catch (error) {
    if (error instanceof MalformedError) return undefined;
    throw error;
  }
}

/** The deleted queues that the engine's section lists. */
function deletedIn(section: SnapshotSection | undefined): DeletedQueue[] {
  if (section?.intact !== true || !canList(section.body)) return [];
  const input = new Decoder(section.body);
  skipShared(input);
  return readDeleted(input);
}

function skipShared(input: Decoder): void {
  for (let numbers = input.varint() * 3; numbers > 0; numbers--) input.varint();
}

function canList(body: Buffer): boolean {
  try {
    const input = new Decoder(body);
    skipShared(input);
    readDeleted(input);
    return input.done;
  } catch (error) {
    if (error instanceof MalformedError) return false;
    throw error;
  }
}

/** A time as a folder name. */
function stamp(wallMs: number): string {
  return new Date(wallMs).toISOString().replaceAll(":", "-");
}
