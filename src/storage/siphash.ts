/**
 * SipHash-2-4 with 128 bits (Aumasson, Bernstein), keyed: who chooses the input cannot choose its collisions. In 32-bit
 * halves, as 64-bit integers are slow in JavaScript.
 */

/** Four 64-bit words, the low half of each first. */
const v = new Int32Array(8);

/** Hashes bytes into four 32-bit words, in the order of the specification's 16 bytes. */
export function sipHash128(key: Uint32Array, bytes: Uint8Array, out: Uint32Array): void {
  const [k0, k1, k2, k3] = key as unknown as readonly [number, number, number, number];
  v[0] = k0 ^ 0x70736575;
  v[1] = k1 ^ 0x736f6d65;
  v[2] = k2 ^ 0x6e646f6d ^ 0xee;
  v[3] = k3 ^ 0x646f7261;
  v[4] = k0 ^ 0x6e657261;
  v[5] = k1 ^ 0x6c796765;
  v[6] = k2 ^ 0x79746573;
  v[7] = k3 ^ 0x74656462;
  const { length } = bytes;
  const whole = length - (length % 8);
  for (let at = 0; at < whole; at += 8) word(load(bytes, at, 4), load(bytes, at + 4, 4));
  const rest = length - whole;
  const low = load(bytes, whole, Math.min(4, rest));
  const high = rest > 4 ? load(bytes, whole + 4, rest - 4) : 0;
  word(low, high | (length << 24));
  v[4]! ^= 0xee;
  for (let index = 0; index < 4; index++) round();
  out[0] = v[0]! ^ v[2]! ^ v[4]! ^ v[6]!;
  out[1] = v[1]! ^ v[3]! ^ v[5]! ^ v[7]!;
  v[2]! ^= 0xdd;
  for (let index = 0; index < 4; index++) round();
  out[2] = v[0]! ^ v[2]! ^ v[4]! ^ v[6]!;
  out[3] = v[1]! ^ v[3]! ^ v[5]! ^ v[7]!;
}

function load(bytes: Uint8Array, at: number, length: number): number {
  let value = 0;
  for (let index = 0; index < length; index++) value |= bytes[at + index]! << (8 * index);
  return value;
}

function word(low: number, high: number): void {
  v[6]! ^= low;
  v[7]! ^= high;
  round();
  round();
  v[0]! ^= low;
  v[1]! ^= high;
}

function round(): void {
  let v0l = v[0]!;
  let v0h = v[1]!;
  let v1l = v[2]!;
  let v1h = v[3]!;
  let v2l = v[4]!;
  let v2h = v[5]!;
  let v3l = v[6]!;
  let v3h = v[7]!;
  let low: number;

  low = (v0l + v1l) | 0;
  v0h = (v0h + v1h + (low >>> 0 < v0l >>> 0 ? 1 : 0)) | 0;
  v0l = low;
  low = (v1l << 13) | (v1h >>> 19);
  v1h = (v1h << 13) | (v1l >>> 19);
  v1l = low ^ v0l;
  v1h ^= v0h;
  low = v0l;
  v0l = v0h;
  v0h = low;

  low = (v2l + v3l) | 0;
  v2h = (v2h + v3h + (low >>> 0 < v2l >>> 0 ? 1 : 0)) | 0;
  v2l = low;
  low = (v3l << 16) | (v3h >>> 16);
  v3h = (v3h << 16) | (v3l >>> 16);
  v3l = low ^ v2l;
  v3h ^= v2h;

  low = (v0l + v3l) | 0;
  v0h = (v0h + v3h + (low >>> 0 < v0l >>> 0 ? 1 : 0)) | 0;
  v0l = low;
  low = (v3l << 21) | (v3h >>> 11);
  v3h = (v3h << 21) | (v3l >>> 11);
  v3l = low ^ v0l;
  v3h ^= v0h;

  low = (v2l + v1l) | 0;
  v2h = (v2h + v1h + (low >>> 0 < v2l >>> 0 ? 1 : 0)) | 0;
  v2l = low;
  low = (v1l << 17) | (v1h >>> 15);
  v1h = (v1h << 17) | (v1l >>> 15);
  v1l = low ^ v2l;
  v1h ^= v2h;
  low = v2l;
  v2l = v2h;
  v2h = low;

  v[0] = v0l;
  v[1] = v0h;
  v[2] = v1l;
  v[3] = v1h;
  v[4] = v2l;
  v[5] = v2h;
  v[6] = v3l;
  v[7] = v3h;
}
