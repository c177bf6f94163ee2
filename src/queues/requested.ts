/**
 * Calls that may be repeated. The name that a call is given goes with its commit, and so does its answer, in the form that is
 * described here; whoever makes the call again is given that answer instead of a second commit.
 */

import type { CallName } from "../api/call-name.js";
import type { CommitOptions, Nacked, RequestIdentity } from "../api/contract.js";
import { isVarveError, VarveError } from "../api/errors.js";
import { checkBatch } from "../api/input.js";
import { resolveRequest } from "../api/options.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import {
  type Group,
  type IdentifiedCommit,
  type NameRun,
  REQUEST_BYTES_MAX,
  type RequestName,
  type RequestUnderWay,
  runsOf,
} from "../engine/requests.js";
import { Decoder, type Encoder, VARINT_BYTES_MAX } from "../storage/bytes.js";
import { placeOf, type TaskPlace } from "./outcomes.js";
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
  if (tasks.length === 1) {
    output.varint(1);
    encodeTaskRun(output, placeOf(tasks[0]!.id)!, 1, tasks[0]!.created);
    return;
  }
  const runs: { lane: number; offset: number; count: number; created: boolean }[] = [];
  for (const { id, created } of tasks) {
    const { lane, offset } = placeOf(id)!;
    const last = runs[runs.length - 1];
    const follows = last?.lane === lane && last.created === created && last.offset + last.count === offset;
    if (follows) last.count++;
    else runs.push({ lane, offset, count: 1, created });
  }
  output.varint(runs.length);
  for (const run of runs) encodeTaskRun(output, run, run.count, run.created);
}

function encodeTaskRun(output: Encoder, { lane, offset }: TaskPlace, count: number, created: boolean): void {
  output.varint(lane);
  output.varint(offset);
  output.varint(count * 2 + (created ? 1 : 0));
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

/** Calls that may be repeated, on their way to the commit that says how they are answered, all together, with a `T`. */
export interface Answering<T> extends IdentifiedCommit {
  readonly kind: number;
  /**
   * Says how the commit that is about to be staged answers them.
   * @param tell called once all else of the commit is staged
   * @param count of what there may be several in the answer of one call, at most
   */
  answers(tell: () => T, count?: number): this;
  /** The same, where it is known now. */
  tells(value: T): this;
}

/** A call that may be repeated. */
export class Request<T> implements Answering<T> {
  readonly name: CallName;
  readonly runs: readonly NameRun[];
  readonly answer: Answer<T>;
  #tell: (() => T) | undefined;
  #answerCount = 1;

  constructor(name: CallName, answer: Answer<T>) {
    this.name = name;
    this.runs = runsOf([name]);
    this.answer = answer;
  }

  get kind(): number {
    return this.answer.kind;
  }

  get bytesMax(): number {
    return OPERATION_HEADER_BYTES + REQUEST_BYTES_MAX + 1 + this.answer.bytesMax(this.#answerCount);
  }

  answers(tell: () => T, count = 1): this {
    this.#tell = tell;
    this.#answerCount = count;
    return this;
  }

  tells(value: T): this {
    return this.answers(() => value);
  }

  encode(output: Encoder): void {
    output.u8(this.answer.kind);
    this.answer.encode(output, this.#tell!());
  }
}

/** Calls with names of their own that are carried out by one commit, and answered one by one. */
class RequestRun<T> implements Answering<T[]> {
  readonly count: number;
  readonly runs: readonly NameRun[];
  readonly #answer: Answer<T>;
  #tell: (() => T[]) | undefined;
  #told: T[] | undefined;

  constructor(names: readonly CallName[], answer: Answer<T>) {
    this.count = names.length;
    this.runs = runsOf(names);
    this.#answer = answer;
  }

  get kind(): number {
    return this.#answer.kind;
  }

  get bytesMax(): number {
    return this.count * (OPERATION_HEADER_BYTES + REQUEST_BYTES_MAX + 1 + this.#answer.bytesMax(1));
  }

  answers(tell: () => T[]): this {
    this.#tell = tell;
    return this;
  }

  tells(values: T[]): this {
    return this.answers(() => values);
  }

  encode(output: Encoder, index: number): void {
    this.#told ??= this.#tell!();
    output.u8(this.#answer.kind);
    this.#answer.encode(output, this.#told[index]!);
  }
}

/**
 * The same for a batch, each of whose messages is a call of its own.
 * @param together makes all of them
 * @param alone makes one of them, or answers it as it was answered before
 */
export function requestedEach<T>(
  engine: Engine,
  given: RequestIdentity,
  answer: Answer<T>,
  inputs: readonly unknown[],
  together: (requests: RequestRun<T>) => Promise<T[]>,
  alone: (index: number, name: CallName) => Promise<T>,
): Promise<T[]> {
  let name: CallName;
  try {
    name = resolveRequest(given);
    engine.checkOpen();
    checkBatch(inputs);
    checkLast(name, inputs.length);
  } catch (error) {
    return Promise.reject(error as Error);
  }
  const names = inputs.map((_, index) => name.at(index));
  const run = new RequestRun(names, answer);
  if (!areNew(engine, run)) return Promise.all(names.map((each, index) => alone(index, each)));
  return untilAnswered(engine, run, together(run));
}

/**
 * Calls of which each puts one message in, in their order (`PUT_EACH`).
 * @param mayJoin whether one commit may make them
 * @param together stages all of them, or throws
 * @param alone makes one of them, or answers it as it was answered before
 */
export function putEach<T>(
  engine: Engine,
  names: readonly CallName[] | undefined,
  answer: Answer<T>,
  count: number,
  mayJoin: boolean,
  together: (run: RequestRun<T> | undefined, resolve: (told: T[]) => void, reject: (error: Error) => void) => void,
  alone: (index: number, name: CallName | undefined) => Promise<T>,
): Promise<T[]> | Promise<T>[] {
  const run = names && new RequestRun(names, answer);
  const { told, resolve, reject } = settledLater<T[]>();
  const begun = mayJoin && !engine.stalled ? begin(engine, run, told) : undefined;
  if (begun !== undefined) {
    try {
      together(run, resolve, reject);
      endOnceAnswered(engine, begun, told);
      return told;
    } catch {
      // Each of them will say why.
      end(engine, begun);
    }
  }
  return Array.from({ length: count }, (_, index) => alone(index, names?.[index]));
}

/** Functions that keep nothing but the promise: what the calls bring is not to stay in memory until they are answered. */
function settledLater<T>() {
  let resolve!: (told: T) => void;
  let reject!: (error: Error) => void;
  const told = new Promise<T>((onDone, onFailed) => {
    resolve = onDone;
    reject = onFailed;
  });
  return { told, resolve, reject };
}

function areNew({ underWay, catalog }: Engine, { runs }: IdentifiedCommit): boolean {
  return runs.every((run) => !underWay.has(run) && !catalog.requests.has(run));
}

/** Whoever makes one of the calls again until they are answered is given its answer. */
function untilAnswered<T>(engine: Engine, calls: Answering<T>, told: Promise<T>): Promise<T> {
  const begun: Group[] = [];
  // A call, or those of a batch, whose names follow on each other. The name of one that goes on is in the table already.
  const [run] = calls.runs;
  if (run !== undefined && !engine.underWay.has(run)) {
    engine.underWay.add(run, calls.kind, told, calls instanceof RequestRun ? 0 : undefined, begun);
  }
  endOnceAnswered(engine, begun, told);
  return told;
}

/**
 * The same, until they are ended; undefined when one of them has been made before, also as one of these.
 * @param calls undefined: they have no names
 */
function begin<T>(engine: Engine, calls: RequestRun<T> | undefined, told: Promise<T[]>): readonly Group[] | undefined {
  if (calls === undefined) return NO_GROUPS;
  const { underWay, catalog } = engine;
  const begun: Group[] = [];
  let index = 0;
  for (const run of calls.runs) {
    if (underWay.has(run) || catalog.requests.has(run)) {
      end(engine, begun);
      return undefined;
    }
    underWay.add(run, calls.kind, told, index, begun);
    index += run.count;
  }
  return begun;
}

const NO_GROUPS: readonly Group[] = [];

function end(engine: Engine, begun: readonly Group[]): void {
  for (const group of begun) engine.underWay.remove(group);
}

function endOnceAnswered(engine: Engine, begun: readonly Group[], told: Promise<unknown>): void {
  if (begun.length === 0) return;
  const ended = () => end(engine, begun);
  told.then(ended, (error: unknown) => {
    // No one will know more than this as long as the directory is open.
    if (!isVarveError(error, "ERR_OUTCOME_UNKNOWN")) ended();
  });
}

function checkLast({ sequence }: CallName, count: number): void {
  if (Number.isSafeInteger(sequence + count)) return;
  throw new VarveError("ERR_OPTION", "request.sequence leaves no numbers for the messages of the batch", {
    details: { option: "request.sequence" },
  });
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
  const name = options?.request;
  if (name === undefined) return call(undefined);
  let request: Request<T>;
  try {
    request = new Request(resolveRequest(name), answer);
    engine.checkOpen();
  } catch (error) {
    return Promise.reject(error as Error);
  }
  return areNew(engine, request)
    ? untilAnswered(engine, request, call(request))
    : again(engine, options, request, call);
}

type Call<T> = (request: Request<T>, before?: T) => Promise<T>;

/** A call with the name of one that is under way, or has been carried out. */
async function again<T>(
  engine: Engine,
  options: CommitOptions | undefined,
  request: Request<T>,
  call: Call<T>,
): Promise<T> {
  const { answer, name } = request;
  const { sequence } = name;
  for (let first = engine.underWay.find(name); first !== undefined; first = engine.underWay.find(name)) {
    if (first.kind !== answer.kind) throw otherCall(name);
    const told = await answerOf<T>(first);
    if (answer.isNone?.(told) === true) continue;
    const carriedOut = engine.catalog.requests.find(name);
    await untilDurable(engine, options, carriedOut?.state === "answered" ? carriedOut.lsn : engine.lsn);
    return told;
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
    // Another one has gone on from there meanwhile.
    if (engine.underWay.find(name) !== undefined) return await again(engine, options, request, call);
  }
  return await untilAnswered(engine, request, call(request, before));
}

async function answerOf<T>({ answer, index }: RequestUnderWay): Promise<T> {
  const told = await answer;
  return (index === undefined ? told : (told as unknown[])[index]) as T;
}

/** What was answered in another mode is answered in the one that is asked for now. */
async function untilDurable(engine: Engine, options: CommitOptions | undefined, lsn: number): Promise<void> {
  if ((options?.durability ?? engine.options.durability) !== "sync" || engine.durableLsn >= lsn) return;
  try {
    await engine.sync();
  } catch (cause) {
    const text = "the request was carried out, and may not be durable. Reopen the directory to see.";
    throw new VarveError("ERR_OUTCOME_UNKNOWN", text, { cause });
  }
}

function otherCall({ sequence }: RequestName): VarveError {
  return new VarveError(
    "ERR_ARGUMENT",
    `request ${sequence} of this producer was another kind of call. Give each call a sequence number of its own.`,
    { details: { sequence } },
  );
}
