/**
 * One connection. Requests are carried out one after another and answered in their order, with one liberty that no client
 * can see: a `set` behind a `set`, and a plain `get` behind a plain `get`, are begun before the one in front is durable,
 * so that a pipelining client shares one commit among all its requests.
 *
 *   idle      takes the next request
 *   running   requests are under way, all of the same kind if there are several
 *   held      the next request is of another kind: it begins when all before it are answered
 *   ending    no more requests; ends when what is under way has been answered
 *
 * At most one read is open. It belongs to the connection, whatever name closes it, and returns to the head of its queue
 * (to the end of its cursor's failed reads) when the connection ends, however it ends.
 */

import type { Socket } from "node:net";
import type { Task } from "../api/contract.js";
import { isVarveError } from "../api/errors.js";
import { Output } from "./output.js";
import { RequestParser } from "./parser.js";
import type { Source } from "./queues.js";
import {
  CLOSE_FIRST,
  type GetRequest,
  type NamedRequest,
  Refusal,
  type Request,
  type SetRequest,
  UNEXPECTED_END,
} from "./request.js";
import type { Front } from "./server.js";

/** Requests of one connection that are under way at once. */
const IN_FLIGHT_MAX = 1024;
/** Plain gets of one connection that are under way at once: what they take is theirs, whether its reply arrives or not. */
const GETS_IN_FLIGHT_MAX = 16;
/** A client that leaves this many bytes of replies unread gets no more done. */
const UNREAD_BYTES_MAX = 1024 * 1024;
/** Requests that wait for their turn, in bytes, before the socket is no longer read. */
const UNREAD_INPUT_BYTES_MAX = 256 * 1024;
/** Input is read on for this long after an error, so that the reply is not lost to a reset. */
const LINGER_MS = 1000;
const NONE = "END\r\n";
const AT_ONCE = Object.freeze({ wait: 0, signal: undefined });

/** What is written when its turn comes. */
type Reply = string | { readonly queue: string; readonly payload: Buffer } | Refusal;

/** A place in the line of replies. */
interface Slot {
  reply: Reply | undefined;
}

interface OpenRead {
  readonly source: Source;
  readonly task: Task;
}

export class Session {
  readonly #front: Front;
  readonly #socket: Socket;
  readonly #output: Output;
  readonly #parser: RequestParser;
  readonly #slots: Slot[] = [];
  /** The kind of the requests under way; several only of kinds that may overlap. */
  #running: "set" | "get" | "other" | undefined;
  #held: Request | undefined;
  #open: OpenRead | undefined;
  /** Ends the wait that is under way. */
  #waiting: AbortController | undefined;
  /** No more requests are taken: the client has ended its side, said `quit`, or made an error. */
  #ending = false;
  #gone = false;
  #pumping = false;
  #heldBytes = 0;
  /** Of the last value that was read. */
  #lastValueBytes = 0;
  #readBytes = 0;
  #writtenBytes = 0;
  /** When bytes of the client last arrived, or it last took some; by the front's clock. */
  lastActiveMs: number;

  constructor(front: Front, socket: Socket) {
    this.#front = front;
    this.#socket = socket;
    this.#output = new Output(socket);
    this.#parser = new RequestParser(front.options.maxMessageBytes);
    this.lastActiveMs = front.nowMs();
    socket.on("data", (packet: Buffer) => this.#receive(packet));
    socket.on("drain", () => {
      this.lastActiveMs = front.nowMs();
      this.#pump();
    });
    socket.on("end", () => this.#inputEnded());
    socket.on("error", () => {}); // "close" follows
    socket.on("close", () => this.#closed());
  }

  /** Stuck in the middle of a request, or with replies that the client does not take. */
  get stuck(): boolean {
    if (this.#output.pendingBytes > 0) return true;
    return this.#running === undefined && this.#parser.midRequest;
  }

  /** Ends the connection: what is under way is answered, a wait ends with `END`, an open read is given back. */
  end(): void {
    this.#ending = true;
    this.#waiting?.abort();
    this.#finish();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  // ------------------------------------------------------------------------------------------------------------- input

  #receive(packet: Buffer): void {
    this.lastActiveMs = this.#front.nowMs();
    this.#readBytes += packet.length;
    if (this.#ending) return;
    this.#parser.feed(packet);
    this.#pump();
  }

  #inputEnded(): void {
    if (this.#ending) return;
    this.#pump();
    if (this.#parser.midBody && this.#running === undefined) {
      this.#refuse(new Refusal(UNEXPECTED_END));
      return;
    }
    this.#ending = true;
    // A client that half-closes while it waits has gone, or looks just like one that has.
    this.#waiting?.abort();
    this.#finish();
  }

  /** Begins requests as long as there are some and they may begin. */
  #pump(): void {
    // A request that is answered at once calls back from within.
    if (this.#pumping) return;
    this.#pumping = true;
    try {
      while (!this.#ending) {
        if (this.#running === "other" || this.#slots.length >= this.#inFlightMax) break;
        if (this.#output.pendingBytes > UNREAD_BYTES_MAX) {
          // What the socket does not take at once makes it say when it has.
          this.#output.flush();
          if (this.#output.pendingBytes > UNREAD_BYTES_MAX) break;
        }
        const request = this.#held ?? this.#parser.next();
        if (request === undefined) break;
        const kind = overlapKind(request);
        if (this.#running !== undefined && kind !== this.#running) {
          // The body of a set stands in the packet, which stays until the parser is asked again.
          this.#held = request;
          break;
        }
        this.#held = undefined;
        this.#running = kind;
        this.#begin(request);
      }
    } catch (error) {
      this.#refuse(error);
    } finally {
      this.#pumping = false;
    }
    this.#account();
    // A client far ahead of its replies is not read on; otherwise reading goes on, as it tells when the client goes away.
    if (this.#parser.waitingBytes > UNREAD_INPUT_BYTES_MAX && !this.#ending) this.#socket.pause();
    else if (this.#socket.isPaused()) this.#socket.resume();
  }

  /** Tells the front what this connection keeps in memory. */
  #account(): void {
    const { heldBytes } = this.#parser;
    if (heldBytes === this.#heldBytes) return;
    const allowed = this.#front.hold(heldBytes - this.#heldBytes);
    this.#heldBytes = heldBytes;
    if (!allowed && !this.#ending) this.#refuse(new Refusal("SERVER_ERROR out of memory for requests under way"));
  }

  /** Of gets, only as many as their values are likely to be small enough for: nobody knows before they are there. */
  get #inFlightMax(): number {
    if (this.#running !== "get") return IN_FLIGHT_MAX;
    return Math.max(1, Math.min(GETS_IN_FLIGHT_MAX, Math.floor(UNREAD_BYTES_MAX / (this.#lastValueBytes + 1))));
  }

  // ---------------------------------------------------------------------------------------------------------- replies

  #begin(request: Request): void {
    const slot: Slot = { reply: undefined };
    this.#slots.push(slot);
    let reply: Reply | Promise<Reply>;
    try {
      reply = this.#run(request);
    } catch (error) {
      this.#answer(slot, asRefusal(error));
      return;
    }
    if (!(reply instanceof Promise)) {
      this.#answer(slot, reply);
      return;
    }
    reply.then(
      (value) => this.#answer(slot, value),
      (error) => this.#answer(slot, asRefusal(error)),
    );
  }

  #answer(slot: Slot, reply: Reply): void {
    slot.reply = reply;
    const slots = this.#slots;
    if (slots[0] !== slot) return;
    let done = 0;
    for (const { reply: next } of slots) {
      if (next === undefined) break;
      done++;
      if (next instanceof Refusal) {
        this.#fail(next);
        return;
      }
      if (typeof next === "string") this.#output.text(next);
      else this.#output.value(next.queue, next.payload);
    }
    if (done === slots.length) slots.length = 0;
    else slots.splice(0, done);
    this.#count();
    if (slots.length > 0) return;
    this.#running = undefined;
    if (this.#ending) this.#finish();
    else if (this.#held !== undefined || this.#parser.waitingBytes > 0 || this.#socket.isPaused()) this.#pump();
  }

  /** Takes no more requests, and ends the connection with an error once those before it are answered. */
  #refuse(error: unknown): void {
    const refusal = asRefusal(error);
    this.#ending = true;
    if (this.#slots.length > 0) this.#slots.push({ reply: refusal });
    else this.#fail(refusal);
  }

  /** Answers with an error, drops what is behind it, and ends the connection. */
  #fail(refusal: Refusal): void {
    this.#ending = true;
    this.#slots.length = 0;
    this.#running = undefined;
    this.#output.text(`${refusal.message}\r\n`);
    this.#finish();
  }

  /** Ends the connection once everything is answered. */
  #finish(): void {
    if (this.#slots.length > 0 || this.#gone) return;
    this.#giveBack();
    this.#output.flush();
    this.#count();
    this.#socket.end();
    this.#socket.resume();
    this.#front.lingering(this.#socket, LINGER_MS);
  }

  #closed(): void {
    this.#gone = true;
    this.#ending = true;
    this.#waiting?.abort();
    this.#front.hold(-this.#heldBytes);
    this.#heldBytes = 0;
    this.#giveBack();
    this.#count();
    this.#front.left(this);
  }

  #count(): void {
    const { counters } = this.#front;
    const { writtenBytes } = this.#output;
    counters.bytesRead += this.#readBytes;
    counters.bytesWritten += writtenBytes - this.#writtenBytes;
    this.#readBytes = 0;
    this.#writtenBytes = writtenBytes;
  }

  // --------------------------------------------------------------------------------------------------------- requests

  #run(request: Request): Reply | Promise<Reply> {
    const front = this.#front;
    switch (request.command) {
      case "get":
        return this.#get(request);
      case "set":
        return this.#set(request);
      case "delete":
        return this.#delete(request);
      case "flush":
        return this.#flush(request);
      case "flush_all":
        return front.queues.flushAll().then(() => "Flushed all queues.\r\n");
      case "flush_expired":
        return front.queues.expire(request.queue).then((count) => `${count}\r\n`);
      case "flush_all_expired":
        return front.queues.expireAll().then((count) => `${count}\r\n`);
      case "stats":
        return front.stats();
      case "dump_stats":
        return front.dumpStats(request.queues);
      case "version":
        return `VERSION ${front.options.version}\r\n`;
      case "quit":
        this.#ending = true;
        return "";
    }
  }

  #set(request: SetRequest): Promise<Reply> {
    const { queues, counters } = this.#front;
    counters.sets++;
    const { body } = this.#parser;
    const expiresAt = expiryMs(request.expiry, this.#front.wallMs());
    const [name] = request.queues;
    if (request.queues.length > 1) return queues.fanOut(request.queues, body, expiresAt).then(stored, notStored);
    const queue = queues.opened(name!);
    if (queue !== undefined) {
      return queue.set(body, expiresAt).then(stored, (error) => {
        if (!isVarveError(error, "ERR_NOT_FOUND")) return notStored(error);
        queues.forget(name!, undefined, queue); // deleted by someone else: it is made again
        return this.#setAnew(name!, body, expiresAt).then(stored, notStored);
      });
    }
    return this.#setAnew(name!, body, expiresAt).then(stored, notStored);
  }

  async #setAnew(name: string, body: Buffer, expiresAt: number | undefined): Promise<void> {
    const queue = await this.#front.queues.open(name);
    await queue.set(body, expiresAt);
  }

  #get(request: GetRequest): Reply | Promise<Reply> {
    if (request.abort) return this.#abort();
    if (request.close) {
      const closing = this.#closeRead();
      if (!request.open) return closing === undefined ? NONE : closing.then(() => NONE);
      // Staged behind the close, so the close takes effect before any wait.
      const reading = this.#read(request);
      reading.catch(() => {}); // told below, unless the close fails as well
      return closing === undefined ? reading : closing.then(() => reading);
    }
    if (this.#open !== undefined && !request.peek) throw new Refusal(CLOSE_FIRST);
    return this.#read(request);
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
    const { queue } = request;
    const found = await this.#take(source, request);
    if (found === undefined) {
      counters.misses++;
      return NONE;
    }
    counters.hits++;
    this.#lastValueBytes = found.length;
    return { queue, payload: found };
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

  /** Confirms the open read; undefined when there is none. */
  #closeRead(): Promise<void> | undefined {
    const open = this.#open;
    if (open === undefined) return undefined;
    this.#open = undefined;
    return open.source.confirm(open.task);
  }

  #abort(): Reply | Promise<Reply> {
    const open = this.#open;
    if (open === undefined) return NONE;
    this.#open = undefined;
    return open.source.giveBack(open.task).then(() => NONE);
  }

  #giveBack(): void {
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

  async #delete({ queue, cursor }: NamedRequest): Promise<Reply> {
    const { queues } = this.#front;
    if (cursor === undefined) await queues.delete(queue);
    else await queues.deleteCursor(queue, cursor);
    return "DELETED\r\n";
  }

  async #flush({ queue, cursor }: NamedRequest): Promise<Reply> {
    const { queues } = this.#front;
    if (cursor === undefined) await queues.flush(queue);
    else await queues.flushCursor(queue, cursor);
    return NONE;
  }
}

/** Requests of one kind may overlap: their effects come in the order in which they are begun. */
function overlapKind(request: Request): "set" | "get" | "other" {
  if (request.command === "set") return "set";
  if (request.command !== "get" || request.cursor !== undefined) return "other";
  return request.open || request.close || request.abort || request.peek || request.waitMs > 0 ? "other" : "get";
}

/** The moment at which an item dies; undefined for never. */
function expiryMs(seconds: number, nowMs: number): number | undefined {
  if (seconds === 0) return undefined;
  return seconds < 1_000_000 ? nowMs + seconds * 1000 : seconds * 1000;
}

function stored(): Reply {
  return "STORED\r\n";
}

function notStored(error: unknown): Reply {
  if (isVarveError(error, "ERR_QUEUE_FULL") || isVarveError(error, "ERR_TOO_LARGE")) return "NOT_STORED\r\n";
  return asRefusal(error);
}

function asRefusal(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  const text = isVarveError(error) ? `${error.code} ${error.message}` : String(error);
  return new Refusal(`SERVER_ERROR ${text.replace(/[^\x20-\x7e]+/g, " ").slice(0, 512)}`);
}
