import type { Clock } from "../storage/clock.js";

/** Work on the event loop at a stretch among callers: as long as half a turn of theirs, within these bounds. */
const SLICE_MS_MIN = 0.08;
const SLICE_MS_MAX = 0.25;
/** A rest is this many times as long as the work before it; and so while checkpoints are behind. */
const REST_PART = 3;
const REST_PART_BEHIND = 16;
/** What took longer than this was not work, but a wait. */
const REST_MS_MAX = 8;
/** Turns of the event loop that a rest among callers takes at most: they may have gone. */
const REST_TURNS_MAX = 64;

/**
 * Work in the background, a slice at a time. While callers change something, a slice is short beside what they do in a turn of
 * the event loop, and a rest is counted in turns: no timer is as fine. While nobody does, slices are of full length, and a timer
 * ends the rest.
 */
export class Slices {
  readonly #clock: Clock;
  readonly #callersSign: () => number;
  readonly #isBehind: () => boolean;
  /** Work since the last rest: done before, and since this moment. */
  #busyMs = 0;
  #sinceMs = 0;
  #lastSign = -1;
  #sliceMs = SLICE_MS_MIN;

  /**
   * @param callersSign a number that changes when callers have changed something
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
    if (busyMs < this.#sliceMs) return false;
    return busyMs >= SLICE_MS_MAX || this.#callersSign() !== this.#lastSign;
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
    const startedMs = clock.elapsedMs();
    return new Promise((resolve) => {
      let turns = 0;
      const turn = () => {
        turns++;
        const elapsedMs = clock.elapsedMs() - startedMs;
        if (turns < REST_TURNS_MAX && elapsedMs < restMs) {
          clock.defer(turn);
          return;
        }
        this.#sliceMs = Math.min(SLICE_MS_MAX, Math.max(SLICE_MS_MIN, elapsedMs / turns / 2));
        resolve();
      };
      clock.defer(turn);
    });
  }
}
