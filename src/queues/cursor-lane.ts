import type { Engine } from "../engine/engine.js";
import type { RecordCursor } from "../storage/batch.js";
import { Lane } from "./lane.js";
import { type Ledger, type Outstanding, TaskPhase } from "./ledger.js";
import { isOver, isSetAside, type TaskAttributes } from "./task-record.js";
import type { WallGuard } from "./wall-guard.js";

/** Deliveries allowed, as stored: no limit. */
const UNLIMITED = 1;

/** When the time of a task is over. */
interface ExpiryRules {
  /** Caps the life of every task; 0: no cap. */
  readonly ttlMs: number;
  readonly guard: WallGuard;
}

/**
 * A lane of a task queue as one of its cursors reads it: in the order of the offsets, whatever order the queue itself
 * gives them out in, and only what the queue could give out now. The position moves when a task is taken, and not when
 * one is passed over: what becomes available again behind it is still read.
 */
export class CursorLane extends Lane {
  readonly #main: Lane;
  readonly #rules: ExpiryRules;
  #clock: Engine["clock"] | undefined;
  /** From the position to here, there was nothing when `comebacks` and the ttl were what they are here. */
  #nothingBelow = 0;
  #comebacks = -1;
  #cappedAtMs = 0;
  /** What it has read and not finished, from the position on, which only a reset leaves. */
  readonly #readAhead = new Set<number>();
  /** What the queue had handed out or postponed, and could give out, at that time: in order. */
  #backAgain: number[] = [];
  #nextBack = 0;

  /**
   * @param main the queue's own
   * @param rules the queue's
   */
  constructor(title: string, main: Lane, ledger: Ledger, rules: ExpiryRules) {
    super(title, main.stream, ledger);
    this.#main = main;
    this.#rules = rules;
    this.#noteReadAhead();
  }

  override attach(engine: Engine): void {
    super.attach(engine);
    this.#clock = engine.clock;
  }

  /** A cursor does not count attempts: a task goes back to it as often as its readers fail. */
  override attributes(record: RecordCursor): TaskAttributes {
    return { ...super.attributes(record), limit: UNLIMITED };
  }

  /**
   * Tasks that it has not read and that are available. Exact, except that of those scheduled for later and not yet come
   * to by the queue, the ones nearest to it are taken to stand first.
   */
  override get fresh(): number {
    const { ledger } = this;
    const main = this.#main;
    const from = Math.max(this.from, main.from);
    const ahead = main.ledger.aheadBelow(from) - main.ledger.aheadBelow(main.from);
    let count = Math.max(0, main.fresh - this.stream.recordsBetween(main.from, from) + ahead);
    for (const offset of ledger.outstanding.keys()) if (offset >= from) count--;
    for (const task of main.ledger.outstanding) if (this.#isBack(task)) count++;
    return Math.max(0, count);
  }

  override get deliverable(): number {
    this.#refresh();
    const { ready, returned } = this.ledger;
    const back = this.#backAgain.length - this.#nextBack;
    const from = Math.max(this.from, this.#nothingBelow, this.#main.from);
    return ready.size + returned.length + back + Math.max(0, this.stream.next - from);
  }

  override nextFresh(limit: number): "record" | "end" | "load" {
    const { reader } = this;
    const main = this.#main;
    this.#refresh();
    for (let at = Math.max(this.from, this.#nothingBelow); ; ) {
      // Below where the queue is, there is only what came back to it.
      if (at < main.from) at = Math.min(this.#backFrom(at), main.from);
      this.#nothingBelow = at;
      reader.seek(at);
      const found = reader.next(limit);
      if (found === "end") this.#nothingBelow = limit;
      // It may have passed offsets whose records are gone, up to where it has to read on.
      if (found === "load") this.#nothingBelow = Math.max(at, reader.position);
      if (found !== "record" || this.#isAvailable(reader.record)) return found;
      at = reader.record.offset + 1;
    }
  }

  override passDamage(error: unknown): void {
    super.passDamage(error);
    this.#nothingBelow = Math.max(this.#nothingBelow, this.taken);
  }

  /** Forgets where it was: the position has been set. */
  override rewind(position: number): void {
    super.rewind(position);
    this.#comebacks = -1;
    this.#noteReadAhead();
  }

  #noteReadAhead(): void {
    const { cursor, outstanding } = this.ledger;
    this.#readAhead.clear();
    for (const offset of outstanding.keys()) if (offset >= cursor) this.#readAhead.add(offset);
  }

  /** Looks again at what is behind, if anything came back, was finished, or may have come back to life. */
  #refresh(): void {
    const { comebacks, outstanding } = this.#main.ledger;
    const { ttlMs } = this.#rules;
    let isSame = comebacks === this.#comebacks && ttlMs === this.#cappedAtMs;
    for (const offset of this.#readAhead) {
      if (this.ledger.outstanding.has(offset)) continue;
      this.#readAhead.delete(offset);
      isSame = false;
    }
    if (isSame) return;
    this.#comebacks = comebacks;
    this.#cappedAtMs = ttlMs;
    this.#nothingBelow = 0;
    this.#nextBack = 0;
    this.#backAgain = [];
    if (this.from >= this.#main.from) return;
    for (const task of outstanding) if (this.#isBack(task)) this.#backAgain.push(task.offset);
    this.#backAgain.sort((a, b) => a - b);
  }

  #backFrom(offset: number): number {
    for (; this.#nextBack < this.#backAgain.length; this.#nextBack++) {
      const back = this.#backAgain[this.#nextBack]!;
      if (back >= offset) return back;
    }
    return Number.POSITIVE_INFINITY;
  }

  /** Whether the queue has had it out and could give it out again, and the cursor has not read it. */
  #isBack(task: Outstanding): boolean {
    return task.offset >= this.from && !this.ledger.outstanding.has(task.offset) && isGivable(task);
  }

  #isAvailable(record: RecordCursor): boolean {
    const { offset } = record;
    const { ledger } = this;
    const main = this.#main;
    // Read already: it stands among those that are open or failed. Or done, as a repair has found.
    if (ledger.outstanding.has(offset) || ledger.ahead.has(offset)) return false;
    const task = main.ledger.outstanding.get(offset);
    if (task === undefined) {
      if (offset < main.from || main.ledger.ahead.has(offset)) return false;
      if (offset >= main.ledger.marksFrom && isSetAside(record.attributes())) return false;
    } else if (!isGivable(task)) {
      return false;
    }
    const { ttlMs, guard } = this.#rules;
    return !isOver(record, this.attributes(record), ttlMs, this.#clock!.wallMs(), guard);
  }
}

/** The offset of the first task of a lane that its queue could give out now; behind the last one if there is none. */
export function oldestAvailable({ ledger, from, stream }: Lane): number {
  let oldest = Math.min(from, stream.next);
  for (const task of ledger.outstanding) if (task.offset < oldest && isGivable(task)) oldest = task.offset;
  return oldest;
}

function isGivable({ phase, reserved }: Outstanding): boolean {
  return !reserved && (phase === TaskPhase.Ready || phase === TaskPhase.Returned);
}
