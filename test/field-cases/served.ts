/** The cases that name the wire: a directory behind a real listener, and clients that dial it. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { dial, type MessageQueue, type OpenOptions, open } from "../../src/index.js";
import { parseTarget } from "../../src/wire/target.js";
import { jsonLines, type Running, startVarve } from "../cli/program.js";
import { withDirectory } from "../support/directories.js";
import { freeTarget, type Listening, listen } from "../support/listening.js";

/** A directory, opened here, that is used through connections. */
export class Served {
  readonly #directory: string;
  readonly #options: OpenOptions;
  readonly #clients: MessageQueue[] = [];
  #listening: Listening;

  private constructor(directory: string, options: OpenOptions, listening: Listening) {
    this.#directory = directory;
    this.#options = options;
    this.#listening = listening;
  }

  static async start(directory: string, options: OpenOptions = {}): Promise<Served> {
    return new Served(directory, options, await listen(await open(directory, options), freeTarget("tcp")));
  }

  get listening(): Listening {
    return this.#listening;
  }

  /** Another client, on a connection of its own. */
  async dial(): Promise<MessageQueue> {
    const client = await dial(this.#listening.target);
    this.#clients.push(client);
    return client;
  }

  /** What is served is closed and opened again, at the same address. */
  async restart(): Promise<void> {
    const { target } = this.#listening;
    await this.#listening.close();
    this.#listening = await listen(await open(this.#directory, this.#options), parseTarget(target));
  }

  async end(): Promise<void> {
    await Promise.all(this.#clients.map((client) => client.close()));
    await this.#listening.close();
  }
}

/** Defines a test for each implementation: embedded, and over a connection. `reopen` closes both ends in order. */
export function everywhere(
  title: string,
  body: (mq: MessageQueue, reopen: () => Promise<MessageQueue>) => Promise<void>,
  options: OpenOptions = {},
): void {
  void test(`${title} (embedded)`, () =>
    withDirectory(async (directory) => {
      let mq = await open(directory, options);
      await body(mq, async () => {
        await mq.close();
        mq = await open(directory, options);
        return mq;
      });
      await mq.close();
    }));
  void test(`${title} (dialled)`, () =>
    withDirectory(async (directory) => {
      let served = await Served.start(directory, options);
      await body(await served.dial(), async () => {
        await served.end();
        served = await Served.start(directory, options);
        return await served.dial();
      });
      await served.end();
    }));
}

/** Of tests that end processes of daemons. */
export const WITH_SIGNALS = {
  skip: process.platform === "win32" ? "a process cannot be asked to end in order" : false,
} as const;

/** A daemon in a process of its own, as it is run for real. */
class DaemonProcess {
  readonly #directory: string;
  readonly #more: readonly string[];
  #running: Running;
  /** Where it listens, over restarts too. */
  readonly target: string;
  readonly kestrel: string | undefined;

  private constructor(
    directory: string,
    more: readonly string[],
    running: Running,
    told: { readonly targets: readonly string[]; readonly kestrel?: string },
  ) {
    this.#directory = directory;
    this.#more = more;
    this.#running = running;
    this.target = told.targets[0]!;
    this.kestrel = told.kestrel;
  }

  static async start(directory: string, more: readonly string[] = []): Promise<DaemonProcess> {
    const [running, told] = await run(directory, "tcp://127.0.0.1:0", more);
    return new DaemonProcess(directory, more, running, told);
  }

  /** Stops it in its tracks, or lets it go on. */
  signal(signal: NodeJS.Signals): void {
    this.#running.child.kill(signal);
  }

  /** If it has not ended yet. */
  async kill(): Promise<void> {
    this.signal("SIGKILL");
    await this.#running.ended;
  }

  /** Ends it in order. */
  async stop(): Promise<void> {
    this.signal("SIGTERM");
    const { code, stderr } = await this.#running.ended;
    assert.equal(code, 0, stderr);
  }

  /** After it has ended: another one in its place. */
  async start(): Promise<void> {
    [this.#running] = await run(this.#directory, this.target, this.#more);
  }
}

/** Serves a directory for the body, and leaves no process behind, whatever comes of that. */
export function withDaemon(
  body: (daemon: DaemonProcess, directory: string) => Promise<void>,
  more: readonly string[] = [],
): Promise<void> {
  return withDirectory(async (directory) => {
    const daemon = await DaemonProcess.start(directory, more);
    try {
      await body(daemon, directory);
    } finally {
      await daemon.kill();
    }
  });
}

async function run(directory: string, target: string, more: readonly string[]) {
  const running = startVarve(["daemon", "-d", directory, "--json", "--target", target, ...more]);
  const [told] = jsonLines(await running.printed(/\n/));
  return [running, told] as const;
}
