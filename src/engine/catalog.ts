/**
 * Which queues a directory has. A queue that nobody has touched since the directory was opened is kept as the bytes of
 * its snapshot section, so that opening costs the same however many queues there are.
 */

import { assert, VarveError } from "../api/errors.js";
import { Decoder, Encoder, MalformedError } from "../storage/bytes.js";
import { type Run, SEGMENT_HEADER_BYTES, type Segment, segmentPath } from "../storage/segment.js";
import type { NewSection, Snapshot, SnapshotSection } from "../storage/snapshot.js";
import { type Gap, Stream } from "../storage/stream.js";
import type { LogTime, QueueKinds, QueueState } from "./queue-state.js";

export interface CatalogEntry {
  readonly id: number;
  readonly kind: number;
  readonly name: string;
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
  readonly state: Buffer;
  readonly streams: readonly CapturedStream[];
}

/** The engine's own part of a snapshot: the shared segments. */
const ENGINE_SECTION = 0;

export class Catalog {
  readonly #directory: string;
  readonly #kinds: QueueKinds;
  readonly #entries = new Map<string, CatalogEntry>();
  readonly #byId = new Map<number, CatalogEntry>();
  readonly #streams = new Map<number, Stream>();
  /** By number. */
  readonly shared = new Map<number, Segment>();
  #resumption: { readonly last: LogTime; readonly now: LogTime } | undefined;
  #deleted: Stream[] = [];
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
  create(kind: number, name: string, id: number, streamIds: readonly number[], config: Buffer): QueueState {
    const folders = this.#kinds.streamFolders(kind);
    const streams = streamIds.map((streamId, index) => this.newStream(kind, name, streamId, folders[index] ?? ""));
    const state = this.#kinds.create(kind, id, name, streams, config);
    this.#add({ id, kind, name, state, body: undefined, wrongCrc: undefined, damaged: undefined });
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
  adopt(state: QueueState): void {
    const { id, kind, name } = state;
    this.#add({ id, kind, name, state, body: undefined, wrongCrc: undefined, damaged: undefined });
    this.#index(state);
  }

  /** A stream of a queue, that the queue does not have yet. */
  newStream(kind: number, name: string, id: number, folder: string): Stream {
    return new Stream(id, this.#folder(kind, name), folder);
  }

  /**
   * Takes a queue away for good. What is still on its way to its streams is not kept; their segments go with the next
   * checkpoints.
   */
  delete(entry: CatalogEntry): void {
    const { state } = entry;
    this.remove(entry);
    for (const stream of state?.streams ?? []) {
      stream.trimTo(Number.MAX_SAFE_INTEGER);
      stream.isNeeded = () => false;
      this.#deleted.push(stream);
    }
  }

  /** Streams of deleted queues that have not been given up yet. */
  get deleted(): readonly Stream[] {
    this.#deleted = this.#deleted.filter(({ runs, recent }) => runs.length > 0 || recent.length > 0);
    return this.#deleted;
  }

  /** Takes a queue away whose state makes no sense; used by repair, which makes it again. */
  remove(entry: CatalogEntry): void {
    this.#entries.delete(key(entry.kind, entry.name));
    this.#byId.delete(entry.id);
    for (const stream of entry.state?.streams ?? []) this.#streams.delete(stream.id);
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

  /** Everything as of now, for a snapshot to be written later. */
  capture(): CapturedQueue[] {
    const captured: CapturedQueue[] = [];
    const encoder = new Encoder(4096);
    for (const entry of this.#byId.values()) {
      const { state } = entry;
      if (state === undefined) {
        captured.push({ entry, body: entry.body ?? Buffer.alloc(0), count: 0, state: Buffer.alloc(0), streams: [] });
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
      captured.push({ entry, body: undefined, count: state.count, state: Buffer.from(encoder.view()), streams });
    }
    return captured;
  }

  /** Snapshot sections for what was captured, with the runs that there are now. */
  sections(captured: readonly CapturedQueue[]): NewSection[] {
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
    return [{ id: ENGINE_SECTION, kind: 0, name: "", body: Buffer.from(encoder.view()) }, ...sections];
  }

  /** Number of records of a queue, without loading it. */
  count(entry: CatalogEntry): number {
    if (entry.state !== undefined) return entry.state.count;
    if (entry.body === undefined || entry.damaged !== undefined) return 0;
    return new Decoder(entry.body).varint();
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
    const damaged = section.intact ? undefined : "its state in the snapshot does not match its checksum";
    const wrongCrc = section.intact ? undefined : section.crc;
    this.#add({ id, kind, name, state: undefined, body: section.body, wrongCrc, damaged });
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
  }

  #restore(entry: CatalogEntry, body: Buffer): QueueState {
    const input = new Decoder(body);
    input.varint(); // the count, which the state knows better
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
          path: segmentPath(directory, first, edition),
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
  return { entry, body: undefined, count: new Decoder(body).varint(), state: parts.state, streams };
}

function encodeBody(encoder: Encoder, queue: CapturedQueue): Buffer {
  encoder.position = 0;
  encoder.varint(queue.count);
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
  input.varint();
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
  return { state, streams };
}

function key(kind: number, name: string): string {
  return `${kind} ${name}`;
}
