/**
 * The room that a log's limits leave. An append that does not fit is refused, waits until something is removed, or has
 * the oldest records removed in its own commit.
 */

import { VarveError } from "../api/errors.js";
import { formatBytes } from "../api/units.js";
import type { RecordParts } from "../storage/batch.js";
import type { Stream } from "../storage/stream.js";
import type { LogState } from "./log-state.js";

/** Calls that wait for room, at most. */
const WAITING_CALLS_MAX = 65_536;
const WAITING_BYTES_MAX = 32 * 1024 * 1024;
/** What a record takes besides its payload, about. */
const RECORD_OVERHEAD_BYTES = 16;

/** What an append takes of a log's room. */
export interface Need {
  readonly records: number;
  readonly bytes: number;
}

/** Room taken for an append on its way. */
export interface RoomClaim {
  /** Below this offset everything goes in the same commit. */
  readonly dropTo: number;
  /** The records have got their offsets. */
  staged(): void;
  /** The append has been applied; what it drops goes next. */
  applied(): void;
  /** The append has failed, and drops nothing. */
  failed(): void;
}

interface Waiting {
  readonly need: Need;
  readonly run: () => void;
  readonly reject: (error: Error) => void;
}

export class LogRoom {
  readonly #state: LogState;
  /** Claimed for records that are not in the stream yet; those that are staged count among its offsets. */
  #bytes = 0;
  #records = 0;
  /** Claims that drop something and have not ended. */
  readonly #drops = new Set<RoomClaim>();
  /** Where the head will be when those have been applied. */
  #head = 0;
  #waiting: Waiting[] = [];
  #waitingBytes = 0;

  constructor(state: LogState) {
    this.#state = state;
  }

  /** Whether there are any limits. */
  get limited(): boolean {
    const { maxCount, maxBytes } = this.#state.config.limits;
    return maxCount > 0 || maxBytes > 0;
  }

  /**
   * Whether an append fits. When it does not: "wait", or the offset below which everything has to go for it.
   * @param place "line": behind those who wait; "head": it has waited; "transaction": it cannot wait
   * @throws VarveError `ERR_QUEUE_FULL`, `ERR_TOO_LARGE` (it would not even fit the empty log)
   */
  ask(need: Need, place: "line" | "head" | "transaction"): "fits" | "wait" | number {
    const { maxCount, maxBytes, whenFull } = this.#state.config.limits;
    if ((maxCount > 0 && need.records > maxCount) || (maxBytes > 0 && need.bytes > maxBytes)) {
      throw new VarveError(
        "ERR_TOO_LARGE",
        `the append has ${need.records} records of ${formatBytes(need.bytes)}; ${this.#limits()}. Split it, or raise the limits.`,
        { details: { size: need.bytes, limit: maxBytes } },
      );
    }
    const over = this.#over(need, this.#firstKept);
    if (over === undefined && (place === "head" || this.#waiting.length === 0)) return "fits";
    if (whenFull === "drop-oldest") return this.#dropTo(need);
    if (whenFull === "wait" && place !== "transaction") return "wait";
    throw new VarveError(
      "ERR_QUEUE_FULL",
      `${this.#state.name} is full: ${this.#limits()}. Nothing was appended; trim it, let retention do so, or raise the limits.`,
      { details: { queue: this.#state.name } },
    );
  }

  /** Takes the room. Returns the claim on it. */
  take(need: Need, dropTo: number): RoomClaim {
    if (dropTo > this.#head) this.#head = dropTo;
    this.#bytes += need.bytes;
    this.#records += need.records;
    let { bytes, records } = need;
    const staged = () => {
      this.#records -= records;
      records = 0;
    };
    const applied = () => {
      staged();
      this.#bytes -= bytes;
      bytes = 0;
      this.#drops.delete(claim);
    };
    const failed = () => {
      const dropped = this.#drops.has(claim);
      applied();
      if (dropped && dropTo === this.#head)
        this.#head = [...this.#drops].reduce((head, each) => Math.max(head, each.dropTo), 0);
    };
    const claim: RoomClaim = { dropTo, staged, applied, failed };
    if (dropTo > 0) this.#drops.add(claim);
    return claim;
  }

  /** Calls `run` when there is room. What waits is bounded. */
  wait(need: Need, run: () => void, reject: (error: Error) => void): void {
    if (this.#waiting.length >= WAITING_CALLS_MAX || this.#waitingBytes + need.bytes > WAITING_BYTES_MAX) {
      const message = `${this.#waiting.length} calls already wait for room in ${this.#state.name}; this one was refused.`;
      reject(new VarveError("ERR_OVERLOADED", message));
      return;
    }
    this.#waiting.push({ need, run, reject });
    this.#waitingBytes += need.bytes;
  }

  /** Lets those in who wait, as far as there is room. */
  serve(): void {
    while (this.#waiting.length > 0) {
      const { need, run } = this.#waiting[0]!;
      const { whenFull } = this.#state.config.limits;
      if (whenFull === "wait" && this.#over(need, this.#firstKept) !== undefined) return;
      this.#waiting.shift();
      this.#waitingBytes -= need.bytes;
      run();
    }
  }

  close(error: Error): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    this.#waitingBytes = 0;
    for (const { reject } of waiting) reject(error);
  }

  get #firstKept(): number {
    return Math.max(this.#head, this.#state.stream.head);
  }

  /** How much too much there would be with an append and without what is below an offset; undefined if it fits. */
  #over({ records, bytes }: Need, from: number): Need | undefined {
    const { stream, extent, config } = this.#state;
    const { maxCount, maxBytes } = config.limits;
    const tooMany = maxCount === 0 ? 0 : stream.recordsLeft(from, stream.staged) + this.#records + records - maxCount;
    const kept = from === stream.head ? extent.bytes : extent.bytesFrom(from);
    const tooMuch = maxBytes === 0 ? 0 : kept + this.#bytes + bytes - maxBytes;
    return tooMany <= 0 && tooMuch <= 0 ? undefined : { records: Math.max(0, tooMany), bytes: Math.max(0, tooMuch) };
  }

  /** Below which offset everything has to go for an append. */
  #dropTo(need: Need): number {
    const { stream, extent } = this.#state;
    let from = stream.skipGaps(this.#firstKept);
    let over = this.#over(need, from);
    // By offsets first; what is still too much, unit by unit.
    if (over !== undefined && over.records > 0) {
      from = behind(stream, from, over.records);
      over = this.#over(need, from);
    }
    if (over === undefined) return from;
    let left = over.bytes;
    for (const unit of extent.unitsFrom(from)) {
      const first = Math.max(from, unit.first);
      const perOffset = unit.bytes / (unit.next - unit.first);
      const offsets = Math.ceil(left / perOffset);
      if (first + offsets <= unit.next) return first + offsets;
      left -= perOffset * (unit.next - first);
      from = unit.next;
    }
    // What is left are records on their way, of which some have to go as well.
    return stream.staged;
  }

  #limits(): string {
    const { maxCount, maxBytes } = this.#state.config.limits;
    const limits: string[] = [];
    if (maxCount > 0) limits.push(`${maxCount} records`);
    if (maxBytes > 0) limits.push(formatBytes(maxBytes));
    return `${this.#state.name} holds at most ${limits.join(" and ")}`;
  }
}

/** The offset behind so many records from one on. */
function behind({ gaps }: Stream, from: number, records: number): number {
  let to = from + records;
  for (const gap of gaps) {
    if (gap.to <= from) continue;
    if (gap.from >= to) break;
    to += gap.to - Math.max(gap.from, from);
  }
  return to;
}

/** The room that records take, about. */
export function needOf(records: readonly RecordParts[]): Need {
  let bytes = 0;
  for (const { payload } of records) bytes += RECORD_OVERHEAD_BYTES + Buffer.byteLength(payload);
  return { records: records.length, bytes };
}
