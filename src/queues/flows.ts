/**
 * Flows: tasks that wait until other tasks, their children, are done. Parent and child may be in different queues.
 *
 * A queue keeps its waiting parents, with the number of children that are not done; and for each of its own tasks that is
 * a child, whose it is. When a child is acknowledged, the same commit tells the parent's queue, by an operation of that
 * queue, so that each queue's log can be repeated by itself. A dead child is kept by its id: redriven, it is the same child.
 * A child that left its queue in another way can never be done: its parent is told by a commit that follows, and goes to
 * the dead letters with the reason.
 *
 *   op           fields                                              effect
 *   Wait         n { lane, offset, children }                        these tasks, whose records are set aside, wait for so many
 *   Link         n { lane, offset, id, queue, lane, offset }         these tasks are children of those
 *   ChildDone    lane, offset, n                                     a parent has n children fewer to wait for
 *   ChildGone    lane, offset, reason                                a parent can never be ready
 *   Told         n                                                   the first n of those to be told have been
 *   ParentDead   lane, offset, bytes                                 it is a dead letter, which is in the same entry
 *   LettersGone  n { id }                                            dead children whose letters are purged by the same entry
 */

import { isVarveError } from "../api/errors.js";
import type { WithDeletion } from "../engine/deletion.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { FIRST_QUEUE_OP, type LogTime } from "../engine/queue-state.js";
import { Wake } from "../engine/wake.js";
import { recordBytesMax } from "../storage/batch.js";
import { type Decoder, type Encoder, MalformedError, VARINT_BYTES_MAX } from "../storage/bytes.js";
import type { Consumer } from "./consumer.js";
import { Outstanding, TaskPhase } from "./ledger.js";
import type { Redriven, TaskPlace } from "./outcomes.js";
import type { Ending } from "./results.js";
import { letterOf, taskId } from "./task-record.js";

/** On disk: append, never renumber. */
export const FlowOp = {
  Wait: FIRST_QUEUE_OP + 100,
  Link: FIRST_QUEUE_OP + 101,
  ChildDone: FIRST_QUEUE_OP + 102,
  ChildGone: FIRST_QUEUE_OP + 103,
  Told: FIRST_QUEUE_OP + 104,
  ParentDead: FIRST_QUEUE_OP + 105,
  LettersGone: FIRST_QUEUE_OP + 106,
} as const;

const FLOW_OPS: ReadonlySet<number> = new Set(Object.values(FlowOp));

export function isFlowOp(code: number): boolean {
  return FLOW_OPS.has(code);
}

/** Waiting parents of a queue, and children, at most. */
export const FLOW_LINKS_MAX = 100_000;
/** What the end of a child adds to a commit, at most. */
export const CHILD_DONE_BYTES_MAX = OPERATION_HEADER_BYTES + 4 * VARINT_BYTES_MAX;
const ID_BYTES_MAX = 24;
const REASON_CHARS_MAX = 512;
/** Parents that are told by one commit. */
const TOLD_AT_ONCE = 100;
/** After a failure, it is tried again when this has passed. */
const RETRY_MS = 1000;

/** A task of any queue. */
export interface QueuePlace extends TaskPlace {
  readonly queueId: number;
}

/** A task that waits for its children. */
interface WaitingParent extends TaskPlace {
  pending: number;
  /** Why it can never be ready. */
  gone: string | undefined;
}

interface Child {
  /** What its dead letter is known by. */
  readonly id: string;
  readonly parent: QueuePlace;
}

/** A parent to be told that it can never be ready. */
interface Untold {
  readonly parent: QueuePlace;
  readonly reason: string;
}

interface FlowsHost {
  readonly id: number;
  readonly name: string;
  readonly consumer: Consumer;
  /** Why there is nothing to be done for the queue any more. */
  readonly ended: Error | undefined;
  setAside(lane: number, count: number): void;
  changed(): void;
  /** A task queue of the directory with an id, for use; undefined when it is gone. */
  flowsOf(queueId: number): Flows | undefined;
}

export class Flows {
  readonly #host: FlowsHost;
  readonly #parents = new Map<string, WaitingParent>();
  /** By place; and those that are dead letters, by id. */
  readonly #children = new Map<string, Child>();
  readonly #deadChildren = new Map<string, Child>();
  /** Parents to be told that a child of theirs is gone, in order. */
  #untold: Untold[] = [];
  #engine: Engine | undefined;
  #working = false;
  /** Parents that cannot be buried, since their records cannot be read: they stay blocked until the next open. */
  readonly #unreadable = new Set<WaitingParent>();
  readonly #work = () => void this.#workOff();
  readonly #workWake = new Wake(this.#work);

  constructor(host: FlowsHost) {
    this.#host = host;
  }

  /** Brings the queues of its tasks' parents into use as well. */
  attach(engine: Engine): void {
    this.#engine = engine;
    // A queue that comes into use may have something to write: that must not be while a child's end is staged.
    const queueIds = new Set<number>();
    for (const { parent } of this.#children.values()) queueIds.add(parent.queueId);
    for (const { parent } of this.#deadChildren.values()) queueIds.add(parent.queueId);
    for (const { parent } of this.#untold) queueIds.add(parent.queueId);
    for (const queueId of queueIds) this.#host.flowsOf(queueId);
    // Nothing else may ever be staged.
    if (this.#isDue) engine.clock.defer(this.#work);
  }

  // ------------------------------------------------------------------------------------------------------ numbers

  get parentCount(): number {
    return this.#parents.size;
  }

  /** Parents and children. */
  get linkCount(): number {
    return this.#parents.size + this.#children.size + this.#deadChildren.size;
  }

  get hasChildren(): boolean {
    return this.#children.size > 0;
  }

  isWaiting(lane: number, offset: number): boolean {
    return this.#parents.has(placeKey(lane, offset));
  }

  /** The offsets of a lane's waiting parents. */
  *offsets(lane: number): Generator<number> {
    for (const parent of this.#parents.values()) if (parent.lane === lane) yield parent.offset;
  }

  lowest(lane: number): number {
    let lowest = Number.POSITIVE_INFINITY;
    for (const offset of this.offsets(lane)) lowest = Math.min(lowest, offset);
    return lowest;
  }

  mayHold(lane: number, from: number, to: number): boolean {
    for (const offset of this.offsets(lane)) if (offset >= from && offset < to) return true;
    return false;
  }

  // ----------------------------------------------------------------------------------------------------- new flows

  stageWait(engine: Engine, parents: readonly (TaskPlace & { readonly pending: number })[]): void {
    const output = engine.operation(FlowOp.Wait, this.#host.id);
    output.varint(parents.length);
    for (const { lane, offset, pending } of parents) {
      output.varint(lane);
      output.varint(offset);
      output.varint(pending);
    }
    engine.endOperation();
  }

  stageLink(engine: Engine, children: readonly (TaskPlace & { readonly parent: QueuePlace })[]): void {
    const output = engine.operation(FlowOp.Link, this.#host.id);
    output.varint(children.length);
    for (const { lane, offset, parent } of children) {
      output.varint(lane);
      output.varint(offset);
      encodeChild(output, { id: taskId(lane, offset), parent });
    }
    engine.endOperation();
  }

  addParent({ lane, offset, pending }: TaskPlace & { readonly pending: number }): void {
    this.#parents.set(placeKey(lane, offset), { lane, offset, pending, gone: undefined });
    this.#host.setAside(lane, 1);
  }

  addChild({ lane, offset, parent }: TaskPlace & { readonly parent: QueuePlace }): void {
    this.#children.set(placeKey(lane, offset), { id: taskId(lane, offset), parent });
  }

  // ------------------------------------------------------------------------------------------------- children that end

  /** What the end of so many tasks adds to a commit. */
  bytesMax(count: number): number {
    return this.hasChildren ? count * CHILD_DONE_BYTES_MAX : 0;
  }

  /** Stages what the queues of their parents are told of tasks that are done in the same commit. */
  stageDone(tasks: readonly Outstanding[]): void {
    if (!this.hasChildren) return;
    for (const { place, count } of this.#parentsOf(tasks)) {
      const output = this.#engine!.operation(FlowOp.ChildDone, place.queueId);
      output.varint(place.lane);
      output.varint(place.offset);
      output.varint(count);
      this.#engine!.endOperation();
    }
  }

  /** Such tasks are done, in life. Before they have left the queue. */
  done(tasks: readonly Outstanding[]): void {
    if (!this.hasChildren) return;
    const parents = this.#parentsOf(tasks);
    for (const { ledger, offset } of tasks) this.#children.delete(placeKey(ledger.lane, offset));
    const { elapsedMs } = this.#engine!.entryTime;
    for (const { place, count } of parents) {
      this.#host.flowsOf(place.queueId)?.childrenDone(place, count, elapsedMs);
    }
  }

  #parentsOf(tasks: readonly Outstanding[]): Iterable<{ readonly place: QueuePlace; count: number }> {
    const parents = new Map<string, { readonly place: QueuePlace; count: number }>();
    for (const { ledger, offset } of tasks) {
      const place = this.#children.get(placeKey(ledger.lane, offset))?.parent;
      // What is told to a queue that has been deleted is told to nobody.
      if (place === undefined || this.#host.flowsOf(place.queueId) === undefined) continue;
      const key = `${place.queueId} ${placeKey(place.lane, place.offset)}`;
      const known = parents.get(key);
      if (known === undefined) parents.set(key, { place, count: 1 });
      else known.count++;
    }
    return parents.values();
  }

  /** Of a parent of this queue. */
  childrenDone({ lane, offset }: TaskPlace, count: number, elapsedMs: number): void {
    const key = placeKey(lane, offset);
    const parent = this.#parents.get(key);
    if (parent === undefined) return;
    parent.pending = Math.max(0, parent.pending - count);
    if (parent.pending > 0 || parent.gone !== undefined) return;
    this.#parents.delete(key);
    this.#host.consumer.lane(lane).ledger.ripened(offset, elapsedMs);
    if (this.#engine !== undefined) this.#host.changed();
  }

  /** A task has left the queue, in life or in replay. */
  ended(lane: number, offset: number, how: Ending): void {
    const key = placeKey(lane, offset);
    const child = this.#children.get(key);
    if (child === undefined) return;
    this.#children.delete(key);
    if (how === "dead") this.#deadChildren.set(child.id, child);
    else if (how !== "done") this.#lost(child, reasonOf(how));
  }

  /** A waiting parent is cancelled. */
  cancelled(lane: number, offset: number): boolean {
    return this.#parents.delete(placeKey(lane, offset));
  }

  /** Everything below these offsets has left the queue, but for what is leased. */
  purged(bounds: ReadonlyMap<number, number>): void {
    if (this.linkCount === 0) return;
    for (const [key, { lane, offset }] of this.#parents)
      if (offset < (bounds.get(lane) ?? 0)) this.#parents.delete(key);
    for (const [key, child] of this.#children) {
      const [lane, offset] = key.split(" ").map(Number) as [number, number];
      const task = this.#host.consumer.lanes.find(({ number }) => number === lane)?.ledger.outstanding.get(offset);
      if (offset >= (bounds.get(lane) ?? 0) || task?.phase === TaskPhase.Leased) continue;
      this.#children.delete(key);
      this.#lost(child, reasonOf("purged"));
    }
  }

  /** Dead letters are tasks again. */
  redriven(tasks: Iterable<Redriven>): void {
    if (this.#deadChildren.size === 0) return;
    for (const { id, lane, offset } of tasks) {
      const child = this.#deadChildren.get(id);
      if (child === undefined) continue;
      this.#deadChildren.delete(id);
      this.#children.set(placeKey(lane, offset), child);
    }
  }

  /** What the purge of letters adds to its commit. */
  lettersBytesMax(count: number): number {
    return this.#deadChildren.size === 0 ? 0 : OPERATION_HEADER_BYTES + (count + 1) * (ID_BYTES_MAX + VARINT_BYTES_MAX);
  }

  stageLettersGone(ids: readonly string[]): void {
    const gone = ids.filter((id) => this.#deadChildren.has(id));
    if (gone.length === 0) return;
    const output = this.#engine!.operation(FlowOp.LettersGone, this.#host.id);
    output.varint(gone.length);
    for (const id of gone) output.string(id);
    this.#engine!.endOperation();
  }

  lettersGone(ids: Iterable<string>): void {
    if (this.#deadChildren.size === 0) return;
    for (const id of ids) {
      const child = this.#deadChildren.get(id);
      if (child === undefined) continue;
      this.#deadChildren.delete(id);
      this.#lost(child, "its dead letter was purged");
    }
  }

  allLettersGone(): void {
    this.lettersGone([...this.#deadChildren.keys()]);
  }

  #lost({ id, parent }: Child, reason: string): void {
    this.#untold.push({ parent, reason: `task ${id} of ${this.#host.name} ${reason}`.slice(0, REASON_CHARS_MAX) });
    this.#wake();
  }

  // ---------------------------------------------------------------------------------------- what is done by and by

  get #isDue(): boolean {
    return this.#untold.length > 0 || this.#nextGone() !== undefined;
  }

  #wake(): void {
    if (this.#isDue && !this.#working) this.#engine?.wake(this.#workWake);
  }

  #nextGone(): WaitingParent | undefined {
    for (const parent of this.#parents.values()) {
      if (parent.gone !== undefined && !this.#unreadable.has(parent)) return parent;
    }
    return undefined;
  }

  async #workOff(): Promise<void> {
    const engine = this.#engine!;
    if (this.#working || engine.closed || engine.failure !== undefined) return;
    this.#working = true;
    try {
      while (!this.#isOver()) {
        const parent = this.#nextGone();
        // Meanwhile others may have to be told, for whom nobody is woken.
        if (this.#untold.length > 0) await this.#tell(engine);
        else if (parent !== undefined) await this.#buryIfReadable(engine, parent);
        else return;
      }
    } catch (error) {
      if (engine.closed || engine.failure !== undefined || this.#isOver()) return;
      engine.logger.error({ queue: this.#host.name, error }, "a flow cannot be ended now");
      engine.clock.setTimer(RETRY_MS, this.#work);
    } finally {
      this.#working = false;
    }
  }

  /** Whether the queue is gone; what is staged counts. Not between `begin` and `add`. */
  #isOver(): boolean {
    this.#engine!.flush();
    return this.#host.ended !== undefined;
  }

  /**
   * What the queues of other tasks are told by the commit that deletes this queue, for whose tasks they wait. Of very many,
   * only the last are told by that commit, the others by commits before it.
   */
  parting(): WithDeletion {
    const parents = this.#waitingElsewhere();
    while (parents.length > TOLD_AT_ONCE) {
      const engine = this.#engine!;
      const { metaBytes, stage, apply } = this.#farewell(parents.splice(0, TOLD_AT_ONCE));
      engine.begin(0, 0, metaBytes, true);
      stage(engine);
      engine.add({ durability: engine.options.durability, apply, settle() {}, fail() {} });
    }
    return this.#farewell(parents);
  }

  #waitingElsewhere(): QueuePlace[] {
    const parents = new Map<string, QueuePlace>();
    const known = [...this.#children.values(), ...this.#deadChildren.values(), ...this.#untold];
    for (const { parent } of known) {
      const { queueId, lane, offset } = parent;
      if (queueId === this.#host.id || this.#host.flowsOf(queueId)?.isWaiting(lane, offset) !== true) continue;
      parents.set(`${queueId} ${placeKey(lane, offset)}`, parent);
    }
    return [...parents.values()];
  }

  #farewell(parents: readonly QueuePlace[]): WithDeletion {
    const reason = `the queue of a child, ${this.#host.name}, was deleted`;
    return {
      metaBytes: parents.length * (CHILD_DONE_BYTES_MAX + Buffer.byteLength(reason)),
      stage: (engine) => {
        for (const parent of parents) stageGone(engine, parent, reason);
      },
      apply: () => {
        for (const parent of parents) this.#host.flowsOf(parent.queueId)?.childGone(parent, reason);
      },
    };
  }

  /** Tells parents that a child of theirs is gone. */
  #tell(engine: Engine): Promise<void> {
    const told: Untold[] = [];
    let bytes = OPERATION_HEADER_BYTES + 16;
    for (const each of this.#untold) {
      const more = CHILD_DONE_BYTES_MAX + Buffer.byteLength(each.reason);
      // A commit may take little where log files are small.
      if (told.length > 0 && (told.length === TOLD_AT_ONCE || bytes + more > engine.commitBytesMax / 2)) break;
      told.push(each);
      bytes += more;
    }
    return new Promise((resolve, reject) => {
      engine.begin(0, 0, bytes, true);
      for (const { parent, reason } of told) {
        if (this.#host.flowsOf(parent.queueId) === undefined) continue;
        stageGone(engine, parent, reason);
      }
      engine.operation(FlowOp.Told, this.#host.id).varint(told.length);
      engine.endOperation();
      engine.add({
        durability: engine.options.durability,
        apply: () => {
          this.#untold.splice(0, told.length);
          for (const { parent, reason } of told) this.#host.flowsOf(parent.queueId)?.childGone(parent, reason);
        },
        settle: resolve,
        fail: reject,
      });
    });
  }

  childGone({ lane, offset }: TaskPlace, reason: string): void {
    const parent = this.#parents.get(placeKey(lane, offset));
    if (parent === undefined) return;
    parent.gone ??= reason;
    this.#wake();
  }

  /** One that is damaged does not keep the others from their end. */
  async #buryIfReadable(engine: Engine, parent: WaitingParent): Promise<void> {
    try {
      await this.#bury(engine, parent, parent.gone!);
    } catch (error) {
      if (!isVarveError(error, "ERR_CORRUPT")) throw error;
      this.#unreadable.add(parent);
      const { lane, offset } = parent;
      const fields = { queue: this.#host.name, task: taskId(lane, offset), error };
      engine.logger.error(
        fields,
        "a blocked task is damaged: it cannot go to the dead letters, and stays until it is cancelled",
      );
    }
  }

  /** Moves a parent that can never be ready to the dead letters. */
  async #bury(engine: Engine, { lane: number, offset }: WaitingParent, reason: string): Promise<void> {
    const { consumer } = this.#host;
    const lane = consumer.lane(number);
    const task = new Outstanding(lane.ledger, offset);
    const { letter, bytes } = await lane.atRecord(offset, (record) => ({
      letter: letterOf(task, record, lane.attributes(record), reason, "a child is gone", engine.time().wallMs),
      bytes: record.end - record.payloadStart,
    }));
    await new Promise<void>((resolve, reject) => {
      if (this.#isOver() || !this.isWaiting(number, offset)) {
        resolve();
        return;
      }
      engine.begin(recordBytesMax(letter), 1, CHILD_DONE_BYTES_MAX, true);
      engine.append(consumer.dead.stream!, letter);
      const output = engine.operation(FlowOp.ParentDead, this.#host.id);
      output.varint(number);
      output.varint(offset);
      output.varint(bytes);
      engine.endOperation();
      engine.add({
        durability: engine.options.durability,
        apply: () => {
          this.#parentDead(number, offset, bytes);
          consumer.counts.died++;
          consumer.ended(task, "dead");
        },
        settle: resolve,
        fail: reject,
      });
    });
  }

  #parentDead(lane: number, offset: number, bytes: number): void {
    this.#parents.delete(placeKey(lane, offset));
    this.#host.consumer.lane(lane).ledger.takenBytes += bytes;
  }

  // ----------------------------------------------------------------------------------------------------------- on disk

  replay(code: number, input: Decoder, time: LogTime): void {
    if (code === FlowOp.Wait) {
      for (let count = input.varint(); count > 0; count--) {
        this.addParent({ lane: input.varint(), offset: input.varint(), pending: input.varint() });
      }
    } else if (code === FlowOp.Link) {
      for (let count = input.varint(); count > 0; count--) {
        this.#children.set(placeKey(input.varint(), input.varint()), decodeChild(input));
      }
    } else if (code === FlowOp.ChildDone) {
      this.childrenDone({ lane: input.varint(), offset: input.varint() }, input.varint(), time.elapsedMs);
    } else if (code === FlowOp.ChildGone) {
      this.childGone({ lane: input.varint(), offset: input.varint() }, input.string());
    } else if (code === FlowOp.Told) {
      this.#untold.splice(0, input.varint());
    } else if (code === FlowOp.ParentDead) {
      const [lane, offset] = [input.varint(), input.varint()];
      this.#parentDead(lane, offset, input.varint());
      this.ended(lane, offset, "dead");
    } else {
      this.lettersGone(Array.from({ length: input.varint() }, () => input.string()));
    }
  }

  /** After a repair, which does not believe the marks of records: parents wait no longer, and nobody is a child. */
  dissolve(): void {
    for (const { lane: number, offset } of this.#parents.values()) {
      const lane = this.#host.consumer.lane(number);
      if (offset < lane.ledger.cursor) lane.ledger.ripened(offset, 0);
      else lane.aside = Math.max(0, lane.aside - 1);
    }
    this.#parents.clear();
    this.#children.clear();
    this.#deadChildren.clear();
    this.#untold = [];
  }

  encode(output: Encoder): void {
    output.varint(this.#parents.size);
    for (const { lane, offset, pending, gone } of this.#parents.values()) {
      output.varint(lane);
      output.varint(offset);
      output.varint(pending);
      output.string(gone ?? "");
    }
    output.varint(this.#children.size);
    for (const [key, child] of this.#children) {
      for (const part of key.split(" ")) output.varint(Number(part));
      encodeChild(output, child);
    }
    output.varint(this.#deadChildren.size);
    for (const child of this.#deadChildren.values()) encodeChild(output, child);
    output.varint(this.#untold.length);
    for (const { parent, reason } of this.#untold) {
      encodePlace(output, parent);
      output.string(reason);
    }
  }

  decode(input: Decoder): void {
    const { parents, children, deadChildren, untold } = decodeFlows(input);
    for (const parent of parents) {
      const key = placeKey(parent.lane, parent.offset);
      if (this.#parents.has(key)) throw new MalformedError(`task ${parent.offset} waits twice`);
      this.#parents.set(key, parent);
    }
    for (const { lane, offset, child } of children) this.#children.set(placeKey(lane, offset), child);
    for (const child of deadChildren) this.#deadChildren.set(child.id, child);
    this.#untold = untold;
  }
}

function stageGone(engine: Engine, { queueId, lane, offset }: QueuePlace, reason: string): void {
  const output = engine.operation(FlowOp.ChildGone, queueId);
  output.varint(lane);
  output.varint(offset);
  output.string(reason);
  engine.endOperation();
}

/** The flows of a queue as a snapshot holds them. */
export function decodeFlows(input: Decoder) {
  const list = <T>(read: () => T): T[] => Array.from({ length: input.varint() }, read);
  const parents: WaitingParent[] = list(() => {
    const place = { lane: input.varint(), offset: input.varint() };
    return { ...place, pending: input.varint(), gone: input.string() || undefined };
  });
  const children = list(() => ({ lane: input.varint(), offset: input.varint(), child: decodeChild(input) }));
  const deadChildren = list(() => decodeChild(input));
  const untold: Untold[] = list(() => ({ parent: decodePlace(input), reason: input.string() }));
  return { parents, children, deadChildren, untold };
}

function encodeChild(output: Encoder, { id, parent }: Child): void {
  output.string(id);
  encodePlace(output, parent);
}

export function decodeChild(input: Decoder): Child {
  return { id: input.string(), parent: decodePlace(input) };
}

function encodePlace(output: Encoder, { queueId, lane, offset }: QueuePlace): void {
  output.varint(queueId);
  output.varint(lane);
  output.varint(offset);
}

function decodePlace(input: Decoder): QueuePlace {
  return { queueId: input.varint(), lane: input.varint(), offset: input.varint() };
}

/** The log does not tell apart in which way a task's time was over: nor does this. */
function reasonOf(how: Ending): string {
  return how === "cancelled" || how === "purged" ? `was ${how}` : "left its queue before it was delivered";
}

function placeKey(lane: number, offset: number): string {
  return `${lane} ${offset}`;
}
