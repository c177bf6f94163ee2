/**
 * As much of a Siberite server as an import meets: items in memory, one open read per connection, which goes back to the
 * head when the connection ends, items of no bytes that are removed without a word, and `stats` in its order. It can be
 * told to lose its connections at the worst moments.
 */

import { createServer, type Server, type Socket } from "node:net";

interface OpenRead {
  readonly queue: string;
  readonly item: Buffer;
}

/** Before a confirmation counts, or when it has counted but nobody has heard of it. */
export type Cut = "before" | "after";

export class FakeSiberite {
  readonly queues = new Map<string, Buffer[]>();
  /** Asked at each confirmation whether all connections are to be lost. */
  cut: () => Cut | undefined = () => undefined;
  confirmed = 0;
  port = 0;
  readonly #server: Server;
  readonly #connections = new Map<Socket, OpenRead | undefined>();

  constructor() {
    this.#server = createServer((socket) => this.#connected(socket));
  }

  async listen(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    this.port = (this.#server.address() as { port: number }).port;
  }

  async close(): Promise<void> {
    for (const socket of [...this.#connections.keys()]) this.#lose(socket);
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #connected(socket: Socket): void {
    this.#connections.set(socket, undefined);
    let text = "";
    socket.setNoDelay(true);
    socket.on("error", () => {});
    socket.on("close", () => this.#lose(socket));
    socket.on("data", (data) => {
      text += data.toString("latin1");
      for (let end = text.indexOf("\r\n"); end >= 0 && !socket.destroyed; end = text.indexOf("\r\n")) {
        const line = text.slice(0, end);
        text = text.slice(end + 2);
        this.#carryOut(socket, line);
      }
    });
  }

  #carryOut(socket: Socket, line: string): void {
    if (line === "quit") {
      socket.end();
      return;
    }
    if (line === "stats") {
      socket.write(this.#stats());
      return;
    }
    const [, queue = "", suffixes = ""] = /^get ([\w:+-]+)((?:\/(?:open|close))+)$/.exec(line) ?? [];
    const items = this.queues.get(queue) ?? [];
    if (suffixes.startsWith("/close")) {
      const cut = this.cut();
      if (cut === "after") this.#connections.set(socket, undefined);
      if (cut !== undefined) {
        for (const each of [...this.#connections.keys()]) this.#lose(each);
        return;
      }
      if (this.#connections.get(socket) !== undefined) this.confirmed++;
      this.#connections.set(socket, undefined);
    }
    const item = suffixes.endsWith("/open") ? items.shift() : undefined;
    if (item === undefined || item.length === 0) {
      socket.write("END\r\n");
      return;
    }
    this.#connections.set(socket, { queue, item });
    socket.write(Buffer.concat([Buffer.from(`VALUE ${queue} 0 ${item.length}\r\n`), item, Buffer.from("\r\nEND\r\n")]));
  }

  #stats(): string {
    const lines = ["uptime 1", "time 1", "version siberite-0.6.4", "curr_connections 1", "total_connections 1"];
    lines.push("cmd_get 0", "cmd_set 0");
    for (const [queue, items] of this.queues) {
      const open = [...this.#connections.values()].filter((read) => read?.queue === queue).length;
      lines.push(`queue_${queue}_items ${items.length}`, `queue_${queue}_open_transactions ${open}`);
      lines.push(`queue_${queue}.cursor_items 7`, `queue_${queue}.cursor_open_transactions 0`);
    }
    return `${lines.map((line) => `STAT ${line}\r\n`).join("")}END\r\n`;
  }

  #lose(socket: Socket): void {
    const open = this.#connections.get(socket);
    this.#connections.delete(socket);
    if (open !== undefined) this.queues.get(open.queue)?.unshift(open.item);
    socket.destroy();
  }
}
