import path from "node:path";
import { isVarveError } from "../api/errors.js";
import { pathToName } from "../api/names.js";
import { mergeTaskConfig, resolveOpenOptions, resolveTaskOptions } from "../api/options.js";
import { openError, prepareDirectory } from "../engine/directory.js";
import type { EnginePlatform } from "../engine/engine.js";
import { inspectDirectory, type OffsetRange } from "../engine/inspect.js";
import type { VerifyProgress } from "../engine/inspect-report.js";
import type { LogTime, QueueState } from "../engine/queue-state.js";
import { DirectoryRepair, type QueueId, type QueueRepairer } from "../engine/repair.js";
import type { RepairReport } from "../engine/repair-report.js";
import { type Decoder, MalformedError } from "../storage/bytes.js";
import { type DirectoryLock, lockDirectory } from "../storage/lock.js";
import { CryptoRandom, SystemClock } from "../storage/node-clock.js";
import { NodeDisk } from "../storage/node-disk.js";
import type { Stream } from "../storage/stream.js";
import { type Consumer, ConsumerOp, isConsumerOp } from "./consumer.js";
import { GroupType } from "./group.js";
import { inspector } from "./inspect.js";
import { KIND } from "./kinds.js";
import type { Lane } from "./lane.js";
import { LogState } from "./log-state.js";
import { OutcomeOp } from "./outcomes.js";
import { RecurringOp } from "./recurrence.js";
import { type DueTerms, ScheduledOp } from "./scheduled.js";
import { TaskChangeOp } from "./task-changes.js";
import { CursorOp } from "./task-cursors.js";
import { TaskOp, TaskState } from "./task-state.js";

export type { RepairLoss, RepairReport } from "../engine/repair-report.js";

export interface RepairOptions {
  /** Only says what would be done, and changes nothing. @defaultValue false */
  readonly dryRun?: boolean | undefined;
  /** Called as files are read to find the damage; often. */
  readonly onProgress?: ((progress: VerifyProgress) => void) | undefined;
}

/**
 * Makes a damaged directory one that opens, with every queue and record that is not damaged itself. Records keep their
 * offsets; where some are lost there is a gap, which readers pass. Whatever is removed or replaced is kept in the folder
 * `damaged`. A directory without damage is left as it is.
 *
 * May be interrupted at any point and run again.
 *
 * @throws VarveError `ERR_DIR_LOCKED` (it is in use), `ERR_NOT_FOUND`, `ERR_NOT_VARVE`, `ERR_FORMAT_VERSION` (a newer
 * one: not damage), `ERR_ACCESS`, `ERR_DISK_FULL`, `ERR_IO`, `ERR_LOCK_UNSUPPORTED`
 */
export async function repairDirectory(directory: string, options: RepairOptions = {}): Promise<RepairReport> {
  const root = path.resolve(directory).split(path.sep).join("/");
  const platform = { disk: new NodeDisk(), clock: new SystemClock(), random: new CryptoRandom() };
  let lock: DirectoryLock | undefined;
  try {
    // Without a snapshot either, this is not a directory of varve's that was damaged.
    if (!platform.disk.list(root).includes("snap")) prepareDirectory(platform.disk, root, false);
    lock = await lockDirectory(root);
    return await repairLocked(platform, root, options);
  } catch (error) {
    throw isVarveError(error) ? error : openError(root, error);
  } finally {
    lock?.release();
  }
}

/** The same on a platform of the caller's choice; the caller sees to it that nobody else uses the directory. */
export async function repairLocked(
  platform: EnginePlatform,
  directory: string,
  options: RepairOptions = {},
): Promise<RepairReport> {
  const { problems } = await inspectDirectory(platform.disk, directory, inspector, { onProgress: options.onProgress });
  const dryRun = options.dryRun === true;
  if (problems.length === 0) {
    return { sound: true, dryRun, problems, actions: [], losses: [], notes: [], kept: undefined };
  }
  return await new DirectoryRepair(platform, directory, resolveOpenOptions({}), repairer, problems).run(dryRun);
}

const repairer: QueueRepairer = {
  ...inspector,

  queueOf(folder: string, name: string): QueueId | undefined {
    const kind = folder === "log" ? KIND.log : KIND.task;
    const queue = pathToName(name);
    return queue === undefined ? undefined : { kind, name: queue };
  },

  defaultConfig(kind: number): Buffer {
    if (kind === KIND.log) return Buffer.alloc(0);
    return Buffer.from(JSON.stringify(mergeTaskConfig(undefined, resolveTaskOptions(undefined))));
  },

  begin(state: QueueState): void {
    for (const { lanes } of consumersOf(state)) {
      for (const { ledger, stream } of lanes) {
        ledger.advance(stream.head);
        ledger.marksFrom = Number.MAX_SAFE_INTEGER;
      }
    }
  },

  /**
   * A delivery moves the cursor past tasks that an operation which is missing may have left unfinished, so deliveries are
   * not repeated, nor what builds on them: such tasks are delivered again. That a task is done is final.
   */
  salvage(state: QueueState, code: number, fields: Decoder, time: LogTime): boolean {
    if (state instanceof LogState && !isConsumerOp(code)) return salvageReader(state, code, fields, time);
    switch (code) {
      case ConsumerOp.Deliver:
      case ConsumerOp.Extend:
      case ConsumerOp.Release:
      case ConsumerOp.GiveBack:
      case ConsumerOp.Block: // such tasks are met again
      case TaskOp.Clear: // which keeps what is leased, and that is not known any more
        return false;
      case ConsumerOp.Ack: {
        const lane = laneIn(state, fields);
        if (lane === undefined) return false;
        for (let count = fields.varint(); count > 0; count--) done(lane, fields.varint());
        return true;
      }
      case ConsumerOp.Take:
      case ConsumerOp.Discard: {
        const lane = laneIn(state, fields);
        if (lane === undefined) return false;
        fields.varint();
        for (let count = fields.varint(); count > 0; count--) {
          done(lane, fields.varint());
          fields.varint();
        }
        return true;
      }
      case ConsumerOp.Bury: {
        const lane = laneIn(state, fields);
        if (lane === undefined) return false;
        done(lane, fields.varint());
        return true;
      }
      case ScheduledOp.Schedule: {
        if (!(state instanceof TaskState)) return false;
        const lane = state.consumer.lane(fields.varint());
        const terms = { delayMs: fields.varint(), wallMs: fields.varint() };
        const first = fields.varint();
        const count = fields.varint();
        for (let offset = first; offset < first + count; offset++) schedule(state, lane, offset, terms, time);
        return true;
      }
      // What they build on may be missing; tasks then stay in memory, or come as they are.
      case ScheduledOp.Spill:
      case ScheduledOp.Unspill:
      case TaskChangeOp.Cancel:
      case TaskChangeOp.Reschedule:
      case ConsumerOp.Pass:
      case RecurringOp.Fired:
      case OutcomeOp.Progress:
        return false;
      case CursorOp.CreateCursor:
      case CursorOp.DeleteCursor:
      case CursorOp.ResetCursor:
        return salvageReader(state, code, fields, time);
      default:
        if (state instanceof LogState) return salvageReader(state, code, fields, time);
        state.replay(code, fields, time);
        return true;
    }
  },

  settle(state: QueueState): void {
    for (const { dead, lanes } of consumersOf(state)) {
      for (const { ledger, stream } of lanes) {
        // The due times of tasks whose records say that they have one may be lost: such tasks are ready.
        if (ledger.marksFrom > stream.next) ledger.marksFrom = stream.next;
      }
      const { stream, exhumed } = dead;
      for (const offset of exhumed) {
        if (stream === undefined || offset < stream.head || offset >= stream.next) exhumed.delete(offset);
      }
      dead.exhume([]);
    }
    if (state instanceof TaskState) {
      state.outcomes.retain();
      state.flows.dissolve();
    }
    if (!(state instanceof LogState)) return;
    for (const group of state.groups.values()) {
      if (group.type === GroupType.exclusive) group.commit(state.stream.head, group.activeMs);
    }
  },

  forget(state: QueueState, stream: Stream, { from, to }: OffsetRange): void {
    if (state instanceof TaskState && stream === state.outcomes.stream) {
      state.outcomes.results.retain((offset) => offset < from || offset >= to);
    }
    for (const lane of consumersOf(state).flatMap(({ lanes }) => lanes)) {
      if (lane.stream !== stream) continue;
      const { ledger } = lane;
      for (const task of [...ledger.outstanding]) {
        if (task.offset >= from && task.offset < to) ledger.finish(task);
      }
      for (const offset of ledger.ahead) if (offset >= from && offset < to) ledger.ahead.delete(offset);
    }
  },

  streamLabel(state: QueueState, stream: Stream): string {
    const label = inspector.label(state.kind, state.name);
    if (state instanceof LogState && stream !== state.stream) return `${label}/${stream.folder}`;
    return state instanceof TaskState && stream === state.deadTasks ? `${label}/dead` : label;
  },

  nameOfLost(streamId: number): QueueId {
    return { kind: KIND.log, name: `lost.stream-${streamId}` };
  },
};

/** Every consumer of a queue's records. */
function consumersOf(state: QueueState): Consumer[] {
  if (state instanceof TaskState) return [state.consumer, ...state.cursors.consumers];
  if (!(state instanceof LogState)) return [];
  return [...state.groups.values()].flatMap((group) => (group.type === GroupType.shared ? [group.consumer] : []));
}

/** The lane that a consumer's operation is about; undefined when what made it is missing. */
function laneIn(state: QueueState, fields: Decoder): Lane | undefined {
  const number = fields.varint();
  const lane = fields.varint();
  const consumer = consumersOf(state).find((each) => each.number === number);
  return consumer?.lanes.find((each) => each.number === lane);
}

/** What builds on an operation that is missing is left out: a group or cursor is there or not as far as the log tells. */
function salvageReader(state: QueueState, code: number, fields: Decoder, time: LogTime): boolean {
  try {
    state.replay(code, fields, time);
    return true;
  } catch (error) {
    if (error instanceof MalformedError) return false;
    throw error;
  }
}

function done({ ledger, scheduled, number }: Lane, offset: number): void {
  const task = ledger.outstanding.get(offset);
  if (task !== undefined) ledger.finish(task);
  else scheduled?.remove(number, offset);
  if (offset >= ledger.cursor) ledger.ahead.add(offset);
}

/** Has a task wait for its time, unless it is done already. */
function schedule(state: TaskState, lane: Lane, offset: number, terms: DueTerms, time: LogTime): void {
  const { ledger, number } = lane;
  if (offset < ledger.cursor || ledger.ahead.has(offset) || state.scheduled.has(number, offset)) return;
  state.scheduled.schedule(number, offset, 1, terms, time);
  // Where its record is not believed, the cursor would take it as well.
  if (offset < ledger.marksFrom) ledger.ahead.add(offset);
  else lane.aside++;
}
