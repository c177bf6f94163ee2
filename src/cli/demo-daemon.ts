/** The second half of the demonstration: a daemon serves the directory, and two kinds of clients work against it. */

import { once } from "node:events";
import { connect, type Socket } from "node:net";
import type { MessageQueue } from "../api/contract.js";
import { type Address, formatAddress } from "../daemon/address.js";
import { NO_CONFIG } from "../daemon/config.js";
import { Daemon, type DaemonOptions } from "../daemon/daemon.js";
import { dial, json, text } from "../index.js";
import { formatTarget, parseTarget } from "../wire/target.js";

export type Out = (line: string) => void;

/** Where the daemon listens; a free port if one is taken. */
export interface Ports {
  readonly kestrel: number;
  readonly native: number;
}

export const PORTS: Ports = { kestrel: 22133, native: 7420 };
const HOST = "127.0.0.1";
const SILENT = { debug() {}, info() {}, warn() {}, error() {} };
const MAILS = "demo-mails";

export interface Serving {
  readonly kestrel: Address;
  readonly target: string;
  close(): Promise<void>;
}

/** @throws what opening the directory throws */
export async function serve(directory: string, ports: Ports): Promise<Serving> {
  let daemon: Daemon;
  try {
    daemon = await Daemon.start(optionsOf(directory, ports));
  } catch (error) {
    if ((error as { code?: unknown }).code !== "EADDRINUSE") throw error;
    daemon = await Daemon.start(optionsOf(directory, { kestrel: 0, native: 0 }));
  }
  const target = formatTarget(daemon.native!.targets[0]!);
  return { kestrel: daemon.kestrel!.address, target, close: () => daemon.close() };
}

function optionsOf(directory: string, { kestrel, native }: Ports): DaemonOptions {
  return {
    dataDir: directory,
    open: {},
    kestrel: { host: HOST, port: kestrel },
    targets: [parseTarget(`tcp://${HOST}:${native}`)],
    health: undefined,
    tls: undefined,
    users: undefined,
    insecure: false,
    config: NO_CONFIG,
    version: "demo",
    maxMessageBytes: 1024 * 1024,
    maxConnections: 1000,
    maxRequestBytes: 64 * 1024 * 1024,
    stallTimeoutMs: 120_000,
    // Its clients are in the same process.
    busyPollUs: 0,
    logger: SILENT,
  };
}

/** A client with nothing but a socket: what it sends and what it is sent. */
export async function tellMemcache({ kestrel }: Serving, out: Out): Promise<void> {
  const client = await Memcache.connect(kestrel, out);
  try {
    // What an earlier run, or somebody else, has left there is not part of the story.
    await client.ask(`flush ${MAILS}`, /END\r\n$/);
    for (const to of ["ada@example.com", "bob@example.com"]) await client.set(MAILS, JSON.stringify({ to }));
    out(
      "   A read that is opened is the client's until it is closed; if the connection ended first, it would go back.",
    );
    await client.ask(`get ${MAILS}/open`, /END\r\n$/);
    await client.ask(`get ${MAILS}/close`, /END\r\n$/);
  } finally {
    client.end();
  }
}

/** The same contract as in this process, over a connection: what the memcache client left is worked on here. */
export async function tellDialled({ target }: Serving, log: string, out: Out): Promise<void> {
  out(`   mq = await dial("${target}")`);
  const mq = await dial(target);
  try {
    const events = await mq.openLog(log, { codec: text() });
    const offset = await events.append("order 1003 was placed");
    out(`   append  order 1003 was placed   -> offset ${offset}`);
    out(`   read    offset ${offset}: ${(await events.read(offset))?.payload}`);
    await tellWorker(mq, out);
  } finally {
    await mq.close();
  }
}

async function tellWorker(mq: MessageQueue, out: Out): Promise<void> {
  const mails = await mq.openTask(MAILS, { codec: json<{ to: string }>() });
  const worker = mails.work(({ payload, attempt }) => {
    out(`   work    attempt ${attempt}: a mail to ${payload.to}`);
    return `sent to ${payload.to}`;
  });
  const done = new Promise<void>((resolve, reject) => {
    worker.on("completed", (task, result) => {
      out(`   done    task ${task.id}: ${result}`);
      resolve();
    });
    worker.on("failed", (_task, error) => reject(error));
    worker.on("error", reject);
  });
  try {
    await done;
  } finally {
    await worker.close();
  }
  const { ready, leased } = await mails.stats();
  out(`   stats   ${MAILS}: ${ready} ready, ${leased} leased`);
}

class Memcache {
  readonly #socket: Socket;
  readonly #out: Out;
  #received = "";

  private constructor(socket: Socket, out: Out) {
    this.#socket = socket;
    this.#out = out;
    socket.setEncoding("latin1");
  }

  static async connect({ host, port }: Address, out: Out): Promise<Memcache> {
    const socket = connect(port, host);
    await once(socket, "connect");
    out(`   connected to ${formatAddress({ host, port })}`);
    return new Memcache(socket, out);
  }

  async set(queue: string, body: string): Promise<void> {
    await this.ask(`set ${queue} 0 0 ${body.length}\r\n${body}`, /\r\n$/);
  }

  /** Sends a request, and waits until what has come ends like this. */
  async ask(request: string, end: RegExp): Promise<void> {
    this.#received = "";
    for (const line of request.split("\r\n")) this.#out(`   > ${line}`);
    this.#socket.write(`${request}\r\n`);
    while (!end.test(this.#received)) {
      const [piece] = await once(this.#socket, "data");
      this.#received += piece;
    }
    for (const line of this.#received.split("\r\n").slice(0, -1)) this.#out(`   < ${line}`);
  }

  end(): void {
    this.#socket.destroy();
  }
}
