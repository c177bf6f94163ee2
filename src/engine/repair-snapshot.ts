/** Reads snapshots that are damaged. */

import { VarveError } from "../api/errors.js";
import { getU32, putU32 } from "../api/integers.js";
import { crc32 } from "../storage/crc32.js";
import { decodeSnapshot, type Snapshot } from "../storage/snapshot.js";

/** Magic and checksum stand before what the checksum covers. */
const COVERED_FROM = 12;
const TABLE_BYTES_AT = 76;
const TABLE_AT = 80;

/**
 * The snapshot in a file, also when its magic or a single byte of its header and table is damaged: a checksum tells which
 * byte that was, and what it was, and the checksums of the bodies confirm it. Undefined when more than that is damaged.
 */
export function salvageSnapshot(
  bytes: Buffer,
): { readonly snapshot: Snapshot; readonly corrected: boolean } | undefined {
  const sound = decodeSnapshot(bytes);
  if (typeof sound !== "string") return { snapshot: sound, corrected: false };
  if (bytes.length < TABLE_AT) return undefined;
  const copy = Buffer.from(bytes);
  copy.write("VARVSNAP", 0, "latin1");
  refuseNewer(copy);
  for (const attempt of corrections(copy)) {
    const snapshot = decodeSnapshot(attempt);
    if (typeof snapshot !== "string" && fits(snapshot, attempt)) return { snapshot, corrected: true };
  }
  return undefined;
}

/** A version that is not known, under a checksum that matches, is no damage. */
function refuseNewer(buffer: Buffer): void {
  const end = TABLE_AT + getU32(buffer, TABLE_BYTES_AT);
  if (end > buffer.length || crc32(buffer, COVERED_FROM, end) !== getU32(buffer, 8)) return;
  const reason = decodeSnapshot(buffer);
  if (typeof reason !== "string" || !reason.includes("version")) return;
  throw new VarveError(
    "ERR_FORMAT_VERSION",
    `the snapshot cannot be repaired: ${reason}. Use a newer version of varve.`,
  );
}

/** True when every body but one at most matches its checksum, and together they end with the file. */
function fits(snapshot: Snapshot, buffer: Buffer): boolean {
  const { sections } = snapshot;
  const last = sections[sections.length - 1]?.body;
  if (last === undefined) return true;
  const ends = last.byteOffset + last.length === buffer.byteOffset + buffer.length;
  const damaged = sections.filter(({ intact }) => !intact).length;
  return ends && (damaged === 0 || (damaged === 1 && sections.length > 2));
}

/** The buffer as it may have been: as it is, with one byte of header and table changed, or with its checksum changed. */
function* corrections(buffer: Buffer): Generator<Buffer> {
  yield buffer;
  // The length of the table says what the checksum covers, so it is tried by itself.
  for (let at = TABLE_BYTES_AT; at < TABLE_AT; at++) {
    const good = buffer[at]!;
    for (let byte = 0; byte < 256; byte++) {
      buffer[at] = byte;
      if (TABLE_AT + getU32(buffer, TABLE_BYTES_AT) <= buffer.length) yield buffer;
    }
    buffer[at] = good;
  }
  const end = TABLE_AT + getU32(buffer, TABLE_BYTES_AT);
  if (end > buffer.length) return;
  for (const { position, change } of wrongBytes(buffer, COVERED_FROM, end, getU32(buffer, 8))) {
    buffer[position]! ^= change;
    yield buffer;
    buffer[position]! ^= change;
  }
  // Not a byte under the checksum: is it the checksum?
  const stored = getU32(buffer, 8);
  const actual = crc32(buffer, COVERED_FROM, end);
  const differing = [0, 8, 16, 24].filter((shift) => (((stored ^ actual) >>> shift) & 0xff) !== 0);
  if (differing.length !== 1) return;
  putU32(buffer, 8, actual);
  yield buffer;
  putU32(buffer, 8, stored);
}

/** The single bytes, and what must be flipped in them, with which the checksum of a stretch would be the given one. */
function* wrongBytes(
  buffer: Buffer,
  start: number,
  end: number,
  crc: number,
): Generator<{ position: number; change: number }> {
  const { effects, bits, backwards } = tables();
  // What a wrong byte does to the checksum, taken back by one byte behind it at a time.
  let difference = crc32(buffer, start, end) ^ crc;
  for (let position = end - 1; position >= start; position--) {
    const change = bits.get(difference >>> 0);
    if (change !== undefined) yield { position, change };
    const byte = backwards[difference >>> 24]!;
    difference = ((difference ^ effects[byte]!) << 8) | byte;
  }
}

interface Tables {
  /** What flipping bits of the last byte changes in a checksum, by those bits. */
  readonly effects: Uint32Array;
  /** The bits, by the effect. */
  readonly bits: ReadonlyMap<number, number>;
  /** The bits, by the highest byte of the effect. */
  readonly backwards: Uint8Array;
}

let known: Tables | undefined;

function tables(): Tables {
  if (known !== undefined) return known;
  const effects = new Uint32Array(256);
  const bits = new Map<number, number>();
  const backwards = new Uint8Array(256);
  for (let byte = 0; byte < 256; byte++) {
    const pair = Buffer.from([0, byte]);
    const effect = (crc32(pair, 0, 1) ^ crc32(pair, 1, 2)) >>> 0;
    effects[byte] = effect;
    backwards[effect >>> 24] = byte;
    if (byte > 0) bits.set(effect, byte);
  }
  known = { effects, bits, backwards };
  return known;
}
