import type { BatchesOptions, LogRecord } from "./contract.js";

/** What a log may have besides the contract, for those who copy at once what they are given: a server does. */
export const LEND_BATCHES: unique symbol = Symbol("varve.lendBatches");

export interface LendingLog {
  /**
   * As `batches`. What the records hold is lent to `take` until it returns; what it promises is waited for before it is given
   * more. Resolves at the end, or once `take` has come to `false`.
   * @param bytesMax of payload that is given at once, about, where the options would have more
   */
  [LEND_BATCHES](
    options: BatchesOptions,
    bytesMax: number,
    take: (records: readonly LogRecord[]) => boolean | Promise<boolean>,
  ): Promise<void>;
}
