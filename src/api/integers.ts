/**
 * Integers as they stand in varve's files and frames: little-endian, whole numbers up to 2^53 - 1. Byte by byte: a call of
 * Buffer's own methods takes several times as long.
 */

const HIGH = 2 ** 32;

export function putU32(buffer: Uint8Array, position: number, value: number): void {
  buffer[position] = value;
  buffer[position + 1] = value >>> 8;
  buffer[position + 2] = value >>> 16;
  buffer[position + 3] = value >>> 24;
}

export function getU32(buffer: Uint8Array, position: number): number {
  return (
    (buffer[position]! |
      (buffer[position + 1]! << 8) |
      (buffer[position + 2]! << 16) |
      (buffer[position + 3]! << 24)) >>>
    0
  );
}

export function putU64(buffer: Uint8Array, position: number, value: number): void {
  putU32(buffer, position, value % HIGH);
  putU32(buffer, position + 4, Math.floor(value / HIGH));
}

/** The value, or NaN when it is beyond 2^53 - 1 and therefore never written by varve. */
export function getU64(buffer: Uint8Array, position: number): number {
  const value = getU32(buffer, position + 4) * HIGH + getU32(buffer, position);
  return value <= Number.MAX_SAFE_INTEGER ? value : Number.NaN;
}
