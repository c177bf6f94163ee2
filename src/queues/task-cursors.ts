/**
 * The cursors of a task queue: readers beside the queue itself, each with a durable position in every lane and a list of
 * the reads that failed. They change nothing for the queue, which does not wait for them either: what it has given away
 * before a cursor came to it, the cursor does not see. Only what a cursor has read and not finished is kept for it.
 *
 *   op             fields                                 effect
 *   CreateCursor   cursor, name, n { lane, position }     a cursor that begins there; in other lanes, at the beginning
 *   DeleteCursor   cursor                                 it is gone, with its position and what it has read
 *   ResetCursor    cursor, n { lane, position }           it goes on from there; the reads that failed are forgotten
 *
 * A cursor is a consumer (consumer.ts) of its queue, with the cursor's number, over the same streams.
 */

import type { Durability } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import type { ConsumerConfig, TaskConfig } from "../api/options.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { FIRST_QUEUE_OP, type LogTime } from "../engine/queue-state.js";
import { type IdentifiedCommit, requestBytes } from "../engine/requests.js";
import { Wake } from "../engine/wake.js";
import { type Decoder, type Encoder, MalformedError, VARINT_BYTES_MAX } from "../storage/bytes.js";
import { Consumer, type ConsumerHost } from "./consumer.js";
import { CursorLane, oldestAvailable } from "./cursor-lane.js";
import type { Lane } from "./lane.js";
import { Ledger, TaskPhase } from "./ledger.js";
import type { WallGuard } from "./wall-guard.js";

/** On disk: append, never renumber. */
export const CursorOp = {
  CreateCursor: FIRST_QUEUE_OP + 80,
  DeleteCursor: FIRST_QUEUE_OP + 81,
  ResetCursor: FIRST_QUEUE_OP + 82,
} as const;

const CURSOR_OPS: ReadonlySet<number> = new Set(Object.values(CursorOp));

export function isCursorOp(code: number): boolean {
  return CURSOR_OPS.has(code);
}

/** Each takes part in every delivery of its queue. */
const CURSORS_MAX = 1000;

interface CursorsHost {
  readonly id: number;
  readonly name: string;
  readonly config: TaskConfig;
  readonly guard: WallGuard;
  /** The queue's own. */
  readonly consumer: Consumer;
}

interface LanePosition {
  readonly lane: number;
  readonly position: number;
}

export class Cursor implements ConsumerHost {
  readonly number: number;
  readonly cursorName: string;
  readonly consumer: Consumer;
  readonly lanes = new Map<number, CursorLane>();
  /** Why there is no such cursor any more. */
  ended: Error | undefined;
  /** A read that fails goes behind the others that did. */
  readonly takesBackAtTail = true;
  readonly #queue: CursorsHost;
  #rulesOf: TaskConfig | undefined;
  #rules!: ConsumerConfig;

  constructor(queue: CursorsHost, number: number, name: string) {
    this.#queue = queue;
    this.number = number;
    this.cursorName = name;
    this.consumer = new Consumer(number, this, undefined);
  }

  /** The queue's: the consumer's number says which cursor of it. */
  get id(): number {
    return this.#queue.id;
  }

  get name(): string {
    return `${this.#queue.name} (cursor ${this.cursorName})`;
  }

  /** The queue's, but for the attempts: a cursor has no dead letters. */
  get rules(): ConsumerConfig {
    const { config } = this.#queue;
    if (this.#rulesOf !== config) {
      this.#rulesOf = config;
      this.#rules = { leaseMs: config.leaseMs, maxAttempts: 0, backoff: config.backoff, maxDeadLetters: 0 };
    }
    return this.#rules;
  }

  get ttlMs(): number {
    return this.#queue.config.ttlMs;
  }

  get guard(): WallGuard {
    return this.#queue.guard;
  }

  openDead(): never {
    throw new MalformedError(`${this.name} has no dead letters`);
  }

  openLane(): never {
    throw new MalformedError(`${this.name} has no dead letters to redrive`);
  }

  addLane(main: Lane, ledger: Ledger): void {
    const lane = new CursorLane(this.name, main, ledger, this);
    this.lanes.set(lane.number, lane);
    this.consumer.addLane(lane);
  }

  /** Forgets what was read and is not in a reader's hands. */
  forgetFailed(): void {
    for (const { ledger } of this.consumer.lanes) {
      for (const task of [...ledger.outstanding]) if (task.phase !== TaskPhase.Leased) ledger.finish(task);
    }
  }

  end(error: Error): void {
    this.ended = error;
    for (const { ledger } of this.consumer.lanes) {
      for (const task of [...ledger.outstanding]) ledger.finish(task);
    }
  }
}

export class TaskCursors {
  readonly byName = new Map<string, Cursor>();
  readonly #queue: CursorsHost;
  readonly #byNumber = new Map<number, Cursor>();
  /** Cursors on their way through the log. */
  readonly #creating = new Map<string, Promise<Cursor>>();
  #lastNumber = 0;
  #engine: Engine | undefined;

  constructor(queue: CursorsHost) {
    this.#queue = queue;
  }

  attach(engine: Engine): void {
    this.#engine = engine;
    for (const { consumer } of this.byName.values()) consumer.attach(engine);
  }

  /** The consumers of all cursors. */
  get consumers(): Consumer[] {
    return [...this.byName.values()].map(({ consumer }) => consumer);
  }

  // ------------------------------------------------------------------------------------------------------ for the queue

  /** Serves those who wait, before the queue gives anything away: one task serves a reader of each cursor. */
  serve(): void {
    if (this.byName.size === 0) return;
    for (const { consumer } of this.byName.values()) {
      if (consumer.delivery.isWaitedFor) consumer.delivery.serve();
    }
  }

  /** The queue has got a lane. */
  addLane(main: Lane): void {
    for (const cursor of this.byName.values()) cursor.addLane(main, new Ledger(main.number, 0));
  }

  /** The lowest offset of a lane that a cursor has read and not finished; Infinity when there is none. */
  lowest(lane: number): number {
    let lowest = Number.POSITIVE_INFINITY;
    for (const { lanes } of this.byName.values()) {
      for (const offset of lanes.get(lane)?.ledger.outstanding.keys() ?? []) lowest = Math.min(lowest, offset);
    }
    return lowest;
  }

  /** Whether a cursor has read any task of a lane with an offset in [from, to) and not finished it. */
  holds(lane: number, from: number, to: number): boolean {
    for (const { lanes } of this.byName.values()) {
      if (lanes.get(lane)?.ledger.hasOutstanding(from, to) === true) return true;
    }
    return false;
  }

  /**
   * The queue has been purged, in life or in replay: what was read and failed is forgotten as well. In life, nothing may be
   * staged meanwhile that comes behind the purge in the log: flush the engine before the purge is staged, and after.
   */
  purged(): void {
    for (const cursor of this.byName.values()) cursor.forgetFailed();
  }

  resume(last: LogTime, now: LogTime): void {
    for (const { consumer } of this.byName.values()) consumer.resume(last, now);
  }

  close(error: Error): void {
    for (const { consumer } of this.byName.values()) consumer.close(error);
  }

  /** The consumer with a number; undefined when the cursor has been deleted: what was under way for it changes nothing. */
  consumer(number: number): Consumer | undefined {
    return this.#cursor(number)?.consumer;
  }

  replay(code: number, input: Decoder): void {
    const number = input.varint();
    if (code === CursorOp.CreateCursor) {
      const name = input.string();
      this.#create(number, name, decodePositions(input));
      return;
    }
    const cursor = this.#cursor(number);
    if (cursor === undefined) return;
    if (code === CursorOp.DeleteCursor) this.#delete(cursor);
    else this.#reset(cursor, decodePositions(input));
  }

  encode(output: Encoder): void {
    output.varint(this.#lastNumber);
    output.varint(this.byName.size);
    for (const { number, cursorName, consumer } of this.byName.values()) {
      output.varint(number);
      output.string(cursorName);
      output.varint(consumer.lanes.length);
      for (const { ledger } of consumer.lanes) {
        output.varint(ledger.lane);
        ledger.encode(output);
      }
    }
  }

  /** Once the queue has its lanes. */
  decode(input: Decoder): void {
    this.#lastNumber = input.varint();
    for (let count = input.varint(); count > 0; count--) {
      const number = input.varint();
      const cursor = new Cursor(this.#queue, number, input.string());
      for (let lanes = input.varint(); lanes > 0; lanes--) {
        const lane = input.varint();
        cursor.addLane(this.#queue.consumer.lane(lane), Ledger.decode(lane, input));
      }
      this.#add(cursor);
    }
  }

  // ----------------------------------------------------------------------------------------------------- for the readers

  /** The cursor with a name; made when there is none, at the oldest task that is available. */
  async open(name: string): Promise<Cursor> {
    const known = this.byName.get(name);
    if (known !== undefined) return known;
    let creating = this.#creating.get(name);
    if (creating === undefined) {
      if (new Set([...this.byName.keys(), ...this.#creating.keys()]).size >= CURSORS_MAX) {
        throw new VarveError(
          "ERR_QUEUE_FULL",
          `queue ${this.#queue.name} has ${CURSORS_MAX} cursors, which is as many as it can have. Delete one that nobody ` +
            "reads any more.",
          { details: { queue: this.#queue.name, limit: "cursors", max: CURSORS_MAX } },
        );
      }
      creating = this.#stageCreate(name).finally(() => this.#creating.delete(name));
      this.#creating.set(name, creating);
    }
    return await creating;
  }

  #stageCreate(name: string): Promise<Cursor> {
    const engine = this.#engine!;
    return new Promise((resolve, reject) => {
      // What is staged already may change what is available.
      engine.flush();
      const positions = this.#oldest();
      engine.begin(0, 0, operationBytesMax(positions) + name.length * 3, false);
      const number = ++this.#lastNumber;
      const output = engine.operation(CursorOp.CreateCursor, this.#queue.id);
      output.varint(number);
      output.string(name);
      encodePositions(output, positions);
      engine.endOperation();
      let cursor: Cursor;
      engine.add({
        // Always: what is enqueued later stands behind where it begins, also after a power cut.
        durability: "sync",
        apply: () => {
          cursor = this.#create(number, name, positions);
        },
        settle: () => resolve(cursor),
        fail: reject,
      });
    });
  }

  /** Resolves when it is committed. */
  reset(cursor: Cursor, durability: Durability, request?: IdentifiedCommit): Promise<void> {
    const engine = this.#engine!;
    return new Promise((resolve, reject) => {
      // Nothing of the cursor's is under way when it is set back: what is staged is applied before, what comes is behind.
      engine.flush();
      const positions = this.#oldest();
      engine.begin(0, 0, operationBytesMax(positions) + requestBytes(request), true);
      const output = engine.operation(CursorOp.ResetCursor, this.#queue.id);
      output.varint(cursor.number);
      encodePositions(output, positions);
      engine.endOperation();
      const apply = () => this.#reset(cursor, positions);
      engine.add({ durability, apply, settle: resolve, fail: reject }, request);
      engine.flush();
    });
  }

  /** Resolves with whether there was one, when it is committed that there is none. */
  delete(name: string, durability: Durability, request?: IdentifiedCommit): Promise<boolean> {
    const engine = this.#engine!;
    const cursor = this.byName.get(name);
    if (cursor === undefined) return Promise.resolve(false);
    return new Promise((resolve, reject) => {
      engine.begin(0, 0, operationBytesMax([]) + requestBytes(request), true);
      engine.operation(CursorOp.DeleteCursor, this.#queue.id).varint(cursor.number);
      engine.endOperation();
      // Of two calls in one turn, both are told that there was one.
      const apply = () => this.#delete(cursor);
      engine.add({ durability, apply, settle: () => resolve(true), fail: reject }, request);
    });
  }

  /** Just before the oldest task of each lane that is available now. */
  #oldest(): LanePosition[] {
    return this.#queue.consumer.lanes.map((lane) => ({ lane: lane.number, position: oldestAvailable(lane) }));
  }

  // --------------------------------------------------------------------------------------------------- applied changes

  #create(number: number, name: string, positions: readonly LanePosition[]): Cursor {
    const cursor = new Cursor(this.#queue, number, name);
    for (const main of this.#queue.consumer.lanes) {
      cursor.addLane(main, new Ledger(main.number, positionIn(positions, main)));
    }
    this.#add(cursor);
    if (this.#engine !== undefined) cursor.consumer.attach(this.#engine);
    return cursor;
  }

  #delete(cursor: Cursor): void {
    if (this.byName.get(cursor.cursorName) === cursor) this.byName.delete(cursor.cursorName);
    this.#byNumber.delete(cursor.number);
    const error = new VarveError(
      "ERR_NOT_FOUND",
      `cursor ${cursor.cursorName} of ${this.#queue.name} was deleted. Open it again to make it.`,
    );
    cursor.end(error);
    // Not at once: a deletion is being applied.
    this.#engine?.wake(new Wake(() => cursor.consumer.close(error)));
  }

  #reset(cursor: Cursor, positions: readonly LanePosition[]): void {
    if (cursor.ended !== undefined) return;
    cursor.forgetFailed();
    for (const lane of cursor.lanes.values()) lane.rewind(positionIn(positions, lane));
    if (this.#engine !== undefined) cursor.consumer.delivery.wake();
  }

  #add(cursor: Cursor): void {
    const { number, cursorName } = cursor;
    if (this.byName.has(cursorName) || this.#byNumber.has(number)) {
      throw new MalformedError(`cursor ${cursorName} of ${this.#queue.name} is there already`);
    }
    this.#lastNumber = Math.max(this.#lastNumber, number);
    this.byName.set(cursorName, cursor);
    this.#byNumber.set(number, cursor);
  }

  #cursor(number: number): Cursor | undefined {
    if (number > this.#lastNumber) throw new MalformedError(`cursor ${number} of ${this.#queue.name} is not known`);
    return this.#byNumber.get(number);
  }
}

function operationBytesMax(positions: readonly LanePosition[]): number {
  return OPERATION_HEADER_BYTES + (3 + 2 * positions.length) * VARINT_BYTES_MAX;
}

function encodePositions(output: Encoder, positions: readonly LanePosition[]): void {
  output.varint(positions.length);
  for (const { lane, position } of positions) {
    output.varint(lane);
    output.varint(position);
  }
}

export function decodePositions(input: Decoder): LanePosition[] {
  return Array.from({ length: input.varint() }, () => ({ lane: input.varint(), position: input.varint() }));
}

/** A lane that has been added since has everything ahead. */
function positionIn(positions: readonly LanePosition[], { number }: Lane): number {
  return positions.find(({ lane }) => lane === number)?.position ?? 0;
}
