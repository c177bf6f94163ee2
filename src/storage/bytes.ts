/** What varve's files are read and written with: LEB128 varints for whole numbers that are usually small, and strings of bytes. */

import { getU32, putU32 } from "../api/integers.js";

/** Most bytes that a varint takes. */
export const VARINT_BYTES_MAX = 8;

/** Writes a varint and returns the position behind it. */
export function putVarint(buffer: Uint8Array, position: number, value: number): number {
  let rest = value;
  let at = position;
  while (rest > 0x7fffffff) {
    buffer[at++] = (rest % 128) | 128;
    rest = Math.floor(rest / 128);
  }
  while (rest > 127) {
    buffer[at++] = (rest & 127) | 128;
    rest >>>= 7;
  }
  buffer[at++] = rest;
  return at;
}

/** Rounds up to a multiple of 8, the alignment of everything that starts with a checksum. */
export function align8(value: number): number {
  return value + ((8 - (value % 8)) % 8);
}

/** Thrown by {@link Decoder} when the bytes cannot be what they should be; callers turn it into ERR_CORRUPT. */
export class MalformedError extends Error {}

/** Reads integers and byte strings one behind another, never past its end. */
export class Decoder {
  readonly buffer: Buffer;
  position: number;
  readonly end: number;

  constructor(buffer: Buffer, position = 0, end = buffer.length) {
    this.buffer = buffer;
    this.position = position;
    this.end = end;
  }

  get done(): boolean {
    return this.position >= this.end;
  }

  u8(): number {
    if (this.position >= this.end) throw new MalformedError("ends too early");
    return this.buffer[this.position++]!;
  }

  u32(): number {
    if (this.position + 4 > this.end) throw new MalformedError("ends too early");
    const value = getU32(this.buffer, this.position);
    this.position += 4;
    return value;
  }

  varint(): number {
    let value = 0;
    let scale = 1;
    for (let bytes = 0; bytes < VARINT_BYTES_MAX; bytes++) {
      const byte = this.u8();
      value += (byte & 127) * scale;
      if (byte < 128) {
        if (value > Number.MAX_SAFE_INTEGER) break;
        return value;
      }
      scale *= 128;
    }
    throw new MalformedError("a number is too large");
  }

  /** A view, not a copy. */
  bytes(length: number): Buffer {
    if (length > this.end - this.position) throw new MalformedError("ends too early");
    const view = this.buffer.subarray(this.position, this.position + length);
    this.position += length;
    return view;
  }

  string(): string {
    return this.bytes(this.varint()).toString("utf8");
  }
}

/** A native call takes longer than writing, or reading, so many characters. */
const NATIVE_CHARS = 32;
const NATIVE_BYTES = 8;

/** A length on its way to where it belongs. */
const LENGTH = new Uint8Array(VARINT_BYTES_MAX);

/** Bytes as a text, one character each. */
export function latin1Text(buffer: Buffer, from: number, to: number): string {
  if (to - from > NATIVE_BYTES) return buffer.toString("latin1", from, to);
  let text = "";
  for (let at = from; at < to; at++) text += String.fromCharCode(buffer[at]!);
  return text;
}

/** A growing buffer for integers and byte strings; reused from one use to the next. */
export class Encoder {
  buffer: Buffer;
  position = 0;

  constructor(capacity: number) {
    this.buffer = Buffer.allocUnsafeSlow(capacity);
  }

  /** Makes room for `bytes` more; what is written must stay within it. */
  reserve(bytes: number): void {
    const needed = this.position + bytes;
    if (needed <= this.buffer.length) return;
    const larger = Buffer.allocUnsafeSlow(Math.max(needed, this.buffer.length * 2));
    this.buffer.copy(larger, 0, 0, this.position);
    this.buffer = larger;
  }

  u8(value: number): void {
    this.reserve(1);
    this.buffer[this.position++] = value;
  }

  u32(value: number): void {
    this.reserve(4);
    putU32(this.buffer, this.position, value);
    this.position += 4;
  }

  varint(value: number): void {
    // Most are small.
    if (value < 128 && this.position < this.buffer.length) {
      this.buffer[this.position++] = value;
      return;
    }
    this.reserve(VARINT_BYTES_MAX);
    this.position = putVarint(this.buffer, this.position, value);
  }

  bytes(value: Uint8Array): void {
    this.reserve(value.length);
    this.buffer.set(value, this.position);
    this.position += value.length;
  }

  string(value: string): void {
    const length = Buffer.byteLength(value);
    this.varint(length);
    this.reserve(length);
    this.buffer.write(value, this.position, "utf8");
    this.position += length;
  }

  /** The characters as bytes, one each. */
  latin1(value: string): void {
    const { length } = value;
    this.reserve(length);
    const { buffer, position } = this;
    if (length > NATIVE_CHARS) buffer.write(value, position, "latin1");
    else for (let index = 0; index < length; index++) buffer[position + index] = value.charCodeAt(index);
    this.position = position + length;
  }

  /** Begins something whose length is to stand before it; returns where that goes. */
  framed(): number {
    this.u8(0);
    return this.position - 1;
  }

  /** Writes the length, as a varint, of what was begun there; returns where that stands now. */
  endFramed(at: number): number {
    const length = this.position - at - 1;
    if (length < 128) {
      this.buffer[at] = length;
      return at + 1;
    }
    this.reserve(VARINT_BYTES_MAX);
    const moved = this.position;
    const behind = putVarint(LENGTH, 0, length);
    this.buffer.copyWithin(at + behind, at + 1, moved);
    this.buffer.set(LENGTH.subarray(0, behind), at);
    this.position = moved + behind - 1;
    return at + behind;
  }

  view(): Buffer {
    return this.buffer.subarray(0, this.position);
  }
}
