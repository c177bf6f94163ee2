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
import type { Decoder } from "../storage/bytes.js";
import { type DirectoryLock, lockDirectory } from "../storage/lock.js";
import { CryptoRandom, SystemClock } from "../storage/node-clock.js";
import { NodeDisk } from "../storage/node-disk.js";
import type { Stream } from "../storage/stream.js";
import { ConsumerOp } from "./consumer.js";
import { inspector } from "./inspect.js";
import { KIND } from "./kinds.js";
import type { Ledger } from "./ledger.js";
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
    if (!(state instanceof TaskState)) return;
    for (const { ledger, stream } of state.consumer.lanes) ledger.advance(stream.head);
  },

  /**
   * A delivery moves the cursor past tasks that an operation which is missing may have left unfinished, so deliveries are
   * not repeated, nor what builds on them: such tasks are delivered again. That a task is done is final.
   */
  salvage(state: QueueState, code: number, fields: Decoder, time: LogTime): boolean {
    if (!(state instanceof TaskState)) {
      state.replay(code, fields, time);
      return true;
    }
    switch (code) {
      case ConsumerOp.Deliver:
      case ConsumerOp.Extend:
      case ConsumerOp.Release:
      case ConsumerOp.GiveBack:
        return false;
      case ConsumerOp.Ack: {
        const ledger = ledgerIn(state, fields);
        for (let count = fields.varint(); count > 0; count--) done(ledger, fields.varint());
        return true;
      }
      case ConsumerOp.Take: {
        const ledger = ledgerIn(state, fields);
        for (let count = fields.varint(); count > 0; count--) {
          done(ledger, fields.varint());
          fields.varint();
        }
        return true;
      }
      case ConsumerOp.Bury:
        done(ledgerIn(state, fields), fields.varint());
        return true;
      case TaskOp.Schedule: {
        const { ledger } = state.consumer.lane(fields.varint());
        for (let count = fields.varint(); count > 0; count--) {
          const [offset, delayMs, due] = [fields.varint(), fields.varint(), fields.varint()];
          if (offset >= ledger.cursor && !isDone(ledger, offset)) state.schedule(ledger, offset, delayMs, due, time);
        }
        return true;
      }
      default:
        state.replay(code, fields, time);
        return true;
    }
  },

  settle(state: QueueState): void {
    if (!(state instanceof TaskState)) return;
    const { deadTasks, exhumed } = state;
    for (const offset of exhumed) if (offset < deadTasks.head || offset >= deadTasks.next) exhumed.delete(offset);
    state.consumer.dead.exhume([]);
  },

  forget(state: QueueState, stream: Stream, { from, to }: OffsetRange): void {
    if (!(state instanceof TaskState)) return;
    const ledger = state.consumer.lanes.find((lane) => lane.stream === stream)?.ledger;
    if (ledger === undefined) return;
    for (const task of [...ledger.outstanding.values()]) {
      if (task.offset >= from && task.offset < to) ledger.finish(task);
    }
    for (const offset of ledger.ahead) if (offset >= from && offset < to) ledger.ahead.delete(offset);
  },

  streamLabel(state: QueueState, stream: Stream): string {
    const label = inspector.label(state.kind, state.name);
    return state instanceof TaskState && stream === state.deadTasks ? `${label}/dead` : label;
  },

  nameOfLost(streamId: number): QueueId {
    return { kind: KIND.log, name: `lost.stream-${streamId}` };
  },
};

/** The ledger that a consumer's operation is about. */
function ledgerIn(state: TaskState, fields: Decoder): Ledger {
  fields.varint(); // a task queue has one consumer
  return state.consumer.lane(fields.varint()).ledger;
}

function done(ledger: Ledger, offset: number): void {
  const task = ledger.outstanding.get(offset);
  if (task !== undefined) ledger.finish(task);
  else if (offset >= ledger.cursor) ledger.ahead.add(offset);
}

function isDone(ledger: Ledger, offset: number): boolean {
  return ledger.outstanding.has(offset) || ledger.ahead.has(offset);
}
