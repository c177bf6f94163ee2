/** A connection that may be lost at any time: requests, pipelined as one likes, and their replies. */

import { connect, type Socket } from "node:net";

export interface Said {
  /** The first line, `END` for a value as well. */
  readonly line: string;
  readonly value?: string;
}

export class Speaker {
  readonly #socket: Socket;
  readonly #waiting: ((said: Said | undefined) => void)[] = [];
  #text = "";
  readonly lost: Promise<void>;

  constructor(port: number) {
    this.#socket = connect({ host: "127.0.0.1", port, noDelay: true });
    this.#socket.on("error", () => {});
    this.#socket.on("data", (data) => this.#heard(data.toString("latin1")));
    this.lost = new Promise((resolve) => {
      this.#socket.once("close", () => {
        for (const tell of this.#waiting.splice(0)) tell(undefined);
        resolve();
      });
    });
  }

  /** The reply; undefined when the connection was lost before it came. */
  ask(request: string): Promise<Said | undefined> {
    return new Promise((resolve) => {
      if (this.#socket.destroyed) {
        resolve(undefined);
        return;
      }
      this.#waiting.push(resolve);
      this.#socket.write(request, "latin1");
    });
  }

  destroy(): void {
    this.#socket.destroy();
  }

  #heard(text: string): void {
    this.#text += text;
    for (let said = this.#next(); said !== undefined; said = this.#next()) this.#waiting.shift()?.(said);
  }

  #next(): Said | undefined {
    const end = this.#text.indexOf("\r\n");
    if (end < 0) return undefined;
    const line = this.#text.slice(0, end);
    const bytes = /^VALUE \S+ 0 (\d+)$/.exec(line)?.[1];
    if (bytes === undefined) {
      this.#text = this.#text.slice(end + 2);
      return { line };
    }
    const start = end + 2;
    const after = start + Number(bytes);
    const tail = "\r\nEND\r\n";
    if (this.#text.length < after + tail.length) return undefined;
    const value = this.#text.slice(start, after);
    if (this.#text.slice(after, after + tail.length) !== tail) throw new Error(`no ${tail} behind ${line}`);
    this.#text = this.#text.slice(after + tail.length);
    return { line: "END", value };
  }
}
