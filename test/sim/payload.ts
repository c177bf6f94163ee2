import { SimRandom } from "./sim-random.js";

/** Largest filling: what stands behind the number and the size. */
const FILLING_BYTES_MAX = 96 * 1024;
const NOISE_BYTES = 2 * FILLING_BYTES_MAX;

const noise = new Uint8Array(NOISE_BYTES);
new SimRandom(0x7661_7276).fill(noise);

/** The one payload of a number and a size: `number:size:` and noise that depends on both. */
export function payloadOf(item: number, size: number): Buffer {
  const start = fillingStart(item, size);
  return Buffer.concat([Buffer.from(`${item}:${size}:`), noise.subarray(start, start + size)]);
}

function fillingStart(item: number, size: number): number {
  return (item * 7919 + size) % (NOISE_BYTES - FILLING_BYTES_MAX);
}

/** The number of a payload that is byte for byte what was sent under that number; undefined for anything else. */
export function itemOf(payload: Buffer): number | undefined {
  const match = /^(\d{1,15}):(\d{1,6}):/.exec(payload.toString("latin1", 0, 24));
  if (match === null) return undefined;
  const item = Number(match[1]);
  const size = Number(match[2]);
  const prefixBytes = match[0].length;
  if (size > FILLING_BYTES_MAX || payload.length !== prefixBytes + size) return undefined;
  // `payloadOf` writes a number in one way only.
  if (match[0] !== `${item}:${size}:`) return undefined;
  const start = fillingStart(item, size);
  return payload.compare(noise, start, start + size, prefixBytes) === 0 ? item : undefined;
}
