/**
 * A group of readers of a log: one durable position that they share, and whose turn it is to read.
 *
 * The position, what was lost and when the group last did something are durable; each is changed by operations of the
 * log's, in `apply` and in `replay` alike. The members and their turn live only as long as the process: after it, what
 * was read and not committed is read again.
 */

import { VarveError } from "../api/errors.js";
import type { Decoder, Encoder } from "../storage/bytes.js";
import type { Stream } from "../storage/stream.js";

/** On disk: append, never renumber. */
export const GroupType = { exclusive: 1, shared: 2 } as const;

/** Records that were removed before they were read, which nobody has been told of yet. */
export interface Missed {
  readonly from: number;
  readonly count: number;
}

/** One reader of a group, in this process. */
export class Membership {
  readonly sessionMs: number;
  /** The offset that it reads next. */
  next = 0;
  missed: Missed | undefined;
  /** Calls under way: a member that waits for records is not idle. */
  calls = 0;
  /** Elapsed time when its last call ended. */
  seenMs: number;
  /** Why it can do nothing any more. */
  ended: Error | undefined;
  /** Wakes a call of its that waits: for its turn, or for records. */
  readonly wakes = new Set<() => void>();

  constructor(sessionMs: number, nowMs: number) {
    this.sessionMs = sessionMs;
    this.seenMs = nowMs;
  }

  end(error: Error): void {
    this.ended ??= error;
    this.wake();
  }

  wake(): void {
    for (const wake of [...this.wakes]) wake();
  }
}

export class Group {
  readonly groupId: number;
  readonly name: string;
  readonly type = GroupType.exclusive;
  readonly #log: string;
  readonly #stream: Stream;
  /** Everything below is done; never below the head of the log. */
  committed: number;
  /** Records that were removed before they were done, as far as a member was told of them. */
  #lost = 0;
  /** The others, which the next member is told of. */
  #missed: Missed | undefined;
  /** Elapsed time when the group last did something. */
  activeMs: number;
  /** In the order in which they joined. */
  readonly members = new Set<Membership>();
  #active: Membership | undefined;

  constructor(id: number, name: string, log: string, stream: Stream, committed: number, activeMs: number) {
    this.groupId = id;
    this.name = name;
    this.#log = log;
    this.#stream = stream;
    this.committed = committed;
    this.activeMs = activeMs;
  }

  static decode(log: string, stream: Stream, id: number, name: string, input: Decoder): Group {
    const group = new Group(id, name, log, stream, input.varint(), input.varint());
    group.#lost = input.varint();
    const count = input.varint();
    if (count > 0) group.#missed = { from: input.varint(), count };
    return group;
  }

  encode(output: Encoder): void {
    output.varint(this.committed);
    output.varint(this.activeMs);
    output.varint(this.#lost);
    output.varint(this.#missed?.count ?? 0);
    if (this.#missed !== undefined) output.varint(this.#missed.from);
  }

  get lost(): number {
    // What the member whose turn it is has read already is not lost, although it is not committed.
    const missed = this.#active === undefined ? this.#missed : this.#active.missed;
    return this.#lost + (missed?.count ?? 0);
  }

  get lag(): number {
    return Math.max(0, this.#stream.recordsLeft(this.committed, this.#stream.visible));
  }

  // --------------------------------------------------------------------------------------------------- applied changes

  /** @param position one more than the offset of the last record that is done */
  commit(position: number, nowMs: number): void {
    this.activeMs = nowMs;
    if (position <= this.committed) return;
    this.committed = position;
    // Whoever commits has read what was removed, or has been told.
    this.#missed = undefined;
    // The one that did may have left meanwhile: what is done is not read again by who has the turn now.
    const active = this.#active;
    if (active === undefined || active.next >= position) return;
    active.next = position;
    active.missed = undefined;
  }

  /** @param lost records that were removed before the member that seeks had read them, and that it was not told of */
  seek(position: number, lost: number, nowMs: number): void {
    this.activeMs = nowMs;
    this.#lost += lost;
    this.#missed = undefined;
    this.committed = Math.max(position, this.#stream.head);
    for (const member of this.members) if (member === this.#active) this.#place(member);
  }

  /** A member is about to be told of records that were removed. */
  lose(count: number, nowMs: number): void {
    this.activeMs = nowMs;
    this.#lost += count;
    this.#missed = undefined;
  }

  /**
   * A member could not be told of what was counted, as the directory has failed: it is to be told after all.
   * @param next where it was to go on
   */
  untold(member: Membership, { from, count }: Missed, next: number): void {
    this.#lost -= count;
    const { missed } = member;
    // Unless it has moved meanwhile, by more than what was removed since.
    if (this.#active !== member || (missed?.from ?? member.next) !== next) return;
    member.missed = { from, count: count + (missed?.count ?? 0) };
  }

  /** Before the head of the log moves to an offset. */
  trimmed(offset: number): void {
    if (this.#active !== undefined && this.#active.next < offset) {
      this.#active.missed = this.#missing(this.#active.missed, this.#active.next, offset);
      this.#active.next = offset;
    }
    if (this.committed >= offset) return;
    this.#missed = this.#missing(this.#missed, this.committed, offset);
    this.committed = offset;
  }

  #missing(before: Missed | undefined, from: number, to: number): Missed | undefined {
    const count = this.#stream.recordsLeft(from, to);
    if (count <= 0) return before;
    return { from: before?.from ?? from, count: (before?.count ?? 0) + count };
  }

  // ---------------------------------------------------------------------------------------------------------- the turn

  join(member: Membership): void {
    this.members.add(member);
    if (this.#active === undefined) this.#activate(member);
  }

  /** The turn goes to the member that has waited longest; one that waits in a call comes before one that does not. */
  leave(member: Membership, nowMs: number): void {
    this.members.delete(member);
    if (this.#active !== member) return;
    this.#active = undefined;
    const standbys = [...this.members];
    const next = standbys.find((standby) => standby.calls > 0) ?? standbys[0];
    if (next === undefined) return;
    next.seenMs = nowMs;
    this.#activate(next);
  }

  isActive(member: Membership): boolean {
    return this.#active === member;
  }

  /** Takes the turn for a member if it can have it: it is free, or its holder has been idle too long. */
  claim(member: Membership, nowMs: number): boolean {
    const holder = this.#active;
    if (holder === member) return true;
    if (holder !== undefined) {
      if (this.turnEndsMs > nowMs) return false;
      this.members.delete(holder);
      holder.end(this.fenced());
    }
    this.#activate(member);
    return true;
  }

  /** Elapsed time from which on another member may take the turn; Infinity while its holder is at work. */
  get turnEndsMs(): number {
    const holder = this.#active;
    if (holder === undefined) return 0;
    return holder.calls > 0 ? Number.POSITIVE_INFINITY : holder.seenMs + holder.sessionMs;
  }

  /** A call of a member begins. */
  enter(member: Membership): void {
    member.calls++;
  }

  /** A call of a member is over: from now on it is idle, unless others are under way. */
  exit(member: Membership, nowMs: number): void {
    member.calls--;
    member.seenMs = nowMs;
    if (this.#active === member && member.calls === 0) this.#wakeStandbys();
  }

  fenced(): VarveError {
    return new VarveError(
      "ERR_FENCED",
      `another member of group ${this.name} of ${this.#log} has taken over, as this one made no call for the time of its ` +
        "session. Nothing was changed; what was read and not committed is the other's now. Join again with group().",
      { details: { group: this.name } },
    );
  }

  /** Ends all members, when the group is deleted or its log is. */
  end(error: Error): void {
    this.#active = undefined;
    for (const member of this.members) member.end(error);
    this.members.clear();
  }

  #activate(member: Membership): void {
    this.#active = member;
    this.#place(member);
    member.missed = this.#missed;
  }

  #place(member: Membership): void {
    member.next = this.committed;
    member.missed = undefined;
    member.wake();
  }

  #wakeStandbys(): void {
    for (const member of [...this.members]) if (member !== this.#active) member.wake();
  }
}
