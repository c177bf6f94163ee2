/**
 * A daemon: one directory, opened once, and the listeners through which others use it.
 */

import type { Logger, MessageQueue, OpenOptions } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import { open } from "../index.js";
import { KestrelServer } from "../kestrel/server.js";
import { type Address, formatAddress, isLoopback } from "./address.js";
import { type DaemonConfig, settingsFor } from "./config.js";

export interface DaemonOptions {
  readonly dataDir: string;
  readonly open: OpenOptions;
  /** Where the memcache text protocol is spoken. */
  readonly kestrel: Address;
  /** Allow addresses that other machines can reach. The protocol has neither passwords nor encryption. */
  readonly allowRemote: boolean;
  readonly config: DaemonConfig;
  readonly version: string;
  /** Largest value of a `set`, in bytes. */
  readonly maxMessageBytes: number;
  readonly maxConnections: number;
  /** Bytes of unfinished requests of all connections together. */
  readonly maxRequestBytes: number;
  readonly stallTimeoutMs: number;
  readonly logger: Logger;
}

/** Connections get this long to take their last replies. */
const DRAIN_MS = 4000;

export class Daemon {
  readonly queue: MessageQueue;
  readonly kestrel: { readonly address: Address; readonly server: KestrelServer };
  readonly #logger: Logger;
  #closing: Promise<void> | undefined;

  private constructor(queue: MessageQueue, server: KestrelServer, address: Address, logger: Logger) {
    this.queue = queue;
    this.kestrel = { address, server };
    this.#logger = logger;
  }

  /**
   * Opens the directory and begins to listen.
   * @throws VarveError `ERR_OPTION` (an address that others can reach, or settings that are not allowed), and what open() throws
   */
  static async start(options: DaemonOptions): Promise<Daemon> {
    const { kestrel, config, logger } = options;
    if (!isLoopback(kestrel.host) && !options.allowRemote) {
      throw new VarveError(
        "ERR_OPTION",
        `${formatAddress(kestrel)} can be reached from other machines, and this protocol has neither passwords nor ` +
          "encryption. Listen on 127.0.0.1, or say --allow-remote if the network keeps others out.",
      );
    }
    const queue = await open(options.dataDir, { ...options.open, logger });
    try {
      await applySettings(queue, config);
      const server = new KestrelServer(queue, {
        // Digits first, and not 0: libmemcached takes no other answer for one.
        version: `1.0.0 varve-${options.version}`,
        maxMessageBytes: options.maxMessageBytes,
        maxConnections: options.maxConnections,
        maxRequestBytes: options.maxRequestBytes,
        stallTimeoutMs: options.stallTimeoutMs,
        // Kestrel knows no attempts: unless told otherwise, a task is given out until it is confirmed.
        settings: (name) => ({ maxAttempts: Number.POSITIVE_INFINITY, ...settingsFor(config, name) }),
        logger,
      });
      const address = await server.listen(kestrel.host, kestrel.port);
      logger.info({ kestrel: formatAddress(address), directory: options.dataDir, pid: process.pid }, "listening");
      return new Daemon(queue, server, address, logger);
    } catch (error) {
      await queue.close().catch(() => {});
      throw error;
    }
  }

  /** Takes no more connections, answers what is under way, and closes the directory. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#logger.info({ connections: this.kestrel.server.connections }, "stopping");
    await this.kestrel.server.close(DRAIN_MS);
    await this.queue.close();
    this.#logger.info({}, "stopped");
  }
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
