import type { Engine } from "../engine/engine.js";

/** A wall clock that has gone so far ahead of or behind elapsed time since the last look has been set. */
const JUMP_MS = 3_600_000;
/** For so long it is not trusted then: a wrong clock can be noticed, and set right. */
export const DISTRUST_MS = 3_600_000;

/** Compares the wall clock with elapsed time, for what is done away with by its age: a clock that is set must not do that. */
export class WallGuard {
  readonly #engine: Engine;
  /** Both clocks at the last look. */
  elapsedMs: number;
  wallMs: number;
  #distrustedUntilMs = 0;
  /** How far the wall clock was set ahead since it was last trusted. */
  #aheadMs = 0;

  constructor(engine: Engine) {
    this.#engine = engine;
    this.elapsedMs = engine.elapsedMs();
    this.wallMs = engine.clock.wallMs();
  }

  /** Looks at the clocks. True when the wall clock has jumped since the last look. */
  look(): boolean {
    const elapsedMs = this.#engine.elapsedMs();
    const wallMs = this.#engine.clock.wallMs();
    const aheadMs = wallMs - this.wallMs - (elapsedMs - this.elapsedMs);
    this.elapsedMs = elapsedMs;
    this.wallMs = wallMs;
    if (this.isSteady) this.#aheadMs = 0;
    if (Math.abs(aheadMs) <= JUMP_MS) return false;
    this.#aheadMs += aheadMs;
    this.distrust();
    return true;
  }

  /** Has the wall clock not be trusted for a while. */
  distrust(): void {
    this.#distrustedUntilMs = this.elapsedMs + DISTRUST_MS;
  }

  /** Whether the wall clock was to be trusted at the last look. */
  get isSteady(): boolean {
    return this.elapsedMs >= this.#distrustedUntilMs;
  }

  /** The time by which ages are measured: the wall clock's, less what it was set ahead while that is not trusted. */
  ageingWallMs(): number {
    this.look();
    return this.wallMs - Math.max(0, this.#aheadMs);
  }
}
