/** The names of calls that may be repeated. They are checked once, where they come in. */

import type { RequestIdentity } from "./contract.js";

export const PRODUCER_BYTES = 16;

/** Who makes calls that may be repeated. */
export class Producer {
  readonly bytes: Uint8Array;
  /** The bytes as a string of Latin-1, which tables are kept by. */
  readonly text: string;

  /** @param bytes PRODUCER_BYTES of them, which stay as they are */
  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
    this.text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("latin1");
  }
}

/** A name that is one: nothing about it needs to be checked again. */
export class CallName implements RequestIdentity {
  readonly from: Producer;
  readonly sequence: number;
  readonly settled: number;
  readonly each: boolean;

  private constructor(from: Producer, sequence: number, settled: number, each: boolean) {
    this.from = from;
    this.sequence = sequence;
    this.settled = settled;
    this.each = each;
  }

  get producer(): Uint8Array {
    return this.from.bytes;
  }

  /** Of the call with this index, of several in a batch. */
  at(index: number): CallName {
    return new CallName(this.from, this.sequence + index, this.settled, false);
  }

  /** Undefined where the numbers are none that a call can have. */
  static of(from: Producer, sequence: number, settled: number, each = false): CallName | undefined {
    const isOne = Number.isSafeInteger(sequence) && settled >= 0 && settled < sequence && Number.isInteger(settled);
    return isOne ? new CallName(from, sequence, settled, each) : undefined;
  }
}
