/** A Kestrel front over an embedded directory, in this process, for tests; and raw sockets to talk to it. */

import { connect, type Socket } from "node:net";
import type { MessageQueue, OpenOptions } from "../../src/api/contract.js";
import { open } from "../../src/index.js";
import { type KestrelOptions, KestrelServer } from "../../src/kestrel/server.js";
import { withDirectory } from "../support/directories.js";

const SILENT = { debug() {}, info() {}, warn() {}, error() {} };

export interface TestFront {
  readonly mq: MessageQueue;
  readonly server: KestrelServer;
  readonly port: number;
  /** A new connection. */
  client(): Promise<RawClient>;
}

export interface FrontOptions {
  readonly open?: OpenOptions;
  readonly kestrel?: Partial<KestrelOptions>;
  /** What the front is told to use in place of the directory. */
  readonly around?: (mq: MessageQueue) => MessageQueue;
}

export async function withFront(options: FrontOptions, body: (front: TestFront) => Promise<void>): Promise<void> {
  await withDirectory(async (directory) => {
    const mq = await open(directory, { durability: "async", ...options.open });
    const server = new KestrelServer(options.around?.(mq) ?? mq, {
      version: "varve-test",
      maxMessageBytes: 1024 * 1024,
      maxConnections: 1000,
      maxRequestBytes: 16 * 1024 * 1024,
      stallTimeoutMs: 60_000,
      syncs: options.open?.durability === "sync",
      settings: () => ({ maxAttempts: Number.POSITIVE_INFINITY }),
      logger: SILENT,
      ...options.kestrel,
    });
    const { port } = await server.listen("127.0.0.1", 0);
    const clients: RawClient[] = [];
    try {
      await body({
        mq,
        server,
        port,
        client: async () => {
          const client = await RawClient.connect(port);
          clients.push(client);
          return client;
        },
      });
    } finally {
      for (const client of clients) client.destroy();
      await server.close(2000);
      await mq.close();
    }
  });
}

/** Sends bytes and collects what comes back. */
export class RawClient {
  readonly socket: Socket;
  #received = Buffer.alloc(0);
  ended = false;
  #wake: (() => void) | undefined;

  constructor(socket: Socket) {
    this.socket = socket;
    socket.on("data", (data: Buffer) => {
      this.#received = Buffer.concat([this.#received, data]);
      this.#wake?.();
    });
    const end = () => {
      this.ended = true;
      this.#wake?.();
    };
    socket.on("end", end).on("close", end).on("error", end);
  }

  static connect(port: number): Promise<RawClient> {
    return new Promise((resolve, reject) => {
      const socket = connect({ port, host: "127.0.0.1", noDelay: true });
      socket.once("error", reject);
      socket.once("connect", () => {
        socket.off("error", reject);
        resolve(new RawClient(socket));
      });
    });
  }

  send(text: string | Buffer): this {
    this.socket.write(typeof text === "string" ? Buffer.from(text, "latin1") : text);
    return this;
  }

  /** What comes back up to and including a text. */
  async until(text: string): Promise<string> {
    for (;;) {
      const at = this.#received.indexOf(text, 0, "latin1");
      if (at >= 0) {
        const end = at + text.length;
        const found = this.#received.toString("latin1", 0, end);
        this.#received = this.#received.subarray(end);
        return found;
      }
      if (this.ended) throw new Error(`the connection ended; it had said ${JSON.stringify(this.rest())}`);
      await this.#more();
    }
  }

  /** One request, and its reply up to a text. */
  ask(request: string, until = "\r\n"): Promise<string> {
    return this.send(request).until(until);
  }

  /** Everything that comes until the server ends the connection. */
  async toEnd(): Promise<string> {
    while (!this.ended) await this.#more();
    return this.rest();
  }

  rest(): string {
    return this.#received.toString("latin1");
  }

  destroy(): void {
    this.socket.destroy();
  }

  async #more(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
    this.#wake = undefined;
  }
}
