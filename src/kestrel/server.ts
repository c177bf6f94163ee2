/**
 * The Kestrel front: the memcache text protocol with Kestrel's queue semantics over any implementation of the contract,
 * so that existing memcache clients are clients of varve. Byte for byte: docs/kestrel.md.
 *
 * Bounds, whatever clients do: connections, bytes of unfinished requests of all connections together, one request line, one
 * value, requests under way and unread replies of one connection, and the time that a connection may stand still in the
 * middle of a request or with replies that it does not take.
 */

import { createServer, type Server, type Socket } from "node:net";
import type { Logger, MessageQueue } from "../api/contract.js";
import type { BusyPoll } from "../net/busy-poll.js";
import { Puts } from "../net/puts.js";
import { Takes } from "../net/takes.js";
import type { May } from "./authorise.js";
import { type QueueSettings, Queues } from "./queues.js";
import { Session } from "./session.js";
import { Counters, dumpStats, stats } from "./stats.js";

export interface KestrelOptions {
  /** What `version` answers. */
  readonly version: string;
  /** Largest value of a `set`, in bytes. */
  readonly maxMessageBytes: number;
  readonly maxConnections: number;
  /** Bytes of unfinished requests of all connections together. */
  readonly maxRequestBytes: number;
  /** A connection that stands still this long in mid-request, or with replies that it does not take, is ended. */
  readonly stallTimeoutMs: number;
  /** Commits are synced one by one. Replies are then written while the next sync is under way, and not before it begins. */
  readonly syncs: boolean;
  /** How queues are made that the protocol creates. */
  readonly settings: (name: string) => QueueSettings;
  /** What connections may do; undefined: everything. */
  readonly may?: May | undefined;
  /** Keeps the process awake for requests that come soon; undefined: it sleeps at once. */
  readonly busyPoll?: BusyPoll | undefined;
  readonly logger: Logger;
}

const SWEEP_MS = 5000;

/** What sessions see of the front. */
export interface Front {
  readonly options: KestrelOptions;
  readonly queues: Queues;
  readonly puts: Puts;
  readonly takes: Takes;
  readonly counters: Counters;
  /** The front is ending; what is open then is given back by the directory, in order. */
  readonly stopping: boolean;
  /** Monotone, for intervals. */
  nowMs(): number;
  /** The moment since 1970 at which an item dies, by what its `set` says of it; undefined for never. */
  expiryMs(expiry: number): number | undefined;
  /** Notes bytes kept for an unfinished request; false when all together are too many. */
  hold(bytes: number): boolean;
  /** Ends a socket that has been answered for the last time, at the latest after some time. */
  lingering(socket: Socket, timeoutMs: number): void;
  left(session: Session): void;
  stats(): Promise<string>;
  dumpStats(queues: readonly string[]): Promise<string>;
}

export class KestrelServer implements Front {
  readonly options: KestrelOptions;
  readonly queues: Queues;
  readonly puts: Puts;
  readonly takes: Takes;
  readonly counters = new Counters();
  stopping = false;
  readonly #server: Server;
  readonly #sessions = new Set<Session>();
  readonly #sockets = new Set<Socket>();
  readonly #startedMs: number;
  #heldBytes = 0;
  #sweep: NodeJS.Timeout | undefined;

  constructor(mq: MessageQueue, options: KestrelOptions) {
    this.options = options;
    this.queues = new Queues(mq, options.settings);
    this.puts = new Puts(mq);
    this.takes = new Takes(mq);
    this.#startedMs = this.nowMs();
    this.#server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => this.#connected(socket));
  }

  /**
   * Begins to listen.
   * @throws the operating system's error, `EADDRINUSE` for one
   */
  async listen(host: string, port: number): Promise<{ readonly host: string; readonly port: number }> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen({ host, port, backlog: 1024 }, () => {
        this.#server.off("error", reject);
        resolve();
      });
    });
    this.#server.on("error", (error) => this.options.logger.error({ error }, "the listener reported an error"));
    this.#sweep = setInterval(() => this.#endStalled(), SWEEP_MS);
    this.#sweep.unref();
    const address = this.#server.address();
    if (address === null || typeof address === "string") return { host, port };
    return { host: address.address, port: address.port };
  }

  /**
   * Accepts no more connections, answers what is under way, ends waits with `END`, and ends all connections. Those that are
   * not over after `timeoutMs` are cut off.
   */
  async close(timeoutMs = 5000): Promise<void> {
    this.stopping = true;
    clearInterval(this.#sweep);
    const closed = new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
    });
    for (const session of this.#sessions) session.end();
    const deadline = setTimeout(() => {
      for (const socket of this.#sockets) socket.destroy();
    }, timeoutMs);
    await closed;
    clearTimeout(deadline);
  }

  get connections(): number {
    return this.#sockets.size;
  }

  get uptimeMs(): number {
    return this.nowMs() - this.#startedMs;
  }

  nowMs(): number {
    return performance.now();
  }

  wallMs(): number {
    return Date.now();
  }

  expiryMs(expiry: number): number | undefined {
    if (expiry === 0) return undefined;
    return expiry < 1_000_000 ? this.wallMs() + expiry * 1000 : expiry * 1000;
  }

  hold(bytes: number): boolean {
    this.#heldBytes += bytes;
    return bytes <= 0 || this.#heldBytes <= this.options.maxRequestBytes;
  }

  lingering(socket: Socket, timeoutMs: number): void {
    if (socket.destroyed) return;
    const timer = setTimeout(() => socket.destroy(), timeoutMs);
    socket.once("close", () => clearTimeout(timer));
  }

  left(session: Session): void {
    this.#sessions.delete(session);
  }

  stats(): Promise<string> {
    return stats(this);
  }

  dumpStats(queues: readonly string[]): Promise<string> {
    return dumpStats(this, queues);
  }

  #connected(socket: Socket): void {
    this.counters.connections++;
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
    if (this.#sockets.size > this.options.maxConnections || this.stopping) {
      socket.on("error", () => {});
      socket.end("SERVER_ERROR too many connections\r\n");
      this.lingering(socket, 1000);
      return;
    }
    this.#sessions.add(new Session(this, socket));
  }

  #endStalled(): void {
    const before = this.nowMs() - this.options.stallTimeoutMs;
    for (const session of this.#sessions) if (session.lastActiveMs < before && session.stuck) session.destroy();
  }
}
