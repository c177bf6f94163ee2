/**
 * A daemon: one directory, opened once, and the listeners through which others use it.
 */

import type { Logger, MessageQueue, OpenOptions } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import { Access } from "../auth/access.js";
import type { Users } from "../auth/users.js";
import { KestrelServer } from "../kestrel/server.js";
import { NATIVE_DEFAULTS, NativeServer } from "../native/server.js";
import { BusyPoll } from "../net/busy-poll.js";
import { openSole } from "../shared/owner.js";
import { formatTarget, type Target } from "../wire/target.js";
import { type Address, formatAddress } from "./address.js";
import { type DaemonConfig, settingsFor } from "./config.js";
import { checkExposure, type Listener } from "./exposure.js";
import { HealthServer } from "./health.js";
import { type LoadedTls, loadTls, type TlsFiles } from "./tls.js";
import { readUsersFile } from "./users-file.js";

export interface DaemonOptions {
  readonly dataDir: string;
  readonly open: OpenOptions;
  /** Where the memcache text protocol is spoken; undefined: nowhere. */
  readonly kestrel: Address | undefined;
  /** Where the native protocol is spoken. */
  readonly targets: readonly Target[];
  /** Where HTTP tells how the daemon is, from before the directory is opened; undefined: nowhere. */
  readonly health: Address | undefined;
  /** For targets with TLS, and read again by `reload`. */
  readonly tls: TlsFiles | undefined;
  /** The users file, read again by `reload`; undefined: whoever reaches the daemon may do everything. */
  readonly users: string | undefined;
  /** Allow listeners that other machines can reach without login and encryption. */
  readonly insecure: boolean;
  readonly config: DaemonConfig;
  readonly version: string;
  /** Largest value of a `set`, in bytes. */
  readonly maxMessageBytes: number;
  readonly maxConnections: number;
  /** Bytes of unfinished requests of all connections together. */
  readonly maxRequestBytes: number;
  readonly stallTimeoutMs: number;
  /** How long the process looks out for the next request before it sleeps, where that pays, in microseconds; 0: not at all. */
  readonly busyPollUs: number;
  readonly logger: Logger;
}

/** Connections get this long to take their last replies. */
const DRAIN_MS = 4000;

interface Native {
  /** With the ports that were asked of the system. */
  readonly targets: readonly Target[];
  readonly server: NativeServer;
}

interface Kestrel {
  readonly address: Address;
  readonly server: KestrelServer;
}

export class Daemon {
  readonly queue: MessageQueue;
  readonly kestrel: Kestrel | undefined;
  readonly native: Native | undefined;
  readonly #options: DaemonOptions;
  readonly #access: Access | undefined;
  readonly #health: HealthServer | undefined;
  #closing: Promise<void> | undefined;

  private constructor(
    options: DaemonOptions,
    queue: MessageQueue,
    access: Access | undefined,
    health: HealthServer | undefined,
    kestrel: Kestrel | undefined,
    native: Native | undefined,
  ) {
    this.#options = options;
    this.#health = health;
    this.queue = queue;
    this.#access = access;
    this.kestrel = kestrel;
    this.native = native;
  }

  /**
   * Opens the directory and begins to listen. What makes a listener unsafe, or keeps it from working, is found before that.
   * @throws VarveError `ERR_OPTION` (a listener that others can reach, files or settings that are not allowed), and what
   *   open() throws
   */
  static async start(options: DaemonOptions): Promise<Daemon> {
    const { kestrel, config, logger } = options;
    const users = options.users === undefined ? undefined : readUsersFile(options.users);
    const tls = options.tls && loadTls(options.tls);
    checkListeners(options, users);
    const access = users && new Access(users);
    const health = options.health && (await startHealth(options.health, options));
    const busyPoll = options.busyPollUs > 0 ? new BusyPoll(options.busyPollUs / 1000) : undefined;
    let queue: MessageQueue | undefined;
    let native: Native | undefined;
    try {
      queue = await openSole(options.dataDir, { ...options.open, logger });
      await applySettings(queue, config);
      native = options.targets.length === 0 ? undefined : await startNative(queue, options, tls, access, busyPoll);
      const front = kestrel && (await startKestrel(queue, kestrel, options, access, busyPoll));
      const shown = front && formatAddress(front.address);
      const targets = native?.targets.map(formatTarget);
      logger.info({ kestrel: shown, targets, directory: options.dataDir, pid: process.pid }, "listening");
      if (tls !== undefined) warnOfCertificate(tls, logger);
      health?.opened(queue);
      return new Daemon(options, queue, access, health, front, native);
    } catch (error) {
      health?.close();
      await native?.server.close(0);
      await queue?.close().catch(() => {});
      throw error;
    }
  }

  /** Reads the users file and the TLS files again. One that is wrong changes nothing, and is logged. */
  reload(): void {
    const { users, tls, logger } = this.#options;
    const attempt = (what: string, read: () => void): void => {
      try {
        read();
        logger.info({}, `read again: ${what}`);
      } catch (error) {
        logger.error({ error }, `${what} cannot be used; what was read before still holds`);
      }
    };
    if (users !== undefined) {
      attempt("the users file", () => {
        this.#access?.replace(readUsersFile(users));
        this.native?.server.recheck();
      });
    }
    if (tls !== undefined) {
      attempt("the TLS files", () => {
        const loaded = loadTls(tls);
        this.native?.server.renewTls(loaded.settings);
        warnOfCertificate(loaded, logger);
      });
    }
  }

  /** Takes no more connections, answers what is under way, and closes the directory. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const { logger } = this.#options;
    const connections = (this.kestrel?.server.connections ?? 0) + (this.native?.server.connections ?? 0);
    logger.info({ connections }, "stopping");
    this.#health?.stopping();
    await this.kestrel?.server.close(DRAIN_MS);
    // At once: calls that wait for room in a queue are answered by its end.
    await Promise.all([this.native?.server.close(DRAIN_MS), this.queue.close()]);
    this.#health?.close();
    logger.info({}, "stopped");
  }
}

/** @throws VarveError `ERR_OPTION` */
function checkListeners({ kestrel, targets, tls, insecure }: DaemonOptions, users: Users | undefined): void {
  const listeners: Listener[] = targets.map((target) => {
    return { scheme: target.scheme, host: "host" in target ? target.host : undefined, shown: formatTarget(target) };
  });
  if (kestrel !== undefined) listeners.push({ scheme: "kestrel", host: kestrel.host, shown: formatAddress(kestrel) });
  if (listeners.length === 0) {
    throw new VarveError("ERR_OPTION", "there is nothing to listen on: --target and --kestrel say where");
  }
  const protection = {
    users: users !== undefined,
    kestrelUsers: users?.kestrel !== undefined,
    tls: tls !== undefined,
    insecure,
  };
  for (const listener of listeners) checkExposure(listener, protection);
}

async function startHealth(address: Address, { dataDir, logger }: DaemonOptions): Promise<HealthServer> {
  const server = new HealthServer();
  const shown = formatAddress(await server.listen(address));
  logger.info({ health: shown, directory: dataDir, pid: process.pid }, "starting");
  return server;
}

async function startNative(
  queue: MessageQueue,
  options: DaemonOptions,
  tls: LoadedTls | undefined,
  access: Access | undefined,
  busyPoll: BusyPoll | undefined,
): Promise<Native> {
  const server = new NativeServer(queue, {
    server: `varve ${options.version}`,
    // A batch may be as large as a commit.
    frameBytesMax: Math.max(NATIVE_DEFAULTS.frameBytesMax, 2 * options.maxMessageBytes),
    maxConnections: options.maxConnections,
    maxRequestBytes: options.maxRequestBytes,
    busyPoll,
    logger: options.logger,
    ...(access === undefined ? {} : { authenticator: access }),
  });
  const targets: Target[] = [];
  try {
    for (const target of options.targets) targets.push(await server.listen({ target, tls: tls?.settings }));
  } catch (error) {
    await server.close(0);
    throw error;
  }
  return { server, targets };
}

/** Clients refuse it then; why should stand where an operator looks. */
function warnOfCertificate({ validFromMs, validToMs }: LoadedTls, logger: Logger): void {
  const nowMs = Date.now();
  if (nowMs >= validFromMs && nowMs <= validToMs) return;
  const fields = { validFrom: new Date(validFromMs).toISOString(), validTo: new Date(validToMs).toISOString() };
  logger.warn(fields, "the TLS certificate is not valid now");
}

async function startKestrel(
  queue: MessageQueue,
  { host, port }: Address,
  options: DaemonOptions,
  access: Access | undefined,
  busyPoll: BusyPoll | undefined,
): Promise<Kestrel> {
  const { config } = options;
  const server = new KestrelServer(queue, {
    // Digits first, and not 0: libmemcached takes no other answer for one.
    version: `1.0.0 varve-${options.version}`,
    maxMessageBytes: options.maxMessageBytes,
    maxConnections: options.maxConnections,
    maxRequestBytes: options.maxRequestBytes,
    stallTimeoutMs: options.stallTimeoutMs,
    syncs: options.open.durability !== "async",
    // Kestrel knows no attempts: unless told otherwise, a task is given out until it is confirmed.
    settings: (name) => ({ maxAttempts: Number.POSITIVE_INFINITY, ...settingsFor(config, name) }),
    may: access?.kestrel.may,
    busyPoll,
    logger: options.logger,
  });
  return { server, address: await server.listen(host, port) };
}

/** Queues that exist get what the configuration says of them; those it names in full are made. */
async function applySettings(queue: MessageQueue, config: DaemonConfig): Promise<void> {
  for (const { pattern, settings } of config.queues) {
    if (!pattern.endsWith("*")) await queue.openTask(pattern, { maxAttempts: Number.POSITIVE_INFINITY, ...settings });
  }
  const named = new Set(config.queues.map(({ pattern }) => pattern));
  for (const { kind, name, damaged } of await queue.queues()) {
    if (kind !== "task" || damaged !== undefined || named.has(name)) continue;
    const settings = settingsFor(config, name);
    if (Object.keys(settings).length > 0) await queue.openTask(name, settings);
  }
}
