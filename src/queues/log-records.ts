import type { Codec } from "../api/codec.js";
import type { Headers, LogRecord } from "../api/contract.js";
import { isVarveError, VarveError } from "../api/errors.js";
import type { RecordCursor } from "../storage/batch.js";
import type { StreamReader } from "../storage/stream-reader.js";
import type { LogState } from "./log-state.js";
import { isTombstone } from "./tombstone.js";

/** Records of a log as its readers get them. */
export class LogRecords<O> {
  readonly #state: LogState;
  readonly #codec: Codec<never, O>;

  constructor(state: LogState, codec: Codec<never, O>) {
    this.#state = state;
    this.#codec = codec;
  }

  /** What is at hand, up to `max` records and about `maxBytes` of payload, from a time on. */
  take(
    reader: StreamReader,
    max: number,
    maxBytes: number,
    fromTimestamp: number,
  ): { records: LogRecord<O>[]; found: "record" | "end" | "load" } {
    const { record } = reader;
    const records: LogRecord<O>[] = [];
    let bytes = 0;
    for (;;) {
      const position = reader.position;
      let found: "record" | "end" | "load";
      try {
        found = reader.next(this.#state.stream.visible);
        if (found !== "record") return { records, found };
        if (record.timestamp < fromTimestamp) continue;
        records.push(this.record(record, reader.lends || reader.stable ? record.payloadView() : record.payload()));
      } catch (error) {
        // What was read before the damage is given out first; reading on meets it again.
        if (records.length === 0) throw error;
        reader.seek(position);
        return { records, found: "record" };
      }
      bytes += record.end - record.payloadStart;
      if (bytes >= maxBytes || records.length >= max) return { records, found };
    }
  }

  record(record: RecordCursor, payload: Buffer): LogRecord<O> {
    const { offset, timestamp } = record;
    const tombstone = isTombstone(record);
    const decoded = tombstone ? this.#decodeNothing(payload) : this.#decode(offset, payload);
    return new EmbeddedRecord(offset, timestamp, record.key(), record.headers(), decoded, tombstone);
  }

  #decodeNothing(payload: Buffer): O {
    try {
      return this.#codec.decode(payload);
    } catch {
      return undefined as O;
    }
  }

  #decode(offset: number, payload: Buffer): O {
    try {
      return this.#codec.decode(payload);
    } catch (cause) {
      const reason = cause instanceof Error ? cause.message : String(cause);
      throw new VarveError("ERR_DECODE", `record ${offset} of ${this.#state.name} cannot be decoded: ${reason}`, {
        cause: isVarveError(cause) ? cause.cause : cause,
        details: { offset, raw: payload },
      });
    }
  }
}

class EmbeddedRecord<O> implements LogRecord<O> {
  readonly offset: number;
  readonly timestamp: number;
  readonly key: Buffer | undefined;
  readonly headers: Headers;
  readonly payload: O;
  readonly tombstone: boolean;

  constructor(
    offset: number,
    timestamp: number,
    key: Buffer | undefined,
    headers: Headers,
    payload: O,
    tombstone: boolean,
  ) {
    this.offset = offset;
    this.timestamp = timestamp;
    this.key = key;
    this.headers = headers;
    this.payload = payload;
    this.tombstone = tombstone;
  }
}
