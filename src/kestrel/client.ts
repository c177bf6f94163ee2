/** A client of the Kestrel protocol, as far as moving queues needs one: one request at a time over one connection. */

import { connect, type Socket } from "node:net";
import { VarveError } from "../api/errors.js";

const LF = 0x0a;
/** Longest line of a reply. */
const LINE_BYTES_MAX = 1024 * 1024;
/** A server that has vanished is noticed some time after this. */
const KEEP_ALIVE_MS = 10_000;

export class KestrelClient {
  readonly #socket: Socket;
  readonly #address: string;
  #pieces: Buffer[] = [];
  #bytes = 0;
  #failure: Error | undefined;
  #wake: (() => void) | undefined;

  private constructor(socket: Socket, address: string) {
    this.#socket = socket;
    this.#address = address;
    socket.setNoDelay(true);
    socket.on("data", (data: Buffer) => {
      this.#pieces.push(data);
      this.#bytes += data.length;
      this.#wake?.();
    });
    socket.on("error", (cause) => this.#fail(`the connection to ${address} failed: ${cause.message}`, cause));
    socket.on("close", () => this.#fail(`${address} ended the connection`));
  }

  /**
   * @param signal gives up connecting; a connection that is there is closed by `close`
   * @throws VarveError `ERR_IO`
   */
  static async connect(host: string, port: number, signal?: AbortSignal): Promise<KestrelClient> {
    const address = `${host}:${port}`;
    return await new Promise((resolve, reject) => {
      const socket = connect({ host, port, keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_MS });
      const stop = () => socket.destroy(new Error("it was given up"));
      signal?.addEventListener("abort", stop);
      if (signal?.aborted === true) stop();
      socket.once("error", (cause) => {
        signal?.removeEventListener("abort", stop);
        reject(new VarveError("ERR_IO", `cannot connect to ${address}: ${cause.message}`, { cause }));
      });
      socket.once("connect", () => {
        signal?.removeEventListener("abort", stop);
        socket.removeAllListeners("error");
        resolve(new KestrelClient(socket, address));
      });
    });
  }

  /** The names and values of `stats`. */
  async stats(): Promise<Map<string, string>> {
    this.#socket.write("stats\r\n");
    const stats = new Map<string, string>();
    for (;;) {
      const line = await this.#line();
      if (line === "END") return stats;
      const parts = /^STAT (\S+) (.*)$/.exec(line);
      if (parts === null) throw this.#unexpected(line);
      stats.set(parts[1]!, parts[2]!);
    }
  }

  /** A `get` of whatever kind; undefined when there is nothing. */
  async get(target: string): Promise<Buffer | undefined> {
    this.#socket.write(`get ${target}\r\n`);
    const line = await this.#line();
    if (line === "END") return undefined;
    const parts = /^VALUE \S+ \S+ (\d{1,10})$/.exec(line);
    if (parts === null) throw this.#unexpected(line);
    const payload = (await this.#take(Number(parts[1]) + 2)).subarray(0, -2);
    const end = await this.#line();
    if (end !== "END") throw this.#unexpected(end);
    return payload;
  }

  close(): void {
    this.#socket.end("quit\r\n");
    this.#socket.resume();
    this.#socket.destroySoon();
  }

  async #line(): Promise<string> {
    for (let looked = 0; ; ) {
      const joined = this.#joined();
      const end = joined.indexOf(LF, looked);
      if (end >= 0) return (await this.#take(end + 1)).toString("latin1").replace(/\r?\n$/, "");
      if (joined.length > LINE_BYTES_MAX) throw this.#unexpected(joined.toString("latin1", 0, 80));
      looked = joined.length;
      await this.#more();
    }
  }

  async #take(count: number): Promise<Buffer> {
    while (this.#bytes < count) await this.#more();
    const joined = this.#joined();
    this.#pieces = joined.length > count ? [joined.subarray(count)] : [];
    this.#bytes -= count;
    return joined.subarray(0, count);
  }

  #joined(): Buffer {
    if (this.#pieces.length !== 1) this.#pieces = [Buffer.concat(this.#pieces, this.#bytes)];
    return this.#pieces[0]!;
  }

  async #more(): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
    this.#wake = undefined;
    if (this.#failure !== undefined && this.#bytes === 0) throw this.#failure;
  }

  #fail(message: string, cause?: Error): void {
    this.#failure ??= new VarveError("ERR_IO", message, { cause });
    this.#wake?.();
  }

  #unexpected(line: string): VarveError {
    return new VarveError("ERR_IO", `${this.#address} answered ${JSON.stringify(line.slice(0, 200))}`);
  }
}
