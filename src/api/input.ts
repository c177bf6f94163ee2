import { bytes, type Codec, text } from "./codec.js";
import type { Headers, Input } from "./contract.js";
import { isVarveError, VarveError } from "./errors.js";
import { Message } from "./message.js";
import { checkMessageHeaders, checkMessageKey } from "./options.js";

/** What becomes of an input: its payload encoded, with its key and headers. */
export interface InputParts {
  payload: string | Uint8Array;
  key: string | Uint8Array | undefined;
  headers: Headers | undefined;
}

/** Takes what callers pass to `append` and `enqueue` apart. */
export class InputParser<I> {
  readonly #codec: Codec<I, unknown>;
  /** Payloads are strings or bytes, so a plain object can only be a message. */
  readonly #takesObjects: boolean;

  constructor(codec: Codec<I, unknown>) {
    this.#codec = codec;
    this.#takesObjects = (codec as unknown) === bytes() || (codec as unknown) === text();
  }

  /**
   * Fills in the payload, and the key and headers of a message over those that are there.
   * @throws VarveError `ERR_ENCODE`, `ERR_OPTION`
   */
  parse(input: Input<I>, parts: InputParts): void {
    let value: unknown = input;
    if (input instanceof Message || (this.#takesObjects && isMessageInit(input))) {
      value = input.payload;
      if (input.key !== undefined) parts.key = checkMessageKey(input.key);
      if (input.headers !== undefined) parts.headers = checkMessageHeaders(input.headers);
    }
    parts.payload = this.#encode(value as I);
  }

  #encode(value: I): string | Uint8Array {
    let encoded: unknown;
    try {
      encoded = this.#codec.encode(value);
    } catch (cause) {
      if (isVarveError(cause)) throw cause;
      const reason = cause instanceof Error ? cause.message : String(cause);
      throw new VarveError("ERR_ENCODE", `the codec ${this.#codec.name} cannot encode the payload: ${reason}`, {
        cause,
      });
    }
    if (typeof encoded === "string" || encoded instanceof Uint8Array) return encoded;
    throw new VarveError("ERR_ENCODE", `the codec ${this.#codec.name} must encode to a string or a Uint8Array`);
  }
}

/** A plain `{ payload, key?, headers? }`. */
function isMessageInit(input: unknown): input is { payload: unknown; key?: string; headers?: Headers } {
  if (typeof input !== "object" || input === null || input instanceof Uint8Array || !("payload" in input)) return false;
  for (const name of Object.keys(input)) {
    if (name !== "payload" && name !== "key" && name !== "headers") {
      throw new VarveError(
        "ERR_OPTION",
        `a message has payload, key and headers; ${JSON.stringify(name)} is not known`,
      );
    }
  }
  return true;
}

/** @throws VarveError `ERR_ARGUMENT` */
export function checkBatch(inputs: unknown): void {
  if (!Array.isArray(inputs)) throw new VarveError("ERR_ARGUMENT", "a batch must be an array of messages");
}

/** @throws VarveError `ERR_OPTION` */
export function checkDedupeKeys(keys: readonly unknown[] | undefined, inputs: readonly unknown[]): void {
  if (keys === undefined || keys.length === inputs.length) return;
  throw new VarveError(
    "ERR_OPTION",
    `dedupeKeys must have one entry for each input; got ${keys.length} for ${inputs.length}`,
    { details: { option: "dedupeKeys" } },
  );
}
