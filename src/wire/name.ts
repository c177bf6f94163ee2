/**
 * The name of a call, protocol 1: what tells a repeated call from a new one. Spec: docs/protocol.md
 *
 *   u8 0: none
 *      1: of this client, whose id is the producer;  u64 sequence, u64 settled
 *      2: its caller's own;  16 bytes producer, u64 sequence, u64 settled
 */

import { CallName, type Producer } from "../api/call-name.js";
import type { RequestIdentity } from "../api/contract.js";
import { ID_BYTES } from "./hello.js";
import { type Input, malformed } from "./input.js";
import type { Output } from "./output.js";

const NONE = 0;
const CLIENT = 1;
const OTHER = 2;

/** @param producer undefined: this client */
export function writeName(output: Output, producer: Uint8Array | undefined, sequence: number, settled: number): void {
  if (sequence === 0) {
    output.u8(NONE);
    return;
  }
  output.u8(producer === undefined ? CLIENT : OTHER);
  if (producer !== undefined) output.raw(producer);
  output.u64(sequence);
  output.u64(settled);
}

/** Those who make calls. */
export interface Producers {
  /** @param id that a call gives; undefined: its client's own */
  producerOf(id: Uint8Array | undefined): Producer;
}

export function readName(input: Input, producers: Producers): RequestIdentity | undefined {
  const whose = input.u8();
  if (whose === NONE) return undefined;
  if (whose !== CLIENT && whose !== OTHER) throw malformed("a name that is none");
  const from = producers.producerOf(whose === CLIENT ? undefined : Buffer.from(input.raw(ID_BYTES)));
  const sequence = input.u64();
  const settled = input.u64();
  // What is no name is the contract's to refuse.
  return CallName.of(from, sequence, settled) ?? { producer: from.bytes, sequence, settled };
}
