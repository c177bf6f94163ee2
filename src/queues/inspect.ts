import path from "node:path";
import { isVarveError, VarveError } from "../api/errors.js";
import { openError, prepareDirectory } from "../engine/directory.js";
import { inspectDirectory, type OffsetRange, type QueueInspector, type StateProblem } from "../engine/inspect.js";
import { dump } from "../engine/inspect-dump.js";
import type { VerifyProgress, VerifyReport } from "../engine/inspect-report.js";
import type { QueueState } from "../engine/queue-state.js";
import type { RecordCursor } from "../storage/batch.js";
import { MalformedError } from "../storage/bytes.js";
import { type DirectoryLock, LOCK_FILE, lockDirectory } from "../storage/lock.js";
import { NodeDisk } from "../storage/node-disk.js";
import type { Stream } from "../storage/stream.js";
import type { Consumer } from "./consumer.js";
import type { DeadState } from "./dead-state.js";
import { GroupType } from "./group.js";
import { describer } from "./inspect-describe.js";
import { kindName, kinds } from "./kinds.js";
import type { Lane } from "./lane.js";
import type { Outstanding } from "./ledger.js";
import { TaskPhase } from "./ledger.js";
import { type LogGroup, LogState } from "./log-state.js";
import { RESULTS_FOLDER } from "./outcomes.js";
import { decodeTaskAttributes } from "./task-record.js";
import { LATER_FOLDER, TaskState } from "./task-state.js";

export type { VerifyProblem, VerifyProgress, VerifyReport } from "../engine/inspect-report.js";

export interface VerifyOptions {
  /** Called as files are read; often. */
  readonly onProgress?: ((progress: VerifyProgress) => void) | undefined;
}

/**
 * Checks every file of a directory: formats, checksums, the order of offsets, and that the records which queues still
 * need are there. Nothing is changed. Damage is reported, not thrown, and does not keep the rest from being checked.
 *
 * The directory is locked meanwhile; where it cannot be (a read-only file system, a copy without a LOCK file) a note
 * says so.
 *
 * @throws VarveError `ERR_DIR_LOCKED` (it is in use), `ERR_NOT_FOUND`, `ERR_NOT_VARVE`, `ERR_ACCESS`, `ERR_IO`
 */
export async function verifyDirectory(directory: string, options: VerifyOptions = {}): Promise<VerifyReport> {
  const root = absolute(directory);
  const disk = new NodeDisk();
  let lock: DirectoryLock | undefined;
  try {
    const names = disk.list(root);
    // Without a snapshot either, this is not a directory of varve's that was damaged.
    if (!names.includes("snap")) prepareDirectory(disk, root, false);
    const notes: string[] = [];
    if (names.includes(LOCK_FILE)) lock = await tryLock(root, notes);
    else notes.push(`${root}: there is no ${LOCK_FILE}, so the directory was not locked`);
    return await inspectDirectory(disk, root, inspector, { onProgress: options.onProgress, notes });
  } catch (error) {
    throw isVarveError(error) ? error : openError(root, error);
  } finally {
    lock?.release();
  }
}

/**
 * The parts of one of varve's files as plain objects that JSON can hold: headers, entries, batches, records, operations,
 * sections. Payloads are text where they are printable, else base64, and cut. What is damaged is shown as such.
 *
 * @throws VarveError `ERR_NOT_VARVE` (some other file), `ERR_NOT_FOUND`, `ERR_ACCESS`, `ERR_IO`
 */
export async function* dumpFile(file: string): AsyncGenerator<object> {
  const resolved = absolute(file);
  try {
    yield* dump(new NodeDisk(), resolved, describer);
  } catch (error) {
    if (isVarveError(error)) throw error;
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT")
      throw new VarveError("ERR_NOT_FOUND", `${resolved}: there is no such file.`, { cause: error });
    if (code === "EISDIR") {
      throw new VarveError("ERR_NOT_VARVE", `${resolved} is a directory. Name one of the files in it.`, {
        cause: error,
      });
    }
    throw openError(resolved, error);
  }
}

function absolute(file: string): string {
  return path.resolve(file).split(path.sep).join("/");
}

async function tryLock(root: string, notes: string[]): Promise<DirectoryLock | undefined> {
  try {
    return await lockDirectory(root);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "EACCES" && code !== "EPERM" && code !== "EROFS" && code !== "ERR_LOCK_UNSUPPORTED") throw error;
    notes.push(`${root}: cannot be locked (${code}); what another process changes meanwhile may look like damage`);
    return undefined;
  }
}

/** The queues of an embedded directory, as an inspection sees them. */
export const inspector: QueueInspector = {
  kinds,
  folders: ["log", "task"],

  label(kind: number, name: string): string {
    return `${kindName(kind)}/${name}`;
  },

  recordProblem(state: QueueState, stream: Stream, record: RecordCursor): string | undefined {
    const consumer = consumerOf(state, stream);
    if (consumer === undefined) return undefined;
    try {
      const { death } = decodeTaskAttributes(record.attributes());
      return stream === consumer.dead.stream && death === undefined ? "is no dead letter" : undefined;
    } catch (error) {
      if (error instanceof MalformedError) return error.message;
      throw error;
    }
  },

  stateProblems(state: QueueState): StateProblem[] {
    if (state instanceof LogState) return [...state.groups.values()].flatMap((group) => groupProblems(group, state));
    if (!(state instanceof TaskState)) return [];
    const lanes = [state.consumer, ...state.cursors.consumers].flatMap((consumer) => consumer.lanes);
    return [...lanes.flatMap(laneProblems), ...deadProblems(state.consumer.dead)];
  },

  *needed(state: QueueState, stream: Stream): Generator<OffsetRange> {
    const consumer = consumerOf(state, stream);
    if (consumer === undefined) {
      // Of a group that has been deleted, nothing is needed.
      if (!(state instanceof LogState) || stream === state.stream) yield { from: stream.head, to: stream.next };
      return;
    }
    const lane = consumer.lanes.find((each) => each.stream === stream);
    if (lane !== undefined) {
      const { cursor, outstanding, ahead } = lane.ledger;
      const held = state instanceof TaskState ? heldByCursors(state, stream) : new Set<number>();
      const parents = state instanceof TaskState ? state.flows.offsets(lane.number) : [];
      const behind = new Set([...outstanding.keys(), ...held, ...parents].filter((offset) => offset < cursor));
      for (const offset of [...behind].sort((a, b) => a - b)) yield { from: offset, to: offset + 1 };
      const done = [...ahead].filter((offset) => !held.has(offset));
      yield* without(cursor, stream.next, done);
    } else if (state instanceof TaskState && stream.folder === LATER_FOLDER) {
      for (const offset of state.scheduled.blockOffsets()) yield { from: offset, to: offset + 1 };
    } else if (state instanceof TaskState && stream.folder === RESULTS_FOLDER) {
      for (const offset of state.outcomes.results.offsets()) {
        // What is too old may have gone.
        if (offset >= stream.head) yield { from: offset, to: offset + 1 };
      }
    } else {
      yield* without(stream.head, stream.next, [...consumer.dead.exhumed]);
    }
  },
};

function groupProblems(group: LogGroup, { name, stream }: LogState): StateProblem[] {
  if (group.type === GroupType.shared) {
    const { lanes, dead } = group.consumer;
    return [...lanes.flatMap(laneProblems), ...deadProblems(dead)];
  }
  const { committed } = group;
  if (committed >= stream.head && committed <= stream.next) return [];
  const reason = `group ${group.name} of ${name} stands at ${committed}; the log has ${stream.head} to ${stream.next}`;
  return [{ reason }];
}

/** What cursors have read of a stream and not finished. */
function heldByCursors(state: TaskState, stream: Stream): Set<number> {
  const lanes = state.cursors.consumers.flatMap((consumer) => consumer.lanes);
  const offsets = lanes
    .filter((lane) => lane.stream === stream)
    .flatMap(({ ledger }) => [...ledger.outstanding.keys()]);
  return new Set(offsets);
}

/** Whose tasks or dead letters stand in a stream; undefined for a log's own. */
function consumerOf(state: QueueState, stream: Stream): Consumer | undefined {
  if (state instanceof TaskState) return state.consumer;
  return state instanceof LogState ? state.groupOf(stream)?.consumer : undefined;
}

function laneProblems({ ledger, stream }: Lane): StateProblem[] {
  const problems: StateProblem[] = [];
  if (ledger.cursor > stream.next) {
    problems.push({ reason: `the cursor stands at ${ledger.cursor}, past the end of the tasks at ${stream.next}` });
  }
  const inAPhase = ledger.leased.size + ledger.ready.size + ledger.returned.length + ledger.waiting;
  if (inAPhase !== ledger.outstanding.size) {
    problems.push({
      reason: `${ledger.outstanding.size} tasks are outstanding, but ${inAPhase} leased, waiting or ready`,
    });
  }
  for (const task of ledger.outstanding) {
    const reason = taskProblem(task, stream);
    if (reason !== undefined) problems.push({ reason, offsets: [task.offset, task.offset] });
  }
  return problems;
}

function deadProblems({ stream, exhumed }: DeadState): StateProblem[] {
  const problems: StateProblem[] = [];
  for (const offset of exhumed) {
    if (stream !== undefined && offset >= stream.head && offset < stream.next) continue;
    problems.push({ reason: `dead letter ${offset} is noted as gone, but there was never one` });
  }
  return problems;
}

/** [from, to) without the offsets of what is gone. */
function* without(from: number, to: number, gone: readonly number[]): Generator<OffsetRange> {
  let at = from;
  for (const offset of [...gone].sort((a, b) => a - b)) {
    if (offset > at) yield { from: at, to: offset };
    at = Math.max(at, offset + 1);
  }
  yield { from: at, to };
}

function taskProblem(task: Outstanding, tasks: Stream): string | undefined {
  if (task.offset >= tasks.next) return `task ${task.offset} is outstanding, but the tasks end at ${tasks.next}`;
  if (task.phase === TaskPhase.Done) return `task ${task.offset} is outstanding and done at once`;
  if (task.phase === TaskPhase.Ready || task.phase === TaskPhase.Returned) return undefined;
  const due = task.phase === TaskPhase.Leased ? "its lease never ends" : "its time never comes";
  if (!(task.at > 0)) return `task ${task.offset}: ${due}`;
  if (task.phase === TaskPhase.Leased && task.attempt < 1) return `task ${task.offset} is leased without an attempt`;
  return undefined;
}
