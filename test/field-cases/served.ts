/** The cases that name the wire: a directory behind a real listener, and clients that dial it. */

import { test } from "node:test";
import { dial, type MessageQueue, type OpenOptions, open } from "../../src/index.js";
import { parseTarget } from "../../src/wire/target.js";
import { withDirectory } from "../support/directories.js";
import { freeTarget, type Listening, listen } from "../support/listening.js";

/** A directory, opened here, that is used through connections. */
class Served {
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
