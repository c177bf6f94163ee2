import type { Clock, Timer } from "../../src/storage/clock.js";

interface Waiting {
  readonly dueMs: number;
  readonly callback: () => void;
}

/**
 * A clock that stands still until a test moves it, over real disks and the real event loop: for what must be exact to
 * the millisecond.
 */
export class ManualClock implements Clock {
  #wallMs = Date.UTC(2026, 0, 1);
  #elapsedMs = 1000;
  readonly #waiting = new Set<Waiting>();
  /** Timers that have gone off, to show that no amount of passing time makes for a busy loop. */
  timersFired = 0;
  readonly #settle: () => Promise<void>;

  /** @param quiet has what is under way go on, until it waits for time to pass */
  constructor(quiet: () => Promise<void> = settle) {
    this.#settle = quiet;
  }

  wallMs(): number {
    return this.#wallMs;
  }

  elapsedMs(): number {
    return this.#elapsedMs;
  }

  setTimer(ms: number, callback: () => void): Timer {
    const waiting: Waiting = { dueMs: this.#elapsedMs + Math.max(0, ms), callback };
    this.#waiting.add(waiting);
    return { cancel: () => this.#waiting.delete(waiting) };
  }

  defer(callback: () => void): void {
    setImmediate(callback);
  }

  /** Steps the wall clock only, as an administrator or NTP would. */
  stepWall(ms: number): void {
    this.#wallMs += ms;
  }

  /** Lets time pass on both clocks, stopping at every timer on the way. */
  async pass(ms: number): Promise<void> {
    const end = this.#elapsedMs + ms;
    await this.#settle();
    for (;;) {
      const next = this.#next(end);
      if (next === undefined) break;
      this.#moveTo(Math.max(this.#elapsedMs, next.dueMs));
      this.#waiting.delete(next);
      this.timersFired++;
      next.callback();
      await this.#settle();
    }
    this.#moveTo(end);
    await this.#settle();
  }

  #next(limitMs: number): Waiting | undefined {
    let next: Waiting | undefined;
    for (const waiting of this.#waiting) {
      if (waiting.dueMs <= limitMs && (next === undefined || waiting.dueMs < next.dueMs)) next = waiting;
    }
    return next;
  }

  #moveTo(elapsedMs: number): void {
    this.#wallMs += elapsedMs - this.#elapsedMs;
    this.#elapsedMs = elapsedMs;
  }
}

/** Gives what is under way a few turns of the event loop, so that it does not see time pass that it did not take. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 4; turn++) await new Promise((resolve) => setImmediate(resolve));
}
