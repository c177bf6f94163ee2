/**
 * Reading from sockets without a new buffer for every packet.
 *
 * Node allocates 64 KiB for each read of a socket, of which an ordinary request needs a hundred bytes. Clients can be given
 * one buffer to read into (`onread` of `net.connect`, documented); the sockets of a server are made without asking. This
 * gives them what `onread` would have: the same two properties, and the same call to the handle. Where a version of Node
 * keeps them elsewhere, the socket is read as usual.
 *
 * One buffer serves all sockets: the event loop reads one of them and hands out what it read before it reads the next.
 */

import { Socket } from "node:net";
import type { BusyPoll } from "./busy-poll.js";

/** What a Unix socket holds on Linux fits: a large batch comes in one read. */
const READ_BYTES = 256 * 1024;

interface LendingSocket {
  [property: symbol]: unknown;
  readonly _handle?: { readonly useUserBuffer?: (buffer: Buffer) => void } | null;
}

const lent = Buffer.allocUnsafeSlow(READ_BYTES);
const ownSymbols = Object.getOwnPropertySymbols(new Socket());
const BUFFER = ownSymbols.find(({ description }) => description === "kBuffer");
const CALLBACK = ownSymbols.find(({ description }) => description === "kBufferCb");

/**
 * Has everything that arrives at a socket, of which nothing has been read yet, given to `take`.
 * @param take gets bytes that are lent to it until it returns
 * @param busyPoll is told of each read
 */
export function receive(socket: Socket, take: (bytes: Buffer) => void, busyPoll?: BusyPoll): void {
  const lending = socket as unknown as LendingSocket;
  const handle = lending._handle;
  // Only plain sockets: what TLS decrypts does not come straight from the handle.
  if (
    socket.constructor !== Socket ||
    BUFFER === undefined ||
    CALLBACK === undefined ||
    handle?.useUserBuffer === undefined
  ) {
    socket.on("data", (bytes: Buffer) => {
      busyPoll?.arrived();
      take(bytes);
    });
    return;
  }
  lending[BUFFER] = lent;
  lending[CALLBACK] = (bytes: number, buffer: Buffer) => {
    busyPoll?.arrived();
    take(buffer.subarray(0, bytes));
    return true;
  };
  handle.useUserBuffer(lent);
}
