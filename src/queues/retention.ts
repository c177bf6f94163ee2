import type { RetentionConfig } from "../api/options.js";
import type { Engine } from "../engine/engine.js";
import type { LogTime } from "../engine/queue-state.js";
import { Wake } from "../engine/wake.js";
import type { Timer } from "../storage/clock.js";
import { bytesOf } from "./log-extent.js";
import type { LogState } from "./log-state.js";
import { DISTRUST_MS, WallGuard } from "./wall-guard.js";

/** The clock is looked at this often while records wait for their age, and no more often than `CHECK_MS_MIN`. */
const CHECK_MS_MAX = 60_000;
const CHECK_MS_MIN = 1000;
/** A wall clock that has gone so far ahead over the time that the directory was closed may have been set. */
const CLOSED_JUMP_MS = 30 * 86_400_000;
/** A log is cut into so many segments at least for what its rules keep, so that what is kept beyond them is a part of it. */
const SEGMENTS_MIN = 8;
const SEGMENT_BYTES_MIN = 64 * 1024;

/** Removes what a log's rules no longer keep, whole units from the oldest on. */
export class Retention {
  readonly #engine: Engine;
  readonly #state: LogState;
  #timer: Timer | undefined;
  /** While it does not trust the wall clock, nothing is removed by age. */
  readonly #guard: WallGuard;
  readonly #checkSoon = new Wake(() => this.#check());
  /** A trim is on its way. */
  #trimming = false;

  /** @param resumed how long the directory was closed, if it was */
  constructor(engine: Engine, state: LogState, resumed: { readonly last: LogTime; readonly now: LogTime } | undefined) {
    this.#engine = engine;
    this.#state = state;
    this.#guard = new WallGuard(engine);
    if (resumed === undefined || resumed.now.wallMs - resumed.last.wallMs <= CLOSED_JUMP_MS) return;
    this.#guard.distrust();
    this.#warn();
  }

  /** After the rules have changed, or the log was opened. */
  begin(): void {
    const { stream, config } = this.#state;
    const { maxAgeMs, maxBytes, maxCount } = config.retention;
    stream.roll = {
      bytes: maxBytes === 0 ? Number.POSITIVE_INFINITY : Math.max(SEGMENT_BYTES_MIN, maxBytes / SEGMENTS_MIN),
      records: maxCount === 0 ? Number.POSITIVE_INFINITY : maxCount / SEGMENTS_MIN,
      ageMs: maxAgeMs === 0 ? Number.POSITIVE_INFINITY : maxAgeMs / SEGMENTS_MIN,
    };
    this.#check();
  }

  /** When there are more records. */
  grown(): void {
    const { config, extent, stream } = this.#state;
    const { maxAgeMs, maxBytes, maxCount } = config.retention;
    if (maxAgeMs > 0) this.#arm(this.#dueIn(stream.head, maxAgeMs));
    const tooMuch = maxBytes > 0 && extent.bytes > maxBytes;
    const tooMany = maxCount > 0 && stream.recordsLeft(stream.head, stream.visible) > maxCount;
    if (tooMuch || tooMany) this.#engine.wake(this.#checkSoon);
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #check(): void {
    const engine = this.#engine;
    const state = this.#state;
    if (engine.closed || engine.failure !== undefined || state.ended !== undefined) return;
    this.#timer?.cancel();
    this.#timer = undefined;
    const { retention } = state.config;
    if (this.#guard.look()) this.#warn();
    const offset = this.#trimming ? state.stream.head : this.#cut(retention);
    if (offset > state.stream.head) this.#trim(offset);
    const held = retention.holdForGroupsMs > 0 && state.groups.size > 0;
    const dueIn = retention.maxAgeMs > 0 ? this.#dueIn(offset, retention.maxAgeMs) : undefined;
    this.#arm(dueIn ?? (held ? CHECK_MS_MAX : undefined));
  }

  /** Where the first unit begins that is kept. */
  #cut({ maxAgeMs, maxBytes, maxCount, holdForGroupsMs }: RetentionConfig): number {
    const { stream, extent } = this.#state;
    const newestGone = maxAgeMs > 0 && this.#guard.isSteady ? this.#guard.wallMs - maxAgeMs : Number.NEGATIVE_INFINITY;
    const heldFrom =
      holdForGroupsMs > 0 ? this.#state.heldFrom(this.#guard.elapsedMs - holdForGroupsMs) : stream.visible;
    let { bytes } = extent;
    let cut = stream.head;
    for (const unit of extent.unitsFrom(stream.head)) {
      if (unit.next > stream.visible || unit.next > heldFrom) break;
      bytes -= bytesOf(unit, stream.head, unit.next);
      const old = unit.newest <= newestGone;
      const much = maxBytes > 0 && bytes >= maxBytes;
      const many = maxCount > 0 && stream.recordsLeft(unit.next, stream.visible) >= maxCount;
      if (!old && !much && !many) break;
      cut = unit.next;
    }
    return cut;
  }

  #trim(offset: number): void {
    const engine = this.#engine;
    const state = this.#state;
    try {
      state.beginTrim();
    } catch (error) {
      engine.logger.error({ log: state.name, error }, "old records cannot be removed now");
      return;
    }
    this.#trimming = true;
    state.stageTrim(offset);
    engine.add({
      durability: engine.options.durability,
      apply: () => {
        this.#trimming = false;
        state.trim(offset);
      },
      settle() {},
      fail: () => {
        this.#trimming = false;
      },
    });
  }

  #warn(): void {
    if (this.#state.config.retention.maxAgeMs === 0) return;
    this.#engine.logger.warn(
      { log: this.#state.name, pauseMs: DISTRUST_MS },
      "the wall clock has jumped: nothing is removed by age for a while",
    );
  }

  /** When the oldest unit may be too old; undefined when there is none. */
  #dueIn(offset: number, maxAgeMs: number): number | undefined {
    const [oldest] = this.#state.extent.unitsFrom(offset);
    if (oldest === undefined) return undefined;
    return Math.min(CHECK_MS_MAX, Math.max(CHECK_MS_MIN, oldest.newest + maxAgeMs - this.#guard.wallMs));
  }

  /** Sees to it that there is a check, unless one is awaited already. */
  #arm(ms: number | undefined): void {
    if (ms === undefined || this.#timer !== undefined) return;
    this.#timer = this.#engine.clock.setTimer(ms, () => {
      this.#timer = undefined;
      this.#check();
    });
  }
}
