/**
 * One connection of a client. Everything that arrives in one read of the socket is begun in one turn of the event loop, so
 * that it shares a commit; answers that are ready in one turn leave in one write.
 *
 *   greeting --hello--> entering --let in--> serving --goodbye, end of the stream, an error--> over
 *
 * Bounds, whatever the client does: bytes before it is let in and the time for that; bytes of unfinished frames, here and of
 * all connections; calls under way; answers that it does not take, by bytes and by time; what answers may come to.
 */

import type { Socket } from "node:net";
import { type PeerCertificate, TLSSocket } from "node:tls";
import type { CallName } from "../api/call-name.js";
import type { Durability, LogQueue, RequestIdentity, TaskQueue } from "../api/contract.js";
import { isVarveError, VarveError } from "../api/errors.js";
import type { Put } from "../net/puts.js";
import { receive } from "../net/receive.js";
import type { Take } from "../net/takes.js";
import { giveLarge, isLarge } from "../wire/buffers.js";
import { FrameParser, HELLO_BYTES_MAX, Kind, PROTOCOL_MAX, PROTOCOL_MIN } from "../wire/frame.js";
import { type Hello, readHello, writeWelcome } from "../wire/hello.js";
import { type Input, malformed } from "../wire/input.js";
import { METHODS, type Method, Methods } from "../wire/methods.js";
import { readName } from "../wire/name.js";
import { Output } from "../wire/output.js";
import { readValue, writeValue } from "../wire/value.js";
import { authorise, authoriseOne } from "./access.js";
import { affectedBy, RUN, type ValueCall, withName } from "./calls.js";
import { HOT } from "./hot-calls.js";
import type { Front } from "./server.js";
import type { Handle, Session } from "./session.js";
import { RecordStream } from "./streams.js";

/** Unsent answers: above this nothing more is read from the client. */
const UNSENT_BYTES_PAUSE = 1024 * 1024;
/** Above this it is cut off unless it takes what it is sent. */
const UNSENT_BYTES_MAX = 8 * 1024 * 1024;
/** What the answers to calls under way may come to, judged by the largest one so far. */
const EXPECTED_BYTES_MAX = 8 * 1024 * 1024;
/** Until there has been one. */
const EXPECTED_BYTES = 64 * 1024;
const CALLS_MAX = 65_536;
/** Of an answer: more than a batch of the largest messages that anybody asks for. */
const ANSWER_BYTES_MAX = 1024 * 1024 * 1024;

type State = "greeting" | "entering" | "serving" | "over";

export class Connection {
  readonly front: Front;
  readonly socket: Socket;
  readonly output = new Output(ANSWER_BYTES_MAX);
  session: Session | undefined;
  readonly startedMs: number;
  /** When the client last made progress, in one direction or the other. */
  lastActiveMs: number;
  /** The server is ending: waits that are given up for that were not in vain, but belong elsewhere. */
  isLeaving = false;
  #state: State = "greeting";
  readonly #parser: FrameParser;
  readonly #waits = new Map<number, AbortController>();
  readonly #streams = new Map<number, RecordStream>();
  #calls = 0;
  #reads = 0;
  #largestAnswer = EXPECTED_BYTES;
  #flushDue = false;
  /** The turn in which it last put something into a queue. */
  #putIn = -1;
  /** The same of the last time that it asked for tasks. */
  #tookIn = -1;
  #heldBytes = 0;
  /** Frames wait until something is settled that later ones may build upon. */
  #stopped = false;
  /** The client has said its last word. */
  #hasLeft = false;
  #saidGoodbye = false;
  #answered: (() => void)[] = [];
  #whenFinished: (() => void) | undefined;
  /** Resolves once the connection is over, and every call that was begun over it has ended. */
  readonly finished = new Promise<void>((resolve) => {
    this.#whenFinished = resolve;
  });

  constructor(front: Front, socket: Socket) {
    this.front = front;
    this.socket = socket;
    this.startedMs = front.nowMs();
    this.lastActiveMs = this.startedMs;
    this.#parser = new FrameParser(
      { frame: (kind, id, body) => this.#frame(kind, id, body) },
      HELLO_BYTES_MAX,
      true,
      "everything",
    );
    receive(socket, (piece) => this.#arrived(piece), front.options.busyPoll);
    socket.on("drain", () => this.#drained());
    socket.on("error", () => {}); // "close" follows
    socket.on("end", () => this.destroy());
    socket.on("close", () => this.#closed());
  }

  /** Has not been let in yet. */
  get isNew(): boolean {
    return this.#state === "greeting" || this.#state === "entering";
  }

  /** Stands still with something half done: a frame that has begun, or answers that it does not take. */
  get isStuck(): boolean {
    return this.#parser.isInside || this.socket.writableLength > 0;
  }

  get isOver(): boolean {
    return this.#state === "over";
  }

  /** Too much is unsent, and the client does not take it. */
  get isOverfull(): boolean {
    return this.socket.writableLength > UNSENT_BYTES_MAX;
  }

  destroy(): void {
    this.socket.destroy();
  }

  /** Over at once: what has arrived and is not begun is dropped. */
  cut(): void {
    if (this.#state !== "over") this.#over();
    this.socket.destroy();
  }

  /** Ends the connection of a user who may something else than at the login: what is under way may not be allowed. */
  recheck(): void {
    if (this.#state === "serving" && this.session?.principal.current === false) this.refuse(outdated());
  }

  /** Tells the client that the server is ending, and ends its waits. Resolves once every call is answered. */
  async leave(): Promise<void> {
    if (this.#state !== "serving") {
      this.destroy();
      return;
    }
    this.isLeaving = true;
    this.output.begin(Kind.Leaving, 0);
    this.ended();
    for (const stream of this.#streams.values()) stream.cancel();
    for (const wait of this.#waits.values()) wait.abort();
    // A client that has gone meanwhile has left, too.
    this.socket.once("close", () => {
      this.#hasLeft = true;
      this.#checkAnswered();
    });
    if (this.#calls > 0 || !this.#hasLeft) await new Promise<void>((resolve) => this.#answered.push(resolve));
    this.#flush();
    this.#state = "over";
    this.#checkFinished();
    this.socket.end();
  }

  // ------------------------------------------------------------------------------------------------ what arrives

  #arrived(piece: Buffer): void {
    if (this.#state === "over") return;
    this.lastActiveMs = this.front.nowMs();
    try {
      this.#parser.push(piece);
      this.#checkHeld();
    } catch (error) {
      this.refuse(error);
    }
  }

  #checkHeld(): void {
    const { heldBytes } = this.#parser;
    if (this.isNew && heldBytes > HELLO_BYTES_MAX) throw malformed("too much before the handshake is over");
    const added = heldBytes - this.#heldBytes;
    this.#heldBytes = heldBytes;
    if (added !== 0 && !this.front.hold(added)) {
      throw new VarveError("ERR_OVERLOADED", "the unfinished frames of all clients together are too large");
    }
  }

  #frame(kind: number, id: number, body: Input): boolean {
    if (this.#state === "serving") {
      this.#serve(kind, id, body);
    } else if (this.#state === "greeting" && kind === Kind.Hello) {
      this.#state = "entering";
      this.#stopped = true;
      this.#enter(id, readHello(body)).then(
        () => this.go(),
        (error: unknown) => this.refuse(error),
      );
    } else if (this.#state !== "over") {
      throw malformed("the first frame must be a hello");
    }
    if (!this.#stopped && this.#mustWait) this.stop();
    return !this.#stopped;
  }

  /** No more frames are taken until `go`. */
  stop(): void {
    this.#stopped = true;
    this.socket.pause();
  }

  go(): void {
    if (!this.#stopped || this.#state === "over") return;
    this.#stopped = false;
    try {
      this.#parser.resume();
      this.#checkHeld();
    } catch (error) {
      this.refuse(error);
      return;
    }
    if (!this.#stopped && this.socket.writableLength < UNSENT_BYTES_PAUSE) this.socket.resume();
  }

  async #enter(id: number, hello: Hello): Promise<void> {
    const { front } = this;
    const version = Math.min(hello.versionMax, PROTOCOL_MAX);
    if (version < Math.max(hello.versionMin, PROTOCOL_MIN)) {
      throw new VarveError(
        "ERR_PROTOCOL",
        `the client speaks the versions ${hello.versionMin} to ${hello.versionMax} of the protocol, this daemon ` +
          `${PROTOCOL_MIN} to ${PROTOCOL_MAX}`,
      );
    }
    const token = hello.token === "" ? undefined : hello.token;
    const principal = front.authenticate({ token, certificate: this.#certificate() });
    if (principal === undefined) throw new VarveError("ERR_UNAUTHENTICATED", "the credentials were refused");
    const { session, resumed } = await front.sessionFor(hello, principal, this);
    if (this.#state !== "entering") return front.disconnected(session, this);
    this.session = session;
    this.#state = "serving";
    this.#parser.frameBytesMax = front.options.frameBytesMax;
    this.output.begin(Kind.Ok, id);
    writeWelcome(this.output, {
      version,
      features: hello.features & front.features,
      sessionId: session.id,
      resumed,
      frameBytesMax: front.options.frameBytesMax,
      server: front.options.server,
    });
    this.ended();
  }

  #certificate(): PeerCertificate | undefined {
    if (!(this.socket instanceof TLSSocket) || !this.socket.authorized) return undefined;
    return this.socket.getPeerCertificate();
  }

  #serve(kind: number, id: number, body: Input): void {
    if (this.#saidGoodbye && kind !== Kind.Left) throw malformed("there is more behind the goodbye");
    const method = METHODS[kind];
    if (method !== Methods.append && method !== Methods.enqueue) this.makePuts();
    if (method !== Methods.dequeue) this.makeTakes();
    if (method !== undefined) {
      this.#call(method, id, body);
      return;
    }
    switch (kind) {
      case Kind.Ping:
        this.output.begin(Kind.Ok, id);
        this.ended();
        return;
      case Kind.Cancel:
        this.#waits.get(id)?.abort();
        this.#streams.get(id)?.cancel();
        return;
      case Kind.Credit:
        this.#streams.get(id)?.grant(body.u32());
        return;
      case Kind.Left:
        this.#hasLeft = true;
        this.#checkAnswered();
        return;
      case Kind.Goodbye:
        void this.#goodbye(id);
        return;
      default:
        throw malformed(`its kind is ${kind}`);
    }
  }

  async #goodbye(id: number): Promise<void> {
    const { session } = this;
    if (session === undefined) return;
    this.#saidGoodbye = true;
    for (const stream of this.#streams.values()) stream.cancel();
    for (const wait of this.#waits.values()) wait.abort();
    await this.front.endSession(session);
    this.output.begin(Kind.Ok, id);
    this.ended();
  }

  // ------------------------------------------------------------------------------------------------------- calls

  #call(method: Method, id: number, input: Input): void {
    const session = this.session!;
    if (!session.principal.current) throw outdated();
    const handleId = input.u32();
    const waitMs = method.waits ? input.f64() : 0;
    const request = method.isNamed ? readName(input, session) : undefined;
    try {
      if (this.#calls >= CALLS_MAX) {
        throw new VarveError("ERR_OVERLOADED", `a connection may have ${CALLS_MAX} calls under way`);
      }
      const hot = HOT[method.opcode];
      if (hot !== undefined) {
        const handle = session.handle(handleId);
        this.#authorise(session, method, handle);
        hot(this, { method, id, handle, waitMs, request, input });
      } else if (method === Methods.batches) {
        const handle = session.handle(handleId);
        this.#authorise(session, method, handle);
        this.#stream(id, handle, input);
      } else {
        this.#callWithValues(session, method, id, handleId, waitMs, request, input);
      }
    } catch (error) {
      if (isVarveError(error, "ERR_PROTOCOL")) throw error;
      this.fail(id, error);
    }
  }

  #authorise(session: Session, method: Method, handle: Handle): void {
    const { needs } = method;
    if (needs === "read" || needs === "write" || needs === "admin") {
      authoriseOne(session.principal, method, needs, handle.kind, handle.queue);
    }
  }

  #callWithValues(
    session: Session,
    method: Method,
    id: number,
    handleId: number,
    waitMs: number,
    request: RequestIdentity | undefined,
    input: Input,
  ): void {
    const args = readValue(input);
    input.end();
    const run = RUN[method.opcode];
    if (run === undefined || !Array.isArray(args)) throw malformed(`a call of ${method.name} that is none`);
    const opens = method === Methods.openLog || method === Methods.openTask || method === Methods.leave;
    const call: ValueCall = {
      mq: this.front.mq,
      session,
      method,
      handleId,
      handle: opens || handleId === 0 ? undefined : session.handle(handleId),
      args: withName(method, args, session, request),
      wait: method.waits ? { wait: waitMs, signal: this.waitOf(id) } : undefined,
    };
    authorise(session.principal, method, affectedBy(call));
    this.begun(method);
    run(call).then(
      (value) => {
        this.done(method, id);
        if (this.isOver) return;
        if (this.isLeaving && method.waits && value === undefined) {
          this.fail(id, leaving());
          return;
        }
        try {
          this.output.begin(Kind.Ok, id);
          writeValue(this.output, value);
          this.ended();
        } catch (error) {
          this.fail(id, error);
        }
      },
      (error: unknown) => {
        this.done(method, id);
        this.fail(id, error);
      },
    );
  }

  #stream(id: number, handle: Handle, input: Input): void {
    if (handle.type !== "log") throw new VarveError("ERR_ARGUMENT", "only logs have batches");
    if (this.#streams.has(id)) throw malformed(`there is a stream ${id} already`);
    const stream = new RecordStream(this, id, handle.object, input);
    this.#streams.set(id, stream);
    void stream.run().finally(() => this.#streams.delete(id));
  }

  /** A call is under way: it will be `done`. */
  begun(method: Method): void {
    this.#calls++;
    if (method.reads) this.#reads++;
  }

  done(method: Method, id: number): void {
    this.#calls--;
    if (method.waits) this.#waits.delete(id);
    if (method.reads) {
      this.#reads--;
      // After the answer has been written, whose size counts.
      if (this.#stopped) process.nextTick(() => this.#again());
    }
    this.#checkAnswered();
    this.#checkFinished();
  }

  #checkFinished(): void {
    if (this.#calls === 0 && this.#state === "over") this.#whenFinished?.();
  }

  #checkAnswered(): void {
    if (this.#calls > 0 || !this.#hasLeft || this.#answered.length === 0) return;
    // Not before the answer has been written.
    const answered = this.#answered;
    this.#answered = [];
    setImmediate(() => {
      for (const resolve of answered) resolve();
    });
  }

  // -------------------------------------------------------------------------------------------------------- calls that are made together

  /** Puts a message, which stands in lent memory, into a queue, together with others that go there in this turn. */
  put<Q extends LogQueue | TaskQueue, T>(
    put: Put<Q, Connection, T>,
    queue: Q,
    id: number,
    name: CallName | undefined,
    durability: Durability | undefined,
    memory: Buffer,
    start: number,
    end: number,
  ): void {
    const { puts, copies } = this.front;
    const at = copies.copy(memory, start, end);
    puts.add(put, queue, this, id, name, durability, copies.memory, at, at + end - start);
    this.#putIn = puts.turn;
  }

  /** Whatever comes next may build upon what came before it. */
  makePuts(): void {
    const { puts } = this.front;
    if (this.#putIn === puts.turn) puts.carryOut();
  }

  /** Asks for tasks, together with others that take from there in this turn. False where that cannot be. */
  take(take: Take): boolean {
    const { takes } = this.front;
    if (!takes.add(take)) return false;
    this.#tookIn = takes.turn;
    this.begun(Methods.dequeue);
    return true;
  }

  makeTakes(): void {
    const { takes } = this.front;
    if (this.#tookIn === takes.turn) takes.carryOut();
  }

  // ------------------------------------------------------------------------------------------------------- waiting

  #holds = 0;

  /** Frames that follow wait until the promise is settled. */
  holdUntil(settled: Promise<unknown>): void {
    this.#holds++;
    this.stop();
    const on = () => {
      this.#holds--;
      this.#again();
    };
    settled.then(on, on);
  }

  /** What is under way, or has not been taken yet, is enough. */
  get #mustWait(): boolean {
    if (this.#holds > 0 || this.socket.writableLength + this.output.bytes >= UNSENT_BYTES_PAUSE) return true;
    return this.#reads > 1 && this.#reads * this.#largestAnswer > EXPECTED_BYTES_MAX;
  }

  #again(): void {
    if (this.#stopped && this.#state === "serving" && !this.#mustWait) this.go();
  }

  /** What aborts when the client gives up waiting, or is gone. */
  waitOf(id: number): AbortSignal {
    if (this.#waits.has(id)) throw malformed(`there is a call ${id} already`);
    const controller = new AbortController();
    this.#waits.set(id, controller);
    if (this.isLeaving) controller.abort();
    return controller.signal;
  }

  // ----------------------------------------------------------------------------------------------------- answers

  /** The frame in `output` is complete. Returns its bytes. @throws VarveError `ERR_TOO_LARGE` */
  ended(): number {
    const length = this.output.end();
    if (length > this.#largestAnswer) this.#largestAnswer = length;
    if (!this.#flushDue) {
      this.#flushDue = true;
      process.nextTick(() => this.#flush());
    }
    return length;
  }

  fail(id: number, error: unknown): void {
    if (this.isOver) return;
    this.output.begin(Kind.Failed, id);
    writeValue(this.output, this.isLeaving && isVarveError(error, "ERR_ABORTED") ? leaving() : tellable(error));
    this.ended();
  }

  /** The client has much to take before it is sent more. */
  get isFull(): boolean {
    return this.socket.writableLength >= UNSENT_BYTES_PAUSE && !this.isOver;
  }

  /** Resolves once the client has taken most of what it was sent. */
  get writable(): Promise<void> | undefined {
    if (!this.isFull) return undefined;
    return new Promise((resolve) => {
      const on = () => {
        this.socket.off("drain", on);
        this.socket.off("close", on);
        resolve();
      };
      this.socket.on("drain", on);
      this.socket.on("close", on);
    });
  }

  #flush(): void {
    this.#flushDue = false;
    const pieces = this.output.take();
    if (this.isOver || this.socket.destroyed || pieces.length === 0) return;
    if (pieces.length > 1) this.socket.cork();
    for (const piece of pieces) {
      // Also a small one may stand in one: its bytes were estimated.
      if (!isLarge(piece)) this.socket.write(piece);
      else {
        this.socket.write(piece, (error) => {
          if (!error) giveLarge(piece);
        });
      }
    }
    if (pieces.length > 1) this.socket.uncork();
    const unsent = this.socket.writableLength;
    // The system has taken all of it.
    if (unsent === 0) this.output.startOver();
    if (unsent >= UNSENT_BYTES_PAUSE) this.socket.pause();
    else this.#again();
  }

  #drained(): void {
    this.lastActiveMs = this.front.nowMs();
    if (this.#stopped) this.#again();
    else if (this.#state === "serving") this.socket.resume();
  }

  // --------------------------------------------------------------------------------------------------------- end

  /** Tells why, where there is someone who understands it, and ends the connection. */
  refuse(error: unknown): void {
    if (this.#state === "over") return;
    const greeting = this.#state === "greeting";
    this.front.refused(this, error);
    if (!greeting || this.#parser.isGreeted) {
      this.output.begin(Kind.Failed, 0);
      writeValue(this.output, tellable(error));
      this.output.end();
      for (const piece of this.output.take()) this.socket.write(piece);
    }
    this.#over();
    this.socket.end();
    this.front.lingering(this.socket);
  }

  #closed(): void {
    this.#parser.end();
    this.front.left(this);
    if (this.#state !== "over") this.#over();
  }

  #over(): void {
    this.#state = "over";
    this.#parser.end();
    this.front.hold(-this.#heldBytes);
    this.#heldBytes = 0;
    for (const wait of this.#waits.values()) wait.abort();
    for (const stream of this.#streams.values()) stream.cancel();
    const { session } = this;
    if (session !== undefined) this.front.disconnected(session, this);
    this.#checkFinished();
  }
}

/** Why a call that waited has ended: the client makes it again, of whoever comes next. */
export function leaving(): VarveError {
  return new VarveError("ERR_CLOSED", "the daemon is ending");
}

function outdated(): VarveError {
  return new VarveError("ERR_UNAUTHENTICATED", "what this user may do has changed: log in again");
}

/** What a client is told. An error that is not varve's is a bug, here or in the contract's implementation. */
function tellable(error: unknown): Error {
  if (error instanceof VarveError) return error;
  const message = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  return new VarveError("ERR_INTERNAL", message);
}
