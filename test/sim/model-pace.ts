import { type Commit, type Ending, isRequired, type Shift } from "./commit.js";

/** How fast a queue hands out tasks, as it was set. */
export interface PaceRules {
  readonly concurrency?: number;
  readonly concurrencyPerKey?: number;
  readonly lookAhead?: number;
  readonly rate?: { readonly limit: number; readonly per: number };
  readonly ageing?: number;
}

/** The engine counts whole milliseconds. */
const ROUNDING_MS = 2;

/** The window that deliveries fall into for sure, where that can be told from outside. */
export class PaceModel {
  readonly rules: PaceRules;
  /** It began no earlier, and so many were given in it; undefined while there is no telling. */
  private window: { fromMs: number; given: number } | undefined;
  /** The last delivery, and when it was answered. */
  private last: Commit | undefined;
  private lastMs = Number.NEGATIVE_INFINITY;

  constructor(rules: PaceRules) {
    this.rules = rules;
  }

  /**
   * Deliveries have been answered. Returns what is wrong with that, in words.
   * @param alone no other call may have been given any meanwhile
   */
  handedOut(delivery: Commit, count: number, nowMs: number, alone: boolean): string | undefined {
    const { rate } = this.rules;
    if (rate === undefined || count === 0) return undefined;
    const { limit, per } = rate;
    const { window } = this;
    if (!alone) {
      this.window = undefined;
    } else if (window !== undefined && nowMs < window.fromMs + per) {
      window.given += count;
    } else if (delivery.madeMs > this.lastMs + per + ROUNDING_MS) {
      this.window = { fromMs: delivery.madeMs, given: count };
    } else {
      this.window = undefined;
    }
    this.last = delivery;
    this.lastMs = nowMs;
    const given = this.window?.given ?? 0;
    return given > limit ? `${given} were handed out within ${per} ms, and at most ${limit} may be` : undefined;
  }

  /** @param known all calls that may have been given any were answered */
  recovered(ending: Ending, known: boolean): void {
    // A window that is open may have been so for no time yet, as the queue counts time from what it has in its log.
    this.lastMs = ending.openedMs;
    if (!known || (this.last !== undefined && !isRequired(this.last, ending))) this.window = undefined;
  }

  restarted({ nowMs, lastMs }: Shift): void {
    // How long the window had been open may have been forgotten in part: then it lasts longer, but not beyond a whole one.
    if (this.window !== undefined) this.window.fromMs += nowMs - lastMs - ROUNDING_MS;
  }
}
