/**
 * The native front: the contract over sockets. It runs over any implementation of the contract, and knows nothing of it but
 * that. Byte for byte: docs/protocol.md.
 *
 * Bounds over all clients, besides those of a connection: connections, bytes of unfinished frames, sessions that wait for
 * their clients to come back.
 */

import { randomBytes, timingSafeEqual } from "node:crypto";
import { createServer as createPlainServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer, type TlsOptions, Server as TlsServer } from "node:tls";
import type { Logger, MessageQueue } from "../api/contract.js";
import { isVarveError, VarveError } from "../api/errors.js";
import type { BusyPoll } from "../net/busy-poll.js";
import { Puts } from "../net/puts.js";
import { Takes } from "../net/takes.js";
import { Feature, type Hello, ID_BYTES } from "../wire/hello.js";
import type { Target } from "../wire/target.js";
import { type Authenticator, type Credentials, OPEN, type Principal } from "./access.js";
import { Clients } from "./clients.js";
import { Connection } from "./connection.js";
import { TurnCopies } from "./copies.js";
import { Session } from "./session.js";
import { listenOnUnixSocket } from "./unix-socket.js";

export interface NativeOptions {
  /** What clients are told of the server: its name and version. */
  readonly server: string;
  /** Longest frame that is taken, in bytes. */
  readonly frameBytesMax: number;
  /** At each listener, those in the middle of a TLS handshake included. */
  readonly maxConnections: number;
  /** Bytes of unfinished frames of all connections together. */
  readonly maxRequestBytes: number;
  /** A client that is not let in after this long is cut off. */
  readonly helloTimeoutMs: number;
  /** A connection that stands still this long in the middle of a frame, or with answers that it does not take, is ended. */
  readonly stallTimeoutMs: number;
  /** How long what a client holds for its session waits for it to come back. */
  readonly sessionMs: number;
  /** How long its memberships of exclusive groups do: meanwhile nobody else may read. */
  readonly memberMs: number;
  readonly authenticator: Authenticator;
  /** Neither listeners nor connections keep the process from ending. */
  readonly isBackground: boolean;
  /** Keeps the process awake for requests that come soon; undefined: it sleeps at once. */
  readonly busyPoll: BusyPoll | undefined;
  readonly logger: Logger;
}

const SILENT: Logger = { debug() {}, info() {}, warn() {}, error() {} };

export const NATIVE_DEFAULTS: NativeOptions = Object.freeze({
  server: "varve",
  frameBytesMax: 64 * 1024 * 1024,
  maxConnections: 10_000,
  maxRequestBytes: 256 * 1024 * 1024,
  helloTimeoutMs: 5000,
  stallTimeoutMs: 30_000,
  sessionMs: 10_000,
  memberMs: 2000,
  authenticator: OPEN,
  isBackground: false,
  busyPoll: undefined,
  logger: SILENT,
});

const SWEEP_MS = 1000;
const BACKLOG = 1024;
/** So many times sooner a client is cut off that has more before it than it should. */
const OVERFULL_TIMES = 6;
/** Waiting for their clients, all together. */
const ABSENT_MAX = 10_000;
/** What was said last gets this long to be taken. */
const LINGER_MS = 1000;

/** Where the server listens, and with TLS how. */
export interface Endpoint {
  readonly target: Target;
  /** As for `tls.createServer`: `key`, `cert`, `ca`, `requestCert`... Never below TLS 1.2. */
  readonly tls?: TlsOptions | undefined;
}

/** What connections see of the front. */
export interface Front {
  readonly mq: MessageQueue;
  readonly options: NativeOptions;
  readonly features: number;
  readonly puts: Puts;
  readonly copies: TurnCopies;
  readonly takes: Takes;
  nowMs(): number;
  authenticate(credentials: Credentials): Principal | undefined;
  /** The session that a client wants to go on with, or a new one. */
  sessionFor(hello: Hello, principal: Principal, by: Connection): Promise<{ session: Session; resumed: boolean }>;
  /** Notes bytes kept for unfinished frames; false when all together are too many. */
  hold(bytes: number): boolean;
  /** A client ends its session in order. */
  endSession(session: Session): Promise<void>;
  /** The connection of a session is gone; the client may come back. */
  disconnected(session: Session, from: Connection): void;
  refused(connection: Connection, error: unknown): void;
  /** Has a socket that was ended go, at the latest after some time. */
  lingering(socket: Socket): void;
  left(connection: Connection): void;
}

/** A session, the connection that serves it, and the end of waiting for another one. */
interface Entry {
  readonly session: Session;
  connection: Connection | undefined;
  expires: NodeJS.Timeout | undefined;
  /** Until its memberships end. */
  leaves: NodeJS.Timeout | undefined;
  /** Its memberships have ended. */
  settled: Promise<void>;
}

export class NativeServer implements Front {
  readonly mq: MessageQueue;
  readonly options: NativeOptions;
  readonly features = Feature.identity;
  readonly puts: Puts;
  readonly copies: TurnCopies;
  readonly takes: Takes;
  readonly #listeners: Server[] = [];
  readonly #connections = new Set<Connection>();
  /** By session id, in hex; the longest absent first. */
  readonly #sessions = new Map<string, Entry>();
  readonly #clients = new Clients();
  #heldBytes = 0;
  #stopping = false;
  #sweep: NodeJS.Timeout | undefined;

  constructor(mq: MessageQueue, options: Partial<NativeOptions> = {}) {
    this.mq = mq;
    this.puts = new Puts(mq);
    this.copies = new TurnCopies(this.puts);
    this.takes = new Takes(mq);
    this.options = Object.freeze({ ...NATIVE_DEFAULTS, ...options });
  }

  /**
   * Begins to listen there, too. Returns where, with the port that port 0 has become.
   * @throws VarveError `ERR_OPTION` (TLS without a key); the operating system's error, `EADDRINUSE` for one
   */
  async listen({ target, tls }: Endpoint): Promise<Target> {
    const connected = (socket: Socket) => this.#connected(socket);
    if (target.scheme === "tls" && tls === undefined) {
      throw new VarveError("ERR_OPTION", "a tls:// target needs a key and a certificate");
    }
    const server =
      target.scheme === "tls"
        ? createTlsServer({ ...tls, minVersion: "TLSv1.2", handshakeTimeout: this.options.helloTimeoutMs }, connected)
        : createPlainServer({ noDelay: true }, connected);
    // Each listener for itself: a flood at one leaves the others open.
    server.maxConnections = this.options.maxConnections;
    await listenAt(server, target);
    server.on("error", (error) => this.options.logger.error({ error }, "the listener reported an error"));
    server.on("tlsClientError", (_error, socket: Socket) => socket.destroy());
    if (this.options.isBackground) server.unref();
    this.#listeners.push(server);
    if (this.#sweep === undefined) {
      this.#sweep = setInterval(() => this.#endStalled(), SWEEP_MS);
      this.#sweep.unref();
    }
    const address = server.address();
    if (!("port" in target) || address === null || typeof address === "string") return target;
    return { scheme: target.scheme, host: target.host, port: address.port };
  }

  /** Listeners with TLS show another certificate from now on, and accept those of other authorities. */
  renewTls(tls: TlsOptions): void {
    for (const server of this.#listeners) if (server instanceof TlsServer) server.setSecureContext(tls);
  }

  /** Ends the connections of those who may something else than when they were let in. */
  recheck(): void {
    for (const connection of this.#connections) connection.recheck();
  }

  /**
   * Accepts no more connections, tells clients that it is ending, answers what is under way, and gives back what sessions
   * hold. Connections that are not over after `timeoutMs` are cut off.
   */
  async close(timeoutMs = 5000): Promise<void> {
    this.#stopping = true;
    const closed = this.#listeners.map((server) => new Promise<void>((resolve) => server.close(() => resolve())));
    let deadline: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      deadline = setTimeout(resolve, timeoutMs);
    });
    await Promise.race([late, Promise.all([...this.#connections].map((connection) => connection.leave()))]);
    for (const connection of this.#connections) this.lingering(connection.socket);
    await Promise.race([late, Promise.all(closed)]);
    clearTimeout(deadline);
    clearInterval(this.#sweep);
    for (const connection of this.#connections) connection.destroy();
    await Promise.all([...this.#sessions.values()].map((entry) => this.#end(entry)));
    await Promise.all(closed);
  }

  get connections(): number {
    return this.#connections.size;
  }

  nowMs(): number {
    return performance.now();
  }

  authenticate(credentials: Credentials): Principal | undefined {
    return this.options.authenticator.authenticate(credentials);
  }

  async sessionFor(
    hello: Hello,
    principal: Principal,
    by: Connection,
  ): Promise<{ session: Session; resumed: boolean }> {
    // An id that somebody else claims is another client.
    await this.#clients.enter(`${Buffer.from(hello.clientId).toString("hex")} ${principal.name}`, by);
    if (by.isOver) throw new VarveError("ERR_CLOSED", "the client has connected anew meanwhile");
    const known = this.#sessions.get(Buffer.from(hello.sessionId).toString("hex"));
    if (known !== undefined && this.#isSame(known.session, hello, principal)) {
      stopWaiting(known);
      known.connection = by;
      await known.settled;
      await known.session.giveBackLost(hello.received);
      known.session.principal = principal;
      return { session: known.session, resumed: true };
    }
    const session = new Session(randomBytes(ID_BYTES), hello.clientId, principal, this.options.authenticator !== OPEN);
    this.#sessions.set(session.id.toString("hex"), {
      session,
      connection: by,
      expires: undefined,
      leaves: undefined,
      settled: Promise.resolve(),
    });
    return { session, resumed: false };
  }

  #isSame(session: Session, hello: Hello, principal: Principal): boolean {
    return session.principal.name === principal.name && timingSafeEqual(session.clientId, hello.clientId);
  }

  async endSession(session: Session): Promise<void> {
    const entry = this.#entryOf(session);
    if (entry !== undefined) await this.#end(entry);
  }

  disconnected(session: Session, from: Connection): void {
    const entry = this.#entryOf(session);
    // It has come back over another one already.
    if (entry === undefined || entry.connection !== from) return;
    entry.connection = undefined;
    if (this.#stopping) return;
    const { sessionMs, memberMs } = this.options;
    entry.expires = setTimeout(() => void this.#end(entry), sessionMs).unref();
    entry.leaves = setTimeout(() => {
      entry.settled = entry.settled.then(() => session.leaveGroups());
    }, memberMs).unref();
    this.#limitAbsent(entry);
  }

  /** Puts the session behind the others that wait for their clients, and ends the first ones if there are too many. */
  #limitAbsent(entry: Entry): void {
    const key = entry.session.id.toString("hex");
    this.#sessions.delete(key);
    this.#sessions.set(key, entry);
    if (this.#sessions.size - this.#connections.size <= ABSENT_MAX) return;
    for (const other of this.#sessions.values()) {
      if (other.connection !== undefined) continue;
      void this.#end(other);
      return;
    }
  }

  #entryOf(session: Session): Entry | undefined {
    return this.#sessions.get(session.id.toString("hex"));
  }

  async #end(entry: Entry): Promise<void> {
    stopWaiting(entry);
    this.#sessions.delete(entry.session.id.toString("hex"));
    await entry.settled;
    await entry.session.end();
  }

  hold(bytes: number): boolean {
    this.#heldBytes += bytes;
    return bytes <= 0 || this.#heldBytes <= this.options.maxRequestBytes;
  }

  refused(connection: Connection, error: unknown): void {
    const { remoteAddress } = connection.socket;
    const { logger } = this.options;
    // What strangers send that is no login could fill a disk.
    const isNoise = connection.isNew && !isVarveError(error, "ERR_UNAUTHENTICATED");
    if (isNoise) logger.debug({ remoteAddress, error }, "a connection was ended before its login");
    else logger.warn({ remoteAddress, error }, "a connection was ended");
  }

  lingering(socket: Socket): void {
    if (socket.destroyed) return;
    const timer = setTimeout(() => socket.destroy(), LINGER_MS);
    socket.once("close", () => clearTimeout(timer));
  }

  left(connection: Connection): void {
    this.#connections.delete(connection);
  }

  #connected(socket: Socket): void {
    if (this.#stopping) {
      socket.on("error", () => {});
      socket.destroy();
      return;
    }
    if (this.options.isBackground) socket.unref();
    this.#connections.add(new Connection(this, socket));
  }

  #endStalled(): void {
    const nowMs = this.nowMs();
    const { helloTimeoutMs, stallTimeoutMs } = this.options;
    for (const connection of this.#connections) {
      connection.recheck();
      if (connection.isNew) {
        if (nowMs - connection.startedMs > helloTimeoutMs) connection.destroy();
      } else if (connection.isStuck) {
        const allowedMs = connection.isOverfull ? stallTimeoutMs / OVERFULL_TIMES : stallTimeoutMs;
        if (nowMs - connection.lastActiveMs > allowedMs) connection.destroy();
      }
    }
  }
}

function stopWaiting(entry: Entry): void {
  clearTimeout(entry.expires);
  clearTimeout(entry.leaves);
  entry.expires = undefined;
  entry.leaves = undefined;
}

/** Resolves once the server listens. */
function listenAt(server: Server, target: Target): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.once("listening", () => {
      server.off("error", reject);
      resolve();
    });
    if (target.scheme === "unix") listenOnUnixSocket(server, target.path, BACKLOG).catch(reject);
    else if ("port" in target) server.listen({ host: target.host, port: target.port, backlog: BACKLOG });
    else server.listen({ path: target.path, backlog: BACKLOG });
  });
}
