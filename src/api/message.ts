import type { Headers } from "./contract.js";

/**
 * A payload with its key and headers. `message()` makes one; where a queue has a codec this is the only form that
 * carries a key, so that a payload which happens to look like `{ payload, key }` is never mistaken for one.
 */
export class Message<I> {
  readonly payload: I;
  readonly key: string | Uint8Array | undefined;
  readonly headers: Headers | undefined;
  /** Makes the type nominal: no plain object passes for a Message. */
  readonly #brand = true;

  constructor(payload: I, options: MessageOptions = {}) {
    this.payload = payload;
    this.key = options.key;
    this.headers = options.headers;
    void this.#brand;
  }
}

export interface MessageOptions {
  readonly key?: string | Uint8Array | undefined;
  readonly headers?: Headers | undefined;
}

/** Wraps a payload together with its key and headers for `append`, `appendBatch`, `enqueue` and `enqueueBatch`. */
export function message<I>(payload: I, options?: MessageOptions): Message<I> {
  return new Message(payload, options);
}
