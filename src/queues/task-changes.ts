/**
 * Changes to tasks that nobody has been handed: cancelled, or given another time. Where the task stands decides how.
 *
 *   op           fields                                effect
 *   Cancel       lane, offset, place                   done without having been handed out
 *   Reschedule   lane, offset, place, delay, wall      waits for that time
 *
 *   place        0: outstanding   1: waits for its time, in memory   2, clock, block: in that block   3: not reached by the
 *                cursor   4: waits for its children
 */

import { type Engine, OPERATION_HEADER_BYTES } from "../engine/engine.js";
import { FIRST_QUEUE_OP, type LogTime } from "../engine/queue-state.js";
import type { RecordParts } from "../storage/batch.js";
import { type Decoder, MalformedError, VARINT_BYTES_MAX } from "../storage/bytes.js";
import type { Clock } from "../storage/clock.js";
import type { Lane } from "./lane.js";
import { TaskPhase } from "./ledger.js";
import { placeOf } from "./outcomes.js";
import type { DueTerms } from "./scheduled.js";
import { encodeTaskAttributes, isSetAside, NO_ATTRIBUTES } from "./task-record.js";
import type { TaskState } from "./task-state.js";
import { WheelClock } from "./timetable.js";

/** On disk: append, never renumber. */
export const TaskChangeOp = { Cancel: FIRST_QUEUE_OP + 67, Reschedule: FIRST_QUEUE_OP + 68 } as const;

export function isTaskChangeOp(code: number): boolean {
  return code === TaskChangeOp.Cancel || code === TaskChangeOp.Reschedule;
}

/** On disk: append, never renumber. */
const Kind = { Outstanding: 0, InMemory: 1, InBlock: 2, Fresh: 3, Parent: 4 } as const;

type Place =
  | { readonly kind: typeof Kind.Outstanding | typeof Kind.InMemory | typeof Kind.Fresh | typeof Kind.Parent }
  | { readonly kind: typeof Kind.InBlock; readonly clock: WheelClock; readonly block: number };

const CHANGE_BYTES_MAX = OPERATION_HEADER_BYTES + 7 * VARINT_BYTES_MAX;

/** Stores in a task's record what its queue is told about it. */
export function applyTerms(
  parts: RecordParts,
  { maxAttempts, ttlMs, expiresAtMs, orderKey }: TaskTerms,
  clock: Clock,
  setAside: boolean,
): void {
  const isPlain = maxAttempts === undefined && ttlMs === undefined && expiresAtMs === undefined;
  if (isPlain && orderKey === undefined && !setAside) return;
  const limit = maxAttempts === undefined ? 0 : maxAttempts + 1;
  let expiresAt = 0;
  if (ttlMs !== undefined) expiresAt = clock.wallMs() + ttlMs;
  // 0 says that there is none; nothing else was ever due in 1970.
  else if (expiresAtMs !== undefined) expiresAt = Math.max(1, expiresAtMs);
  parts.attributes = encodeTaskAttributes({
    ...NO_ATTRIBUTES,
    limit,
    expiresAt,
    hasTtl: ttlMs !== undefined,
    setAside,
    orderKey,
  });
}

/** What `enqueue` and its relatives settle about how often and how long a task may run. */
export interface TaskTerms {
  readonly maxAttempts?: number | undefined;
  readonly ttlMs?: number | undefined;
  readonly expiresAtMs?: number | undefined;
  readonly orderKey?: string | undefined;
}

/** The lane and offset of the task with an id; undefined when it is none of this queue's. */
export function placeOfId(state: TaskState, id: string): { readonly lane: Lane; readonly offset: number } | undefined {
  const place = state.outcomes.redrivenTo(id) ?? placeOf(id);
  const lane = state.consumer.lanes.find(({ number }) => number === place?.lane);
  if (place === undefined || lane === undefined || place.offset >= lane.stream.next) return undefined;
  // Its offset was jumped over: the task was lost in a power cut, as those that are not synced may be.
  return lane.stream.skipGaps(place.offset) === place.offset ? { lane, offset: place.offset } : undefined;
}

/**
 * Cancels a task, or gives it another time.
 * @param due when it is due from now on; undefined to cancel it
 * @param moreBytes that `add` stages besides
 * @param add hands over the operation, with what its `apply` is to do
 * @returns false when the task is handed out, done, or unknown; then nothing has changed
 */
export async function changeTask(
  engine: Engine,
  state: TaskState,
  id: string,
  due: DueTerms | undefined,
  moreBytes: number,
  add: (apply: () => void) => void,
): Promise<boolean> {
  const named = placeOfId(state, id);
  if (named === undefined) return false;
  const { lane, offset } = named;
  // A task on its way to being blocked is not where it was any more.
  if (state.orders.isBusy) engine.flush();
  for (;;) {
    const place = await findUntaken(state, lane, offset);
    // What waits for its children has no time of its own.
    if (place === undefined || (place.kind === Kind.Parent && due !== undefined)) return false;
    const bytes = due === undefined ? await payloadBytesAt(lane, offset) : 0;
    // What is staged already may concern this task, and what is staged now is applied before anything else can.
    engine.flush();
    if (!stillThere(state, lane, offset, place)) continue;
    engine.begin(0, 0, CHANGE_BYTES_MAX + moreBytes, due === undefined);
    if (!stillThere(state, lane, offset, place)) continue;
    const output = engine.operation(due === undefined ? TaskChangeOp.Cancel : TaskChangeOp.Reschedule, state.id);
    output.varint(lane.number);
    output.varint(offset);
    output.varint(place.kind);
    if (place.kind === Kind.InBlock) {
      output.varint(place.clock);
      output.varint(place.block);
    }
    if (due === undefined) {
      output.varint(bytes);
    } else {
      output.varint(due.delayMs);
      output.varint(due.wallMs);
    }
    engine.endOperation();
    add(() => {
      apply(state, lane, offset, place, due, bytes, engine.entryTime);
      state.changed();
    });
    engine.flush();
    return true;
  }
}

/** Where a task stands that nobody has been handed. */
export async function findUntaken(state: TaskState, lane: Lane, offset: number): Promise<Place | undefined> {
  const task = lane.ledger.outstanding.get(offset);
  if (task !== undefined) {
    return task.phase === TaskPhase.Leased || task.reserved ? undefined : { kind: Kind.Outstanding };
  }
  if (state.flows.isWaiting(lane.number, offset)) return { kind: Kind.Parent };
  const waiting = await state.scheduled.find(lane.number, offset);
  if (waiting === "memory") return { kind: Kind.InMemory };
  if (waiting !== undefined) return { kind: Kind.InBlock, ...waiting };
  if (!isAhead(lane, offset)) return undefined;
  const found = await lane.atRecordLeft(offset, (record) => {
    return offset < lane.ledger.marksFrom || !isSetAside(record.attributes());
  });
  // A purge may have removed it while it was read.
  if (found === undefined && isAhead(lane, offset)) throw lane.missing(offset);
  return found?.used === true ? { kind: Kind.Fresh } : undefined;
}

/** Whether the cursor has not come to it yet. */
export function isFresh({ kind }: Place): boolean {
  return kind === Kind.Fresh;
}

/** What a task counts for among those that wait; 0 when its record cannot be read. */
async function payloadBytesAt(lane: Lane, offset: number): Promise<number> {
  try {
    return await lane.atRecord(offset, ({ end, payloadStart }) => end - payloadStart);
  } catch {
    return 0;
  }
}

function isAhead(lane: Lane, offset: number): boolean {
  return offset >= lane.from && offset < lane.stream.next && !lane.ledger.ahead.has(offset);
}

function stillThere(state: TaskState, lane: Lane, offset: number, place: Place): boolean {
  const task = lane.ledger.outstanding.get(offset);
  if (place.kind === Kind.Outstanding) return task !== undefined && task.phase !== TaskPhase.Leased && !task.reserved;
  if (task !== undefined) return false;
  if (place.kind === Kind.Parent) return state.flows.isWaiting(lane.number, offset);
  if (place.kind === Kind.InMemory) return state.scheduled.has(lane.number, offset);
  if (place.kind === Kind.InBlock) return state.scheduled.holds(lane.number, place.clock, place.block, offset);
  return isAhead(lane, offset);
}

function apply(
  state: TaskState,
  lane: Lane,
  offset: number,
  place: Place,
  due: DueTerms | undefined,
  bytes: number,
  time: LogTime,
): void {
  const { ledger } = lane;
  if (place.kind === Kind.Outstanding) {
    const task = ledger.outstanding.get(offset);
    if (task === undefined) throw new MalformedError(`task ${offset} of queue ${state.name} is not outstanding`);
    if (task.bytes === 0) task.bytes = bytes;
    if (due === undefined) {
      ledger.finish(task);
      state.left(lane.number, offset, "cancelled");
    } else if (due.wallMs > 0) ledger.postpone(task, due.wallMs, true, due.wallMs);
    else ledger.postpone(task, time.elapsedMs + due.delayMs, false, time.wallMs + due.delayMs);
    return;
  }
  let gone = true;
  if (place.kind === Kind.InMemory) gone = state.scheduled.remove(lane.number, offset);
  else if (place.kind === Kind.Parent) gone = state.flows.cancelled(lane.number, offset);
  else if (place.kind === Kind.InBlock) gone = state.scheduled.strike(lane.number, place.clock, place.block, offset);
  if (!gone) throw new MalformedError(`task ${offset} of queue ${state.name} does not wait for its time`);
  if (place.kind === Kind.Fresh) ledger.ahead.add(offset);
  if (due !== undefined) state.scheduled.schedule(lane.number, offset, 1, due, time);
  else {
    ledger.takenBytes += bytes;
    state.left(lane.number, offset, "cancelled");
  }
}

export function replayTaskChange(state: TaskState, code: number, input: Decoder, time: LogTime): void {
  const lane = state.consumer.lane(input.varint());
  const offset = input.varint();
  const kind = input.varint();
  let place: Place;
  if (kind === Kind.InBlock) {
    const clock = input.varint();
    if (clock !== WheelClock.Elapsed && clock !== WheelClock.Wall)
      throw new MalformedError(`clock ${clock} is not known`);
    place = { kind, clock, block: input.varint() };
  } else if (kind === Kind.Outstanding || kind === Kind.InMemory || kind === Kind.Fresh || kind === Kind.Parent) {
    place = { kind };
  } else {
    throw new MalformedError(`place ${kind} of a task is not known`);
  }
  if (place.kind === Kind.Outstanding && !lane.ledger.outstanding.has(offset)) {
    // It had become ready; that is not logged.
    state.scheduled.ripenUntil(lane.number, offset, lane, time);
  }
  const bytes = code === TaskChangeOp.Cancel ? input.varint() : 0;
  const due = code === TaskChangeOp.Cancel ? undefined : { delayMs: input.varint(), wallMs: input.varint() };
  apply(state, lane, offset, place, due, bytes, time);
}
