import { VarveError } from "../api/errors.js";

const HIGH = 2 ** 32;
/** Of the upper half of a whole number below 2^53. */
const HIGH_MAX = 2 ** 21;

/** Memory for what is to stay longer than a body. */
export interface Copies {
  copy(source: Buffer, from: number, to: number): Buffer;
}

/** Reads the body of a frame. Every call throws `ERR_PROTOCOL` where the body ends too early. */
export class Input {
  readonly #lent: boolean;
  #bytes: Buffer;
  #at = 0;
  #end: number;

  /** @param lent whether a body is good only until the handler of its frame returns */
  constructor(bytes: Buffer, lent = false) {
    this.#bytes = bytes;
    this.#end = bytes.length;
    this.#lent = lent;
  }

  /** Goes on with another body. */
  read(bytes: Buffer, from: number, to: number): void {
    this.#bytes = bytes;
    this.#at = from;
    this.#end = to;
  }

  /** Bytes that have not been read. */
  get left(): number {
    return this.#end - this.#at;
  }

  u8(): number {
    return this.#bytes[this.#skip(1)]!;
  }

  u16(): number {
    return this.#bytes.readUInt16LE(this.#skip(2));
  }

  u32(): number {
    return this.#bytes.readUInt32LE(this.#skip(4));
  }

  u64(): number {
    const at = this.#skip(8);
    const high = this.#bytes.readUInt32LE(at + 4);
    if (high >= HIGH_MAX) throw malformed("a number of 2^53 or more");
    return high * HIGH + this.#bytes.readUInt32LE(at);
  }

  f64(): number {
    return this.#bytes.readDoubleLE(this.#skip(8));
  }

  /** A view, good as long as the body is. */
  data(): Buffer {
    return this.raw(this.u32());
  }

  /** The same, to be kept as long as those copies are. */
  copiedData(copies: Copies): Buffer {
    const length = this.u32();
    const at = this.#skip(length);
    return copies.copy(this.#bytes, at, at + length);
  }

  /** The same, to be kept. */
  ownData(): Buffer {
    const view = this.data();
    return this.#lent ? Buffer.from(view) : view;
  }

  string(): string {
    const length = this.u32();
    const at = this.#skip(length);
    return this.#bytes.toString("utf8", at, at + length);
  }

  /** Of characters that are ASCII. */
  ascii(): string {
    const length = this.u32();
    const at = this.#skip(length);
    return this.#bytes.toString("latin1", at, at + length);
  }

  /** A view of so many bytes, good as long as the body is. */
  raw(length: number): Buffer {
    const at = this.#skip(length);
    return this.#bytes.subarray(at, at + length);
  }

  /** A number of things that take at least `bytes` each: more than there can be is refused before anything is made of it. */
  count(bytes: number): number {
    const count = this.u32();
    if (count * bytes > this.left) throw malformed(`${count} parts in ${this.left} bytes`);
    return count;
  }

  /** Nothing may be left. */
  end(): void {
    if (this.left !== 0) throw malformed(`${this.left} bytes too many`);
  }

  #skip(bytes: number): number {
    const at = this.#at;
    if (bytes > this.#end - at) throw malformed("it ends too early");
    this.#at = at + bytes;
    return at;
  }
}

export function malformed(what: string): VarveError {
  return new VarveError("ERR_PROTOCOL", `a malformed frame: ${what}`);
}
