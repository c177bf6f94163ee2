/**
 * A task queue: a consumer over streams of tasks, one for each priority in use, and what belongs to the queue as a whole.
 *
 *   op            fields                                                         effect
 *   Configure     JSON                                                           the queue's rules
 *   Dedupe        n { key, id }                                                  the key stands for the task from now on
 *
 * The other operations are its consumer's (consumer.ts), those of its cursors (task-cursors.ts), of what becomes of
 * tasks (outcomes.ts), of tasks that wait for their time (scheduled.ts), and of recurring
 * schedules (recurrence.ts).
 */

import type { Headers, TaskStats } from "../api/contract.js";
import { isVarveError } from "../api/errors.js";
import type { TaskConfig } from "../api/options.js";
import { addStream } from "../engine/add-stream.js";
import type { Engine } from "../engine/engine.js";
import { FIRST_QUEUE_OP, type LogTime, type QueueState } from "../engine/queue-state.js";
import { reclaim } from "../engine/reclaim.js";
import type { Rewriter } from "../engine/rewriter.js";
import { Wake } from "../engine/wake.js";
import type { RecordCursor, RecordParts } from "../storage/batch.js";
import { type Decoder, type Encoder, MalformedError } from "../storage/bytes.js";
import type { Stream } from "../storage/stream.js";
import type { Change } from "./commit.js";
import { Consumer, type ConsumerHost, isConsumerOp, type Redriving, type Successor } from "./consumer.js";
import { DeadLimit } from "./dead-limit.js";
import { DedupeTable } from "./dedupe.js";
import { Flows, isFlowOp } from "./flows.js";
import { Lane } from "./lane.js";
import { Ledger, type Outstanding } from "./ledger.js";
import { NewTasks, OP_DEDUPE } from "./new-tasks.js";
import { OrderKeys } from "./order.js";
import { decodeRedriven, isOutcomeOp, OutcomeOp, Outcomes, RESULTS_FOLDER, redrivenBytesMax } from "./outcomes.js";
import { Pace } from "./pace.js";
import { isRecurringOp, Recurrence, type RecurringHost } from "./recurrence.js";
import { RecurringTable, type Template } from "./recurring.js";
import type { Ending } from "./results.js";
import { isScheduledOp, Scheduled, type ScheduledHost } from "./scheduled.js";
import { applyTerms, isTaskChangeOp, replayTaskChange } from "./task-changes.js";
import { isCursorOp, TaskCursors } from "./task-cursors.js";
import { encodeTaskAttributes, letterOf, NO_ATTRIBUTES, type TaskAttributes } from "./task-record.js";
import { TaskRoom } from "./task-room.js";
import { WallGuard } from "./wall-guard.js";

/** On disk: append, never renumber. The others are those of the queue's parts. */
export const TaskOp = {
  Configure: FIRST_QUEUE_OP,
  Dedupe: OP_DEDUPE,
  Clear: FIRST_QUEUE_OP + 12,
} as const;

/** Folders of a task queue's streams. */
const DEAD_FOLDER = "dead";
const LANE_FOLDER = /^p([0-9])$/;
/** Blocks of tasks that wait for their time. */
export const LATER_FOLDER = "later";

/** The consumer that takes tasks away for good. */
const MAIN_CONSUMER = 0;

export class TaskState implements QueueState, ConsumerHost, ScheduledHost, RecurringHost {
  readonly kind = 2;
  readonly prioritized = true;
  readonly id: number;
  readonly name: string;
  readonly streams: Stream[];
  /** Tasks of priority 0, and the dead letters. */
  readonly tasks: Stream;
  readonly deadTasks: Stream;
  readonly consumer: Consumer;
  readonly orders = new OrderKeys(() => this.config);
  readonly #pace = new Pace(
    () => this.config,
    () => this.consumer.leased,
  );
  readonly scheduled: Scheduled;
  dedupe = new DedupeTable();
  recurrence: Recurrence;
  readonly cursors: TaskCursors;
  readonly outcomes = new Outcomes(this);
  readonly flows = new Flows(this);
  config: TaskConfig;
  readonly room = new TaskRoom(this);
  readonly #deadLimit: DeadLimit;
  readonly #admit = new Wake(() => this.room.admit());
  /** Why nothing can be had from the queue any more. */
  ended: Error | undefined;
  guard!: WallGuard;

  #engine!: Engine;
  #later: Stream | undefined;

  private constructor(id: number, name: string, streams: Stream[], config: TaskConfig) {
    this.id = id;
    this.name = name;
    this.streams = streams;
    this.tasks = streams.find((stream) => stream.folder === laneFolder(0))!;
    this.deadTasks = streams.find((stream) => stream.folder === DEAD_FOLDER)!;
    this.config = config;
    this.consumer = new Consumer(MAIN_CONSUMER, this, this.deadTasks);
    this.#deadLimit = new DeadLimit(this.consumer);
    this.scheduled = new Scheduled(this);
    this.cursors = new TaskCursors(this);
    this.recurrence = new Recurrence(this, new RecurringTable());
    const later = streams.find((stream) => stream.folder === LATER_FOLDER);
    if (later !== undefined) this.#keepBlocks(later);
    this.outcomes.stream = streams.find((stream) => stream.folder === RESULTS_FOLDER);
  }

  static create(id: number, name: string, streams: Stream[], config: Buffer): TaskState {
    const state = new TaskState(id, name, streams, parseConfig(config.toString("utf8")));
    state.#addLane(state.tasks, new Ledger(0, 0));
    return state;
  }

  static restore(id: number, name: string, streams: Stream[], input: Decoder): TaskState {
    const state = new TaskState(id, name, streams, parseConfig(input.string()));
    for (let count = input.varint(); count > 0; count--) {
      const number = input.varint();
      const stream = streams.find(({ folder }) => folder === laneFolder(number));
      if (stream === undefined) throw new MalformedError(`there is no stream for priority ${number}`);
      state.#addLane(stream, Ledger.decode(number, input));
    }
    state.consumer.dead.decode(input);
    for (const lane of state.consumer.lanes) lane.aside = input.varint();
    state.scheduled.decode(input);
    state.dedupe = DedupeTable.decode(input);
    state.recurrence = new Recurrence(state, RecurringTable.decode(input));
    state.cursors.decode(input);
    state.outcomes.decode(input);
    state.flows.decode(input);
    state.#pace.decode(input);
    return state;
  }

  /** Connects the state to the engine that it lives in. Further calls do nothing. */
  attach(engine: Engine): void {
    if (this.#engine !== undefined) return;
    this.#engine = engine;
    this.guard = new WallGuard(engine);
    this.scheduled.attach(engine);
    this.consumer.attach(engine);
    this.recurrence.attach(engine);
    this.cursors.attach(engine);
    this.outcomes.attach(engine);
    this.flows.attach(engine);
    this.#deadLimit.attach(engine);
  }

  /** The ledger of the tasks of priority 0. */
  get ledger(): Ledger {
    return this.consumer.lane(0).ledger;
  }

  get exhumed(): Set<number> {
    return this.consumer.dead.exhumed;
  }

  // ---------------------------------------------------------------------------------------------------- for the engine

  get metadata(): Headers {
    return this.config.metadata;
  }

  get count(): number {
    const { ready, waiting, leased, blocked } = this.consumer;
    return ready + waiting + leased + blocked + this.scheduled.size + this.flows.parentCount;
  }

  encode(output: Encoder): void {
    output.string(JSON.stringify(this.config));
    const { lanes, dead } = this.consumer;
    output.varint(lanes.length);
    for (const { ledger } of lanes) {
      output.varint(ledger.lane);
      ledger.encode(output);
    }
    dead.encode(output);
    for (const { aside } of lanes) output.varint(aside);
    this.scheduled.encode(output);
    this.dedupe.encode(output);
    this.recurrence.table.encode(output);
    this.cursors.encode(output);
    this.outcomes.encode(output);
    this.flows.encode(output);
    this.#pace.encode(output);
  }

  addStream(stream: Stream): void {
    const lane = LANE_FOLDER.exec(stream.folder);
    if (lane !== null) this.#addLane(stream, new Ledger(Number(lane[1]), 0));
    else if (stream.folder === LATER_FOLDER) this.#keepBlocks(stream);
    else if (stream.folder === RESULTS_FOLDER) this.outcomes.stream = stream;
    else throw new MalformedError(`a task queue has no stream ${stream.folder}`);
    this.streams.push(stream);
  }

  neededFrom(stream: Stream): number {
    if (stream === this.#later) return Math.min(stream.next, this.scheduled.lowestBlock);
    if (stream === this.outcomes.stream) return Math.min(stream.next, this.outcomes.lowest);
    const lane = this.consumer.lanes.find((each) => each.stream === stream);
    if (lane === undefined) return stream.head;
    const { ledger, number } = lane;
    return Math.min(
      ledger.lowest,
      this.scheduled.lowest(number),
      this.cursors.lowest(number),
      this.flows.lowest(number),
    );
  }

  upkeep(rewriter: Rewriter): Promise<void> | undefined {
    return reclaim(rewriter, this.streams);
  }

  resume(last: LogTime, now: LogTime): void {
    this.consumer.resume(last, now);
    this.scheduled.resume(last, now);
    this.cursors.resume(last, now);
  }

  close(error: Error): void {
    this.ended = error;
    this.room.close(error);
    this.recurrence.close();
    this.consumer.close(error);
    this.cursors.close(error);
    this.outcomes.close(error);
  }

  replay(code: number, input: Decoder, time: LogTime): void {
    if (isConsumerOp(code)) {
      const number = input.varint();
      const consumer = number === MAIN_CONSUMER ? this.consumer : this.cursors.consumer(number);
      consumer?.replay(code, input, time);
    } else if (isCursorOp(code)) {
      this.cursors.replay(code, input);
    } else if (isFlowOp(code)) {
      this.flows.replay(code, input, time);
    } else if (code === OutcomeOp.Redriven) {
      this.redriving.applied(decodeRedriven(input));
    } else if (isOutcomeOp(code)) {
      this.outcomes.replay(code, input, time);
    } else if (isScheduledOp(code)) {
      this.scheduled.replay(code, input, time);
    } else if (isTaskChangeOp(code)) {
      replayTaskChange(this, code, input, time);
    } else if (isRecurringOp(code)) {
      this.recurrence.replay(code, input);
    } else if (code === TaskOp.Dedupe) {
      for (let count = input.varint(); count > 0; count--) {
        const key = input.string();
        this.dedupe.committed(key, input.string(), time.elapsedMs);
      }
    } else if (code === TaskOp.Configure) {
      this.config = parseConfig(input.string());
      this.orders.settle();
    } else if (code === TaskOp.Clear) {
      const bounds = new Map(Array.from({ length: input.varint() }, () => [input.varint(), input.varint()]));
      for (const [lane, offset] of bounds) this.consumer.lane(lane).clear(offset);
      this.scheduled.clear();
      this.cursors.purged();
      this.purged(bounds);
    } else {
      throw new MalformedError(`operation ${code} of a task queue is not known`);
    }
  }

  // ------------------------------------------------------------------------------------------------ for the consumer

  /** Payload bytes of the tasks that are ready or wait for their time. */
  get waitingBytes(): number {
    let bytes = 0;
    for (const lane of this.consumer.lanes) bytes += lane.waitingBytes;
    return bytes;
  }

  /** Tasks that waited have been handed out or are gone. */
  handedOut(): void {
    if (this.room.isWaitedFor) this.#engine.wake(this.#admit);
  }

  get isWatching(): boolean {
    return this.outcomes.isWatching || this.flows.linkCount > 0;
  }

  taskEnded({ ledger, offset }: Outstanding, how: Ending): void {
    this.left(ledger.lane, offset, how);
  }

  /** A task has left the queue, in life or in replay. */
  left(lane: number, offset: number, how: Ending): void {
    this.flows.ended(lane, offset, how);
    this.outcomes.ended(lane, offset, how);
  }

  /** Everything below these offsets has left the queue, but for what is leased. */
  purged(bounds: ReadonlyMap<number, number>): void {
    this.flows.purged(bounds);
    this.outcomes.purged(bounds);
  }

  /** The flows of a task queue of the directory; undefined when it is gone or damaged. Reads nothing from disk. */
  flowsOf(queueId: number): Flows | undefined {
    const entry = this.#engine.catalog.byId(queueId);
    if (entry === undefined || entry.damaged !== undefined) return undefined;
    // Also while it closes: what was accepted before is done.
    if (queueId === this.id) return this.flows;
    let state: TaskState;
    try {
      state = this.#engine.catalog.load(entry) as TaskState;
    } catch (error) {
      // Found damaged only now: for others it is as good as gone, as if it had been known before.
      if (isVarveError(error, "ERR_CORRUPT")) return undefined;
      throw error;
    }
    state.attach(this.#engine);
    return state.flows;
  }

  readonly redriving: Redriving = {
    bytesMax: redrivenBytesMax,
    stage: (tasks) => this.outcomes.stageRedriven(tasks),
    applied: (tasks) => {
      this.outcomes.redriven(tasks);
      this.flows.redriven(tasks);
    },
  };

  get paused(): boolean {
    return this.config.paused;
  }

  get pace(): Pace | undefined {
    const { concurrency, rate } = this.config;
    return concurrency > 0 || rate.limit > 0 ? this.#pace : undefined;
  }

  get ageingMs(): number {
    return this.config.ageingMs;
  }

  get rules(): TaskConfig {
    return this.config;
  }

  /** One task serves a reader of each cursor, and then one of the queue's. */
  serveOthers(): void {
    this.cursors.serve();
  }

  /** A task queue has had its stream of dead letters from the start. */
  openDead(): void {}

  get ttlMs(): number {
    return this.config.ttlMs;
  }

  /** What takes the place of a task whose time is over: nothing, a dead letter, or a task of another queue. */
  expired(
    consumer: Consumer,
    task: Outstanding,
    record: RecordCursor,
    attributes: TaskAttributes,
  ): Successor | undefined {
    const { onExpire } = this.config;
    if (onExpire === "discard") return undefined;
    const heir = onExpire === "dead" ? undefined : this.#queueNamed(onExpire.moveTo);
    const bytes = record.end - record.payloadStart;
    // Tasks that make way may meet others whose time is over: those must not come back here while this goes on.
    const mayDrop = typeof heir?.config.onExpire !== "object";
    const decided = heir?.room.promise(this.#engine, bytes, mayDrop);
    if (heir === undefined || decided === undefined) {
      const { wallMs } = this.#engine.time();
      const parts = letterOf(task, record, attributes, "its time was over before it was delivered", "expired", wallMs);
      return { stream: consumer.dead.stream!, parts, applied() {} };
    }
    const kept = encodeTaskAttributes({ ...NO_ATTRIBUTES, limit: attributes.limit, orderKey: attributes.orderKey });
    const parts = { payload: record.payload(), key: record.key(), headers: record.headers(), attributes: kept };
    return { stream: heir.tasks, parts, applied: () => heir.consumer.delivery.wake(), decided };
  }

  configured(config: TaskConfig): void {
    this.config = config;
    this.orders.settle();
    this.consumer.arm();
    this.consumer.delivery.wake();
    this.handedOut();
    this.#deadLimit.check();
  }

  /** Another task queue of the directory, for use. */
  #queueNamed(name: string): TaskState | undefined {
    const { catalog } = this.#engine;
    const entry = catalog.find(this.kind, name);
    if (entry === undefined || entry.damaged !== undefined) return undefined;
    const state = catalog.load(entry) as TaskState;
    state.attach(this.#engine);
    return state;
  }

  /** The lane of a priority; its stream is added when there is none yet, in a commit of its own. */
  openLane(consumer: Consumer, number: number): Lane {
    const known = consumer.lanes.find((lane) => lane.number === number);
    if (known !== undefined) return known;
    addStream(this.#engine, this, laneFolder(number), () => {
      lane.isNew = false;
    });
    const lane = consumer.lane(number);
    lane.isNew = true;
    return lane;
  }

  #addLane(stream: Stream, ledger: Ledger): void {
    const lane = new Lane(this.name, stream, ledger);
    ledger.orders = this.orders;
    this.orders.restore(ledger);
    const { number } = lane;
    stream.isNeeded = (from, to) => {
      if (ledger.hasUndone(from, to) || this.scheduled.mayHold(number, from, to)) return true;
      return this.cursors.holds(number, from, to) || this.flows.mayHold(number, from, to);
    };
    lane.scheduled = this.scheduled;
    this.consumer.addLane(lane);
    this.cursors.addLane(lane);
  }

  // ------------------------------------------------------------------------------------------ for the queue's parts

  #keepBlocks(stream: Stream): void {
    this.#later = stream;
    stream.isNeeded = (from, to) => this.scheduled.needsBlocks(from, to);
  }

  /** The stream of blocks of tasks that wait for their time; added when there is none yet, in a commit of its own. */
  blockStream(): Stream {
    return this.#later ?? addStream(this.#engine, this, LATER_FOLDER);
  }

  /** The stream of results; added when there is none yet, in a commit of its own. */
  openResults(): void {
    this.outcomes.stream ??= addStream(this.#engine, this, RESULTS_FOLDER);
  }

  setAside(lane: number, count: number): void {
    this.consumer.lane(lane).aside += count;
  }

  changed(): void {
    this.consumer.delivery.wake();
    this.consumer.arm();
  }

  firing({ payload, key, headers, terms }: Template): Change {
    const parts: RecordParts = { payload, key, headers, attributes: undefined };
    const given = JSON.parse(terms);
    applyTerms(parts, given, this.#engine.clock, false);
    return new NewTasks(this.#engine, this, [parts], given.priority ?? 0, undefined, undefined, false);
  }

  // ----------------------------------------------------------------------------------------------------------- stats

  async stats(engine: Engine): Promise<TaskStats> {
    const { consumer, deadTasks } = this;
    const elapsed = engine.elapsedMs();
    const wall = engine.clock.wallMs();
    consumer.ripen();
    const { ready, waiting, leased } = consumer;
    let heldSince = elapsed;
    const dues: number[] = [];
    const dueIn = this.scheduled.dueIn(elapsed, wall);
    if (dueIn !== undefined) dues.push(dueIn);
    const { redriven, ...since } = consumer.counts;
    let added = 0;
    let due = 0;
    let bytes = deadTasks.bytes + (this.#later?.bytes ?? 0) + (this.outcomes.stream?.bytes ?? 0);
    for (const lane of consumer.lanes) {
      const { ledger, stream } = lane;
      const longest = ledger.leased.first;
      if (longest !== undefined) heldSince = Math.min(heldSince, longest.since);
      if (ledger.byElapsed.first !== undefined) dues.push(ledger.byElapsed.first.at - elapsed);
      if (ledger.byWall.first !== undefined) dues.push(ledger.byWall.first.at - wall);
      bytes += stream.bytes;
      added += lane.added;
      due += this.scheduled.due(ledger.lane, elapsed, wall);
    }
    const dead = consumer.dead.countComing;
    const stats = {
      kind: "task" as const,
      name: this.name,
      // Those that nobody has fetched yet are ready all the same.
      ready: ready + due,
      scheduled: waiting + this.scheduled.size - due,
      leased,
      blocked: consumer.blocked + this.flows.parentCount,
      dead,
      paused: this.config.paused,
      bytesReady: this.waitingBytes,
      oldestLeaseAge: Math.max(0, Math.round(elapsed - heldSince)),
      nextDueIn: dues.length === 0 ? undefined : Math.max(0, Math.ceil(Math.min(...dues))),
      oldestDeadAge: dead === 0 ? 0 : Math.max(0, wall - deadTasks.timestampAt(deadTasks.head)),
      waiters: consumer.delivery.waiters,
      bytes,
      enqueued: added - redriven,
      ...since,
      expired: consumer.delivery.swept,
    };
    let oldestReadyAge = 0;
    for (const lane of consumer.lanes)
      oldestReadyAge = Math.max(oldestReadyAge, await this.#oldestAge(lane, elapsed, wall));
    return { ...stats, oldestReadyAge: Math.round(oldestReadyAge) };
  }

  /** How long the oldest task of a lane that could be delivered has been ready; 0 when there is none. */
  async #oldestAge(lane: Lane, elapsed: number, wall: number): Promise<number> {
    const { ledger } = lane;
    let age = 0;
    const [again] = ledger.ready;
    if (again !== undefined) age = elapsed - again.since;
    for (const { since } of ledger.returned) age = Math.max(age, elapsed - since);
    if (lane.fresh > 0) age = Math.max(age, wall - (await lane.firstTimestamp()));
    return age;
  }
}

function laneFolder(number: number): string {
  return `p${number}`;
}

function parseConfig(text: string): TaskConfig {
  try {
    return Object.freeze(JSON.parse(text)) as TaskConfig;
  } catch {
    throw new MalformedError("the queue's configuration is not JSON");
  }
}
