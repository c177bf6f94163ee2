/** What a directory holds, read by way of the engine's own readers, for the model to judge. */

import type { CatalogEntry } from "../../src/engine/catalog.js";
import type { Engine } from "../../src/engine/engine.js";
import type { Consumer } from "../../src/queues/consumer.js";
import type { Flows } from "../../src/queues/flows.js";
import { GroupType } from "../../src/queues/group.js";
import { type Outstanding, TaskPhase } from "../../src/queues/ledger.js";
import { LogState } from "../../src/queues/log-state.js";
import type { Scheduled } from "../../src/queues/scheduled.js";
import { decodeTaskAttributes, isSetAside } from "../../src/queues/task-record.js";
import { TaskState } from "../../src/queues/task-state.js";
import { formatToken } from "../../src/queues/task-token.js";
import type { RecordCursor } from "../../src/storage/batch.js";
import { ChunkPool } from "../../src/storage/memory.js";
import type { Stream } from "../../src/storage/stream.js";
import { StreamReader } from "../../src/storage/stream-reader.js";
import type { SeenLog } from "./model-log.js";
import type { SeenTask, SeenTasks } from "./model-task.js";
import { itemOf } from "./payload.js";

export interface Seen {
  readonly logs: SeenLog[];
  readonly sources: SeenTasks[];
}

export async function lookAt(engine: Engine, entry: CatalogEntry, into: Seen): Promise<void> {
  const state = engine.catalog.load(entry);
  if (state instanceof TaskState) {
    into.sources.push(await lookAtTasks(engine, state));
    return;
  }
  if (!(state instanceof LogState)) throw new Error(`queue ${entry.name} is of no known kind`);
  const { stream, name } = state;
  const records: { offset: number; item: number | undefined }[] = [];
  await eachRecord(engine, stream, stream.head, ({ offset }, item) => void records.push({ offset, item }));
  const expected = stream.recordsLeft(stream.head, stream.next);
  // What is left of a segment that was rewritten, and then cut by a trim, is estimated.
  if (!stream.hasHoles && records.length !== expected) {
    throw new Error(`log/${name} should hold ${expected} records; ${records.length} can be read`);
  }
  const groups = [...state.groups.values()].map((group) => {
    return { name: `group/${name}/${group.name}`, committed: group.committed };
  });
  into.logs.push({ name: `log/${name}`, head: stream.head, next: stream.next, records, groups });
  for (const group of state.groups.values()) {
    if (group.type === GroupType.shared) {
      into.sources.push(await lookAtConsumer(engine, group.consumer, `group/${name}/${group.name}`));
    }
  }
}

export function lookAtTasks(engine: Engine, state: TaskState): Promise<SeenTasks> {
  return lookAtConsumer(engine, state.consumer, `task/${state.name}`, state);
}

/** @param aside of a task queue: those that wait for their time, or for their children */
async function lookAtConsumer(
  engine: Engine,
  consumer: Consumer,
  name: string,
  aside?: { readonly scheduled: Scheduled; readonly flows: Flows },
): Promise<SeenTasks> {
  const isOfLog = aside === undefined;
  const live: SeenTask[] = [];
  for (const { ledger, stream, number: lane } of consumer.lanes) {
    const read = new Set<number>();
    const see = (offset: number, item: number | undefined) => {
      read.add(offset);
      const task = ledger.outstanding.get(offset);
      live.push({ place: `${lane}:${offset}`, item, attempt: task?.attempt ?? 0, ...leaseOf(consumer, lane, task) });
    };
    const { scheduled, flows } = aside ?? {};
    const lowest = Number.POSITIVE_INFINITY;
    const from = Math.min(ledger.lowest, scheduled?.lowest(lane) ?? lowest, flows?.lowest(lane) ?? lowest);
    await eachRecord(engine, stream, Math.max(from, stream.head), (record, item) => {
      const { offset } = record;
      const waitsAside = scheduled?.has(lane, offset) === true || flows?.isWaiting(lane, offset) === true;
      const waits = ledger.outstanding.has(offset) || waitsAside;
      const passedOver = offset < ledger.cursor || ledger.ahead.has(offset);
      const setAside = !isOfLog && offset >= ledger.marksFrom && isSetAside(record.attributes());
      if (waits || !(passedOver || setAside)) see(offset, item);
    });
    for (const offset of ledger.outstanding.keys()) {
      // A record in somebody's hands stays there when it has been removed from its log.
      if (!read.has(offset) && isOfLog) see(offset, undefined);
      if (!read.has(offset)) throw new Error(`${name}: outstanding task ${lane}:${offset} has no record`);
    }
  }
  const dead: { id: string; item: number | undefined }[] = [];
  const { stream, exhumed } = consumer.dead;
  if (stream !== undefined) {
    await eachRecord(engine, stream, stream.head, (record, item) => {
      if (exhumed.has(record.offset)) return;
      dead.push({ id: decodeTaskAttributes(record.attributes()).death?.id ?? "", item });
    });
  }
  return { name, live, dead };
}

function leaseOf(consumer: Consumer, lane: number, task: Outstanding | undefined) {
  if (task?.phase !== TaskPhase.Leased) return { leased: false, token: undefined };
  const { offset, attempt, tokenHigh: high, tokenLow: low } = task;
  return { leased: true, token: formatToken(consumer, { lane, offset, attempt, high, low }) };
}

/** Memory of readers past, for the next one: no life of an engine is long enough to get much use out of its own. */
const idleChunks: ChunkPool[] = [];

async function eachRecord(
  engine: Engine,
  stream: Stream,
  from: number,
  visit: (record: RecordCursor, item: number | undefined) => void,
): Promise<void> {
  // A reader that the end of its process interrupts keeps them.
  const chunks = idleChunks.pop() ?? new ChunkPool(0);
  const { files, reads, directoryId } = engine;
  const context = { files, chunks, reads, directoryId, readFile: (path: string) => engine.readFile(path) };
  const reader = new StreamReader(stream, context, from);
  for (let last = 0; ; ) {
    const found = reader.next(stream.next);
    if (found === "end") {
      idleChunks.push(chunks);
      return;
    }
    if (found === "load") {
      await reader.load();
      continue;
    }
    const { offset, timestamp } = reader.record;
    if (timestamp < last)
      throw new Error(`${stream.directory}: the time falls from ${last} to ${timestamp} at ${offset}`);
    last = timestamp;
    visit(
      reader.record,
      numberOf(reader.record.payloadView(), () => reader.record.headers()),
    );
  }
}

/** The number of a message: of its payload, or in the headers of one that has none, a tombstone. */
export function numberOf(payload: Buffer, headers: () => Readonly<Record<string, string>>): number | undefined {
  if (payload.length > 0) return itemOf(payload);
  const number = Number(headers().item);
  return Number.isSafeInteger(number) ? number : undefined;
}
