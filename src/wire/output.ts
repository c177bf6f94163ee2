import { copyBytes } from "../api/copy-bytes.js";
import { VarveError } from "../api/errors.js";
import { putU32, putU64 } from "../api/integers.js";
import { formatBytes } from "../api/units.js";
import { giveLarge, LARGE_BYTES, takeLarge } from "./buffers.js";
import { FRAME_HEAD_BYTES, LENGTH_BYTES } from "./frame.js";

const SLAB_BYTES = 64 * 1024;
/** Longer strings are counted first, so that no more is set aside for them than they take. */
const COUNTED_CHARS = 4096;
/** Longer text is written by the runtime. */
const ASCII_CHARS = 64;

/** Frames from here on are written to a buffer of their own. */
const OWN_FROM_BYTES = SLAB_BYTES / 2;

/**
 * Writes frames, one behind the other, into slabs of memory that are not used again unless that is said (`startOver`): what was taken
 * out of it can be on its way to a socket while the next frames are written. A large frame whose size is known (`expect`) gets a buffer of its
 * own, which whoever has no more use for the frame may give back (`giveLarge`).
 */
export class Output {
  #slab: Buffer = Buffer.allocUnsafeSlow(SLAB_BYTES);
  /** Where what has not been taken begins. */
  #from = 0;
  /** Where the frame that is being written begins. */
  #frame = 0;
  #at = 0;
  /** Complete frames in slabs that were full. */
  #full: Buffer[] = [];
  #fullBytes = 0;
  /** What is written to again behind the large frame that has a buffer of its own. */
  #aside: Buffer | undefined;
  #asideAt = 0;
  /** Of one frame, from its kind on. */
  frameBytesMax: number;

  constructor(frameBytesMax: number) {
    this.frameBytesMax = frameBytesMax;
  }

  /** Bytes of complete frames that have not been taken. */
  get bytes(): number {
    return this.#fullBytes + this.#frame - this.#from;
  }

  /** Begins a frame, in place of one that was not ended. */
  begin(kind: number, id: number): void {
    if (this.#aside !== undefined) {
      giveLarge(this.#slab);
      this.#goBack();
    }
    this.#at = this.#frame;
    this.#ensure(FRAME_HEAD_BYTES);
    this.#slab[this.#at + LENGTH_BYTES] = kind;
    putU32(this.#slab, this.#at + LENGTH_BYTES + 1, id);
    this.#at += FRAME_HEAD_BYTES;
  }

  /** The rest of the frame that has begun has so many bytes, at most. */
  expect(bytes: number): void {
    const begun = this.#at - this.#frame;
    if (begun + bytes < OWN_FROM_BYTES || this.#aside !== undefined) return;
    const own = begun + bytes <= LARGE_BYTES ? takeLarge() : Buffer.allocUnsafeSlow(begun + bytes);
    this.#slab.copy(own, 0, this.#frame, this.#at);
    this.#shelve();
    this.#aside = this.#slab;
    this.#asideAt = this.#frame;
    this.#slab = own;
    this.#from = 0;
    this.#frame = 0;
    this.#at = begun;
  }

  /**
   * Ends the frame, and returns how many bytes it has.
   * @throws VarveError `ERR_TOO_LARGE`; the frame is forgotten
   */
  end(): number {
    const length = this.#at - this.#frame - LENGTH_BYTES;
    if (length > this.frameBytesMax) {
      throw new VarveError(
        "ERR_TOO_LARGE",
        `the call has ${length} bytes (${formatBytes(length)}) on the wire; the limit is ${this.frameBytesMax} ` +
          `(${formatBytes(this.frameBytesMax)}). Store large objects elsewhere and pass their address.`,
        { details: { size: length, limit: this.frameBytesMax } },
      );
    }
    putU32(this.#slab, this.#frame, length);
    this.#frame = this.#at;
    if (this.#aside !== undefined) {
      this.#shelve();
      this.#goBack();
    }
    return LENGTH_BYTES + length;
  }

  /** Ends the frame, and returns it. @throws VarveError `ERR_TOO_LARGE`; the frame is forgotten */
  endFrame(): Buffer {
    const slab = this.#slab;
    const from = this.#frame;
    return slab.subarray(from, from + this.end());
  }

  /** The complete frames since the last time, in pieces. */
  take(): Buffer[] {
    this.#shelve();
    const pieces = this.#full;
    this.#full = [];
    this.#fullBytes = 0;
    return pieces;
  }

  /** Nothing that was taken is needed any more, and nothing is begun: the memory can be used again while it is in the caches. */
  startOver(): void {
    if (this.#aside !== undefined || this.#frame !== this.#from) return;
    // One that had to be large is not kept for what may be small from here on.
    if (this.#slab.length > SLAB_BYTES) this.#slab = Buffer.allocUnsafeSlow(SLAB_BYTES);
    this.#from = 0;
    this.#frame = 0;
    this.#at = 0;
  }

  u8(value: number): void {
    this.#ensure(1);
    this.#slab[this.#at++] = value;
  }

  u16(value: number): void {
    this.#ensure(2);
    this.#slab[this.#at] = value;
    this.#slab[this.#at + 1] = value >>> 8;
    this.#at += 2;
  }

  u32(value: number): void {
    this.#ensure(4);
    putU32(this.#slab, this.#at, value);
    this.#at += 4;
  }

  /** A whole number up to 2^53 - 1, in 8 bytes. */
  u64(value: number): void {
    this.#ensure(8);
    putU64(this.#slab, this.#at, value);
    this.#at += 8;
  }

  f64(value: number): void {
    this.#ensure(8);
    this.#at = this.#slab.writeDoubleLE(value, this.#at);
  }

  /** UTF-8 behind its length as a u32; bytes as they are. */
  data(value: string | Uint8Array): void {
    if (typeof value === "string") {
      this.#ensure(4 + (value.length > COUNTED_CHARS ? Buffer.byteLength(value) : 3 * value.length));
      const length = this.#slab.write(value, this.#at + 4);
      putU32(this.#slab, this.#at, length);
      this.#at += 4 + length;
    } else {
      this.#ensure(4 + value.length);
      putU32(this.#slab, this.#at, value.length);
      this.#slab.set(value, this.#at + 4);
      this.#at += 4 + value.length;
    }
  }

  /** Text of ASCII characters behind its length as a u32. Most is short, and a native call takes as long as fifty characters. */
  ascii(value: string): void {
    const { length } = value;
    if (length > ASCII_CHARS) {
      this.data(value);
      return;
    }
    this.#ensure(4 + length);
    const slab = this.#slab;
    const at = this.#at + 4;
    putU32(slab, this.#at, length);
    for (let index = 0; index < length; index++) slab[at + index] = value.charCodeAt(index);
    this.#at = at + length;
  }

  /** Bytes that stand in others, behind their number as a u32. */
  part(memory: Buffer, start: number, end: number): void {
    const length = end - start;
    this.#ensure(4 + length);
    const slab = this.#slab;
    const at = this.#at + 4;
    putU32(slab, this.#at, length);
    copyBytes(memory, start, end, slab, at);
    this.#at = at + length;
  }

  /** Bytes whose number the reader knows. */
  raw(value: Uint8Array): void {
    this.#ensure(value.length);
    this.#slab.set(value, this.#at);
    this.#at += value.length;
  }

  /** Sees to it that so many bytes fit behind what there is of the frame. */
  #ensure(bytes: number): void {
    if (this.#at + bytes <= this.#slab.length) return;
    const begun = this.#at - this.#frame;
    const slab = Buffer.allocUnsafeSlow(Math.max(SLAB_BYTES, begun + bytes > SLAB_BYTES / 2 ? 2 * begun + bytes : 0));
    this.#slab.copy(slab, 0, this.#frame, this.#at);
    this.#shelve();
    this.#slab = slab;
    this.#from = 0;
    this.#frame = 0;
    this.#at = begun;
  }

  /** Puts the complete frames of this slab to the others. */
  #shelve(): void {
    if (this.#frame === this.#from) return;
    this.#full.push(this.#slab.subarray(this.#from, this.#frame));
    this.#fullBytes += this.#frame - this.#from;
    this.#from = this.#frame;
  }

  /** From a buffer of one frame to the slab for the others. */
  #goBack(): void {
    this.#slab = this.#aside!;
    this.#aside = undefined;
    this.#from = this.#asideAt;
    this.#frame = this.#asideAt;
    this.#at = this.#asideAt;
  }
}
