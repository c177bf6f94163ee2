/**
 * Has the recurring schedules of a queue fire. What fires and when is in recurring.ts.
 *
 *   op           fields                        effect
 *   SetSchedule  the schedule                  made, or made anew
 *   Unschedule   name                          gone
 *   Fired        name, count, last, next       tasks were enqueued in the same commit, or missed due times passed over
 *
 * Schedules fire while their queue is open: due times that pass meanwhile are missed, and dealt with when it is opened.
 * What the queue's limits refuse stays due: it is tried again, in steps as large as there is room for.
 */

import { isVarveError } from "../api/errors.js";
import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { FIRST_QUEUE_OP } from "../engine/queue-state.js";
import { type Decoder, Encoder, VARINT_BYTES_MAX } from "../storage/bytes.js";
import type { Timer } from "../storage/clock.js";
import { type Change, commit } from "./commit.js";
import {
  decodeSchedule,
  encodeSchedule,
  type RecurringSchedule,
  type RecurringTable,
  type Template,
} from "./recurring.js";

/** On disk: append, never renumber. */
export const RecurringOp = {
  SetSchedule: FIRST_QUEUE_OP + 70,
  Unschedule: FIRST_QUEUE_OP + 71,
  Fired: FIRST_QUEUE_OP + 72,
} as const;

const RECURRING_OPS: ReadonlySet<number> = new Set(Object.values(RecurringOp));

export function isRecurringOp(code: number): boolean {
  return RECURRING_OPS.has(code);
}

/** The wall clock may be set, so it is looked at this often while there are schedules. */
const WALL_CHECK_MS = 1000;
/** Firings of one commit. */
const FIRINGS_AT_ONCE = 32;

export interface RecurringHost {
  readonly id: number;
  readonly name: string;
  /** Enqueues what a schedule holds, as the queue's own `enqueue` would; refused when the queue is full, it never waits. */
  firing(template: Template): Change;
}

export class Recurrence {
  readonly table: RecurringTable;
  readonly #host: RecurringHost;
  #engine: Engine | undefined;
  #timer: Timer | undefined;
  #timerAt = Number.POSITIVE_INFINITY;
  /** Schedules that could not fire when last tried: that is logged once. */
  readonly #failing = new Set<string>();

  constructor(host: RecurringHost, table: RecurringTable) {
    this.#host = host;
    this.table = table;
  }

  attach(engine: Engine): void {
    this.#engine = engine;
    if (this.table.size > 0) this.#arm(0);
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  replay(code: number, input: Decoder): void {
    if (code === RecurringOp.SetSchedule) {
      this.table.set(decodeSchedule(input));
    } else if (code === RecurringOp.Unschedule) {
      this.table.remove(input.string());
    } else {
      const name = input.string();
      const count = input.varint();
      const last = input.varint();
      this.table.advance(name, count, last || undefined, input.varint() || undefined);
    }
  }

  /** Makes a schedule, or makes it anew. What it takes over from the old one is as of now: nothing may be staged. */
  setting(engine: Engine, schedule: RecurringSchedule): Change {
    const encoded = new Encoder(256 + schedule.template.payload.length);
    encodeSchedule(encoded, schedule);
    const bytes = encoded.view();
    return this.#change(
      bytes.length,
      false,
      () => {
        engine.operation(RecurringOp.SetSchedule, this.#host.id).bytes(bytes);
        engine.endOperation();
      },
      () => {
        this.table.set(schedule);
        this.#arm(0);
      },
    );
  }

  removing(engine: Engine, name: string): Change {
    return this.#change(
      name.length * 3 + VARINT_BYTES_MAX,
      true,
      () => {
        engine.operation(RecurringOp.Unschedule, this.#host.id).string(name);
        engine.endOperation();
      },
      () => this.table.remove(name),
    );
  }

  #change(metaBytes: number, settles: boolean, stage: () => void, apply: () => void): Change {
    return {
      bulkBytes: 0,
      records: 0,
      metaBytes: OPERATION_HEADER_BYTES + metaBytes,
      settles,
      reserve() {},
      release() {},
      stage,
      apply,
    };
  }

  /** Looks again in `ms`, if not before. */
  #arm(ms: number): void {
    const engine = this.#engine;
    if (engine === undefined || engine.closed) return;
    const at = engine.elapsedMs() + ms;
    if (at >= this.#timerAt) return;
    this.#timer?.cancel();
    this.#timerAt = at;
    this.#timer = engine.clock.setTimer(ms, () => {
      this.#timer = undefined;
      this.#timerAt = Number.POSITIVE_INFINITY;
      this.#onTime(engine);
    });
  }

  #onTime(engine: Engine): void {
    if (engine.closed || engine.failure !== undefined) return;
    const wallMs = engine.clock.wallMs();
    // No schedule may be changed by what is staged already: what is planned here is for what there is.
    engine.flush();
    // Nothing is fired while changes have to wait; there is another look soon.
    if (!engine.stalled) for (const schedule of this.table.due(wallMs)) this.#fire(engine, schedule, wallMs);
    const { nextMs } = this.table;
    if (nextMs !== undefined) this.#arm(nextMs <= wallMs ? WALL_CHECK_MS : Math.min(WALL_CHECK_MS, nextMs - wallMs));
  }

  #fire(engine: Engine, schedule: RecurringSchedule, wallMs: number): void {
    const { name } = schedule;
    const failed = (error: unknown) => {
      schedule.firing = false;
      if (engine.closed || engine.failure !== undefined) return;
      this.#arm(WALL_CHECK_MS);
      if (this.#failing.has(name)) return;
      this.#failing.add(name);
      const fields = { queue: this.#host.name, schedule: name, error };
      if (isFull(error)) engine.logger.warn(fields, "a schedule has to wait for room in its queue");
      else engine.logger.error(fields, "a schedule cannot fire now");
    };
    schedule.firing = true;
    for (let most = FIRINGS_AT_ONCE; most > 0; most = Math.floor(most / 2)) {
      try {
        this.#stageFirings(engine, schedule, wallMs, most, failed);
        return;
      } catch (error) {
        // There may be room for fewer.
        if (most > 1 && schedule.timing.missed === "all" && isFull(error)) continue;
        failed(error);
        return;
      }
    }
  }

  /** Enqueues what is due, at most so many tasks, and notes that in the same commit. */
  #stageFirings(
    engine: Engine,
    schedule: RecurringSchedule,
    wallMs: number,
    most: number,
    failed: (error: unknown) => void,
  ): void {
    const { name } = schedule;
    const { firings, nextMs } = schedule.plan(wallMs, most);
    const last = firings.at(-1);
    const advance = this.#change(
      name.length * 3 + 4 * VARINT_BYTES_MAX,
      false,
      () => {
        const output = engine.operation(RecurringOp.Fired, this.#host.id);
        output.string(name);
        output.varint(firings.length);
        output.varint(last ?? 0);
        output.varint(nextMs ?? 0);
        engine.endOperation();
      },
      () => {
        schedule.firing = false;
        this.#failing.delete(name);
        this.table.advance(name, firings.length, last, nextMs);
        this.#arm(0);
      },
    );
    const changes = firings.map(() => this.#host.firing(schedule.template));
    commit(engine, [...changes, advance], engine.options.durability, () => {}, failed);
  }
}

function isFull(error: unknown): boolean {
  return isVarveError(error, "ERR_QUEUE_FULL");
}
