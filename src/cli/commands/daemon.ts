import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { type Command, Option } from "commander";
import { parseSize } from "../../api/units.js";
import { type Address, formatAddress, parseAddress } from "../../daemon/address.js";
import { NO_CONFIG, parseConfig } from "../../daemon/config.js";
import { Daemon } from "../../daemon/daemon.js";
import { keepHeapSmall } from "../../daemon/heap.js";
import { jsonLogger, LOG_LEVELS, type LogLevel } from "../../daemon/log.js";
import type { TlsFiles } from "../../daemon/tls.js";
import { formatTarget, parseTarget } from "../../wire/target.js";
import { UsageError } from "../exit.js";
import { attempts, wholeNumber, withDirectoryOptions } from "../options.js";
import { action } from "../run.js";

interface DaemonCommandOptions {
  readonly target?: readonly string[];
  readonly kestrel?: string;
  readonly health?: string;
  readonly tlsCert?: string;
  readonly tlsKey?: string;
  readonly tlsCa?: string;
  readonly tlsClientAuth?: boolean;
  readonly auth?: string;
  readonly insecure?: boolean;
  readonly config?: string;
  readonly pidFile?: string;
  readonly maxMessage: string;
  readonly maxConnections: number;
  readonly maxQueues: number;
  readonly maxRequestMemory: string;
  readonly stallTimeout: number;
  readonly busyPoll: number;
  readonly cache?: string;
  readonly logLevel: LogLevel;
}

/** A directory that cannot be closed in this time is left to recovery; nothing acknowledged is lost. */
const STOP_MS = 9500;

const BUSY_POLL_MAX_US = 10_000;
/** On one processor it would keep from running whoever sends the next request. */
const BUSY_POLL_DEFAULT_US = availableParallelism() > 1 ? 300 : 0;

const KESTREL_DEFAULT = "127.0.0.1:22133";

export function registerDaemon(program: Command, version: string): void {
  const command = program
    .command("daemon")
    .summary("serve a directory to other processes")
    .description(
      "Serves a directory until SIGTERM or SIGINT: with --target to varve's own clients, which dial it; with --kestrel, and " +
        "when neither is given, its task queues over the memcache text protocol with Kestrel's semantics.",
    )
    .option(
      "--target <url...>",
      "where to listen for varve's clients: tcp://host:port, tls://..., unix:///path, pipe://name",
    )
    .option(
      "--kestrel <host:port>",
      `where to listen for memcache clients (${KESTREL_DEFAULT} without --target and --auth)`,
    )
    .option(
      "--health <host:port>",
      "where HTTP tells at /health how the daemon is, from its start on (docs/guide/operations.md)",
    )
    .option("--tls-cert <file>", "PEM certificate of tls:// targets, with those that lead to its authority behind it")
    .option("--tls-key <file>", "its PEM key")
    .option("--tls-ca <file>", "PEM authorities of clients' certificates")
    .option("--tls-client-auth", "refuse clients without a certificate of --tls-ca")
    .option(
      "--auth <file>",
      "users file: who may do what (docs/guide/security.md); it and the TLS files are read again at SIGHUP",
    )
    .option("--insecure", "allow addresses that other machines can reach, without login or encryption")
    .option("--config <file>", "JSON file with the settings of queues (docs/kestrel.md)")
    .option("--pid-file <file>", "write the process id there while the daemon runs")
    .option("--max-message <size>", "largest value of a set", "16MiB")
    .option("--max-connections <n>", "connections at once", wholeNumber(1), 10_000)
    .option(
      "--max-queues <n>",
      'queues of the directory, at most, or "unlimited"; clients that name a further one are refused',
      attempts,
      10_000,
    )
    .option("--max-request-memory <size>", "bytes of unfinished requests, all connections together", "256MiB")
    .option("--stall-timeout <seconds>", "end a connection that stands still in mid-request", wholeNumber(1), 120)
    .option(
      "--busy-poll <us>",
      "look out for the next request so long before going to sleep, where requests do come in that time; 0: never",
      wholeNumber(0, BUSY_POLL_MAX_US),
      BUSY_POLL_DEFAULT_US,
    )
    .option("--cache <size>", "memory for recent and read-ahead data", "8MiB")
    .addOption(
      new Option("--log-level <level>", "what to log, as JSON lines on stderr").choices(LOG_LEVELS).default("info"),
    )
    .addHelpText(
      "after",
      "\nExample:\n  $ varve daemon --data-dir ./data --target tcp://127.0.0.1:7420 --kestrel 127.0.0.1:22133",
    );

  action<[], DaemonCommandOptions>(withDirectoryOptions(command), async (run) => {
    const { options } = run;
    keepHeapSmall();
    const maxMessageBytes = parseSize(options.maxMessage, "--max-message");
    const daemon = await Daemon.start({
      dataDir: options.dataDir,
      open: {
        durability: options.durability,
        maxMessageBytes,
        walFileBytes: Math.max(64 * 1024 * 1024, 2 * maxMessageBytes + 1024 * 1024),
        cacheBytes: options.cache,
        maxQueues: options.maxQueues,
      },
      kestrel: kestrelAddress(options),
      health: options.health === undefined ? undefined : parseAddress(options.health, "--health"),
      targets: (options.target ?? []).map((target) => parseTarget(target, "--target")),
      tls: tlsFiles(options),
      users: options.auth,
      insecure: options.insecure === true,
      config:
        options.config === undefined ? NO_CONFIG : parseConfig(readFileSync(options.config, "utf8"), options.config),
      version,
      maxMessageBytes,
      maxConnections: options.maxConnections,
      maxRequestBytes: parseSize(options.maxRequestMemory, "--max-request-memory"),
      stallTimeoutMs: options.stallTimeout * 1000,
      busyPollUs: options.busyPoll,
      logger: jsonLogger(options.logLevel, (line) => process.stderr.write(line)),
    });
    const stopped = stopSignal();
    if (options.auth !== undefined || options.tlsCert !== undefined) process.on("SIGHUP", () => daemon.reload());
    if (options.pidFile !== undefined) writeFileSync(options.pidFile, `${process.pid}\n`);
    try {
      const address = daemon.kestrel && formatAddress(daemon.kestrel.address);
      const targets = daemon.native?.targets.map(formatTarget) ?? [];
      await run.print({ pid: process.pid, dataDir: options.dataDir, targets, kestrel: address }, () => {
        const shown = [...targets, ...(address === undefined ? [] : [`kestrel on ${address}`])].join(", ");
        return `varve ${version} serves ${options.dataDir}: ${shown}, pid ${process.pid}`;
      });
      await stopped;
      // Nothing acknowledged is lost by leaving: the next open recovers it.
      setTimeout(() => process.exit(1), STOP_MS).unref();
      await daemon.close();
    } finally {
      if (options.pidFile !== undefined) rmSync(options.pidFile, { force: true });
    }
    return undefined;
  });
}

/** Everybody who reaches Kestrel's port is let in: where there is a login, that must have been asked for. */
function kestrelAddress({ kestrel, target, auth }: DaemonCommandOptions): Address | undefined {
  if (kestrel === undefined && (auth !== undefined || target !== undefined)) return undefined;
  return parseAddress(kestrel ?? KESTREL_DEFAULT, "--kestrel");
}

function tlsFiles({ tlsCert, tlsKey, tlsCa, tlsClientAuth }: DaemonCommandOptions): TlsFiles | undefined {
  if (tlsCert === undefined && tlsKey === undefined) {
    if (tlsCa === undefined && tlsClientAuth === undefined) return undefined;
    throw new UsageError("--tls-ca and --tls-client-auth go with --tls-cert and --tls-key");
  }
  if (tlsCert === undefined || tlsKey === undefined) throw new UsageError("--tls-cert and --tls-key go together");
  return { cert: tlsCert, key: tlsKey, ca: tlsCa, clientAuth: tlsClientAuth === true };
}

/** Resolves at the first SIGTERM or SIGINT. A second one has its usual effect. */
function stopSignal(): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => resolve());
  });
}
