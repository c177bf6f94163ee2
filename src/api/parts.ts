/** What every implementation checks of the callback of a transaction, and of a flow. */

import type { Flow, Transaction } from "./contract.js";
import { isVarveError, VarveError } from "./errors.js";
import { show } from "./show.js";

/**
 * Runs the callback of a transaction.
 * @throws VarveError `ERR_ARGUMENT` (it is asynchronous); whatever it throws
 */
export function runBuild(build: (tx: Transaction) => void, tx: Transaction): void {
  const result: unknown = build(tx);
  if (!(result instanceof Promise)) return;
  result.catch(() => {});
  throw new VarveError("ERR_ARGUMENT", "the callback of a transaction must be synchronous: do its waiting before");
}

/** The error of a part of a transaction, which says which part it was. */
export function inPart(index: number, what: string, error: unknown): unknown {
  if (!isVarveError(error)) return error;
  const message = `part ${index + 1} of the transaction (${what}): ${error.message} No part took effect.`;
  return new VarveError(error.code, message, { cause: error, details: { ...error.details, part: index } });
}

/** The queue that was passed, if it is one of this implementation. @throws VarveError `ERR_ARGUMENT` */
// biome-ignore lint/suspicious/noExplicitAny: classes with any payload types
export function ownQueue<T>(queue: unknown, type: new (...args: any[]) => T): T {
  if (queue instanceof type) return queue;
  throw new VarveError("ERR_ARGUMENT", "pass a queue that openLog() or openTask() of this directory returned");
}

const FLOW_TASKS_MAX = 1000;
const FLOW_DEPTH_MAX = 32;

/** @param above the flows that it is part of @throws VarveError `ERR_ARGUMENT` */
export function childrenOf(flow: Flow, above: readonly Flow[]): readonly Flow[] {
  if (typeof flow !== "object" || flow === null) {
    throw new VarveError("ERR_ARGUMENT", `a flow is { queue, input, options?, children? }; got ${show(flow)}`);
  }
  if (above.includes(flow)) {
    throw new VarveError("ERR_ARGUMENT", "a flow must not contain itself: it would never be done");
  }
  if (above.length >= FLOW_DEPTH_MAX) {
    throw new VarveError("ERR_ARGUMENT", `a flow may have ${FLOW_DEPTH_MAX} levels`);
  }
  const { children = [] } = flow;
  if (!Array.isArray(children)) {
    throw new VarveError("ERR_ARGUMENT", "the children of a flow must be an array of flows");
  }
  return children;
}

/** @param count tasks of the flow so far @throws VarveError `ERR_ARGUMENT`: there is no room for one more */
export function checkFlowSize(count: number): void {
  if (count >= FLOW_TASKS_MAX) throw new VarveError("ERR_ARGUMENT", `a flow may have ${FLOW_TASKS_MAX} tasks`);
}
