/**
 * The fixed layouts of what is called most, protocol 1. Spec: docs/protocol.md
 *
 *   message   flags u8 (1 key, 2 headers), [key], [headers], payload
 *   headers   u32 count, then name and value of each
 *   terms     flags u16, then what they announce, in this order (bits in `Term`)
 *   task      flags u8 (1 key, 2 headers, 4 order key, 8 expiry), priority u8, attempt u32, timestamp f64, id, token,
 *             [key], [headers], [order key], [expiry f64], payload
 *   record    flags u8 (1 key, 2 headers, 4 tombstone), offset u64, timestamp f64, [key], [headers], payload
 *
 * Keys, payloads, ids, names and values are a u32 length and as many bytes. Several of a kind stand behind a u32 count.
 */

import type { Durability, EnqueueOptions, Headers, LogRecord, MessageInit, Task } from "../api/contract.js";
import { getU32 } from "../api/integers.js";
import type { GivenTask } from "../api/take-each.js";
import { type Input, malformed } from "./input.js";
import type { Output } from "./output.js";

const KEY = 1;
const HEADERS = 2;
const ORDER_KEY = 4;
const EXPIRY = 8;
const TOMBSTONE = 4;

/** Least bytes, so that a count can be checked against what there is. */
const MESSAGE_BYTES_MIN = 5;
const TASK_BYTES_MIN = 26;
const RECORD_BYTES_MIN = 21;
const HEADER_BYTES_MIN = 8;

/** Of a message that is nothing else: behind its flags and its length. */
export const PAYLOAD_AT = 1 + 4;

const UNCOUNTED_CHARS = 128;

/** What a call says of the durability of its commit. */
const SYNC = 1;
const ASYNC = 2;

export function durabilityFlags(durability: Durability | undefined): number {
  return durability === undefined ? 0 : durability === "sync" ? SYNC : ASYNC;
}

export function durabilityOf(flags: number): Durability | undefined {
  return (flags & SYNC) !== 0 ? "sync" : (flags & ASYNC) !== 0 ? "async" : undefined;
}

// ----------------------------------------------------------------------------------------------------------- messages

/** A message on its way into a queue, its payload encoded. */
export interface Parts {
  payload: string | Uint8Array;
  key: string | Uint8Array | undefined;
  headers: Headers | undefined;
}

export function writeMessage(output: Output, { payload, key, headers }: Parts): void {
  output.u8((key === undefined ? 0 : KEY) | (headers === undefined ? 0 : HEADERS));
  if (key !== undefined) output.data(key);
  if (headers !== undefined) writeHeaders(output, headers);
  output.data(payload);
}

/**
 * Whether the rest of a body is one message, and that nothing but a payload of up to so many bytes: its last bytes, from
 * `PAYLOAD_AT` behind the place at which the input is. Nothing is read.
 */
export function isPlainMessage(input: Input, bytesMax: number): boolean {
  const { left } = input;
  if (left < PAYLOAD_AT || left > PAYLOAD_AT + bytesMax || input.memory[input.at] !== 0) return false;
  return getU32(input.memory, input.at + 1) === left - PAYLOAD_AT;
}

/** As `append` and `enqueue` of a queue of bytes take it. */
export function readMessage(input: Input): Buffer | MessageInit<Buffer> {
  const flags = input.u8();
  if (flags === 0) return input.data();
  const key = (flags & KEY) === 0 ? undefined : input.data();
  const headers = (flags & HEADERS) === 0 ? undefined : readHeaders(input);
  return { payload: input.data(), key, headers };
}

export function writeMessages(output: Output, messages: readonly Parts[]): void {
  let bytes = 4;
  for (const message of messages) bytes += messageBytesMax(message);
  output.expect(bytes);
  output.u32(messages.length);
  for (const message of messages) writeMessage(output, message);
}

function messageBytesMax({ payload, key, headers }: Parts): number {
  let bytes = MESSAGE_BYTES_MIN + dataBytesMax(payload);
  if (key !== undefined) bytes += 4 + dataBytesMax(key);
  if (headers !== undefined) bytes += headersBytesMax(headers);
  return bytes;
}

/** Short strings are not counted. */
function dataBytesMax(value: string | Uint8Array): number {
  if (typeof value !== "string") return value.length;
  return value.length <= UNCOUNTED_CHARS ? 3 * value.length : Buffer.byteLength(value);
}

function headersBytesMax(headers: Headers): number {
  let bytes = 4;
  for (const name in headers) bytes += HEADER_BYTES_MIN + 3 * (name.length + headers[name]!.length);
  return bytes;
}

export function readMessages(input: Input): (Buffer | MessageInit<Buffer>)[] {
  const count = input.count(MESSAGE_BYTES_MIN);
  const messages: (Buffer | MessageInit<Buffer>)[] = [];
  for (let index = 0; index < count; index++) messages.push(readMessage(input));
  return messages;
}

function writeHeaders(output: Output, headers: Headers): void {
  const names = Object.keys(headers);
  output.u32(names.length);
  for (const name of names) {
    output.data(name);
    output.data(headers[name]!);
  }
}

function readHeaders(input: Input): Headers {
  const headers: Record<string, string> = {};
  for (let left = input.count(HEADER_BYTES_MIN); left > 0; left--) {
    const name = input.string();
    const value = input.string();
    if (name === "__proto__") {
      Object.defineProperty(headers, name, { value, writable: true, enumerable: true, configurable: true });
    } else {
      headers[name] = value;
    }
  }
  return headers;
}

// -------------------------------------------------------------------------------------------------------------- terms

/** Bits 1 and 2 are SYNC and ASYNC. */
const Term = {
  delay: 4,
  at: 8,
  maxAttempts: 16,
  priority: 32,
  ttl: 64,
  expiresAt: 128,
  dedupeKey: 256,
  orderKey: 512,
} as const;

/** Options of `enqueue`, checked. */
export interface Terms {
  readonly durability: Durability | undefined;
  readonly delayMs: number;
  readonly atMs: number | undefined;
  /** 0: unlimited. */
  readonly maxAttempts: number | undefined;
  readonly priority: number;
  readonly ttlMs: number | undefined;
  readonly expiresAtMs: number | undefined;
  readonly orderKey: string | undefined;
}

/** @param dedupeKey of a single task */
export function writeTerms(output: Output, terms: Terms, dedupeKey: string | undefined): void {
  const { durability, delayMs, atMs, maxAttempts, priority, ttlMs, expiresAtMs, orderKey } = terms;
  output.u16(
    durabilityFlags(durability) |
      (delayMs === 0 ? 0 : Term.delay) |
      (atMs === undefined ? 0 : Term.at) |
      (maxAttempts === undefined ? 0 : Term.maxAttempts) |
      (priority === 0 ? 0 : Term.priority) |
      (ttlMs === undefined ? 0 : Term.ttl) |
      (expiresAtMs === undefined ? 0 : Term.expiresAt) |
      (dedupeKey === undefined ? 0 : Term.dedupeKey) |
      (orderKey === undefined ? 0 : Term.orderKey),
  );
  if (delayMs !== 0) output.f64(delayMs);
  if (atMs !== undefined) output.f64(atMs);
  if (maxAttempts !== undefined) output.u32(maxAttempts);
  if (priority !== 0) output.u8(priority);
  if (ttlMs !== undefined) output.f64(ttlMs);
  if (expiresAtMs !== undefined) output.f64(expiresAtMs);
  if (dedupeKey !== undefined) output.data(dedupeKey);
  if (orderKey !== undefined) output.data(orderKey);
}

/** As `enqueue` takes them; `undefined` where nothing is said. */
export function readTerms(input: Input): EnqueueOptions | undefined {
  const flags = input.u16();
  if (flags === 0) return undefined;
  const has = (term: number) => (flags & term) !== 0;
  const delay = has(Term.delay) ? input.f64() : undefined;
  const at = has(Term.at) ? new Date(input.f64()) : undefined;
  const attempts = has(Term.maxAttempts) ? input.u32() : undefined;
  return {
    durability: durabilityOf(flags),
    delay,
    at,
    maxAttempts: attempts === 0 ? Number.POSITIVE_INFINITY : attempts,
    priority: has(Term.priority) ? input.u8() : undefined,
    ttl: has(Term.ttl) ? input.f64() : undefined,
    expiresAt: has(Term.expiresAt) ? new Date(input.f64()) : undefined,
    // A batch has none of that name.
    ...(has(Term.dedupeKey) ? { dedupeKey: input.string() } : {}),
    orderKey: has(Term.orderKey) ? input.string() : undefined,
  };
}

// -------------------------------------------------------------------------------------------------------------- tasks

export function writeTasks(output: Output, tasks: readonly Task[]): void {
  output.u32(tasks.length);
  for (const task of tasks) {
    writeTaskHead(output, task);
    output.data(task.payload);
  }
}

/** The same of tasks from an index on, before another one. */
export function writeGivenTasks(output: Output, tasks: readonly GivenTask[], from: number, to: number): void {
  output.u32(to - from);
  for (let index = from; index < to; index++) {
    const task = tasks[index]!;
    writeTaskHead(output, task);
    output.part(task.memory, task.payloadStart, task.payloadEnd);
  }
}

type TaskHead = Pick<
  GivenTask,
  "id" | "token" | "attempt" | "timestamp" | "priority" | "orderKey" | "expiresAt" | "key" | "headers"
>;

function writeTaskHead(output: Output, task: TaskHead): void {
  const { key, headers, orderKey, expiresAt } = task;
  const hasHeaders = !isEmpty(headers);
  output.u8(
    (key === undefined ? 0 : KEY) |
      (hasHeaders ? HEADERS : 0) |
      (orderKey === undefined ? 0 : ORDER_KEY) |
      (expiresAt === undefined ? 0 : EXPIRY),
  );
  output.u8(task.priority);
  output.u32(task.attempt);
  output.f64(task.timestamp);
  output.ascii(task.id);
  output.ascii(task.token);
  if (key !== undefined) output.data(key);
  if (hasHeaders) writeHeaders(output, headers);
  if (orderKey !== undefined) output.data(orderKey);
  if (expiresAt !== undefined) output.f64(expiresAt);
}

/** A task that came over the wire. Its payload is bytes until a codec has read it. */
export class WireTask<O = unknown> implements Task<O> {
  readonly id: string;
  readonly attempt: number;
  readonly token: string;
  readonly timestamp: number;
  readonly priority: number;
  readonly orderKey: string | undefined;
  readonly expiresAt: number | undefined;
  readonly key: Buffer | undefined;
  readonly headers: Headers;
  payload: O;

  constructor(input: Input) {
    const flags = input.u8();
    this.priority = input.u8();
    this.attempt = input.u32();
    this.timestamp = input.f64();
    this.id = input.ascii();
    this.token = input.ascii();
    this.key = (flags & KEY) === 0 ? undefined : input.data();
    this.headers = (flags & HEADERS) === 0 ? NO_HEADERS : readHeaders(input);
    this.orderKey = (flags & ORDER_KEY) === 0 ? undefined : input.string();
    this.expiresAt = (flags & EXPIRY) === 0 ? undefined : input.f64();
    this.payload = input.data() as O;
  }
}

export function readTasks(input: Input): WireTask[] {
  const count = input.count(TASK_BYTES_MIN);
  const tasks: WireTask[] = [];
  for (let index = 0; index < count; index++) tasks.push(new WireTask(input));
  return tasks;
}

export function writeTokens(output: Output, tokens: readonly string[]): void {
  output.u32(tokens.length);
  for (const token of tokens) output.data(token);
}

export function readTokens(input: Input): string[] {
  const count = input.count(4);
  const tokens: string[] = [];
  for (let index = 0; index < count; index++) tokens.push(input.ascii());
  return tokens;
}

// ------------------------------------------------------------------------------------------------------------ records

export function writeRecords(output: Output, records: readonly LogRecord[]): void {
  let bytes = 4;
  for (const { key, headers, payload } of records) {
    bytes += RECORD_BYTES_MIN + payload.length;
    if (key !== undefined) bytes += 4 + key.length;
    bytes += headersBytesMax(headers);
  }
  output.expect(bytes);
  output.u32(records.length);
  for (const record of records) {
    const { key, headers } = record;
    const hasHeaders = !isEmpty(headers);
    output.u8((key === undefined ? 0 : KEY) | (hasHeaders ? HEADERS : 0) | (record.tombstone ? TOMBSTONE : 0));
    output.u64(record.offset);
    output.f64(record.timestamp);
    if (key !== undefined) output.data(key);
    if (hasHeaders) writeHeaders(output, headers);
    output.data(record.payload);
  }
}

/** A record that came over the wire. Its payload is bytes until a codec has read it. */
export class WireRecord<O = unknown> implements LogRecord<O> {
  readonly offset: number;
  readonly timestamp: number;
  readonly key: Buffer | undefined;
  readonly headers: Headers;
  payload: O;
  readonly tombstone: boolean;

  constructor(input: Input) {
    const flags = input.u8();
    this.offset = input.u64();
    this.timestamp = input.f64();
    this.key = (flags & KEY) === 0 ? undefined : input.data();
    this.headers = (flags & HEADERS) === 0 ? NO_HEADERS : readHeaders(input);
    this.payload = input.data() as O;
    this.tombstone = (flags & TOMBSTONE) !== 0;
  }
}

export function readRecords(input: Input): WireRecord[] {
  const count = input.count(RECORD_BYTES_MIN);
  const records: WireRecord[] = [];
  for (let index = 0; index < count; index++) records.push(new WireRecord(input));
  return records;
}

const NO_HEADERS: Headers = Object.freeze({});

function isEmpty(headers: Headers): boolean {
  for (const _ in headers) return false;
  return true;
}

// ------------------------------------------------------------------------------------------------------------ answers

/** Offsets of one commit, which are consecutive. */
export function writeOffsets(output: Output, offsets: readonly number[]): void {
  output.u32(offsets.length);
  output.u64(offsets[0] ?? 0);
}

export function readOffsets(input: Input): number[] {
  const count = input.u32();
  if (count > 2 ** 24) throw malformed(`${count} offsets`);
  const first = input.u64();
  const offsets: number[] = [];
  for (let index = 0; index < count; index++) offsets.push(first + index);
  return offsets;
}
