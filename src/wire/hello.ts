/**
 * The handshake, protocol 1. Spec: docs/protocol.md
 *
 * Hello, from the client:                       Ok, from the server:
 *   u16 first and u16 last version it speaks      u16 version that is spoken from here on
 *   u32 features                                  u32 features, those of both
 *   16 bytes client id                            16 bytes session id
 *   16 bytes session id, zeros for a new one      u8  1: the session goes on, with its handles
 *   u64 deliveries received in that session       u32 longest frame that the server takes
 *   name, token: u32 length and UTF-8             name and version of the server, as above
 */

import type { Input } from "./input.js";
import type { Output } from "./output.js";

export const ID_BYTES = 16;
export const NEW_SESSION: Uint8Array = new Uint8Array(ID_BYTES);

/** Bits. */
export const Feature = {
  /** The server knows a call that is repeated by its name. */
  identity: 1,
} as const;

export interface Hello {
  readonly versionMin: number;
  readonly versionMax: number;
  readonly features: number;
  /** Names the client for as long as it lives, over all its connections: its producer id. */
  readonly clientId: Uint8Array;
  readonly sessionId: Uint8Array;
  /** Answers of `dequeue` that have arrived in the session. Those that were sent beyond that are lost. */
  readonly received: number;
  /** For people. */
  readonly name: string;
  /** Empty: none. */
  readonly token: string;
}

export interface Welcome {
  readonly version: number;
  readonly features: number;
  readonly sessionId: Uint8Array;
  readonly resumed: boolean;
  readonly frameBytesMax: number;
  readonly server: string;
}

export function writeHello(output: Output, hello: Hello): void {
  output.u16(hello.versionMin);
  output.u16(hello.versionMax);
  output.u32(hello.features);
  output.raw(hello.clientId);
  output.raw(hello.sessionId);
  output.u64(hello.received);
  output.data(hello.name);
  output.data(hello.token);
}

/** @throws VarveError `ERR_PROTOCOL` */
export function readHello(input: Input): Hello {
  // What follows belongs to later versions.
  return {
    versionMin: input.u16(),
    versionMax: input.u16(),
    features: input.u32(),
    clientId: Buffer.from(input.raw(ID_BYTES)),
    sessionId: Buffer.from(input.raw(ID_BYTES)),
    received: input.u64(),
    name: input.string(),
    token: input.string(),
  };
}

export function writeWelcome(output: Output, welcome: Welcome): void {
  output.u16(welcome.version);
  output.u32(welcome.features);
  output.raw(welcome.sessionId);
  output.u8(welcome.resumed ? 1 : 0);
  output.u32(welcome.frameBytesMax);
  output.data(welcome.server);
}

/** @throws VarveError `ERR_PROTOCOL` */
export function readWelcome(input: Input): Welcome {
  return {
    version: input.u16(),
    features: input.u32(),
    sessionId: Buffer.from(input.raw(ID_BYTES)),
    resumed: input.u8() !== 0,
    frameBytesMax: input.u32(),
    server: input.string(),
  };
}
