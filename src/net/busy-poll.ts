/**
 * Looking out for the next request a little longer before going to sleep.
 *
 * A process that sleeps in the system's poll has to be woken for what comes next. That takes longer than an ordinary request does, and
 * longer still on a virtual machine, which gives its processor back meanwhile. So after a read the event loop is kept going for
 * a while, as long as that pays: where requests do come within that time. A client that sends one request after another then finds
 * the server awake.
 *
 * Linux does the same for sockets (`SO_BUSY_POLL`), and KVM for processors (`halt_poll_ns`), which also lets success decide.
 *
 * Bound: at most the given time after the turn of the last read. Four failures in a row end it, and so do, in the long run, more
 * failures than one to four successes. From then on one read of 64 is tried, to see whether that has changed.
 */

/** Successes are remembered up to here. */
const CREDIT_MAX = 16;
/** What a failure costs of them: it takes the processor for all of the time, while a success saves a fraction of that. */
const FAILURE_COST = 4;
const READS_PER_TRY = 64;

export interface Loop {
  /** Monotone, in milliseconds. */
  nowMs(): number;
  /** Calls back in the next turn of the event loop, which does not sleep before that. */
  nextTurn(callback: () => void): void;
}

const NODE: Loop = {
  nowMs: () => performance.now(),
  nextTurn: (callback) => void setImmediate(callback),
};

/** One for all sockets of a process: it has one event loop. */
export class BusyPoll {
  readonly #forMs: number;
  readonly #loop: Loop;
  #isLooking = false;
  /** Something has arrived since the last look. */
  #hasArrived = false;
  /** The time to look begins with the next look: what arrived has been answered by then, unless it waits for something. */
  #begins = false;
  #untilMs = 0;
  #credit = CREDIT_MAX;
  /** Reads that were not looked beyond, since the last try. */
  #passed = 0;
  readonly #look = () => {
    if (this.#hasArrived) {
      this.#hasArrived = false;
      this.#begins = true;
    } else {
      const nowMs = this.#loop.nowMs();
      if (this.#begins) {
        this.#begins = false;
        this.#untilMs = nowMs + this.#forMs;
      } else if (nowMs >= this.#untilMs) {
        this.#isLooking = false;
        this.#credit = Math.max(0, this.#credit - FAILURE_COST);
        return;
      }
    }
    this.#loop.nextTurn(this.#look);
  };

  /** @param forMs how long after a read, in milliseconds */
  constructor(forMs: number, loop: Loop = NODE) {
    this.#forMs = forMs;
    this.#loop = loop;
  }

  /** A socket has been read. */
  arrived(): void {
    if (this.#hasArrived) return;
    if (this.#isLooking) {
      this.#hasArrived = true;
      // What comes in the turn behind the last read would have found the process awake anyway.
      if (!this.#begins && this.#credit < CREDIT_MAX) this.#credit++;
      return;
    }
    if (this.#credit === 0 && ++this.#passed < READS_PER_TRY) return;
    this.#passed = 0;
    this.#hasArrived = true;
    this.#isLooking = true;
    this.#loop.nextTurn(this.#look);
  }
}
