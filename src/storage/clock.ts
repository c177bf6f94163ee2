/** Time, as the engine sees it. Injected, so that the simulator can bend it. */
export interface Clock {
  /** Wall clock: milliseconds since 1970. May jump either way. */
  wallMs(): number;
  /** Elapsed time in milliseconds from an arbitrary start. Never falls; unaffected by wall clock steps. */
  elapsedMs(): number;
  /**
   * Calls back once, `ms` of elapsed time from now. Keeps the process alive only if asked to: for a wait that a caller
   * is held up by, not for housekeeping.
   */
  setTimer(ms: number, callback: () => void, keepAlive?: boolean): Timer;
  /** Calls back at the end of this turn of the event loop, after all input that is ready has been handled. */
  defer(callback: () => void): void;
}

export interface Timer {
  cancel(): void;
}

/** Random bits. Injected, so that a simulated run can be repeated. */
export interface Random {
  /** A uniformly random unsigned 32-bit integer; unpredictable in production. */
  uint32(): number;
}
