/**
 * Every way varve can fail, as data. The table is the catalogue: `ErrorCode` derives from it and docs/errors.md, which
 * gives cause and remedy for each, is checked against it by a test.
 */

/** Code -> what it means, in one line. */
export const ERRORS = {
  // What the caller passed in.
  ERR_QUEUE_NAME: "the queue name is not 1 to 200 characters of A-Z a-z 0-9 _ . : -",
  ERR_OPTION: "an option is unknown, or its value is not allowed",
  ERR_ARGUMENT: "an argument is not allowed",
  ERR_TOO_LARGE: "the message or commit is larger than the limit",
  ERR_ENCODE: "the codec cannot turn the payload into bytes from which it would come back equal",
  ERR_OFFSET_OUT_OF_RANGE: "the records at the offset were removed",
  ERR_TOKEN: "the token is not one, or belongs to another queue",
  ERR_QUEUE_FULL: "the queue holds as much as its limits allow",
  ERR_TOO_MANY_QUEUES: "the directory has as many queues as it may have",
  ERR_FENCED: "another member of the group has the turn",
  ERR_TASK_DEAD: "the task whose result was waited for is a dead letter",
  ERR_STALE_LEASE: "the lease ended: the task was delivered again since, or is settled already",

  // Opening a directory.
  ERR_NOT_FOUND: "there is no such directory or queue, and creating it was not asked for",
  ERR_NOT_VARVE: "something that is not varve's stands where its directory or file should be",
  ERR_FORMAT_VERSION: "the directory was written in a format that this version does not read",
  ERR_ACCESS: "the operating system denies access to the directory",
  ERR_DIR_LOCKED: "another process, or another open() in this one, owns the directory",
  ERR_LOCK_UNSUPPORTED: "the directory cannot be locked against a second owner on this system",

  // The state of the engine.
  ERR_CLOSED: "the queue or directory is closed, or closing",
  ERR_OVERLOADED: "too many calls are in flight",
  ERR_ABORTED: "the operation was given up because its signal was aborted",
  ERR_TIMEOUT: "what was waited for did not happen in time",

  // The connection to a daemon, and who is asking through it.
  ERR_DISCONNECTED: "there is no connection to the daemon",
  ERR_PROTOCOL: "the other side does not speak varve's protocol, or no version of it that this one speaks",
  ERR_UNAUTHENTICATED: "the daemon takes a token or a client certificate, and this is none that it knows",
  ERR_FORBIDDEN: "this user may not do that",

  // The disk.
  ERR_DISK_FULL: "no space is left for the change; nothing was changed",
  ERR_READ_ONLY: "no more changes are taken, because a write or sync failed",
  ERR_OUTCOME_UNKNOWN: "the change may or may not have been made durable",
  ERR_IO: "the operating system reported an input or output error",
  ERR_CORRUPT: "stored bytes contradict the format or their checksum",
  ERR_DECODE: "the codec cannot turn the stored bytes back into a payload",

  // varve itself.
  ERR_INTERNAL: "varve broke one of its own rules; this is a bug",
} as const satisfies Record<`ERR_${string}`, string>;

export type ErrorCode = keyof typeof ERRORS;

/** Facts about one failure, for programs. Which ones a code carries is listed in docs/errors.md. */
export type ErrorDetails = Readonly<Record<string, unknown>>;

export interface VarveErrorOptions {
  readonly cause?: unknown;
  readonly details?: ErrorDetails | undefined;
}

/** Registered under a global symbol, so that errors of a second copy of this module are recognised too. */
const BRAND = Symbol.for("varve.error");

/** The one error that varve throws. Match on `code`: codes are stable, messages are not. */
export class VarveError extends Error {
  readonly code: ErrorCode;
  /** Facts for programs, frozen; empty when there are none. */
  declare readonly details: ErrorDetails;

  static {
    // On the prototype, as for built-in errors: not repeated wherever an error is printed.
    Object.defineProperties(VarveError.prototype, {
      name: { value: "VarveError", configurable: true, writable: true },
      details: { value: Object.freeze({}), writable: true },
      [BRAND]: { value: true },
    });
  }

  constructor(code: ErrorCode, message: string, options: VarveErrorOptions = {}) {
    super(message, "cause" in options ? { cause: options.cause } : undefined);
    this.code = code;
    if (options.details !== undefined) this.details = Object.freeze({ ...options.details });
  }
}

/** True for errors that varve threw, by whichever copy of the library; with `code`, only for that one. */
export function isVarveError<C extends ErrorCode = ErrorCode>(
  error: unknown,
  code?: C,
): error is VarveError & { readonly code: C } {
  if (typeof error !== "object" || error === null || !(BRAND in error)) return false;
  return code === undefined || (error as object as VarveError).code === code;
}

/** States what must hold if varve is right. A failure is a bug in varve, never the caller's or the disk's doing. */
export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new VarveError("ERR_INTERNAL", `broken invariant: ${message}`);
}
