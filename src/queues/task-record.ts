/**
 * What a task queue keeps in the attributes of its records: a list of varint tag | varint bytes | value.
 */

import type { Failure } from "../api/contract.js";
import { Decoder, Encoder, MalformedError } from "../storage/bytes.js";
import { decodeFailures, encodeFailures } from "./ledger.js";

/** On disk: append, never renumber. */
const Tag = { Limit: 1, Failures: 2, Death: 3, Origin: 4 } as const;

/** How a task died. */
export interface Death {
  readonly id: string;
  readonly enqueuedAt: number;
  readonly diedAt: number;
  readonly attempts: number;
  readonly reason: string;
}

/** What a redriven task was when it was enqueued; its id is its offset then. */
export interface Origin {
  readonly offset: number;
  readonly timestamp: number;
}

export interface TaskAttributes {
  /** Deliveries allowed: 0 for the queue's rule, else one more than the number (1: unlimited). */
  limit: number;
  failures: Failure[] | undefined;
  death: Death | undefined;
  origin: Origin | undefined;
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
    value.varint(attributes.origin.offset);
    value.varint(attributes.origin.timestamp);
    put(Tag.Origin);
  }
  return output.position === 0 ? undefined : output.view();
}

const NONE: TaskAttributes = Object.freeze({
  limit: 0,
  failures: undefined,
  death: undefined,
  origin: undefined,
});

export function decodeTaskAttributes(bytes: Buffer | undefined): TaskAttributes {
  if (bytes === undefined) return NONE;
  const attributes: TaskAttributes = { limit: 0, failures: undefined, death: undefined, origin: undefined };
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
      attributes.origin = { offset: value.varint(), timestamp: value.varint() };
    } else {
      throw new MalformedError(`task attribute ${tag} is not known`);
    }
  }
  return attributes;
}
