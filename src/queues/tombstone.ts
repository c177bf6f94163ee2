import type { RecordCursor } from "../storage/batch.js";

/** The attributes of a tombstone; other records of a log have none. On disk. */
export const TOMBSTONE = Uint8Array.of(1);

export function isTombstone(record: RecordCursor): boolean {
  const attributes = record.attributes();
  return attributes !== undefined && attributes.length > 0 && (attributes[0]! & 1) !== 0;
}
