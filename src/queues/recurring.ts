/**
 * Recurring schedules: a task that a queue enqueues by itself, again and again.
 *
 * A schedule knows its next due time, a moment of the wall clock. Firing enqueues the task and moves the next due time on,
 * in one commit, so that each due time fires at most once, over restarts and crashes too. Due times only go up: when the
 * wall clock is set back, those that were passed already do not come again, and the schedule goes on when the clock gets to
 * its next one.
 *
 * When more than one due time has passed since the last look (the directory was closed, the machine slept, the wall clock
 * was set forward), the earlier ones were missed, and so was the last one if it is over by more than MISSED_AFTER_MS. The
 * schedule's rule says what becomes of them:
 *
 *   once   one firing stands for all of them
 *   skip   only the last one fires, and only if it was not missed
 *   all    each fires, the last FIRINGS_MAX of them
 *
 * Cron expressions are local times of a time zone. A time that a change to summer time leaves out fires at the first
 * moment behind the gap; one that the change back repeats fires the first time only, unless its hour is a wildcard.
 */

import { Cron } from "croner";
import type { Headers } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import { type Decoder, type Encoder, MalformedError } from "../storage/bytes.js";

/** A due time that is over by more than this when it is looked at was missed. */
const MISSED_AFTER_MS = 60_000;
/** Firings for missed due times, at most. */
export const FIRINGS_MAX = 1000;
/** Schedules of one queue, at most. */
export const SCHEDULES_MAX = 10_000;

export type MissedRule = "once" | "skip" | "all";

/** When a schedule fires; `cron` or `everyMs`, all times of the wall clock. Stored as JSON: append members only. */
export interface Timing {
  readonly cron?: string | undefined;
  readonly timeZone?: string | undefined;
  readonly everyMs?: number | undefined;
  /** Not before. */
  readonly fromMs?: number | undefined;
  /** What `everyMs` counts from: `fromMs`, or when the schedule was made. */
  readonly anchorMs: number;
  /** Not after. */
  readonly untilMs?: number | undefined;
  readonly missed: MissedRule;
  /** Firings in all. */
  readonly limit?: number | undefined;
}

/** What is enqueued at each firing. */
export interface Template {
  readonly payload: Buffer;
  readonly key: Buffer | undefined;
  readonly headers: Headers | undefined;
  /** The terms of the task, as the queue writes them. */
  readonly terms: string;
}

/** Finds due times; made once for each schedule, since parsing an expression is the costly part. */
export class Calendar {
  readonly #timing: Timing;
  readonly #cron: Cron | undefined;

  /** @throws VarveError `ERR_OPTION` when the expression or the time zone is none */
  constructor(timing: Timing) {
    this.#timing = timing;
    if (timing.cron === undefined) return;
    const timezone = timing.timeZone ?? "UTC";
    checkTimeZone(timezone);
    try {
      this.#cron = new Cron(timing.cron, { timezone, paused: true, mode: "5-or-6-parts" });
    } catch (cause) {
      const reason = (cause as Error).message.replace(/^CronPattern: /, "");
      throw refused("cron", `${JSON.stringify(timing.cron.slice(0, 100))} is no cron expression: ${reason}`, cause);
    }
  }

  /** The first due time after a moment; undefined when there is none. */
  after(ms: number): number | undefined {
    const { fromMs = 0, untilMs, everyMs, anchorMs } = this.#timing;
    let due: number | undefined;
    if (this.#cron !== undefined) {
      // The due time at `fromMs` itself counts.
      due = this.#cron.nextRun(new Date(Math.max(ms, fromMs - 1)))?.getTime();
    } else {
      const every = everyMs!;
      due = ms < fromMs ? fromMs : anchorMs + (Math.floor((ms - anchorMs) / every) + 1) * every;
    }
    return due === undefined || due > (untilMs ?? Number.MAX_SAFE_INTEGER) ? undefined : due;
  }

  /** The last due time at or before a moment, given one that is; the last FIRINGS_MAX before it if `list` is given. */
  last(due: number, nowMs: number, list?: number[]): number {
    const { everyMs } = this.#timing;
    let at = due;
    list?.push(at);
    if (everyMs !== undefined) {
      // Straight to the end: a short period may have come round millions of times.
      const rounds = Math.floor((Math.min(nowMs, this.#timing.untilMs ?? nowMs) - due) / everyMs);
      at = due + Math.max(0, rounds) * everyMs;
      if (list !== undefined && rounds > 0) {
        list.length = 0;
        for (let k = Math.max(0, rounds - FIRINGS_MAX + 1); k <= rounds; k++) list.push(due + k * everyMs);
      }
      return at;
    }
    // The expression is asked only about a stretch before the end that holds enough, found by doubling.
    for (let span = 2 * MISSED_AFTER_MS; nowMs - span > due; span *= 2) {
      const found = this.#between(nowMs - span, nowMs, list === undefined ? 1 : FIRINGS_MAX);
      if (found === undefined) continue;
      if (list !== undefined) list.splice(0, list.length, ...found);
      return found.at(-1)!;
    }
    for (let next = this.after(at); next !== undefined && next <= nowMs; next = this.after(at)) {
      at = next;
      list?.push(at);
      if (list !== undefined && list.length > FIRINGS_MAX) list.shift();
    }
    return at;
  }

  /** The last due times in (from, to], if there are `enough`. */
  #between(from: number, to: number, enough: number): number[] | undefined {
    const found: number[] = [];
    for (let at = this.after(from); at !== undefined && at <= to; at = this.after(at)) {
      found.push(at);
      if (found.length > FIRINGS_MAX) found.shift();
    }
    return found.length >= enough ? found : undefined;
  }
}

/** A schedule of a queue. */
export class RecurringSchedule {
  readonly name: string;
  readonly timing: Timing;
  readonly template: Template;
  /** The next due time; undefined when there is none left. */
  nextMs: number | undefined;
  /** The due time that fired last. */
  lastMs: number | undefined;
  fired: number;
  /** A firing is on its way through the log. */
  firing = false;
  #calendar: Calendar | undefined;

  constructor(
    name: string,
    timing: Timing,
    template: Template,
    nextMs: number | undefined,
    lastMs: number | undefined,
    fired: number,
  ) {
    this.name = name;
    this.timing = timing;
    this.template = template;
    this.nextMs = nextMs;
    this.lastMs = lastMs;
    this.fired = fired;
  }

  get calendar(): Calendar {
    this.#calendar ??= new Calendar(this.timing);
    return this.#calendar;
  }

  /**
   * What is to be done now that the next due time has come: the due times that fire, and the next one after them. Of many
   * missed ones, `chunk` at a time.
   */
  plan(nowMs: number, chunk: number): { readonly firings: readonly number[]; readonly nextMs: number | undefined } {
    const due = this.nextMs!;
    const { missed, limit } = this.timing;
    const left = limit === undefined ? Number.POSITIVE_INFINITY : limit - this.fired;
    if (missed === "all") {
      const dues: number[] = [];
      this.calendar.last(due, nowMs, dues);
      const firings = dues.slice(0, Math.min(chunk, left));
      const next = firings.length < dues.length ? dues[firings.length] : this.calendar.after(firings.at(-1)!);
      return { firings, nextMs: firings.length >= left ? undefined : next };
    }
    const last = this.calendar.last(due, nowMs);
    const firings = missed === "skip" && nowMs - last > MISSED_AFTER_MS ? [] : [last];
    return { firings, nextMs: firings.length >= left ? undefined : this.calendar.after(last) };
  }
}

/** The schedules of one queue. */
export class RecurringTable {
  readonly #schedules = new Map<string, RecurringSchedule>();

  get size(): number {
    return this.#schedules.size;
  }

  get(name: string): RecurringSchedule | undefined {
    return this.#schedules.get(name);
  }

  /** By name. */
  list(): RecurringSchedule[] {
    return [...this.#schedules.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** The next due time of all; undefined when there is none. */
  get nextMs(): number | undefined {
    let next: number | undefined;
    for (const schedule of this.#schedules.values()) {
      if (schedule.firing || schedule.nextMs === undefined) continue;
      if (next === undefined || schedule.nextMs < next) next = schedule.nextMs;
    }
    return next;
  }

  /** Schedules whose next due time has come, the earliest first. */
  due(nowMs: number): RecurringSchedule[] {
    const due: RecurringSchedule[] = [];
    for (const schedule of this.#schedules.values()) {
      if (!schedule.firing && schedule.nextMs !== undefined && schedule.nextMs <= nowMs) due.push(schedule);
    }
    return due.sort((a, b) => a.nextMs! - b.nextMs!);
  }

  // --------------------------------------------------------------------------- changes, live and when the log is repeated

  set(schedule: RecurringSchedule): void {
    this.#schedules.set(schedule.name, schedule);
  }

  remove(name: string): boolean {
    return this.#schedules.delete(name);
  }

  /** Firings were enqueued, or missed ones passed over. A schedule with nothing left to do is gone. */
  advance(name: string, count: number, lastMs: number | undefined, nextMs: number | undefined): void {
    const schedule = this.#schedules.get(name);
    if (schedule === undefined) throw new MalformedError(`there is no schedule ${name}`);
    schedule.fired += count;
    schedule.lastMs = lastMs ?? schedule.lastMs;
    schedule.nextMs = nextMs;
    if (nextMs === undefined) this.#schedules.delete(name);
  }

  encode(output: Encoder): void {
    output.varint(this.#schedules.size);
    for (const schedule of this.#schedules.values()) encodeSchedule(output, schedule);
  }

  static decode(input: Decoder): RecurringTable {
    const table = new RecurringTable();
    for (let count = input.varint(); count > 0; count--) table.set(decodeSchedule(input));
    return table;
  }
}

/** In the snapshot, and as the fields of the operation that makes a schedule. */
export function encodeSchedule(output: Encoder, schedule: RecurringSchedule): void {
  const { name, timing, template, nextMs, lastMs, fired } = schedule;
  output.string(name);
  output.string(JSON.stringify(timing));
  output.varint(nextMs ?? 0);
  output.varint(lastMs ?? 0);
  output.varint(fired);
  output.varint(template.payload.length);
  output.bytes(template.payload);
  output.varint(template.key === undefined ? 0 : template.key.length + 1);
  if (template.key !== undefined) output.bytes(template.key);
  output.string(template.headers === undefined ? "" : JSON.stringify(template.headers));
  output.string(template.terms);
}

export function decodeSchedule(input: Decoder): RecurringSchedule {
  const name = input.string();
  const timing = parseJson(input.string()) as Timing;
  const nextMs = input.varint() || undefined;
  const lastMs = input.varint() || undefined;
  const fired = input.varint();
  const payload = Buffer.from(input.bytes(input.varint()));
  const keyLength = input.varint();
  const key = keyLength === 0 ? undefined : Buffer.from(input.bytes(keyLength - 1));
  const headers = input.string();
  const template: Template = {
    payload,
    key,
    headers: headers === "" ? undefined : (parseJson(headers) as Headers),
    terms: input.string(),
  };
  return new RecurringSchedule(name, timing, template, nextMs, lastMs, fired);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new MalformedError("a schedule is not JSON");
  }
}

/** Whether two timings were asked for with the same due times, so that a schedule made again goes on where it was. */
export function sameTimes(a: Timing, b: Timing): boolean {
  return (["cron", "timeZone", "everyMs", "fromMs", "untilMs"] as const).every((name) => a[name] === b[name]);
}

function checkTimeZone(timeZone: string): void {
  try {
    new Intl.DateTimeFormat("en", { timeZone });
  } catch (cause) {
    throw refused(
      "timeZone",
      `${JSON.stringify(timeZone.slice(0, 100))} is no time zone that this system knows; give one like "Europe/Berlin"`,
      cause,
    );
  }
}

function refused(option: string, message: string, cause: unknown): VarveError {
  return new VarveError("ERR_OPTION", message, { details: { option }, cause });
}
