/** A connection that has come about, handshake included. */

import { createConnection as connectPlain, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { isVarveError, VarveError } from "../api/errors.js";
import { type FrameHandler, FrameParser, Kind, PREAMBLE } from "../wire/frame.js";
import { type Hello, readWelcome, type Welcome, writeHello } from "../wire/hello.js";
import { Output } from "../wire/output.js";
import { formatTarget, type Target } from "../wire/target.js";
import { readValue } from "../wire/value.js";
import type { DialTlsOptions } from "./options.js";

/** Of an answer. */
const ANSWER_BYTES_MAX = 2 ** 30;

/** What plain sockets are read into: one after another, so that one buffer serves all. */
const arriving: Buffer = Buffer.allocUnsafeSlow(256 * 1024);

/** What is told of a connection once it stands. */
export interface Listener extends FrameHandler {
  arrived(): void;
  /** @param error what ended it, if anything did */
  closed(error: Error | undefined): void;
}

export interface Connected {
  readonly socket: Socket;
  readonly welcome: Welcome;
  /** Frames that arrive go there from now on. */
  hand(listener: Listener): void;
}

/**
 * @throws VarveError `ERR_DISCONNECTED` (nobody there, or no answer in time), `ERR_PROTOCOL`, `ERR_UNAUTHENTICATED`, and
 * whatever else the server refuses with
 */
export function connect(
  target: Target,
  tls: DialTlsOptions | undefined,
  hello: Hello,
  timeoutMs: number,
): Promise<Connected> {
  return new Promise((resolve, reject) => {
    let listener: Listener | undefined;
    let cause: Error | undefined;
    let settled = false;
    const take = (piece: Buffer) => {
      try {
        listener?.arrived();
        parser.push(piece);
      } catch (error) {
        refuse(error as Error);
      }
    };
    const socket = open(target, tls, take);
    const refuse = (error: Error) => {
      cause ??= error;
      socket.destroy();
    };
    const timer = setTimeout(() => refuse(new Error(`no connection within ${timeoutMs} ms`)), timeoutMs);
    const first: FrameHandler = {
      frame(kind, id, body) {
        if (listener !== undefined) return listener.frame(kind, id, body);
        if (kind === Kind.Failed) {
          const error = readValue(body);
          refuse(isVarveError(error) ? error : new VarveError("ERR_PROTOCOL", String(error)));
          return false;
        }
        if (kind !== Kind.Ok) throw new VarveError("ERR_PROTOCOL", "the daemon did not answer the handshake");
        const welcome = readWelcome(body);
        clearTimeout(timer);
        settled = true;
        resolve({
          socket,
          welcome,
          hand: (to) => {
            listener = to;
            socket.resume();
            parser.resume();
          },
        });
        // What follows waits for the listener.
        socket.pause();
        return false;
      },
    };
    const parser = new FrameParser(first, ANSWER_BYTES_MAX, false, "pieces");
    socket.once(target.scheme === "tls" ? "secureConnect" : "connect", () => {
      const output = new Output(ANSWER_BYTES_MAX);
      output.begin(Kind.Hello, 0);
      writeHello(output, hello);
      output.end();
      socket.write(Buffer.concat([PREAMBLE, ...output.take()]));
    });
    socket.on("error", (error) => {
      cause ??= error;
    });
    socket.on("close", () => {
      clearTimeout(timer);
      if (settled) listener?.closed(cause);
      else reject(isVarveError(cause) ? cause : unreachable(target, cause));
    });
  });
}

/** @param take gets what arrives, which is lent to it until it returns */
function open(target: Target, tls: DialTlsOptions | undefined, take: (piece: Buffer) => void): Socket {
  const onread = {
    buffer: arriving,
    callback: (bytes: number) => {
      take(arriving.subarray(0, bytes));
      return true;
    },
  };
  if (!("port" in target)) return connectPlain({ path: target.path, onread });
  const { host, port } = target;
  if (target.scheme === "tcp") return connectPlain({ host, port, noDelay: true, onread });
  // A name to expect, which an address is not.
  const servername = isIP(host) === 0 ? { servername: host } : {};
  const socket = connectTls({ ...servername, ...tls, host, port, minVersion: "TLSv1.2" });
  socket.setNoDelay(true);
  socket.on("data", take);
  return socket;
}

export function unreachable(target: Target | undefined, cause: Error | undefined): VarveError {
  const why = cause === undefined ? "the connection was closed" : cause.message;
  return new VarveError(
    "ERR_DISCONNECTED",
    `no connection to the daemon${target === undefined ? "" : ` at ${formatTarget(target)}`}: ${why}`,
    cause === undefined ? {} : { cause },
  );
}
