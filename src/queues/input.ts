import { bytes, type Codec, text } from "../api/codec.js";
import type { Headers, Input } from "../api/contract.js";
import { isVarveError, VarveError } from "../api/errors.js";
import { Message } from "../api/message.js";
import { checkMessageHeaders, checkMessageKey } from "../api/options.js";
import { formatBytes } from "../api/units.js";
import type { Engine } from "../engine/engine.js";
import { type RecordParts, recordBytesMax } from "../storage/batch.js";

/** Turns what callers pass into the parts of a record, and checks its size. */
export class InputReader<I> {
  readonly #codec: Codec<I, unknown>;
  /** Payloads are strings or bytes, so a plain object can only be a message. */
  readonly #takesObjects: boolean;
  readonly #payloadBytesMax: number;

  constructor(codec: Codec<I, unknown>, payloadBytesMax: number) {
    this.#codec = codec;
    this.#takesObjects = (codec as unknown) === bytes() || (codec as unknown) === text();
    this.#payloadBytesMax = payloadBytesMax;
  }

  /**
   * @param key, headers from the call's options; a message's own come first
   * @throws VarveError `ERR_ENCODE`, `ERR_TOO_LARGE`, `ERR_OPTION`
   */
  read(input: Input<I>, key: string | Uint8Array | undefined, headers: Headers | undefined): RecordParts {
    const parts: RecordParts = { payload: "", key, headers, attributes: undefined };
    let value: unknown = input;
    if (input instanceof Message || (this.#takesObjects && isMessageInit(input))) {
      value = input.payload;
      if (input.key !== undefined) parts.key = checkMessageKey(input.key);
      if (input.headers !== undefined) parts.headers = checkMessageHeaders(input.headers);
    }
    parts.payload = this.#encode(value as I);
    const { length } = parts.payload;
    // A string's length in characters bounds its bytes from both sides; only in between is it counted.
    if (length > this.#payloadBytesMax || (typeof parts.payload === "string" && length * 3 > this.#payloadBytesMax)) {
      const bytes = Buffer.byteLength(parts.payload);
      if (bytes > this.#payloadBytesMax) throw tooLarge(bytes, this.#payloadBytesMax);
    }
    return parts;
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

function tooLarge(bytes: number, limit: number): VarveError {
  return new VarveError(
    "ERR_TOO_LARGE",
    `the payload has ${bytes} bytes (${formatBytes(bytes)}); the limit is ${limit} (${formatBytes(limit)}). ` +
      "Store large objects elsewhere and enqueue their address, or raise maxMessageBytes.",
    { details: { size: bytes, limit } },
  );
}

export function checkBatch(inputs: unknown): void {
  if (!Array.isArray(inputs)) throw new VarveError("ERR_ARGUMENT", "a batch must be an array of messages");
}

/** Makes records their own: a call that waits must not see what its caller does with the arguments meanwhile. */
export function detach(records: readonly RecordParts[]): void {
  for (const record of records) {
    if (typeof record.payload !== "string") record.payload = Buffer.from(record.payload);
    if (record.key !== undefined && typeof record.key !== "string") record.key = Buffer.from(record.key);
    if (record.headers !== undefined) record.headers = { ...record.headers };
  }
}

/**
 * Parks a call until changes are taken again; then runs `stage`, which may throw.
 * @param records of the call, which become its own
 */
export function park(
  engine: Engine,
  bytes: number,
  records: readonly RecordParts[],
  stage: () => void,
  reject: (error: Error) => void,
): void {
  detach(records);
  const run = () => {
    if (engine.stalled) {
      engine.park(bytes, run, reject);
      return;
    }
    try {
      engine.checkOpen();
      stage();
    } catch (error) {
      reject(error as Error);
    }
  };
  engine.park(bytes, run, reject);
}

/** Upper bound for the records of one commit. */
export function totalBytesMax(records: readonly RecordParts[]): number {
  let bytes = 0;
  for (const record of records) bytes += recordBytesMax(record);
  return bytes;
}
