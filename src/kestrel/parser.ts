/**
 * Cuts the bytes of a connection into requests. Where the network cuts its packets makes no difference: the same bytes
 * give the same requests.
 *
 *   request   line LF | line CR LF             at most LINE_BYTES_MAX
 *   set       line CR LF, n bytes, CR LF       n as announced by the line
 *
 * Memory follows the bytes received, never the size announced.
 */

import { BAD_CHUNK, LINE_TOO_LONG, parseRequest, Refusal, type Request, type SetRequest } from "./request.js";

export const LINE_BYTES_MAX = 64 * 1024;
const CR = 0x0d;
const LF = 0x0a;
const NOTHING = Buffer.alloc(0);

export class RequestParser {
  readonly #bodyBytesMax: number;
  /** What has arrived and is not yet part of a request: the rest of a packet, or pieces of a request under way. */
  #rest: Buffer = NOTHING;
  #at = 0;
  /** Pieces of a line or a body that is not complete; `#rest` comes behind them. */
  #pieces: Buffer[] = [];
  #pieceBytes = 0;
  /** The `set` whose body is being received. */
  #set: SetRequest | undefined;
  /** The body of the last `set` that `next` returned: part of a packet, which stays as long as it is referred to. */
  body: Buffer = NOTHING;

  constructor(bodyBytesMax: number) {
    this.#bodyBytesMax = bodyBytesMax;
  }

  /** Bytes kept of requests that are not complete, or have not had their turn. */
  get heldBytes(): number {
    return this.#pieceBytes + this.waitingBytes;
  }

  /** Whether part of a request has arrived. */
  get midRequest(): boolean {
    return this.#set !== undefined || this.#pieceBytes > 0 || this.#at < this.#rest.length;
  }

  get midBody(): boolean {
    return this.#set !== undefined;
  }

  /** Bytes that wait to be looked at by `next`. */
  get waitingBytes(): number {
    return this.#rest.length - this.#at;
  }

  /** Takes a packet. All requests of the one before must have been fetched by `next`, or it is joined to the rest. */
  feed(packet: Buffer): void {
    if (this.#at < this.#rest.length) {
      this.#rest = Buffer.concat([this.#rest.subarray(this.#at), packet]);
    } else {
      this.#rest = packet;
    }
    this.#at = 0;
  }

  /**
   * The next request that is complete; undefined when more bytes are needed.
   * @throws Refusal and then no further call makes sense
   */
  next(): Request | undefined {
    if (this.#set === undefined) {
      const line = this.#line();
      if (line === undefined) return undefined;
      const request = parseRequest(line);
      if (request.command !== "set") return request;
      // Of a fan-out, all the copies together: they are one commit.
      if (request.bytes * request.queues.length > this.#bodyBytesMax) {
        throw new Refusal(`SERVER_ERROR object too large: at most ${this.#bodyBytesMax} bytes are taken`);
      }
      this.#set = request;
    }
    return this.#finishSet(this.#set);
  }

  #line(): string | undefined {
    const rest = this.#rest;
    const start = this.#at;
    const end = rest.indexOf(LF, start);
    if (end < 0) {
      this.#keep();
      if (this.#pieceBytes > LINE_BYTES_MAX) throw new Refusal(LINE_TOO_LONG);
      return undefined;
    }
    if (this.#pieceBytes + end - start > LINE_BYTES_MAX) throw new Refusal(LINE_TOO_LONG);
    this.#at = end + 1;
    if (this.#pieces.length === 0) {
      return rest.toString("latin1", start, end > start && rest[end - 1] === CR ? end - 1 : end);
    }
    const line = Buffer.concat([...this.#takePieces(), rest.subarray(start, end)]);
    const { length } = line;
    return line.toString("latin1", 0, length > 0 && line[length - 1] === CR ? length - 1 : length);
  }

  #finishSet(set: SetRequest): SetRequest | undefined {
    const needed = set.bytes + 2;
    const here = this.#rest.length - this.#at;
    if (this.#pieceBytes + here < needed) {
      this.#keep();
      return undefined;
    }
    const end = this.#at + needed - this.#pieceBytes;
    let whole = this.#rest.subarray(this.#at, end);
    if (this.#pieces.length > 0) whole = Buffer.concat([...this.#takePieces(), whole], needed);
    this.#at = end;
    this.#set = undefined;
    if (whole[needed - 2] !== CR || whole[needed - 1] !== LF) throw new Refusal(BAD_CHUNK);
    this.body = whole.subarray(0, set.bytes);
    return set;
  }

  /** Puts the rest of the packet aside until more arrives. A small piece must not hold on to a large packet. */
  #keep(): void {
    const rest = this.#at === 0 ? this.#rest : this.#rest.subarray(this.#at);
    this.#rest = NOTHING;
    this.#at = 0;
    if (rest.length === 0) return;
    const last = this.#pieces[this.#pieces.length - 1];
    // Byte by byte would otherwise keep a packet for every byte.
    if (last !== undefined && last.length + rest.length <= SMALL_PIECE_BYTES) {
      this.#pieces[this.#pieces.length - 1] = Buffer.concat([last, rest]);
    } else {
      this.#pieces.push(rest.length <= SMALL_PIECE_BYTES ? Buffer.from(rest) : rest);
    }
    this.#pieceBytes += rest.length;
  }

  #takePieces(): Buffer[] {
    const pieces = this.#pieces;
    this.#pieces = [];
    this.#pieceBytes = 0;
    return pieces;
  }
}

const SMALL_PIECE_BYTES = 4096;
