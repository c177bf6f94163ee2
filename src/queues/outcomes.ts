/**
 * What is known of a task besides its place in the queue: the result that it brought, how far its worker has got, where
 * it stands since it was redriven, and who waits for it to end.
 *
 *   op         fields                          effect
 *   Result     id, record offset, bytes        the record of the queue's stream of results is what the task brought
 *   Progress   lane, offset, JSON              what the worker says of a task that it holds
 *   Redriven   n { id, lane, offset }          the dead letter is a task again, which stands there now
 *
 * A result, and the place of a redriven task, is logged in the commit that acknowledges or redrives the task.
 */

import type { TaskConfig } from "../api/options.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { FIRST_QUEUE_OP, type LogTime } from "../engine/queue-state.js";
import type { RecordParts } from "../storage/batch.js";
import { type Decoder, type Encoder, MalformedError, VARINT_BYTES_MAX } from "../storage/bytes.js";
import type { Stream } from "../storage/stream.js";
import { readRecord } from "../storage/stream-reader.js";
import type { Consumer } from "./consumer.js";
import { TaskPhase } from "./ledger.js";
import { type Ending, type KeptResult, ResultTable, ResultWaiters } from "./results.js";
import { taskId } from "./task-record.js";

/** On disk: append, never renumber. */
export const OutcomeOp = {
  Result: FIRST_QUEUE_OP + 90,
  Progress: FIRST_QUEUE_OP + 91,
  Redriven: FIRST_QUEUE_OP + 92,
} as const;

const OUTCOME_OPS: ReadonlySet<number> = new Set(Object.values(OutcomeOp));

export function isOutcomeOp(code: number): boolean {
  return OUTCOME_OPS.has(code);
}

/** Folder of a task queue's stream of results. */
export const RESULTS_FOLDER = "results";

/** Redriven tasks whose new place is known, at most; the oldest are forgotten first. */
const REDRIVEN_MAX = 100_000;

/** An id has at most 18 characters. */
const ID_BYTES_MAX = 24;
export const RESULT_META_BYTES_MAX = OPERATION_HEADER_BYTES + ID_BYTES_MAX + 3 * VARINT_BYTES_MAX;

/** Where a task stands in its queue. */
export interface TaskPlace {
  readonly lane: number;
  readonly offset: number;
}

/** A redriven task and where it stands now. */
export interface Redriven extends TaskPlace {
  readonly id: string;
}

/** What an operation on redriven tasks takes, at most. */
export function redrivenBytesMax(count: number): number {
  return OPERATION_HEADER_BYTES + VARINT_BYTES_MAX + count * (ID_BYTES_MAX + 3 * VARINT_BYTES_MAX);
}

interface OutcomesHost {
  readonly id: number;
  readonly name: string;
  readonly config: TaskConfig;
  readonly consumer: Consumer;
}

export class Outcomes {
  results = new ResultTable();
  readonly waiters = new ResultWaiters();
  /** Made when the first result is kept. */
  stream: Stream | undefined;
  readonly #host: OutcomesHost;
  /** By id, the oldest first; and the same by place. */
  readonly #redriven = new Map<string, Redriven>();
  readonly #idAt = new Map<string, string>();
  #engine!: Engine;

  constructor(host: OutcomesHost) {
    this.#host = host;
  }

  attach(engine: Engine): void {
    this.#engine = engine;
  }

  close(error: Error): void {
    this.waiters.close(error);
  }

  /** Whether anything here hangs on the end of tasks. */
  get isWatching(): boolean {
    return this.waiters.size > 0 || this.#redriven.size > 0;
  }

  // ---------------------------------------------------------------------------------------------------- the tasks' ids

  /** What a task is called: the same before and after it is redriven. */
  idAt(lane: number, offset: number): string {
    return this.#idAt.get(placeKey(lane, offset)) ?? taskId(lane, offset);
  }

  /** Where a redriven task stands now; undefined when it is done, or was never redriven. */
  redrivenTo(id: string): TaskPlace | undefined {
    return this.#redriven.get(id);
  }

  stageRedriven(tasks: readonly Redriven[]): void {
    const output = this.#engine.operation(OutcomeOp.Redriven, this.#host.id);
    output.varint(tasks.length);
    for (const { id, lane, offset } of tasks) {
      output.string(id);
      output.varint(lane);
      output.varint(offset);
    }
    this.#engine.endOperation();
  }

  redriven(tasks: Iterable<Redriven>): void {
    for (const task of tasks) {
      this.#forget(task.id);
      this.#redriven.set(task.id, task);
      this.#idAt.set(placeKey(task.lane, task.offset), task.id);
      if (this.#redriven.size <= REDRIVEN_MAX) continue;
      const [oldest] = this.#redriven.keys();
      this.#forget(oldest!);
    }
  }

  #forget(id: string): void {
    const known = this.#redriven.get(id);
    if (known === undefined) return;
    this.#redriven.delete(id);
    this.#idAt.delete(placeKey(known.lane, known.offset));
  }

  // ------------------------------------------------------------------------------------------------------- their ends

  /** A task has left the queue, in life or in replay. */
  ended(lane: number, offset: number, how: Ending): void {
    const id = this.idAt(lane, offset);
    this.#forget(id);
    this.waiters.tell(id, how);
  }

  /** Everything below these offsets has left the queue, but for what is leased. */
  purged(bounds: ReadonlyMap<number, number>): void {
    const isGone = ({ lane, offset }: TaskPlace) => {
      const task = this.#host.consumer.lanes.find(({ number }) => number === lane)?.ledger.outstanding.get(offset);
      return task?.phase !== TaskPhase.Leased && offset < (bounds.get(lane) ?? 0);
    };
    const gone = new Set<string>();
    for (const id of this.waiters.ids()) {
      const place = this.#redriven.get(id) ?? placeOf(id);
      if (place !== undefined && isGone(place)) gone.add(id);
    }
    for (const task of this.#redriven.values()) if (isGone(task)) this.#forget(task.id);
    for (const id of gone) this.waiters.tell(id, "purged");
  }

  // ---------------------------------------------------------------------------------------------------------- results

  /** Stages the result of a task that is acknowledged in the same commit. Returns what is to be done when that is logged. */
  stageResult(id: string, parts: RecordParts, bytes: number): () => void {
    const engine = this.#engine;
    const offset = engine.append(this.stream!, parts);
    const output = engine.operation(OutcomeOp.Result, this.#host.id);
    output.string(id);
    output.varint(offset);
    output.varint(bytes);
    engine.endOperation();
    return () => this.#kept(id, offset, bytes, engine.entryTime);
  }

  #kept(id: string, offset: number, bytes: number, { elapsedMs }: LogTime): void {
    this.results.add(id, offset, bytes, this.#host.config.resultTtlMs, elapsedMs);
  }

  find(id: string): KeptResult | undefined {
    return this.results.find(id, this.#host.config.resultTtlMs, this.#engine.elapsedMs());
  }

  /** The value of a result; undefined when its record is no longer there. */
  async read({ offset }: KeptResult): Promise<unknown> {
    const { stream } = this;
    if (stream === undefined || offset < stream.head) return undefined;
    const found = await readRecord(stream, this.#engine, offset, (record) => record.payload().toString("utf8"));
    return found && JSON.parse(found.used);
  }

  get lowest(): number {
    // Before the queue is in use, nothing is too old.
    return this.results.lowest(this.#host.config.resultTtlMs, this.#engine?.elapsedMs() ?? 0);
  }

  /** After a repair: keeps only results whose records are there. */
  retain(): void {
    const { stream } = this;
    this.results.retain((offset) => stream !== undefined && offset >= stream.head && offset < stream.next);
  }

  // --------------------------------------------------------------------------------------------------------- progress

  stageProgress({ lane, offset }: TaskPlace, json: string): void {
    const output = this.#engine.operation(OutcomeOp.Progress, this.#host.id);
    output.varint(lane);
    output.varint(offset);
    output.string(json);
    this.#engine.endOperation();
  }

  progressed({ lane, offset }: TaskPlace, json: string): void {
    const task = this.#host.consumer.lane(lane).ledger.outstanding.get(offset);
    if (task === undefined) throw new MalformedError(`task ${offset} of queue ${this.#host.name} is not outstanding`);
    task.progress = json;
  }

  // ----------------------------------------------------------------------------------------------------------- on disk

  /** All but `Redriven`, which concerns other parts of the queue as well. */
  replay(code: number, input: Decoder, time: LogTime): void {
    if (code === OutcomeOp.Result) this.#kept(input.string(), input.varint(), input.varint(), time);
    else this.progressed({ lane: input.varint(), offset: input.varint() }, input.string());
  }

  encode(output: Encoder): void {
    this.results.encode(output);
    output.varint(this.#redriven.size);
    for (const { id, lane, offset } of this.#redriven.values()) {
      output.string(id);
      output.varint(lane);
      output.varint(offset);
    }
  }

  decode(input: Decoder): void {
    this.results = ResultTable.decode(input);
    this.redriven(decodeRedriven(input));
  }
}

/** The record of a result. */
export function resultParts(id: string, json: string): RecordParts {
  return { payload: json, key: id, headers: undefined, attributes: undefined };
}

export function decodeRedriven(input: Decoder): Redriven[] {
  return Array.from({ length: input.varint() }, () => {
    return { id: input.string(), lane: input.varint(), offset: input.varint() };
  });
}

/** The place that a task's id names, where it was enqueued. Digit by digit: once for each task that is enqueued under a name. */
export function placeOf(id: string): TaskPlace | undefined {
  const { length } = id;
  let lane = 0;
  let at = 0;
  if (length > 1 && id.charCodeAt(1) === DASH) {
    lane = id.charCodeAt(0) - ZERO;
    if (lane < 1 || lane > 9) return undefined;
    at = 2;
  }
  if (at === length || length - at > OFFSET_DIGITS_MAX) return undefined;
  let offset = 0;
  for (; at < length; at++) {
    const digit = id.charCodeAt(at) - ZERO;
    if (digit < 0 || digit > 9) return undefined;
    offset = offset * 10 + digit;
  }
  return { lane, offset };
}

const ZERO = 48;
const DASH = 45;
const OFFSET_DIGITS_MAX = 16;

function placeKey(lane: number, offset: number): string {
  return `${lane} ${offset}`;
}
