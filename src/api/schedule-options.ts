/**
 * Options of what a task queue does about time: recurring schedules, other due times. As in options.ts, whose continuation
 * this is.
 */

import type { ScheduleSpec } from "./contract.js";
import { VarveError } from "./errors.js";
import { choice, duration, integer, moment, optional, optionError, parseText, resolver, text } from "./option-table.js";
import { DELAY_MS_MAX } from "./options.js";
import { show } from "./show.js";

const SCHEDULE_NAME_LENGTH_MAX = 200;
/** A shorter period would be a loop. */
const EVERY_MS_MIN = 10;

// ----------------------------------------------------------------------------------------------------------- schedules

export interface ResolvedScheduleSpec {
  readonly cron: string | undefined;
  readonly timeZone: string | undefined;
  readonly everyMs: number | undefined;
  readonly fromMs: number | undefined;
  readonly untilMs: number | undefined;
  readonly missed: "once" | "skip" | "all";
  readonly limit: number | undefined;
}

const resolveSpec = resolver<ResolvedScheduleSpec>("schedule()", {
  cron: text("cron", 1000),
  timeZone: text("timeZone", 100),
  everyMs: optional(duration("every", EVERY_MS_MIN, DELAY_MS_MAX)),
  fromMs: moment("from"),
  untilMs: moment("until"),
  missed: choice<"once" | "skip" | "all">("missed", ["once", "skip", "all"], "once"),
  limit: optional(integer("limit", 1, Number.MAX_SAFE_INTEGER)),
});

export function resolveScheduleSpec(spec: ScheduleSpec): ResolvedScheduleSpec {
  const resolved = resolveSpec(spec);
  if ((resolved.cron === undefined) === (resolved.everyMs === undefined)) {
    throw optionError("cron", "a schedule needs either cron or every");
  }
  if (resolved.timeZone !== undefined && resolved.cron === undefined) {
    throw optionError("timeZone", "timeZone goes with cron: `every` knows no local time");
  }
  if (resolved.everyMs !== undefined && !Number.isInteger(resolved.everyMs)) {
    throw optionError("every", `every must be whole milliseconds; got ${resolved.everyMs}`);
  }
  return resolved;
}

/** @throws VarveError `ERR_ARGUMENT` */
export function checkScheduleName(name: unknown): string {
  try {
    return parseText(name, "name", SCHEDULE_NAME_LENGTH_MAX);
  } catch (cause) {
    throw new VarveError(
      "ERR_ARGUMENT",
      `the name of a schedule must be a well-formed string of 1 to ${SCHEDULE_NAME_LENGTH_MAX} characters; got ${show(name)}`,
      { cause },
    );
  }
}

// ---------------------------------------------------------------------------------------------------- which task, when

/** Names a task by its id or its dedupe key. @throws VarveError `ERR_ARGUMENT` */
export function checkTaskName(task: unknown): { readonly id: string } | { readonly dedupeKey: string } {
  if (typeof task === "string" && task.length > 0 && task.length <= 100) return { id: task };
  if (typeof task === "object" && task !== null) {
    const { dedupeKey: key, id } = task as { readonly dedupeKey?: unknown; readonly id?: unknown };
    if (typeof key === "string") return { dedupeKey: key };
    if (typeof id === "string") return { id };
  }
  throw new VarveError("ERR_ARGUMENT", `name a task by its id or by { dedupeKey }; got ${show(task)}`);
}

export interface ResolvedDue {
  readonly delayMs: number | undefined;
  readonly atMs: number | undefined;
}

const resolveDueOptions = resolver<ResolvedDue>("reschedule()", {
  delayMs: optional(duration("delay", 0, DELAY_MS_MAX)),
  atMs: moment("at"),
});

export function resolveDue(due: unknown): ResolvedDue {
  const resolved = resolveDueOptions(due);
  if ((resolved.delayMs === undefined) === (resolved.atMs === undefined)) {
    throw optionError("at", "reschedule() needs either at or delay");
  }
  return resolved;
}
