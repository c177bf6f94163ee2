import { VarveError } from "../api/errors.js";
import { getU32, getU64 } from "../api/integers.js";

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

  /** In which the body stands, good as long as that is. */
  get memory(): Buffer {
    return this.#bytes;
  }

  /** Where in `memory` what has not been read begins, and where it ends. */
  get at(): number {
    return this.#at;
  }

  get endAt(): number {
    return this.#end;
  }

  /** Bytes that have not been read. */
  get left(): number {
    return this.#end - this.#at;
  }

  u8(): number {
    return this.#bytes[this.#skip(1)]!;
  }

  u16(): number {
    const at = this.#skip(2);
    return this.#bytes[at]! | (this.#bytes[at + 1]! << 8);
  }

  u32(): number {
    return getU32(this.#bytes, this.#skip(4));
  }

  u64(): number {
    const value = getU64(this.#bytes, this.#skip(8));
    if (Number.isNaN(value)) throw malformed("a number of 2^53 or more");
    return value;
  }

  f64(): number {
    return this.#bytes.readDoubleLE(this.#skip(8));
  }

  /** A view, good as long as the body is. */
  data(): Buffer {
    return this.raw(this.u32());
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
