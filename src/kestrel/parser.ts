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
  /** The line understood last, and, when it came twice in a row, its bytes: the next one is likely to be the same. */
  #lastLine = "";
  #lastRequest: Request | undefined;
  #lastBytes: Buffer | undefined;
  /** The body of the last `set` that `next` returned, from `start` to `end`: part of a packet, which stays as long as it is referred to. */
  memory: Buffer = NOTHING;
  start = 0;
  end = 0;

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

  /** Lets go of everything. No further call makes sense. */
  drop(): void {
    this.#takePieces();
    this.#rest = NOTHING;
    this.#at = 0;
    this.#set = undefined;
    this.memory = NOTHING;
  }

  /** A view of it. */
  get body(): Buffer {
    return this.memory.subarray(this.start, this.end);
  }

  /**
   * The next request that is complete; undefined when more bytes are needed.
   * @throws Refusal and then no further call makes sense
   */
  next(): Request | undefined {
    if (this.#set === undefined) {
      this.memory = NOTHING; // a connection that rests holds on to no packet
      const request = this.#repeated() ?? this.#nextLine();
      if (request === undefined) return undefined;
      if (request.command !== "set") return request;
      // Of a fan-out, all the copies together: they are one commit.
      if (request.bytes * request.queues.length > this.#bodyBytesMax) {
        throw new Refusal(`SERVER_ERROR object too large: at most ${this.#bodyBytesMax} bytes are taken`);
      }
      this.#set = request;
    }
    return this.#finishSet(this.#set);
  }

  /** The last request, if its line comes once more. */
  #repeated(): Request | undefined {
    const line = this.#lastBytes;
    if (line === undefined || this.#pieceBytes > 0) return undefined;
    const rest = this.#rest;
    const at = this.#at;
    const { length } = line;
    if (rest.length - at < length) return undefined;
    for (let index = 0; index < length; index++) if (rest[at + index] !== line[index]) return undefined;
    this.#at = at + length;
    return this.#lastRequest;
  }

  #nextLine(): Request | undefined {
    const start = this.#at;
    const isWhole = this.#pieceBytes === 0;
    const line = this.#line();
    if (line === undefined) return undefined;
    if (line.length > REPEATED_BYTES_MAX) return parseRequest(line);
    if (line !== this.#lastLine || this.#lastRequest === undefined) {
      this.#lastBytes = undefined;
      this.#lastRequest = parseRequest(line);
      this.#lastLine = line;
    } else if (isWhole) {
      this.#lastBytes = Buffer.from(this.#rest.subarray(start, this.#at));
    }
    return this.#lastRequest;
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
    let bytes = this.#rest;
    let start = this.#at;
    this.#at = start + needed - this.#pieceBytes;
    if (this.#pieces.length > 0) {
      bytes = Buffer.concat([...this.#takePieces(), bytes.subarray(start, this.#at)], needed);
      start = 0;
    }
    const end = start + set.bytes;
    this.#set = undefined;
    if (bytes[end] !== CR || bytes[end + 1] !== LF) throw new Refusal(BAD_CHUNK);
    this.memory = bytes;
    this.start = start;
    this.end = end;
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
/** Longer lines are understood anew each time: what a connection keeps must be small. */
const REPEATED_BYTES_MAX = 64;
