/** What is still on its way to a client, written at most once per turn of the event loop. */

import type { Socket } from "node:net";

/** A longer value is written as it is; a shorter one is cheaper as part of the text around it. */
const INLINE_BYTES_MAX = 4096;

export class Output {
  readonly #socket: Socket;
  #text = "";
  #scheduled = false;
  /** Bytes handed to the socket since the connection began. */
  writtenBytes = 0;
  readonly #flush = () => {
    this.#scheduled = false;
    this.flush();
  };

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  /** Adds text; each character is one byte. */
  text(text: string): void {
    this.#text += text;
    if (this.#scheduled) return;
    this.#scheduled = true;
    // Runs when the promises of this turn have settled: one write takes all the replies that they gave.
    process.nextTick(this.#flush);
  }

  value(queue: string, payload: Buffer): void {
    const head = `VALUE ${queue} 0 ${payload.length}\r\n`;
    if (payload.length <= INLINE_BYTES_MAX) {
      this.text(`${head}${payload.toString("latin1", 0, payload.length)}\r\nEND\r\n`);
      return;
    }
    this.#socket.cork();
    this.text(head);
    this.flush();
    this.writtenBytes += payload.length;
    this.#socket.write(payload);
    this.text("\r\nEND\r\n");
    this.flush();
    this.#socket.uncork();
  }

  flush(): void {
    const text = this.#text;
    if (text === "") return;
    this.#text = "";
    if (!this.#socket.writable) return;
    this.writtenBytes += text.length;
    this.#socket.write(text, "latin1");
  }

  /** Bytes that the client has not yet taken. */
  get pendingBytes(): number {
    return this.#socket.writableLength + this.#text.length;
  }
}
