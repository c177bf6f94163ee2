/** Records and tasks that came over the wire, as their readers get them. */

import { bytes, type Codec } from "../api/codec.js";
import type { LogRecord } from "../api/contract.js";
import { isVarveError, VarveError } from "../api/errors.js";
import type { WireRecord } from "../wire/layouts.js";

/** @throws VarveError `ERR_DECODE` */
export function decodeRecord<O>(log: string, codec: Codec<never, O>, record: WireRecord): LogRecord<O> {
  if ((codec as unknown) === bytes()) return record as WireRecord<O>;
  const raw = record.payload as Buffer;
  try {
    record.payload = codec.decode(raw);
  } catch (cause) {
    if (record.tombstone) {
      record.payload = undefined;
    } else {
      throw new VarveError("ERR_DECODE", `record ${record.offset} of ${log} cannot be decoded: ${reasonOf(cause)}`, {
        cause: isVarveError(cause) ? cause.cause : cause,
        details: { offset: record.offset, raw },
      });
    }
  }
  return record as WireRecord<O>;
}

/** Records that can be decoded, and those from the first one on that cannot. */
export function decodeRecords<O>(
  log: string,
  codec: Codec<never, O>,
  records: readonly WireRecord[],
): { readonly decoded: LogRecord<O>[]; readonly rest: readonly WireRecord[]; readonly error: unknown } {
  if ((codec as unknown) === bytes()) return { decoded: records as LogRecord<O>[], rest: [], error: undefined };
  const decoded: LogRecord<O>[] = [];
  for (const [index, record] of records.entries()) {
    try {
      decoded.push(decodeRecord(log, codec, record));
    } catch (error) {
      return { decoded, rest: records.slice(index), error };
    }
  }
  return { decoded, rest: [], error: undefined };
}

export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
