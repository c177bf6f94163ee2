/**
 * Shows what is in one of varve's files, part by part, whatever state it is in: what cannot be read is shown as damage,
 * and what stands behind it still follows. Numbers and names are those of docs/format.md.
 */

import { VarveError } from "../api/errors.js";
import { getU32, getU64 } from "../api/integers.js";
import { batchFileBytes, type RecordCursor } from "../storage/batch.js";
import { align8, Decoder, MalformedError } from "../storage/bytes.js";
import type { Disk } from "../storage/disk.js";
import { SEGMENT_HEADER_BYTES, SEGMENT_MAGIC, segmentHeaderProblem } from "../storage/segment.js";
import { decodeSnapshot, type SnapshotSection } from "../storage/snapshot.js";
import { ENTRY_HEADER_BYTES, entryBytes, FILE_HEADER_BYTES, WAL_MAGIC } from "../storage/wal-format.js";
import { readDeleted, readPreface } from "./catalog.js";
import { headerOf } from "./inspect-log.js";
import { indexProblem } from "./inspect-segments.js";
import { FileWindow, findEntry, type Stretch, walkRecords, walkStretch } from "./inspect-window.js";
import {
  decodeCreation,
  decodeDeletion,
  OP_ADD_STREAM,
  OP_CREATE_QUEUE,
  OP_DELETE_QUEUE,
  OP_REQUESTS,
} from "./queue-state.js";
import { decodeRequests, readProducers } from "./requests.js";

/** What a dump must know of queues; given by the layer that knows the kinds. */
export interface QueueDescriber {
  kindName(kind: number): string;
  /** The name and the fields of an operation; `kind` is its queue's, where that is known. */
  operation(code: number, kind: number | undefined, fields: Decoder): object;
  /** What a queue keeps with its records. */
  attributes(bytes: Buffer): unknown;
  /** A queue's own part of its snapshot section. */
  state(kind: number, input: Decoder): object;
}

/** By magic, the ending of such a file's name. */
const FORMS: Readonly<Record<string, string>> = {
  [WAL_MAGIC]: "wal",
  [SEGMENT_MAGIC]: "seg",
  VARVSNAP: "snap",
  VARVEIDX: "idx",
};

/** Bytes of a key or payload that are shown. */
const SHOWN_BYTES = 256;

export async function* dump(disk: Disk, path: string, describer: QueueDescriber): AsyncGenerator<object> {
  const file = disk.openFile(path, "read");
  try {
    const window = new FileWindow(file);
    const at = await window.at(0, Math.min(8, window.size));
    const magic = window.buffer.toString("latin1", at, at + Math.min(8, window.size));
    // A damaged magic is damage like any other: then the name says what the file should be.
    const form = FORMS[magic] ?? path.slice(path.lastIndexOf(".") + 1);
    if (form === "wal") yield* dumpLog(window, describer);
    else if (form === "seg") yield* dumpSegment(window, describer);
    else if (form === "snap") yield* dumpSnapshot(disk.readFile(path), describer);
    else if (form === "idx") yield* dumpIndex(disk.readFile(path));
    else yield dumpJson(disk, path);
  } finally {
    file.close();
  }
}

/** varve.json and LOCK are the only files without a magic. */
function dumpJson(disk: Disk, path: string): object {
  const name = path.slice(path.lastIndexOf("/") + 1);
  if (name === "varve.json" || name === "LOCK" || name === "LOCK.owner") {
    const text = disk.readFile(path).toString("utf8").trim();
    if (text === "") return { type: "lock", owner: null };
    try {
      const value: unknown = JSON.parse(text);
      return name === "varve.json" ? { type: "marker", value } : { type: "lock", owner: value };
    } catch {
      return { type: "damage", position: 0, reason: "is not valid JSON" };
    }
  }
  throw new VarveError("ERR_NOT_VARVE", `${path} is none of varve's files: it does not begin with a magic of varve's.`);
}

// ---------------------------------------------------------------------------------------------------------------- log

async function* dumpLog(window: FileWindow, describer: QueueDescriber): AsyncGenerator<object> {
  const header = await headerOf(window);
  if (typeof header === "string") {
    yield { type: "damage", position: 0, reason: header };
    return;
  }
  yield { type: "header", of: "write-ahead log", bytes: window.size, ...header };
  /** Of the queues created in this file; nothing else in it tells an operation's kind. */
  const kinds = new Map<number, number>();
  let position = FILE_HEADER_BYTES;
  let lsn = header.firstLsn;
  for (;;) {
    const entry = await findEntry(window, position, header.generation, lsn);
    if (entry === undefined) break;
    if (entry.header.lsn !== lsn) {
      yield {
        type: "damage",
        position,
        bytes: entry.position - position,
        reason: `entries ${lsn} to ${entry.header.lsn - 1} cannot be read`,
      };
    }
    const { bulkBytes, metaBytes, ...rest } = entry.header;
    yield { type: "entry", position: entry.position, bytes: entryBytes(entry.header), ...rest };
    const bulkStart = entry.position + ENTRY_HEADER_BYTES;
    yield* dumpBatches(window, anywhere(bulkStart, bulkStart + bulkBytes), describer);
    const at = await window.at(bulkStart + bulkBytes, metaBytes);
    yield* dumpOperations(Buffer.from(window.buffer.subarray(at, at + metaBytes)), kinds, describer);
    lsn = entry.header.lsn + 1;
    position = entry.position + align8(entryBytes(entry.header));
  }
  yield { type: "end", position, nextLsn: lsn, unusedBytes: window.size - position };
}

function* dumpOperations(meta: Buffer, kinds: Map<number, number>, describer: QueueDescriber): Generator<object> {
  const input = new Decoder(meta);
  try {
    while (!input.done) {
      const code = input.u8();
      const queueId = input.varint();
      const fields = new Decoder(input.bytes(input.u32()));
      if (code === OP_CREATE_QUEUE) {
        const { kind, name, streamIds, config } = decodeCreation(fields);
        kinds.set(queueId, kind);
        yield {
          type: "operation",
          queueId,
          name: "CreateQueue",
          kind: describer.kindName(kind),
          queue: name,
          streamIds,
          config: config.toString("utf8"),
        };
      } else if (code === OP_ADD_STREAM) {
        yield { type: "operation", queueId, name: "AddStream", streamId: fields.varint(), folder: fields.string() };
      } else if (code === OP_DELETE_QUEUE) {
        const { kind, name, lastStreamId } = decodeDeletion(fields);
        const queue = { kind: describer.kindName(kind), queue: name };
        yield { type: "operation", queueId, name: "DeleteQueue", ...queue, lastStreamId };
      } else if (code === OP_REQUESTS) {
        const { run, answers } = decodeRequests(fields);
        const { from, sequence, settled } = run;
        const producer = hexOf(from.text);
        for (const [index, answer] of answers.entries()) {
          const name = { name: "Request", producer, sequence: sequence + index, settled };
          yield { type: "operation", ...name, answer: hexOf(answer) };
        }
      } else {
        yield { type: "operation", queueId, ...describer.operation(code, kinds.get(queueId), fields) };
      }
    }
  } catch (error) {
    if (!(error instanceof MalformedError)) throw error;
    yield { type: "damage", reason: `the operations are malformed: ${error.message}` };
  }
}

// ------------------------------------------------------------------------------------------------------------ batches

function anywhere(position: number, end: number): Stretch {
  return { position, end, streamId: undefined, firstOffset: 0, nextOffset: Number.POSITIVE_INFINITY };
}

async function* dumpBatches(window: FileWindow, stretch: Stretch, describer: QueueDescriber): AsyncGenerator<object> {
  for await (const found of walkStretch(window, stretch)) {
    if ("damage" in found) {
      const { position, end, streamId, offsets, reason } = found.damage;
      yield { type: "damage", position, bytes: end - position, streamId, offsets, reason };
      continue;
    }
    const { header, position, at } = found.batch;
    yield { type: "batch", position, fileBytes: batchFileBytes(header.bytes), ...header };
    const records: object[] = [];
    const reason = walkRecords(window.buffer, at, header, (record) => {
      records.push(showRecord(record, position + record.start - at, describer));
      return undefined;
    });
    yield* records;
    if (reason !== undefined) yield { type: "damage", position, bytes: header.bytes, reason };
  }
}

function showRecord(record: RecordCursor, position: number, describer: QueueDescriber): object {
  const key = record.key();
  const attributes = record.attributes();
  return {
    type: "record",
    position,
    offset: record.offset,
    timestamp: record.timestamp,
    key: key && showBytes(key),
    headers: record.headers(),
    attributes: attributes && describer.attributes(attributes),
    payload: showBytes(record.payloadView()),
  };
}

/** Text where it is printable, else base64; cut. */
export function showBytes(value: Buffer): object {
  const cut = value.length > SHOWN_BYTES;
  const shown = value.subarray(0, SHOWN_BYTES);
  // A cut may go through a character.
  const text = shown.toString("utf8").replace(cut ? /\ufffd$/ : /$^/, "");
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  const printable = !/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f\ufffd]/.test(text);
  const part = printable ? { text } : { base64: shown.toString("base64") };
  return cut ? { bytes: value.length, ...part, cut } : { bytes: value.length, ...part };
}

// ----------------------------------------------------------------------------------------------------- segments, index

async function* dumpSegment(window: FileWindow, describer: QueueDescriber): AsyncGenerator<object> {
  const at = await window.at(0, SEGMENT_HEADER_BYTES);
  if (at < 0) {
    yield { type: "damage", position: 0, reason: "shorter than a segment header" };
    return;
  }
  const header = window.buffer.subarray(at, at + SEGMENT_HEADER_BYTES);
  const streamId = getU32(header, 16);
  const directoryId = header.toString("hex", 32, 48);
  const reason = segmentHeaderProblem(header, streamId, directoryId);
  if (reason !== undefined) {
    yield { type: "damage", position: 0, reason };
  } else {
    const baseOffset = getU64(header, 24);
    const version = getU32(header, 12);
    yield { type: "header", of: "segment", bytes: window.size, version, streamId, baseOffset, directoryId };
  }
  const known = reason === undefined && streamId !== 0 ? streamId : undefined;
  const stretch = { ...anywhere(SEGMENT_HEADER_BYTES, align8(window.size)), streamId: known };
  yield* dumpBatches(window, stretch, describer);
  yield { type: "end", position: window.size };
}

function* dumpIndex(buffer: Buffer): Generator<object> {
  const reason = indexProblem(buffer);
  if (reason !== undefined) {
    yield { type: "damage", position: 0, reason };
    return;
  }
  const version = getU32(buffer, 12);
  yield { type: "header", of: "index", version, segmentBytes: getU64(buffer, 16), firstOffset: getU64(buffer, 24) };
  for (let at = 32; at < buffer.length; at += 24) {
    yield {
      type: "entry",
      offset: getU64(buffer, at),
      position: getU64(buffer, at + 8),
      timestamp: getU64(buffer, at + 16),
    };
  }
}

// ----------------------------------------------------------------------------------------------------------- snapshot

function* dumpSnapshot(buffer: Buffer, describer: QueueDescriber): Generator<object> {
  const snapshot = decodeSnapshot(buffer);
  if (typeof snapshot === "string") {
    yield { type: "damage", position: 0, reason: snapshot };
    return;
  }
  yield { type: "header", of: "snapshot", bytes: buffer.length, ...snapshot.header };
  for (const section of snapshot.sections) {
    const { id, kind, name, body, intact } = section;
    const position = body.byteOffset - buffer.byteOffset;
    if (!intact) {
      yield {
        type: "damage",
        position,
        bytes: body.length,
        queueId: id,
        queue: name,
        reason: "section checksum does not match",
      };
      continue;
    }
    try {
      if (id === 0)
        yield { type: "section", position, bytes: body.length, ...showEngine(new Decoder(body), describer) };
      else
        yield {
          type: "section",
          position,
          bytes: body.length,
          queueId: id,
          kind: describer.kindName(kind),
          queue: name,
          ...showBody(section, describer),
        };
    } catch (error) {
      if (!(error instanceof MalformedError)) throw error;
      yield { type: "damage", position, bytes: body.length, queueId: id, queue: name, reason: error.message };
    }
  }
}

function showEngine(input: Decoder, describer: QueueDescriber): object {
  const sharedSegments = Array.from({ length: input.varint() }, () => ({
    sharedId: input.varint(),
    bytes: input.varint(),
    runs: input.varint(),
  }));
  const deletedQueues = readDeleted(input).map(({ kind, name, lastStreamId, streams }) => ({
    kind: describer.kindName(kind),
    queue: name,
    lastStreamId,
    runsUnknown: streams === "unknown",
  }));
  if (input.done) return { sharedSegments, deletedQueues };
  const producers = readProducers(input).map(({ producer, usedMs, forgotten, answers }) => ({
    producer: hexOf(producer),
    usedMs,
    forgotten,
    answers: answers.map(({ sequence, answer }) => ({ sequence, answer: hexOf(answer) })),
  }));
  return { sharedSegments, deletedQueues, producers };
}

function hexOf(bytes: string): string {
  return Buffer.from(bytes, "latin1").toString("hex");
}

function showBody({ kind, body }: SnapshotSection, describer: QueueDescriber): object {
  const input = new Decoder(body);
  const { count, createdAt, metadata } = readPreface(input);
  const state = describer.state(kind, new Decoder(input.bytes(input.varint())));
  const streams = Array.from({ length: input.varint() }, () => ({
    streamId: input.varint(),
    folder: input.string(),
    head: input.varint(),
    next: input.varint(),
    lastTimestamp: input.varint(),
    payloadBytes: input.varint(),
    gaps: Array.from({ length: input.varint() }, () => ({ from: input.varint(), to: input.varint() })),
    cleanTo: input.varint(),
    tombstonesFrom: input.varint(),
    runs: Array.from({ length: input.varint() }, () => ({
      sharedId: input.varint(),
      edition: input.varint(),
      position: input.varint(),
      bytes: input.varint(),
      first: input.varint(),
      next: input.varint(),
      count: input.varint(),
      firstTimestamp: input.varint(),
      lastTimestamp: input.varint(),
    })),
  }));
  return { count, createdAt, metadata, state, streams };
}
