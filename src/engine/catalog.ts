/**
 * Which queues a directory has. A queue that nobody has touched since the directory was opened is kept as the bytes of
 * its snapshot section, so that opening costs the same however many queues there are.
 */

import type { Headers } from "../api/contract.js";
import { assert, isVarveError, VarveError } from "../api/errors.js";
import { Decoder, Encoder, MalformedError } from "../storage/bytes.js";
import { type Run, SEGMENT_HEADER_BYTES, type Segment, segmentPath } from "../storage/segment.js";
import type { NewSection, Snapshot, SnapshotSection } from "../storage/snapshot.js";
import { type Gap, Stream } from "../storage/stream.js";
import type { decodeCreation, LogTime, QueueKinds, QueueState } from "./queue-state.js";
import { RequestTable } from "./requests.js";

type NewQueue = ReturnType<typeof decodeCreation>;

export interface CatalogEntry {
  readonly id: number;
  readonly kind: number;
  readonly name: string;
  /** Wall clock time; 0 when that is not known. */
  readonly createdAt: number;
  state: QueueState | undefined;
  /** The snapshot section, while the state has not been needed. */
  body: Buffer | undefined;
  /** The checksum that the section does not match: it goes along, so that no later snapshot vouches for the damage. */
  readonly wrongCrc: number | undefined;
  /** Why the queue cannot be used. */
  damaged: string | undefined;
}

/** The numbers of a stream at one moment; its runs are added when the checkpoint has written them. */
interface CapturedStream {
  readonly stream: Stream;
  readonly head: number;
  readonly next: number;
  readonly lastTimestamp: number;
  readonly payloadBytes: number;
  gaps: readonly Gap[];
}

/** A queue as of one log sequence number. */
export interface CapturedQueue {
  readonly entry: CatalogEntry;
  readonly body: Buffer | undefined;
  readonly count: number;
  readonly metadata: string;
  readonly state: Buffer;
  readonly streams: readonly CapturedStream[];
}

/** A queue that has been deleted, and of which there may still be files. */
export interface DeletedQueue {
  readonly kind: number;
  readonly name: string;
  /**
   * The last stream id that had been given out by then: own segments of streams up to it, in the queue's folder, are its
   * own, or of an older queue of that name.
   */
  readonly lastStreamId: number;
  /** Its runs, while a snapshot may name them. "unknown": its state could not be read. */
  streams: readonly Stream[] | "unknown";
}

/**
 * The engine's own part of a snapshot: the shared segments, the queues whose files may still have to be removed, and the
 * requests that may be repeated.
 */
const ENGINE_SECTION = 0;

export class Catalog {
  readonly #directory: string;
  readonly #kinds: QueueKinds;
  readonly #entries = new Map<string, CatalogEntry>();
  readonly #byId = new Map<number, CatalogEntry>();
  readonly #streams = new Map<number, Stream>();
  /** By number. */
  readonly shared = new Map<number, Segment>();
  /** Deleted queues whose files may not be gone yet. */
  deleted: readonly DeletedQueue[] = [];
  /** What requests that may be repeated were answered. */
  requests = new RequestTable();
  #resumption: { readonly last: LogTime; readonly now: LogTime } | undefined;
  lastQueueId = 0;
  lastStreamId = 0;
  lastSharedId = 0;

  constructor(directory: string, kinds: QueueKinds, snapshot?: Snapshot) {
    this.#directory = directory;
    this.#kinds = kinds;
    if (snapshot === undefined) return;
    ({
      lastQueueId: this.lastQueueId,
      lastStreamId: this.lastStreamId,
      lastSharedId: this.lastSharedId,
    } = snapshot.header);
    for (const section of snapshot.sections) {
      if (section.id === ENGINE_SECTION) this.#restoreShared(section);
      else this.#addSection(section);
    }
  }

  get entries(): Iterable<CatalogEntry> {
    return this.#byId.values();
  }

  get size(): number {
    return this.#byId.size;
  }

  *loaded(): Generator<QueueState> {
    for (const entry of this.#byId.values()) if (entry.state !== undefined) yield entry.state;
  }

  get hasDamage(): boolean {
    for (const entry of this.#byId.values()) if (entry.damaged !== undefined) return true;
    return false;
  }

  find(kind: number, name: string): CatalogEntry | undefined {
    return this.#entries.get(key(kind, name));
  }

  /** Adds a queue that is new, with the ids that the log gives it. */
  create({ kind, name, streamIds, config }: NewQueue, id: number, createdAt: number): QueueState {
    const folders = this.#kinds.streamFolders(kind);
    const streams = streamIds.map((streamId, index) => this.newStream(kind, name, streamId, folders[index] ?? ""));
    const state = this.#kinds.create(kind, id, name, streams, config);
    this.#add({ id, kind, name, createdAt, state, body: undefined, wrongCrc: undefined, damaged: undefined });
    this.#index(state);
    this.lastQueueId = Math.max(this.lastQueueId, id);
    this.lastStreamId = Math.max(this.lastStreamId, ...streamIds);
    return state;
  }

  /** Gives a queue a further stream, with the id that the log gives it. */
  addStream(state: QueueState, streamId: number, folder: string): Stream {
    const known = state.streams.find((stream) => stream.folder === folder);
    if (known !== undefined) throw new MalformedError(`queue ${state.id} has a stream ${folder} already`);
    const stream = this.newStream(state.kind, state.name, streamId, folder);
    state.addStream(stream);
    this.#streams.set(streamId, stream);
    this.lastStreamId = Math.max(this.lastStreamId, streamId);
    return stream;
  }

  /** Adds a queue that repair has made. */
  adopt(state: QueueState, createdAt: number): void {
    const { id, kind, name } = state;
    this.#add({ id, kind, name, createdAt, state, body: undefined, wrongCrc: undefined, damaged: undefined });
    this.#index(state);
  }

  /** A stream of a queue, that the queue does not have yet. */
  newStream(kind: number, name: string, id: number, folder: string): Stream {
    return new Stream(id, this.#folder(kind, name), folder);
  }

  /** Takes a queue away whose state makes no sense; used by repair, which makes it again. */
  remove(entry: CatalogEntry): void {
    this.#entries.delete(key(entry.kind, entry.name));
    this.#byId.delete(entry.id);
    for (const stream of entry.state?.streams ?? []) this.#streams.delete(stream.id);
    for (const [id, cold] of this.#coldStreams ?? []) if (cold === entry) this.#coldStreams!.delete(id);
  }

  /** Deletes a queue, also one that is damaged; whoever waits for something from it is told. Its files are given up by a checkpoint. */
  delete(entry: CatalogEntry, lastStreamId: number): void {
    const { kind, name } = entry;
    let state: QueueState | undefined;
    try {
      state = this.load(entry);
    } catch (error) {
      if (!isVarveError(error, "ERR_CORRUPT")) throw error;
    }
    this.remove(entry);
    const error = new VarveError("ERR_NOT_FOUND", `the queue ${name} was deleted. Open it again to make a new one.`, {
      details: { queue: name },
    });
    for (const stream of state?.streams ?? []) {
      stream.deleted = error;
      stream.isNeeded = () => false;
    }
    this.deleted = [...this.deleted, { kind, name, lastStreamId, streams: state?.streams ?? "unknown" }];
    state?.close(error);
  }

  /** Folder of a queue. */
  folderOf({ kind, name }: { readonly kind: number; readonly name: string }): string {
    return this.#folder(kind, name);
  }

  /**
   * Counts again in which shared segments there are runs, when those of a queue are not known. Undefined, and nothing has
   * changed, while there are more such queues.
   */
  recountShared(): Segment[] | undefined {
    if (this.hasDamage) return undefined;
    const states = [...this.#byId.values()].map((entry) => this.load(entry));
    const gone = this.deleted.flatMap(({ streams }) => (streams === "unknown" ? [] : streams));
    const counts = new Map<Segment, number>();
    for (const stream of [...states.flatMap(({ streams }) => streams), ...gone]) {
      for (const { segment } of stream.runs) counts.set(segment, (counts.get(segment) ?? 0) + 1);
    }
    const unused: Segment[] = [];
    for (const segment of this.shared.values()) {
      segment.runs = counts.get(segment) ?? 0;
      if (segment.runs === 0) unused.push(segment);
    }
    return unused;
  }

  /** Ids for a queue that is about to be created; never given out twice. */
  reserveIds(kind: number): { id: number; streamIds: number[] } {
    return { id: ++this.lastQueueId, streamIds: this.#kinds.streamFolders(kind).map(() => ++this.lastStreamId) };
  }

  /** A queue's state, read from its snapshot section if need be. */
  load(entry: CatalogEntry): QueueState {
    if (entry.state !== undefined) return entry.state;
    if (entry.damaged === undefined) {
      assert(entry.body !== undefined, "a queue has a state or a section");
      try {
        entry.state = this.#restore(entry, entry.body);
        entry.body = undefined;
        if (this.#resumption !== undefined) entry.state.resume(this.#resumption.last, this.#resumption.now);
        return entry.state;
      } catch (error) {
        if (!(error instanceof MalformedError)) throw error;
        entry.damaged = `its state in the snapshot is malformed: ${error.message}`;
      }
    }
    const file = this.#folder(entry.kind, entry.name);
    throw new VarveError(
      "ERR_CORRUPT",
      `${file}: the queue is damaged (${entry.damaged}). Other queues are not affected.`,
      {
        details: { file, queue: entry.name },
      },
    );
  }

  /** Tells all queues, those that are loaded later as well, that time stood still from `last` to `now`. */
  resume(last: LogTime, now: LogTime): void {
    this.#resumption = { last, now };
    for (const state of this.loaded()) state.resume(last, now);
  }

  byId(id: number): CatalogEntry | undefined {
    return this.#byId.get(id);
  }

  stream(id: number): Stream | undefined {
    const known = this.#streams.get(id);
    if (known !== undefined || this.#coldStreams === undefined) return known;
    const entry = this.#coldStreams.get(id);
    if (entry === undefined) return undefined;
    this.load(entry);
    return this.#streams.get(id);
  }

  /** While the log is replayed: streams of queues that are still only bytes. */
  #coldStreams: Map<number, CatalogEntry> | undefined;

  /** Makes `stream` find those of queues that have not been loaded. */
  beginReplay(): void {
    this.#coldStreams = new Map();
    for (const entry of this.#byId.values()) {
      // Nothing in a damaged section may claim the stream of a queue that is sound.
      if (entry.body === undefined || entry.damaged !== undefined) continue;
      try {
        for (const { id } of readSection(entry.body).streams) this.#coldStreams.set(id, entry);
      } catch (error) {
        if (!(error instanceof MalformedError)) throw error;
        entry.damaged = `its state in the snapshot is malformed: ${error.message}`;
      }
    }
  }

  endReplay(): void {
    this.#coldStreams = undefined;
  }

  /** Whether an id may be that of a queue or stream which has been deleted: what the log has for it then changes nothing. */
  hadQueue(id: number): boolean {
    return id <= this.lastQueueId;
  }

  hadStream(id: number): boolean {
    return id <= this.lastStreamId;
  }

  /** Everything as of now, for a snapshot to be written later. */
  capture(): CapturedQueue[] {
    const captured: CapturedQueue[] = [];
    const encoder = new Encoder(4096);
    for (const entry of this.#byId.values()) {
      const { state } = entry;
      if (state === undefined) {
        const nothing = Buffer.alloc(0);
        captured.push({ entry, body: entry.body ?? nothing, count: 0, metadata: "", state: nothing, streams: [] });
        continue;
      }
      encoder.position = 0;
      state.encode(encoder);
      const streams = state.streams.map((stream) => ({
        stream,
        head: stream.head,
        next: stream.next,
        lastTimestamp: stream.lastTimestamp,
        payloadBytes: stream.payloadBytes,
        gaps: [...stream.gaps],
      }));
      const metadata = encodeMetadata(state.metadata);
      const bytes = Buffer.from(encoder.view());
      captured.push({ entry, body: undefined, count: state.count, metadata, state: bytes, streams });
    }
    return captured;
  }

  /** The requests as of now, for a snapshot to be written later. */
  captureRequests(): Buffer {
    const encoder = new Encoder(256);
    if (!this.requests.isEmpty) this.requests.encode(encoder);
    return encoder.view();
  }

  /** Snapshot sections for what was captured, with the runs that there are now. */
  sections(captured: readonly CapturedQueue[], deleted: readonly DeletedQueue[], requests: Buffer): NewSection[] {
    const encoder = new Encoder(4096);
    const sections = captured.map((queue) => {
      const { entry, body } = queue;
      const { id, kind, name, state, wrongCrc } = entry;
      if (body !== undefined && state === undefined) return { id, kind, name, body, wrongCrc };
      // A queue that was loaded since the capture may have had its runs moved since: those count, not the old ones.
      const current = body === undefined ? queue : recapture(entry, body, state!);
      return { id, kind, name, body: encodeBody(encoder, current) };
    });
    encoder.position = 0;
    encoder.varint(this.shared.size);
    for (const segment of this.shared.values()) {
      encoder.varint(segment.sharedId);
      encoder.varint(segment.bytes);
      encoder.varint(segment.runs);
    }
    encoder.varint(deleted.length);
    for (const { kind, name, lastStreamId, streams } of deleted) {
      encoder.u8(kind);
      encoder.string(name);
      encoder.varint(lastStreamId);
      encoder.u8(streams === "unknown" ? 1 : 0);
    }
    encoder.bytes(requests);
    return [{ id: ENGINE_SECTION, kind: 0, name: "", body: Buffer.from(encoder.view()) }, ...sections];
  }

  /** Number of records of a queue and what is noted about it, without loading it. */
  describe(entry: CatalogEntry): { readonly count: number; readonly metadata: Headers } {
    const { state, body, damaged } = entry;
    if (state !== undefined) return { count: state.count, metadata: state.metadata };
    if (body === undefined || damaged !== undefined) return { count: 0, metadata: {} };
    const { count, metadata } = readPreface(new Decoder(body));
    return { count, metadata: decodeMetadata(metadata) };
  }

  sharedPath(id: number): string {
    return `${this.#directory}/shared/${String(id).padStart(16, "0")}.seg`;
  }

  /** A shared segment that is about to be written; it is listed once it has been. */
  newShared(): Segment {
    const sharedId = ++this.lastSharedId;
    const directory = `${this.#directory}/shared`;
    const path = this.sharedPath(sharedId);
    return { path, directory, sharedId, edition: 0, bytes: 0, dirty: true, unnamed: true, runs: 0 };
  }

  #folder(kind: number, name: string): string {
    return `${this.#directory}/${this.#kinds.folder(kind, name)}`;
  }

  #add(entry: CatalogEntry): void {
    this.#entries.set(key(entry.kind, entry.name), entry);
    this.#byId.set(entry.id, entry);
  }

  #index(state: QueueState): void {
    for (const stream of state.streams) this.#streams.set(stream.id, stream);
  }

  #addSection(section: SnapshotSection): void {
    const { id, kind, name } = section;
    const { body } = section;
    let damaged = section.intact ? undefined : "its state in the snapshot does not match its checksum";
    const wrongCrc = section.intact ? undefined : section.crc;
    let createdAt = 0;
    try {
      if (section.intact) ({ createdAt } = readPreface(new Decoder(body)));
    } catch (error) {
      if (!(error instanceof MalformedError)) throw error;
      damaged = `its state in the snapshot is malformed: ${error.message}`;
    }
    this.#add({ id, kind, name, createdAt, state: undefined, body, wrongCrc, damaged });
  }

  #restoreShared(section: SnapshotSection): void {
    if (!section.intact) {
      throw new VarveError("ERR_CORRUPT", `${this.#directory}/snap: the list of shared segments is damaged`);
    }
    const input = new Decoder(section.body);
    for (let count = input.varint(); count > 0; count--) {
      const sharedId = input.varint();
      const bytes = input.varint();
      const path = this.sharedPath(sharedId);
      const directory = `${this.#directory}/shared`;
      this.shared.set(sharedId, {
        path,
        directory,
        sharedId,
        edition: 0,
        bytes,
        dirty: false,
        unnamed: false,
        runs: input.varint(),
      });
    }
    this.deleted = readDeleted(input);
    this.requests = RequestTable.decode(input);
  }

  #restore(entry: CatalogEntry, body: Buffer): QueueState {
    const input = new Decoder(body);
    readPreface(input); // which the state knows better
    const stateBytes = input.bytes(input.varint());
    const streams: Stream[] = [];
    for (let count = input.varint(); count > 0; count--) {
      streams.push(this.#restoreStream(input, this.#folder(entry.kind, entry.name)));
    }
    const { kind, id, name } = entry;
    const state = this.#kinds.restore(kind, id, name, streams, new Decoder(stateBytes));
    this.#index(state);
    return state;
  }

  #restoreStream(input: Decoder, queueDirectory: string): Stream {
    const id = input.varint();
    const folder = input.string();
    const head = input.varint();
    const next = input.varint();
    const lastTimestamp = input.varint();
    const payloadBytes = input.varint();
    const gaps: Gap[] = [];
    for (let count = input.varint(); count > 0; count--) gaps.push({ from: input.varint(), to: input.varint() });
    const stream = new Stream(id, queueDirectory, folder, head, next, lastTimestamp, gaps);
    const { directory } = stream;
    stream.payloadBytes = payloadBytes;
    stream.cleanTo = input.varint();
    stream.tombstonesFrom = input.varint();
    for (let count = input.varint(); count > 0; count--) {
      const sharedId = input.varint();
      const edition = input.varint();
      const position = input.varint();
      const bytes = input.varint();
      const first = input.varint();
      const runNext = input.varint();
      const records = input.varint();
      const firstTimestamp = input.varint();
      const runLastTimestamp = input.varint();
      let segment = this.shared.get(sharedId);
      if (segment === undefined) {
        if (sharedId !== 0) throw new MalformedError(`shared segment ${sharedId} is not listed`);
        segment = {
          path: segmentPath(directory, id, first, edition),
          directory,
          sharedId: 0,
          edition,
          bytes: SEGMENT_HEADER_BYTES + bytes,
          dirty: false,
          unnamed: false,
          runs: 1,
        };
      }
      const run: Run = {
        segment,
        position,
        bytes,
        first,
        next: runNext,
        count: records,
        firstTimestamp,
        lastTimestamp: runLastTimestamp,
        index: undefined,
      };
      stream.runs.push(run);
      stream.bytes += bytes;
      // A repair leaves less of a segment, too.
      stream.hasHoles ||= edition > 0 || records < stream.recordsBetween(first, runNext);
    }
    return stream;
  }
}

/** What a section says of a queue, with the streams of its present state. */
function recapture(entry: CatalogEntry, body: Buffer, state: QueueState): CapturedQueue {
  const parts = readSection(body);
  const streams = parts.streams.map(({ id, folder: _, ...numbers }) => {
    const stream = state.streams.find((each) => each.id === id);
    if (stream === undefined) throw new MalformedError(`stream ${id} is not the queue's`);
    return { stream, ...numbers };
  });
  const { count, metadata } = readPreface(new Decoder(body));
  return { entry, body: undefined, count, metadata, state: parts.state, streams };
}

function encodeBody(encoder: Encoder, queue: CapturedQueue): Buffer {
  encoder.position = 0;
  encoder.varint(queue.count);
  encoder.varint(queue.entry.createdAt);
  encoder.string(queue.metadata);
  encoder.varint(queue.state.length);
  encoder.bytes(queue.state);
  encoder.varint(queue.streams.length);
  for (const { stream, head, next, lastTimestamp, payloadBytes, gaps } of queue.streams) {
    encoder.varint(stream.id);
    encoder.string(stream.folder);
    encoder.varint(head);
    encoder.varint(next);
    encoder.varint(lastTimestamp);
    encoder.varint(payloadBytes);
    encoder.varint(gaps.length);
    for (const gap of gaps) {
      encoder.varint(gap.from);
      encoder.varint(gap.to);
    }
    encoder.varint(stream.cleanTo);
    encoder.varint(stream.tombstonesFrom);
    encoder.varint(stream.runs.length);
    for (const run of stream.runs) {
      encoder.varint(run.segment.sharedId);
      encoder.varint(run.segment.edition);
      encoder.varint(run.position);
      encoder.varint(run.bytes);
      encoder.varint(run.first);
      encoder.varint(run.next);
      encoder.varint(run.count);
      encoder.varint(run.firstTimestamp);
      encoder.varint(run.lastTimestamp);
    }
  }
  return Buffer.from(encoder.view());
}

/** Numbers that stand for a run in a section. */
const RUN_FIELDS = 9;

/** What a section body says of a queue, without its runs: they may not be there any more. */
export interface SectionParts {
  readonly createdAt: number;
  readonly state: Buffer;
  readonly streams: readonly {
    readonly id: number;
    readonly folder: string;
    readonly head: number;
    readonly next: number;
    readonly lastTimestamp: number;
    readonly payloadBytes: number;
    readonly gaps: Gap[];
  }[];
}

/** @throws MalformedError */
export function readSection(body: Buffer): SectionParts {
  const input = new Decoder(body);
  const { createdAt } = readPreface(input);
  const state = input.bytes(input.varint());
  const streams = Array.from({ length: input.varint() }, () => {
    const numbers = {
      id: input.varint(),
      folder: input.string(),
      head: input.varint(),
      next: input.varint(),
      lastTimestamp: input.varint(),
      payloadBytes: input.varint(),
    };
    const gaps = Array.from({ length: input.varint() }, () => ({ from: input.varint(), to: input.varint() }));
    input.varint(); // what compaction has got to
    input.varint();
    for (let fields = input.varint() * RUN_FIELDS; fields > 0; fields--) input.varint();
    return { ...numbers, gaps };
  });
  return { createdAt, state, streams };
}

/** The deleted queues that the engine's section lists behind the shared segments. */
export function readDeleted(input: Decoder): DeletedQueue[] {
  return Array.from({ length: input.varint() }, () => ({
    kind: input.u8(),
    name: input.string(),
    lastStreamId: input.varint(),
    streams: input.u8() === 1 ? "unknown" : [],
  }));
}

/** What a section begins with, so that it can be told without the rest. */
export function readPreface(input: Decoder) {
  return { count: input.varint(), createdAt: input.varint(), metadata: input.string() };
}

/** Empty for none, so that thousands of plain queues stay small. */
function encodeMetadata(metadata: Headers): string {
  return Object.keys(metadata).length === 0 ? "" : JSON.stringify(metadata);
}

function decodeMetadata(text: string): Headers {
  if (text === "") return {};
  try {
    return JSON.parse(text) as Headers;
  } catch {
    return {}; // The queue says what is wrong with its section when it is opened.
  }
}

function key(kind: number, name: string): string {
  return `${kind} ${name}`;
}
