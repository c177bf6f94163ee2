/**
 * The contract: what every implementation of varve offers, whatever carries it (a directory in this process, a
 * daemon, a cluster). Everything above this file (command line, benchmark, protocol fronts) knows only these types.
 *
 * Words used here are defined in docs/glossary.md.
 */

import type { Codec } from "./codec.js";
import type { Message } from "./message.js";

/** Milliseconds, or a string with a unit: `"250ms"`, `"30s"`, `"5m"`, `"2h"`, `"7d"`. */
export type Duration = number | string;

/** Bytes, or a string with a unit: `"512KiB"`, `"64MiB"`, `"10GiB"`, `"1MB"` (decimal units are powers of 1000). */
export type Size = number | string;

/**
 * When a change counts as done and its promise resolves.
 * - `sync`: once it is on stable storage (fdatasync). A power cut loses nothing acknowledged.
 * - `async`: once the operating system has it. A killed process loses nothing; a power cut may cost the changes of
 *   the last `syncInterval`.
 */
export type Durability = "sync" | "async";

/** What a queue without a codec accepts. Strings are stored as UTF-8. */
export type Bytes = string | Uint8Array;

/** Message headers: any names, string values. Kept in the order given. */
export type Headers = Readonly<Record<string, string>>;

/** Accepted by `append` and `enqueue`: the bare payload, or a {@link Message} with a key and headers. */
export type Input<I> = I | Message<I> | ([I] extends [Bytes] ? MessageInit<I> : never);

/** The plain-object form of a message; only for queues whose payload is itself a string or bytes. */
export interface MessageInit<I> {
  readonly payload: I;
  readonly key?: string | Uint8Array | undefined;
  readonly headers?: Headers | undefined;
}

/** One open queue directory, daemon or cluster. Obtained from `open`. */
export interface MessageQueue extends AsyncDisposable {
  /**
   * Opens a log queue, creating it when it does not exist.
   * @throws VarveError `ERR_QUEUE_NAME`, `ERR_OPTION`, `ERR_CORRUPT` (this queue's files are damaged), `ERR_CLOSED`
   */
  openLog<I = Bytes, O = Buffer>(name: string, options?: LogOptions<I, O>): Promise<LogQueue<I, O>>;
  /**
   * Opens a task queue, creating it when it does not exist. Options given here are stored with the queue and replace
   * those it had; options left out keep their stored value.
   * @throws VarveError `ERR_QUEUE_NAME`, `ERR_OPTION`, `ERR_CORRUPT`, `ERR_CLOSED`
   */
  openTask<I = Bytes, O = Buffer>(name: string, options?: TaskOptions<I, O>): Promise<TaskQueue<I, O>>;
  /**
   * Applies several operations as one commit: all of them or none, for readers and for recovery. The callback must be
   * synchronous; operations take effect when it has returned. If one is refused, none takes effect and the error's
   * message says which.
   */
  transaction(build: (tx: Transaction) => void, options?: CommitOptions): Promise<void>;
  /** All queues, by kind and name. Cheap: opens none of them. */
  queues(): Promise<QueueInfo[]>;
  /** Counters and gauges of the whole directory. Cheap whatever the backlog. */
  stats(): Promise<Stats>;
  /** Makes everything acknowledged so far durable, whatever the mode it was committed in. */
  sync(): Promise<void>;
  /** Refuses new calls, finishes those accepted, makes everything durable and releases the directory. Idempotent. */
  close(): Promise<void>;
}

export interface CommitOptions {
  /** Overrides the directory's durability for this call. */
  readonly durability?: Durability | undefined;
}

export type QueueKind = "log" | "task";

export interface QueueInfo {
  readonly kind: QueueKind;
  readonly name: string;
  /** Records (log) or unfinished tasks, dead letters not included (task). */
  readonly count: number;
  /** Set when the queue's own files are damaged; the queue is closed to use until repaired. */
  readonly damaged?: string | undefined;
}

// ---------------------------------------------------------------------------------------------------------- log queue

export interface LogOptions<I = Bytes, O = Buffer> {
  /** How payloads are turned into bytes and back. @defaultValue `bytes()` */
  readonly codec?: Codec<I, O> | undefined;
}

export interface AppendOptions extends CommitOptions {
  readonly key?: string | Uint8Array | undefined;
  readonly headers?: Headers | undefined;
}

/** An append-only sequence of records with increasing offsets. */
export interface LogQueue<I = Bytes, O = Buffer> {
  readonly kind: "log";
  readonly name: string;
  /**
   * Appends one record and returns its offset.
   * @throws VarveError `ERR_TOO_LARGE`, `ERR_ENCODE`, `ERR_DISK_FULL`, `ERR_OVERLOADED`, `ERR_READ_ONLY`, `ERR_CLOSED`,
   * `ERR_OUTCOME_UNKNOWN`
   */
  append(input: Input<I>, options?: AppendOptions): Promise<number>;
  /** Appends all the records as one commit (all or none) and returns their offsets, which are consecutive. */
  appendBatch(inputs: readonly Input<I>[], options?: CommitOptions): Promise<number[]>;
  /**
   * The record at an offset; `undefined` when there is none (past the end, or a hole).
   * @throws VarveError `ERR_ARGUMENT` (not a whole number >= 0), `ERR_OFFSET_OUT_OF_RANGE` (trimmed away;
   * `error.details.next` is the first offset still there), `ERR_CORRUPT`, `ERR_DECODE`
   */
  read(offset: number): Promise<LogRecord<O> | undefined>;
  /** Every record from a point on, then each new one as it is committed. Ends with the signal, or when the queue closes. */
  tail(options?: TailOptions): AsyncIterable<LogRecord<O>>;
  /**
   * Records in arrays, the fast path for replay. Ends at the end of the log unless `follow` is set; `ERR_CLOSED` when the
   * queue closes before that. With `follow`, it ends as a tail does.
   */
  batches(options?: BatchesOptions): AsyncIterable<LogRecord<O>[]>;
  /** Removes every record below `offset`, durably. Offsets of what remains do not change. Returns the new head. */
  trim(offset: number, options?: CommitOptions): Promise<number>;
  stats(): Promise<LogStats>;
}

/** Where reading starts: the oldest record, behind the newest, an offset, or the first record at or after a time. */
export type LogPosition = "start" | "end" | number | Date;

export interface TailOptions {
  /** @defaultValue "end" */
  readonly from?: LogPosition | undefined;
  /** Ends the iteration without an error. */
  readonly signal?: AbortSignal | undefined;
}

export interface BatchesOptions {
  /** @defaultValue "start" */
  readonly from?: LogPosition | undefined;
  /** Payload bytes per array, about. One larger record makes a larger array. @defaultValue 1 MiB */
  readonly maxBytes?: Size | undefined;
  /** Go on with new records instead of ending. @defaultValue false */
  readonly follow?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface LogRecord<O = Buffer> {
  readonly offset: number;
  /** Milliseconds since 1970 when the record was committed; never falls within a log. */
  readonly timestamp: number;
  readonly key: Buffer | undefined;
  readonly headers: Headers;
  readonly payload: O;
}

export interface LogStats {
  readonly kind: "log";
  readonly name: string;
  /** First offset still there. */
  readonly head: number;
  /** The offset the next record will get. */
  readonly next: number;
  readonly count: number;
  /** Bytes of records on disk and in memory, about. */
  readonly bytes: number;
}

// --------------------------------------------------------------------------------------------------------- task queue

export interface TaskOptions<I = Bytes, O = Buffer> {
  /** How payloads are turned into bytes and back. Not stored. @defaultValue `bytes()` */
  readonly codec?: Codec<I, O> | undefined;
  /** How long a delivered task belongs to its receiver. @defaultValue "30s" */
  readonly lease?: Duration | undefined;
  /** Deliveries before a task is moved to the dead letters. 1 to 65535, or Infinity. @defaultValue 5 */
  readonly maxAttempts?: number | undefined;
  /** How long a failed task waits before its next delivery. */
  readonly backoff?: BackoffOptions | undefined;
}

/** Wait before attempt n + 1 = `initial * factor^(n-1)`, at most `max`, varied by +- `jitter` of itself. */
export interface BackoffOptions {
  /** @defaultValue "1s" */
  readonly initial?: Duration | undefined;
  /** @defaultValue "5m" */
  readonly max?: Duration | undefined;
  /** At least 1. @defaultValue 2 */
  readonly factor?: number | undefined;
  /** 0 to 1. @defaultValue 0.2 */
  readonly jitter?: number | undefined;
}

export interface EnqueueOptions extends CommitOptions {
  readonly key?: string | Uint8Array | undefined;
  readonly headers?: Headers | undefined;
  /** Not delivered before this much time has passed. */
  readonly delay?: Duration | undefined;
  /** Not delivered before this moment of the wall clock. Excludes `delay`. */
  readonly at?: Date | undefined;
  /** Overrides the queue's `maxAttempts` for this task. */
  readonly maxAttempts?: number | undefined;
}

export interface Enqueued {
  /** Names the task for ever within its queue. */
  readonly id: string;
  /** False when an earlier task with the same dedupe key stands for this one. */
  readonly created: boolean;
}

export interface DequeueOptions extends CommitOptions {
  /** How long to wait for a task when none is ready. @defaultValue 0 */
  readonly wait?: Duration | undefined;
  /** Gives up waiting: the call resolves to `undefined` (or an empty array). */
  readonly signal?: AbortSignal | undefined;
  /** Overrides the queue's lease for this delivery. */
  readonly lease?: Duration | undefined;
}

export interface NackOptions extends CommitOptions {
  /** Wait before the next delivery. @defaultValue the queue's backoff for this attempt */
  readonly delay?: Duration | undefined;
  /** Why it failed; kept with the task and its dead letter, cut at 1 KiB. */
  readonly error?: string | Error | undefined;
}

/** Work to be done, each piece by one receiver at a time, until acknowledged or dead. */
export interface TaskQueue<I = Bytes, O = Buffer> {
  readonly kind: "task";
  readonly name: string;
  /** The tasks that ran out of attempts. */
  readonly dead: DeadLetters<O>;
  enqueue(input: Input<I>, options?: EnqueueOptions): Promise<Enqueued>;
  /** All the tasks as one commit. Results are in order. */
  enqueueBatch(inputs: readonly Input<I>[], options?: Omit<EnqueueOptions, "key" | "headers">): Promise<Enqueued[]>;
  /**
   * Takes the next ready task under a lease, waiting for one up to `wait`. The attempt is logged before the task is
   * handed out.
   * @throws VarveError `ERR_CORRUPT`, `ERR_READ_ONLY`, `ERR_CLOSED`
   */
  dequeue(options?: DequeueOptions): Promise<Task<O> | undefined>;
  /** Takes up to `max` (1 to 65,536) ready tasks in one commit; waits only while there is none at all. */
  dequeueBatch(options: DequeueOptions & { readonly max: number }): Promise<Task<O>[]>;
  /**
   * Finishes a task for good.
   * @throws VarveError `ERR_STALE_LEASE`: the lease ran out and the task is someone else's now, or it is already
   * settled; nothing changed. `ERR_TOKEN`: the token is not one, or belongs to another queue.
   */
  ack(task: TaskRef, options?: CommitOptions): Promise<void>;
  /** Finishes all of them in one commit. If one is refused, none is finished. */
  ackBatch(tasks: readonly TaskRef[], options?: CommitOptions): Promise<void>;
  /** Gives a task back: delivered again after its backoff, or moved to the dead letters when attempts ran out. */
  nack(task: TaskRef, options?: NackOptions): Promise<void>;
  /** Makes the lease end `lease` from now. @defaultValue the queue's lease */
  extend(task: TaskRef, lease?: Duration, options?: CommitOptions): Promise<void>;
  stats(): Promise<TaskStats>;
}

/** A delivered task, or just its token. */
export type TaskRef = string | { readonly token: string };

export interface Task<O = Buffer> {
  readonly id: string;
  /** 1 at the first delivery. */
  readonly attempt: number;
  /** Proves the lease to `ack`, `nack` and `extend`; good for this one delivery. */
  readonly token: string;
  /** Milliseconds since 1970 when it was enqueued. */
  readonly timestamp: number;
  readonly key: Buffer | undefined;
  readonly headers: Headers;
  readonly payload: O;
}

export interface TaskStats {
  readonly kind: "task";
  readonly name: string;
  /** Could be delivered now. */
  readonly ready: number;
  /** Waiting for their time: delayed, or in backoff. */
  readonly scheduled: number;
  readonly leased: number;
  readonly dead: number;
  /** Milliseconds that the oldest ready task has been ready; 0 when none is. */
  readonly oldestReadyAge: number;
  /** Milliseconds that the longest-held lease has been held; 0 when none is. */
  readonly oldestLeaseAge: number;
  /** Milliseconds until the next scheduled task is due; undefined when none is scheduled. */
  readonly nextDueIn: number | undefined;
  /** Milliseconds since the oldest dead letter died; 0 when there is none. */
  readonly oldestDeadAge: number;
  /** Consumers waiting in `dequeue`. */
  readonly waiters: number;
  /** Bytes of records on disk and in memory, about. */
  readonly bytes: number;
}

/** One delivery that did not end in an ack. */
export interface Failure {
  readonly attempt: number;
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly error: string;
}

export interface DeadLetter<O = Buffer> {
  /** The task's id. */
  readonly id: string;
  /** Position in the dead-letter queue, for paging. */
  readonly offset: number;
  /** Milliseconds since 1970 when it was enqueued / when it died. */
  readonly enqueuedAt: number;
  readonly diedAt: number;
  readonly attempts: number;
  /** Why it died, for people: "attempts exhausted: <last error>". */
  readonly reason: string;
  /** Most recent last; at most 16 are kept. Includes those from before a redrive. */
  readonly failures: readonly Failure[];
  readonly key: Buffer | undefined;
  readonly headers: Headers;
  /** `undefined` when the codec cannot decode it; `raw` always holds the bytes. */
  readonly payload: O | undefined;
  readonly raw: Buffer;
}

export interface DeadSelection {
  /** Only these tasks. */
  readonly ids?: readonly string[] | undefined;
  /** At most this many, oldest first. @defaultValue all */
  readonly limit?: number | undefined;
}

/** Kept until redriven or purged; never dropped silently. */
export interface DeadLetters<O = Buffer> {
  /** Oldest first, 1000 unless `limit` (at most 100,000) says otherwise. Page on with `after: last.offset`. */
  read(options?: { readonly after?: number; readonly limit?: number }): Promise<DeadLetter<O>[]>;
  /** Moves dead letters back to their queue with a fresh attempt count; each is in exactly one place. Returns how many. */
  redrive(selection?: DeadSelection): Promise<number>;
  /** Deletes dead letters. Returns how many. */
  purge(selection?: DeadSelection): Promise<number>;
}

// -------------------------------------------------------------------------------------------------------- transaction

/** Collects the operations of one commit. Only usable inside the callback that it was given to. */
export interface Transaction {
  // biome-ignore lint/suspicious/noExplicitAny: any queue's payload types fit; `input` is checked against them
  append<I>(queue: LogQueue<I, any>, input: Input<I>, options?: Omit<AppendOptions, "durability">): void;
  // biome-ignore lint/suspicious/noExplicitAny: as above
  enqueue<I>(queue: TaskQueue<I, any>, input: Input<I>, options?: Omit<EnqueueOptions, "durability">): void;
  // biome-ignore lint/suspicious/noExplicitAny: as above
  ack(queue: TaskQueue<any, any>, task: TaskRef): void;
  // biome-ignore lint/suspicious/noExplicitAny: as above
  nack(queue: TaskQueue<any, any>, task: TaskRef, options?: Omit<NackOptions, "durability">): void;
}

// -------------------------------------------------------------------------------------------------------------- stats

export interface Stats {
  /** "ok", or why no more changes are taken: a failed write or sync (until reopened), or no space (until there is). */
  readonly health: "ok" | "failed" | "disk-full";
  /** The first failure's message while `health` is "failed". */
  readonly failure: string | undefined;
  readonly durability: Durability;
  readonly queues: { readonly log: number; readonly task: number; readonly open: number; readonly damaged: number };
  readonly wal: {
    readonly files: number;
    readonly bytes: number;
    /** Commits written since open, their bytes, and the fdatasyncs that made them durable. */
    readonly commits: number;
    readonly writtenBytes: number;
    readonly syncs: number;
    readonly checkpoints: number;
  };
  readonly memory: { readonly blockBytes: number; readonly chunkBytes: number };
  readonly openFiles: number;
  /** What opening this directory found and did. */
  readonly recovery: RecoveryReport;
}

export interface RecoveryReport {
  /** False when the last owner closed the directory in order: there was nothing to recover. */
  readonly recovered: boolean;
  readonly replayedCommits: number;
  readonly replayedBytes: number;
  /** Bytes of a torn tail that were cut off: writes under way, never acknowledged as durable. */
  readonly cutBytes: number;
  /** One line per thing dropped, damaged or not of varve: file, position, reason. */
  readonly notes: readonly string[];
}

// ------------------------------------------------------------------------------------------------------------ opening

/** What varve tells about itself; nothing is printed unless one is given. */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export interface OpenOptions {
  /** @defaultValue "sync" */
  readonly durability?: Durability | undefined;
  /** Longest time that an `async` commit stays only in the operating system's memory. @defaultValue "250ms" */
  readonly syncInterval?: Duration | undefined;
  /** Create the directory when it does not exist. @defaultValue true */
  readonly create?: boolean | undefined;
  /** Largest payload accepted. @defaultValue "16MiB" */
  readonly maxMessageBytes?: Size | undefined;
  /** Size of one write-ahead log file. Bounds recovery time and the largest commit (half of it). @defaultValue "64MiB" */
  readonly walFileBytes?: Size | undefined;
  /** Bytes of a segment file before the next one is begun. @defaultValue "64MiB" */
  readonly segmentBytes?: Size | undefined;
  /** Memory for recent and read-ahead data. @defaultValue "16MiB" */
  readonly cacheBytes?: Size | undefined;
  /** Segment files kept open at once. @defaultValue 128 */
  readonly maxOpenFiles?: number | undefined;
  /** @defaultValue silent */
  readonly logger?: Logger | undefined;
}
