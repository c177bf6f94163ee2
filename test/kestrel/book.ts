/**
 * What the clients of one queue know of it, written down as they say and hear it, and never by the server: enough to judge
 * the queue after the server has been killed.
 *
 *   asked     its set has been sent                       it may be there
 *   stored    the set was answered                        it must be there
 *   leaving   it was delivered, and its close is sent     it may be there
 *   gone      the close, or the get that took it, was answered: it must never be seen again
 */
type Known = "asked" | "stored" | "leaving" | "gone";

export class Book {
  readonly name: string;
  /** Nothing is given back but by a kill, so what is there is in the order of its sets. */
  readonly isOrdered: boolean;
  readonly #values = new Map<string, Known>();
  readonly #open = new Set<string>();
  /** Plain gets without an answer: each may have taken an item. */
  #gets = 0;
  stored = 0;
  confirmed = 0;

  constructor(name: string, isOrdered: boolean) {
    this.name = name;
    this.isOrdered = isOrdered;
  }

  /** Open reads right now. */
  get open(): number {
    return this.#open.size;
  }

  /** Values are `<producer>-<number>`, with the numbers of a producer rising. */
  asks(value: string): void {
    this.#values.set(value, "asked");
  }

  isStored(value: string): void {
    this.stored++;
    if (this.#values.get(value) === "asked") this.#values.set(value, "stored");
  }

  getSent(): void {
    this.#gets++;
  }

  /** A plain get is answered. */
  took(value: string | undefined): void {
    this.#gets--;
    if (value === undefined) return;
    this.#seen(value);
    this.#values.set(value, "gone");
    this.confirmed++;
  }

  opened(value: string): void {
    this.#seen(value);
    if (this.#open.has(value)) throw new Error(`${this.name}: ${value} was given out twice at once`);
    this.#open.add(value);
  }

  closes(value: string): void {
    this.#open.delete(value);
    this.#values.set(value, "leaving");
  }

  givesBack(value: string): void {
    this.#open.delete(value);
  }

  isClosed(value: string): void {
    this.#values.set(value, "gone");
    this.confirmed++;
  }

  /** All connections are over. */
  lifeEnded(): void {
    this.#open.clear();
  }

  /** Judges all that the queue holds after a kill, in its order, and begins anew, as all of it has been removed. */
  judge(items: readonly string[]): void {
    const found = new Set<string>();
    const last = new Map<string, number>();
    for (const item of items) {
      this.#seen(item);
      if (found.has(item)) throw new Error(`${this.name}: ${item} is there twice`);
      found.add(item);
      const [producer = "", number] = item.split("-");
      if (this.isOrdered && Number(number) <= (last.get(producer) ?? -1)) {
        throw new Error(`${this.name}: ${item} comes behind ${producer}-${last.get(producer)}`);
      }
      last.set(producer, Number(number));
    }
    const missing = [...this.#values].filter(([value, known]) => known === "stored" && !found.has(value));
    if (missing.length > this.#gets) {
      const some = missing.slice(0, 5).map(([value]) => value);
      throw new Error(
        `${this.name}: ${missing.length} stored items are lost, ${this.#gets} may be; among them ${some}`,
      );
    }
    this.#values.clear();
    this.#gets = 0;
  }

  #seen(value: string): void {
    const known = this.#values.get(value);
    if (known === undefined) throw new Error(`${this.name}: nobody has stored ${value}`);
    if (known === "gone") throw new Error(`${this.name}: ${value} was confirmed, and is there again`);
  }
}
