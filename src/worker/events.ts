type Listener = (...args: never) => unknown;

/** Calls listeners by the name of an event. One that throws, or whose promise rejects, harms nobody else. */
export class Events<E extends { readonly [K in keyof E]: readonly unknown[] }> {
  readonly #listeners = new Map<keyof E, readonly Listener[]>();
  readonly #onThrow: (event: keyof E, error: unknown) => void;

  /** @param onThrow is told of what a listener threw */
  constructor(onThrow: (event: keyof E, error: unknown) => void) {
    this.#onThrow = onThrow;
  }

  on<K extends keyof E>(event: K, listener: (...args: E[K]) => unknown): void {
    this.#listeners.set(event, [...(this.#listeners.get(event) ?? []), listener as Listener]);
  }

  off<K extends keyof E>(event: K, listener: (...args: E[K]) => unknown): void {
    const listeners = this.#listeners.get(event) ?? [];
    const index = listeners.indexOf(listener as Listener);
    if (index !== -1) this.#listeners.set(event, listeners.toSpliced(index, 1));
  }

  /** False when nobody listens. */
  emit<K extends keyof E>(event: K, ...args: E[K]): boolean {
    const listeners = this.#listeners.get(event);
    if (listeners === undefined || listeners.length === 0) return false;
    for (const listener of listeners) {
      try {
        const returned = listener(...(args as unknown as never));
        if (returned instanceof Promise) returned.catch((error: unknown) => this.#onThrow(event, error));
      } catch (error) {
        this.#onThrow(event, error);
      }
    }
    return true;
  }
}
