/**
 * The daemon's health check: HTTP that answers before the directory is open, so that a supervisor can wait for a daemon that
 * reads back a long log instead of starting it again. It tells one word, and nothing of what is stored.
 */

import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { MessageQueue } from "../api/contract.js";
import type { Address } from "./address.js";

/** Whoever has not asked by then is gone. */
const REQUEST_MS = 5000;
const CONNECTIONS_MAX = 100;

type Status = "starting" | "ok" | "disk-full" | "failed" | "stopping";

export class HealthServer {
  readonly #server: Server;
  #queue: MessageQueue | undefined;
  #stopping = false;

  constructor() {
    this.#server = createServer({ requestTimeout: REQUEST_MS, headersTimeout: REQUEST_MS }, (request, response) => {
      void this.#answer(request, response);
    });
    this.#server.maxConnections = CONNECTIONS_MAX;
  }

  /** @throws the operating system's error, `EADDRINUSE` for one */
  async listen({ host, port }: Address): Promise<Address> {
    this.#server.listen(port, host);
    await once(this.#server, "listening");
    return { host, port: (this.#server.address() as { port: number }).port };
  }

  /** From now on the directory's health is told. */
  opened(queue: MessageQueue): void {
    this.#queue = queue;
  }

  stopping(): void {
    this.#stopping = true;
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  async #status(): Promise<Status> {
    if (this.#stopping) return "stopping";
    if (this.#queue === undefined) return "starting";
    return (await this.#queue.stats()).health;
  }

  async #answer({ method, url }: IncomingMessage, response: ServerResponse): Promise<void> {
    const known = url === "/health" && (method === "GET" || method === "HEAD");
    // A queue that is closing meanwhile has no stats any more.
    const status = known ? await this.#status().catch((): Status => "stopping") : undefined;
    const body = status === undefined ? "" : `${JSON.stringify({ status })}\n`;
    response.writeHead(status === undefined ? 404 : status === "ok" ? 200 : 503, {
      "content-type": "application/json",
      "content-length": Buffer.byteLength(body),
      connection: "close",
    });
    response.end(method === "HEAD" ? undefined : body);
  }
}
