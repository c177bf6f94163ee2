import { randomFillSync } from "node:crypto";
import type { Clock, Random, Timer } from "./clock.js";

/** setTimeout fires at once for anything longer, so longer waits are made of several. */
const TIMEOUT_MS_MAX = 2 ** 31 - 1;

export class SystemClock implements Clock {
  wallMs(): number {
    return Date.now();
  }

  elapsedMs(): number {
    return performance.now();
  }

  setTimer(ms: number, callback: () => void, keepAlive = false): Timer {
    return new SystemTimer(ms, callback, keepAlive);
  }

  defer(callback: () => void): void {
    setImmediate(callback);
  }
}

class SystemTimer implements Timer {
  readonly #dueMs: number;
  readonly #callback: () => void;
  readonly #keepAlive: boolean;
  #timeout: NodeJS.Timeout;

  constructor(ms: number, callback: () => void, keepAlive: boolean) {
    this.#keepAlive = keepAlive;
    this.#dueMs = performance.now() + ms;
    this.#callback = callback;
    this.#timeout = this.#arm(ms);
  }

  cancel(): void {
    clearTimeout(this.#timeout);
  }

  #arm(ms: number): NodeJS.Timeout {
    const timeout = setTimeout(() => this.#ring(), Math.min(Math.ceil(ms), TIMEOUT_MS_MAX));
    return this.#keepAlive ? timeout : timeout.unref();
  }

  /** Node counts whole milliseconds and may ring up to one early; a lease or a delay must never end early. */
  #ring(): void {
    const remainingMs = this.#dueMs - performance.now();
    if (remainingMs > 0) this.#timeout = this.#arm(remainingMs);
    else this.#callback();
  }
}

const POOL_BYTES = 4096;

/** The operating system's cryptographic random source, read 4 KiB at a time: lease tokens must not be guessable. */
export class CryptoRandom implements Random {
  readonly #pool = Buffer.alloc(POOL_BYTES);
  #used = POOL_BYTES;

  uint32(): number {
    if (this.#used === POOL_BYTES) {
      randomFillSync(this.#pool);
      this.#used = 0;
    }
    const value = this.#pool.readUInt32LE(this.#used);
    this.#used += 4;
    return value;
  }
}
