import type { Clock } from "../storage/clock.js";

/** Work on the event loop at a stretch: about as long as a turn that a few callers fill. */
const SLICE_MS = 0.08;
/** A rest is this many times as long as the work before it; and so while checkpoints are behind. */
const REST_PART = 3;
const REST_PART_BEHIND = 16;
/** What took longer than this was not work, but a wait. */
const REST_MS_MAX = 8;
/** Turns of the event loop that a rest among callers takes at most: they may have gone. */
const REST_TURNS_MAX = 64;
/** Work at a stretch that nobody asked for anything beside, before a rest that a timer ends. */
const QUIET_SLICE_MS = 0.25;

/**
 * Work in the background, a slice at a time. While callers come, a slice is as short as what they do in a turn of the
 * event loop themselves, and a rest is counted in turns: no timer is as fine. While nobody comes, slices are longer, and a
 * timer ends the rest.
 */
export class Slices {
  readonly #clock: Clock;
  readonly #callersSign: () => number;
  readonly #isBehind: () => boolean;
  /** Work since the last rest: done before, and since this moment. */
  #busyMs = 0;
  #sinceMs = 0;
  #lastSign = -1;

  /**
   * @param callersSign a number that changes when callers have come
   * @param isBehind whether there is work that goes before this
   */
  constructor(clock: Clock, callersSign: () => number, isBehind: () => boolean) {
    this.#clock = clock;
    this.#callersSign = callersSign;
    this.#isBehind = isBehind;
  }

  /** A job begins. */
  begin(): void {
    this.#busyMs = 0;
    this.#sinceMs = this.#clock.elapsedMs();
  }

  /** Work goes on; what has passed meanwhile was not of it. */
  goOn(): void {
    this.#sinceMs = this.#clock.elapsedMs();
  }

  /** True when the slice has been long enough, and `rest` is to be called. */
  get over(): boolean {
    const busyMs = this.#busyMs + this.#clock.elapsedMs() - this.#sinceMs;
    if (busyMs < SLICE_MS) return false;
    return busyMs >= QUIET_SLICE_MS || this.#callersSign() !== this.#lastSign;
  }

  async rest(): Promise<void> {
    const clock = this.#clock;
    const busyMs = this.#busyMs + clock.elapsedMs() - this.#sinceMs;
    const sign = this.#callersSign();
    const isQuiet = sign === this.#lastSign;
    this.#lastSign = sign;
    const restMs = Math.min(busyMs * (this.#isBehind() ? REST_PART_BEHIND : REST_PART), REST_MS_MAX);
    if (isQuiet) await new Promise<void>((resolve) => clock.setTimer(restMs, resolve, true));
    else await this.#turns(restMs);
    this.begin();
  }

  /** Waits for something that is not work on the event loop. */
  async idle<T>(wait: Promise<T>): Promise<T> {
    this.#busyMs += this.#clock.elapsedMs() - this.#sinceMs;
    try {
      return await wait;
    } finally {
      this.goOn();
    }
  }

  #turns(restMs: number): Promise<void> {
    const clock = this.#clock;
    const endMs = clock.elapsedMs() + restMs;
    return new Promise((resolve) => {
      let left = REST_TURNS_MAX;
      const turn = () => {
        if (--left === 0 || clock.elapsedMs() >= endMs) resolve();
        else clock.defer(turn);
      };
      clock.defer(turn);
    });
  }
}
