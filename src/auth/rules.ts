/**
 * What somebody may do: a list of rules, each of which allows some permissions on the queues that fit a pattern. What no
 * rule allows is forbidden; the permissions do not include each other.
 *
 * As text, on the command line: `read,write:orders.*`, `admin:task/jobs`. No queue's name holds "/", so the kind before
 * it cannot be mistaken.
 */

import type { QueueKind } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import { show } from "../api/show.js";
import { fits, isPattern } from "./pattern.js";

/** read: take out and look; write: put in; admin: make, change, empty and delete. */
export const PERMISSIONS = ["read", "write", "admin"] as const;
export type Permission = (typeof PERMISSIONS)[number];

export interface Rule {
  readonly permissions: readonly Permission[];
  /** undefined: queues of both kinds. */
  readonly kind: QueueKind | undefined;
  readonly queues: string;
}

/** What is done something with: a queue of a kind, or the directory as a whole, whose name is empty. */
export type ObjectKind = QueueKind | "directory";

/** For the directory as a whole only a rule about every queue of both kinds counts. */
export function allows(rules: readonly Rule[], permission: Permission, kind: ObjectKind, queue: string): boolean {
  return rules.some((rule) => {
    if (!rule.permissions.includes(permission)) return false;
    if (kind === "directory") return rule.kind === undefined && rule.queues === "*";
    return (rule.kind ?? kind) === kind && fits(rule.queues, queue);
  });
}

/**
 * A rule from the command line.
 * @throws VarveError `ERR_OPTION`
 */
export function parseRule(text: string, option: string): Rule {
  const parts = /^([a-z,]{1,100}):(?:(log|task)\/)?([^/]{1,500})$/.exec(text);
  const permissions = parts?.[1]?.split(",") ?? [];
  const queues = parts?.[3] ?? "";
  if (!permissions.every(isPermission) || new Set(permissions).size !== permissions.length || !isPattern(queues)) {
    throw new VarveError(
      "ERR_OPTION",
      `${option} must be permissions (${PERMISSIONS.join(", ")}), a colon and the queues: read,write:orders.* or ` +
        `admin:task/jobs, with one "*" at most; got ${show(text)}`,
      { details: { option } },
    );
  }
  return { permissions, kind: parts?.[2] as QueueKind | undefined, queues };
}

export function formatRule({ permissions, kind, queues }: Rule): string {
  return `${permissions.join(",")}:${kind === undefined ? "" : `${kind}/`}${queues}`;
}

export function isPermission(value: unknown): value is Permission {
  return (PERMISSIONS as readonly unknown[]).includes(value);
}
