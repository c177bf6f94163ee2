import type { Clock, Timer } from "../../src/storage/clock.js";
import type { SimRandom } from "./sim-random.js";

export interface SimClockOptions {
  /** Wall clock at the start. @defaultValue 2026-01-01T00:00:00Z */
  wallMs?: number;
  /** Elapsed time at the start. @defaultValue 0 */
  elapsedMs?: number;
}

/** Event loop steps without an end after which a run counts as a livelock. */
const STEPS_MAX = 5_000_000;

interface Event {
  readonly dueMs: number;
  /** Breaks ties: first come, first served. */
  readonly order: number;
  callback: (() => void) | undefined;
}

/**
 * A virtual event loop, of one simulated process. Timers, deferred callbacks and the simulated disk's completions are
 * its events; it runs them one by one, in an order that the seed decides wherever a real loop leaves it open, and moves
 * time on only when nothing is left to do now. Code under test does the rest in microtasks, which are drained after
 * every event by letting Node's own loop turn once.
 */
export class SimClock implements Clock {
  readonly #random: SimRandom;
  #elapsedMs: number;
  #wallAheadMs: number;
  #heap: Event[] = [];
  #deferred: (() => void)[] = [];
  #order = 0;
  #ended = false;

  constructor(random: SimRandom, { wallMs = Date.UTC(2026, 0, 1), elapsedMs = 0 }: SimClockOptions = {}) {
    this.#random = random;
    this.#elapsedMs = elapsedMs;
    this.#wallAheadMs = wallMs - elapsedMs;
  }

  wallMs(): number {
    return Math.floor(this.#elapsedMs + this.#wallAheadMs);
  }

  elapsedMs(): number {
    return this.#elapsedMs;
  }

  /** Never early, at times late, and like Node's not before 1 ms. */
  setTimer(ms: number, callback: () => void): Timer {
    const lateMs = this.#random.chance(0.125) ? this.#random.fraction() * 5 : 0;
    const event = this.#schedule(Math.max(1, ms) + lateMs, callback);
    return {
      cancel: () => {
        event.callback = undefined;
      },
    };
  }

  defer(callback: () => void): void {
    if (!this.#ended) this.#deferred.push(callback);
  }

  /** For the simulated disk: calls back when a call in the thread pool would have come back. */
  queueIo(callback: () => void): void {
    const slow = this.#random.chance(0.05) ? 50 : 1;
    this.#schedule(slow * (0.01 + this.#random.fraction()), callback);
  }

  /** Sets the wall clock forward or, below 0, back; elapsed time knows nothing of it. */
  stepWall(ms: number): void {
    this.#wallAheadMs += ms;
  }

  /** Lets time pass while the process stands still (SIGSTOP, a suspended machine, a long garbage collection). */
  stall(ms: number): void {
    this.#elapsedMs += ms;
  }

  /**
   * Ends the simulated process: nothing it waits for ever happens, and nothing it still asks for is heard. Returns the
   * clock of its successor, `downMs` later, with an elapsed time that starts anew.
   */
  restart(downMs = 0): SimClock {
    this.#ended = true;
    this.#heap = [];
    this.#deferred = [];
    return this.successor(downMs, this.#random);
  }

  /** The clock of a process that follows this one; may be called several times, to try different endings of one history. */
  successor(downMs: number, random: SimRandom): SimClock {
    return new SimClock(random, {
      wallMs: this.#elapsedMs + this.#wallAheadMs + downMs,
      elapsedMs: random.below(1_000_000),
    });
  }

  /**
   * Runs until `until` holds (checked before the first event and after each), nothing is left to run, or `limitMs` of
   * elapsed time have passed. True if `until` held.
   */
  async run(until: () => boolean = () => false, limitMs = Number.POSITIVE_INFINITY): Promise<boolean> {
    const stopMs = this.#elapsedMs + limitMs;
    for (let steps = 0; steps < STEPS_MAX; steps++) {
      await drainMicrotasks();
      if (until()) return true;
      if (!this.#step(stopMs)) {
        if (Number.isFinite(stopMs)) this.#elapsedMs = Math.max(this.#elapsedMs, stopMs);
        return false;
      }
    }
    throw new Error(`the simulated process is still busy after ${STEPS_MAX} steps`);
  }

  /** Runs everything that happens within the next `ms` of elapsed time. */
  async runFor(ms: number): Promise<void> {
    await this.run(undefined, ms);
  }

  /** Runs until the promise settles and returns what it gave. Throws if it never would. */
  async settle<T>(promise: Promise<T>, limitMs?: number): Promise<T> {
    let settled = false;
    const settle = () => {
      settled = true;
    };
    promise.then(settle, settle);
    if (!(await this.run(() => settled, limitMs))) {
      throw new Error(
        `stuck: the awaited promise has not settled by ${this.#elapsedMs} ms, and nothing is left to run`,
      );
    }
    return promise;
  }

  /** Runs one event that is due by `stopMs`, moving time on to it if need be. False if there is none. */
  #step(stopMs: number): boolean {
    while (this.#heap.length > 0 && this.#heap[0]!.callback === undefined) this.#pop();
    const next = this.#heap[0];
    const ready = next !== undefined && next.dueMs <= this.#elapsedMs;
    if (this.#deferred.length > 0 && (!ready || this.#random.chance(0.5))) {
      this.#deferred.shift()!();
      return true;
    }
    if (next === undefined || (!ready && next.dueMs > stopMs)) return false;
    this.#pop();
    this.#elapsedMs = Math.max(this.#elapsedMs, next.dueMs);
    const { callback } = next;
    next.callback = undefined;
    callback!();
    return true;
  }

  #schedule(inMs: number, callback: () => void): Event {
    const event: Event = { dueMs: this.#elapsedMs + inMs, order: this.#order++, callback };
    if (!this.#ended) this.#push(event);
    return event;
  }

  #push(event: Event): void {
    const heap = this.#heap;
    let at = heap.push(event) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!before(event, heap[parent]!)) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = event;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop()!;
    if (heap.length === 0) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && before(heap[child + 1]!, heap[child]!)) child++;
      if (!before(heap[child]!, last)) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = last;
  }
}

function before(a: Event, b: Event): boolean {
  return a.dueMs < b.dueMs || (a.dueMs === b.dueMs && a.order < b.order);
}

/** Node runs all microtasks, those they queue included, before its loop turns to the next immediate. */
function drainMicrotasks(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
