/**
 * Frames, protocol 1. Little-endian. Spec: docs/protocol.md
 *
 *   0          4      5            9            4+length
 *   +----------+------+------------+------------+
 *   | length   | kind | request id | body       |
 *   | u32      | u8   | u32        |            |
 *   +----------+------+------------+------------+
 *   length counts what follows it: 5 bytes and the body.
 *
 * Before its first frame a client sends PREAMBLE, whose first byte no text protocol begins with.
 *
 * Invariants
 * - A length beyond the limit is refused before anything is kept of the frame.
 * - What is kept of an unfinished frame is at most twice what has arrived of it, however it was cut, or fits a buffer of
 *   LARGE_BYTES: of a parser that lends it on, one of the few that all share.
 * - What comes of a stream of bytes does not depend on where it was cut.
 */

import { VarveError } from "../api/errors.js";
import { getU32 } from "../api/integers.js";
import { giveLarge, LARGE_BYTES, takeLarge } from "./buffers.js";
import { Input } from "./input.js";

export const PREAMBLE: Buffer = Buffer.from([0x89, 0x56, 0x41, 0x52, 0x56, 0x45, 0x0d, 0x0a]);

export const LENGTH_BYTES = 4;
/** Kind and request id. */
const HEAD_BYTES = 5;
export const FRAME_HEAD_BYTES = LENGTH_BYTES + HEAD_BYTES;

export const PROTOCOL_MIN = 1;
export const PROTOCOL_MAX = 1;

/** Of one frame before the handshake is over, and of all that is kept for a connection until then. */
export const HELLO_BYTES_MAX = 16 * 1024;

/** Kinds of frames that are no calls. Those of calls are in methods.ts. Never renumber. */
export const Kind = {
  /** Client: who it is, and which versions it speaks. */
  Hello: 0x01,
  /** Client: is anybody there? Answered by Ok. */
  Ping: 0x02,
  /** Client: gives up waiting in the call with this id, or ends the stream. The call is answered all the same. */
  Cancel: 0x03,
  /** Client: the stream with this id may send so many bytes more. */
  Credit: 0x04,
  /** Client: ends its session; answered by Ok when that is done. */
  Goodbye: 0x05,
  /** Client, in answer to Leaving: this is the last frame of this connection. */
  Left: 0x06,
  /** Server: the call with this id has succeeded. */
  Ok: 0x80,
  /** Server: it has failed; a value of tag "error". With id 0 the connection ends. */
  Failed: 0x81,
  /** Server: records of the stream with this id. */
  Records: 0x82,
  /** Server: the stream with this id is at its end. */
  End: 0x83,
  /** Server: it is ending; calls that are not answered can be repeated elsewhere, or later. */
  Leaving: 0x84,
} as const;

/** Unfinished frames longer than this are put together in a buffer that holds the whole of them. */
const WHOLE_FROM_BYTES = HELLO_BYTES_MAX;
/** Such buffers that parsers have together which lend them on, at most: they are more than what has arrived. */
const POOLED_MAX = 16;

let pooledNow = 0;

/** What arrives on a connection, frame by frame. */
export interface FrameHandler {
  /**
   * @param body to be read before this returns; what was read may be kept unless it is lent
   * @returns false: stop, and keep what has arrived behind this frame until the next push
   */
  frame(kind: number, id: number, body: Input): boolean;
}

/**
 * What is lent: "pieces" are good until `push` returns, and then, where it is "everything", the bodies of frames are good until
 * their handler does.
 */
export type Loan = "nothing" | "pieces" | "everything";

const NOTHING: Buffer = Buffer.alloc(0);

/** Finds the frames in a stream of bytes that arrives in pieces of any size. */
export class FrameParser {
  readonly #handler: FrameHandler;
  readonly #loan: Loan;
  /** The body of one frame after the other. */
  readonly #body: Input;
  #preamble: number;
  #frameBytesMax: number;
  /** What has arrived of an unfinished frame, from its length on. */
  #partial: Buffer = NOTHING;
  #filled = 0;
  /** It stands in a buffer that is to be given back. */
  #isPooled = false;
  /** Pieces that wait for the handler to go on. */
  #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #stopped = false;
  #running = false;
  #ended = false;

  /**
   * @param preamble whether the stream begins with PREAMBLE
   */
  constructor(handler: FrameHandler, frameBytesMax: number, preamble: boolean, loan: Loan = "nothing") {
    this.#handler = handler;
    this.#loan = loan;
    this.#body = new Input(NOTHING, loan === "everything");
    this.#frameBytesMax = frameBytesMax;
    this.#preamble = preamble ? 0 : PREAMBLE.length;
  }

  /** Frames from now on may be so long, from their kind on. */
  set frameBytesMax(bytes: number) {
    this.#frameBytesMax = bytes;
  }

  /** Bytes that are kept for what is to come. */
  get heldBytes(): number {
    return this.#partial.length + this.#waitingBytes;
  }

  /** What stands before the first frame has arrived, and is right. */
  get isGreeted(): boolean {
    return this.#preamble === PREAMBLE.length;
  }

  /** True in the middle of a frame. */
  get isInside(): boolean {
    return this.#filled > 0;
  }

  /**
   * Takes the next piece, and keeps views of it unless it is lent.
   * @throws VarveError `ERR_PROTOCOL`; the stream cannot be read on then
   */
  push(piece: Buffer): void {
    if (this.#ended) return;
    if (this.#stopped || this.#running) {
      this.#waiting.push(this.#toKeep(piece));
      this.#waitingBytes += piece.length;
      return;
    }
    this.#run(piece);
  }

  /** Goes on after the handler had stopped. @throws VarveError `ERR_PROTOCOL` */
  resume(): void {
    if (this.#ended) return;
    this.#stopped = false;
    while (!this.#stopped && !this.#running) {
      const piece = this.#waiting.shift();
      if (piece === undefined) return;
      this.#waitingBytes -= piece.length;
      this.#run(piece);
    }
  }

  /** Nothing that is or will be here is wanted any more. */
  end(): void {
    this.#ended = true;
    this.#stopped = true;
    this.#release(this.#partial, this.#isPooled);
    this.#forget();
    this.#waiting = [];
    this.#waitingBytes = 0;
  }

  #run(piece: Buffer): void {
    this.#running = true;
    try {
      this.#parse(piece);
    } finally {
      this.#running = false;
    }
  }

  #parse(piece: Buffer): void {
    let at = this.#preamble < PREAMBLE.length ? this.#readPreamble(piece) : 0;
    if (this.#filled > 0) at = this.#complete(piece, at);
    while (!this.#stopped && piece.length - at >= LENGTH_BYTES) {
      const length = this.#checked(getU32(piece, at));
      const end = at + LENGTH_BYTES + length;
      if (end > piece.length) break;
      if (this.#loan === "pieces") this.#emit(Buffer.from(piece.subarray(at, end)), LENGTH_BYTES, end - at);
      else this.#emit(piece, at + LENGTH_BYTES, end);
      at = end;
    }
    if (at >= piece.length || this.#ended) return;
    if (this.#stopped) {
      this.#waiting.unshift(this.#toKeep(piece.subarray(at)));
      this.#waitingBytes += piece.length - at;
    } else {
      this.#keep(piece, at, piece.length, piece.length - at < LENGTH_BYTES ? LENGTH_BYTES : wholeOf(piece, at));
    }
  }

  #readPreamble(piece: Buffer): number {
    let at = 0;
    while (at < piece.length && this.#preamble < PREAMBLE.length) {
      if (piece[at++] !== PREAMBLE[this.#preamble++]) {
        throw new VarveError("ERR_PROTOCOL", "that is not varve's protocol");
      }
    }
    return at;
  }

  /** Completes the unfinished frame, as far as the piece goes. Returns where the next one begins. */
  #complete(piece: Buffer, from: number): number {
    let at = from;
    if (this.#filled < LENGTH_BYTES) {
      const end = Math.min(piece.length, at + LENGTH_BYTES - this.#filled);
      this.#keep(piece, at, end, LENGTH_BYTES);
      at = end;
      if (this.#filled < LENGTH_BYTES) return at;
    }
    this.#checked(getU32(this.#partial, 0));
    const whole = wholeOf(this.#partial, 0);
    const end = Math.min(piece.length, at + whole - this.#filled);
    this.#keep(piece, at, end, whole);
    if (this.#filled < whole) return end;
    const frame = this.#partial;
    const isPooled = this.#isPooled;
    this.#forget();
    try {
      this.#emit(frame, LENGTH_BYTES, whole);
    } finally {
      this.#release(frame, isPooled);
    }
    return end;
  }

  /** @param needed of the whole frame, where that is known */
  #keep(piece: Buffer, from: number, to: number, needed: number): void {
    const filled = this.#filled + to - from;
    if (filled > this.#partial.length) this.#grow(filled, needed);
    piece.copy(this.#partial, this.#filled, from, to);
    this.#filled = filled;
  }

  #grow(filled: number, needed: number): void {
    const isWhole = needed > WHOLE_FROM_BYTES && needed <= LARGE_BYTES;
    const isLent = this.#loan === "everything";
    const isPooled = isWhole && isLent && pooledNow < POOLED_MAX;
    const bytes = isWhole && !isLent ? needed : Math.max(filled, Math.min(needed, 2 * filled));
    const grown = isPooled ? takeLarge() : Buffer.allocUnsafeSlow(bytes);
    this.#partial.copy(grown, 0, 0, this.#filled);
    this.#partial = grown;
    if (!isPooled) return;
    this.#isPooled = true;
    pooledNow++;
  }

  #toKeep(piece: Buffer): Buffer {
    return this.#loan === "nothing" ? piece : Buffer.from(piece);
  }

  /** The frame that was put together is used no more. */
  #release(frame: Buffer, isPooled: boolean): void {
    if (!isPooled) return;
    pooledNow--;
    giveLarge(frame);
  }

  #forget(): void {
    this.#partial = NOTHING;
    this.#filled = 0;
    this.#isPooled = false;
  }

  #checked(length: number): number {
    if (length >= HEAD_BYTES && length <= this.#frameBytesMax) return length;
    throw new VarveError(
      "ERR_PROTOCOL",
      `a frame of ${length} bytes; ${HEAD_BYTES} to ${this.#frameBytesMax} are taken`,
    );
  }

  #emit(source: Buffer, from: number, to: number): void {
    const id = getU32(source, from + 1);
    this.#body.read(source, from + HEAD_BYTES, to);
    if (!this.#handler.frame(source[from]!, id, this.#body)) this.#stopped = true;
    this.#body.read(NOTHING, 0, 0);
  }
}

/** Bytes of the whole frame that begins there. */
function wholeOf(bytes: Buffer, at: number): number {
  return LENGTH_BYTES + getU32(bytes, at);
}
