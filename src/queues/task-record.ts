/**
 * What a task queue keeps in the attributes of its records: a list of varint tag | varint bytes | value.
 */

import type { Failure } from "../api/contract.js";
import type { RecordCursor, RecordParts } from "../storage/batch.js";
import { Decoder, Encoder, MalformedError } from "../storage/bytes.js";
import { decodeFailures, encodeFailures, FAILURES_MAX, type Outstanding } from "./ledger.js";
import type { LeasedTask } from "./task-token.js";
import type { WallGuard } from "./wall-guard.js";

/** On disk: append, never renumber. */
const Tag = {
  Limit: 1,
  Failures: 2,
  Death: 3,
  Origin: 4,
  Lane: 5,
  Expires: 6,
  SetAside: 7,
  OrderKey: 8,
  ExpiresByTtl: 9,
} as const;

/** How a task died. */
export interface Death {
  readonly id: string;
  readonly enqueuedAt: number;
  readonly diedAt: number;
  readonly attempts: number;
  readonly reason: string;
}

/** What a redriven task was when it was enqueued. */
export interface Origin {
  readonly id: string;
  readonly timestamp: number;
}

export interface TaskAttributes {
  /** Deliveries allowed: 0 for the queue's rule, else one more than the number (1: unlimited). */
  limit: number;
  failures: Failure[] | undefined;
  death: Death | undefined;
  origin: Origin | undefined;
  /** Of a dead letter: the lane that it died in. */
  lane: number;
  /** Wall clock time after which it is not delivered; 0: never. */
  expiresAt: number;
  /** That time is as far from its enqueue as its own ttl says. */
  hasTtl: boolean;
  /** The cursor passes it: it waits for its time elsewhere. */
  setAside: boolean;
  /** Tasks with the same one are worked on in order. */
  orderKey: string | undefined;
}

export function encodeTaskAttributes(attributes: TaskAttributes): Buffer | undefined {
  const output = new Encoder(256);
  const value = new Encoder(256);
  const put = (tag: number) => {
    output.varint(tag);
    output.varint(value.position);
    output.bytes(value.view());
    value.position = 0;
  };
  // First, where the cursor looks for it.
  if (attributes.setAside) put(Tag.SetAside);
  if (attributes.limit > 0) {
    value.varint(attributes.limit);
    put(Tag.Limit);
  }
  if (attributes.failures !== undefined) {
    encodeFailures(value, attributes.failures);
    put(Tag.Failures);
  }
  if (attributes.death !== undefined) {
    const { id, enqueuedAt, diedAt, attempts, reason } = attributes.death;
    value.string(id);
    value.varint(enqueuedAt);
    value.varint(diedAt);
    value.varint(attempts);
    value.string(reason);
    put(Tag.Death);
  }
  if (attributes.origin !== undefined) {
    value.string(attributes.origin.id);
    value.varint(attributes.origin.timestamp);
    put(Tag.Origin);
  }
  if (attributes.lane > 0) {
    value.varint(attributes.lane);
    put(Tag.Lane);
  }
  if (attributes.expiresAt > 0) {
    value.varint(attributes.expiresAt);
    put(attributes.hasTtl ? Tag.ExpiresByTtl : Tag.Expires);
  }
  if (attributes.orderKey !== undefined) {
    value.string(attributes.orderKey);
    put(Tag.OrderKey);
  }
  return output.position === 0 ? undefined : output.view();
}

export const NO_ATTRIBUTES: TaskAttributes = Object.freeze({
  limit: 0,
  failures: undefined,
  death: undefined,
  origin: undefined,
  lane: 0,
  expiresAt: 0,
  hasTtl: false,
  setAside: false,
  orderKey: undefined,
});

/** Whether attributes say that the task waits for its time elsewhere, without reading the others. */
export function isSetAside(bytes: Buffer | undefined): boolean {
  return bytes !== undefined && bytes[0] === Tag.SetAside;
}

/**
 * Whether a task's time is over.
 * @param ttlMs caps the life of every task of its queue; 0: no cap
 * @param guard of the wall clock: a ttl, the queue's or the task's own, goes by its time
 */
export function isOver(
  { timestamp }: Pick<RecordCursor, "timestamp">,
  { expiresAt, hasTtl }: TaskAttributes,
  ttlMs: number,
  wallMs: number,
  guard: WallGuard | undefined,
): boolean {
  if (expiresAt > 0 && !hasTtl && wallMs > expiresAt) return true;
  if (!hasTtl && ttlMs === 0) return false;
  const ageingMs = guard?.ageingWallMs() ?? wallMs;
  return (hasTtl && ageingMs > expiresAt) || (ttlMs > 0 && ageingMs > timestamp + ttlMs);
}

export function decodeTaskAttributes(bytes: Buffer | undefined): TaskAttributes {
  if (bytes === undefined) return NO_ATTRIBUTES;
  const attributes: TaskAttributes = { ...NO_ATTRIBUTES };
  const input = new Decoder(bytes);
  while (!input.done) {
    const tag = input.varint();
    const value = new Decoder(input.bytes(input.varint()));
    if (tag === Tag.Limit) {
      attributes.limit = value.varint();
    } else if (tag === Tag.Failures) {
      attributes.failures = decodeFailures(value);
    } else if (tag === Tag.Death) {
      const id = value.string();
      const enqueuedAt = value.varint();
      const diedAt = value.varint();
      attributes.death = { id, enqueuedAt, diedAt, attempts: value.varint(), reason: value.string() };
    } else if (tag === Tag.Origin) {
      attributes.origin = { id: value.string(), timestamp: value.varint() };
    } else if (tag === Tag.Lane) {
      attributes.lane = value.varint();
    } else if (tag === Tag.Expires || tag === Tag.ExpiresByTtl) {
      attributes.expiresAt = value.varint();
      attributes.hasTtl = tag === Tag.ExpiresByTtl;
    } else if (tag === Tag.SetAside) {
      attributes.setAside = true;
    } else if (tag === Tag.OrderKey) {
      attributes.orderKey = value.string();
    } else {
      throw new MalformedError(`task attribute ${tag} is not known`);
    }
  }
  return attributes;
}

export type DeathCause = "attempts exhausted" | "discarded" | "expired" | "a child is gone";

/** The dead letter of a task that has failed for the last time. */
export function letterOf(
  task: Outstanding,
  record: RecordCursor,
  attributes: TaskAttributes,
  error: string,
  cause: DeathCause,
  wallMs: number,
): RecordParts {
  const failures = [
    ...(attributes.failures ?? []),
    ...(task.failures ?? []),
    { attempt: task.attempt, at: wallMs, error },
  ];
  const death = {
    id: attributes.origin?.id ?? taskId(task.ledger.lane, task.offset),
    enqueuedAt: attributes.origin?.timestamp ?? record.timestamp,
    diedAt: wallMs,
    attempts: task.attempt,
    reason: `${cause}: ${error}`,
  };
  const kept = {
    ...attributes,
    failures: failures.slice(-FAILURES_MAX),
    death,
    origin: undefined,
    lane: task.ledger.lane,
    setAside: false,
  };
  return {
    payload: record.payload(),
    key: record.key(),
    headers: record.headers(),
    attributes: encodeTaskAttributes(kept),
  };
}

/** The same for a task whose receiver has its record, when it is done already. */
export function takenLetter(task: LeasedTask, error: string, wallMs: number): RecordParts {
  const { id, attempt, timestamp, orderKey, key, headers, payload } = task;
  const death = { id, enqueuedAt: timestamp, diedAt: wallMs, attempts: attempt, reason: `discarded: ${error}` };
  const failures = [{ attempt, at: wallMs, error }];
  const attributes = { ...NO_ATTRIBUTES, failures, death, lane: task.lane, orderKey };
  return { payload: payload as Buffer, key, headers, attributes: encodeTaskAttributes(attributes) };
}

/** Names a task within its queue. */
export function taskId(lane: number, offset: number): string {
  return lane === 0 ? String(offset) : `${lane}-${offset}`;
}
