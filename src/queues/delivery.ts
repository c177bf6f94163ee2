/** Who waits for a consumer's tasks, and gets which. */

import type { Durability } from "../api/contract.js";
import { type InList, LinkedList } from "../api/linked-list.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import type { Operation } from "../engine/operation.js";
import { type IdentifiedCommit, requestBytes } from "../engine/requests.js";
import { Wake } from "../engine/wake.js";
import { type RecordCursor, recordBytesMax } from "../storage/batch.js";
import { VARINT_BYTES_MAX } from "../storage/bytes.js";
import type { StreamReader } from "../storage/stream-reader.js";
import { type Consumer, ConsumerOp, type Successor } from "./consumer.js";
import type { Lane } from "./lane.js";
import { Outstanding, TaskPhase } from "./ledger.js";
import { orderOf } from "./order.js";
import type { Pace } from "./pace.js";
import type { Ending } from "./results.js";
import { isOver, type TaskAttributes } from "./task-record.js";
import { LeasedTask } from "./task-token.js";

const DELIVERY_BYTES_MAX = 5 * VARINT_BYTES_MAX + 8;
const DELIVERY_HEADER_BYTES = OPERATION_HEADER_BYTES + 5 * VARINT_BYTES_MAX;

const BLOCK_BYTES_MAX = 4 * VARINT_BYTES_MAX;
/** Tasks that one commit notes as blocked, at most. */
const BLOCKED_AT_ONCE = 256;
const NONE: readonly Outstanding[] = [];

/** Someone who wants tasks. */
export interface Receiver {
  readonly max: number;
  /** 0: while the session lasts. */
  readonly leaseMs: number;
  /** Delivered and done in one commit. */
  readonly autoAck: boolean;
  /** Tasks are taken to make room, and not to be worked on. */
  readonly drops?: boolean;
  readonly durability: Durability;
  /** Goes on waiting while there is nothing. */
  readonly waits: boolean;
  /** Of a call that may be repeated: its request, which is answered with what it is given, `most` tasks in the end. */
  readonly identify?: ((most: number) => IdentifiedCommit) | undefined;
  /** A task that it is about to be given. Its record may be gone at the end of the turn. */
  give(task: Outstanding, record: RecordCursor, attributes: TaskAttributes): void;
  /** It has all that it was given, or waits no longer. */
  resolve(): void;
  reject(error: Error): void;
}

/** A receiver that stands in line when there is nothing for it yet. */
export interface Waiter extends Receiver, InList<Waiter | Party> {
  readonly isParty: false;
}

/** Several who have come together, one behind the other. They stand in line together until it is known what there is for them. */
export interface Party extends InList<Waiter | Party> {
  readonly isParty: true;
  readonly waits: true;
  /** How many are left of them. */
  readonly size: number;
  /** All of them, or the first ones, as one receiver. */
  next(): Receiver;
  /** Those whose receiver has been delivered to leave, as far as there was something for them. */
  delivered(): void;
  /** There is nothing for any of them. */
  foundNothing(): void;
  /** The first one of them cannot be given anything. */
  reject(error: Error): void;
  /**
   * It is to stand in line. From the first one on who goes on waiting when there is nothing, they do so by themselves: each comes as it
   * would alone, and `join` has the others stand before them.
   */
  standInLine(join: () => void): void;
  /** Its turn has come: those leave who have gone meanwhile. */
  recall(): void;
}

/** Someone who wants to see the next task, and leaves it where it is. */
export interface Peeker extends InList<Peeker> {
  /** Looks at these only. */
  readonly lanes?: readonly Lane[];
  readonly waits: boolean;
  resolve(task: LeasedTask | undefined): void;
  reject(error: Error): void;
}

type Outcome = "delivered" | "none" | "load";

/** Tasks whose time is over, and bytes of what takes their places, that are removed by one commit, about. */
const SWEPT_AT_ONCE = 256;
const SWEPT_BYTES = 1024 * 1024;
/** Tasks whose time is over that are removed before others have a turn. */
const SWEPT_PER_TURN = 4096;

/** A task whose time is over. */
interface Swept {
  readonly task: Outstanding;
  readonly successor: Successor | undefined;
}

export class Delivery {
  readonly #consumer: Consumer;
  #engine!: Engine;
  readonly #receivers = new LinkedList<Waiter | Party>();
  readonly #peekers = new LinkedList<Peeker>();
  #loading = false;
  /** Tasks whose time was over that were removed since the queue was opened. */
  swept = 0;
  /** The same, from when that is staged. */
  #sweepingCount = 0;
  #sweeping: Promise<void> = Promise.resolve();
  /** Deliveries on their way to the log: all / those under a lease. */
  #giving = 0;
  #leasing = 0;
  /** Tasks that the cursors have passed as they come behind others with their order key; not staged yet. */
  #met: Outstanding[] = [];
  /** The pace of the queue keeps tasks from someone. */
  isHeldBack = false;
  /** Elapsed time when that ends by itself; Infinity if it does not. */
  heldUntil = Number.POSITIVE_INFINITY;
  readonly #serve = new Wake(() => this.serve());

  constructor(consumer: Consumer) {
    this.#consumer = consumer;
  }

  attach(engine: Engine): void {
    this.#engine = engine;
  }

  /** Tasks whose delivery is on its way to the log. */
  get leasing(): number {
    return this.#leasing;
  }

  get waiters(): number {
    let count = 0;
    for (const waiting of this.#receivers) count += waiting.isParty ? waiting.size : 1;
    return count;
  }

  /** Whether anyone waits for a task, or to see one. */
  get isWaitedFor(): boolean {
    return this.#receivers.size > 0 || this.#peekers.size > 0;
  }

  close(error: Error): void {
    endAll(this.#receivers, error);
    endAll(this.#peekers, error);
  }

  /** Hands tasks to a receiver, now or when there are some. */
  receive(receiver: Waiter): void {
    if (this.#receivers.size === 0 && !this.#loading) {
      this.#consumer.host.serveOthers?.();
      const outcome = this.#deliverTo(receiver);
      if (outcome === "delivered") return;
      if (outcome === "none" && !receiver.waits) {
        receiver.resolve();
        return;
      }
    }
    // Those before it wait because there is nothing; it does not want to.
    if (!receiver.waits && !this.#loading && !this.#hasTasks) receiver.resolve();
    else this.#wait(receiver);
  }

  /** Hands tasks to several at once, as if each of them came by itself. */
  receiveEach(party: Party): void {
    if (this.#receivers.size === 0 && !this.#loading) {
      this.#consumer.host.serveOthers?.();
      if (this.#deliverToEach(party) !== "load") return;
    } else if (!this.#loading && !this.#hasTasks) {
      party.foundNothing();
      return;
    }
    party.standInLine(() => {
      this.#receivers.add(party);
      if (!this.#loading) this.wake();
    });
  }

  /** All leave the party, unless what they are to get has to be read first. */
  #deliverToEach(party: Party): "delivered" | "load" {
    while (party.size > 0) {
      if (this.#loading) return "load";
      try {
        const outcome = this.#deliverTo(party.next());
        if (outcome === "load") return "load";
        if (outcome === "delivered") party.delivered();
        else party.foundNothing();
      } catch (error) {
        party.reject(error as Error);
      }
    }
    return "delivered";
  }

  #wait(receiver: Waiter): void {
    this.#receivers.add(receiver);
    // What there is may not be for anyone now, for its order or the queue's pace; that is found out in its turn.
    if (!receiver.waits && !this.#loading) this.wake();
  }

  get #hasTasks(): boolean {
    const consumer = this.#consumer;
    if (consumer.host.paused === true) return false;
    consumer.refill();
    return consumer.deliverable > 0 || consumer.isFetching;
  }

  /** Ends a receiver's wait without a task, unless one is on its way to it. */
  forget(receiver: Waiter): void {
    if (this.#receivers.delete(receiver)) receiver.resolve();
  }

  /** Shows the next task, now or when there is one. */
  peek(peeker: Peeker): void {
    if (!this.#loading) {
      const found = this.#peekFor(peeker);
      if (found === "delivered") return;
      if (found === "none" && !peeker.waits) {
        peeker.resolve(undefined);
        return;
      }
    }
    this.#peekers.add(peeker);
  }

  forgetPeeker(peeker: Peeker): void {
    if (this.#peekers.delete(peeker)) peeker.resolve(undefined);
  }

  /** Takes up to `max` tasks that are ready and in memory, for nobody. False when there is none. */
  drop(max: number): boolean {
    const { durability } = this.#engine.options;
    const terms = { max, leaseMs: 0, autoAck: true, drops: true, durability, waits: false };
    return this.#deliverTo({ ...terms, give() {}, resolve() {}, reject() {} }) === "delivered";
  }

  /** Called when there may be something for those who wait. */
  wake(): void {
    this.#engine.wake(this.#serve);
  }

  /** Those who only look come first: they take nothing from the others. */
  serve(): void {
    this.isHeldBack = false;
    this.heldUntil = Number.POSITIVE_INFINITY;
    this.#consumer.host.serveOthers?.();
    this.#serveEach(
      this.#peekers,
      (peeker) => this.#peekFor(peeker),
      (peeker) => peeker.resolve(undefined),
    );
    this.#serveEach(
      this.#receivers,
      (waiting) => {
        if (!waiting.isParty) return this.#deliverTo(waiting);
        waiting.recall();
        return this.#deliverToEach(waiting);
      },
      (waiting) => {
        if (!waiting.isParty) waiting.resolve();
      },
    );
  }

  #serveEach<T extends InLine<T>>(line: LinkedList<T>, give: (to: T) => Outcome, giveNothing: (to: T) => void): void {
    for (let waiting = line.oldest, behind = waiting; waiting !== undefined; waiting = behind) {
      if (this.#loading || !line.has(waiting)) return;
      let outcome: Outcome | undefined;
      let failure: unknown;
      try {
        outcome = give(waiting);
      } catch (error) {
        failure = error;
      }
      // As it is now: others may have come, or gone.
      behind = waiting.behind;
      // All have been told that the queue is closed.
      if (!line.has(waiting)) return;
      if (outcome === undefined) {
        line.delete(waiting);
        waiting.reject(failure as Error);
      } else if (outcome === "delivered") {
        line.delete(waiting);
      } else if (outcome === "none" && !waiting.waits) {
        line.delete(waiting);
        giveNothing(waiting);
      } else {
        if (outcome === "load") return;
        // Nothing for this one, so nothing for those behind it, but they may not want to wait.
      }
    }
  }

  /** Stages the delivery of what is ready and in memory, at most what the receiver wants. */
  #deliverTo(receiver: Receiver): Outcome {
    const consumer = this.#consumer;
    const { host } = consumer;
    if (host.paused === true && receiver.drops !== true) return "none";
    consumer.refill();
    const most = consumer.deliverable;
    if (most === 0) return consumer.isFetching ? "load" : "none";
    const engine = this.#engine;
    let max = Math.min(receiver.max, most);
    if (host.pace !== undefined && receiver.drops !== true) {
      max = Math.min(max, this.#paced(host.pace, receiver));
      if (max === 0) return "none";
    }
    const { lanes } = consumer;
    let metaBytes = lanes.length * DELIVERY_HEADER_BYTES + max * DELIVERY_BYTES_MAX;
    if (receiver.autoAck) metaBytes += host.flows?.bytesMax(max) ?? 0;
    const metMax = host.orders?.isUsed === true ? BLOCKED_AT_ONCE : 0;
    if (metMax > 0) metaBytes += lanes.length * DELIVERY_HEADER_BYTES + metMax * BLOCK_BYTES_MAX;
    const tasks: Outstanding[] = [];
    const request = receiver.identify?.(max);
    metaBytes += requestBytes(request);
    engine.begin(0, 0, metaBytes, true);
    let outcome: Outcome = "none";
    const ages = host.ageingMs !== undefined && host.ageingMs > 0 && lanes.length > 1;
    const sweptMax = this.#sweepingCount + SWEPT_PER_TURN;
    try {
      const left = ages ? new Set(lanes) : undefined;
      for (let index = 0; index < lanes.length && tasks.length < max; index++) {
        const lane = left === undefined ? lanes[index]! : this.#mostPressing(left, host.ageingMs!);
        if (lane === undefined) break;
        // With ageing, another lane may come first after each task.
        const upTo = ages ? tasks.length + 1 : max;
        let claimed = this.#claim(lane, upTo, metMax, receiver, tasks);
        while (claimed === "expired" && tasks.length === 0) {
          if (this.#sweepingCount >= sweptMax) {
            claimed = this.#rest();
            break;
          }
          engine.begin(0, 0, metaBytes, true);
          claimed = this.#claim(lane, upTo, metMax, receiver, tasks);
        }
        if (claimed === "load") outcome = claimed;
        // With tasks in hand: those come first, what is behind them is met again.
        if (claimed !== "none") break;
        if (left === undefined) continue;
        if (tasks.length < upTo) left.delete(lane);
        index = -1;
      }
    } finally {
      if (tasks.length === 0) this.#noteMet();
    }
    if (tasks.length === 0) {
      consumer.pass();
      return outcome === "none" && consumer.isFetching ? "load" : outcome;
    }
    let durability = receiver.durability;
    // One operation for each lane.
    const staged = ages ? tasks.toSorted((a, b) => b.ledger.lane - a.ledger.lane) : tasks;
    for (let from = 0; from < staged.length; ) {
      const lane = consumer.lane(staged[from]!.ledger.lane);
      const to = this.#stage(lane, staged, from, receiver);
      // What is not yet visible in the directory's mode is not shown by way of a delivery either.
      if (lane.isNew) durability = "sync";
      for (; from < to && durability !== "sync"; from++) {
        if (staged[from]!.offset >= lane.stream.visible) durability = engine.options.durability;
      }
      from = to;
    }
    const met = this.#met.length === 0 ? NONE : this.#met;
    if (met.length > 0) {
      this.#met = [];
      this.#stageMet(met);
    }
    this.#giving += tasks.length;
    if (!receiver.autoAck) this.#leasing += tasks.length;
    engine.add(new Handover(consumer, tasks, met, receiver, durability), request);
    return "delivered";
  }

  /** Lets what else there is to be done have a turn, then serves again; until then, all wait in line. */
  #rest(): "load" {
    if (this.#loading) return "load";
    this.#loading = true;
    this.#engine.clock.defer(() => {
      this.#loading = false;
      if (!this.#engine.closed) this.serve();
    });
    return "load";
  }

  /** How many tasks the queue's pace lets a receiver have now. */
  #paced(pace: Pace, { autoAck, waits }: Receiver): number {
    const now = this.#engine.elapsedMs();
    const room = pace.room(now, !autoAck, this.#giving);
    if (room === 0 && waits) {
      this.isHeldBack = true;
      this.heldUntil = Math.min(this.heldUntil, pace.endsAt(now));
      this.#consumer.arm();
    }
    return room;
  }

  /** The lane whose next task comes first when tasks gain a priority per so much waiting. */
  #mostPressing(lanes: Iterable<Lane>, ageingMs: number): Lane | undefined {
    const { elapsedMs, wallMs } = this.#engine.time();
    let first: Lane | undefined;
    let most = Number.NEGATIVE_INFINITY;
    for (const lane of lanes) {
      const task = lane.again;
      // A blocked one may have been waiting for the cursor to pass it.
      if (task === undefined && lane.fresh <= 0 && lane.ledger.blocked.size === 0) continue;
      let waitedMs = task === undefined ? 0 : elapsedMs - task.since;
      if (lane.fresh > 0) {
        // Behind one that has just come back, the next may have waited for long: they press together. About when it was
        // enqueued; looking at the record itself would cost a step of the reader for each claim.
        waitedMs = Math.max(waitedMs, wallMs - lane.stream.timestampAt(lane.stream.skipGaps(lane.from)));
      }
      const pressing = lane.number + Math.max(0, waitedMs) / ageingMs;
      // The most urgent lanes come first, also of those that press the same.
      if (pressing <= most) continue;
      most = pressing;
      first = lane;
    }
    return first;
  }

  /** Notes in a commit of its own which tasks the cursors have passed as they are blocked. */
  #noteMet(): void {
    const met = this.#met;
    if (met.length === 0) return;
    this.#met = [];
    const engine = this.#engine;
    const consumer = this.#consumer;
    try {
      engine.begin(0, 0, consumer.lanes.length * DELIVERY_HEADER_BYTES + met.length * BLOCK_BYTES_MAX, true);
    } catch (error) {
      for (const task of met.toReversed()) {
        consumer.lane(task.ledger.lane).taken = task.offset;
        consumer.host.orders!.arrived(task);
      }
      throw error;
    }
    this.#stageMet(met);
    const isNew = met.some(({ ledger }) => consumer.lane(ledger.lane).isNew);
    engine.add({ durability: isNew ? "sync" : "async", apply: () => this.blocked(met), settle() {}, fail() {} });
  }

  /** Behind the delivery of what they come behind. */
  #stageMet(met: readonly Outstanding[]): void {
    for (const lane of this.#consumer.lanes) {
      const tasks = met.filter(({ ledger }) => ledger === lane.ledger);
      if (tasks.length === 0) continue;
      const output = this.#consumer.operation(ConsumerOp.Block);
      output.varint(lane.number);
      output.varint(lane.notePassed());
      output.varint(tasks.length);
      for (const { offset, limit, bytes, order } of tasks) {
        output.varint(offset);
        output.varint(limit);
        output.varint(bytes);
        output.varint(order);
      }
      this.#engine.endOperation();
    }
  }

  /** Notes that the record that the cursor has come to is blocked. */
  #meet(lane: Lane, { offset, end, payloadStart }: RecordCursor, { limit }: TaskAttributes, order: number): void {
    lane.take(offset);
    const task = new Outstanding(lane.ledger, offset);
    task.limit = limit;
    task.bytes = end - payloadStart;
    task.order = order;
    this.#met.push(task);
    this.#consumer.host.orders!.coming(task, "blocked");
  }

  /** Stages the operation for the tasks of one lane, from an index on; returns the one behind them. */
  #stage(lane: Lane, tasks: readonly Outstanding[], from: number, { autoAck, drops, leaseMs }: Receiver): number {
    const { ledger } = lane;
    let to = from + 1;
    while (to < tasks.length && tasks[to]!.ledger === ledger) to++;
    const taken = drops === true ? ConsumerOp.Discard : ConsumerOp.Take;
    const { flows } = this.#consumer.host;
    if (autoAck && drops !== true && flows?.hasChildren === true) {
      flows.stageDone(tasks.slice(from, to));
    }
    const output = this.#consumer.operation(autoAck ? taken : ConsumerOp.Deliver);
    output.varint(ledger.lane);
    output.varint(lane.notePassed());
    if (!autoAck) output.varint(leaseMs);
    output.varint(to - from);
    for (let index = from; index < to; index++) {
      const task = tasks[index]!;
      output.varint(task.offset);
      // Taken by the cursor, and not from those that were outstanding before.
      const fresh = task.phase === TaskPhase.Done ? 1 : 0;
      if (autoAck) {
        output.varint(task.bytes * 2 + fresh);
        continue;
      }
      output.varint(task.attempt * 4 + (task.order === 0 ? 0 : 2) + fresh);
      if (task.order !== 0) output.varint(task.order);
      output.varint(task.limit);
      output.varint(task.bytes);
      output.u32(task.tokenHigh);
      output.u32(task.tokenLow);
    }
    this.#engine.endOperation();
    return to;
  }

  /** Takes ready tasks of a lane: those delivered before first, then from the cursor on. */
  #claim(
    lane: Lane,
    max: number,
    metMax: number,
    receiver: Receiver,
    into: Outstanding[],
  ): "none" | "load" | "expired" {
    const { ledger } = lane;
    const { orders } = this.#consumer.host;
    for (let task = lane.again; into.length < max && task !== undefined; task = lane.again) {
      const reader = lane.againReader;
      let found: "record" | "load" | "gone";
      try {
        found = lane.findAgain(task.offset);
      } catch (error) {
        if (into.length > 0) return "none"; // those come first; the error is met again
        this.#consumer.setAside(task, error as Error);
        throw error;
      }
      if (found === "load") return this.#load(lane, reader, into.length, task);
      if (found === "gone") {
        if (into.length === 0) this.#sweepGone(lane, task);
        return "expired";
      }
      const attributes = lane.attributes(reader.record);
      if (this.#isOver(reader.record, attributes)) {
        if (into.length === 0) this.#sweep(lane, task);
        return "expired";
      }
      // Its time has come, and its key was not known until now.
      if (attributes.orderKey !== undefined && task.order === 0 && orders !== undefined) {
        if (!orders.join(task, orderOf(attributes.orderKey), task.offset >= lane.from)) continue;
      }
      if (task.attempt === 0) task.limit = attributes.limit;
      ledger.hold(task);
      this.#claimed(task, reader.record, attributes, receiver);
      into.push(task);
    }
    while (into.length < max) {
      if (this.#isRefused(lane)) return "none";
      let found: "record" | "end" | "load";
      try {
        found = lane.nextFresh(lane.stream.next);
      } catch (error) {
        if (into.length > 0) return "none";
        lane.passDamage(error);
        throw error;
      }
      if (found === "load") return this.#load(lane, lane.reader, into.length, undefined);
      if (found === "end") {
        // The cursor may have passed tasks that waited for that.
        const more = into.length < max && orders?.inUse === true && lane.again !== undefined;
        return more ? this.#claim(lane, max, metMax, receiver, into) : "none";
      }
      const { record } = lane.reader;
      const attributes = lane.attributes(record);
      if (this.#isOver(record, attributes)) {
        if (into.length === 0) this.#sweep(lane, undefined);
        return "expired";
      }
      let order = 0;
      if (attributes.orderKey !== undefined && orders !== undefined) {
        order = orderOf(attributes.orderKey);
        if (!orders.mayTake(order)) {
          if (orders.isFull) {
            lane.refuse(record, attributes, order);
            return "none";
          }
          if (this.#met.length >= metMax) {
            // Nothing less urgent may be taken instead: what is behind this one is met by the next delivery.
            if (into.length > 0) return "expired";
            this.#noteMet();
            return "expired";
          }
          this.#meet(lane, record, attributes, order);
          continue;
        }
      }
      lane.take(record.offset);
      const task = new Outstanding(ledger, record.offset);
      task.limit = attributes.limit;
      if (order !== 0) {
        task.order = order;
        orders!.coming(task, "out");
      }
      this.#claimed(task, record, attributes, receiver);
      into.push(task);
    }
    return "none";
  }

  #claimed(task: Outstanding, record: RecordCursor, attributes: TaskAttributes, receiver: Receiver): void {
    const { random } = this.#engine;
    task.reserved = true;
    task.attempt++;
    task.bytes = record.end - record.payloadStart;
    if (!receiver.autoAck) {
      // As signed numbers they need no memory of their own.
      task.tokenHigh = random.uint32() | 0;
      task.tokenLow = random.uint32() | 0;
    }
    receiver.give(task, record, attributes);
  }

  /**
   * Whether a lane's next task is known to come behind others with its order key. It is not read again for that: where more lanes stand
   * before such tasks than there is memory for, each would take it from the next one, without end.
   */
  #isRefused({ refused }: Lane): boolean {
    const { orders } = this.#consumer.host;
    if (refused === undefined || orders === undefined || !orders.isFull) return false;
    return !orders.mayTake(refused.order) && !this.#isOver(refused, refused.attributes);
  }

  #isOver(record: Pick<RecordCursor, "timestamp">, attributes: TaskAttributes): boolean {
    const ttlMs = this.#consumer.host.ttlMs ?? 0;
    if (attributes.expiresAt === 0 && ttlMs === 0) return false;
    return isOver(record, attributes, ttlMs, this.#engine.clock.wallMs(), this.#consumer.host.guard);
  }

  /** Removes every task at the head whose time is over; resolves with how many when they are gone. */
  async expire(): Promise<number> {
    const before = this.swept;
    for (const lane of this.#consumer.lanes) {
      await new Promise<void>((resolve, reject) => {
        const alone = { before: undefined, behind: undefined };
        this.peek({ ...alone, lanes: [lane], waits: false, resolve: () => resolve(), reject });
      });
    }
    await this.#sweeping;
    return this.swept - before;
  }

  /**
   * Stages the removal of tasks whose time is over from the head of a lane, as far as it is in memory.
   * @param first the first of them, if it was delivered before; its record is the one that its reader stands at
   */
  #sweep(lane: Lane, first: Outstanding | undefined): void {
    const { host } = this.#consumer;
    // The cursor is about to be moved past them.
    this.#noteMet();
    const swept: Swept[] = [];
    let bulkBytes = 0;
    let records = 0;
    let again = first;
    for (;;) {
      const { record } = again === undefined ? lane.reader : lane.againReader;
      const attributes = lane.attributes(record);
      if (!this.#isOver(record, attributes)) break;
      const task = again ?? new Outstanding(lane.ledger, record.offset);
      task.bytes = record.end - record.payloadStart;
      const successor = host.expired?.(this.#consumer, task, record, attributes);
      if (again === undefined) lane.take(task.offset);
      else lane.ledger.hold(task);
      if (successor !== undefined) {
        bulkBytes += recordBytesMax(successor.parts);
        records++;
      }
      swept.push({ task, successor });
      if (swept.length >= SWEPT_AT_ONCE || bulkBytes >= SWEPT_BYTES) break;
      again = lane.again;
      try {
        const found = again === undefined ? lane.nextFresh(lane.stream.next) : lane.findAgain(again.offset);
        if (found !== "record") break;
      } catch {
        break; // whoever wants the next task meets the error again
      }
    }
    this.#stageSwept(lane, swept, bulkBytes, records);
    this.#sweepingCount += swept.length;
    // Those that come behind them may follow.
    if (host.orders?.inUse === true) this.#engine.flush();
  }

  /** Stages the end of a task whose record is no longer there. */
  #sweepGone(lane: Lane, task: Outstanding): void {
    lane.ledger.hold(task);
    this.#stageSwept(lane, [{ task, successor: undefined }], 0, 0);
  }

  #stageSwept(lane: Lane, swept: readonly Swept[], bulkBytes: number, records: number): void {
    const engine = this.#engine;
    const { host } = this.#consumer;
    const metaBytes = OPERATION_HEADER_BYTES + (4 + 2 * swept.length) * VARINT_BYTES_MAX;
    try {
      engine.begin(bulkBytes, records, metaBytes, true);
    } catch (error) {
      for (const { successor } of swept) successor?.decided?.();
      for (const { task } of swept.toReversed()) {
        if (task.phase === TaskPhase.Done) lane.taken = task.offset;
        else lane.ledger.unhold(task);
      }
      throw error;
    }
    for (const { successor } of swept) {
      if (successor === undefined) continue;
      engine.append(successor.stream, successor.parts);
      successor.decided?.();
    }
    const output = this.#consumer.operation(ConsumerOp.Discard);
    output.varint(lane.number);
    output.varint(lane.notePassed());
    output.varint(swept.length);
    for (const { task } of swept) {
      task.reserved = true;
      output.varint(task.offset);
      output.varint(task.bytes * 2 + (task.phase === TaskPhase.Done ? 1 : 0));
    }
    engine.endOperation();
    this.#sweeping = new Promise((settle, fail) => {
      engine.add({
        durability: engine.options.durability,
        apply: () => {
          this.swept += swept.length;
          const { counts, dead } = this.#consumer;
          for (const { successor } of swept)
            if (successor !== undefined && successor.stream === dead.stream) counts.died++;
          for (const { task, successor } of swept) {
            lane.ledger.take(task);
            this.#consumer.ended(task, this.#endingOf(successor));
            successor?.applied();
          }
          host.handedOut?.();
        },
        settle,
        fail,
      });
    });
    this.#sweeping.catch(() => {}); // a failure is everybody's already
  }

  #endingOf(successor: Successor | undefined): Ending {
    if (successor === undefined) return "expired";
    return successor.stream === this.#consumer.dead.stream ? "late" : "moved";
  }

  /** Shows a peeker the task that would be delivered next, once it may be seen. */
  #peekFor(peeker: Peeker): Outcome {
    try {
      return this.#showNext(peeker, this.#sweepingCount + SWEPT_PER_TURN);
    } finally {
      this.#noteMet();
    }
  }

  #showNext(peeker: Peeker, sweptMax: number): Outcome {
    const { host, lanes } = this.#consumer;
    const ages = host.ageingMs !== undefined && host.ageingMs > 0 && peeker.lanes === undefined && lanes.length > 1;
    const left = new Set(peeker.lanes ?? lanes);
    while (left.size > 0) {
      const [next] = left;
      const lane = ages ? this.#mostPressing(left, host.ageingMs!) : next;
      if (lane === undefined) break;
      const task = lane.again;
      if (task === undefined && this.#isRefused(lane)) {
        left.delete(lane);
        continue;
      }
      const reader = task === undefined ? lane.reader : lane.againReader;
      let found: "record" | "end" | "load" | "gone";
      try {
        found = task === undefined ? lane.nextFresh(lane.stream.next) : lane.findAgain(task.offset);
      } catch (error) {
        if (task !== undefined) this.#consumer.setAside(task, error as Error);
        else lane.passDamage(error);
        throw error;
      }
      if (found === "end") {
        if (lane.again === undefined) left.delete(lane);
        continue;
      }
      if (found === "load") return this.#load(lane, reader, 0, task);
      if (found === "gone") {
        this.#sweepGone(lane, task!);
        return this.#showNext(peeker, sweptMax);
      }
      const { record } = reader;
      const attributes = lane.attributes(record);
      if (this.#isOver(record, attributes)) {
        this.#sweep(lane, task);
        return this.#sweepingCount < sweptMax ? this.#showNext(peeker, sweptMax) : this.#rest();
      }
      if (attributes.orderKey !== undefined && host.orders !== undefined && (task?.order ?? 0) === 0) {
        const order = orderOf(attributes.orderKey);
        if (task !== undefined) {
          if (!host.orders.join(task, order, task.offset >= lane.from)) continue;
        } else if (!host.orders.mayTake(order)) {
          if (host.orders.isFull) lane.refuse(record, attributes, order);
          else this.#meet(lane, record, attributes, order);
          if (this.#met.length >= BLOCKED_AT_ONCE) this.#noteMet();
          continue;
        }
      }
      const shown = task ?? new Outstanding(lane.ledger, record.offset);
      const seen = new LeasedTask(this.#consumer, shown, record, attributes);
      if (shown.offset < lane.stream.visible) peeker.resolve(seen);
      else this.#showLater(peeker, seen);
      return "delivered";
    }
    return "none";
  }

  /** Shows a task that is not committed in the directory's mode when it is, whoever may have been given it by then. */
  #showLater(peeker: Peeker, seen: LeasedTask): void {
    const engine = this.#engine;
    engine.begin(0, 0, 0, true);
    engine.add({
      durability: engine.options.durability,
      apply() {},
      settle: () => peeker.resolve(seen),
      fail: (error) => peeker.reject(error),
    });
  }

  /**
   * Fetches what a reader needs from disk, then serves again.
   * @param claimed tasks that are in hand already
   * @param again the task that it is for, if delivered before
   */
  #load(lane: Lane, reader: StreamReader, claimed: number, again: Outstanding | undefined): "load" {
    // With tasks in hand there is no hurry, except to read on.
    if (this.#loading || (claimed > 0 && again !== undefined)) return "load";
    this.#loading = true;
    reader.load().then(
      () => {
        this.#loading = false;
        this.serve();
      },
      (error: Error) => {
        this.#loading = false;
        // One of those who wait is told of damage; the next ones get what stands behind it.
        if (!endFirst(this.#receivers, error)) endFirst(this.#peekers, error);
        if (again !== undefined) this.#consumer.setAside(again, error);
        else lane.passDamage(error);
        this.serve();
      },
    );
    return "load";
  }

  /** After a delivery has been logged. */
  delivered(tasks: readonly Outstanding[], leaseMs: number): void {
    const { elapsedMs } = this.#engine.entryTime;
    const { host } = this.#consumer;
    for (const task of tasks) {
      task.reserved = false;
      task.ledger.deliver(task, elapsedMs, leaseMs);
      if (task.order !== 0) host.orders?.handedOut(task);
    }
    this.#leasing -= tasks.length;
    this.#given(tasks.length);
    this.#consumer.counts.delivered += tasks.length;
    this.#consumer.arm();
    this.#consumer.host.handedOut?.();
  }

  taken(tasks: readonly Outstanding[], how: Ending): void {
    const { counts } = this.#consumer;
    if (how === "dropped") {
      this.#giving -= tasks.length;
      counts.discarded += tasks.length;
    } else {
      this.#given(tasks.length);
      counts.delivered += tasks.length;
      counts.acked += tasks.length;
      const { flows } = this.#consumer.host;
      if (flows?.hasChildren === true) flows.done(tasks);
    }
    for (const task of tasks) {
      task.reserved = false;
      task.ledger.take(task);
      if (task.order !== 0) this.#consumer.host.orders?.arrived(task);
      this.#consumer.ended(task, how);
    }
    this.#consumer.host.handedOut?.();
  }

  /** After it has been logged that tasks are blocked. */
  blocked(tasks: readonly Outstanding[]): void {
    const { elapsedMs } = this.#engine.entryTime;
    for (const task of tasks) this.#consumer.host.orders!.block(task, elapsedMs);
  }

  #given(count: number): void {
    this.#giving -= count;
    this.#consumer.host.pace?.handedOut(count, this.#engine.entryTime.elapsedMs);
    if (this.isHeldBack) this.wake();
  }
}

type InLine<T> = InList<T> & Pick<Receiver, "waits" | "reject"> & { readonly size?: number };

/** Tells the first one in a line. False when nobody stands there. */
function endFirst<T extends InLine<T>>(line: LinkedList<T>, error: Error): boolean {
  const { oldest } = line;
  if (oldest === undefined) return false;
  // Others of a party stay.
  if ((oldest.size ?? 1) <= 1) line.delete(oldest);
  oldest.reject(error);
  return true;
}

function endAll<T extends InLine<T>>(line: LinkedList<T>, error: Error): void {
  while (endFirst(line, error));
}

/** A delivery on its way through the log. */
class Handover implements Operation {
  readonly durability: Durability;
  readonly #consumer: Consumer;
  readonly #tasks: readonly Outstanding[];
  readonly #met: readonly Outstanding[];
  readonly #receiver: Receiver;

  constructor(
    consumer: Consumer,
    tasks: readonly Outstanding[],
    met: readonly Outstanding[],
    receiver: Receiver,
    durability: Durability,
  ) {
    this.durability = durability;
    this.#consumer = consumer;
    this.#tasks = tasks;
    this.#met = met;
    this.#receiver = receiver;
  }

  apply(): void {
    const { leaseMs, autoAck, drops } = this.#receiver;
    if (autoAck) this.#consumer.delivery.taken(this.#tasks, drops === true ? "dropped" : "done");
    else this.#consumer.delivery.delivered(this.#tasks, leaseMs);
    if (this.#met.length > 0) this.#consumer.delivery.blocked(this.#met);
  }

  settle(): void {
    this.#receiver.resolve();
  }

  fail(error: Error): void {
    this.#receiver.reject(error);
  }
}
