/**
 * Buffers for large frames, which are used again and again: a fresh one costs its page faults, and has the garbage collected
 * that much sooner. One that is not given back is garbage like any other.
 */

/** Longest frame that fits one. */
export const LARGE_BYTES = 256 * 1024;
/** Kept for reuse in a process. Of each, only what has been written to is resident. */
const FREE_MAX = 16;

const free: Buffer[] = [];
/** Those that are in use, by their memory: views of them are given back. */
const inUse = new WeakMap<ArrayBufferLike, Buffer>();

/** LARGE_BYTES, until they are given back. */
export function takeLarge(): Buffer {
  const buffer = free.pop() ?? Buffer.allocUnsafeSlow(LARGE_BYTES);
  inUse.set(buffer.buffer, buffer);
  return buffer;
}

/** Whether it is a view of one that has not been given back. */
export function isLarge({ buffer: memory }: Buffer): boolean {
  return inUse.has(memory);
}

/** Takes a buffer back to which nothing refers any more, by a view of it. Views of anything else are left alone. */
export function giveLarge({ buffer: memory }: Buffer): void {
  const buffer = inUse.get(memory);
  if (buffer === undefined) return;
  inUse.delete(memory);
  if (free.length < FREE_MAX) free.push(buffer);
}
