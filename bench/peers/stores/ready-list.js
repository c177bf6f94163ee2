/**
 * The ids of waiting tasks in memory, oldest first: spares a key-value store the search for its first key, which gets
 * slow behind many deleted ones. A real queue would rebuild it when it opens.
 */
export class ReadyList {
  #ids = [];
  #head = 0;

  push(id) {
    this.#ids.push(id);
  }

  take() {
    if (this.#head === this.#ids.length) throw new Error("no task is ready although one had just been enqueued");
    const id = this.#ids[this.#head++];
    if (this.#head >= 4096) {
      this.#ids = this.#ids.slice(this.#head);
      this.#head = 0;
    }
    return id;
  }
}

/** Attempt and deadline, as a store would keep them with a lease. */
export function leaseOf(attempt) {
  const lease = Buffer.allocUnsafe(12);
  lease.writeUInt32LE(attempt, 0);
  lease.writeDoubleLE(Date.now() + 30_000, 4);
  return lease;
}
