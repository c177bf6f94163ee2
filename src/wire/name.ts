/**
 * The name of a call, protocol 1: what tells a repeated call from a new one. Spec: docs/protocol.md
 *
 *   u8 0: none
 *      1: of this client, whose id is the producer;  u64 sequence, u64 settled
 *      2: its caller's own;  16 bytes producer, u64 sequence, u64 settled
 */

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

/** @param producerOf who makes the call, by the id that it gives; undefined: its client's own */
export function readName(
  input: Input,
  producerOf: (id: Uint8Array | undefined) => Uint8Array,
): RequestIdentity | undefined {
  const whose = input.u8();
  if (whose === NONE) return undefined;
  if (whose !== CLIENT && whose !== OTHER) throw malformed("a name that is none");
  const producer = producerOf(whose === CLIENT ? undefined : input.raw(ID_BYTES));
  return { producer, sequence: input.u64(), settled: input.u64() };
}
