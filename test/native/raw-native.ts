/** A native server over an embedded directory, in this process, and clients that send whatever bytes a test wants. */

import { randomBytes } from "node:crypto";
import { connect, type Socket } from "node:net";
import type { MessageQueue, OpenOptions } from "../../src/api/contract.js";
import { open } from "../../src/index.js";
import { type Endpoint, type NativeOptions, NativeServer } from "../../src/native/server.js";
import { FrameParser, Kind, PREAMBLE, PROTOCOL_MAX, PROTOCOL_MIN } from "../../src/wire/frame.js";
import { ID_BYTES, NEW_SESSION, writeHello } from "../../src/wire/hello.js";
import { Input } from "../../src/wire/input.js";
import type { Method } from "../../src/wire/methods.js";
import { writeName } from "../../src/wire/name.js";
import { Output } from "../../src/wire/output.js";
import type { Target } from "../../src/wire/target.js";
import { readValue, writeValue } from "../../src/wire/value.js";
import { withDirectory } from "../support/directories.js";

export interface TestNative {
  readonly mq: MessageQueue;
  readonly server: NativeServer;
  readonly target: Target;
  /** A new connection, of which nothing has been sent yet. */
  connect(): Promise<RawNative>;
}

export async function withNative(
  options: {
    readonly open?: OpenOptions;
    readonly native?: Partial<NativeOptions>;
    readonly endpoint?: Endpoint;
    /** What is served instead. */
    readonly served?: (mq: MessageQueue) => MessageQueue;
  },
  body: (native: TestNative) => Promise<void>,
): Promise<void> {
  await withDirectory(async (directory) => {
    const mq = await open(directory, { durability: "async", ...options.open });
    const server = new NativeServer(options.served?.(mq) ?? mq, options.native);
    const clients: RawNative[] = [];
    try {
      const target = await server.listen(options.endpoint ?? { target: { scheme: "tcp", host: "127.0.0.1", port: 0 } });
      await body({
        mq,
        server,
        target,
        connect: async () => {
          const client = await RawNative.connect(target);
          clients.push(client);
          return client;
        },
      });
    } finally {
      for (const client of clients) client.destroy();
      await server.close(1000);
      await mq.close();
    }
  });
}

export interface Frame {
  readonly kind: number;
  readonly id: number;
  readonly body: Buffer;
}

/** An answer: a value, or the code of an error; "ended" when the connection was over before there was one. */
export type Answer = { readonly value: Buffer } | { readonly code: string; readonly message: string };

const FRAME_BYTES_MAX = 64 * 1024 * 1024;

export class RawNative {
  readonly socket: Socket;
  readonly frames: Frame[] = [];
  /** Bytes that have arrived. */
  received = 0;
  ended = false;
  readonly #output = new Output(FRAME_BYTES_MAX);
  readonly #parser: FrameParser;
  #wake: (() => void)[] = [];
  #nextId = 1;

  constructor(socket: Socket) {
    this.socket = socket;
    const taken = (kind: number, id: number, body: Input): boolean => {
      this.frames.push({ kind, id, body: body.raw(body.left) });
      return true;
    };
    this.#parser = new FrameParser({ frame: taken }, FRAME_BYTES_MAX, false);
    socket.on("data", (piece: Buffer) => {
      this.received += piece.length;
      this.#parser.push(piece);
      this.#changed();
    });
    const end = () => {
      this.ended = true;
      this.#changed();
    };
    socket.on("end", end).on("close", end).on("error", end);
  }

  static connect(target: Target): Promise<RawNative> {
    return new Promise((resolve, reject) => {
      const socket = "port" in target ? connect(target.port, target.host) : connect(target.path);
      socket.once("error", reject);
      socket.once("connect", () => {
        socket.off("error", reject);
        resolve(new RawNative(socket));
      });
    });
  }

  send(bytes: Uint8Array | string): this {
    if (!this.socket.destroyed) this.socket.write(bytes);
    return this;
  }

  /** One frame, whose body `write` writes. */
  frame(kind: number, id: number, write: (output: Output) => void = () => {}): Buffer {
    this.#output.begin(kind, id);
    write(this.#output);
    this.#output.end();
    return Buffer.concat(this.#output.take());
  }

  hello(token = "", id = 0, clientId: Uint8Array = randomBytes(ID_BYTES)): Buffer {
    return this.frame(Kind.Hello, id, (output) =>
      writeHello(output, {
        versionMin: PROTOCOL_MIN,
        versionMax: PROTOCOL_MAX,
        features: 0,
        clientId,
        sessionId: NEW_SESSION,
        received: 0,
        name: "test",
        token,
      }),
    );
  }

  /** Preamble and hello. Returns the answer to the hello. */
  async enter(token = "", clientId?: Uint8Array): Promise<Answer> {
    this.send(PREAMBLE).send(this.hello(token, 0, clientId));
    return await this.answer(0);
  }

  /** A call of a method with values. */
  call(method: Method, handle: number, args: readonly unknown[] = [], sequence = 0): Promise<Answer> {
    return this.ask(method, handle, (output) => writeValue(output, args), [undefined, sequence]);
  }

  /** @param name its producer, undefined for the client itself, and number; undefined: none */
  ask(
    method: Method,
    handle: number,
    write: (output: Output) => void,
    name?: readonly [producer: Uint8Array | undefined, sequence: number],
  ): Promise<Answer> {
    const id = this.#nextId++;
    const frame = this.frame(method.opcode, id, (output) => {
      output.u32(handle);
      if (method.waits) output.f64(0);
      if (method.isNamed) writeName(output, name?.[0], name?.[1] ?? 0, 0);
      write(output);
    });
    this.send(frame);
    return this.answer(id);
  }

  /** Ends the session, and the connection. */
  async leave(): Promise<void> {
    const id = this.#nextId++;
    this.send(this.frame(Kind.Goodbye, id));
    await this.answer(id);
    this.destroy();
  }

  /** The answer to a call; what ends the connection answers every call. */
  async answer(id: number): Promise<Answer> {
    const isAnswer = ({ kind, id: of }: Frame) =>
      (kind === Kind.Ok && of === id) ||
      (kind === Kind.End && of === id) ||
      (kind === Kind.Failed && (of === id || of === 0));
    await this.until(() => this.frames.some(isAnswer));
    const frame = this.frames.find(isAnswer);
    if (frame === undefined) return { code: "ended", message: "" };
    if (frame.kind === Kind.Ok) return { value: frame.body };
    const error = readValue(new Input(frame.body));
    if (error === undefined) return { value: frame.body };
    return { code: String((error as { code?: unknown }).code), message: (error as Error).message };
  }

  /** Waits until that holds, or the connection is over. */
  async until(condition: () => boolean): Promise<void> {
    while (!condition() && !this.ended) await new Promise<void>((resolve) => this.#wake.push(resolve));
  }

  async toEnd(): Promise<void> {
    await this.until(() => false);
  }

  destroy(): void {
    this.socket.destroy();
  }

  #changed(): void {
    const waiting = this.#wake;
    this.#wake = [];
    for (const wake of waiting) wake();
  }
}

export function codeOf(answer: Answer): string | undefined {
  return "code" in answer ? answer.code : undefined;
}
