/** The operations, attributes and states of queues, in words: for dumps. */

import type { QueueDescriber } from "../engine/inspect-dump.js";
import { showBytes } from "../engine/inspect-dump.js";
import { Decoder, MalformedError } from "../storage/bytes.js";
import { KIND, kindName } from "./kinds.js";
import { Ledger, TaskPhase } from "./ledger.js";
import { LogOp } from "./log-state.js";
import { decodeTaskAttributes } from "./task-record.js";
import { TaskOp } from "./task-state.js";

export const describer: QueueDescriber = {
  kindName,

  operation(code: number, kind: number | undefined, fields: Decoder): object {
    const known = kind ?? guessKind(code, fields);
    return known === KIND.log ? logOperation(code, fields) : taskOperation(code, fields);
  },

  attributes(bytes: Buffer): unknown {
    try {
      const { limit, failures, death } = decodeTaskAttributes(bytes);
      return { limit: limitOf(limit), failures, death };
    } catch {
      return showBytes(bytes);
    }
  },

  state(kind: number, input: Decoder): object {
    if (kind !== KIND.task) return {};
    const config = parse(input.string());
    const ledger = Ledger.decode(input);
    const exhumed = list(input, () => input.varint());
    const outstanding = [...ledger.outstanding.values()].map((task) => ({
      offset: task.offset,
      phase: phaseName(task.phase),
      attempt: task.attempt,
      limit: limitOf(task.limit),
      at: task.at,
      clock: task.wall ? "wall" : "elapsed",
      wallAt: task.wallAt,
      since: task.since,
      token: token(task.tokenHigh, task.tokenLow),
      failures: task.failures,
    }));
    const doneAhead = [...ledger.ahead].filter((offset) => !ledger.outstanding.has(offset));
    return { config, cursor: ledger.cursor, outstanding, doneAhead, exhumed };
  },
};

/**
 * The kinds count their codes from the same number, and the log does not repeat a queue's kind. The one code that both
 * have is told by its fields: a trim is one varint, a configuration is a JSON object behind its length.
 */
function guessKind(code: number, fields: Decoder): number {
  if (code !== LogOp.Trim) return KIND.task;
  const ahead = new Decoder(fields.buffer, fields.position, fields.end);
  ahead.varint();
  return ahead.done ? KIND.log : KIND.task;
}

function logOperation(code: number, fields: Decoder): object {
  if (code === LogOp.Trim) return { name: "Trim", offset: fields.varint() };
  throw new MalformedError(`operation ${code} of a log is not known`);
}

function taskOperation(code: number, fields: Decoder): object {
  switch (code) {
    case TaskOp.Configure:
      return { name: "Configure", config: parse(fields.string()) };
    case TaskOp.Schedule:
      return {
        name: "Schedule",
        tasks: list(fields, () => ({ offset: fields.varint(), delayMs: fields.varint(), wallDueMs: fields.varint() })),
      };
    case TaskOp.Deliver:
      return {
        name: "Deliver",
        leaseMs: fields.varint(),
        tasks: list(fields, () => ({
          offset: fields.varint(),
          attempt: fields.varint(),
          limit: limitOf(fields.varint()),
          token: token(fields.u32(), fields.u32()),
        })),
      };
    case TaskOp.Ack:
      return { name: "Ack", offsets: list(fields, () => fields.varint()) };
    case TaskOp.Release:
      return { name: "Release", offset: fields.varint(), delayMs: fields.varint(), error: fields.string() };
    case TaskOp.Extend:
      return { name: "Extend", offset: fields.varint(), leaseMs: fields.varint() };
    case TaskOp.Bury:
      return { name: "Bury", offset: fields.varint() };
    case TaskOp.Exhume:
      return { name: "Exhume", deadOffsets: list(fields, () => fields.varint()) };
    case TaskOp.Purge:
      return { name: "Purge", belowDeadOffset: fields.varint() };
    default:
      throw new MalformedError(`operation ${code} of a task queue is not known`);
  }
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
  return high.toString(16).padStart(8, "0") + low.toString(16).padStart(8, "0");
}
