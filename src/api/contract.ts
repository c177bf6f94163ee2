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
   * Opens a log queue, creating it when it does not exist. Settings given here are stored with the queue and replace those
   * it had; settings left out keep their stored value.
   * @throws VarveError `ERR_QUEUE_NAME`, `ERR_OPTION`, `ERR_NOT_FOUND` (with `create: false`), `ERR_CORRUPT` (this queue's
   * files are damaged), `ERR_CLOSED`
   */
  openLog<I = Bytes, O = Buffer>(name: string, options?: LogOptions<I, O>): Promise<LogQueue<I, O>>;
  /**
   * Opens a task queue, creating it when it does not exist. Options given here are stored with the queue and replace
   * those it had; options left out keep their stored value.
   * @throws VarveError `ERR_QUEUE_NAME`, `ERR_OPTION`, `ERR_CORRUPT`, `ERR_CLOSED`
   */
  openTask<I = Bytes, O = Buffer>(name: string, options?: TaskOptions<I, O>): Promise<TaskQueue<I, O>>;
  /**
   * Enqueues a tree of tasks in one commit, which may be in several queues. A task with children is handed out once all of
   * them are done; until then its state is "blocked". A child that dies keeps it waiting, and counts once it is redriven and
   * done. A child that is cancelled, purged or expires, or whose queue is deleted, can never be done: its parent then goes to
   * the dead letters. At most 1000 tasks in 32 levels.
   * @throws VarveError `ERR_ARGUMENT` (a flow that contains itself, is too deep or too large, or a queue of another
   * directory), `ERR_OPTION` (a delay for a task with children), `ERR_QUEUE_FULL` (also: 100,000 tasks of flows in a queue),
   * and as `enqueue`
   */
  flow(flow: Flow, options?: CommitOptions): Promise<EnqueuedFlow>;
  /**
   * Applies several operations as one commit: all of them or none, for readers and for recovery. The callback must be
   * synchronous; operations take effect when it has returned. If one is refused, none takes effect and the error's
   * message says which.
   */
  transaction(build: (tx: Transaction) => void, options?: CommitOptions): Promise<void>;
  /**
   * Deletes a queue with everything in it, its groups, cursors and schedules too, durably. False when there was none. One
   * that is damaged can be deleted as well. Calls that wait on it, tails, and later calls on handles to it end with
   * `ERR_NOT_FOUND`. The name can be used again at once; tokens of the queue that is gone are never good for another. Its
   * files are removed in the background, by the next checkpoints.
   * @throws VarveError `ERR_QUEUE_NAME`, `ERR_ARGUMENT` (an unknown kind), `ERR_OPTION`, `ERR_READ_ONLY`, `ERR_OVERLOADED`,
   * `ERR_CLOSED`, `ERR_OUTCOME_UNKNOWN`
   */
  deleteQueue(kind: QueueKind, name: string, options?: CommitOptions): Promise<boolean>;
  /** All queues, by kind and name. Cheap: opens none of them. */
  queues(): Promise<QueueInfo[]>;
  /** Counters and gauges of the whole directory. Cheap whatever the backlog. */
  stats(): Promise<Stats>;
  /** Makes everything acknowledged so far durable, whatever the mode it was committed in. */
  sync(): Promise<void>;
  /**
   * Refuses new calls, finishes those accepted, makes everything durable and releases the directory. Idempotent. Calls that
   * wait for room in the log, and waits for messages, end with `ERR_CLOSED`, tails quietly; reads from the disk that are
   * under way are waited for. A last checkpoint that fails, for want of space say, is no error: the log has everything,
   * and the next open reads it back.
   * @throws VarveError `ERR_OUTCOME_UNKNOWN`: a write or sync of the log had failed, and of what was acknowledged before it
   * was durable, some may not be. The directory is released all the same.
   */
  close(): Promise<void>;
}

export interface CommitOptions {
  /** Overrides the directory's durability for this call. */
  readonly durability?: Durability | undefined;
  /** Names the call, so that it can be repeated when its answer was lost. @defaultValue it has no name */
  readonly request?: RequestIdentity | undefined;
}

/**
 * The name of a call that its caller may have to repeat, without knowing whether it was carried out: the answer was lost with
 * a connection, say. A call is carried out once for each name. One that repeats another, with the same arguments, is given the
 * answer of that one; while that is still under way it waits for it. This holds over restarts and crashes: name and answer are
 * part of the commit, so after a power cut there are both of them and what the call has done, or neither. A call that was
 * refused, or had nothing to change, leaves no trace, and is made anew when it is repeated.
 *
 * Taken by every call with {@link CommitOptions}. A `dequeue` that is repeated gives the same tasks with the same tokens, as far
 * as their leases still hold; it excludes `autoAck`. A `redrive` or `purge` of dead letters makes several commits: one that is
 * repeated goes on where it was, and counts them all. Calls without these options have no name: `compact`, `expire`, `sync` and
 * `close`. `openLog`, `openTask`, `group`, `sharedGroup` and `cursor` may be repeated as they are.
 *
 * The last 1024 answers of a producer are remembered, those of 10,000 producers, a day without a change long (time
 * during which the directory is closed does not count), and 4 MiB in all; `settled` makes room earlier.
 * @throws VarveError `ERR_OUTCOME_UNKNOWN`: the producer is known, and the answer is not remembered any more; nothing was done.
 * `ERR_ARGUMENT`: another kind of call had that name
 */
export interface RequestIdentity {
  /** 16 random bytes, of whoever numbers the calls. */
  readonly producer: Uint8Array;
  /** From 1 on, and never the same for two calls of a producer. */
  readonly sequence: number;
  /** All calls with a number up to this one have been answered, and will not be repeated. @defaultValue 0 */
  readonly settled?: number | undefined;
  /**
   * Of a batch: each of its messages is a call of its own, with the numbers from `sequence` on. Made again, alone or in another
   * batch, each is answered as it was, and those that have not been made are made now. They need not be one commit then. Of other
   * calls it says nothing. @defaultValue false
   */
  readonly each?: boolean | undefined;
}

export type QueueKind = "log" | "task";

export interface QueueInfo {
  readonly kind: QueueKind;
  readonly name: string;
  /** Records (log) or unfinished tasks, dead letters not included (task). */
  readonly count: number;
  /** Milliseconds since 1970; 0 when a repair could not tell, or the queue is damaged. */
  readonly createdAt: number;
  /** What was stored with the queue; empty when it is damaged. */
  readonly metadata: Headers;
  /** Set when the queue's own files are damaged; the queue is closed to use until repaired. */
  readonly damaged?: string | undefined;
}

// ---------------------------------------------------------------------------------------------------------- log queue

export interface LogOptions<I = Bytes, O = Buffer> extends LogSettings {
  /** How payloads are turned into bytes and back. Not stored. @defaultValue `bytes()` */
  readonly codec?: Codec<I, O> | undefined;
  /** Create the log when it does not exist; else `ERR_NOT_FOUND`. Not stored. @defaultValue true */
  readonly create?: boolean | undefined;
}

/** What is stored with a log. Members left out keep the value they have. */
export interface LogSettings {
  /** What is removed by itself, oldest first. @defaultValue nothing */
  readonly retention?: RetentionOptions | undefined;
  /** Whether only the last record of each key is kept, in time. @defaultValue false */
  readonly compaction?: boolean | CompactionOptions | undefined;
  /** How much the log may hold, and what becomes of an append beyond that. @defaultValue none */
  readonly limits?: QueueLimits | undefined;
  /** For people and programs; at most 4 KiB of names and values. Replaced as a whole. @defaultValue none */
  readonly metadata?: Headers | undefined;
}

/**
 * Removal is by whole batches and segments from the oldest on: one goes as soon as what is left without it satisfies the
 * rule, so that up to one segment more than a limit is kept and nothing newer is touched. Zero is refused; `Infinity`
 * lifts a rule.
 */
export interface RetentionOptions {
  /** Goes when its newest record is older than this by the wall clock. @defaultValue Infinity */
  readonly maxAge?: Duration | undefined;
  /** Bytes of records to keep. @defaultValue Infinity */
  readonly maxBytes?: Size | undefined;
  /** Records to keep. @defaultValue Infinity */
  readonly maxCount?: number | undefined;
  /**
   * How long a group that does nothing keeps what it has not committed yet from being removed by these rules. With 0,
   * retention waits for no group, and those that it passes are told so; with `Infinity` it waits for every group.
   * @defaultValue 0
   */
  readonly holdForGroups?: Duration | undefined;
}

export interface CompactionOptions {
  /**
   * How long a tombstone stays at least, by the wall clock while the log is open, so that every reader sees it. Unless
   * `compact` is called it goes up to a quarter of that later. @defaultValue "24h"
   */
  readonly grace?: Duration | undefined;
  /**
   * Part of what stands in complete segments that may be superseded before they are rewritten, 0 to 1: bytes that were
   * added since the last time are taken for superseding, or superseded. @defaultValue 0.5
   */
  readonly minDirty?: number | undefined;
}

/** `Infinity` lifts a limit. */
export interface QueueLimits {
  /** @defaultValue Infinity */
  readonly maxCount?: number | undefined;
  /** Bytes of records, about. @defaultValue Infinity */
  readonly maxBytes?: Size | undefined;
  /** Largest payload, where that is less than the directory's `maxMessageBytes`. @defaultValue Infinity */
  readonly maxMessageBytes?: Size | undefined;
  /**
   * What becomes of a message that does not fit: refused with `ERR_QUEUE_FULL`; waits until there is room; or the oldest go
   * for it, in a log in the same commit, in a task queue of those that wait and just before it. A message in a transaction or a flow is refused instead of waiting,
   * and the messages of one commit see each other; that of a schedule stays due until there is room.
   * @defaultValue "refuse"
   */
  readonly whenFull?: "refuse" | "wait" | "drop-oldest" | undefined;
}

/** The settings of a log as they are stored: milliseconds, bytes and numbers, `Infinity` where there is no limit. */
export interface StoredLogSettings {
  readonly retention: {
    readonly maxAge: number;
    readonly maxBytes: number;
    readonly maxCount: number;
    readonly holdForGroups: number;
  };
  readonly compaction: false | { readonly grace: number; readonly minDirty: number };
  readonly limits: {
    readonly maxCount: number;
    readonly maxBytes: number;
    readonly maxMessageBytes: number;
    readonly whenFull: "refuse" | "wait" | "drop-oldest";
  };
  readonly metadata: Headers;
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
   * @throws VarveError `ERR_TOO_LARGE`, `ERR_ENCODE`, `ERR_QUEUE_FULL`, `ERR_DISK_FULL`, `ERR_OVERLOADED`,
   * `ERR_READ_ONLY`, `ERR_CLOSED`, `ERR_OUTCOME_UNKNOWN`
   */
  append(input: Input<I>, options?: AppendOptions): Promise<number>;
  /** Appends all the records as one commit (all or none) and returns their offsets, which are consecutive. */
  appendBatch(inputs: readonly Input<I>[], options?: CommitOptions): Promise<number[]>;
  /**
   * The record at an offset; `undefined` when there is none (past the end, or a hole).
   * @throws VarveError `ERR_ARGUMENT` (not a whole number >= 0), `ERR_OFFSET_OUT_OF_RANGE` (removed by a trim or by retention;
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
  /**
   * Appends a tombstone: a record that says that there is nothing under a key any more, and returns its offset.
   * Compaction then removes the key's older records, and the tombstone itself after the grace period.
   * @throws VarveError as `append`; `ERR_OPTION` (no key)
   */
  delete(key: string | Uint8Array, options?: Omit<AppendOptions, "key">): Promise<number>;
  /**
   * Removes, now, the records with a key that a later record with the same key supersedes, and tombstones that are older
   * than the grace period; whether or not the log is compacted by itself. Records without a key stay, and offsets too.
   * Appends and reads go on meanwhile. Resolves when it is durable and the space has been given back. One compaction at
   * a time: this one waits for those under way.
   * @throws VarveError `ERR_DISK_FULL` (there is no room for a copy of the part that is being rewritten; nothing was
   * changed), `ERR_CORRUPT` (a damaged segment is not rewritten), `ERR_OVERLOADED` (segments were removed or moved meanwhile;
   * try again), `ERR_READ_ONLY`, `ERR_CLOSED`
   */
  compact(): Promise<CompactionResult>;
  /** Removes every record below `offset`, durably. Offsets of what remains do not change. Returns the new head. */
  trim(offset: number, options?: CommitOptions): Promise<number>;
  /** Removes every record. Offsets go on. Returns how many there were. */
  purge(options?: CommitOptions): Promise<number>;
  /**
   * Joins a group of readers that share one durable position, of whom one reads at a time and the others stand by.
   * Makes the group when there is none of that name; that is always durable when the promise resolves.
   * @throws VarveError `ERR_QUEUE_NAME`, `ERR_OPTION`, `ERR_ARGUMENT` (the group is a shared one; the position is past
   * the end), `ERR_OFFSET_OUT_OF_RANGE`
   */
  group(name: string, options?: GroupOptions): Promise<GroupMember<O>>;
  /**
   * Joins a group whose members share the work on the records: each record is leased to one member at a time, until it is
   * acknowledged or dead, as a task is. The log is not changed by it. Makes the group when there is none of that name; the
   * rules given here are stored with it and replace those it had.
   * @throws VarveError as `group` does; `ERR_ARGUMENT`: the group is an exclusive one
   */
  sharedGroup(name: string, options?: SharedGroupOptions): Promise<SharedGroup<O>>;
  /** All groups, by name. Reads no records. */
  groups(): Promise<GroupInfo[]>;
  /**
   * Deletes a group with its position, durably. False when there is none. Its members end with `ERR_NOT_FOUND`; a group
   * made under the same name shares nothing with it.
   */
  deleteGroup(name: string, options?: CommitOptions): Promise<boolean>;
  /** Changes what is stored with the log; takes effect at once, for what is already there too. */
  configure(settings: LogSettings, options?: CommitOptions): Promise<void>;
  settings(): Promise<StoredLogSettings>;
  stats(): Promise<LogStats>;
}

// ------------------------------------------------------------------------------------------------------------- groups

export interface GroupOptions {
  /** Where a group that does not exist yet begins. @defaultValue "start" */
  readonly from?: LogPosition | undefined;
  /**
   * A member that has made no call for so long loses its turn when another one wants to read. `Infinity`: never.
   * @defaultValue "30s"
   */
  readonly sessionTimeout?: Duration | undefined;
}

export interface GroupReadOptions {
  /** Records at most, 1 to 65,536. @defaultValue 1000 */
  readonly max?: number | undefined;
  /** Payload bytes, about; one larger record comes alone. @defaultValue 1 MiB */
  readonly maxBytes?: Size | undefined;
  /** How long to wait for the turn and for a record. @defaultValue 0 */
  readonly wait?: Duration | undefined;
  /** Gives up waiting: the call resolves to an empty array. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * One reader of a group. Each record is read at least once by the group: what was read and not committed when a member
 * ends is read again by the next one.
 */
export interface GroupMember<O = Buffer> extends AsyncDisposable {
  /** The group's. */
  readonly name: string;
  /** The name of the log. */
  readonly log: string;
  /**
   * The next records, in order and without a gap; an empty array when there are none, or it is not this member's turn.
   * @throws VarveError `ERR_OFFSET_OUT_OF_RANGE`: records were removed before the group had read them, which is told once
   * (`details.lost` of them from `details.offset` on, to which they are counted) and the next call goes on at
   * `details.next`. `ERR_FENCED`: another member has taken over; join again. `ERR_CORRUPT`, `ERR_DECODE`: the position
   * stays; `seek` passes the record. `ERR_NOT_FOUND`: the group was deleted. `ERR_CLOSED`
   */
  read(options?: GroupReadOptions): Promise<LogRecord<O>[]>;
  /**
   * Moves the group's position behind a record, which with all before it is done. Never moves it back.
   * @throws VarveError `ERR_ARGUMENT` (this member has not read that far), `ERR_FENCED` (it is not its turn),
   * `ERR_NOT_FOUND`, `ERR_CLOSED`
   */
  commit(upTo: number | { readonly offset: number }, options?: CommitOptions): Promise<void>;
  /**
   * Moves the group's position, also back, and this member's reading to it. Returns the offset.
   * @throws VarveError `ERR_OFFSET_OUT_OF_RANGE`, `ERR_ARGUMENT` (past the end), `ERR_FENCED`, `ERR_NOT_FOUND`,
   * `ERR_CLOSED`
   */
  seek(to: LogPosition, options?: CommitOptions): Promise<number>;
  position(): Promise<GroupPosition>;
  /** Leaves the group; the turn goes to the next member. Idempotent. */
  close(): Promise<void>;
}

export interface SharedGroupOptions {
  /** Where a group that does not exist yet begins. Not stored. @defaultValue "start" */
  readonly from?: LogPosition | undefined;
  /** How long a delivered record belongs to its receiver. @defaultValue "30s" */
  readonly lease?: Duration | undefined;
  /** Deliveries before a record is moved to the group's dead letters. 1 to 65535, or Infinity. @defaultValue 5 */
  readonly maxAttempts?: number | undefined;
  /** How long a failed record waits before its next delivery. */
  readonly backoff?: BackoffOptions | undefined;
  /**
   * Dead letters that are kept, at most, the newest: above that the oldest are dropped, soon after, and counted in
   * `info().deadDropped`. At least 1. @defaultValue Infinity: kept until redriven or purged
   */
  readonly maxDeadLetters?: number | undefined;
}

/**
 * A member of a shared group. A task's id is the record's offset. A record that retention or a trim removes is counted as
 * lost, unless a member holds it and acknowledges it in time. Dead letters are copies, which the group keeps itself.
 */
export interface SharedGroup<O = Buffer> extends TaskSource<O>, AsyncDisposable {
  /** The name of the log. */
  readonly log: string;
  /**
   * Has the group go on from a position, also back: the records below are done, and those from there on are handed out as if
   * they never had been. The leases of its members end with it (`ERR_STALE_LEASE`), as do waits after a failure. Dead letters
   * stay, and so do those that were redriven. Returns the offset.
   * @throws VarveError `ERR_OFFSET_OUT_OF_RANGE`, `ERR_ARGUMENT` (past the end), `ERR_NOT_FOUND`, `ERR_CLOSED`
   */
  seek(to: LogPosition, options?: CommitOptions): Promise<number>;
  info(): Promise<GroupInfo>;
  /** Ends this member's waits. Its leases stay until they are settled, by their tokens, or run out. Idempotent. */
  close(): Promise<void>;
}

export interface GroupPosition {
  /** Everything below is done. */
  readonly committed: number;
  /** What this member reads next; the committed position while it is not its turn. */
  readonly next: number;
  /** Records from the committed position to the end. */
  readonly lag: number;
  /** Whether it is this member's turn. */
  readonly active: boolean;
}

export interface GroupInfo {
  readonly name: string;
  readonly type: "exclusive" | "shared";
  /** Everything below is done. */
  readonly committed: number;
  /** Records that are not done yet. */
  readonly lag: number;
  /** Milliseconds since the oldest record that is not done was appended, about; 0 when there is none. */
  readonly lagAge: number;
  /** Records that were removed before the group was done with them, ever. */
  readonly lost: number;
  readonly members: number;
  /** Bytes of the records from its position to the end, about. */
  readonly heldBytes: number;
  /** Records in the hands of members, and dead letters, of a shared group. */
  readonly leased: number;
  readonly dead: number;
  /** Of its dead letters, those dropped since the directory was opened, as there were more than `maxDeadLetters`. */
  readonly deadDropped: number;
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
  /** Payload bytes per array, about; a daemon sends at most 192 KiB. One larger record makes a larger array. @defaultValue 1 MiB */
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
  /** Of a tombstone: what the codec makes of no bytes, `undefined` where that is nothing. */
  readonly payload: O;
  /** True for a record that `delete` has appended: there is nothing under its key any more. */
  readonly tombstone: boolean;
}

/** What a compaction has done. Appends that came in meanwhile do not count. */
export interface CompactionResult {
  readonly recordsBefore: number;
  readonly recordsRemoved: number;
  /** Bytes that records take on the disk. */
  readonly bytesBefore: number;
  readonly bytesAfter: number;
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
  readonly groups: number;
  /** The group that is furthest back and how much it has before it; undefined when no group has anything to do. */
  readonly furthestBack: { readonly group: string; readonly bytes: number } | undefined;
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
  /**
   * Caps the life of every task, from when it was enqueued or redriven; also of those that are there already. A task whose
   * time is over is not delivered any more. Measured by the wall clock; while the directory is open, one that is set ahead by
   * more than an hour ends nothing before its time, unless it stays so for an hour. @defaultValue Infinity
   */
  readonly ttl?: Duration | undefined;
  /**
   * What becomes of a task whose time is over, when it comes to the head: nothing, a dead letter, or a new task of another
   * queue (which is created when this is set), without an expiry of its own. If that queue is full or gone, a dead letter.
   * @defaultValue "discard"
   */
  readonly onExpire?: "discard" | "dead" | { readonly moveTo: string } | undefined;
  /** What dedupe keys do. */
  readonly dedupe?: DedupeOptions | undefined;
  /**
   * Limits of what waits: ready and scheduled tasks; `maxBytes` is of their payloads. Leased ones do not count, and giving
   * one back may exceed the limits. A queue that holds less than its limits takes a task, or a batch, as a whole.
   */
  readonly limits?: QueueLimits | undefined;
  /**
   * How long the results of tasks are kept; 0: not at all. Time during which the directory is closed does not count. At most
   * 100,000 of a queue and 256 MiB, the newest. @defaultValue "1h"
   */
  readonly resultTtl?: Duration | undefined;
  /**
   * Dead letters that are kept, at most, the newest: above that the oldest are dropped, soon after, and counted in
   * `stats().deadDropped`. At least 1. @defaultValue Infinity: kept until redriven or purged
   */
  readonly maxDeadLetters?: number | undefined;
  /** Tasks leased at once, at most; deliveries with `autoAck` lease nothing. @defaultValue Infinity */
  readonly concurrency?: number | undefined;
  /** Tasks of one `orderKey` that are under way at once. 1 keeps their order strictly. 1 to 1,000,000. @defaultValue 1 */
  readonly concurrencyPerKey?: number | undefined;
  /**
   * Tasks that are passed over, at most, because others with their order key come first. While there are that many, nothing
   * behind the next such task is handed out. 1 to 100,000. @defaultValue 1000
   */
  readonly lookAhead?: number | undefined;
  /** How fast tasks are handed out. @defaultValue as fast as they are asked for */
  readonly rate?: RateOptions | undefined;
  /**
   * A task gains one priority per so much waiting, so that urgent ones do not keep it back for ever. It counts from when it was
   * enqueued, or could be delivered again; of those that have left memory, about: from when the first and the last of their
   * segment were enqueued. @defaultValue Infinity: priorities are strict
   */
  readonly ageing?: Duration | undefined;
  /** Anything that belongs with the queue: replaces what was stored, as a whole. At most 4 KiB as JSON. */
  readonly metadata?: Headers | undefined;
  /** Create the queue when it does not exist; otherwise `ERR_NOT_FOUND`. @defaultValue true */
  readonly create?: boolean | undefined;
}

/** What can be changed of a task queue while it is in use. */
export type TaskSettings = Omit<TaskOptions<never, never>, "codec" | "create">;

/** What is stored with a task queue: durations in milliseconds, `Infinity` where there is no limit. */
export interface StoredTaskSettings {
  readonly lease: number;
  readonly maxAttempts: number;
  readonly backoff: {
    readonly initial: number;
    readonly max: number;
    readonly factor: number;
    readonly jitter: number;
  };
  readonly ttl: number;
  readonly onExpire: "discard" | "dead" | { readonly moveTo: string };
  readonly dedupe: { readonly window: number; readonly maxKeys: number };
  readonly limits: StoredLogSettings["limits"];
  readonly resultTtl: number;
  readonly maxDeadLetters: number;
  readonly concurrency: number;
  readonly concurrencyPerKey: number;
  readonly lookAhead: number;
  readonly rate: { readonly limit: number; readonly per: number };
  readonly ageing: number;
  readonly metadata: Headers;
  readonly paused: boolean;
}

/**
 * At most `limit` deliveries in a window of time, which begins with the first one in it. What a window has given lasts over
 * a restart; time during which the directory is closed does not count.
 */
export interface RateOptions {
  /** At least 1; Infinity: no limit. */
  readonly limit: number;
  /** Length of a window, at least 1 ms. @defaultValue "1s" */
  readonly per?: Duration | undefined;
}

export interface DedupeOptions {
  /**
   * How long a key stands for its first task, from the commit of that one on, whatever becomes of it. Time during which the
   * directory is closed does not count, nor do jumps of the wall clock. At least 1 ms. @defaultValue "10m"
   */
  readonly window?: Duration | undefined;
  /** Keys that are remembered at once; a further one is refused with `ERR_QUEUE_FULL`. @defaultValue 100,000 */
  readonly maxKeys?: number | undefined;
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
  /**
   * 0 to 9: whatever has a higher one is delivered first. Among tasks of the same, the usual order holds. A task keeps its
   * own over retries and in the dead letters. @defaultValue 0
   */
  readonly priority?: number | undefined;
  /**
   * Not delivered once this much time has passed, by the same clock as the queue's `ttl`, which holds as well. Excludes
   * `expiresAt`. @defaultValue none
   */
  readonly ttl?: Duration | undefined;
  /**
   * Not delivered after this moment of the wall clock, wherever that is set; it may lie in the past. The queue's `ttl` holds as
   * well.
   */
  readonly expiresAt?: Date | undefined;
  /**
   * Names what is to be done: while the window of an earlier task with the same key lasts, nothing is enqueued, and the
   * answer is that task's id with `created: false`, given once that task is committed in the mode asked for. 1 to 256
   * characters.
   */
  readonly dedupeKey?: string | undefined;
  /**
   * Tasks with the same key, and of the same priority, are worked on one after the other (`concurrencyPerKey`), in the order in
   * which they were enqueued: the next one is handed out when the one before it is done, dead, expired or cancelled, and not
   * while that waits for its next attempt. A task with a `delay` or `at` takes its place when its time has come; until
   * then it holds up nobody. Other keys go on meanwhile. 1 to 256 characters.
   */
  readonly orderKey?: string | undefined;
}

/** The terms are those of every task of the batch. */
export interface EnqueueBatchOptions extends Omit<EnqueueOptions, "key" | "headers" | "dedupeKey"> {
  /** Dedupe keys, one for each input or `undefined`; a key may stand twice. */
  readonly dedupeKeys?: readonly (string | undefined)[] | undefined;
}

/** Names a task: its id, or the dedupe key that it was enqueued with, as long as that key's window lasts. */
export type TaskName = string | { readonly dedupeKey: string };

/** When a schedule enqueues: at the times of a cron expression, or every so often. All times are of the wall clock. */
export interface ScheduleSpec {
  /**
   * Minute, hour, day of the month, month, day of the week; with seconds before them if there are six fields. A local time
   * that a change to summer time leaves out fires right after the gap; one that comes twice fires the first time, unless
   * the hour is a wildcard. Excludes `every`.
   */
  readonly cron?: string | undefined;
  /** Of the cron expression, as in "Europe/Berlin". @defaultValue "UTC" */
  readonly timeZone?: string | undefined;
  /** At least 10 ms; counted from `from`, or from when the schedule was made. Excludes `cron`. */
  readonly every?: Duration | undefined;
  /** Not before. @defaultValue now */
  readonly from?: Date | undefined;
  /** Not after. @defaultValue for ever */
  readonly until?: Date | undefined;
  /**
   * What becomes of due times that passed while the queue was not open, or that a wall clock set forward jumped over: one
   * task for all of them; none; or one for each, the last 1000 of them. A due time is missed when the next one has come too,
   * or when it is over by more than a minute. @defaultValue "once"
   */
  readonly missed?: "once" | "skip" | "all" | undefined;
  /** Tasks in all; the schedule then ends. @defaultValue no limit */
  readonly limit?: number | undefined;
}

/** What the tasks of a schedule have besides their payload. */
export type ScheduledTaskOptions = Omit<EnqueueOptions, "delay" | "at" | "dedupeKey">;

export interface ScheduleInfo {
  readonly name: string;
  readonly cron: string | undefined;
  readonly timeZone: string | undefined;
  /** Milliseconds. */
  readonly every: number | undefined;
  /** Milliseconds since 1970, as the other times here. */
  readonly from: number | undefined;
  readonly until: number | undefined;
  readonly missed: "once" | "skip" | "all";
  readonly limit: number | undefined;
  /** Tasks so far. */
  readonly fired: number;
  /** The due time of the last task. */
  readonly lastAt: number | undefined;
  readonly nextAt: number;
}

export interface Enqueued {
  /** Names the task for ever within its queue. */
  readonly id: string;
  /** False when an earlier task with the same dedupe key stands for this one. */
  readonly created: boolean;
  /** What the task brings; as `result` of the queue. */
  result<R = unknown>(options?: ResultOptions): Promise<R>;
}

/** What the tasks of a flow have besides their payload. One with children is due when they are done. */
export type FlowTaskOptions = Omit<EnqueueOptions, keyof CommitOptions | "dedupeKey">;

/** A task, and those that must be done before it becomes ready. */
export interface Flow {
  // biome-ignore lint/suspicious/noExplicitAny: tasks of a flow may be of queues with any payload types
  readonly queue: TaskQueue<any, any>;
  // biome-ignore lint/suspicious/noExplicitAny: as above
  readonly input: Input<any>;
  readonly options?: FlowTaskOptions | undefined;
  readonly children?: readonly Flow[] | undefined;
}

export interface EnqueuedFlow {
  readonly task: Enqueued;
  readonly children: readonly EnqueuedFlow[];
}

export interface ResultOptions {
  /** How long to wait until the task has ended. @defaultValue 0 */
  readonly wait?: Duration | undefined;
  /** Gives up waiting: `ERR_ABORTED`. */
  readonly signal?: AbortSignal | undefined;
}

export interface AckOptions extends CommitOptions {
  /** What the task brought, for whoever enqueued it: anything that JSON brings back equal, at most 64 KiB of it. */
  readonly result?: unknown;
}

export interface TaskStatus {
  /**
   * "scheduled": waits for its time, or for its next attempt. "done": not only when it was acknowledged, but also when it was
   * cancelled, purged, or dropped: of that nothing is kept. "unknown": there was never such a task.
   */
  readonly state: "ready" | "scheduled" | "leased" | "blocked" | "dead" | "done" | "unknown";
  /** Deliveries so far; 0 when that is not known any more. */
  readonly attempt: number;
  /** What its worker said last of how far it has got; `undefined` when nothing was said, or it has ended. */
  readonly progress: unknown;
  /** What it brought, while that is kept. */
  readonly result: unknown;
}

export interface DequeueOptions extends CommitOptions {
  /** How long to wait for a task when none is ready. @defaultValue 0 */
  readonly wait?: Duration | undefined;
  /** Gives up waiting: the call resolves to `undefined` (or an empty array). */
  readonly signal?: AbortSignal | undefined;
  /**
   * Overrides the queue's lease for this delivery. "session": no time limit; the lease ends with this `MessageQueue`, or
   * with the connection that it was dialled by, and the task goes back to the head. After a crash it does so when the
   * directory is opened again, before what stands behind it in the queue, and the attempt counts.
   */
  readonly lease?: Duration | "session" | undefined;
  /**
   * Delivered and done in one commit: at most once, no attempt can fail, and `token` is empty. Excludes `lease`.
   * @defaultValue false
   */
  readonly autoAck?: boolean | undefined;
}

export interface ReleaseOptions extends CommitOptions {
  /**
   * "head": before everything else, the last one given back first. "tail": behind those that were given back or have
   * waited, before those that were never delivered. @defaultValue "head"
   */
  readonly to?: "head" | "tail" | undefined;
}

export interface PeekOptions {
  /** How long to wait for a task when none is ready. @defaultValue 0 */
  readonly wait?: Duration | undefined;
  /** Gives up waiting: the call resolves to `undefined`. */
  readonly signal?: AbortSignal | undefined;
}

/** A task that nobody has been given. `attempt` counts the deliveries so far. */
export type PeekedTask<O = Buffer> = Omit<Task<O>, "token">;

export interface ListOptions {
  readonly state: "ready" | "scheduled" | "leased" | "blocked";
  /** Goes on behind this `position`. */
  readonly after?: string | undefined;
  /** 1 to 100,000. @defaultValue 1000 */
  readonly limit?: number | undefined;
}

/** A task as it stood when it was looked at. */
export interface ListedTask<O = Buffer> extends Omit<PeekedTask<O>, "payload"> {
  /** Where it stands, for `after`. */
  readonly position: string;
  readonly state: ListOptions["state"];
  /** Deliveries so far. */
  readonly attempt: number;
  /** Of one that is scheduled: when it is due, in milliseconds since 1970. */
  readonly dueAt: number | undefined;
  /** `undefined` when the codec cannot decode it; `raw` always holds the bytes. */
  readonly payload: O | undefined;
  readonly raw: Buffer;
}

export interface NackOptions extends CommitOptions {
  /** Wait before the next delivery. @defaultValue the queue's backoff for this attempt */
  readonly delay?: Duration | undefined;
  /** Why it failed; kept with the task and its dead letter, cut at 1 KiB. */
  readonly error?: string | Error | undefined;
  /** Moves the task to the dead letters at once, whatever attempts it has left. Excludes `delay`. @defaultValue false */
  readonly dead?: boolean | undefined;
}

export interface Nacked {
  /** True when the task is a dead letter now; false when it will be delivered again. */
  readonly dead: boolean;
}

/** What hands out tasks under leases, each to one receiver at a time, until it is acknowledged or dead. */
export interface TaskSource<O = Buffer> {
  readonly name: string;
  /** The tasks that ran out of attempts. */
  readonly dead: DeadLetters<O>;
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
  nack(task: TaskRef, options?: NackOptions): Promise<Nacked>;
  /**
   * Gives tasks back undone: no failure, no backoff, and the attempt is not counted. All of them in one commit, one after
   * another; if one is refused, none is given back.
   * @throws VarveError `ERR_STALE_LEASE`, `ERR_TOKEN`, as `ack` does
   */
  release(tasks: TaskRef | readonly TaskRef[], options?: ReleaseOptions): Promise<void>;
  /**
   * The task that `dequeue` would give, without taking it. Waits as `dequeue` does, and takes no place in its line: a task
   * that arrives is shown to all who peek, and still given to the first who waits for one.
   * @throws VarveError `ERR_CORRUPT`, `ERR_DECODE`, `ERR_CLOSED`
   */
  peek(options?: PeekOptions): Promise<PeekedTask<O> | undefined>;
  /** Makes the lease end `lease` from now, also one that had no time limit. @defaultValue the queue's lease */
  extend(task: TaskRef, lease?: Duration, options?: CommitOptions): Promise<void>;
  /**
   * Starts a worker: it takes tasks as they become ready and calls the handler with each. A handler that returns has its
   * task acknowledged; one that throws has it given back, with the error's text and the queue's backoff, or as `Retry`
   * and `Discard` say. While a handler runs, its lease is kept alive.
   * @throws VarveError `ERR_OPTION`, `ERR_ARGUMENT` (the handler is no function), `ERR_CLOSED`
   */
  work(handler: Handler<O>, options?: WorkOptions): Worker<O>;
}

/** Work to be done, each piece by one receiver at a time, until acknowledged or dead. */
export interface TaskQueue<I = Bytes, O = Buffer> extends TaskSource<O> {
  readonly kind: "task";
  enqueue(input: Input<I>, options?: EnqueueOptions): Promise<Enqueued>;
  /** All the tasks as one commit. Results are in order. */
  enqueueBatch(inputs: readonly Input<I>[], options?: EnqueueBatchOptions): Promise<Enqueued[]>;
  /**
   * Removes the tasks at the head whose time is over, as every `dequeue` and `peek` does, and returns how many. One behind a
   * task that is alive counts as ready until it gets there.
   */
  expire(): Promise<number>;
  /** Hands out no more tasks, durably, until `resume`. Receivers wait; enqueuing and settling go on. */
  pause(options?: CommitOptions): Promise<void>;
  resume(options?: CommitOptions): Promise<void>;
  /**
   * Removes every task that is not leased, and returns how many. Leased ones can still be settled, and given back. Dead
   * letters stay.
   */
  purge(options?: CommitOptions): Promise<number>;
  /** Changes what is stored with the queue; takes effect at once, for what is there already too. */
  configure(settings: TaskSettings, options?: CommitOptions): Promise<void>;
  settings(): Promise<StoredTaskSettings>;
  /**
   * Has a task that nobody has been handed never come: ready, waiting for its time, or for its next attempt. False when it
   * is leased, done, dead or unknown; then nothing has changed. Its dedupe key goes on standing for it.
   * @throws VarveError `ERR_ARGUMENT`, `ERR_CORRUPT`, `ERR_DISK_FULL`, `ERR_READ_ONLY`, `ERR_CLOSED`
   */
  cancel(task: TaskName, options?: CommitOptions): Promise<boolean>;
  /**
   * Gives such a task another time, sooner or later; its attempts so far count on. False as with `cancel`.
   * @throws VarveError as `cancel`, `ERR_OPTION` (not one of `delay` and `at`)
   */
  reschedule(
    task: TaskName,
    due: { readonly delay?: Duration | undefined; readonly at?: Date | undefined },
    options?: CommitOptions,
  ): Promise<boolean>;
  /**
   * Has the queue enqueue a task again and again, durably, while it is open: one for each due time, over restarts too. A
   * schedule of that name is replaced; if it had the same times it goes on where it was. When the wall clock is set back,
   * due times that were passed do not come again.
   * @throws VarveError `ERR_OPTION` (no cron expression, an unknown time zone, times that never come), `ERR_ARGUMENT` (the
   * name), `ERR_QUEUE_FULL` (10,000 schedules), `ERR_TOO_LARGE` (also the queue's own limit), and as `enqueue`
   */
  schedule(name: string, spec: ScheduleSpec, input: Input<I>, options?: ScheduledTaskOptions): Promise<void>;
  /** Ends a schedule. False when there is none of that name. Tasks that it has enqueued stay. */
  unschedule(name: string, options?: CommitOptions): Promise<boolean>;
  /** By name. */
  schedules(): Promise<ScheduleInfo[]>;
  /**
   * A second reader of the queue's tasks, with a durable position of its own; made when there is none of that name, at the
   * oldest task that is available. At most 1,000.
   * @throws VarveError `ERR_QUEUE_NAME` (as for a queue), `ERR_NOT_FOUND` (there is none, and `create` is false),
   * `ERR_QUEUE_FULL`, `ERR_DISK_FULL`, `ERR_READ_ONLY`, `ERR_CLOSED`
   */
  cursor(name: string, options?: CursorOptions): Promise<TaskCursor<O>>;
  /** The names of the cursors, in order. */
  cursors(): Promise<string[]>;
  /** Deletes a cursor, with its position and what it has read. False when there is none. Its handles end with `ERR_NOT_FOUND`. */
  deleteCursor(name: string, options?: CommitOptions): Promise<boolean>;
  /**
   * Finishes a task for good, and keeps what it brought for the queue's `resultTtl`, all in one commit.
   * @throws VarveError as `ack` of every source; `ERR_ENCODE` (JSON would not bring the result back equal),
   * `ERR_TOO_LARGE` (it has more than 64 KiB), `ERR_DISK_FULL`; nothing has changed then
   */
  ack(task: TaskRef, options?: AckOptions): Promise<void>;
  /**
   * Notes how far a leased task has got: anything that JSON brings back equal, at most 1 KiB of it. Durable; `status` tells
   * it until the task has ended.
   * @throws VarveError `ERR_STALE_LEASE`, `ERR_TOKEN`, `ERR_ENCODE`, `ERR_TOO_LARGE`, `ERR_DISK_FULL`, `ERR_READ_ONLY`,
   * `ERR_CLOSED`
   */
  progress(task: TaskRef, value: unknown, options?: CommitOptions): Promise<void>;
  /**
   * The tasks that are in a state, the most urgent first and then as they were enqueued, without taking them. Page on with
   * `after: last.position`. To list scheduled tasks may take reading all their due times from disk.
   * @throws VarveError `ERR_OPTION`, `ERR_CORRUPT`, `ERR_CLOSED`
   */
  list(options: ListOptions): Promise<ListedTask<O>[]>;
  /**
   * Where a task stands. Looks through the dead letters, the newest first, when it stands nowhere else and there are any.
   * @throws VarveError `ERR_ARGUMENT`, `ERR_CORRUPT`, `ERR_CLOSED`
   */
  status(id: string): Promise<TaskStatus>;
  /**
   * What a task brought, once it is done; `undefined` when it brought nothing, or its result is not kept any more. Does not
   * end the wait of a task that fails and will be delivered again.
   * @throws VarveError `ERR_TASK_DEAD` (`details.reason`), `ERR_TIMEOUT` (not done in time), `ERR_ABORTED`,
   * `ERR_NOT_FOUND` (there is no such task; or it was cancelled, purged, dropped, or its time was over while it was waited
   * for: `details.ended` says which), `ERR_ARGUMENT`, `ERR_CORRUPT`, `ERR_READ_ONLY`, `ERR_CLOSED`
   */
  result<R = unknown>(id: string, options?: ResultOptions): Promise<R>;
  stats(): Promise<TaskStats>;
}

/** A delivered task, or just its token. */
export type TaskRef = string | { readonly token: string };

export interface Task<O = Buffer> {
  readonly id: string;
  /** 1 at the first delivery. */
  readonly attempt: number;
  /** Proves the lease to `ack`, `nack`, `release` and `extend`; good for this one delivery. Empty with `autoAck`. */
  readonly token: string;
  /** Milliseconds since 1970 when it was enqueued. */
  readonly timestamp: number;
  /** 0 to 9; 0 for the records of a log. */
  readonly priority: number;
  readonly orderKey: string | undefined;
  /** Milliseconds since 1970 after which it would not have been delivered, as it was enqueued; `undefined`: none. */
  readonly expiresAt: number | undefined;
  readonly key: Buffer | undefined;
  readonly headers: Headers;
  readonly payload: O;
}

export interface TaskStats {
  readonly kind: "task";
  readonly name: string;
  /** Could be delivered now. Of tasks with an order key, those that were not come to yet are counted here. */
  readonly ready: number;
  /** Waiting for their time: delayed, or in backoff. */
  readonly scheduled: number;
  readonly leased: number;
  /** Passed over, as others with their order key come first; or waiting for their children. */
  readonly blocked: number;
  readonly dead: number;
  /** Milliseconds that the oldest ready task has been ready; 0 when none is. */
  readonly oldestReadyAge: number;
  /** Milliseconds that the longest-held lease has been held; 0 when none is. */
  readonly oldestLeaseAge: number;
  /** Milliseconds until the next scheduled task is due; undefined when none is scheduled. */
  readonly nextDueIn: number | undefined;
  /** Milliseconds since the oldest dead letter died; 0 when there is none. */
  readonly oldestDeadAge: number;
  /** Payload bytes of the tasks that are ready or scheduled; what `limits.maxBytes` is about. */
  readonly bytesReady: number;
  readonly paused: boolean;
  /** Tasks enqueued since the directory was opened, as all that follow; those that were redriven are not counted again. */
  readonly enqueued: number;
  /** Deliveries, those with `autoAck` included. */
  readonly delivered: number;
  /** Tasks done: acknowledged, or delivered with `autoAck`. */
  readonly acked: number;
  /** Deliveries that failed, by a nack or the end of the lease, and whose task is to be delivered again. */
  readonly nacked: number;
  /** Deliveries given back undone. */
  readonly released: number;
  /** Tasks whose time was over, whatever `onExpire` made of them. */
  readonly expired: number;
  /** Tasks that were dropped to make room for others. */
  readonly discarded: number;
  /** Tasks that became dead letters. */
  readonly died: number;
  /** Dead letters that were dropped as there were more than `maxDeadLetters`. */
  readonly deadDropped: number;
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
  /** Only those that died at least so long ago, by the wall clock. @defaultValue all, however young */
  readonly olderThan?: Duration | undefined;
  /** At most this many of those, oldest first. @defaultValue all */
  readonly limit?: number | undefined;
}

export interface CursorOptions {
  /** False: `ERR_NOT_FOUND` when there is none. @defaultValue true */
  readonly create?: boolean | undefined;
}

/**
 * A reader beside a task queue: it is given the queue's tasks in the order in which they were enqueued, the most urgent
 * priority first, and changes nothing for the queue or for other cursors. All who open it by its name share it.
 *
 * It is given what is available, which is what the queue could give out: a task that is done, leased or waiting for its time
 * is passed over. Such a task is read later if it becomes available before the cursor has taken one behind it. The queue
 * does not wait for a cursor, and an unused cursor holds nothing back. One task serves a waiting reader of each cursor
 * before it is given to a reader of the queue; a queue that is paused goes on serving its cursors.
 *
 * What a cursor has taken is kept for it until it is acknowledged, whatever becomes of the task in the queue. A read that is
 * released, or whose lease ends, goes to the end of the cursor's list of failed reads, which comes before what it has not
 * read; there is no limit to the attempts. A task whose time is over is never given, not as a failed read either.
 *
 * A purge of the queue leaves its cursors nothing that is old, failed reads included.
 */
export interface TaskCursor<O = Buffer> {
  readonly name: string;
  /** The name of the task queue. */
  readonly queue: string;
  /**
   * Takes the next task under a lease, waiting for one up to `wait`. The position is durable before the task is handed out.
   * A payload that cannot be decoded is passed over and logged as an error.
   * @throws VarveError `ERR_CORRUPT`, `ERR_NOT_FOUND` (the cursor was deleted), `ERR_READ_ONLY`, `ERR_CLOSED`
   */
  dequeue(options?: DequeueOptions): Promise<Task<O> | undefined>;
  /** Takes up to `max` (1 to 65,536) tasks in one commit; waits only while there is none at all. */
  dequeueBatch(options: DequeueOptions & { readonly max: number }): Promise<Task<O>[]>;
  /**
   * The cursor is done with a task. In the queue it stays what it is.
   * @throws VarveError `ERR_STALE_LEASE`, `ERR_TOKEN`, `ERR_NOT_FOUND`
   */
  ack(task: TaskRef, options?: CommitOptions): Promise<void>;
  /** The same for all of them in one commit. If one is refused, the cursor is done with none. */
  ackBatch(tasks: readonly TaskRef[], options?: CommitOptions): Promise<void>;
  /** Gives tasks back: behind the other failed reads. All of them in one commit. */
  release(tasks: TaskRef | readonly TaskRef[], options?: CommitOptions): Promise<void>;
  /** The task that `dequeue` would give, without taking it; as `peek` of a queue. */
  peek(options?: PeekOptions): Promise<PeekedTask<O> | undefined>;
  /**
   * Forgets the failed reads and sets the position back to just before the oldest task that is available, so that
   * everything still in the queue is read again. What is in a reader's hands stays there, and is passed over while it is.
   */
  reset(options?: CommitOptions): Promise<void>;
  stats(): Promise<TaskCursorStats>;
}

export interface TaskCursorStats {
  /**
   * Tasks that are available and have not been read, and reads that failed. Near enough while the cursor is ahead of the queue
   * and tasks wait for their time.
   */
  readonly items: number;
  /** Reads that are open. */
  readonly open: number;
}

/** Kept until redriven or purged; what `maxDeadLetters` drops is counted, never dropped silently. */
export interface DeadLetters<O = Buffer> {
  /** Oldest first, 1000 unless `limit` (at most 100,000) says otherwise. Page on with `after: last.offset`. */
  read(options?: { readonly after?: number; readonly limit?: number }): Promise<DeadLetter<O>[]>;
  /** Moves dead letters back to their queue with a fresh attempt count; each is in exactly one place. Returns how many. */
  redrive(selection?: DeadSelection, options?: CommitOptions): Promise<number>;
  /** Deletes dead letters. Returns how many. Other than all of them, and those redriven, in commits of up to 256. */
  purge(selection?: DeadSelection, options?: CommitOptions): Promise<number>;
}

// ------------------------------------------------------------------------------------------------------------- worker

/**
 * Does the work of one task. What it returns is the task's result, where results are kept. Delivery is at least once:
 * it must bear being called twice for a task.
 */
export type Handler<O = Buffer> = (task: Task<O>, context: WorkContext) => unknown;

/** What a handler can ask of its worker. The members may be taken apart: `(task, { signal, progress }) => ...`. */
export interface WorkContext {
  /**
   * Aborted when the outcome of this call no longer counts: its lease is lost, its time is up (`timeout`), or the worker
   * was closed and does not wait any longer. `signal.reason` is the error that says which.
   */
  readonly signal: AbortSignal;
  /**
   * Notes how far the task is, as JSON of at most 1 KiB, for whoever asks the queue for its status.
   * @throws VarveError `ERR_ARGUMENT` (this queue keeps no progress), and what the queue's `progress` throws
   */
  progress(value: unknown): Promise<void>;
  /** Makes the lease end no earlier than `lease` from now, for work that blocks the event loop longer than the lease. */
  extend(lease: Duration): Promise<void>;
  /**
   * Lets the handler settle its task itself, for instance in a transaction together with what follows from it. The lease
   * is not renewed meanwhile, and once `how` has resolved the worker neither acknowledges the task nor gives it back.
   * If it rejects, the attempt has failed, even if the handler returns.
   */
  settle(how: () => Promise<unknown>): Promise<void>;
}

export interface WorkOptions extends Omit<CommitOptions, "request"> {
  /** Handlers that run at once; the worker takes no more tasks than it has handlers free. 1 to 65,536. @defaultValue 1 */
  readonly concurrency?: number | undefined;
  /** Lease of each delivery, renewed after a third of it while the handler runs. @defaultValue the queue's lease */
  readonly lease?: Duration | undefined;
  /**
   * Longest time for one call of the handler. After it the signal is aborted, the task is given back as failed, and the
   * next one takes its place, whether the handler heeds the signal or not. @defaultValue none
   */
  readonly timeout?: Duration | undefined;
}

export interface WorkerEvents<O = Buffer> {
  /** The handler has returned and its task is done. */
  readonly completed: readonly [task: Task<O>, result: unknown];
  /** The attempt has failed and the task will be delivered again. With `ERR_STALE_LEASE`: its lease was lost. */
  readonly failed: readonly [task: Task<O>, error: unknown];
  /** The attempt has failed and the task is a dead letter now. */
  readonly dead: readonly [task: Task<O>, error: unknown];
  /**
   * The worker itself could not do something: take tasks, renew a lease, record an outcome (then with the task). It goes
   * on, unless the queue takes no more changes or is gone. Without a listener, these go to the logger.
   */
  readonly error: readonly [error: Error, task: Task<O> | undefined];
}

export interface CloseWorkerOptions {
  /** Longest wait for the handlers that run. @defaultValue none: until all have ended */
  readonly timeout?: Duration | undefined;
}

/** Takes tasks and has a handler do them. Keeps the process alive until it is closed. */
export interface Worker<O = Buffer> extends AsyncDisposable {
  /** Handlers that run and whose outcome counts, or is being recorded. */
  readonly running: number;
  /** Handlers that still run although their signal was aborted. */
  readonly abandoned: number;
  readonly paused: boolean;
  /** Resolves, and never rejects, once the worker has ended: by `close`, or because its queue is closed or failed. */
  readonly closed: Promise<void>;
  on<E extends keyof WorkerEvents<O>>(event: E, listener: (...args: WorkerEvents<O>[E]) => void): this;
  off<E extends keyof WorkerEvents<O>>(event: E, listener: (...args: WorkerEvents<O>[E]) => void): this;
  /** Takes no more tasks until `resume`; handlers that run go on. */
  pause(): void;
  resume(): void;
  /**
   * Takes no more tasks, keeps the leases of running handlers alive and records their outcomes. After `timeout` aborts
   * the signals of those left and gives their tasks back. May be called again, also with an earlier end.
   * @throws VarveError `ERR_OPTION`
   */
  close(options?: CloseWorkerOptions): Promise<void>;
}

// -------------------------------------------------------------------------------------------------------- transaction

/**
 * Collects the operations of one commit. Only usable inside the callback that it was given to. Buffers that are passed are
 * read when the callback has returned: they may be used again once `transaction` has, but not inside the callback.
 */
export interface Transaction {
  // biome-ignore lint/suspicious/noExplicitAny: any queue's payload types fit; `input` is checked against them
  append<I>(queue: LogQueue<I, any>, input: Input<I>, options?: Omit<AppendOptions, keyof CommitOptions>): void;
  // biome-ignore lint/suspicious/noExplicitAny: as above
  enqueue<I>(queue: TaskQueue<I, any>, input: Input<I>, options?: Omit<EnqueueOptions, keyof CommitOptions>): void;
  // biome-ignore lint/suspicious/noExplicitAny: as above
  ack(queue: TaskSource<any>, task: TaskRef, options?: Omit<AckOptions, keyof CommitOptions>): void;
  // biome-ignore lint/suspicious/noExplicitAny: as above
  nack(queue: TaskSource<any>, task: TaskRef, options?: Omit<NackOptions, keyof CommitOptions>): void;
  // biome-ignore lint/suspicious/noExplicitAny: as above
  release(queue: TaskSource<any>, task: TaskRef, options?: Omit<ReleaseOptions, keyof CommitOptions>): void;
  /** Moves a group's position behind a record, as `commit` of the member does. */
  // biome-ignore lint/suspicious/noExplicitAny: as above
  commitGroup(member: GroupMember<any>, upTo: number | { readonly offset: number }): void;
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
  /**
   * Lets several processes use the directory, all of which must say so. The first one owns it and serves the others through
   * a socket beside the data; when it ends, however it does, another one takes over and calls go on there. Of the other
   * options only the owner's count, but where its `durability` is async, sync is refused by `ERR_OPTION`.
   * @defaultValue false
   */
  readonly shared?: boolean | undefined;
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
  /**
   * Queues of the directory, at most: a further one is refused with `ERR_TOO_MANY_QUEUES`. Those that are there, also above
   * the limit, can be used. @defaultValue Infinity; 10,000 for a daemon
   */
  readonly maxQueues?: number | undefined;
  /** @defaultValue silent */
  readonly logger?: Logger | undefined;
}
