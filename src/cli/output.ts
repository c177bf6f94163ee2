import type { Writable } from "node:stream";
import { OutputClosed } from "./exit.js";

/** Standard output with back-pressure, which notices when nobody reads it any more. */
export class Output {
  readonly #stream: Writable;
  readonly #closed = new AbortController();
  #failure: Error | undefined;
  #waiting: (() => void)[] = [];

  constructor(stream: Writable) {
    this.#stream = stream;
    stream.on("error", (error: NodeJS.ErrnoException) => this.#fail(error));
    stream.on("drain", () => this.#wake());
  }

  /** Aborted once nothing can be written any more. */
  get closed(): AbortSignal {
    return this.#closed.signal;
  }

  /** Resolves when there is room for more. Rejects with OutputClosed when the reader has gone away. */
  async write(data: string | Uint8Array): Promise<void> {
    this.#check();
    const room = this.#stream.write(data, (error) => {
      if (error) this.#fail(error);
    });
    if (!room && this.#failure === undefined) {
      await new Promise<void>((resolve) => {
        this.#waiting.push(resolve);
      });
    }
    this.#check();
  }

  /** Resolves when everything written so far has been handed to the operating system. */
  async flush(): Promise<void> {
    this.#check();
    await new Promise<void>((resolve) => this.#stream.write("", () => resolve()));
    this.#check();
  }

  #fail(error: NodeJS.ErrnoException): void {
    const gone = error.code === "EPIPE" || error.code === "ECONNRESET" || error.code === "EOF";
    this.#failure ??= gone ? new OutputClosed() : error;
    this.#closed.abort();
    this.#wake();
  }

  #wake(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }

  #check(): void {
    if (this.#failure !== undefined) throw this.#failure;
  }
}
