/** The operations, attributes and states of queues, in words: for dumps. */

import type { QueueDescriber } from "../engine/inspect-dump.js";
import { showBytes } from "../engine/inspect-dump.js";
import { Decoder, MalformedError } from "../storage/bytes.js";
import { ConsumerOp, isConsumerOp } from "./consumer.js";
import { decodeChild, decodeFlows, FlowOp } from "./flows.js";
import { GroupType } from "./group.js";
import { KIND, kindName } from "./kinds.js";
import { Ledger, TaskPhase } from "./ledger.js";
import { LogOp } from "./log-state.js";
import { decodeRedriven, OutcomeOp } from "./outcomes.js";
import { RecurringOp } from "./recurrence.js";
import { decodeSchedule, type RecurringSchedule } from "./recurring.js";
import { ScheduledOp } from "./scheduled.js";
import { TaskChangeOp } from "./task-changes.js";
import { CursorOp, decodePositions } from "./task-cursors.js";
import { decodeTaskAttributes } from "./task-record.js";
import { TaskOp } from "./task-state.js";
import { decodeEntries, Wheel, WheelClock } from "./timetable.js";

export const describer: QueueDescriber = {
  kindName,

  operation(code: number, kind: number | undefined, fields: Decoder): object {
    if (isConsumerOp(code)) return consumerOperation(code, fields);
    const known = kind ?? guessKind(code, fields);
    return known === KIND.log ? logOperation(code, fields) : taskOperation(code, fields);
  },

  attributes(bytes: Buffer): unknown {
    try {
      const { limit, failures, death, setAside } = decodeTaskAttributes(bytes);
      return { limit: limitOf(limit), failures, death, setAside: setAside || undefined };
    } catch {
      return showBytes(bytes);
    }
  },

  state(kind: number, input: Decoder): object {
    if (kind === KIND.log) return logState(input);
    const config = parse(input.string());
    const lanes = list(input, () => lane(input.varint(), input));
    const exhumed = list(input, () => input.varint());
    const aside = lanes.map(() => input.varint());
    const { scheduled, dedupe, schedules } = parts(input);
    return {
      config,
      lanes,
      exhumed,
      aside,
      scheduled,
      dedupe,
      schedules,
      ...cursors(input),
      ...outcomes(input),
      flows: decodeFlows(input),
    };
  },
};

/** What a task queue's parts keep. */
function parts(input: Decoder): { scheduled: object; dedupe: object; schedules: object } {
  const clocks = {
    creditMs: input.varint(),
    seen: { elapsedMs: input.varint(), wallMs: input.varint() },
    generation: input.varint(),
  };
  const lanes = list(input, () => ({
    lane: input.varint(),
    elapsed: describeWheel(Wheel.decode(input)),
    wall: describeWheel(Wheel.decode(input)),
  }));
  const dedupe = list(input, () => ({ key: input.string(), id: input.string(), since: input.varint() }));
  const schedules = list(input, () => describeSchedule(decodeSchedule(input)));
  return { scheduled: { ...clocks, lanes }, dedupe, schedules };
}

function cursors(input: Decoder): { lastCursor: number; cursors: object[] } {
  const lastCursor = input.varint();
  const cursors = list(input, () => {
    return { cursor: input.varint(), name: input.string(), lanes: list(input, () => lane(input.varint(), input)) };
  });
  return { lastCursor, cursors };
}

function outcomes(input: Decoder): { results: object[]; redriven: object[] } {
  const results = list(input, () => {
    return { id: input.string(), offset: input.varint(), bytes: input.varint(), since: input.varint() };
  });
  return { results, redriven: decodeRedriven(input) };
}

function describeWheel(wheel: Wheel): object {
  const blocks = [...wheel.blocks()].map(({ offset, count, firstDue, lastDue, lowest, highest, struck }) => {
    return {
      offset,
      count,
      firstDue,
      lastDue,
      lowest,
      highest,
      struck: struck === undefined ? undefined : [...struck],
    };
  });
  return { entries: [...wheel.entries()], blocks };
}

function lane(number: number, input: Decoder): object {
  const ledger = Ledger.decode(number, input);
  const outstanding = [...ledger.outstanding].map((task) => ({
    offset: task.offset,
    phase: phaseName(task.phase),
    attempt: task.attempt,
    limit: limitOf(task.limit),
    at: Number.isFinite(task.at) ? task.at : "session",
    clock: task.wall ? "wall" : "elapsed",
    wallAt: task.wallAt,
    since: task.since,
    token: token(task.tokenHigh, task.tokenLow),
    bytes: task.bytes,
    failures: task.failures,
    progress: task.progress === undefined ? undefined : parse(task.progress),
  }));
  const passedAhead = [...ledger.ahead];
  const { cursor, takenBytes } = ledger;
  return { lane: number, cursor, takenBytes, outstanding, passedAhead };
}

/**
 * The kinds count their codes from the same number, and the log does not repeat a queue's kind. The one code that both
 * have is told by its fields: a trim is one varint, a configuration is a JSON object behind its length.
 */
function guessKind(code: number, fields: Decoder): number {
  if (LOG_OPS.has(code) && code !== LogOp.Trim) return KIND.log;
  if (code !== LogOp.Trim) return KIND.task;
  const ahead = new Decoder(fields.buffer, fields.position, fields.end);
  ahead.varint();
  return ahead.done ? KIND.log : KIND.task;
}

const LOG_OPS: ReadonlySet<number> = new Set(Object.values(LogOp));

function logOperation(code: number, fields: Decoder): object {
  switch (code) {
    case LogOp.Trim:
      return { name: "Trim", offset: fields.varint() };
    case LogOp.Configure:
      return { name: "Configure", config: parse(fields.string()) };
    case LogOp.CreateGroup:
      return {
        name: "CreateGroup",
        group: fields.varint(),
        type: groupType(fields.u8()),
        groupName: fields.string(),
        position: fields.varint(),
        rules: fields.done ? undefined : parse(fields.string()),
      };
    case LogOp.DeleteGroup:
      return { name: "DeleteGroup", group: fields.varint() };
    case LogOp.Commit:
      return { name: "Commit", group: fields.varint(), position: fields.varint() };
    case LogOp.Seek:
      return { name: "Seek", group: fields.varint(), position: fields.varint(), lost: fields.varint() };
    case LogOp.Lose:
      return { name: "Lose", group: fields.varint(), count: fields.varint() };
    case LogOp.SetRules:
      return { name: "SetRules", group: fields.varint(), rules: parse(fields.string()) };
    default:
      throw new MalformedError(`operation ${code} of a log is not known`);
  }
}

function logState(input: Decoder): object {
  const config = parse(input.string());
  const lastGroup = input.varint();
  const groups = list(input, () => {
    const group = input.varint();
    const type = input.u8();
    const named = { group, type: groupType(type), name: input.string() };
    return { ...named, ...(type === GroupType.shared ? sharedGroup(input) : exclusiveGroup(input)) };
  });
  return { config, lastGroup, groups };
}

function exclusiveGroup(input: Decoder): object {
  const position = { committed: input.varint(), activeMs: input.varint(), lost: input.varint() };
  const missed = input.varint();
  return { ...position, missed, missedFrom: missed === 0 ? undefined : input.varint() };
}

function sharedGroup(input: Decoder): object {
  const rules = parse(input.string());
  const lost = input.varint();
  const log = lane(0, input);
  const redriven = input.u8() === 0 ? undefined : lane(1, input);
  return { rules, lost, log, redriven, exhumed: list(input, () => input.varint()) };
}

function groupType(type: number): string {
  return Object.entries(GroupType).find(([, value]) => value === type)?.[0] ?? String(type);
}

function taskOperation(code: number, fields: Decoder): object {
  switch (code) {
    case TaskOp.Configure:
      return { name: "Configure", config: parse(fields.string()) };
    case CursorOp.CreateCursor:
      return {
        name: "CreateCursor",
        cursor: fields.varint(),
        cursorName: fields.string(),
        positions: decodePositions(fields),
      };
    case CursorOp.DeleteCursor:
      return { name: "DeleteCursor", cursor: fields.varint() };
    case CursorOp.ResetCursor:
      return { name: "ResetCursor", cursor: fields.varint(), positions: decodePositions(fields) };
    case TaskOp.Clear:
      return { name: "Clear", below: list(fields, () => ({ lane: fields.varint(), offset: fields.varint() })) };
    case TaskOp.Dedupe:
      return { name: "Dedupe", keys: list(fields, () => ({ key: fields.string(), id: fields.string() })) };
    case OutcomeOp.Result:
      return { name: "Result", id: fields.string(), offset: fields.varint(), bytes: fields.varint() };
    case OutcomeOp.Progress:
      return { name: "Progress", lane: fields.varint(), offset: fields.varint(), progress: parse(fields.string()) };
    case OutcomeOp.Redriven:
      return { name: "Redriven", tasks: decodeRedriven(fields) };
    case FlowOp.Wait:
      return {
        name: "Wait",
        parents: list(fields, () => ({ lane: fields.varint(), offset: fields.varint(), children: fields.varint() })),
      };
    case FlowOp.Link:
      return {
        name: "Link",
        children: list(fields, () => ({ lane: fields.varint(), offset: fields.varint(), ...decodeChild(fields) })),
      };
    case FlowOp.ChildDone:
      return { name: "ChildDone", lane: fields.varint(), offset: fields.varint(), count: fields.varint() };
    case FlowOp.ChildGone:
      return { name: "ChildGone", lane: fields.varint(), offset: fields.varint(), reason: fields.string() };
    case FlowOp.Told:
      return { name: "Told", count: fields.varint() };
    case FlowOp.ParentDead:
      return { name: "ParentDead", lane: fields.varint(), offset: fields.varint(), bytes: fields.varint() };
    case FlowOp.LettersGone:
      return { name: "LettersGone", ids: list(fields, () => fields.string()) };
    case ScheduledOp.Schedule:
      return {
        name: "Schedule",
        lane: fields.varint(),
        delayMs: fields.varint(),
        wallDueMs: fields.varint(),
        offset: fields.varint(),
        count: fields.varint(),
      };
    case ScheduledOp.Spill:
      return {
        name: "Spill",
        lane: fields.varint(),
        clock: clockName(fields.varint()),
        blocks: list(fields, () => ({ offset: fields.varint(), count: fields.varint() })),
      };
    case ScheduledOp.Unspill:
      return {
        name: "Unspill",
        lane: fields.varint(),
        clock: clockName(fields.varint()),
        block: fields.varint(),
        entries: decodeEntries(fields.bytes(fields.varint())),
      };
    case ScheduledOp.Credit:
      return { name: "Credit", ms: fields.varint() };
    case TaskChangeOp.Cancel:
      return { name: "Cancel", ...placeOf(fields) };
    case TaskChangeOp.Reschedule:
      return { name: "Reschedule", ...placeOf(fields), delayMs: fields.varint(), wallDueMs: fields.varint() };
    case RecurringOp.SetSchedule:
      return { name: "SetSchedule", ...describeSchedule(decodeSchedule(fields)) };
    case RecurringOp.Unschedule:
      return { name: "Unschedule", schedule: fields.string() };
    case RecurringOp.Fired:
      return {
        name: "Fired",
        schedule: fields.string(),
        count: fields.varint(),
        last: fields.varint(),
        next: fields.varint(),
      };
    default:
      throw new MalformedError(`operation ${code} of a task queue is not known`);
  }
}

function placeOf(fields: Decoder): object {
  const place = { lane: fields.varint(), offset: fields.varint() };
  const kind = fields.varint();
  const kinds = ["outstanding", "waiting", "in a block", "not reached", "waits for children"];
  const stands = { ...place, stands: kinds[kind] ?? kind };
  return kind === 2 ? { ...stands, clock: clockName(fields.varint()), block: fields.varint() } : stands;
}

function clockName(clock: number): string | number {
  return (
    Object.entries(WheelClock)
      .find(([, value]) => value === clock)?.[0]
      .toLowerCase() ?? clock
  );
}

function describeSchedule({ name, timing, template, nextMs, lastMs, fired }: RecurringSchedule): object {
  const { payload, key, headers, terms } = template;
  const task = { payload: showBytes(payload), key: key && showBytes(key), headers, terms: parse(terms) };
  return { schedule: name, timing, next: nextMs, last: lastMs, fired, task };
}

function consumerOperation(code: number, fields: Decoder): object {
  const consumer = fields.varint();
  const name = Object.entries(ConsumerOp).find(([, each]) => each === code)![0];
  if (code === ConsumerOp.Exhume) return { name, consumer, deadOffsets: list(fields, () => fields.varint()) };
  if (code === ConsumerOp.Purge) return { name, consumer, belowDeadOffset: fields.varint() };
  return { name, consumer, lane: fields.varint(), ...laneOperation(code, fields) };
}

function laneOperation(code: number, fields: Decoder): object {
  switch (code) {
    case ConsumerOp.Deliver:
      return {
        passed: fields.varint(),
        leaseMs: fields.varint(),
        tasks: list(fields, () => ({
          offset: fields.varint(),
          ...attempt(fields.varint(), fields),
          limit: limitOf(fields.varint()),
          bytes: fields.varint(),
          token: token(fields.u32(), fields.u32()),
        })),
      };
    case ConsumerOp.Release:
      return { offset: fields.varint(), delayMs: fields.varint(), error: fields.string() };
    case ConsumerOp.Extend:
      return { offset: fields.varint(), leaseMs: fields.varint() };
    case ConsumerOp.Bury:
      return { offset: fields.varint() };
    case ConsumerOp.Take:
    case ConsumerOp.Discard:
      return {
        passed: fields.varint(),
        tasks: list(fields, () => ({ offset: fields.varint(), ...marked("bytes", fields.varint()) })),
      };
    case ConsumerOp.Block:
      return {
        passed: fields.varint(),
        tasks: list(fields, () => ({
          offset: fields.varint(),
          limit: limitOf(fields.varint()),
          bytes: fields.varint(),
          order: fields.varint(),
        })),
      };
    case ConsumerOp.Pass:
      return { passed: fields.varint(), to: fields.varint() };
    case ConsumerOp.GiveBack:
      return { to: fields.varint() === 0 ? "head" : "tail", offsets: list(fields, () => fields.varint()) };
    default:
      return { offsets: list(fields, () => fields.varint()) };
  }
}

/** A number that carries whether its task is one that the cursor came to. */
function marked(name: string, value: number): object {
  return { [name]: Math.floor(value / 2), fresh: value % 2 === 1 };
}

/** An attempt, whether its task is one that the cursor came to, and what stands for its order key. */
function attempt(value: number, fields: Decoder): object {
  const order = value % 4 < 2 ? {} : { order: fields.varint() };
  return { attempt: Math.floor(value / 4), fresh: value % 2 === 1, ...order };
}

function list<T>(input: Decoder, read: () => T): T[] {
  const items: T[] = [];
  for (let count = input.varint(); count > 0; count--) items.push(read());
  return items;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Deliveries allowed, as stored: 0 is the queue's rule, else one more than the number. */
function limitOf(stored: number): number | string | undefined {
  return stored === 0 ? undefined : stored === 1 ? "unlimited" : stored - 1;
}

function phaseName(phase: number): string {
  return (
    Object.entries(TaskPhase)
      .find(([, value]) => value === phase)?.[0]
      .toLowerCase() ?? String(phase)
  );
}

function token(high: number, low: number): string {
  return (high >>> 0).toString(16).padStart(8, "0") + (low >>> 0).toString(16).padStart(8, "0");
}
