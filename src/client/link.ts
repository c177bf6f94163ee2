/**
 * The client's way to the daemon, over however many connections it takes.
 *
 *   connected --lost--> offline --connected, handles opened again, calls sent again--> connected
 *   connected --the daemon leaves: no more calls are sent--> offline
 *   any --close()--> closing: calls are answered --> closed
 *
 * Invariants
 * - A call stands in `#pending` from `send` until it is settled, and is settled once.
 * - Calls are sent in the order in which they were made, again after a lost connection too.
 * - Nothing is sent again that might have been carried out, unless its method allows it (`Repeat`).
 */

import { randomBytes } from "node:crypto";
import type { Socket } from "node:net";
import type { CallName } from "../api/call-name.js";
import type { Logger } from "../api/contract.js";
import { isVarveError, VarveError } from "../api/errors.js";
import { onAbort } from "../api/signals.js";
import { formatDuration } from "../api/units.js";
import { giveLarge } from "../wire/buffers.js";
import { Kind, PROTOCOL_MAX, PROTOCOL_MIN } from "../wire/frame.js";
import { Feature, ID_BYTES, NEW_SESSION } from "../wire/hello.js";
import type { Input } from "../wire/input.js";
import { type Method, Methods } from "../wire/methods.js";
import { writeName } from "../wire/name.js";
import { Output } from "../wire/output.js";
import { formatTarget, type Target } from "../wire/target.js";
import { readValue, writeValue } from "../wire/value.js";
import { Calls } from "./calls.js";
import type { Handle, Opening } from "./handle.js";
import type { ResolvedDialOptions } from "./options.js";
import { type GiveUp, Pending, type ReadAnswer } from "./pending.js";
import type { Route } from "./route.js";
import { type Connected, connect, type Listener, unreachable } from "./socket.js";

const RETRY_MS_MIN = 25;
/** Of both sides: whoever has heard nothing for so long asks, and after as long again takes the connection for lost. */
const SILENCE_MS = 10_000;
const SWEEP_MS = 1000;
/** Named calls between two looks at which of them are answered. */
const SETTLED_EVERY = 64;
const GOODBYE_MS = 2000;
const U32 = 2 ** 32;
/** Until the daemon says what it takes. */
const FRAME_BYTES_MAX = 64 * 1024 * 1024;

/** A stream of records, which is told of everything itself. */
export interface StreamEnd {
  /** Writes the frame that opens it, from where it has got to. */
  reopen(id: number): void;
  records(input: Input): void;
  /** @param error undefined: it is at its end */
  ended(error: Error | undefined): void;
  /** This client is closing. */
  closed(): void;
}

export class Link implements Listener {
  readonly options: ResolvedDialOptions;
  readonly logger: Logger;
  /** Names this client in commits, whatever connection they come over. */
  readonly clientId: Buffer = randomBytes(ID_BYTES);
  readonly #route: Route;
  /** Where the last attempt went. */
  #target: Target | undefined;
  /** What goes out to the socket. */
  readonly #output: Output;
  /** Where calls are written that cannot go out yet: they are sent from `#pending`. */
  readonly #shelf: Output;
  #current: Output;
  readonly #pending = new Calls();
  #pendingBytes = 0;
  readonly #streams = new Map<number, StreamEnd>();
  readonly #handles = new Map<number, WeakRef<Handle>>();
  readonly #unused = new FinalizationRegistry<number>((id) => {
    this.leave(id).catch(() => {}); // it is over with the session, then
  });
  readonly #closeListeners = new Set<(error: Error) => void>();
  #socket: Socket | undefined;
  /** Counts connections. */
  #connection = 0;
  /** Calls go out at once. */
  #isOpen = false;
  #isLeaving = false;
  #sessionId: Uint8Array = NEW_SESSION;
  #features = 0;
  /** Answers of `dequeue` with tasks, in this session. */
  received = 0;
  #nextId = 1;
  #nextHandle = 1;
  /** Numbers the calls that change something: with the client's id they are their names. */
  #sequence = 0;
  /** Of the call that was begun last. */
  #named = 0;
  /** Calls up to this one are answered. Found again from time to time: it only makes room at the daemon. */
  #settledUpTo = 0;
  #settledAt = 0;
  #flushDue = false;
  #lostAtMs = 0;
  #heardAtMs = 0;
  #pingedAtMs = 0;
  #attempts = 0;
  #retry: NodeJS.Timeout | undefined;
  #sweep: NodeJS.Timeout | undefined;
  /** Why the daemon does not let this client in, or not any more. */
  #refused: VarveError | undefined;
  #closing: Promise<void> | undefined;
  #isClosed = false;
  #drained: (() => void) | undefined;
  #server = "";

  constructor(route: Route, options: ResolvedDialOptions) {
    this.options = options;
    this.logger = options.logger;
    this.#route = route;
    this.#output = new Output(FRAME_BYTES_MAX);
    this.#shelf = new Output(FRAME_BYTES_MAX);
    this.#current = this.#shelf;
  }

  /** Makes the first connection. @throws VarveError as `dial` does */
  async open(): Promise<void> {
    await this.#connect();
    this.#sweep = setInterval(() => this.#everySecond(), SWEEP_MS);
    this.#sweep.unref();
  }

  /** What the daemon calls itself. */
  get server(): string {
    return this.#server;
  }

  get isClosing(): boolean {
    return this.#closing !== undefined;
  }

  /** @throws VarveError `ERR_CLOSED` */
  checkOpen(): void {
    if (this.#closing !== undefined) throw closed();
  }

  /** Calls back once when this client closes; returns what ends the wait for that. */
  onClose(callback: (error: Error) => void): () => void {
    this.#closeListeners.add(callback);
    return () => this.#closeListeners.delete(callback);
  }

  // --------------------------------------------------------------------------------------------------- making calls

  /**
   * Begins a call. Its body beyond the handle, the wait and the name is for the caller to write; then `send`.
   * @param request the caller's own name for the call; otherwise one that changes something gets its name here
   * @throws VarveError `ERR_CLOSED`, `ERR_OVERLOADED`, or why the daemon refuses this client
   */
  begin(method: Method, handle: number, waitMs = 0, request?: CallName): Output {
    this.checkOpen();
    if (this.#refused !== undefined) throw this.#refused;
    if (this.#pendingBytes >= this.options.pendingBytesMax) {
      throw new VarveError(
        "ERR_OVERLOADED",
        `calls of ${this.#pendingBytes} bytes are not answered yet (maxPendingBytes)${this.#socket === undefined ? ", and there is no connection" : ""}`,
      );
    }
    const output = this.#isOpen ? this.#output : this.#shelf;
    this.#current = output;
    output.begin(method.opcode, this.#nextId);
    output.u32(handle);
    if (method.waits) output.f64(waitMs);
    if (!method.isNamed) return output;
    this.#named = 0;
    if (request !== undefined) {
      writeName(output, request.producer, request.sequence, request.settled);
    } else if (method.repeat === "named") {
      this.#named = ++this.#sequence;
      writeName(output, undefined, this.#named, this.#settled());
    } else {
      writeName(output, undefined, 0, 0);
    }
    return output;
  }

  /**
   * Sends the call that was begun last.
   * @param giveUp of calls that wait
   * @throws VarveError `ERR_TOO_LARGE`
   */
  send<T>(
    method: Method,
    handle: number,
    resolve: (value: T) => void,
    reject: (error: Error) => void,
    read: ReadAnswer<T>,
    waitMs = 0,
    giveUp?: GiveUp<T>,
  ): Pending {
    const frame = this.#current.endFrame();
    const pending = new Pending(
      this.#nextId,
      method,
      handle,
      frame,
      performance.now(),
      waitMs,
      resolve as (value: never) => void,
      reject,
      read,
      giveUp,
      method.isNamed ? this.#named : 0,
    );
    this.#takeId();
    this.#pending.add(pending);
    this.#pendingBytes += frame.length;
    if (this.#route.isBackground && this.#pending.size === 1) this.#letRest();
    if (this.#current === this.#output) {
      pending.connection = this.#connection;
      this.#flushSoon();
    } else {
      this.#shelf.take();
    }
    return pending;
  }

  /** A call whose arguments and answer are values. */
  call<T>(
    method: Method,
    handle: number,
    args: readonly unknown[],
    waitMs = 0,
    signal?: AbortSignal,
    giveUp?: GiveUp<T>,
    read: ReadAnswer<T> = readAnyValue as ReadAnswer<T>,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      writeValue(this.begin(method, handle, waitMs), args);
      const pending = this.send(method, handle, resolve, reject, read, waitMs, giveUp);
      if (signal !== undefined) this.watch(pending, signal);
    });
  }

  /** Gives the call up when the signal is aborted. */
  watch(pending: Pending, signal: AbortSignal): void {
    const abort = () => {
      pending.unwatch = undefined;
      pending.isAborted = true;
      if (this.#isOpen && pending.connection === this.#connection) this.#control(Kind.Cancel, pending.id);
      else if (this.#forget(pending)) pending.end("aborted");
    };
    if (signal.aborted) {
      abort();
      return;
    }
    pending.unwatch = onAbort(signal, abort);
  }

  /** Resolves with the milliseconds that the daemon took to answer. */
  ping(): Promise<number> {
    return new Promise((resolve, reject) => {
      this.checkOpen();
      const from = performance.now();
      this.#current = this.#isOpen ? this.#output : this.#shelf;
      this.#current.begin(Kind.Ping, this.#nextId);
      this.send(PING, 0, resolve, reject, () => performance.now() - from);
    });
  }

  /** Has tasks given back that arrived for a caller who is gone, while this client closes too. */
  giveBack(handle: number, tokens: readonly string[]): void {
    if (!this.#isOpen) return; // their leases run out
    this.#current = this.#output;
    this.#current.begin(Methods.release.opcode, this.#nextId);
    this.#current.u32(handle);
    writeName(this.#current, undefined, 0, 0);
    writeValue(this.#current, [tokens]);
    const nothing = () => {};
    this.send(Methods.release, handle, nothing, nothing, nothing);
  }

  #settled(): number {
    if (this.#sequence - this.#settledAt < SETTLED_EVERY) return this.#settledUpTo;
    this.#settledAt = this.#sequence;
    this.#settledUpTo = (this.#pending.oldestSequence ?? this.#sequence) - 1;
    return this.#settledUpTo;
  }

  #takeId(): void {
    do {
      this.#nextId = (this.#nextId + 1) % U32;
    } while (this.#nextId === 0 || this.#pending.get(this.#nextId) !== undefined || this.#streams.has(this.#nextId));
  }

  #flushSoon(): void {
    if (this.#flushDue) return;
    this.#flushDue = true;
    process.nextTick(() => {
      this.#flushDue = false;
      this.#flush();
    });
  }

  #flush(): void {
    const socket = this.#socket;
    const pieces = this.#output.take();
    if (socket === undefined || pieces.length === 0) return;
    if (pieces.length > 1) socket.cork();
    for (const piece of pieces) socket.write(piece);
    if (pieces.length > 1) socket.uncork();
  }

  /** A frame that is no call. */
  #control(kind: number, id: number, value?: number): void {
    this.#output.begin(kind, id);
    if (value !== undefined) this.#output.u32(value);
    this.#output.end();
    this.#flushSoon();
  }

  // -------------------------------------------------------------------------------------------- handles and streams

  /** A number for something that is about to be opened. */
  newHandle(): number {
    const id = this.#nextHandle;
    this.#nextHandle = id + 1;
    return id;
  }

  /** Opens it again when the daemon has forgotten it. */
  keep(handle: Handle): void {
    this.#handles.set(handle.id, new WeakRef(handle));
    this.#unused.register(handle, handle.id);
  }

  /** Nobody uses it any more. */
  async leave(id: number): Promise<void> {
    if (!this.#handles.delete(id) || this.isClosing) return;
    await this.call(Methods.leave, id, []);
  }

  /** Opens a stream, whose frame `reopen` writes. Returns its id. */
  stream(end: StreamEnd): number {
    const id = this.#nextId;
    this.#takeId();
    this.#streams.set(id, end);
    if (this.#isOpen) end.reopen(id);
    return id;
  }

  /** @returns where the body of the stream's opening frame is to be written; `opened` sends it */
  beginStream(id: number, handle: number): Output {
    this.#output.begin(Methods.batches.opcode, id);
    this.#output.u32(handle);
    return this.#output;
  }

  opened(): void {
    this.#output.end();
    this.#flushSoon();
  }

  /** Lets the daemon send so many bytes more. */
  credit(id: number, bytes: number): void {
    if (this.#isOpen) this.#control(Kind.Credit, id, bytes);
  }

  /** The stream is not wanted any more. */
  cancelStream(id: number): void {
    if (this.#streams.delete(id) && this.#isOpen) this.#control(Kind.Cancel, id);
  }

  // ------------------------------------------------------------------------------------------------ what arrives

  arrived(): void {
    this.#heardAtMs = performance.now();
  }

  frame(kind: number, id: number, body: Input): boolean {
    switch (kind) {
      case Kind.Ok: {
        const pending = this.#pending.get(id);
        if (pending === undefined || !this.#forget(pending)) return true;
        this.#release(pending);
        pending.answered(body);
        return true;
      }
      case Kind.Failed:
        this.#failed(id, readValue(body) as Error);
        return true;
      case Kind.Records:
        this.#streams.get(id)?.records(body);
        return true;
      case Kind.End: {
        const error = readValue(body) as Error | undefined;
        // The daemon is ending, not the stream: it goes on with the next connection.
        if (this.#isLeaving && isVarveError(error, "ERR_CLOSED") && !this.isClosing) return true;
        const stream = this.#streams.get(id);
        this.#streams.delete(id);
        stream?.ended(error);
        return true;
      }
      case Kind.Leaving:
        this.#isLeaving = true;
        this.#isOpen = false;
        this.#control(Kind.Left, 0);
        return true;
      default:
        throw new VarveError("ERR_PROTOCOL", `a frame of the kind ${kind}`);
    }
  }

  #failed(id: number, error: Error): void {
    if (id === 0) {
      if (isVarveError(error)) this.logger.warn({ error }, "the daemon ended the connection");
      return;
    }
    const pending = this.#pending.get(id);
    if (pending === undefined) {
      const stream = this.#streams.get(id);
      this.#streams.delete(id);
      stream?.ended(error);
      return;
    }
    if (this.#isLeaving && isVarveError(error, "ERR_CLOSED") && !this.isClosing) {
      // Refused because the daemon ends: it has not been carried out, and is made again.
      pending.connection = 0;
      return;
    }
    if (!this.#forget(pending)) return;
    this.#release(pending);
    if (this.isClosing && !pending.isAborted && isVarveError(error, "ERR_ABORTED")) {
      // It was this client that gave up.
      pending.refused(closed());
    } else {
      pending.refused(error);
    }
  }

  /** The daemon has answered what it was sent over this connection: it has the whole frame. */
  #release({ frame, connection }: Pending): void {
    if (connection === this.#connection) giveLarge(frame);
  }

  /** False when it has been settled already. */
  #forget(pending: Pending): boolean {
    if (!this.#pending.delete(pending)) return false;
    this.#pendingBytes -= pending.frame.length;
    if (this.#pending.size === 0) {
      this.#drained?.();
      this.#letRest();
    }
    return true;
  }

  // ------------------------------------------------------------------------------------------- connections come and go

  async #connect(): Promise<void> {
    const { name = "varve", token = "", tls, connectMs } = this.options;
    const target = await this.#route.reach();
    if (this.#isClosed) return;
    this.#target = target;
    const connected = await connect(
      target,
      tls,
      {
        versionMin: PROTOCOL_MIN,
        versionMax: PROTOCOL_MAX,
        features: Feature.identity,
        clientId: this.clientId,
        sessionId: this.#sessionId,
        received: this.received,
        name,
        token,
      },
      connectMs,
    );
    const { socket, welcome } = connected;
    if (this.#isClosed) {
      socket.destroy();
      return;
    }
    this.#connection++;
    this.#socket = socket;
    this.#letRest();
    this.#isLeaving = false;
    this.#refused = undefined;
    this.#sessionId = welcome.sessionId;
    this.#features = welcome.features;
    this.#server = welcome.server;
    this.#output.frameBytesMax = welcome.frameBytesMax;
    this.#shelf.frameBytesMax = welcome.frameBytesMax;
    this.#heardAtMs = performance.now();
    this.#pingedAtMs = 0;
    if (!welcome.resumed) this.received = 0;
    this.#hand(connected);
    await this.#reopenHandles(welcome.resumed);
    if (this.#socket !== socket || this.#isLeaving) return;
    this.#attempts = 0;
    this.#isOpen = true;
    this.#sendAgain();
  }

  get #shownTarget(): string | undefined {
    return this.#target && formatTarget(this.#target);
  }

  /** In the background only calls under way, and tails, keep the process. */
  #letRest(): void {
    if (!this.#route.isBackground) return;
    const isBusy = this.#pending.size > 0 || this.#streams.size > 0;
    for (const each of [this.#socket, this.#retry]) {
      if (isBusy) each?.ref();
      else each?.unref();
    }
  }

  #hand({ socket, hand }: Connected): void {
    const connection = this.#connection;
    hand({
      arrived: () => this.arrived(),
      frame: (kind, id, body) => this.frame(kind, id, body),
      closed: (error) => {
        if (this.#socket === socket && this.#connection === connection) this.closed(error);
      },
    });
  }

  closed(error: Error | undefined): void {
    this.#socket = undefined;
    this.#isOpen = false;
    this.#output.take();
    this.#lostAtMs = performance.now();
    if (this.#isClosed) return;
    this.logger.warn({ target: this.#shownTarget, error }, "the connection to the daemon was lost");
    const knowsNames = (this.#features & Feature.identity) !== 0;
    for (const pending of this.#pending) {
      const isSent = pending.connection !== 0;
      pending.connection = 0;
      const broken = this.#handles.get(pending.handle)?.deref()?.broken;
      if (broken !== undefined) {
        this.#forget(pending);
        pending.refused(isSent ? lost(pending, broken) : broken);
      } else if (!isSent) {
        // It goes out with the next connection.
      } else if (pending.isAborted && pending.giveUp !== undefined) {
        this.#forget(pending);
        pending.end("aborted");
      } else if (pending.method === PING) {
        this.#forget(pending);
        pending.refused(unreachable(this.#target, error));
      } else if (pending.method.repeat === "named" && !knowsNames) {
        this.#forget(pending);
        pending.refused(outcomeUnknown(pending.method, unreachable(this.#target, error)));
      } else {
        pending.repeated = true;
      }
    }
    this.#reconnectSoon();
  }

  #reconnectSoon(): void {
    if (this.#isClosed || this.#retry !== undefined) return;
    const most = Math.min(this.#route.retryMsMax, RETRY_MS_MIN * 2 ** this.#attempts);
    this.#attempts++;
    // Spread, so that clients that lost the same daemon do not come back all at once.
    const delayMs = most * (0.5 + Math.random() / 2);
    this.#retry = setTimeout(() => {
      this.#retry = undefined;
      this.#connect().catch((error: unknown) => this.#notConnected(error as Error));
    }, delayMs);
    this.#letRest();
  }

  #notConnected(error: Error): void {
    this.logger.warn({ target: this.#shownTarget, error }, "no connection to the daemon");
    if (isVarveError(error) && error.code !== "ERR_DISCONNECTED" && this.#socket === undefined) {
      // It will not become right by waiting for it, though somebody may set it right.
      this.#refused = error;
      this.#refuseAll(() => error);
    }
    if (this.#socket === undefined) this.#reconnectSoon();
  }

  /** What the daemon has forgotten is opened again, in the order in which it was opened. */
  async #reopenHandles(resumed: boolean): Promise<void> {
    if (this.#handles.size === 0) return;
    const opening: Promise<void>[] = [];
    for (const reference of this.#handles.values()) {
      const handle = reference.deref();
      const how = handle?.reopen(resumed);
      if (handle === undefined || how === undefined) continue;
      // A group or cursor needs its queue first.
      if (how.parent !== undefined) await Promise.all(opening);
      opening.push(this.#reopen(handle, how));
    }
    await Promise.all(opening);
  }

  #reopen(handle: Handle, { method, parent = handle, args }: Opening): Promise<void> {
    return new Promise((resolve) => {
      const done = (answer: unknown) => {
        const error = handle.reopened(answer);
        if (error === undefined) {
          resolve();
          return;
        }
        failed(error);
        this.leave(handle.id).catch(() => {}); // it is over with the session, then
      };
      const failed = (error: Error) => {
        handle.broken = error;
        for (const pending of this.#pending) {
          if (pending.handle !== handle.id || !this.#forget(pending)) continue;
          pending.refused(pending.repeated ? lost(pending, error) : error);
        }
        resolve();
      };
      this.#output.begin(method.opcode, this.#nextId);
      this.#output.u32(parent.id);
      writeValue(this.#output, args);
      const frame = this.#output.endFrame();
      const pending = new Pending(
        this.#nextId,
        method,
        parent.id,
        frame,
        performance.now(),
        0,
        done,
        failed,
        readAnyValue,
        undefined,
        0,
      );
      this.#takeId();
      pending.connection = this.#connection;
      this.#pending.add(pending);
      this.#pendingBytes += frame.length;
      this.#flushSoon();
    });
  }

  #sendAgain(): void {
    const nowMs = performance.now();
    const socket = this.#socket!;
    socket.cork();
    for (const pending of this.#pending) {
      if (pending.connection === this.#connection) continue;
      pending.connection = this.#connection;
      pending.shortenWait(nowMs);
      socket.write(pending.frame);
    }
    socket.uncork();
    for (const [id, stream] of this.#streams) stream.reopen(id);
  }

  #everySecond(): void {
    const nowMs = performance.now();
    const { requestMs, offlineMs } = this.options;
    if (this.#socket === undefined) {
      for (const pending of this.#pending) {
        if (pending.waitEndsMs !== undefined && pending.waitEndsMs <= nowMs) {
          this.#forget(pending);
          pending.end("over");
        } else if (nowMs - Math.max(pending.startedMs, this.#lostAtMs) > offlineMs) {
          this.#forget(pending);
          const error = unreachable(this.#target, undefined);
          pending.refused(pending.repeated ? lost(pending, error) : error);
        }
      }
    } else {
      this.#listen(nowMs);
    }
    if (requestMs === Number.POSITIVE_INFINITY) return;
    for (const pending of this.#pending) {
      const from = pending.waitEndsMs ?? pending.startedMs;
      if (nowMs - from <= requestMs || !this.#forget(pending)) continue;
      const error = new VarveError(
        "ERR_TIMEOUT",
        `no answer to ${pending.method.name} within ${formatDuration(requestMs)}`,
      );
      pending.refused(lost(pending, error));
    }
  }

  /** Asks a daemon that is silent; takes the connection for lost when it does not answer. */
  #listen(nowMs: number): void {
    const silentMs = nowMs - this.#heardAtMs;
    if (silentMs > 2 * SILENCE_MS && this.#pingedAtMs > this.#heardAtMs) {
      this.#socket?.destroy(new Error(`nothing was heard of the daemon for ${formatDuration(Math.floor(silentMs))}`));
    } else if (silentMs > SILENCE_MS && this.#isOpen && this.#pingedAtMs <= this.#heardAtMs) {
      this.#pingedAtMs = nowMs;
      this.ping().catch(() => {});
    }
  }

  #refuseAll(why: (pending: Pending) => Error): void {
    for (const pending of this.#pending) if (this.#forget(pending)) pending.refused(why(pending));
  }

  // ------------------------------------------------------------------------------------------------------- the end

  /** Refuses new calls, waits for the answers to those that were made, and ends the session. Idempotent. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const error = closed();
    for (const listener of this.#closeListeners) listener(error);
    for (const stream of this.#streams.values()) stream.closed();
    this.#streams.clear();
    const { closeMs } = this.options;
    for (const pending of this.#pending) this.#closeWait(pending, error);
    await this.#whenDrained(closeMs);
    this.#refuseAll((pending) =>
      pending.connection === 0 && !pending.repeated ? error : outcomeUnknown(pending.method, error),
    );
    if (this.#isOpen) await this.#goodbye();
    this.#isClosed = true;
    clearTimeout(this.#retry);
    clearInterval(this.#sweep);
    this.#socket?.destroySoon();
    this.#socket = undefined;
    this.#isOpen = false;
    await this.#route.closed();
  }

  /** Ends a wait; what had been given to it nevertheless is given back by whoever reads the answer. */
  #closeWait(pending: Pending, error: Error): void {
    if (pending.waitEndsMs === undefined) return;
    if (this.#isOpen && pending.connection === this.#connection) this.#control(Kind.Cancel, pending.id);
    else if (this.#forget(pending)) pending.refused(error);
  }

  #whenDrained(timeoutMs: number): Promise<void> {
    if (this.#pending.size === 0) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, timeoutMs);
      this.#drained = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async #goodbye(): Promise<void> {
    const answered = new Promise<void>((resolve) => {
      this.#current = this.#output;
      this.#current.begin(Kind.Goodbye, this.#nextId);
      this.send(
        PING,
        0,
        () => resolve(),
        () => resolve(),
        () => undefined,
      );
    });
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, GOODBYE_MS);
    });
    await Promise.race([answered, late]);
    clearTimeout(timer);
  }
}

/** What is no method is answered like one. */
const PING: Method = Object.freeze({
  opcode: Kind.Ping,
  name: "ping",
  needs: "none",
  repeat: "freely",
  waits: false,
  isNamed: false,
  reads: false,
});

function readAnyValue(input: Input): unknown {
  return input.left === 0 ? undefined : readValue(input);
}

export function closed(): VarveError {
  return new VarveError("ERR_CLOSED", "the connection to the daemon is closed, or closing");
}

/** What becomes of a call that was sent, and whose answer will not come. */
function lost({ method }: Pending, why: Error): Error {
  return method.repeat === "freely" ? why : outcomeUnknown(method, why);
}

function outcomeUnknown(method: Method, cause: Error): VarveError {
  return new VarveError(
    "ERR_OUTCOME_UNKNOWN",
    `the answer to ${method.name} was lost with the connection: it may have been carried out, or not`,
    { cause },
  );
}
