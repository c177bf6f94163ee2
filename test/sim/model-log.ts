import {
  type Commit,
  durableCommit,
  type Ending,
  type Found,
  type Item,
  isRequired,
  type SeenRecord,
} from "./commit.js";
import type { Model } from "./model.js";

/** What a log removes by itself. */
export interface LogRemoval {
  /** It leaves at least so many records, or so many bytes of them; Infinity when it leaves all. */
  readonly leavesRecords: number;
  readonly leavesBytes: number;
  readonly compacts: boolean;
  /** Tombstones, too, are removed. */
  readonly tombstonesGo: boolean;
  /** Records that it holds at most; Infinity for no limit. */
  readonly holdsRecords: number;
}

const KEEPS_ALL: LogRemoval = {
  leavesRecords: Number.POSITIVE_INFINITY,
  leavesBytes: Number.POSITIVE_INFINITY,
  compacts: false,
  tombstonesGo: false,
  holdsRecords: Number.POSITIVE_INFINITY,
};

export interface SeenGroup {
  readonly name: string;
  readonly committed: number;
}

export interface SeenLog {
  readonly name: string;
  readonly head: number;
  /** Where the next record goes. */
  readonly next: number;
  readonly records: readonly SeenRecord[];
  /** The exclusive ones. */
  readonly groups: readonly SeenGroup[];
}

/** A log as its clients know it. */
export class LogModel {
  readonly name: string;
  readonly model: Model;
  removal: LogRemoval = KEEPS_ALL;
  /** What each offset was ever said to hold. */
  readonly shown = new Map<number, number>();
  readonly items: Item[] = [];
  /** Items that had been superseded by the time of a recovery: they do not come back. */
  private readonly superseded = new Set<Item>();
  private trims: { readonly least: number; readonly most: number; readonly commit: Commit }[] = [];
  /** Offsets passed over after power cuts, as `from`. */
  readonly jumps = new Map<number, number>();

  constructor(name: string, model: Model) {
    this.name = name;
    this.model = model;
  }

  read({ offset, item: number }: SeenRecord): void {
    const item = this.model.known(this.name, offset, number);
    if (item === undefined) return;
    this.show(offset, item);
    item.offset ??= offset;
    if (this.model.showsDurable) item.commit.durable = true;
  }

  placed(item: Item, offset: number): void {
    item.offset = offset;
    this.show(offset, item);
  }

  /** The head is to move to an offset within these bounds, or stay where it is. */
  trimming(least: number, most: number, commit: Commit): void {
    this.trims.push({ least, most, commit });
  }

  show(offset: number, item: Item): void {
    this.model.show(this.name, this.shown, offset, item.number);
  }

  /** Records that one reader was given, one after another. */
  scanned(records: readonly SeenRecord[]): void {
    for (let at = 1; at < records.length; at++) this.follows(records[at - 1]!.offset + 1, records[at]!.offset);
  }

  /** A reader that was to go on at an offset was given the record at another one. */
  follows(expected: number, offset: number): void {
    if (this.mayPass(expected, offset)) return;
    this.model.violate(`${this.name}: a read went from offset ${expected - 1} to ${offset}`);
  }

  mayPass(from: number, to: number): boolean {
    if (from === to || this.mayJump(from, to)) return true;
    if (to < from) return false;
    for (let at = this.skipJumps(from); at < to; at = this.skipJumps(at + 1)) {
      const number = this.shown.get(at);
      const item = number === undefined ? undefined : this.model.items.get(number);
      if (item === undefined || !this.mayBeCompacted(item)) return false;
    }
    return true;
  }

  /** Records that were given offsets in [from, to). */
  recordsIn(from: number, to: number): number {
    let count = 0;
    for (let at = this.skipJumps(from); at < to; at = this.skipJumps(at + 1)) count++;
    return count;
  }

  counted(count: number): void {
    const { holdsRecords } = this.removal;
    if (count > holdsRecords) this.model.violate(`${this.name}: holds ${count} records, and at most ${holdsRecords}`);
  }

  recovered(seen: SeenLog | undefined, ending: Ending, found: Found): void {
    const { name } = this;
    const head = seen?.head ?? 0;
    let expected = head;
    const jumpTo = (offset: number) => {
      if (offset === expected || this.mayPass(expected, offset)) return;
      if (!ending.passesOver || offset < expected) {
        this.model.violate(`${name}: offset ${offset} follows ${expected - 1} after a ${ending.kind}`);
      }
      this.jumps.set(expected, offset);
    };
    for (const { offset, item: number } of seen?.records ?? []) {
      const item = this.model.known(name, offset, number);
      if (item === undefined) continue;
      if (found.items.has(item)) this.model.violate(`${name}: message ${item.number} stands twice, now at ${offset}`);
      found.items.add(item);
      this.show(offset, item);
      if (this.superseded.has(item)) this.model.violate(`${name}: message ${item.number} is there again at ${offset}`);
      if (item.offset !== undefined && item.offset !== offset) {
        this.model.violate(`${name}: message ${item.number} was given offset ${item.offset} and stands at ${offset}`);
      }
      item.offset = offset;
      jumpTo(offset);
      expected = offset + 1;
    }
    if (seen !== undefined) jumpTo(seen.next);
    this.recoveredHead(seen, head, ending);
    for (const item of this.items) {
      if (found.items.has(item)) continue;
      if (item.offset !== undefined && item.offset < head) found.gone.add(item);
      else if (item.offset === undefined && head > 0) found.unsure.add(item);
      else if (this.superseded.has(item)) found.gone.add(item);
      else if (!this.wasCompacted(item, found)) continue;
      // Was it lost, or was it there and then superseded?
      else if (!isRequired(item.commit, ending)) found.unsure.add(item);
      else {
        this.superseded.add(item);
        found.gone.add(item);
      }
    }
    if (seen !== undefined) this.counted(seen.records.length);
  }

  private recoveredHead(seen: SeenLog | undefined, head: number, ending: Ending): void {
    const { name } = this;
    let least = 0;
    let most = 0;
    for (const trim of this.trims) {
      if (isRequired(trim.commit, ending)) least = Math.max(least, trim.least);
      if (trim.commit.possible) most = Math.max(most, trim.most);
    }
    if (head < least) this.model.violate(`${name}: the head is ${head}; a trim to ${least} was acknowledged`);
    // A head may stand behind a jump.
    const behindJump = this.jumps.get(most) === head || [...this.jumps.values()].includes(head);
    if (seen !== undefined && most < head && !behindJump && !this.removesUpTo(seen)) {
      this.model.violate(`${name}: the head is ${head}; trims went to ${most}, and ${seen.records.length} are left`);
    }
    // What was trimmed stays so, whoever asked for it.
    this.trims = [{ least: head, most: head, commit: durableCommit("trim") }];
  }

  /** Whether what is left is as much as the log leaves of itself. Records behind may be lost, but not those it counted. */
  private removesUpTo({ records }: SeenLog): boolean {
    const { leavesRecords, leavesBytes } = this.removal;
    if (records.length >= leavesRecords) return true;
    let bytes = 0;
    for (const { item } of records) bytes += 200 + (this.model.items.get(item ?? 0)?.bytes ?? 0);
    return bytes >= leavesBytes;
  }

  /** Whether an item that is not there was superseded, as far as can be told while others come and go. */
  private mayBeCompacted(item: Item): boolean {
    if (!this.removal.compacts || item.key === undefined) return false;
    if (item.tombstone && this.removal.tombstonesGo) return true;
    return this.items.some((other) => isLater(other, item) && other.commit.possible);
  }

  /** The same after a recovery, when it is known what there is: a later record, or a tombstone that was there once. */
  private wasCompacted(item: Item, found: Found): boolean {
    const { compacts, tombstonesGo } = this.removal;
    if (!compacts || item.key === undefined || item.offset === undefined) return false;
    if (item.tombstone && tombstonesGo) {
      const older = this.items.find((other) => found.items.has(other) && isLater(item, other));
      if (older !== undefined && item.commit.durable) {
        this.model.violate(`${this.name}: message ${older.number} is there, but not its tombstone ${item.number}`);
      }
      return true;
    }
    return this.items.some((other) => {
      if (!isLater(other, item)) return false;
      return found.items.has(other) || (other.tombstone && tombstonesGo && other.commit.possible);
    });
  }

  /** Whether readers may have passed over a record that is there: what left it out may have been undone by the end. */
  isSuperseded(item: Item, found: Found): boolean {
    const { compacts, tombstonesGo } = this.removal;
    if (!compacts || item.key === undefined) return false;
    if (item.tombstone && tombstonesGo) return true;
    return this.items.some((other) => isLater(other, item) && (found.items.has(other) || found.gone.has(other)));
  }

  private skipJumps(offset: number): number {
    let at = offset;
    for (const [first, next] of this.jumps) if (at >= first && at < next) at = next;
    return at;
  }

  /** Whether the offsets in between were passed over, all of them or, where a log was trimmed, the rest. */
  private mayJump(from: number, to: number): boolean {
    for (const [first, next] of this.jumps) if (next === to && first <= from) return true;
    return false;
  }
}

/** Whether one record supersedes another. */
function isLater(one: Item, other: Item): boolean {
  if (one.key !== other.key || one === other || other.offset === undefined) return false;
  return one.offset === undefined ? one.number > other.number : one.offset > other.offset;
}
