/** Small indexes over times and offsets, built once and asked often. */

/** The first index from which on `values`, which rise, are at least `bound`. */
export function firstFrom(values: readonly number[], bound: number): number {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((values[middle] as number) < bound) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** How many of `values`, which rise, are below `bound`. */
export const countBelow = firstFrom;

export function sorted(values: Iterable<number>): number[] {
  return [...values].sort((a, b) => a - b);
}

/** The largest of the values that belong to a time before another. */
export class LargestBefore {
  readonly #times: number[] = [];
  readonly #largest: number[] = [];

  constructor(pairs: readonly (readonly [time: number, value: number])[]) {
    let largest = Number.NEGATIVE_INFINITY;
    for (const [time, value] of [...pairs].sort((a, b) => a[0] - b[0])) {
      largest = Math.max(largest, value);
      this.#times.push(time);
      this.#largest.push(largest);
    }
  }

  /** `otherwise` when nothing was before. */
  before(time: number, otherwise: number): number {
    const count = countBelow(this.#times, time);
    return count === 0 ? otherwise : Math.max(otherwise, this.#largest[count - 1] as number);
  }
}
