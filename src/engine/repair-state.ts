/**
 * What the steps of a repair share: what it was given, what has been found so far, and what is to be done about it.
 *
 * - The catalog is there once it is known which queues there are. A stream in it has its coverage before anything is
 *   found of it.
 * - Looking fills this and the catalog, and changes nothing on disk.
 * - The offset that a stream gives out next only goes up.
 */

import type { ResolvedOpenOptions } from "../api/options.js";
import type { Decoder } from "../storage/bytes.js";
import type { Disk } from "../storage/disk.js";
import type { Run } from "../storage/segment.js";
import type { Stream } from "../storage/stream.js";
import type { WalFile } from "../storage/wal.js";
import type { Catalog, SectionParts } from "./catalog.js";
import type { EnginePlatform } from "./engine.js";
import { Coverage, type OffsetRange, type QueueInspector } from "./inspect.js";
import type { LogTime, QueueState } from "./queue-state.js";
import { RepairFindings } from "./repair-report.js";
import type { Piece } from "./repair-segments.js";

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
export interface ReplacedRun {
  readonly stream: Stream;
  readonly run: Run;
  readonly pieces: readonly { readonly path: string; readonly piece: Piece }[];
}

/** Where a queue that is to be rebuilt may have records. */
export interface LostQueue extends QueueId {
  readonly id: number | undefined;
  /** What is known of its streams' ids, by index. */
  readonly streamIds: readonly (number | undefined)[];
  readonly config?: Buffer;
  /** What the snapshot before the lost one says. */
  readonly previous?: SectionParts | undefined;
  readonly createdAt?: number;
  readonly reason: string;
}

export class RepairState {
  readonly platform: EnginePlatform;
  readonly disk: Disk;
  readonly directory: string;
  readonly options: ResolvedOpenOptions;
  readonly repairer: QueueRepairer;
  readonly findings = new RepairFindings();

  directoryId = "";
  /** varve.json is intact, and names this directory. */
  markerIsSound = false;
  /** Set as soon as it is known which queues there are. */
  catalog!: Catalog;
  /** Queues whose states come from nothing but their records. */
  readonly rebuilt = new Set<QueueState>();
  /** The offsets of each stream whose records are intact, or known to be no longer there. */
  readonly coverage = new Map<Stream, Coverage>();
  /** Runs that are copied to new segments when all is found; until then the catalog has them in the damaged ones. */
  readonly replaced: ReplacedRun[] = [];
  /** The last stream id before a queue was deleted, by kind and name: what is up to there is not to come back. */
  readonly deletions = new Map<string, number>();

  /** Files that are replaced while their names stay in use: copied beforehand. */
  readonly toCopy = new Set<string>();
  /** Files that nothing will refer to: moved away afterwards. */
  readonly toMove = new Set<string>();

  /** The log files that batches are read from; open until the repair ends. */
  readonly walFiles: WalFile[] = [];
  /** The last entry of the log that counts, or that a snapshot is named after: new ones come behind it. */
  lsn = 0;
  /** The checksum that the first new entry goes on from. */
  crc = 0;
  /** The highest that the log or the snapshot tells: the directory's time does not go back. */
  elapsedMs = 0;
  /** Of the log file that is begun: nothing that stands in the old ones can join up with it. */
  generation = 1;
  /** The highest number that a log file has had. */
  seqMax = 0;
  /** How many offsets each stream leaves out, as records that are lost with the end of the log may have had them. */
  skip = 0;

  constructor(platform: EnginePlatform, directory: string, options: ResolvedOpenOptions, repairer: QueueRepairer) {
    this.platform = platform;
    this.disk = platform.disk;
    this.directory = directory;
    this.options = options;
    this.repairer = repairer;
  }

  /** Nothing of the stream has been found yet. */
  cover(stream: Stream): void {
    this.coverage.set(stream, new Coverage());
  }

  /** These records of the stream are intact. */
  coverPiece(stream: Stream, piece: Piece): void {
    for (const { from, to } of piece.covered) this.coverage.get(stream)!.add(from, to);
  }

  /** Of several deletions of one name the last one counts. */
  noteDeletion(kind: number, name: string, lastStreamId: number): void {
    const key = `${kind} ${name}`;
    this.deletions.set(key, Math.max(this.deletions.get(key) ?? 0, lastStreamId));
  }
}

/** No offset below the given one is given out again. */
export function raise(stream: Stream, next: number): void {
  stream.next = Math.max(stream.next, next);
  stream.staged = stream.next;
  stream.visible = stream.next;
}
