import { createRequire } from "node:module";
import { crc32 as zlibCrc32 } from "node:zlib";

type NativeCrc32 = (bytes: Uint8Array, seed?: number) => number;

/**
 * CRC-32 (IEEE 802.3, the one of zlib and PNG). Short inputs are summed here, eight bytes at a time ("slicing by 8"),
 * because a native call costs as much as summing some hundred bytes; longer ones go to the optional package
 * @node-rs/crc32, which uses the processor's carry-less multiplication (about three times zlib's speed), or else to
 * zlib. All give the same value, so which one is used is free to change.
 */
const nativeCrc32: NativeCrc32 = loadOptional() ?? zlibCrc32;

function loadOptional(): NativeCrc32 | undefined {
  try {
    const { crc32: optional } = createRequire(import.meta.url)("@node-rs/crc32") as { crc32: NativeCrc32 };
    const check = new TextEncoder().encode("123456789");
    return optional(check, 0) === 0xcbf43926 ? optional : undefined;
  } catch {
    return undefined; // not installed, or not for this platform
  }
}

const NATIVE_FROM_BYTES = 256;

/** TABLES[256 * k + b]: the effect of byte b followed by k zero bytes. */
const TABLES = buildTables();

function buildTables(): Uint32Array {
  const tables = new Uint32Array(8 * 256);
  for (let byte = 0; byte < 256; byte++) {
    let crc = byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
    tables[byte] = crc;
  }
  for (let i = 256; i < tables.length; i++) {
    const previous = tables[i - 256]!;
    tables[i] = (previous >>> 8) ^ tables[previous & 0xff]!;
  }
  return tables;
}

/**
 * The CRC-32 of bytes `start` to `end` (exclusive) as an unsigned integer. `seed` is the CRC of what came before, so
 * that crc32(b, m, n, crc32(b, 0, m)) equals crc32(b, 0, n).
 */
export function crc32(buffer: Uint8Array, start: number, end: number, seed = 0): number {
  if (end - start >= NATIVE_FROM_BYTES) return nativeCrc32(buffer.subarray(start, end), seed);
  return crc32InScript(buffer, start, end, seed);
}

/** Exported for the test that holds it against zlib's at every length. */
export function crc32InScript(buffer: Uint8Array, start: number, end: number, seed: number): number {
  let crc = ~seed;
  let i = start;
  for (const stop = end - 7; i < stop; i += 8) {
    crc ^= buffer[i]! | (buffer[i + 1]! << 8) | (buffer[i + 2]! << 16) | (buffer[i + 3]! << 24);
    crc =
      TABLES[1792 + (crc & 0xff)]! ^
      TABLES[1536 + ((crc >>> 8) & 0xff)]! ^
      TABLES[1280 + ((crc >>> 16) & 0xff)]! ^
      TABLES[1024 + (crc >>> 24)]! ^
      TABLES[768 + buffer[i + 4]!]! ^
      TABLES[512 + buffer[i + 5]!]! ^
      TABLES[256 + buffer[i + 6]!]! ^
      TABLES[buffer[i + 7]!]!;
  }
  for (; i < end; i++) crc = (crc >>> 8) ^ TABLES[(crc ^ buffer[i]!) & 0xff]!;
  return ~crc >>> 0;
}
