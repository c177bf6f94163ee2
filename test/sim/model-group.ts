import { type Commit, type Ending, type Found, isRequired } from "./commit.js";
import type { Model } from "./model.js";
import type { LogModel, SeenGroup } from "./model-log.js";

/** A change of a group's position. */
interface Move {
  readonly to: number;
  /** Also back. */
  readonly seeks: boolean;
  readonly commit: Commit;
}

/** A reader of a group, in this life of the process. */
export interface ReaderModel {
  /** Where it reads on; undefined until it has read, or sought. */
  next: number | undefined;
  /** Reads that are under way. */
  reading: number;
  /** It has left. Reads that were under way may still be answered. */
  gone: boolean;
}

/** An exclusive group of a log: where it stands, and whose turn it is. */
export class GroupModel {
  readonly name: string;
  readonly model: Model;
  private readonly log: LogModel;
  private base: number;
  private moves: Move[] = [];
  /** Below this, records are gone, as was told to a member, or found when the group was made. */
  private lostTo = 0;
  /** Who was given records last; nobody is known to have the turn after a member has left, or a restart. */
  private holder: ReaderModel | undefined;

  constructor(name: string, model: Model, log: LogModel, base: number) {
    this.name = name;
    this.model = model;
    this.log = log;
    this.base = base;
  }

  /** It has been made, where there still was something at the time. */
  begins(at: number): void {
    if (at > this.base) this.lostTo = Math.max(this.lostTo, at);
  }

  join(): ReaderModel {
    return { next: undefined, reading: 0, gone: false };
  }

  left(reader: ReaderModel): void {
    reader.gone = true;
    if (this.holder === reader) this.holder = undefined;
  }

  /** A member was given records, or none because there are none. */
  read(reader: ReaderModel, records: readonly { readonly offset: number }[]): void {
    const [first] = records;
    if (first === undefined) {
      this.failed(reader);
      return;
    }
    // Where nobody is known to have the turn, it may have been this member's all the while.
    const own = this.holder === undefined && reader.next !== undefined ? [reader.next] : [];
    const from = this.turn(reader);
    if (from !== undefined) this.log.follows(from, first.offset);
    else if (![...own, ...this.positionsNow].some((position) => this.log.mayPass(position, first.offset))) {
      this.violate(`reading began at ${first.offset}, and the position was ${this.positionsNow}`);
    }
    reader.next = records[records.length - 1]!.offset + 1;
  }

  /** Whether a member got the turn without being given anything is not known. */
  failed(reader: ReaderModel): void {
    if (this.holder !== reader) this.holder = undefined;
  }

  /** A member was told of records that had been removed before it read them. */
  missed(reader: ReaderModel, offset: number, next: number, lost: number): void {
    const from = this.turn(reader);
    if (from !== undefined && !this.log.mayPass(from, offset)) {
      this.violate(`records from ${offset} on were called lost; reading had come to ${from}`);
    }
    const records = this.log.recordsIn(offset, next);
    // How many a compacted log had left there is not known.
    if (this.log.removal.compacts ? lost > records : lost !== records) {
      this.violate(`${lost} records were called lost between ${offset} and ${next}, which are ${records}`);
    }
    reader.next = next;
    this.lostTo = Math.max(this.lostTo, next);
  }

  /** Takes note that it is this member's turn. Returns where it reads on, if that is known. */
  private turn(reader: ReaderModel): number | undefined {
    const known = this.holder === reader ? reader.next : undefined;
    if (!reader.gone) this.holder = reader;
    return known;
  }

  /** A member commits. Returns whether it must be refused: it cannot have read so far, or it is another one's turn. */
  committing(reader: ReaderModel, offset: number, far: boolean, commit: Commit): boolean {
    this.moves.push({ to: offset + 1, seeks: false, commit });
    if (far) return true;
    return this.holder !== undefined && this.holder !== reader && reader.reading === 0;
  }

  committed(refusable: boolean, commit: Commit): void {
    if (refusable) this.violate(`${commit.label} ${commit.number} was accepted from a member that may not make it`);
  }

  seeking(offset: number, commit: Commit): void {
    this.moves.push({ to: offset, seeks: true, commit });
  }

  /** Whether a seek that was not answered well has taken effect is not known, nor where its member reads on. */
  notSought(reader: ReaderModel, { outcome }: Commit): void {
    if (outcome === "unknown") this.holder = undefined;
    else this.failed(reader);
  }

  sought(reader: ReaderModel, offset: number): void {
    this.turn(reader);
    reader.next = offset;
  }

  /** Where the group may stand: after all that took effect for sure, and any of what may have. */
  private positions(tookEffect: (commit: Commit) => boolean, mayHave: (commit: Commit) => boolean): number[] {
    const last = this.moves.findLastIndex(({ commit }) => tookEffect(commit));
    let position = this.base;
    const positions = last < 0 ? [position] : [];
    for (const [at, { to, seeks, commit }] of this.moves.entries()) {
      if (!mayHave(commit)) continue;
      position = seeks ? to : Math.max(position, to);
      if (at >= last) positions.push(position);
    }
    return positions;
  }

  /** The same as clients know it while the directory is open. */
  private get positionsNow(): number[] {
    const positions = this.positions(
      ({ acked }) => acked,
      ({ possible }) => possible,
    );
    return positions.map((each) => Math.max(each, this.lostTo));
  }

  recovered(seen: SeenGroup, head: number, ending: Ending, found: Found): void {
    // What else is in a commit says whether it took effect.
    const isThere = ({ items }: Commit) => items.some((item) => found.items.has(item));
    const isLost = ({ items }: Commit) => {
      return items.length > 0 && !items.some((item) => found.items.has(item) || found.gone.has(item) || item.deleted);
    };
    const possible = this.positions(
      (commit) => isRequired(commit, ending) || isThere(commit),
      (commit) => commit.possible && !isLost(commit),
    );
    const positions = possible.map((position) => Math.max(position, head));
    if (!positions.includes(seen.committed)) {
      this.violate(`stands at ${seen.committed} after a ${ending.kind}, and should at one of ${positions}`);
    }
    this.base = seen.committed;
    this.moves = [];
    this.lostTo = 0;
    this.holder = undefined;
  }

  /** A position as told to a client. */
  told(committed: number, head: number): void {
    const positions = this.positionsNow.map((position) => Math.max(position, head));
    if (!positions.includes(committed)) this.violate(`stands at ${committed}, and should at one of ${positions}`);
  }

  private violate(text: string): void {
    this.model.violate(`${this.name}: ${text}`);
  }
}
