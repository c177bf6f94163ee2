/**
 * A shared group of a log: a consumer over the log's records, which the log itself knows nothing of. Its dead letters, and
 * those that were redriven, stand in streams of the group's own, added when the first one needs them.
 *
 *   lane 0     the log's stream: a record is a task
 *   lane 1     letters that were redriven
 *
 * What a trim removes is lost to the group, unless it is in a member's hands: then it is lost if it comes back undone.
 */

import type { ConsumerConfig } from "../api/options.js";
import { addStream } from "../engine/add-stream.js";
import type { Engine } from "../engine/engine.js";
import type { LogTime } from "../engine/queue-state.js";
import { Wake } from "../engine/wake.js";
import { type Decoder, type Encoder, MalformedError } from "../storage/bytes.js";
import type { Stream } from "../storage/stream.js";
import { Consumer, type ConsumerHost } from "./consumer.js";
import { DeadLimit } from "./dead-limit.js";
import { GroupType } from "./group.js";
import { Lane } from "./lane.js";
import { Ledger, type Outstanding, TaskPhase } from "./ledger.js";
import type { LogState } from "./log-state.js";

const LOG_LANE = 0;
const REDRIVEN_LANE = 1;
const GROUP_FOLDER = /^g([1-9][0-9]{0,15})-(dead|redriven)$/;

/** The group that a stream of a log's belongs to; undefined for the log's own. */
export function groupIdOf({ folder }: Stream): number | undefined {
  const id = GROUP_FOLDER.exec(folder)?.[1];
  return id === undefined ? undefined : Number(id);
}

export class SharedGroupState implements ConsumerHost {
  readonly type = GroupType.shared;
  readonly groupId: number;
  readonly name: string;
  readonly consumer: Consumer;
  #rules: ConsumerConfig;
  /** Records that were removed before they were done. */
  lost = 0;
  /** Elapsed time when the group last did something; in a new life, when that began. */
  activeMs = 0;
  readonly #deadLimit: DeadLimit;
  /** Handles that are open, in this process. */
  readonly members = new Set<object>();
  /** Why there is no such group any more. */
  ended: Error | undefined;
  readonly #log: LogState;
  #engine: Engine | undefined;

  constructor(log: LogState, id: number, name: string, rules: ConsumerConfig, cursor: number | Ledger) {
    this.#log = log;
    this.groupId = id;
    this.name = name;
    this.#rules = rules;
    this.consumer = new Consumer(id, this, undefined);
    this.#deadLimit = new DeadLimit(this.consumer);
    const ledger = typeof cursor === "number" ? new Ledger(LOG_LANE, cursor) : cursor;
    this.consumer.addLane(new Lane(this.#title, log.stream, ledger, true));
  }

  /** The log's: the consumer's number says which group of it. */
  get id(): number {
    return this.#log.id;
  }

  get rules(): ConsumerConfig {
    return this.#rules;
  }

  /** They hold for what is there already, too. */
  set rules(rules: ConsumerConfig) {
    this.#rules = rules;
    this.#deadLimit.check();
  }

  get gone(): Error | undefined {
    return this.ended;
  }

  get #title(): string {
    return `${this.#log.name} (group ${this.name})`;
  }

  get #ledger(): Ledger {
    return this.consumer.lane(LOG_LANE).ledger;
  }

  static decode(log: LogState, id: number, name: string, input: Decoder): SharedGroupState {
    const rules = parseRules(input.string());
    const lost = input.varint();
    const group = new SharedGroupState(log, id, name, rules, Ledger.decode(LOG_LANE, input));
    group.lost = lost;
    if (input.u8() === 1) {
      const stream = log.streams.find(({ folder }) => folder === group.#folder("redriven"));
      if (stream === undefined) throw new MalformedError(`group ${id} has no stream of redriven letters`);
      group.#addRedriven(stream, Ledger.decode(REDRIVEN_LANE, input));
    }
    group.consumer.dead.stream = log.streams.find(({ folder }) => folder === group.#folder("dead"));
    group.consumer.dead.decode(input);
    return group;
  }

  encode(output: Encoder): void {
    output.string(JSON.stringify(this.rules));
    output.varint(this.lost);
    this.#ledger.encode(output);
    const redriven = this.#redriven;
    output.u8(redriven === undefined ? 0 : 1);
    redriven?.ledger.encode(output);
    this.consumer.dead.encode(output);
  }

  attach(engine: Engine): void {
    this.#engine = engine;
    this.activeMs = engine.elapsedMs();
    this.consumer.attach(engine);
    this.#deadLimit.attach(engine);
  }

  // ------------------------------------------------------------------------------------------------------- for the log

  /** Everything below is done. */
  get committed(): number {
    return this.#ledger.lowest;
  }

  /** Records that are not done. */
  get lag(): number {
    const { stream, ledger } = this.consumer.lane(LOG_LANE);
    return Math.max(0, stream.recordsLeft(ledger.cursor, stream.visible)) + ledger.outstanding.size;
  }

  neededFrom(stream: Stream): number {
    const redriven = this.#redriven;
    return stream === redriven?.stream ? redriven.ledger.lowest : stream.head;
  }

  /** There are more records. */
  grown(): void {
    if (this.#engine !== undefined) this.consumer.delivery.wake();
  }

  /** A stream of the group's own has been added. */
  addStream(stream: Stream): void {
    if (stream.folder === this.#folder("dead")) {
      this.consumer.dead.stream = stream;
      this.#deadLimit.watch();
    } else this.#addRedriven(stream, new Ledger(REDRIVEN_LANE, 0));
  }

  /** Before the head of the log moves to an offset. */
  trimmed(offset: number): void {
    const ledger = this.#ledger;
    const { stream } = this.#log;
    if (ledger.cursor < offset) {
      this.lost += Math.max(0, stream.recordsLeft(ledger.cursor, offset));
      ledger.advance(offset);
    }
    this.#lose(offset);
  }

  /** Goes on from a position. What members have in hand, or has failed, is as if it had never been handed out. */
  seek(position: number): void {
    for (const task of [...this.#ledger.outstanding]) this.#ledger.finish(task);
    this.consumer.lane(LOG_LANE).rewind(Math.max(position, this.#log.stream.head));
    if (this.#engine !== undefined) this.consumer.delivery.wake();
  }

  resume(last: LogTime, now: LogTime): void {
    this.consumer.resume(last, now);
    this.#lose(this.#log.stream.head);
  }

  close(error: Error): void {
    this.consumer.close(error);
  }

  /** It has been deleted: nothing of it is left, and what its members hold is no one's. */
  end(error: Error): void {
    this.ended = error;
    for (const { ledger } of this.consumer.lanes) for (const task of [...ledger.outstanding]) ledger.finish(task);
    for (const stream of this.streams) stream.trimTo(stream.next);
    // Not at once: a deletion is being applied.
    this.#engine?.wake(new Wake(() => this.consumer.close(error)));
  }

  /** The streams of its own. */
  get streams(): Stream[] {
    return [this.consumer.dead.stream, this.#redriven?.stream].filter((stream) => stream !== undefined);
  }

  // -------------------------------------------------------------------------------------------------- for the consumer

  openDead(consumer: Consumer): void {
    if (consumer.dead.stream === undefined) addStream(this.#engine!, this.#log, this.#folder("dead"));
  }

  /** The log is not added to: what is redriven goes to a stream of the group's. */
  openLane(consumer: Consumer): Lane {
    if (this.#redriven === undefined) addStream(this.#engine!, this.#log, this.#folder("redriven"));
    return consumer.lane(REDRIVEN_LANE);
  }

  /** A record that came back undone, and is no longer there, cannot be delivered again. */
  takenBack(task: Outstanding): void {
    if (task.ledger !== this.#ledger || task.offset >= this.#log.stream.head) return;
    task.ledger.finish(task);
    this.lost++;
  }

  get #redriven(): Lane | undefined {
    return this.consumer.lanes.find(({ number }) => number === REDRIVEN_LANE);
  }

  #addRedriven(stream: Stream, ledger: Ledger): void {
    stream.isNeeded = (from, to) => ledger.hasUndone(from, to);
    this.consumer.addLane(new Lane(this.#title, stream, ledger));
  }

  #folder(what: "dead" | "redriven"): string {
    return `g${this.groupId}-${what}`;
  }

  /** What stands below an offset, and is not in a member's hands. */
  #lose(offset: number): void {
    const ledger = this.#ledger;
    if (ledger.lowest >= offset) return;
    for (const task of [...ledger.outstanding]) {
      if (task.offset >= offset || task.phase === TaskPhase.Leased) continue;
      task.failures = undefined;
      ledger.finish(task);
      this.lost++;
    }
  }
}

export function parseRules(text: string): ConsumerConfig {
  try {
    const rules = JSON.parse(text) as ConsumerConfig;
    return Object.freeze({ ...rules, maxDeadLetters: rules.maxDeadLetters ?? 0 });
  } catch {
    throw new MalformedError("the rules of the group are not JSON");
  }
}
