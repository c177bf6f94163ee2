/** Up to so many, a loop is faster than the runtime's copy, which is a native call and makes a view of them. */
const LOOP_BYTES_MAX = 128;

/** Copies the bytes from `start` to `end`, most of the time few, to where they are wanted. */
export function copyBytes(from: Buffer, start: number, end: number, to: Buffer, at: number): void {
  if (end - start > LOOP_BYTES_MAX) {
    from.copy(to, at, start, end);
    return;
  }
  for (let index = start; index < end; index++) to[at + index - start] = from[index]!;
}
