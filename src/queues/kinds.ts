import type { QueueKind } from "../api/contract.js";
import { nameToPath } from "../api/names.js";
import type { QueueKinds, QueueState } from "../engine/queue-state.js";
import { type Decoder, MalformedError } from "../storage/bytes.js";
import type { Stream } from "../storage/stream.js";
import { LogState } from "./log-state.js";
import { TaskState } from "./task-state.js";

/** On disk: append, never renumber. */
export const KIND = { log: 1, task: 2 } as const satisfies Record<QueueKind, number>;

export function kindName(kind: number): QueueKind {
  return kind === KIND.log ? "log" : "task";
}

const STREAM_FOLDERS: Record<number, readonly string[]> = { [KIND.log]: [""], [KIND.task]: ["p0", "dead"] };
/** Streams that a queue gets when it first needs them. */
const ADDED_FOLDERS: Record<number, RegExp> = {
  [KIND.log]: /^g[1-9][0-9]*-(?:dead|redriven)$/,
  [KIND.task]: /^(?:p[1-9]|later|results)$/,
};

/** The kinds of queue that an embedded directory has. */
export const kinds: QueueKinds = {
  streamFolders(kind: number): readonly string[] {
    const folders = STREAM_FOLDERS[kind];
    if (folders === undefined) throw new MalformedError(`queue kind ${kind} is not known`);
    return folders;
  },

  mayAddStream(kind: number, folder: string): boolean {
    return ADDED_FOLDERS[kind]?.test(folder) === true;
  },

  create(kind: number, id: number, name: string, streams: Stream[], config: Buffer): QueueState {
    if (kind === KIND.log) return LogState.create(id, name, streams, config);
    if (kind === KIND.task) return TaskState.create(id, name, streams, config);
    throw new MalformedError(`queue kind ${kind} is not known`);
  },

  restore(kind: number, id: number, name: string, streams: Stream[], input: Decoder): QueueState {
    if (kind === KIND.log) return LogState.restore(id, name, streams, input);
    if (kind === KIND.task) return TaskState.restore(id, name, streams, input);
    throw new MalformedError(`queue kind ${kind} is not known`);
  },

  folder(kind: number, name: string): string {
    return `${kindName(kind)}/${nameToPath(name)}`;
  },
};
