import type { CommonOptions } from "./options.js";

const INTERVAL_MS = 100;

/** One line on standard error that shows how far a long command has come; silent unless that is a terminal. */
export class Progress {
  readonly #active: boolean;
  #shownMs = 0;
  #shown = false;

  constructor(options: CommonOptions) {
    this.#active = process.stderr.isTTY === true && !options.quiet && !options.json;
  }

  /** Shows the text, unless the line has just been renewed. */
  update(text: () => string): void {
    if (!this.#active) return;
    const nowMs = performance.now();
    if (this.#shown && nowMs - this.#shownMs < INTERVAL_MS) return;
    this.#shownMs = nowMs;
    this.#shown = true;
    process.stderr.write(`\r${text()}\x1b[K`);
  }

  /** Removes the line, before anything else is printed. */
  clear(): void {
    if (this.#shown) process.stderr.write("\r\x1b[K");
    this.#shown = false;
  }
}
