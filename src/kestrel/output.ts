/** What is still on its way to a client, written at most once per turn of the event loop. */

import type { Socket } from "node:net";
import { copyBytes } from "../api/copy-bytes.js";
import { VALUE_END } from "./reply.js";

/** A longer value is written as it is; a shorter one is cheaper as part of the bytes around it. */
const INLINE_BYTES_MAX = 4096;
/** Short texts are written here: a native call costs as much as some hundred characters. */
const NATIVE_FROM_BYTES = 96;
const SCRATCH_BYTES = 64 * 1024;

/** Where replies are put together, by whichever connection writes; a new one if the last write still needs it. */
let scratch = Buffer.allocUnsafeSlow(SCRATCH_BYTES);

export class Output {
  readonly #socket: Socket;
  readonly #waits: boolean;
  /** What comes before `#text`; empty as long as there are no values. */
  #parts: (string | Buffer)[] = [];
  #partBytes = 0;
  #text = "";
  #scheduled = false;
  /** Bytes handed to the socket since the connection began. */
  writtenBytes = 0;
  readonly #flush = () => {
    this.#scheduled = false;
    this.flush();
  };

  readonly #flushLater = () => setImmediate(this.#flush);

  /** @param waits whether replies are written last in their turn, behind the beginning of the next sync */
  constructor(socket: Socket, waits: boolean) {
    this.#socket = socket;
    this.#waits = waits;
  }

  /** Adds text; each character is one byte. */
  text(text: string): void {
    this.#text = this.#text === "" ? text : this.#text + text;
    if (this.#scheduled) return;
    this.#scheduled = true;
    // Runs when the promises of this turn have settled: one write takes all the replies that they gave.
    process.nextTick(this.#waits ? this.#flushLater : this.#flush);
  }

  /** @param head `VALUE <queue> 0 <bytes>` and the line end */
  value(head: string, payload: Buffer): void {
    this.text(head);
    if (payload.length > INLINE_BYTES_MAX) {
      this.#socket.cork();
      this.flush();
      this.writtenBytes += payload.length;
      this.#socket.write(payload);
      this.text(VALUE_END);
      this.flush();
      this.#socket.uncork();
      return;
    }
    if (this.pendingBytes + payload.length > SCRATCH_BYTES) this.flush();
    this.#endText();
    this.#parts.push(payload);
    this.#partBytes += payload.length;
    this.#text = VALUE_END;
  }

  flush(): void {
    const parts = this.#parts;
    if (parts.length === 0) {
      const text = this.#text;
      if (text === "") return;
      this.#text = "";
      if (!this.#socket.writable) return;
      this.writtenBytes += text.length;
      this.#socket.write(text, "latin1");
      return;
    }
    this.#endText();
    const length = this.#partBytes;
    this.#parts = [];
    this.#partBytes = 0;
    if (!this.#socket.writable) return;
    this.writtenBytes += length;
    if (length > SCRATCH_BYTES) {
      this.#socket.write(
        Buffer.concat(parts.map((part) => (typeof part === "string" ? Buffer.from(part, "latin1") : part))),
      );
      return;
    }
    let at = 0;
    for (const part of parts) at = typeof part === "string" ? putText(part, at) : putBytes(part, at);
    this.#socket.write(scratch.subarray(0, length));
    // Else the system has taken all of it.
    if (this.#socket.writableLength > 0) scratch = Buffer.allocUnsafeSlow(SCRATCH_BYTES);
  }

  /** Bytes that the client has not yet taken. */
  get pendingBytes(): number {
    return this.#socket.writableLength + this.#partBytes + this.#text.length;
  }

  #endText(): void {
    if (this.#text === "") return;
    this.#parts.push(this.#text);
    this.#partBytes += this.#text.length;
    this.#text = "";
  }
}

function putText(text: string, position: number): number {
  const { length } = text;
  if (length >= NATIVE_FROM_BYTES) return position + scratch.write(text, position, "latin1");
  for (let index = 0; index < length; index++) scratch[position + index] = text.charCodeAt(index);
  return position + length;
}

function putBytes(bytes: Buffer, position: number): number {
  copyBytes(bytes, 0, bytes.length, scratch, position);
  return position + bytes.length;
}
