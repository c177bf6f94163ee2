/**
 * Which connection of each client is served: the last one. A client that connects anew knows that its connection was lost,
 * though this side may not, and may have read nothing yet of what stands there. So the old one is cut, and what was begun over
 * it ends before the new one is served: whatever the client is answered from then on, nothing older takes effect after it.
 */

import type { Connection } from "./connection.js";

/**
 * What takes longer may be late: it waits for room in a log, under a name by which it is known when it is made again, or
 * compacts a log.
 */
const LATE_MS = 1000;

interface Last {
  readonly connection: Connection;
  /** What was begun over the connections before it has ended. */
  readonly fenced: Promise<unknown>;
}

export class Clients {
  readonly #last = new Map<string, Last>();

  /** The client comes over another connection. Resolves once nothing is under way over those before. */
  async enter(client: string, connection: Connection): Promise<void> {
    const before = this.#last.get(client);
    before?.connection.cut();
    const fenced = Promise.all([before?.fenced, before?.connection.finished]);
    const last = { connection, fenced };
    this.#last.set(client, last);
    void Promise.all([fenced, connection.finished]).then(() => {
      if (this.#last.get(client) === last) this.#last.delete(client);
    });
    if (before === undefined) return;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, LATE_MS);
    });
    await Promise.race([fenced, late]);
    clearTimeout(timer);
  }
}
