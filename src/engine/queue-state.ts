import type { Headers } from "../api/contract.js";
import type { Decoder, Encoder } from "../storage/bytes.js";
import type { Stream } from "../storage/stream.js";
import type { Rewriter } from "./rewriter.js";

/** When something was logged: elapsed time of the directory (only runs while it is open) and the wall clock. */
export interface LogTime {
  readonly elapsedMs: number;
  readonly wallMs: number;
}

/**
 * What the engine needs to know of a queue. The engine logs, checkpoints and recovers queues without knowing what
 * they do; each kind implements this.
 *
 * A live operation and its replay must leave the same state behind: both call the same code once the operation is in
 * the log, and nothing before.
 */
export interface QueueState {
  readonly id: number;
  readonly kind: number;
  readonly name: string;
  readonly streams: readonly Stream[];
  /** Records or unfinished tasks. */
  readonly count: number;
  /** What people and programs have noted about the queue. */
  readonly metadata: Headers;
  /** Repeats an operation found in the log. */
  replay(code: number, input: Decoder, time: LogTime): void;
  /** Writes what a snapshot must hold besides the streams. */
  encode(output: Encoder): void;
  /** The lowest offset of a stream that is still needed; everything below may go. */
  neededFrom(stream: Stream): number;
  /** Called once, when the queue has been read back after an open: time stood still from `last` to `now`. */
  resume(last: LogTime, now: LogTime): void;
  /** Takes on a stream that the queue has got since it was made; its folder says what for. */
  addStream(stream: Stream): void;
  /**
   * Work on what stands in segments, in the background; asked for after each checkpoint. Undefined when there is none to
   * be done now.
   */
  upkeep?(rewriter: Rewriter): Promise<void> | undefined;
  /** Wall clock time at which there will be some, whether or not there is a checkpoint. */
  upkeepDue?(): number | undefined;
  /** Ends waits and timers, for good. When its queue is being deleted, nothing can be staged meanwhile. */
  close(error: Error): void;
}

/** Makes queue states; given to the engine by the layer that knows the kinds. */
export interface QueueKinds {
  /** The folders of the streams that a new queue of a kind has, below the queue's own. */
  streamFolders(kind: number): readonly string[];
  /** Whether a queue of a kind may get a stream with this folder later on. */
  mayAddStream(kind: number, folder: string): boolean;
  create(kind: number, id: number, name: string, streams: Stream[], config: Buffer): QueueState;
  restore(kind: number, id: number, name: string, streams: Stream[], input: Decoder): QueueState;
  /** Folder of a queue below the directory. */
  folder(kind: number, name: string): string;
}

/** Operation codes below this are the engine's own. On disk: append, never renumber. */
export const FIRST_QUEUE_OP = 16;
export const OP_CREATE_QUEUE = 1;
export const OP_ADD_STREAM = 2;
export const OP_DELETE_QUEUE = 3;
export const OP_REQUESTS = 4;

/** The fields of an operation that creates a queue. */
export function decodeCreation(fields: Decoder) {
  const kind = fields.u8();
  const name = fields.string();
  const streamIds = Array.from({ length: fields.varint() }, () => fields.varint());
  return { kind, name, streamIds, config: fields.bytes(fields.varint()) };
}

/** The fields of an operation that deletes one; the id of the queue is the operation's. */
export function decodeDeletion(fields: Decoder) {
  return { kind: fields.u8(), name: fields.string(), lastStreamId: fields.varint() };
}
