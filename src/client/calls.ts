import { LinkedTable } from "../api/linked-table.js";
import type { Pending } from "./pending.js";

/** The calls of a client that have not been answered, by their ids and in the order in which they were made. */
export class Calls implements Iterable<Pending> {
  readonly #calls = new LinkedTable<Pending>();

  get size(): number {
    return this.#calls.size;
  }

  get(id: number): Pending | undefined {
    return this.#calls.get(id);
  }

  /** @param call whose id no other one has */
  add(call: Pending): void {
    this.#calls.add(call);
  }

  /** False when it is not here. */
  delete(call: Pending): boolean {
    return this.#calls.delete(call);
  }

  /** Those that are here now, as long as they are. */
  *[Symbol.iterator](): Generator<Pending, void, void> {
    for (const call of [...this.#calls]) if (this.#calls.get(call.id) === call) yield call;
  }

  /** The sequence number of the oldest one that this client has named. */
  get oldestSequence(): number | undefined {
    let call = this.#calls.oldest;
    while (call !== undefined && call.sequence === 0) call = call.behind;
    return call?.sequence;
  }
}
