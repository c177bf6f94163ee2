/**
 * What is kept in the order in which it came, and taken out wherever it stands. No Set, for the reason that `LinkedTable` is no Map.
 *
 * Invariant: the links of an entry lead to entries that are in here, and to nothing once it is not.
 */

/** An entry: it stands in one list at a time. The links are the list's. */
export interface InList<E> {
  before: E | undefined;
  behind: E | undefined;
}

export class LinkedList<E extends InList<E>> implements Iterable<E> {
  #oldest: E | undefined;
  #newest: E | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** The one that was added first. */
  get oldest(): E | undefined {
    return this.#oldest;
  }

  /** The one that was added last. */
  get newest(): E | undefined {
    return this.#newest;
  }

  has(entry: E): boolean {
    return entry.before !== undefined || entry === this.#oldest;
  }

  /** @param entry that is in no list */
  add(entry: E): void {
    entry.before = this.#newest;
    if (this.#newest === undefined) this.#oldest = entry;
    else this.#newest.behind = entry;
    this.#newest = entry;
    this.#size++;
  }

  /** False when it is not here. */
  delete(entry: E): boolean {
    if (!this.has(entry)) return false;
    const { before, behind } = entry;
    if (before === undefined) this.#oldest = behind;
    else before.behind = behind;
    if (behind === undefined) this.#newest = before;
    else behind.before = before;
    entry.before = undefined;
    entry.behind = undefined;
    this.#size--;
    return true;
  }

  /** The oldest first. Of those that have been walked past any may be taken out meanwhile, but none that comes. */
  *[Symbol.iterator](): Generator<E, void, void> {
    let next: E | undefined;
    for (let entry = this.#oldest; entry !== undefined; entry = next) {
      next = entry.behind;
      yield entry;
    }
  }
}
