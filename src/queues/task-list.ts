/** Shows the tasks of a queue that are in a state, without touching them. */

import type { Codec } from "../api/codec.js";
import type { ListedTask, ListOptions } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import { resolveListOptions } from "../api/options.js";
import type { Engine } from "../engine/engine.js";
import type { RecordCursor } from "../storage/batch.js";
import { StreamReader } from "../storage/stream-reader.js";
import type { Lane } from "./lane.js";
import { type Outstanding, TaskPhase } from "./ledger.js";
import { isSetAside, taskId } from "./task-record.js";
import type { TaskState } from "./task-state.js";

/** A task that is in the state, and when it is due. */
interface Found {
  readonly offset: number;
  readonly task: Outstanding | undefined;
  readonly dueAt: number | undefined;
}

/** The most urgent first, and of the same priority in the order in which they were enqueued. */
export async function listTasks<O>(
  engine: Engine,
  state: TaskState,
  codec: Codec<unknown, O>,
  options: ListOptions,
): Promise<ListedTask<O>[]> {
  const { state: wanted, after, limit } = resolveListOptions(options);
  const behind = after === undefined ? undefined : parsePosition(after);
  state.consumer.ripen();
  const listed: ListedTask<O>[] = [];
  for (const lane of [...state.consumer.lanes]) {
    if (behind !== undefined && lane.number > behind.lane) continue;
    const from = behind !== undefined && lane.number === behind.lane ? behind.offset + 1 : 0;
    const found = await findIn(engine, state, lane, wanted, from, limit - listed.length);
    const reader = new StreamReader(lane.stream, engine, lane.stream.head);
    for (const each of found) {
      await withRecord(reader, each.offset, (record) => listed.push(describe(lane, each, record, wanted, codec)));
    }
    if (listed.length >= limit) break;
  }
  return listed;
}

/** The first `limit` tasks of a lane that are in a state, from an offset on. */
async function findIn(
  engine: Engine,
  state: TaskState,
  lane: Lane,
  wanted: ListOptions["state"],
  from: number,
  limit: number,
): Promise<Found[]> {
  const lowest = new Lowest(limit);
  // What comes next may wait for the disk; what stands in memory is looked at as one.
  if (wanted === "ready" || wanted === "scheduled") {
    await state.scheduled.visit(lane.number, from, (offset, dueAt) => {
      if ((dueAt === undefined) === (wanted === "ready")) lowest.add({ offset, task: undefined, dueAt });
    });
  }
  const { elapsedMs, wallMs } = engine.time();
  for (const task of lane.ledger.outstanding) {
    if (task.offset < from || !PHASES[wanted].includes(task.phase)) continue;
    let dueAt: number | undefined;
    if (task.phase === TaskPhase.Waiting) dueAt = task.wall ? task.at : wallMs + task.at - elapsedMs;
    lowest.add({ offset: task.offset, task, dueAt });
  }
  if (wanted === "ready") await findFresh(engine, lane, from, limit, lowest);
  return lowest.sorted();
}

const PHASES: Record<ListOptions["state"], readonly TaskPhase[]> = {
  ready: [TaskPhase.Ready, TaskPhase.Returned],
  scheduled: [TaskPhase.Waiting],
  leased: [TaskPhase.Leased],
  blocked: [TaskPhase.Blocked],
};

/** Tasks that the cursor has not come to. */
async function findFresh(engine: Engine, lane: Lane, from: number, limit: number, lowest: Lowest): Promise<void> {
  const { ledger, stream } = lane;
  const reader = new StreamReader(stream, engine, Math.max(lane.from, from));
  for (let count = 0; count < limit; ) {
    const found = reader.next(stream.visible);
    if (found === "end") return;
    if (found === "load") {
      await reader.load();
      continue;
    }
    const { offset } = reader.record;
    // The cursor may have passed it while it was read, and then it is not known any more what became of it.
    if (offset < lane.from || ledger.outstanding.has(offset) || ledger.ahead.has(offset)) continue;
    if (offset >= ledger.marksFrom && isSetAside(reader.record.attributes())) continue;
    lowest.add({ offset, task: undefined, dueAt: undefined });
    count++;
  }
}

/** Has a record used in the turn in which it is found, if it is still there. */
async function withRecord(reader: StreamReader, offset: number, use: (record: RecordCursor) => void): Promise<void> {
  reader.seek(offset);
  for (;;) {
    const found = reader.next(offset + 1);
    if (found === "record") use(reader.record);
    if (found !== "load") return;
    await reader.load();
  }
}

function describe<O>(
  lane: Lane,
  { offset, task, dueAt }: Found,
  record: RecordCursor,
  wanted: ListOptions["state"],
  codec: Codec<unknown, O>,
): ListedTask<O> {
  const { origin, orderKey, expiresAt } = lane.attributes(record);
  const raw = Buffer.from(record.payload());
  let payload: O | undefined;
  try {
    payload = codec.decode(raw);
  } catch {
    payload = undefined;
  }
  return {
    id: origin?.id ?? taskId(lane.number, offset),
    position: taskId(lane.number, offset),
    state: wanted,
    attempt: task?.attempt ?? 0,
    timestamp: origin?.timestamp ?? record.timestamp,
    dueAt: dueAt === undefined ? undefined : Math.ceil(dueAt),
    priority: lane.number,
    orderKey,
    expiresAt: expiresAt === 0 ? undefined : expiresAt,
    key: record.key(),
    headers: record.headers(),
    payload,
    raw,
  };
}

function parsePosition(text: string): { readonly lane: number; readonly offset: number } {
  const parts = /^(?:([1-9])-)?(\d{1,16})$/.exec(text);
  if (parts === null) {
    throw new VarveError(
      "ERR_OPTION",
      `after must be the position of a task that was listed; got ${text.slice(0, 40)}`,
      {
        details: { option: "after" },
      },
    );
  }
  return { lane: Number(parts[1] ?? 0), offset: Number(parts[2]) };
}

/** Keeps what stands first, of any number. */
class Lowest {
  readonly #limit: number;
  #kept = new Map<number, Found>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** One that is found again counts once. */
  add(found: Found): void {
    this.#kept.set(found.offset, found);
    if (this.#kept.size > 2 * this.#limit + 1000)
      this.#kept = new Map(this.sorted().map((each) => [each.offset, each]));
  }

  sorted(): Found[] {
    return [...this.#kept.values()].sort((a, b) => a.offset - b.offset).slice(0, this.#limit);
  }
}
