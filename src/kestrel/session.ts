/**
 * One connection. Requests are carried out one after another and answered in their order, with two liberties that no client
 * can see: requests in a row that are alike are carried out by one call, and a `set` behind a `set` is begun before the one
 * in front is durable, unless that is a fan-out, so that a pipelining client shares one commit among all its requests.
 *
 *   idle      takes the next request
 *   running   requests are under way: several sets, or one of another kind, where plain gets in a row count as one
 *   held      the next request begins when all before it are answered
 *   ending    no more requests; ends when what is under way has been answered
 *
 * What removes an item never runs beside others: if one of them failed, replies behind it would be lost with what they hold.
 */

import type { Socket } from "node:net";
import { receive } from "../net/receive.js";
import { authorise } from "./authorise.js";
import { Output } from "./output.js";
import { RequestParser } from "./parser.js";
import { Reads } from "./reads.js";
import { asRefusal, NONE, notStored, type Reply, STORED } from "./reply.js";
import { type NamedRequest, Refusal, type Request, type SetRequest, UNEXPECTED_END } from "./request.js";
import { type Run, runOf } from "./run.js";
import type { Front } from "./server.js";

/** Requests of one connection that are under way at once, and the bytes that they are to store, about. */
const IN_FLIGHT_MAX = 1024;
const IN_FLIGHT_BYTES = 1024 * 1024;
/** A client that leaves this many bytes of replies unread gets no more done. */
const UNREAD_BYTES_MAX = 1024 * 1024;
/** Requests that wait for their turn, in bytes, before the socket is no longer read. */
const UNREAD_INPUT_BYTES_MAX = 256 * 1024;
/** Who keeps no more than this in memory is not the one to be refused when all together keep too much. */
const SMALL_BYTES = 16 * 1024;
/** Input is read on for this long after an error, so that the reply is not lost to a reset. */
const LINGER_MS = 1000;

/** A place in the line of replies, for one request or several in a row. */
interface Slot {
  readonly requests: number;
  /** To be stored. */
  readonly bytes: number;
  reply: Reply | undefined;
}

export class Session {
  readonly #front: Front;
  readonly #socket: Socket;
  readonly #output: Output;
  readonly #parser: RequestParser;
  readonly #reads: Reads;
  readonly #slots: Slot[] = [];
  /** Requests under way, and the bytes that they are to store. */
  #inFlight = 0;
  #inFlightBytes = 0;
  /** What is under way are sets: others may join them, those that `mayFollow` lets. */
  #setting: Setting | undefined;
  /** Requests that begin as soon as it is known which of those behind them are alike. */
  #run: Run | undefined;
  #held: Request | undefined;
  /** No more requests are taken: the client has ended its side, said `quit`, or made an error. */
  #ending = false;
  #gone = false;
  #pumping = false;
  #heldBytes = 0;
  #readBytes = 0;
  #writtenBytes = 0;
  /** When bytes of the client last arrived, or it last took some; by the front's clock. */
  lastActiveMs: number;

  constructor(front: Front, socket: Socket) {
    this.#front = front;
    this.#socket = socket;
    this.#output = new Output(socket, front.options.syncs);
    this.#parser = new RequestParser(front.options.maxMessageBytes);
    this.#reads = new Reads(front);
    this.lastActiveMs = front.nowMs();
    receive(socket, (packet) => this.#receive(packet), front.options.busyPoll);
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
    return this.#slots.length === 0 && this.#parser.midRequest;
  }

  /** Ends the connection: what is under way is answered, a wait ends with `END`, an open read is given back. */
  end(): void {
    this.#ending = true;
    this.#reads.endWaits();
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
    this.#parser.feed(Buffer.from(packet));
    this.#pump();
  }

  #inputEnded(): void {
    if (this.#ending) return;
    this.#pump();
    if (this.#parser.midBody && this.#slots.length === 0) {
      this.#refuse(new Refusal(UNEXPECTED_END));
      return;
    }
    // A client that half-closes while it waits has gone, or looks just like one that has.
    this.end();
  }

  /** Begins requests as long as there are some and they may begin. */
  #pump(): void {
    // A request that is answered at once calls back from within.
    if (this.#pumping) return;
    this.#pumping = true;
    const { may } = this.#front.options;
    try {
      while (!this.#ending && this.#hasRoom()) {
        const request = this.#held ?? this.#parser.next();
        if (request === undefined) break;
        if (may !== undefined && this.#held === undefined) authorise(may, request);
        this.#held = undefined;
        if (!this.#take(request)) {
          // The body of a set stands in the packet, which stays until the parser is asked again.
          this.#held = request;
          break;
        }
      }
      this.#beginRun();
    } catch (error) {
      this.#beginRun();
      this.#refuse(error);
    } finally {
      this.#pumping = false;
    }
    this.#account();
    // A client far ahead of its replies is not read on; otherwise reading goes on, as it tells when the client goes away.
    if (this.#parser.waitingBytes > UNREAD_INPUT_BYTES_MAX && !this.#ending) this.#socket.pause();
    else if (this.#socket.isPaused()) this.#socket.resume();
  }

  #hasRoom(): boolean {
    const { requests, bytes } = this.#run ?? NO_RUN;
    if (this.#inFlight + requests >= IN_FLIGHT_MAX || this.#inFlightBytes + bytes >= IN_FLIGHT_BYTES) return false;
    if (this.#output.pendingBytes <= UNREAD_BYTES_MAX) return true;
    // What the socket does not take at once makes it say when it has.
    this.#output.flush();
    return this.#output.pendingBytes <= UNREAD_BYTES_MAX;
  }

  /** Begins a request, now or together with those behind it that are alike. False if it must wait for those under way. */
  #take(request: Request): boolean {
    if (this.#run?.add(request, this.#parser) === true) return true;
    this.#beginRun();
    const isSet = request.command === "set";
    const setting = isSet ? this.#settingOf(request.queues) : undefined;
    if (this.#slots.length > 0 && !mayFollow(this.#setting, setting)) return false;
    this.#setting = setting;
    if (isSet || !this.#reads.isOpen) this.#run = runOf(this.#front, request, this.#parser);
    if (this.#run === undefined) this.#begin(request);
    return true;
  }

  #settingOf(names: readonly string[]): Setting {
    if (names.length === 1) return "one";
    return names.every((name) => this.#front.queues.opened(name) !== undefined) ? "several" : "opening";
  }

  /** Tells the front what this connection keeps in memory. */
  #account(): void {
    const heldBytes = this.#parser.heldBytes + this.#inFlightBytes;
    if (heldBytes === this.#heldBytes) return;
    const allowed = this.#front.hold(heldBytes - this.#heldBytes) || heldBytes <= SMALL_BYTES;
    this.#heldBytes = heldBytes;
    if (!allowed && !this.#ending) this.#refuse(new Refusal("SERVER_ERROR out of memory for requests under way"));
  }

  // ---------------------------------------------------------------------------------------------------------- replies

  #begin(request: Request): void {
    const slot = this.#place(1, request.command === "set" ? request.bytes * request.queues.length : 0);
    let reply: Reply | Promise<Reply>;
    try {
      reply = this.#carryOut(request);
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

  #beginRun(): void {
    const run = this.#run;
    if (run === undefined) return;
    this.#run = undefined;
    const slot = this.#place(run.requests, run.bytes);
    run.carryOut((reply) => this.#answer(slot, reply));
  }

  #place(requests: number, bytes: number): Slot {
    const slot: Slot = { requests, bytes, reply: undefined };
    this.#slots.push(slot);
    this.#inFlight += requests;
    this.#inFlightBytes += bytes;
    return slot;
  }

  #answer(slot: Slot, reply: Reply): void {
    slot.reply = reply;
    const slots = this.#slots;
    if (slots[0] !== slot) return;
    let done = 0;
    for (const { reply: next, requests, bytes } of slots) {
      if (next === undefined) break;
      done++;
      this.#inFlight -= requests;
      this.#inFlightBytes -= bytes;
      const refusal = this.#write(next);
      if (refusal !== undefined) {
        this.#fail(refusal);
        return;
      }
    }
    if (done === slots.length) slots.length = 0;
    else slots.splice(0, done);
    this.#count();
    if (slots.length === 0 && this.#ending) this.#finish();
    else if (this.#held !== undefined || this.#parser.waitingBytes > 0 || this.#socket.isPaused()) this.#pump();
    else this.#account();
  }

  /** Returns the refusal that it meets: what is behind it is not written. */
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
    if (this.#slots.length > 0) this.#slots.push({ requests: 0, bytes: 0, reply: refusal });
    else this.#fail(refusal);
  }

  /** Answers with an error, drops what is behind it, and ends the connection. */
  #fail(refusal: Refusal): void {
    this.#ending = true;
    this.#slots.length = 0;
    this.#held = undefined;
    this.#parser.drop();
    this.#inFlightBytes = 0;
    this.#account();
    this.#output.text(`${refusal.message}\r\n`);
    this.#finish();
  }

  /** Ends the connection once everything is answered. */
  #finish(): void {
    if (this.#slots.length > 0 || this.#gone) return;
    this.#reads.giveBack();
    this.#output.flush();
    this.#count();
    this.#socket.end();
    this.#socket.resume();
    this.#front.lingering(this.#socket, LINGER_MS);
  }

  #closed(): void {
    this.#gone = true;
    this.#ending = true;
    this.#reads.end();
    this.#front.hold(-this.#heldBytes);
    this.#heldBytes = 0;
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
        return this.#reads.get(request);
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

  /** Stores in a queue that is not open yet, or in several. */
  #set({ queues: names, expiry }: SetRequest): Promise<Reply> {
    const { queues, counters, puts } = this.#front;
    counters.sets++;
    // Behind what this connection has put in before.
    puts.carryOut();
    const { body } = this.#parser;
    const expiresAtMs = this.#front.expiryMs(expiry);
    const storing =
      names.length > 1
        ? queues.fanOut(names, body, expiresAtMs)
        : queues.open(names[0]!).then((queue) => queue.set(body, expiresAtMs));
    return storing.then(() => STORED, notStored);
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

/** A set under way: into one queue; into several; into several of which some are to be opened first. */
type Setting = "one" | "several" | "opening";

/** Whether a set may begin before the one ahead of it has ended: those for one queue go in in their order all the same. */
function mayFollow(ahead: Setting | undefined, next: Setting | undefined): boolean {
  if (next === undefined) return false;
  // A fan-out takes its time, all of them the same unless queues are opened for it.
  return ahead === "one" || (ahead === "several" && next !== "one");
}

const NO_RUN = Object.freeze({ requests: 0, bytes: 0 });
