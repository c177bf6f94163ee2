/** Transactions and flows: what their callers build, taken apart in this process and sent as one call. */

import type {
  AckOptions,
  AppendOptions,
  EnqueuedFlow,
  EnqueueOptions,
  Flow,
  Input,
  NackOptions,
  ReleaseOptions,
  TaskRef,
  Transaction,
} from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import {
  resolveAckOptions,
  resolveTransactionAckOptions,
  resolveTransactionNackOptions,
  resolveTransactionReleaseOptions,
} from "../api/options.js";
import { checkFlowSize, childrenOf, inPart, ownQueue, runBuild } from "../api/parts.js";
import type { Link } from "./link.js";
import { DialledLog } from "./log.js";
import { DialledMember, offsetOf } from "./member.js";
import { DialledSharedGroup } from "./shared-group.js";
import { type DialledSource, tokenOf } from "./source.js";
import { DialledTasks } from "./tasks.js";

/** One part as it is sent: its name, the handle, and what the call of that name takes. */
export type Part = readonly [what: string, handle: number, ...args: unknown[]];

export interface Collected {
  readonly parts: Part[];
  /** To be done when it has been committed. */
  readonly committed: (() => void)[];
}

/**
 * Runs the callback of a transaction. Arguments are read at once: the caller may use a buffer again as soon as it has
 * returned.
 * @throws VarveError `ERR_ARGUMENT`; what a part is refused with, with its number; whatever the callback throws
 */
export function collect(link: Link, build: (tx: Transaction) => void): Collected {
  const parts: Part[] = [];
  const committed: (() => void)[] = [];
  let open = true;
  let index = 0;
  let refused: unknown;
  const add = (what: string, read: () => Part) => {
    if (!open) throw new VarveError("ERR_ARGUMENT", "a transaction can only be added to inside its callback");
    const number = index++;
    try {
      parts.push(read());
    } catch (error) {
      // Told when the callback has returned, as what it throws itself comes first.
      refused ??= inPart(number, what, error);
    }
  };
  const tx: Transaction = {
    append(queue, input, options?: Omit<AppendOptions, "durability">) {
      const log = ownQueue(queue, DialledLog);
      add(`append to ${log.name}`, () => {
        return ["append", log.handleFor(link), log.partOf(input as Input<never>, options)];
      });
    },
    enqueue(queue, input, options?: Omit<EnqueueOptions, "durability">) {
      const tasks = ownQueue(queue, DialledTasks);
      add(`enqueue to ${tasks.name}`, () => {
        const { key: _key, headers: _headers, ...terms } = options ?? {};
        return ["enqueue", tasks.handleFor(link), tasks.partOf(input as Input<never>, options), terms];
      });
    },
    ack(queue, task: TaskRef, options?: Omit<AckOptions, "durability">) {
      const source = sourceOf(queue);
      add(`ack on ${source.name}`, () => {
        if (options !== undefined) {
          if (source instanceof DialledTasks && "result" in options) resolveAckOptions(options);
          else resolveTransactionAckOptions(options);
        }
        return ["ack", source.handleFor(link), tokenOf(task), options];
      });
    },
    nack(queue, task: TaskRef, options?: Omit<NackOptions, "durability">) {
      const source = sourceOf(queue);
      add(`nack on ${source.name}`, () => {
        const { delayMs: delay, error, dead } = resolveTransactionNackOptions(options);
        return ["nack", source.handleFor(link), tokenOf(task), { delay, error, dead }];
      });
    },
    release(queue, task: TaskRef, options?: Omit<ReleaseOptions, "durability">) {
      const source = sourceOf(queue);
      add(`release on ${source.name}`, () => {
        resolveTransactionReleaseOptions(options);
        return ["release", source.handleFor(link), tokenOf(task), options];
      });
    },
    commitGroup(member, upTo) {
      if (!(member instanceof DialledMember)) {
        throw new VarveError("ERR_ARGUMENT", "pass a member that group() of a log of this directory returned");
      }
      add(`commit of group ${member.name} of ${member.log}`, () => {
        const offset = offsetOf(upTo);
        committed.push(() => member.committed(offset));
        return ["commitGroup", member.handleFor(link), offset];
      });
    },
  };
  try {
    runBuild(build, tx);
  } finally {
    open = false;
  }
  if (refused !== undefined) throw refused;
  return { parts, committed };
}

// biome-ignore lint/suspicious/noExplicitAny: sources with any payload types
function sourceOf(queue: unknown): DialledSource<any> {
  return queue instanceof DialledSharedGroup ? queue : ownQueue(queue, DialledTasks);
}

// -------------------------------------------------------------------------------------------------------------- flows

/** A flow as it is sent, and how to tell its caller of the ids that it was given. */
export interface FlowPlan {
  readonly value: unknown;
  tell(ids: unknown): EnqueuedFlow;
}

/** @throws VarveError `ERR_ARGUMENT`, `ERR_OPTION`, `ERR_ENCODE` */
export function planFlow(link: Link, flow: Flow): FlowPlan {
  const count = { tasks: 0 };
  return plan(link, flow, count, []);
}

function plan(link: Link, flow: Flow, count: { tasks: number }, above: readonly Flow[]): FlowPlan {
  const children = childrenOf(flow, above);
  const { queue, input, options } = flow;
  const tasks: DialledTasks = ownQueue(queue, DialledTasks);
  const plans = children.map((child) => plan(link, child, count, [...above, flow]));
  checkFlowSize(count.tasks);
  count.tasks++;
  const { key: _key, headers: _headers, ...terms } = options ?? {};
  return {
    value: {
      queue: tasks.handleFor(link),
      input: tasks.flowPartOf(input, options),
      options: terms,
      children: plans.map(({ value }) => value),
    },
    tell(ids) {
      const [id, below] = ids as [string, unknown[]];
      return { task: tasks.enqueuedTask(id), children: plans.map((each, index) => each.tell(below[index])) };
    },
  };
}
