/**
 * The tasks of a queue that were enqueued for later: a timetable for each lane, the stream of their blocks, and the clock
 * that delays run on. See timetable.ts for how they are kept.
 *
 *   op         fields                                              effect
 *   Schedule   lane, delay, wall clock due (0: relative), offset, n    n tasks from an offset on wait for their time
 *   Spill      lane, clock, n { block offset, count }              the last entries in memory stand in blocks now
 *   Unspill    lane, clock, block offset, bytes, entries           a block's entries are in memory again
 *   Credit     ms                                                  the directory was closed for so long
 *
 * The record of such a task says that it is one: the cursor passes it without anybody remembering it.
 */

import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { FIRST_QUEUE_OP, type LogTime } from "../engine/queue-state.js";
import { Wake } from "../engine/wake.js";
import { BATCH_HEADER_BYTES, recordBytesMax } from "../storage/batch.js";
import { type Decoder, type Encoder, MalformedError, VARINT_BYTES_MAX } from "../storage/bytes.js";
import type { Stream } from "../storage/stream.js";
import { readRecord } from "../storage/stream-reader.js";
import {
  type Block,
  decodeEntries,
  ENTRIES_MAX,
  LEAD_MS,
  type Outgoing,
  type TimetableEntry,
  Wheel,
  WheelClock,
} from "./timetable.js";

/** On disk: append, never renumber. */
export const ScheduledOp = {
  Schedule: FIRST_QUEUE_OP + 1,
  Spill: FIRST_QUEUE_OP + 64,
  Unspill: FIRST_QUEUE_OP + 65,
  Credit: FIRST_QUEUE_OP + 66,
} as const;

const SCHEDULED_OPS: ReadonlySet<number> = new Set(Object.values(ScheduledOp));

export function isScheduledOp(code: number): boolean {
  return SCHEDULED_OPS.has(code);
}

export const SCHEDULE_BYTES_MAX = OPERATION_HEADER_BYTES + 5 * VARINT_BYTES_MAX;
/** After a failure, blocks are read or written again when this has passed. */
const RETRY_MS = 1000;

/** When a task that was enqueued for later is due. */
export interface DueTerms {
  readonly delayMs: number;
  /** By the wall clock; 0: `delayMs` from its commit. */
  readonly wallMs: number;
}

/** Takes a task whose time has come. */
export interface Ripener {
  /** Whether it would take another one: what nobody fetches stays where it is. */
  readonly hasRoom: boolean;
  /** @param since elapsed time at which it was due, about */
  ripened(offset: number, since: number): void;
}

export interface ScheduledHost {
  readonly id: number;
  readonly name: string;
  /** The stream of blocks, which is added if there is none. Not between `begin` and `add`. */
  blockStream(): Stream;
  /** Records of a lane say that they wait for their time; the cursor will pass them. */
  setAside(lane: number, count: number): void;
  /** Tasks may have become ready, or will at another time than was thought. */
  changed(): void;
}

type Wheels = readonly [elapsed: Wheel, wall: Wheel];

export class Scheduled {
  readonly #host: ScheduledHost;
  readonly #lanes = new Map<number, Wheels>();
  /** Time that the directory was closed, which counts for delays. */
  #creditMs = 0;
  /** When an operation was last seen, and the directory's generation then. */
  #seen: LogTime = { elapsedMs: 0, wallMs: 0 };
  #generation = 0;
  #resumption: { readonly last: LogTime; readonly now: LogTime } | undefined;
  #engine: Engine | undefined;
  /** Elapsed time before which nothing is tried again. */
  #notBefore = 0;
  readonly #spill = new Wake(() => this.#spillAll());

  constructor(host: ScheduledHost) {
    this.#host = host;
  }

  // ------------------------------------------------------------------------------------------------------- life

  attach(engine: Engine): void {
    this.#engine = engine;
    this.#creditClosedTime(engine);
    this.#generation = engine.generation;
    for (const wheels of this.#lanes.values()) {
      if (wheels.some((wheel) => wheel.inMemory > ENTRIES_MAX)) engine.wake(this.#spill);
    }
  }

  resume(last: LogTime, now: LogTime): void {
    this.#resumption = { last, now };
  }

  /** Notes the time that the directory was closed, or that this queue was not in use while it was closed. */
  #creditClosedTime(engine: Engine): void {
    const resumption = this.#resumption;
    this.#resumption = undefined;
    if (resumption === undefined || this.#countOf(WheelClock.Elapsed) === 0) return;
    const { last, now } = resumption;
    // A wall clock that was set while the directory was open does not count, as far as that can be told.
    const sinceClose = now.wallMs - last.wallMs;
    const sinceSeen = now.wallMs - this.#seen.wallMs - (last.elapsedMs - this.#seen.elapsedMs);
    const closedMs = this.#generation === engine.generation - 1 ? sinceClose : Math.max(sinceClose, sinceSeen);
    if (closedMs <= 0) return;
    const credit = Math.floor(closedMs);
    try {
      engine.begin(0, 0, OPERATION_HEADER_BYTES + VARINT_BYTES_MAX, true);
    } catch (error) {
      engine.logger.warn(
        { queue: this.#host.name, error },
        "delays do not count the time that the directory was closed",
      );
      return;
    }
    engine.operation(ScheduledOp.Credit, this.#host.id).varint(credit);
    engine.endOperation();
    engine.add({
      durability: engine.options.durability,
      apply: () => {
        this.#credit(credit, engine.entryTime);
        this.#host.changed();
      },
      settle() {},
      fail() {},
    });
  }

  #credit(ms: number, time: LogTime): void {
    this.#creditMs += ms;
    this.#seen = time;
  }

  // ------------------------------------------------------------------------------------------------------ numbers

  /** Tasks that wait, those included whose time has come but that were not taken yet. */
  get size(): number {
    if (this.#lanes.size === 0) return 0;
    return this.#countOf(WheelClock.Elapsed) + this.#countOf(WheelClock.Wall);
  }

  /** Those of a lane whose time has come, about: what is in blocks is counted block by block. */
  due(lane: number, elapsedMs: number, wallMs: number): number {
    let due = 0;
    this.#each(lane, (wheel, clock) => {
      due += wheel.dueCount(this.#now(clock, elapsedMs, wallMs));
    });
    return due;
  }

  /** Milliseconds until the next task is due; undefined when none waits. */
  dueIn(elapsedMs: number, wallMs: number): number | undefined {
    let dueIn: number | undefined;
    for (const lane of this.#lanes.keys()) {
      this.#each(lane, (wheel, clock) => {
        const { nextDue } = wheel;
        if (nextDue === undefined) return;
        dueIn = Math.min(dueIn ?? Number.POSITIVE_INFINITY, nextDue - this.#now(clock, elapsedMs, wallMs));
      });
    }
    return dueIn;
  }

  /** The lowest offset of a lane's tasks, or less; Infinity when there is none. */
  lowest(lane: number): number {
    let lowest = Number.POSITIVE_INFINITY;
    this.#each(lane, (wheel) => {
      lowest = Math.min(lowest, wheel.lowest);
    });
    return lowest;
  }

  mayHold(lane: number, from: number, to: number): boolean {
    let holds = false;
    this.#each(lane, (wheel) => {
      holds ||= wheel.mayHold(from, to);
    });
    return holds;
  }

  /** The first record of the stream of blocks that is still needed. */
  get lowestBlock(): number {
    let lowest = Number.POSITIVE_INFINITY;
    for (const wheels of this.#lanes.values()) for (const wheel of wheels) lowest = Math.min(lowest, wheel.lowestBlock);
    return lowest;
  }

  /** Where the blocks stand. */
  blockOffsets(): number[] {
    const offsets: number[] = [];
    for (const wheels of this.#lanes.values()) {
      for (const wheel of wheels) for (const { offset } of wheel.blocks()) offsets.push(offset);
    }
    return offsets.sort((a, b) => a - b);
  }

  needsBlocks(from: number, to: number): boolean {
    for (const wheels of this.#lanes.values()) {
      for (const wheel of wheels)
        for (const { offset } of wheel.blocks()) if (offset >= from && offset < to) return true;
    }
    return false;
  }

  #countOf(clock: WheelClock): number {
    let count = 0;
    for (const wheels of this.#lanes.values()) count += wheels[clock].size;
    return count;
  }

  #wheels(lane: number): Wheels {
    let wheels = this.#lanes.get(lane);
    if (wheels === undefined) {
      wheels = [new Wheel(), new Wheel()];
      this.#lanes.set(lane, wheels);
    }
    return wheels;
  }

  #each(lane: number, visit: (wheel: Wheel, clock: WheelClock) => void): void {
    const wheels = this.#lanes.get(lane);
    if (wheels === undefined) return;
    for (const clock of [WheelClock.Elapsed, WheelClock.Wall]) if (wheels[clock].size > 0) visit(wheels[clock], clock);
  }

  /** The time that a wheel goes by. */
  #now(clock: WheelClock, elapsedMs: number, wallMs: number): number {
    return clock === WheelClock.Wall ? wallMs : elapsedMs + this.#creditMs;
  }

  // -------------------------------------------------------------------------------------------------- time goes by

  /** Elapsed time when something is to be done for a lane; Infinity when nothing is. */
  nextAt(lane: number, hasRoom: boolean, elapsedMs: number, wallMs: number): number {
    let at = Number.POSITIVE_INFINITY;
    this.#each(lane, (wheel, clock) => {
      const now = this.#now(clock, elapsedMs, wallMs);
      if (hasRoom && wheel.firstDue !== undefined) at = Math.min(at, elapsedMs + wheel.firstDue - now);
      const block = wheel.nextToLoad;
      // While there is no room, blocks whose time has come are read as those before them are fetched.
      if (block === undefined || (!hasRoom && wheel.inMemory > 0)) return;
      at = Math.min(at, Math.max(this.#notBefore, elapsedMs + block.firstDue - LEAD_MS - now));
    });
    return at;
  }

  /** Whether something waits by the wall clock, which may be set. */
  waitsForWall(lane: number): boolean {
    return (this.#lanes.get(lane)?.[WheelClock.Wall].size ?? 0) > 0;
  }

  /** Gives up tasks whose time has come, as far as there is room for them, and fetches those that come next. */
  ripen(lane: number, to: Ripener, elapsedMs: number, wallMs: number): void {
    this.#each(lane, (wheel, clock) => {
      const now = this.#now(clock, elapsedMs, wallMs);
      while (to.hasRoom) {
        const entry = wheel.popDue(now);
        if (entry === undefined) break;
        to.ripened(entry.offset, clock === WheelClock.Wall ? elapsedMs : entry.due - this.#creditMs);
      }
      if (!to.hasRoom && wheel.inMemory > 0) return;
      const block = wheel.blockToLoad(now);
      if (block !== undefined && elapsedMs >= this.#notBefore) void this.#load(lane, clock, wheel, block);
    });
  }

  /** Whether a block is being read that holds tasks of a lane whose time has come. */
  isLoadingDue(lane: number, elapsedMs: number, wallMs: number): boolean {
    let loading = false;
    this.#each(lane, (wheel, clock) => {
      const block = wheel.firstBlock;
      loading ||= block?.loading === true && block.firstDue <= this.#now(clock, elapsedMs, wallMs);
    });
    return loading;
  }

  /**
   * While the log is repeated: a task was handed out, so its time had come. Gives up those that come before it as well, but
   * no others: all that was given up then is known to be.
   */
  ripenUntil(lane: number, offset: number, to: Ripener, time: LogTime): void {
    const wheels = this.#lanes.get(lane) ?? [];
    // Mostly it is the next one.
    const wheel = wheels.find((each) => each.firstOffset === offset) ?? wheels.find((each) => each.has(offset));
    if (wheel === undefined) return;
    const clock = wheel === wheels[WheelClock.Wall] ? WheelClock.Wall : WheelClock.Elapsed;
    const now = this.#now(clock, time.elapsedMs, time.wallMs);
    for (let entry = wheel.popDue(now); entry !== undefined; entry = wheel.popDue(now)) {
      to.ripened(entry.offset, time.elapsedMs);
      if (entry.offset === offset) return;
    }
    // Due when it was handed out, not when that was written: the wall clock was set back in between.
    if (wheel.remove(offset)) to.ripened(offset, time.elapsedMs);
  }

  // ------------------------------------------------------------------- changes, live and when the log is repeated

  schedule(lane: number, first: number, count: number, { delayMs, wallMs }: DueTerms, time: LogTime): void {
    this.#seen = time;
    const wheel = this.#wheels(lane)[wallMs > 0 ? WheelClock.Wall : WheelClock.Elapsed];
    const due = wallMs > 0 ? wallMs : time.elapsedMs + this.#creditMs + delayMs;
    for (let offset = first; offset < first + count; offset++) wheel.add(due, offset);
    if (wheel.inMemory > ENTRIES_MAX) this.#engine?.wake(this.#spill);
  }

  /** Takes a task out of memory. False when it is not there. */
  remove(lane: number, offset: number): boolean {
    return this.#lanes.get(lane)?.some((wheel) => wheel.remove(offset)) === true;
  }

  has(lane: number, offset: number): boolean {
    return this.#lanes.get(lane)?.some((wheel) => wheel.has(offset)) === true;
  }

  /** Whether a task stands in a block, or has come back from it. */
  holds(lane: number, clock: WheelClock, blockOffset: number, offset: number): boolean {
    const wheel = this.#wheels(lane)[clock];
    const block = wheel.block(blockOffset);
    return block === undefined ? wheel.has(offset) : block.struck?.has(offset) !== true;
  }

  /** Takes a task out of the block that it was found in, or of memory if it has come back since. */
  strike(lane: number, clock: WheelClock, blockOffset: number, offset: number): boolean {
    return this.#wheels(lane)[clock].strike(blockOffset, offset);
  }

  clear(): void {
    for (const wheels of this.#lanes.values()) for (const wheel of wheels) wheel.clear();
  }

  replay(code: number, input: Decoder, time: LogTime): void {
    if (code === ScheduledOp.Credit) {
      this.#credit(input.varint(), time);
      return;
    }
    const lane = input.varint();
    if (code === ScheduledOp.Schedule) {
      const terms = { delayMs: input.varint(), wallMs: input.varint() };
      const first = input.varint();
      const count = input.varint();
      this.#host.setAside(lane, count);
      this.schedule(lane, first, count, terms, time);
      return;
    }
    const wheel = this.#wheels(lane)[wheelClock(input.varint())];
    if (code === ScheduledOp.Spill) {
      wheel.spill(Array.from({ length: input.varint() }, () => ({ offset: input.varint(), count: input.varint() })));
    } else {
      const offset = input.varint();
      wheel.unspill(offset, decodeEntries(input.bytes(input.varint())));
    }
  }

  encode(output: Encoder): void {
    output.varint(this.#creditMs);
    output.varint(this.#seen.elapsedMs);
    output.varint(this.#seen.wallMs);
    output.varint(this.#generation);
    const lanes = [...this.#lanes].filter(([, wheels]) => wheels.some((wheel) => wheel.size > 0));
    output.varint(lanes.length);
    for (const [lane, wheels] of lanes) {
      output.varint(lane);
      for (const wheel of wheels) wheel.encode(output);
    }
  }

  decode(input: Decoder): void {
    this.#creditMs = input.varint();
    this.#seen = { elapsedMs: input.varint(), wallMs: input.varint() };
    this.#generation = input.varint();
    for (let count = input.varint(); count > 0; count--) {
      const lane = input.varint();
      this.#lanes.set(lane, [Wheel.decode(input), Wheel.decode(input)]);
    }
  }

  // ---------------------------------------------------------------------------------------------------------- staging

  /** Stages that records just staged, `count` from `first` on, wait for their time. */
  stage(engine: Engine, lane: number, first: number, count: number, { delayMs, wallMs }: DueTerms): void {
    const output = engine.operation(ScheduledOp.Schedule, this.#host.id);
    output.varint(lane);
    output.varint(delayMs);
    output.varint(wallMs);
    output.varint(first);
    output.varint(count);
    engine.endOperation();
  }

  /** Where a task of a lane stands: in memory, in a block, or nowhere. Reads the blocks that may hold it. */
  async find(lane: number, offset: number): Promise<"memory" | { clock: WheelClock; block: number } | undefined> {
    if (this.has(lane, offset)) return "memory";
    const wheels = this.#lanes.get(lane);
    if (wheels === undefined) return undefined;
    for (const clock of [WheelClock.Elapsed, WheelClock.Wall]) {
      for (const block of [...wheels[clock].blocks()]) {
        if (offset < block.lowest || offset > block.highest || block.struck?.has(offset) === true) continue;
        if (wheels[clock].block(block.offset) !== block) continue;
        const entries = decodeEntries(await this.#read(block));
        if (entries.some((entry) => entry.offset === offset)) return { clock, block: block.offset };
      }
    }
    // It may have come back while blocks were read.
    return this.has(lane, offset) ? "memory" : undefined;
  }

  /** Shows every task of a lane with an offset from one on, perhaps twice, and when it is due by the wall clock; undefined: it is. */
  async visit(lane: number, from: number, see: (offset: number, dueAt: number | undefined) => void): Promise<void> {
    const engine = this.#engine!;
    const wheels = this.#lanes.get(lane);
    if (wheels === undefined) return;
    for (const clock of [WheelClock.Elapsed, WheelClock.Wall]) {
      const wheel = wheels[clock];
      const dueAt = (due: number) => {
        // Read once, so that a moment of the wall clock stays what it is.
        const wallMs = engine.clock.wallMs();
        const dueInMs = due - this.#now(clock, engine.elapsedMs(), wallMs);
        return dueInMs <= 0 ? undefined : wallMs + dueInMs;
      };
      const seen = new Set<Block>();
      // Blocks that go out while others are read hold what was in memory; memory comes last.
      for (let next = nextBlock(wheel, seen, from); next !== undefined; next = nextBlock(wheel, seen, from)) {
        seen.add(next);
        let entries: TimetableEntry[];
        try {
          entries = decodeEntries(await this.#read(next));
        } catch (error) {
          // It has come back, and its record was given up.
          if (wheel.block(next.offset) !== next) continue;
          throw error;
        }
        if (wheel.block(next.offset) !== next) continue;
        for (const { offset, due } of entries) {
          if (offset >= from && next.struck?.has(offset) !== true) see(offset, dueAt(due));
        }
      }
      for (const { offset, due } of wheel.entries()) if (offset >= from) see(offset, dueAt(due));
    }
  }

  // --------------------------------------------------------------------------------------------------- blocks out and in

  #spillAll(): void {
    const engine = this.#engine!;
    if (engine.closed || engine.stalled || engine.failure !== undefined) return;
    for (const [lane, wheels] of this.#lanes) {
      for (const clock of [WheelClock.Elapsed, WheelClock.Wall]) {
        try {
          this.#spillWheel(engine, lane, clock, wheels[clock]);
        } catch (error) {
          // They stay in memory; the next ones that come try again.
          engine.logger.warn({ queue: this.#host.name, error }, "scheduled tasks cannot be moved out of memory now");
        }
      }
    }
  }

  #spillWheel(engine: Engine, lane: number, clock: WheelClock, wheel: Wheel): void {
    if (wheel.inMemory <= ENTRIES_MAX) return;
    const stream = this.#host.blockStream();
    // What is in memory when this is staged must be what is there when it is applied.
    engine.flush();
    const groups = wheel.outgoing(this.#now(clock, engine.elapsedMs(), engine.clock.wallMs()));
    while (groups.length > 0) {
      // From the end, as much as a commit can hold.
      let bytes = 0;
      let from = groups.length;
      while (
        from > 0 &&
        (from === groups.length || bytes + blockBytes(groups[from - 1]!) < engine.commitBytesMax / 2)
      ) {
        bytes += blockBytes(groups[--from]!);
      }
      const out = groups.splice(from);
      engine.begin(bytes, out.length, OPERATION_HEADER_BYTES + (3 + 2 * out.length) * VARINT_BYTES_MAX, false);
      const blocks = out.map(({ count, bytes: payload }) => ({
        offset: engine.append(stream, { payload, key: undefined, headers: undefined, attributes: undefined }),
        count,
      }));
      const output = engine.operation(ScheduledOp.Spill, this.#host.id);
      output.varint(lane);
      output.varint(clock);
      output.varint(blocks.length);
      for (const { offset, count } of blocks) {
        output.varint(offset);
        output.varint(count);
      }
      engine.endOperation();
      engine.add({
        durability: "async",
        apply: () => {
          wheel.spill(blocks);
          this.#host.changed();
        },
        settle() {},
        fail() {},
      });
      engine.flush();
    }
  }

  async #load(lane: number, clock: WheelClock, wheel: Wheel, block: Block): Promise<void> {
    const engine = this.#engine!;
    block.loading = true;
    try {
      const bytes = await this.#read(block);
      if (engine.closed) return;
      engine.begin(0, 0, OPERATION_HEADER_BYTES + 4 * VARINT_BYTES_MAX + bytes.length, true);
      if (wheel.block(block.offset) !== block) {
        // Purged meanwhile. Somebody may stand in line for what was to be read.
        this.#host.changed();
        return;
      }
      const output = engine.operation(ScheduledOp.Unspill, this.#host.id);
      output.varint(lane);
      output.varint(clock);
      output.varint(block.offset);
      output.varint(bytes.length);
      output.bytes(bytes);
      engine.endOperation();
      engine.add({
        durability: "async",
        apply: () => {
          wheel.unspill(block.offset, decodeEntries(bytes));
          if (wheel.inMemory > ENTRIES_MAX) engine.wake(this.#spill);
          this.#host.changed();
        },
        settle() {},
        fail() {},
      });
    } catch (error) {
      block.loading = false;
      this.#notBefore = engine.elapsedMs() + RETRY_MS;
      engine.logger.error({ queue: this.#host.name, error }, "scheduled tasks cannot be read back");
      this.#host.changed();
    }
  }

  /** The entries of a block, as they stand in its record. */
  async #read(block: Block): Promise<Buffer> {
    const found = await readRecord(this.#host.blockStream(), this.#engine!, block.offset, (record) => record.payload());
    if (found === undefined) throw new MalformedError(`the block of scheduled tasks at ${block.offset} is missing`);
    return found.used;
  }
}

function nextBlock(wheel: Wheel, seen: ReadonlySet<Block>, from: number): Block | undefined {
  for (const block of wheel.blocks()) if (block.highest >= from && !seen.has(block)) return block;
  return undefined;
}

function blockBytes({ bytes }: Outgoing): number {
  return (
    BATCH_HEADER_BYTES + recordBytesMax({ payload: bytes, key: undefined, headers: undefined, attributes: undefined })
  );
}

function wheelClock(value: number): WheelClock {
  if (value === WheelClock.Elapsed || value === WheelClock.Wall) return value;
  throw new MalformedError(`clock ${value} of scheduled tasks is not known`);
}
