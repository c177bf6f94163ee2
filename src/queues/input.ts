import type { Codec } from "../api/codec.js";
import type { Headers, Input } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import { InputParser } from "../api/input.js";
import type { Payloads } from "../api/put-each.js";
import { formatBytes } from "../api/units.js";
import type { Engine } from "../engine/engine.js";
import { type RecordParts, recordBytesMax } from "../storage/batch.js";

/** Turns what callers pass into the parts of a record, and checks its size. */
export class InputReader<I> {
  readonly #parser: InputParser<I>;
  readonly #payloadBytesMax: number;

  constructor(codec: Codec<I, unknown>, payloadBytesMax: number) {
    this.#parser = new InputParser(codec);
    this.#payloadBytesMax = payloadBytesMax;
  }

  /**
   * @param key, headers from the call's options; a message's own come first
   * @throws VarveError `ERR_ENCODE`, `ERR_TOO_LARGE`, `ERR_OPTION`
   */
  read(input: Input<I>, key: string | Uint8Array | undefined, headers: Headers | undefined): RecordParts {
    const parts: RecordParts = { payload: "", key, headers, attributes: undefined };
    this.#parser.parse(input, parts);
    const { length } = parts.payload;
    // A string's length in characters bounds its bytes from both sides; only in between is it counted.
    if (length > this.#payloadBytesMax || (typeof parts.payload === "string" && length * 3 > this.#payloadBytesMax)) {
      const bytes = Buffer.byteLength(parts.payload);
      if (bytes > this.#payloadBytesMax) throw tooLarge(bytes, this.#payloadBytesMax);
    }
    return parts;
  }
}

function tooLarge(bytes: number, limit: number): VarveError {
  return new VarveError(
    "ERR_TOO_LARGE",
    `the payload has ${bytes} bytes (${formatBytes(bytes)}); the limit is ${limit} (${formatBytes(limit)}). ` +
      "Store large objects elsewhere and enqueue their address, or raise maxMessageBytes.",
    { details: { size: bytes, limit } },
  );
}

/** @throws VarveError `ERR_TOO_LARGE`, which nobody is told: each of the calls is then made by itself */
export function checkPayloads({ starts, ends }: Payloads, bytesMax: number): void {
  for (let index = 0; index < starts.length; index++) {
    if (ends[index]! - starts[index]! > bytesMax) throw new VarveError("ERR_TOO_LARGE", "one of several is too large");
  }
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
