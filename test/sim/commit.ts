/** The calls of clients, what they send, and how a life of the machine ended: what all parts of the model speak of. */

export type Outcome = "pending" | "acked" | "refused" | "unknown";

/** One call that changes something. */
export class Commit {
  /** Order in which calls were made, and their answers came, on one scale. */
  readonly number: number;
  readonly label: string;
  readonly sync: boolean;
  readonly madeMs: number;
  /** Messages that it sends, and those that it ends for good. */
  readonly items: Item[] = [];
  readonly ended: Item[] = [];
  outcome: Outcome = "pending";
  answeredNumber = Number.POSITIVE_INFINITY;
  answeredMs = Number.POSITIVE_INFINITY;
  /** It gives tasks back undone, among other things. */
  releases = false;
  /** Must survive whatever comes: it was found after a recovery, or shown by a directory that only shows what is durable. */
  durable = false;

  constructor(number: number, label: string, sync: boolean, madeMs: number) {
    this.number = number;
    this.label = label;
    this.sync = sync;
    this.madeMs = madeMs;
  }

  get possible(): boolean {
    return this.outcome !== "refused";
  }

  get acked(): boolean {
    return this.outcome === "acked";
  }
}

/** What is known of a message besides where it is. */
export interface ItemTraits {
  /** Not delivered before, in elapsed time of this life of the machine. */
  readonly dueMs?: number;
  readonly bytes?: number;
  /** Of a log that is compacted. */
  readonly key?: string | undefined;
  readonly tombstone?: boolean;
  /** Deliveries that it allows, where that is less than its queue does. */
  readonly maxAttempts?: number;
  readonly priority?: number;
  readonly dedupeKey?: string | undefined;
  readonly orderKey?: string | undefined;
  /** How long it lives from when it is committed. */
  readonly ttlMs?: number | undefined;
}

/**
 * One message, from when it was sent. For a shared group, a record is an item of its own besides that of the log: what the
 * group has done with it.
 */
export interface Item {
  readonly number: number;
  readonly queue: string;
  readonly commit: Commit;
  readonly bytes: number;
  readonly key: string | undefined;
  readonly tombstone: boolean;
  readonly maxAttempts: number;
  readonly priority: number;
  readonly dedupeKey: string | undefined;
  readonly orderKey: string | undefined;
  readonly ttlMs: number | undefined;
  /** In elapsed time of this life: it may be gone from then on, and is not delivered to who asks after that. */
  expiry: { readonly earliestMs: number; readonly latestMs: number } | undefined;
  /** Its queue was deleted, and the item with it. */
  deleted: boolean;
  /** What a client was told that it is called. */
  id: string | undefined;
  /** It was to wait for its time at some time. */
  delayed: boolean;
  /** The last call that gave it another time, if it takes effect. */
  rescheduling: Commit | undefined;
  /** Where a client was told that it stands: an offset in a log, a place among the tasks of a source. */
  offset: number | undefined;
  place: string | undefined;
  /** Calls that end it if they take effect. */
  readonly acks: Commit[];
  /** Calls that end it if they find it where they look: dead letters that are purged. */
  readonly purges: Commit[];
  dueMs: number;
}

export function newItem(number: number, queue: string, commit: Commit, traits: ItemTraits = {}): Item {
  const { dueMs = 0, bytes = 0, key, tombstone = false, maxAttempts = Number.POSITIVE_INFINITY } = traits;
  const { priority = 0, dedupeKey, orderKey, ttlMs } = traits;
  const expiry =
    ttlMs === undefined ? undefined : { earliestMs: commit.madeMs + ttlMs, latestMs: Number.POSITIVE_INFINITY };
  const sent = {
    number,
    queue,
    commit,
    bytes,
    key,
    tombstone,
    maxAttempts,
    priority,
    dedupeKey,
    orderKey,
    ttlMs,
    expiry,
  };
  return {
    ...sent,
    delayed: dueMs > 0,
    rescheduling: undefined,
    deleted: false,
    id: undefined,
    offset: undefined,
    place: undefined,
    acks: [],
    purges: [],
    dueMs,
  };
}

/** A call from long ago, or from nobody, that has taken effect. */
export function durableCommit(label: string): Commit {
  const commit = new Commit(0, label, true, 0);
  commit.outcome = "acked";
  commit.durable = true;
  return commit;
}

/** Labels of calls after which a task can never be done. */
export const ENDS: ReadonlySet<string> = new Set(["cancel", "end"]);

/** How a life of the machine ended. */
export interface Ending {
  readonly kind: "close" | "kill" | "power";
  /** Offsets may be passed over: the power was cut, perhaps after a close, or a disk or a recovery failed. */
  readonly passesOver: boolean;
  readonly nowMs: number;
  /** When the life that follows had recovered what was left. Before, no time passes for what waits in queues. */
  readonly openedMs: number;
  /** Acknowledged this long ago: durable in any mode. */
  readonly asyncMs: number;
  /** A disk fault may have kept later syncs from working. */
  readonly faulty: boolean;
}

/** Whether an end leaves a change in force. */
export function isRequired(commit: Commit, ending: Ending): boolean {
  if (commit.durable) return true;
  if (!commit.acked) return false;
  if (commit.sync) return true;
  if (ending.kind === "close") return true;
  if (ending.faulty) return false;
  return ending.kind !== "power" || ending.nowMs - commit.answeredMs > ending.asyncMs;
}

/** What a recovery left of the messages. */
export interface Found {
  /** In one place. */
  readonly items: Set<Item>;
  /** No longer there, as they may be: trimmed, acked, purged. */
  readonly gone: Set<Item>;
  /** Those of them that may have gone without the call of anybody who held them: expired, dropped, superseded. */
  readonly goneAlone: Set<Item>;
  /** There is no telling. */
  readonly unsure: Set<Item>;
}

/** A time of the life before in the one that follows. What was over stays over, whatever the rounding. */
export interface Shift {
  readonly lastMs: number;
  readonly nowMs: number;
}

export function shifted(ms: number, byMs: number, { lastMs, nowMs }: Shift): number {
  return ms - byMs <= lastMs ? 0 : nowMs + (ms - byMs - lastMs);
}

export interface SeenRecord {
  readonly offset: number;
  /** Undefined when the bytes are nobody's message. */
  readonly item: number | undefined;
}
