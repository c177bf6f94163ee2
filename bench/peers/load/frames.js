/**
 * The frames that the load generator sends to a varve daemon. It builds them itself, beforehand, and only writes numbers into
 * them while it runs, so that this protocol costs it no more than the others. Spec: docs/protocol.md
 */

export const PREAMBLE = Buffer.from("\x89VARVE\r\n", "latin1");

export const Kind = { hello: 0x01, goodbye: 0x05, ok: 0x80, failed: 0x81 };

/** Length, kind and request id. */
export const HEAD_BYTES = 9;
const ID_AT = 5;
const OPEN_LOG = 0x10;
const OPEN_TASK = 0x11;
const SHARED_GROUP = 0x13;
const APPEND = 0x20;
const DEQUEUE = 0x40;
const ENQUEUE = 0x50;
const AUTO_ACK = 4;
const ID_BYTES = 16;

const u8 = (value) => Buffer.of(value);
const u16 = (value) => numbered(2, (bytes) => bytes.writeUInt16LE(value));
const u32 = (value) => numbered(4, (bytes) => bytes.writeUInt32LE(value));
const u64 = (value) => numbered(8, (bytes) => writeU64(bytes, 0, value));
const f64 = (value) => numbered(8, (bytes) => bytes.writeDoubleLE(value));

function numbered(length, write) {
  const bytes = Buffer.alloc(length);
  write(bytes);
  return bytes;
}

function writeU64(bytes, at, value) {
  bytes.writeUInt32LE(value >>> 0, at);
  bytes.writeUInt32LE(Math.floor(value / 2 ** 32), at + 4);
}

function data(value) {
  const bytes = Buffer.from(value);
  return Buffer.concat([u32(bytes.length), bytes]);
}

/** What the calls that are made once need of values: strings, booleans, arrays, maps and undefined. */
function encode(value) {
  if (value === undefined) return u8(0);
  if (typeof value === "boolean") return u8(value ? 3 : 2);
  if (typeof value === "string") return Buffer.concat([u8(6), data(value)]);
  if (Array.isArray(value)) return Buffer.concat([u8(10), u32(value.length), ...value.map(encode)]);
  const members = Object.entries(value);
  return Buffer.concat([u8(11), u32(members.length), ...members.flatMap(([name, each]) => [data(name), encode(each)])]);
}

export function frame(kind, id, ...body) {
  const bytes = Buffer.concat(body);
  return Buffer.concat([u32(HEAD_BYTES - 4 + bytes.length), u8(kind), u32(id), bytes]);
}

/** @param {{ clientId: Buffer, name: string, token?: string, features?: number }} hello a new session is asked for */
export function hello({ clientId, name, token = "", features = 1 }) {
  const newSession = Buffer.alloc(ID_BYTES);
  return frame(Kind.hello, 0, u16(1), u16(1), u32(features), clientId, newSession, u64(0), data(name), data(token));
}

export const openLog = (id, handle, name, options) => frame(OPEN_LOG, id, u32(handle), encode([name, options]));

export const openTask = (id, handle, name, options) => frame(OPEN_TASK, id, u32(handle), encode([name, options]));

/** @param {number} group the handle that the group gets; a number among values takes eight bytes */
export const sharedGroup = (id, handle, group, name) =>
  frame(SHARED_GROUP, id, u32(handle), u8(10), u32(3), u8(4), u64(group), encode(name), encode(undefined));

export const goodbye = (id) => frame(Kind.goodbye, id);

/** A call's name: the client is its producer. */
const named = (sequence, settled) => Buffer.concat([u8(1), u64(sequence), u64(settled)]);
const UNNAMED = u8(0);
/** Where the name stands in a call without a time to wait: behind the handle. */
const SEQUENCE_AT = HEAD_BYTES + 4 + 1;
/** Neither key nor headers. */
const message = (payload) => Buffer.concat([u8(0), data(payload)]);

export const append = (id, handle, sequence, payload) =>
  frame(APPEND, id, u32(handle), named(sequence, 0), u8(0), message(payload));

export const enqueue = (id, handle, sequence, payload) =>
  frame(ENQUEUE, id, u32(handle), named(sequence, 0), u16(0), message(payload));

/** Takes one and is done with it. Does not wait. */
export const dequeue = (id, handle, received) =>
  frame(DEQUEUE, id, u32(handle), f64(0), UNNAMED, u64(received), u8(AUTO_ACK), u32(1));
const RECEIVED_AT = HEAD_BYTES + 4 + 8 + 1;

/** Many copies of one frame, of which the first so many are sent with numbers of their own. */
export class Frames {
  #bytes;
  #size;

  /** @param {Buffer} one  @param {number} most that are sent at once */
  constructor(one, most) {
    this.#bytes = Buffer.concat(Array(most).fill(one));
    this.#size = one.length;
  }

  /** Calls with names. All that were made before are answered, which makes them settled. */
  named(count, identity) {
    const bytes = this.#bytes;
    const settled = identity.sequence;
    for (let at = 0; at < count * this.#size; at += this.#size) {
      bytes.writeUInt32LE(identity.nextId(), at + ID_AT);
      writeU64(bytes, at + SEQUENCE_AT, ++identity.sequence);
      writeU64(bytes, at + SEQUENCE_AT + 8, settled);
    }
    return bytes.subarray(0, count * this.#size);
  }

  /** Deliveries are asked for, and those that came before have arrived. */
  deliveries(count, identity) {
    const bytes = this.#bytes;
    for (let at = 0; at < count * this.#size; at += this.#size) {
      bytes.writeUInt32LE(identity.nextId(), at + ID_AT);
      writeU64(bytes, at + RECEIVED_AT, identity.received);
    }
    identity.received += count;
    return bytes.subarray(0, count * this.#size);
  }
}

/** What a client is known by over all its connections. */
export class Identity {
  sequence = 0;
  /** Deliveries that have arrived in the session; counted when they are asked for, told when all have come. */
  received = 0;
  #id = 0;

  constructor(clientId) {
    this.clientId = clientId;
  }

  nextId() {
    this.#id = (this.#id + 1) >>> 0;
    return this.#id;
  }
}
