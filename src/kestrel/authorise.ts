/**
 * What each command takes to be allowed, on every object that it touches. The protocol has no login: all its connections
 * may the same, which is what the operator says of them.
 */

import { VarveError } from "../api/errors.js";
import { show } from "../api/show.js";
import type { Request } from "./request.js";

export type Permission = "read" | "write" | "admin";

/** Whether something may be done with a task queue, or with the directory as a whole, whose name is empty. */
export type May = (permission: Permission, kind: "task" | "directory", queue: string) => boolean;

interface Need {
  readonly permission: Permission;
  /** Those of which the command is about; empty for all there are. */
  readonly queues: readonly string[];
}

/**
 * Allows a request, or throws before anything of it is done.
 * @throws VarveError `ERR_FORBIDDEN`
 */
export function authorise(may: May, request: Request): void {
  const need = needOf(request);
  if (need === undefined) return;
  const { permission, queues } = need;
  if (queues.length === 0 && !may(permission, "directory", "")) throw forbidden(request, permission, undefined);
  for (const queue of queues) if (!may(permission, "task", queue)) throw forbidden(request, permission, queue);
}

function needOf(request: Request): Need | undefined {
  switch (request.command) {
    case "get":
      return { permission: "read", queues: [request.queue] };
    case "set":
      return { permission: "write", queues: request.queues };
    case "delete":
    case "flush":
      return { permission: "admin", queues: [request.queue] };
    case "flush_all":
      return { permission: "admin", queues: [] };
    case "flush_expired":
      return { permission: "read", queues: [request.queue] };
    case "dump_stats":
      return { permission: "read", queues: request.queues };
    case "flush_all_expired":
    case "stats":
      return { permission: "read", queues: [] };
    case "version":
    case "quit":
      return undefined;
  }
}

function forbidden({ command }: Request, permission: Permission, queue: string | undefined): VarveError {
  const object = queue === undefined ? "the directory" : `the queue ${show(queue)}`;
  return new VarveError("ERR_FORBIDDEN", `${command} takes ${permission} on ${object}`, {
    details: { permission, ...(queue === undefined ? {} : { queue }) },
  });
}
