/**
 * Every call of the protocol, as data: its number, what it takes to be allowed, and what may be done when its answer is
 * lost. Authorisation, the client's retries and docs/protocol.md all go by this table. Numbers are never given again.
 */

/** What a caller may do with a queue. Whoever administers may write, and whoever writes need not be allowed to read. */
export type Permission = "read" | "write" | "admin";

/**
 * What a client may do when the connection was lost before the answer came.
 * - "freely": make the call again.
 * - "named": again, under the same name, by which the daemon knows it.
 */
export type Repeat = "freely" | "named";

export interface Method {
  readonly opcode: number;
  readonly name: string;
  /**
   * On the queue of the call's handle, or the one that it names. "parts": of each part what the call on its own would need.
   * "any": of every queue that is shown, any permission.
   */
  readonly needs: Permission | "parts" | "any" | "none";
  readonly repeat: Repeat;
  /** The body has the time to wait; the call can be given up by a cancel frame. */
  readonly waits: boolean;
  /** The body has room for a name (`name.ts`). */
  readonly isNamed: boolean;
  /** Its answer may be much larger than the call. */
  readonly reads: boolean;
}

function method(
  opcode: number,
  name: string,
  needs: Method["needs"],
  repeat: Repeat,
  waits: "waits" | undefined = undefined,
  reads: "reads" | undefined = undefined,
): Method {
  // A dequeue that is lost is told by the count of those received; its caller may name it all the same.
  const isNamed = repeat === "named" || name === "dequeue";
  return Object.freeze({
    opcode,
    name,
    needs,
    repeat,
    waits: waits !== undefined,
    isNamed,
    reads: reads !== undefined,
  });
}

export const Methods = {
  // The directory.
  openLog: method(0x10, "openLog", "parts", "freely"),
  openTask: method(0x11, "openTask", "parts", "freely"),
  group: method(0x12, "group", "read", "freely"),
  sharedGroup: method(0x13, "sharedGroup", "read", "freely"),
  cursor: method(0x14, "cursor", "read", "freely"),
  leave: method(0x15, "leave", "none", "freely"),
  transaction: method(0x16, "transaction", "parts", "named"),
  flow: method(0x17, "flow", "parts", "named"),
  deleteQueue: method(0x18, "deleteQueue", "admin", "named"),
  queues: method(0x19, "queues", "any", "freely"),
  stats: method(0x1a, "stats", "read", "freely"),
  sync: method(0x1b, "sync", "none", "freely"),

  // Logs.
  append: method(0x20, "append", "write", "named"),
  appendBatch: method(0x21, "appendBatch", "write", "named"),
  read: method(0x22, "read", "read", "freely", undefined, "reads"),
  batches: method(0x23, "batches", "read", "freely"),
  delete: method(0x24, "delete", "write", "named"),
  compact: method(0x25, "compact", "admin", "freely"),
  trim: method(0x26, "trim", "admin", "named"),
  purgeLog: method(0x27, "purge", "admin", "named"),
  groups: method(0x28, "groups", "read", "freely"),
  deleteGroup: method(0x29, "deleteGroup", "admin", "named"),
  configureLog: method(0x2a, "configure", "admin", "named"),
  logSettings: method(0x2b, "settings", "read", "freely"),
  logStats: method(0x2c, "stats", "read", "freely"),

  // Groups.
  memberRead: method(0x30, "member.read", "read", "freely", "waits", "reads"),
  memberCommit: method(0x31, "member.commit", "read", "named"),
  memberSeek: method(0x32, "member.seek", "read", "named"),
  memberPosition: method(0x33, "member.position", "read", "freely"),
  groupInfo: method(0x34, "group.info", "read", "freely"),
  groupSeek: method(0x35, "group.seek", "read", "named"),

  // What hands out tasks: task queues, shared groups and cursors.
  dequeue: method(0x40, "dequeue", "read", "freely", "waits", "reads"),
  ack: method(0x41, "ack", "read", "named"),
  nack: method(0x42, "nack", "read", "named"),
  extend: method(0x43, "extend", "read", "named"),
  release: method(0x44, "release", "read", "named"),
  peek: method(0x45, "peek", "read", "freely", "waits", "reads"),
  deadRead: method(0x46, "dead.read", "read", "freely", undefined, "reads"),
  deadRedrive: method(0x47, "dead.redrive", "admin", "named"),
  deadPurge: method(0x48, "dead.purge", "admin", "named"),

  // Task queues.
  enqueue: method(0x50, "enqueue", "write", "named"),
  enqueueBatch: method(0x51, "enqueueBatch", "write", "named"),
  expire: method(0x52, "expire", "read", "freely"),
  pause: method(0x53, "pause", "admin", "named"),
  resume: method(0x54, "resume", "admin", "named"),
  purgeTasks: method(0x55, "purge", "admin", "named"),
  configureTasks: method(0x56, "configure", "admin", "named"),
  taskSettings: method(0x57, "settings", "read", "freely"),
  cancel: method(0x58, "cancel", "write", "named"),
  reschedule: method(0x59, "reschedule", "write", "named"),
  schedule: method(0x5a, "schedule", "write", "named"),
  unschedule: method(0x5b, "unschedule", "write", "named"),
  schedules: method(0x5c, "schedules", "read", "freely"),
  cursors: method(0x5d, "cursors", "read", "freely"),
  deleteCursor: method(0x5e, "deleteCursor", "admin", "named"),
  progress: method(0x5f, "progress", "read", "named"),
  list: method(0x60, "list", "read", "freely", undefined, "reads"),
  status: method(0x61, "status", "read", "freely"),
  result: method(0x62, "result", "read", "freely", "waits"),
  taskStats: method(0x63, "stats", "read", "freely"),

  // Cursors.
  cursorReset: method(0x70, "cursor.reset", "read", "named"),
  cursorStats: method(0x71, "cursor.stats", "read", "freely"),
} as const satisfies Record<string, Method>;

/** By opcode. */
export const METHODS: readonly (Method | undefined)[] = (() => {
  const byOpcode: (Method | undefined)[] = [];
  for (const each of Object.values(Methods)) byOpcode[each.opcode] = each;
  return byOpcode;
})();
