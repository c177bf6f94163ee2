/**
 * Calls that may be repeated. The name that a call is given goes with its commit, and so does its answer, in the form that is
 * described here; whoever makes the call again is given that answer instead of a second commit.
 */

import type { CommitOptions, Nacked } from "../api/contract.js";
import { isVarveError, VarveError } from "../api/errors.js";
import { type ResolvedRequest, resolveRequest } from "../api/options.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { type IdentifiedCommit, REQUEST_BYTES_MAX, type RequestName } from "../engine/requests.js";
import { Decoder, type Encoder, VARINT_BYTES_MAX } from "../storage/bytes.js";
import { placeOf } from "./outcomes.js";
import { taskId } from "./task-record.js";

/** The kinds of answers. On disk: append, never renumber. */
export const AnswerKind = { Nothing: 0, Number: 1, Flag: 2, Offsets: 3, Tasks: 4, Deliveries: 5, Letters: 6 } as const;

/** How one kind of answer is remembered. */
export interface Answer<T> {
  readonly kind: number;
  /** Upper bound for `encode`, for so many of what there may be several. */
  bytesMax(count: number): number;
  encode(output: Encoder, value: T): void;
  decode(input: Decoder): T | Promise<T>;
  /** Whether a call with this answer may have made no commit, so that who waited for it makes his own. */
  isNone?(value: T): boolean;
  /** The call makes several commits, each of which says how far it has got: who repeats it goes on from there. */
  readonly goesOn?: boolean;
}

export const NOTHING: Answer<void> = {
  kind: AnswerKind.Nothing,
  bytesMax: () => 0,
  encode() {},
  decode() {},
};

/** An offset, or how many there were. */
export const WHOLE_NUMBER: Answer<number> = {
  kind: AnswerKind.Number,
  bytesMax: () => VARINT_BYTES_MAX,
  encode: (output, value) => output.varint(value),
  decode: (input) => input.varint(),
};

export const YES_OR_NO: Answer<boolean> = {
  kind: AnswerKind.Flag,
  bytesMax: () => 1,
  encode: (output, value) => output.u8(value ? 1 : 0),
  decode: (input) => input.u8() === 1,
};

export const NACKED: Answer<Nacked> = {
  kind: AnswerKind.Flag,
  bytesMax: () => 1,
  encode: (output, { dead }) => output.u8(dead ? 1 : 0),
  decode: (input) => ({ dead: input.u8() === 1 }),
};

/** Of a batch: they are consecutive. */
export const OFFSETS: Answer<number[]> = {
  kind: AnswerKind.Offsets,
  bytesMax: () => 2 * VARINT_BYTES_MAX,
  encode(output, offsets) {
    output.varint(offsets[0]!);
    output.varint(offsets.length);
  },
  decode(input) {
    const first = input.varint();
    return Array.from({ length: input.varint() }, (_, index) => first + index);
  },
};

/** What `enqueue` answers for one task. */
export interface NamedTask {
  readonly id: string;
  readonly created: boolean;
}

/** Tasks, by their ids: mostly they are consecutive. */
export function tasksAnswer<T>(read: (value: T) => NamedTask[], tell: (tasks: NamedTask[]) => T): Answer<T> {
  return {
    kind: AnswerKind.Tasks,
    bytesMax: (count) => (1 + 3 * count) * VARINT_BYTES_MAX,
    encode: (output, value) => encodeTasks(output, read(value)),
    decode: (input) => tell(decodeTasks(input)),
  };
}

function encodeTasks(output: Encoder, tasks: readonly NamedTask[]): void {
  const runs: { lane: number; offset: number; count: number; created: boolean }[] = [];
  for (const { id, created } of tasks) {
    const { lane, offset } = placeOf(id)!;
    const last = runs[runs.length - 1];
    const follows = last?.lane === lane && last.created === created && last.offset + last.count === offset;
    if (follows) last.count++;
    else runs.push({ lane, offset, count: 1, created });
  }
  output.varint(runs.length);
  for (const { lane, offset, count, created } of runs) {
    output.varint(lane);
    output.varint(offset);
    output.varint(count * 2 + (created ? 1 : 0));
  }
}

function decodeTasks(input: Decoder): NamedTask[] {
  const tasks: NamedTask[] = [];
  for (let runs = input.varint(); runs > 0; runs--) {
    const lane = input.varint();
    const offset = input.varint();
    const counted = input.varint();
    const created = counted % 2 === 1;
    for (let index = 0; index < Math.floor(counted / 2); index++) {
      tasks.push({ id: taskId(lane, offset + index), created });
    }
  }
  return tasks;
}

/** A call that may be repeated, on its way to its commit. */
export class Request<T> implements IdentifiedCommit {
  readonly name: RequestName;
  readonly #answer: Answer<T>;
  #tell: (() => T) | undefined;
  #count = 1;

  constructor(name: RequestName, answer: Answer<T>) {
    this.name = name;
    this.#answer = answer;
  }

  get bytesMax(): number {
    return OPERATION_HEADER_BYTES + REQUEST_BYTES_MAX + 1 + this.#answer.bytesMax(this.#count);
  }

  /**
   * Says how the commit that is about to be staged answers it.
   * @param tell called once all else of the commit is staged
   * @param count of what there may be several in the answer, at most
   */
  answers(tell: () => T, count = 1): this {
    this.#tell = tell;
    this.#count = count;
    return this;
  }

  /** The same, of one with a single thing in its answer, which is known now. */
  tells(value: T): this {
    return this.answers(() => value);
  }

  encode(output: Encoder): void {
    output.u8(this.#answer.kind);
    this.#answer.encode(output, this.#tell!());
  }
}

/**
 * Makes a call, or answers it as it was answered before.
 * @param call its commit carries out the request; without one, it is an ordinary call. `before` is how far it had got, of
 * one that goes on
 */
export function requested<T>(
  engine: Engine,
  options: CommitOptions | undefined,
  answer: Answer<T>,
  call: (request: Request<T> | undefined, before?: T) => Promise<T>,
): Promise<T> {
  if (options?.request === undefined) return call(undefined);
  return once(engine, options, answer, call);
}

async function once<T>(
  engine: Engine,
  options: CommitOptions,
  answer: Answer<T>,
  call: (request: Request<T>, before?: T) => Promise<T>,
): Promise<T> {
  const { producer, sequence, settled } = resolveRequest(options.request);
  const name = { producer: Buffer.from(producer).toString("latin1"), sequence, settled };
  const key = `${name.producer}${sequence}`;
  engine.checkOpen();
  for (let first = engine.underWay.get(key); first !== undefined; first = engine.underWay.get(key)) {
    if (first.kind !== answer.kind) throw otherCall(name);
    const told = (await first.answer) as T;
    if (answer.isNone?.(told) !== true) return told;
  }
  const known = engine.catalog.requests.find(name);
  if (known?.state === "forgotten") {
    throw new VarveError(
      "ERR_OUTCOME_UNKNOWN",
      `request ${sequence} may have been carried out: the answers to this producer's requests up to ${known.upTo} are not ` +
        "remembered any more. Nothing was done now.",
      { details: { sequence, forgotten: known.upTo } },
    );
  }
  let before: T | undefined;
  if (known !== undefined) {
    await untilDurable(engine, options, known.lsn);
    const input = new Decoder(known.answer);
    if (input.u8() !== answer.kind) throw otherCall(name);
    before = await answer.decode(input);
    if (answer.goesOn !== true) return before;
    const other = engine.underWay.get(key);
    if (other !== undefined) return (await other.answer) as T;
  }
  const told = call(new Request(name, answer), before);
  engine.underWay.set(key, { kind: answer.kind, answer: told });
  try {
    const value = await told;
    engine.underWay.delete(key);
    return value;
  } catch (error) {
    // No one will know more than this as long as the directory is open.
    if (!isVarveError(error, "ERR_OUTCOME_UNKNOWN")) engine.underWay.delete(key);
    throw error;
  }
}

/** What was answered in another mode is answered in the one that is asked for now. */
async function untilDurable(engine: Engine, options: CommitOptions, lsn: number): Promise<void> {
  if ((options.durability ?? engine.options.durability) !== "sync" || engine.durableLsn >= lsn) return;
  try {
    await engine.sync();
  } catch (cause) {
    const text = "the request was carried out, and may not be durable. Reopen the directory to see.";
    throw new VarveError("ERR_OUTCOME_UNKNOWN", text, { cause });
  }
}

function otherCall({ sequence }: ResolvedRequest | RequestName): VarveError {
  return new VarveError(
    "ERR_ARGUMENT",
    `request ${sequence} of this producer was another kind of call. Give each call a sequence number of its own.`,
    { details: { sequence } },
  );
}
