/**
 * The calls with a layout of their own: what is made most. Layouts: src/wire/layouts.ts
 *
 * Payloads and keys are views of what the socket was read into, good until the call has returned: a queue copies what it takes
 * before that, whoever calls it. What is put in together with others of this turn is copied here.
 */

import { CallName } from "../api/call-name.js";
import type {
  CommitOptions,
  Durability,
  Enqueued,
  EnqueueOptions,
  LogQueue,
  RequestIdentity,
  TaskQueue,
  TaskSource,
} from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import type { Put } from "../net/puts.js";
import { Kind } from "../wire/frame.js";
import type { Input } from "../wire/input.js";
import {
  durabilityOf,
  isPlainMessage,
  PAYLOAD_AT,
  readMessage,
  readMessages,
  readTerms,
  readTokens,
  writeOffsets,
  writeRecords,
} from "../wire/layouts.js";
import { type Method, Methods } from "../wire/methods.js";
import { readValue } from "../wire/value.js";
import { type Connection, leaving } from "./connection.js";
import { COPIED_BYTES_MAX } from "./copies.js";
import { Dequeue } from "./dequeue.js";
import type { Handle, Source } from "./session.js";

export interface HotCall {
  readonly method: Method;
  readonly id: number;
  readonly handle: Handle;
  readonly waitMs: number;
  /** By which a repeated call is known. */
  readonly request: RequestIdentity | undefined;
  readonly input: Input;
}

type Run = (connection: Connection, call: HotCall) => void;

const LEASE = 8;
const RESULT = 4;
const DELAY = 4;
const ERROR = 8;
const DEAD = 16;

export const HOT: readonly (Run | undefined)[] = (() => {
  const byOpcode: (Run | undefined)[] = [];
  const define = (method: Method, run: Run) => {
    byOpcode[method.opcode] = run;
  };
  define(Methods.append, append);
  define(Methods.appendBatch, appendBatch);
  define(Methods.read, read);
  define(Methods.memberRead, memberRead);
  define(Methods.enqueue, enqueue);
  define(Methods.enqueueBatch, enqueueBatch);
  define(Methods.dequeue, dequeue);
  define(Methods.ack, ack);
  define(Methods.nack, nack);
  define(Methods.extend, extend);
  return byOpcode;
})();

function wrongHandle({ method, handle }: HotCall): VarveError {
  return new VarveError("ERR_ARGUMENT", `a ${handle.type} has no ${method.name}`);
}

function logOf(call: HotCall): LogQueue {
  if (call.handle.type !== "log") throw wrongHandle(call);
  return call.handle.object;
}

function tasksOf(call: HotCall): TaskQueue {
  if (call.handle.type !== "task") throw wrongHandle(call);
  return call.handle.object;
}

function sourceOf(call: HotCall): Source {
  const { type, object } = call.handle;
  if (type === "log" || type === "member") throw wrongHandle(call);
  return object;
}

/** Answers when the promise is settled. `write` writes the body of the answer. */
function answer<T>(
  connection: Connection,
  { method, id }: HotCall,
  promise: Promise<T>,
  write: (connection: Connection, value: T) => void,
): void {
  connection.begun(method);
  promise.then(
    (value) => tell(connection, method, id, value, write),
    (error: unknown) => tellFailure(connection, method, id, error),
  );
}

function tell<T>(
  connection: Connection,
  method: Method,
  id: number,
  value: T,
  write: (connection: Connection, value: T) => void,
): void {
  connection.done(method, id);
  if (connection.isOver) return;
  if (connection.isLeaving && method.waits && (value as unknown[]).length === 0) {
    connection.fail(id, leaving());
    return;
  }
  try {
    connection.output.begin(Kind.Ok, id);
    write(connection, value);
    connection.ended();
  } catch (error) {
    connection.fail(id, error);
  }
}

function tellFailure(connection: Connection, method: Method, id: number, error: unknown): void {
  connection.done(method, id);
  connection.fail(id, error);
}

/** Has a call that puts the message which is left in made together with others of this turn, where that can be. */
function putTogether<Q extends LogQueue | TaskQueue, T>(
  connection: Connection,
  { method, id, request, input }: HotCall,
  put: Put<Q, Connection, T>,
  queue: Q,
  durability: Durability | undefined,
): boolean {
  // A name that is none is the contract's to refuse.
  if (request !== undefined && !(request instanceof CallName)) return false;
  if (!isPlainMessage(input, COPIED_BYTES_MAX)) return false;
  connection.begun(method);
  connection.put(put, queue, id, request, durability, input.memory, input.at + PAYLOAD_AT, input.endAt);
  return true;
}

const nothing = () => {};

/** `undefined` where the call says nothing, which is what embedded queues are quickest with. */
function commitOptions({ request }: HotCall, flags: number): CommitOptions | undefined {
  const durability = durabilityOf(flags);
  return durability === undefined && request === undefined ? undefined : { durability, request };
}

// ----------------------------------------------------------------------------------------------------------------- logs

const INTO_LOG: Put<LogQueue, Connection, number> = {
  one: (log, message, options) => log.append(message, options),
  answer: (connection, id, offset) => tell(connection, Methods.append, id, offset, writeOffset),
  fail: (connection, id, error) => tellFailure(connection, Methods.append, id, error),
};

function writeOffset({ output }: Connection, offset: number): void {
  output.u64(offset);
}

function append(connection: Connection, call: HotCall): void {
  const { input } = call;
  const log = logOf(call);
  const flags = input.u8();
  if (putTogether(connection, call, INTO_LOG, log, durabilityOf(flags))) return;
  const message = readMessage(input);
  input.end();
  connection.makePuts();
  const options = commitOptions(call, flags);
  answer(connection, call, log.append(message, options), writeOffset);
}

function appendBatch(connection: Connection, call: HotCall): void {
  const { input } = call;
  const log = logOf(call);
  const options = commitOptions(call, input.u8());
  const messages = readMessages(input);
  input.end();
  answer(connection, call, log.appendBatch(messages, options), ({ output }, offsets) => writeOffsets(output, offsets));
}

function read(connection: Connection, call: HotCall): void {
  const offset = call.input.u64();
  call.input.end();
  answer(connection, call, logOf(call).read(offset), ({ output }, record) => {
    writeRecords(output, record === undefined ? [] : [record]);
  });
}

function memberRead(connection: Connection, call: HotCall): void {
  const { handle, input, id, waitMs } = call;
  if (handle.type !== "member") throw wrongHandle(call);
  const max = input.u32();
  const maxBytes = input.u64();
  const arrived = input.u64();
  input.end();
  const signal = connection.waitOf(id);
  const records = handle.served.read(arrived, { max, maxBytes, wait: waitMs, signal });
  answer(connection, call, records, ({ output }, read) => writeRecords(output, read));
}

// ---------------------------------------------------------------------------------------------------------------- tasks

function named(terms: EnqueueOptions | undefined, { request }: HotCall): EnqueueOptions | undefined {
  return request === undefined ? terms : { ...terms, request };
}

const INTO_TASKS: Put<TaskQueue, Connection, Enqueued> = {
  one: (tasks, message, options) => tasks.enqueue(message, options),
  answer: (connection, id, enqueued) => tell(connection, Methods.enqueue, id, enqueued, writeEnqueued),
  fail: (connection, id, error) => tellFailure(connection, Methods.enqueue, id, error),
};

function writeEnqueued({ output }: Connection, { id, created }: Enqueued): void {
  output.u8(created ? 1 : 0);
  output.ascii(id);
}

function enqueue(connection: Connection, call: HotCall): void {
  const { input } = call;
  const tasks = tasksOf(call);
  const terms = readTerms(input);
  if (terms === undefined && putTogether(connection, call, INTO_TASKS, tasks, undefined)) return;
  const message = readMessage(input);
  input.end();
  connection.makePuts();
  const enqueued = tasks.enqueue(message, named(terms, call));
  answer(connection, call, enqueued, writeEnqueued);
}

function enqueueBatch(connection: Connection, call: HotCall): void {
  const { input } = call;
  const tasks = tasksOf(call);
  const terms = named(readTerms(input), call);
  const dedupeKeys = readValue(input) as readonly (string | undefined)[] | undefined;
  const messages = readMessages(input);
  input.end();
  const options = dedupeKeys === undefined ? terms : { ...terms, dedupeKeys };
  answer(connection, call, tasks.enqueueBatch(messages, options), (to, enqueued) => {
    to.output.u32(enqueued.length);
    for (const task of enqueued) writeEnqueued(to, task);
  });
}

function dequeue(connection: Connection, call: HotCall): void {
  const { input, id, method, waitMs, request } = call;
  const take = new Dequeue(connection, id, sourceOf(call), waitMs, input);
  // One with a name, which may have been made before, is looked up by itself.
  if (request === undefined && take.isPlain && connection.take(take)) return;
  connection.makeTakes();
  take.make(request);
  connection.begun(method);
}

function ack(connection: Connection, call: HotCall): void {
  const { input } = call;
  const source = sourceOf(call);
  const flags = input.u8();
  const tokens = readTokens(input);
  const result = (flags & RESULT) === 0 ? undefined : readValue(input);
  input.end();
  const session = connection.session!;
  const options = commitOptions(call, flags);
  const acked =
    (flags & RESULT) !== 0
      ? tasksOf(call).ack(tokens[0]!, { ...options, result })
      : tokens.length === 1
        ? source.ack(tokens[0]!, options)
        : source.ackBatch(tokens, options);
  answer(connection, call, acked, () => {
    for (const token of tokens) session.settled(token);
  });
}

function nack(connection: Connection, call: HotCall): void {
  const { input, handle } = call;
  if (handle.type === "log" || handle.type === "member" || handle.type === "cursor") throw wrongHandle(call);
  const flags = input.u8();
  const token = input.ascii();
  const delay = (flags & DELAY) === 0 ? undefined : input.f64();
  const error = (flags & ERROR) === 0 ? undefined : input.string();
  const dead = (flags & DEAD) !== 0;
  input.end();
  const options = { durability: durabilityOf(flags), request: call.request, delay, error, dead };
  const session = connection.session!;
  answer(connection, call, (handle.object as TaskSource).nack(token, options), ({ output }, nacked) => {
    session.settled(token);
    output.u8(nacked.dead ? 1 : 0);
  });
}

function extend(connection: Connection, call: HotCall): void {
  const { input, handle } = call;
  if (handle.type === "log" || handle.type === "member" || handle.type === "cursor") throw wrongHandle(call);
  const flags = input.u8();
  const token = input.ascii();
  const lease = (flags & LEASE) === 0 ? undefined : input.f64();
  input.end();
  const session = connection.session!;
  const extended = (handle.object as TaskSource).extend(token, lease, commitOptions(call, flags));
  answer(
    connection,
    call,
    extended.then(() => session.settled(token)),
    nothing,
  );
}
