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
import { type OpenedQueue, type Source, valueHead } from "./queues.js";
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
/** A client that leaves this many bytes of replies unread gets no more done. */
const UNREAD_BYTES_MAX = 1024 * 1024;
/** Requests that wait for their turn, in bytes, before the socket is no longer read. */
const UNREAD_INPUT_BYTES_MAX = 256 * 1024;
/** Input is read on for this long after an error, so that the reply is not lost to a reset. */
const LINGER_MS = 1000;
/** Items stored in one commit, at most, and their bytes, about. */
const STORED_AT_ONCE_MAX = 256;
const STORED_BYTES = 256 * 1024;
const NONE = "END\r\n";
const STORED = "STORED\r\n";

interface Value {
  /** The line before it. */
  readonly head: string;
  readonly payload: Buffer;
}

/** What is written when its turn comes; several for as many requests. */
type Reply = string | Value | Refusal | readonly Reply[];

/** A place in the line of replies, for one request or several in a row. */
interface Slot {
  readonly requests: number;
  reply: Reply | undefined;
}

/** Requests in a row that one call carries out: of one kind, for one queue. */
interface Run {
  readonly queue: OpenedQueue;
  /** The first; those behind it are alike. */
  readonly request: SetRequest | GetRequest;
  requests: number;
  /** Of a `set`: what is to be stored, and its bytes. */
  readonly bodies: Buffer[];
  bytes: number;
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
  /** Requests under way. */
  #inFlight = 0;
  /** Requests read that are not begun yet, as more may follow that are alike. */
  #run: Run | undefined;
  #pumping = false;
  /** The kind of the requests under way; several only of kinds that may overlap. */
  #running: "set" | "get" | "other" | undefined;
  #held: Request | undefined;
  #open: OpenRead | undefined;
  /** Ends the wait that is under way. */
  #waiting: AbortController | undefined;
  /** No more requests are taken: the client has ended its side, said `quit`, or made an error. */
  #ending = false;
  #gone = false;
  #heldBytes = 0;
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
    if (this.#pumping) return;
    this.#pumping = true;
    try {
      while (!this.#ending) {
        if (this.#running === "other" || this.#inFlight >= IN_FLIGHT_MAX) break;
        if (this.#output.pendingBytes > UNREAD_BYTES_MAX) break;
        const request = this.#held ?? this.#parser.next();
        if (request === undefined) break;
        const kind = overlapKind(request);
        if (this.#running !== undefined && kind !== this.#running) {
          // Nothing else is parsed meanwhile, so the body of a set stays at hand.
          this.#held = request;
          break;
        }
        this.#held = undefined;
        this.#running = kind;
        if (kind === "other" || !this.#collect(request as SetRequest | GetRequest)) this.#begin(request);
      }
      this.#beginRun();
    } catch (error) {
      this.#beginRun();
      this.#refuse(error);
    }
    this.#pumping = false;
    this.#account();
    // A client far ahead of its replies is not read on; otherwise reading goes on, as it tells when the client goes away.
    if (this.#parser.waitingBytes > UNREAD_INPUT_BYTES_MAX && !this.#ending) this.#socket.pause();
    else if (this.#socket.isPaused()) this.#socket.resume();
  }

  /** Has a `set` or a `get` begin together with those before and behind it that are alike. False if it must begin alone. */
  #collect(request: SetRequest | GetRequest): boolean {
    const run = this.#run;
    if (run !== undefined && this.#extend(run, request)) return true;
    this.#beginRun();
    if (request.command === "set" ? request.queues.length > 1 : this.#open !== undefined) return false;
    const queue = this.#front.queues.opened(request.command === "set" ? request.queues[0]! : request.queue);
    if (queue === undefined) return false;
    this.#run = { queue, request, requests: 1, bodies: [], bytes: 0 };
    if (request.command === "set") {
      this.#run.bodies.push(this.#parser.body);
      this.#run.bytes = request.bytes;
    }
    return true;
  }

  /** Adds a request to those that are carried out together, if it is like them and there is room for it. */
  #extend(run: Run, request: SetRequest | GetRequest): boolean {
    const { queue, request: first } = run;
    if (this.#inFlight + run.requests >= IN_FLIGHT_MAX) return false;
    if (request.command === "get") {
      if (request.queue !== queue.name || run.requests >= queue.takenAtOnceMax) return false;
      run.requests++;
      return true;
    }
    if (request !== first) {
      if (request.queues.length > 1 || request.queues[0] !== queue.name) return false;
      if (request.expiry !== (first as SetRequest).expiry) return false;
    }
    if (run.requests >= STORED_AT_ONCE_MAX || run.bytes + request.bytes > STORED_BYTES) return false;
    if (run.requests === 1 && !queue.takesBatches(this.#front.nowMs())) return false;
    run.requests++;
    run.bodies.push(this.#parser.body);
    run.bytes += request.bytes;
    return true;
  }

  /** Tells the front what this connection keeps in memory. */
  #account(): void {
    const { heldBytes } = this.#parser;
    if (heldBytes === this.#heldBytes) return;
    const allowed = this.#front.hold(heldBytes - this.#heldBytes);
    this.#heldBytes = heldBytes;
    if (!allowed && !this.#ending) this.#refuse(new Refusal("SERVER_ERROR out of memory for requests under way"));
  }

  // ---------------------------------------------------------------------------------------------------------- replies

  #begin(request: Request): void {
    const slot = this.#place(1);
    let reply: Reply | Promise<Reply>;
    try {
      reply = this.#carryOut(request);
    } catch (error) {
      this.#answer(slot, asRefusal(error));
      return;
    }
    if (reply instanceof Promise) this.#awaitReply(slot, reply);
    else this.#answer(slot, reply);
  }

  #beginRun(): void {
    const run = this.#run;
    if (run === undefined) return;
    this.#run = undefined;
    const slot = this.#place(run.requests);
    if (run.request.command === "set") this.#store(slot, run, run.request);
    else this.#remove(slot, run);
  }

  #place(requests: number): Slot {
    const slot: Slot = { requests, reply: undefined };
    this.#slots.push(slot);
    this.#inFlight += requests;
    return slot;
  }

  #awaitReply(slot: Slot, reply: Promise<Reply>): void {
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
    for (const { reply: next, requests } of slots) {
      if (next === undefined) break;
      done++;
      this.#inFlight -= requests;
      const refusal = this.#write(next);
      if (refusal !== undefined) {
        this.#fail(refusal);
        return;
      }
    }
    if (done === slots.length) slots.length = 0;
    else slots.splice(0, done);
    this.#count();
    if (slots.length > 0) return;
    this.#running = undefined;
    if (this.#ending) this.#finish();
    else if (this.#held !== undefined || this.#parser.waitingBytes > 0 || this.#socket.isPaused()) this.#pump();
  }

  /** Returns the refusal that is met, which ends it. */
  #write(reply: Reply): Refusal | undefined {
    if (typeof reply === "string") {
      this.#output.text(reply);
      return undefined;
    }
    if (reply instanceof Refusal) return reply;
    if ("payload" in reply) {
      this.#output.value(reply.head, reply.payload);
      return undefined;
    }
    for (const each of reply) {
      const refusal = this.#write(each);
      if (refusal !== undefined) return refusal;
    }
    return undefined;
  }

  /** Takes no more requests, and ends the connection with an error once those before it are answered. */
  #refuse(error: unknown): void {
    const refusal = asRefusal(error);
    this.#ending = true;
    if (this.#slots.length > 0) this.#slots.push({ requests: 0, reply: refusal });
    else this.#fail(refusal);
  }

  /** Answers with an error, drops what is behind it, and ends the connection. */
  #fail(refusal: Refusal): void {
    this.#ending = true;
    this.#slots.length = 0;
    this.#inFlight = 0;
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

  #carryOut(request: Request): Reply | Promise<Reply> {
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

  /** Stores in queues that are not open yet, or in several. */
  #set(request: SetRequest): Promise<Reply> {
    const { queues, counters } = this.#front;
    counters.sets++;
    const { body } = this.#parser;
    const expiresAt = this.#expiryMs(request);
    const [name] = request.queues;
    if (request.queues.length > 1) return queues.fanOut(request.queues, body, expiresAt).then(stored, notStored);
    return queues
      .open(name!)
      .then((opened) => opened.set(body, expiresAt))
      .then(stored, notStored);
  }

  /** Stores in a queue that is open. */
  #store(slot: Slot, { queue, requests, bodies }: Run, request: SetRequest): void {
    this.#front.counters.sets += requests;
    const expiresAt = this.#expiryMs(request);
    if (requests === 1) {
      queue.set(bodies[0]!, expiresAt).then(
        () => this.#answer(slot, STORED),
        (error) => this.#answer(slot, notStored(error)),
      );
      return;
    }
    queue.setAll(bodies, expiresAt).then(
      () => this.#answer(slot, STORED.repeat(requests)),
      (error) => {
        if (notStored(error) instanceof Refusal) {
          this.#answer(slot, asRefusal(error));
          return;
        }
        // The queue has got limits meanwhile, and may have room for some.
        const each = bodies.map((body) => queue.set(body, expiresAt).then(stored, notStored));
        this.#awaitReply(slot, Promise.all(each));
      },
    );
  }

  #expiryMs({ expiry }: SetRequest): number | undefined {
    return expiry === 0 ? undefined : expiryMs(expiry, this.#front.wallMs());
  }

  /** Carries out plain reads of a queue that is open. */
  #remove(slot: Slot, { queue, requests }: Run): void {
    this.#front.counters.gets += requests;
    if (requests === 1) {
      queue.take().then(
        (task) => this.#answer(slot, task === undefined ? this.#missed(1) : this.#found(queue, task)),
        (error) => this.#answer(slot, asRefusal(error)),
      );
      return;
    }
    queue.takeAll(requests).then(
      ({ tasks, error }) => {
        const replies: Reply[] = tasks.map((task) => this.#found(queue, task));
        if (error !== undefined) replies.push(asRefusal(error));
        else if (tasks.length < requests) replies.push(this.#missed(requests - tasks.length));
        this.#answer(slot, replies);
      },
      (error) => this.#answer(slot, asRefusal(error)),
    );
  }

  #found(queue: OpenedQueue, { payload }: Task): Reply {
    this.#front.counters.hits++;
    return { head: queue.head(payload.length), payload };
  }

  #missed(requests: number): Reply {
    this.#front.counters.misses += requests;
    return NONE.repeat(requests);
  }

  #get(request: GetRequest): Reply | Promise<Reply> {
    if (request.abort) return this.#abort();
    if (request.close) {
      const closing = this.#closeRead();
      if (!request.open) return closing === undefined ? NONE : closing.then(() => NONE);
      // Staged behind the close, so the close takes effect before any wait.
      const reading = this.#read(request);
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
    return { head: valueHead(queue, found.length), payload: found };
  }

  async #take(source: Source, request: GetRequest): Promise<Buffer | undefined> {
    const { waitMs } = request;
    if (request.peek) {
      return (await this.#waitFor(waitMs, (signal) => source.peek({ wait: waitMs, signal })))?.payload;
    }
    if (!request.open) {
      const task = await source.take();
      if (task !== undefined || waitMs === 0) return task?.payload;
    }
    // Taken under a lease even by a plain read that waits: if the client has gone meanwhile, it goes back.
    const task = await this.#waitFor(waitMs, (signal) => source.open({ wait: waitMs, signal }));
    if (task === undefined) return undefined;
    if (this.#gone) {
      this.#return({ source, task });
      return undefined;
    }
    if (request.open) this.#open = { source, task };
    else await source.confirm(task);
    return task.payload;
  }

  async #waitFor<T>(waitMs: number, start: (signal: AbortSignal | undefined) => Promise<T>): Promise<T> {
    if (waitMs === 0) return await start(undefined);
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

/** The moment at which an item dies. */
function expiryMs(seconds: number, nowMs: number): number {
  return seconds < 1_000_000 ? nowMs + seconds * 1000 : seconds * 1000;
}

function stored(): Reply {
  return STORED;
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
