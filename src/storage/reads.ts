import { VarveError } from "../api/errors.js";

/**
 * Counts the reads from files that are under way, so that files are closed, and the directory is given up, only after the
 * last of them has ended.
 */
export class Reads {
  readonly #directory: string;
  #underWay = 0;
  #closed = false;
  #idle: (() => void) | undefined;

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** True once no more reads are taken. */
  get closed(): boolean {
    return this.#closed;
  }

  /** @throws VarveError `ERR_CLOSED` */
  begin(): void {
    if (this.#closed) throw closedError(this.#directory);
    this.#underWay++;
  }

  end(): void {
    this.#underWay--;
    if (this.#underWay === 0) this.#idle?.();
  }

  /** Takes no more reads; resolves when those under way have ended. */
  async close(): Promise<void> {
    this.#closed = true;
    if (this.#underWay === 0) return;
    await new Promise<void>((resolve) => {
      this.#idle = resolve;
    });
  }
}

export function closedError(directory: string): VarveError {
  return new VarveError("ERR_CLOSED", `${directory} is closed. Open it again to go on.`);
}
