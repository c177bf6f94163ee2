const INTERVAL_MS = 100;
const BAR_WIDTH = 30;

/** A bar on standard error; silent unless that is a terminal. */
export class ProgressBar {
  readonly #active: boolean;
  #shownMs = Number.NEGATIVE_INFINITY;

  constructor(active: boolean) {
    this.#active = active && process.stderr.isTTY === true;
  }

  readonly update = (fraction: number, label: string): void => {
    const nowMs = performance.now();
    if (!this.#active || nowMs - this.#shownMs < INTERVAL_MS) return;
    this.#shownMs = nowMs;
    const filled = Math.round(Math.min(1, fraction) * BAR_WIDTH);
    const bar = "#".repeat(filled).padEnd(BAR_WIDTH, ".");
    process.stderr.write(`\r[${bar}] ${String(Math.floor(fraction * 100)).padStart(3)}%  ${label}\x1b[K`);
  };

  clear(): void {
    if (this.#active) process.stderr.write("\r\x1b[K");
  }
}
