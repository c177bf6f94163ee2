/**
 * What the calls of the protocol do, over the contract. Calls with a layout of their own are in hot-calls.ts and streams.ts;
 * these take their arguments as an array of values and answer with a value.
 *
 * Nothing is checked here that the contract checks: arguments are passed on as they came.
 */

import type {
  EnqueuedFlow,
  Flow,
  GroupMember,
  LogQueue,
  MessageQueue,
  QueueKind,
  RequestIdentity,
  SharedGroup,
  TaskCursor,
  TaskQueue,
  TaskSource,
  Transaction,
} from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import { show } from "../api/show.js";
import { malformed } from "../wire/input.js";
import { type Method, Methods, type Permission } from "../wire/methods.js";
import type { Affected, Principal } from "./access.js";
import { ServedMember } from "./member.js";
import type { Handle, Session } from "./session.js";

/** A call whose arguments are values. */
export interface ValueCall {
  readonly mq: MessageQueue;
  readonly session: Session;
  readonly method: Method;
  /** Of the handle that is opened or used; 0: none. */
  readonly handleId: number;
  readonly handle: Handle | undefined;
  readonly args: readonly unknown[];
  /** Of calls that wait. */
  readonly wait: { readonly wait: number; readonly signal: AbortSignal } | undefined;
}

type Run = (call: ValueCall) => Promise<unknown>;

// biome-ignore lint/suspicious/noExplicitAny: the contract checks what a caller passes, whatever it is
type Anything = any;

/** The queue of a call's handle, which must be of one of the types. */
function on<T>(call: { readonly handle: Handle | undefined }, ...types: Handle["type"][]): T {
  const { handle } = call;
  if (handle !== undefined && types.includes(handle.type)) return handle.object as T;
  throw new VarveError("ERR_ARGUMENT", `the call needs the handle of a ${types.join(" or ")}`);
}

const log = (call: ValueCall) => on<LogQueue>(call, "log");
const tasks = (call: ValueCall) => on<TaskQueue>(call, "task");
const member = (call: ValueCall) => on<GroupMember>(call, "member");
const group = (call: ValueCall) => on<SharedGroup>(call, "group");
const cursor = (call: ValueCall) => on<TaskCursor>(call, "cursor");
const source = (call: ValueCall) => on<TaskSource>(call, "task", "group");
const anySource = (call: ValueCall) => on<TaskSource | TaskCursor>(call, "task", "group", "cursor");

function waiting(call: ValueCall, options: unknown): Anything {
  return { ...object(options), ...call.wait };
}

function object(value: unknown): Record<string, unknown> {
  if (value === undefined) return {};
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw malformed("options that are no map");
}

/** Runs a call by its opcode. */
export const RUN: readonly (Run | undefined)[] = (() => {
  const byOpcode: (Run | undefined)[] = [];
  const define = (method: Method, run: Run) => {
    byOpcode[method.opcode] = run;
  };
  // The directory.
  define(Methods.openLog, openLog);
  define(Methods.openTask, openTask);
  define(Methods.group, async (call) => {
    const [handleId, name, options] = call.args as Anything[];
    const from = log(call);
    if (call.session.isMember(handleId, from.name, name)) return true;
    const object = await from.group(name, options);
    keep(call, handleId, {
      type: "member",
      kind: "log",
      queue: from.name,
      object,
      served: new ServedMember(object, from),
    });
    return false;
  });
  define(Methods.sharedGroup, async (call) => {
    const [handleId, name, options] = call.args as Anything[];
    const from = log(call);
    const object = await from.sharedGroup(name, options);
    keep(call, handleId, { type: "group", kind: "log", queue: from.name, object });
  });
  define(Methods.cursor, async (call) => {
    const [handleId, name, options] = call.args as Anything[];
    const from = tasks(call);
    const object = await from.cursor(name, options);
    keep(call, handleId, { type: "cursor", kind: "task", queue: from.name, object });
  });
  define(Methods.leave, (call) => call.session.leave(call.handleId));
  define(Methods.transaction, transaction);
  define(Methods.flow, async (call) => {
    const [flow, options] = call.args as Anything[];
    return idsOf(await call.mq.flow(flowOf(call.session, flow), options));
  });
  define(Methods.deleteQueue, (call) => {
    const [kind, name, options] = call.args as Anything[];
    return call.mq.deleteQueue(kind, name, options);
  });
  define(Methods.queues, async (call) => {
    const infos = await call.mq.queues();
    return infos.filter(({ kind, name }) => maySee(call.session.principal, kind, name));
  });
  define(Methods.stats, (call) => call.mq.stats());
  define(Methods.sync, (call) => call.mq.sync());

  // Logs.
  define(Methods.delete, (call) => log(call).delete(...(call.args as [Anything, Anything])));
  define(Methods.compact, (call) => log(call).compact());
  define(Methods.trim, (call) => log(call).trim(...(call.args as [Anything, Anything])));
  define(Methods.purgeLog, (call) => log(call).purge(...(call.args as [Anything])));
  define(Methods.groups, (call) => log(call).groups());
  define(Methods.deleteGroup, (call) => log(call).deleteGroup(...(call.args as [Anything, Anything])));
  define(Methods.configureLog, (call) => log(call).configure(...(call.args as [Anything, Anything])));
  define(Methods.logSettings, (call) => log(call).settings());
  define(Methods.logStats, (call) => log(call).stats());

  // Groups.
  define(Methods.memberCommit, (call) => member(call).commit(...(call.args as [Anything, Anything])));
  define(Methods.memberSeek, async (call) => {
    const offset = await member(call).seek(...(call.args as [Anything, Anything]));
    if (call.handle?.type === "member") call.handle.served.moved(offset);
    return offset;
  });
  define(Methods.memberPosition, (call) => member(call).position());
  define(Methods.groupInfo, (call) => group(call).info());
  define(Methods.groupSeek, (call) => group(call).seek(...(call.args as [Anything, Anything])));

  // What hands out tasks.
  define(Methods.release, async (call) => {
    const [tokens, options] = call.args as [Anything, Anything];
    await (anySource(call) as TaskSource).release(tokens, options);
    for (const token of tokens) call.session.settled(token);
  });
  define(Methods.peek, (call) => anySource(call).peek(waiting(call, call.args[0])));
  define(Methods.deadRead, (call) => source(call).dead.read(...(call.args as [Anything])));
  define(Methods.deadRedrive, (call) => source(call).dead.redrive(...(call.args as [Anything, Anything])));
  define(Methods.deadPurge, (call) => source(call).dead.purge(...(call.args as [Anything, Anything])));

  // Task queues.
  define(Methods.expire, (call) => tasks(call).expire());
  define(Methods.pause, (call) => tasks(call).pause(...(call.args as [Anything])));
  define(Methods.resume, (call) => tasks(call).resume(...(call.args as [Anything])));
  define(Methods.purgeTasks, (call) => tasks(call).purge(...(call.args as [Anything])));
  define(Methods.configureTasks, (call) => tasks(call).configure(...(call.args as [Anything, Anything])));
  define(Methods.taskSettings, (call) => tasks(call).settings());
  define(Methods.cancel, (call) => tasks(call).cancel(...(call.args as [Anything, Anything])));
  define(Methods.reschedule, (call) => tasks(call).reschedule(...(call.args as [Anything, Anything, Anything])));
  define(Methods.schedule, (call) => tasks(call).schedule(...(call.args as [Anything, Anything, Anything, Anything])));
  define(Methods.unschedule, (call) => tasks(call).unschedule(...(call.args as [Anything, Anything])));
  define(Methods.schedules, (call) => tasks(call).schedules());
  define(Methods.cursors, (call) => tasks(call).cursors());
  define(Methods.deleteCursor, (call) => tasks(call).deleteCursor(...(call.args as [Anything, Anything])));
  define(Methods.progress, (call) => tasks(call).progress(...(call.args as [Anything, Anything, Anything])));
  define(Methods.list, (call) => tasks(call).list(...(call.args as [Anything])));
  define(Methods.status, (call) => tasks(call).status(...(call.args as [Anything])));
  define(Methods.result, (call) => tasks(call).result(call.args[0] as string, waiting(call, call.args[1])));
  define(Methods.taskStats, (call) => tasks(call).stats());

  // Cursors.
  define(Methods.cursorReset, (call) => cursor(call).reset(...(call.args as [Anything])));
  define(Methods.cursorStats, (call) => cursor(call).stats());
  return byOpcode;
})();

/** Where the options stand among the arguments of the calls that can be named. */
const OPTIONS_AT: ReadonlyMap<Method, number> = new Map<Method, number>([
  [Methods.transaction, 1],
  [Methods.flow, 1],
  [Methods.deleteQueue, 2],
  [Methods.delete, 1],
  [Methods.trim, 1],
  [Methods.purgeLog, 0],
  [Methods.deleteGroup, 1],
  [Methods.configureLog, 1],
  [Methods.memberCommit, 1],
  [Methods.memberSeek, 1],
  [Methods.groupSeek, 1],
  [Methods.release, 1],
  [Methods.deadRedrive, 1],
  [Methods.deadPurge, 1],
  [Methods.pause, 0],
  [Methods.resume, 0],
  [Methods.purgeTasks, 0],
  [Methods.configureTasks, 1],
  [Methods.cancel, 1],
  [Methods.reschedule, 2],
  [Methods.schedule, 3],
  [Methods.unschedule, 1],
  [Methods.deleteCursor, 1],
  [Methods.progress, 2],
  [Methods.cursorReset, 0],
]);

/**
 * The arguments of a call with its name among the options, unless its caller has named it otherwise. Names that callers give
 * are as much of this session's user alone as those of its client.
 */
export function withName(
  method: Method,
  args: readonly unknown[],
  session: Session,
  name: RequestIdentity | undefined,
): readonly unknown[] {
  const at = OPTIONS_AT.get(method);
  if (at === undefined) return args;
  const options = object(args[at]);
  const request = options.request === undefined ? name : ofUser(session, options.request);
  if (request === undefined) return args;
  const named = [...args];
  named[at] = { ...options, request };
  return named;
}

/** What is no name is left to the contract to refuse. */
function ofUser(session: Session, request: unknown): unknown {
  const { producer } = object(request);
  return producer instanceof Uint8Array
    ? { ...object(request), producer: session.producerOf(producer).bytes }
    : request;
}

/** The client may be gone meanwhile; then what it has opened is closed with its session. */
function keep(call: ValueCall, handleId: unknown, handle: Handle): void {
  if (typeof handleId !== "number") throw malformed("a handle that is no number");
  call.session.keep(handleId, handle);
}

async function openLog(call: ValueCall): Promise<undefined> {
  const [name, options] = call.args as Anything[];
  const object: LogQueue = await call.mq.openLog(name, creating(call, "log", name, options));
  keep(call, call.handleId, { type: "log", kind: "log", queue: name, object });
  return undefined;
}

/** Answers with what a worker must know of the queue. */
async function openTask(call: ValueCall): Promise<{ readonly lease: number; readonly resultTtl: number }> {
  const [name, options] = call.args as Anything[];
  const object: TaskQueue = await call.mq.openTask(name, creating(call, "task", name, options));
  keep(call, call.handleId, { type: "task", kind: "task", queue: name, object });
  const { lease, resultTtl } = await object.settings();
  return { lease, resultTtl };
}

/** Who may not write makes no queues either. */
function creating(call: ValueCall, kind: QueueKind, name: string, options: unknown): Anything {
  if (call.session.principal.may("write", kind, name)) return options;
  return { ...object(options), create: false };
}

function maySee(principal: Principal, kind: QueueKind, name: string): boolean {
  return principal.may("read", kind, name) || principal.may("write", kind, name) || principal.may("admin", kind, name);
}

// ------------------------------------------------------------------------------------- transactions and flows

/** One part: its name, the handle, and what the call of that name takes. */
type Part = readonly [what: string, handle: number, ...args: unknown[]];

const PARTS: Readonly<Record<string, Permission>> = {
  append: "write",
  enqueue: "write",
  ack: "read",
  nack: "read",
  release: "read",
  commitGroup: "read",
};

async function transaction(call: ValueCall): Promise<void> {
  const [parts, options] = call.args as [readonly Part[], Anything];
  await call.mq.transaction((tx) => {
    for (const part of parts) addPart(tx, call.session, part);
  }, options);
  for (const [what, , token] of parts) {
    if (what === "ack" || what === "nack" || what === "release") call.session.settled(token as string);
  }
}

function addPart(tx: Transaction, session: Session, [what, handleId, ...args]: Part): void {
  const handle = session.handle(handleId);
  const [first, second] = args as [Anything, Anything];
  switch (what) {
    case "append":
      tx.append(on<LogQueue>({ handle }, "log"), first, second);
      return;
    case "enqueue":
      tx.enqueue(on<TaskQueue>({ handle }, "task"), first, second);
      return;
    case "ack":
      tx.ack(on<TaskSource>({ handle }, "task", "group"), first, second);
      return;
    case "nack":
      tx.nack(on<TaskSource>({ handle }, "task", "group"), first, second);
      return;
    case "release":
      tx.release(on<TaskSource>({ handle }, "task", "group"), first, second);
      return;
    case "commitGroup":
      tx.commitGroup(on<GroupMember>({ handle }, "member"), first);
      return;
    default:
      throw malformed(`a transaction has no part ${show(what)}`);
  }
}

function flowOf(session: Session, value: unknown): Flow {
  const { queue, input, options, children } = object(value);
  return {
    queue: on<TaskQueue>({ handle: session.handle(queue as number) }, "task"),
    input,
    options: options as Anything,
    children: array(children).map((child) => flowOf(session, child)),
  };
}

function idsOf({ task, children }: EnqueuedFlow): unknown {
  return [task.id, children.map(idsOf)];
}

function array(value: unknown): readonly unknown[] {
  if (Array.isArray(value)) return value;
  throw malformed("something that should be an array");
}

// ---------------------------------------------------------------------------------------------------- authorisation

/** Everything that a call is about, and what it takes. */
export function affectedBy(call: ValueCall): Affected[] {
  const { method, args, handle } = call;
  if (method === Methods.openLog || method === Methods.openTask) return opened(call);
  if (method === Methods.transaction) {
    return array(args[0]).map((part) => {
      const [what, id] = array(part);
      const permission = typeof what === "string" && Object.hasOwn(PARTS, what) ? PARTS[what] : undefined;
      if (permission === undefined) throw malformed(`a transaction has no part ${show(what)}`);
      return { permission, ...objectOf(call.session.handle(id as number)) };
    });
  }
  if (method === Methods.flow) return inFlow(call.session, args[0]);
  if (method === Methods.deleteQueue) {
    return [{ permission: "admin", kind: args[0] as QueueKind, queue: String(args[1]) }];
  }
  const { needs } = method;
  if (needs === "none" || needs === "any" || needs === "parts") return [];
  if (handle === undefined) return [{ permission: needs, kind: "directory", queue: "" }];
  const affected: Affected[] = [{ permission: needs, ...objectOf(handle) }];
  if (method === Methods.configureTasks) affected.push(...movedTo(args[0]));
  return affected;
}

/** To open one takes any permission, and to change its settings administration. */
function opened({ session, method, args }: ValueCall): Affected[] {
  const [name, options] = args;
  const kind = method === Methods.openLog ? "log" : "task";
  const queue = String(name);
  const { create, ...settings } = object(options);
  if (Object.values(settings).some((value) => value !== undefined)) {
    return [{ permission: "admin", kind, queue }, ...movedTo(settings)];
  }
  const may = (permission: Permission) => session.principal.may(permission, kind, queue);
  const permission = may("write") ? "write" : may("admin") ? "admin" : "read";
  return [{ permission, kind, queue }];
}

/** Settings may have tasks moved into another queue. */
function movedTo(settings: unknown): Affected[] {
  const { onExpire } = object(settings);
  if (typeof onExpire !== "object" || onExpire === null) return [];
  return [{ permission: "write", kind: "task", queue: String((onExpire as { moveTo?: unknown }).moveTo) }];
}

function inFlow(session: Session, value: unknown): Affected[] {
  const { queue, children } = object(value);
  const own: Affected = { permission: "write", ...objectOf(session.handle(queue as number)) };
  return [own, ...array(children).flatMap((child) => inFlow(session, child))];
}

function objectOf({ kind, queue }: Handle): { readonly kind: QueueKind; readonly queue: string } {
  return { kind, queue };
}
