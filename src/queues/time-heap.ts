/** What a {@link TimeHeap} orders. */
export interface Timed {
  readonly at: number;
  heapIndex: number;
}

/**
 * A binary heap by time whose items know their place, so that any of them can be taken out in O(log n): most leases
 * end by an ack long before their time, and must leave nothing behind.
 */
export class TimeHeap<T extends Timed> {
  readonly #items: T[] = [];

  get size(): number {
    return this.#items.length;
  }

  /** The one with the earliest time. */
  get first(): T | undefined {
    return this.#items[0];
  }

  add(item: T): void {
    this.#items.push(item);
    this.#up(item, this.#items.length - 1);
  }

  remove(item: T): void {
    const index = item.heapIndex;
    item.heapIndex = -1;
    const last = this.#items.pop()!;
    if (last !== item) this.#settle(last, index);
  }

  /** Restores the order after an item's time has changed. */
  move(item: T): void {
    this.#settle(item, item.heapIndex);
  }

  /** Visits all items whose time is at or before `at`, in no particular order, and no others. */
  visitUpTo(at: number, visit: (item: T) => void): void {
    const pending = [0];
    for (let index = pending.pop(); index !== undefined; index = pending.pop()) {
      const item = this.#items[index];
      if (item === undefined || item.at > at) continue;
      visit(item);
      pending.push(2 * index + 1, 2 * index + 2);
    }
  }

  #settle(item: T, index: number): void {
    const parent = this.#items[(index - 1) >> 1];
    if (index > 0 && parent !== undefined && item.at < parent.at) this.#up(item, index);
    else this.#down(item, index);
  }

  #up(item: T, start: number): void {
    const items = this.#items;
    let index = start;
    while (index > 0) {
      const above = (index - 1) >> 1;
      const parent = items[above]!;
      if (parent.at <= item.at) break;
      items[index] = parent;
      parent.heapIndex = index;
      index = above;
    }
    items[index] = item;
    item.heapIndex = index;
  }

  #down(item: T, start: number): void {
    const items = this.#items;
    const { length } = items;
    let index = start;
    for (;;) {
      let below = 2 * index + 1;
      if (below >= length) break;
      if (below + 1 < length && items[below + 1]!.at < items[below]!.at) below++;
      const child = items[below]!;
      if (child.at >= item.at) break;
      items[index] = child;
      child.heapIndex = index;
      index = below;
    }
    items[index] = item;
    item.heapIndex = index;
  }
}
