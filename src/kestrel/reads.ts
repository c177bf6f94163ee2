/**
 * The reads of one connection that are carried out alone: of cursors, of queues that are not open yet, with a wait, or kept
 * open until they are confirmed.
 *
 * At most one read is open. It belongs to the connection, whatever name closes it, and returns to the head of its queue
 * (to the end of its cursor's failed reads) when the connection ends, however it ends.
 */

import type { Task } from "../api/contract.js";
import { isVarveError } from "../api/errors.js";
import { type Source, valueHead } from "./queues.js";
import { NONE, type Reply } from "./reply.js";
import { CLOSE_FIRST, type GetRequest, Refusal } from "./request.js";
import type { Front } from "./server.js";

const AT_ONCE = Object.freeze({ wait: 0, signal: undefined });

interface OpenRead {
  readonly source: Source;
  readonly task: Task;
}

export class Reads {
  readonly #front: Front;
  #open: OpenRead | undefined;
  /** Ends the wait that is under way. */
  #waiting: AbortController | undefined;
  /** Nobody waits any longer. */
  #ending = false;
  #gone = false;

  constructor(front: Front) {
    this.#front = front;
  }

  get isOpen(): boolean {
    return this.#open !== undefined;
  }

  /** @throws Refusal */
  get(request: GetRequest): Reply | Promise<Reply> {
    if (request.abort) return this.#abort();
    if (request.close) {
      const closing = this.#close();
      if (!request.open) return closing === undefined ? NONE : closing.then(() => NONE);
      // Staged behind the close, so the close takes effect before any wait.
      const reading = this.#read(request);
      reading.catch(() => {}); // told below, unless the close fails as well
      return closing === undefined ? reading : closing.then(() => reading);
    }
    if (this.#open !== undefined && !request.peek) throw new Refusal(CLOSE_FIRST);
    return this.#read(request);
  }

  /** A wait that is under way ends with nothing, and so does any that follows. */
  endWaits(): void {
    this.#ending = true;
    this.#waiting?.abort();
  }

  /** The connection is no more: what is still on its way to it goes back as well. */
  end(): void {
    this.#gone = true;
    this.endWaits();
    this.giveBack();
  }

  /** Gives the open read back, if there is one. */
  giveBack(): void {
    const open = this.#open;
    if (open === undefined || this.#front.stopping) return; // at a stop, the directory gives all back, in order
    this.#open = undefined;
    this.#return(open);
  }

  /** Gives a read back that nobody waits to hear of. */
  #return({ source, task }: OpenRead): void {
    source.giveBack(task).catch((error: Error) => {
      // It is given back when the directory is opened the next time.
      this.#front.options.logger.error({ task: task.id, error }, "an open read cannot be given back now");
    });
  }

  #abort(): Reply | Promise<Reply> {
    const open = this.#open;
    if (open === undefined) return NONE;
    this.#open = undefined;
    return open.source.giveBack(open.task).then(() => NONE);
  }

  /** Confirms the open read; undefined when there is none. */
  #close(): Promise<void> | undefined {
    const open = this.#open;
    if (open === undefined) return undefined;
    this.#open = undefined;
    return open.source.confirm(open.task);
  }

  #read(request: GetRequest): Promise<Reply> {
    const { queues, counters } = this.#front;
    if (request.peek) counters.peeks++;
    else counters.gets++;
    const source = queues.openedSource(request.queue, request.cursor);
    if (source !== undefined) return this.#readFrom(source, request);
    return queues.openSource(request.queue, request.cursor).then((opened) => this.#readFrom(opened, request));
  }

  async #readFrom(source: Source, request: GetRequest): Promise<Reply> {
    const { counters } = this.#front;
    const payload = await this.#take(source, request);
    if (payload === undefined) {
      counters.misses++;
      return NONE;
    }
    counters.hits++;
    return { head: valueHead(request.queue, payload.length), payload };
  }

  async #take(source: Source, request: GetRequest): Promise<Buffer | undefined> {
    const { queues } = this.#front;
    let from = source;
    let found: Buffer | undefined;
    try {
      found = await this.#takeNow(from, request);
    } catch (error) {
      if (!isVarveError(error, "ERR_NOT_FOUND")) throw error;
      queues.forget(request.queue, request.cursor, from); // deleted by someone else: it is made again
      from = await queues.openSource(request.queue, request.cursor);
      found = await this.#takeNow(from, request);
    }
    if (found !== undefined || request.waitMs === 0 || this.#gone) return found;
    try {
      return await this.#takeLater(from, request);
    } catch (error) {
      // Deleted, or closed, while it waited: there is nothing.
      if (!isVarveError(error, "ERR_NOT_FOUND") && !isVarveError(error, "ERR_CLOSED")) throw error;
      queues.forget(request.queue, request.cursor, from);
      return undefined;
    }
  }

  async #takeNow(source: Source, { peek, open }: GetRequest): Promise<Buffer | undefined> {
    if (peek) return (await source.peek(AT_ONCE))?.payload;
    if (!open) return (await source.take())?.payload;
    return await this.#opened(source, await source.open(AT_ONCE), true);
  }

  async #takeLater(source: Source, { peek, open, waitMs }: GetRequest): Promise<Buffer | undefined> {
    if (peek) return (await this.#waitFor((signal) => source.peek({ wait: waitMs, signal })))?.payload;
    // Taken under a lease even by a plain read: if the client has gone meanwhile, it goes back.
    return await this.#opened(source, await this.#waitFor((signal) => source.open({ wait: waitMs, signal })), open);
  }

  /** A task is in this connection's hands: its open read, or at once confirmed. */
  async #opened(source: Source, task: Task | undefined, keep: boolean): Promise<Buffer | undefined> {
    if (task === undefined) return undefined;
    if (this.#gone) {
      this.#return({ source, task });
      return undefined;
    }
    if (keep) this.#open = { source, task };
    else await source.confirm(task);
    return task.payload;
  }

  async #waitFor<T>(start: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const waiting = new AbortController();
    if (this.#ending) waiting.abort();
    this.#waiting = waiting;
    try {
      return await start(waiting.signal);
    } finally {
      if (this.#waiting === waiting) this.#waiting = undefined;
    }
  }
}
