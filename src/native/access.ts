/** Who may do what over the native protocol. Whoever verifies credentials implements these interfaces. */

import type { QueueKind } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import { show } from "../api/show.js";
import type { Method, Permission } from "../wire/methods.js";

type ObjectKind = QueueKind | "directory";

/** What a client has shown of itself when it connected. */
export interface Credentials {
  readonly token?: string | undefined;
  /** Of a client whose certificate the listener has verified. */
  readonly certificate?:
    | {
        readonly fingerprint256: string;
        readonly subject: { readonly CN?: string | readonly string[] | undefined } | undefined;
      }
    | undefined;
}

/** Someone who has been let in. */
export interface Principal {
  /** For people and logs. */
  readonly name: string;
  /** Of the kind "directory", whose queue is "": what concerns the directory as a whole. */
  may(permission: Permission, kind: ObjectKind, queue: string): boolean;
  /** False once it is allowed something else than when it was let in: its connections end, and it logs in again. */
  readonly current: boolean;
}

export interface Authenticator {
  /** `undefined`: not let in. Takes the same time for unknown credentials as for wrong ones. */
  authenticate(credentials: Credentials): Principal | undefined;
}

/** Lets everybody in and do everything: for listeners that only this machine can reach. */
export const OPEN: Authenticator = Object.freeze({
  authenticate: () => ({ name: "anyone", may: () => true, current: true }),
});

/** Something that a call is about. */
export interface Affected {
  readonly permission: Permission;
  readonly kind: ObjectKind;
  readonly queue: string;
}

/**
 * The one place where a call is allowed or not, before anything of it is done.
 * @param affected everything that it is about
 * @throws VarveError `ERR_FORBIDDEN`
 */
export function authorise(principal: Principal, method: Method, affected: readonly Affected[]): void {
  for (const { permission, kind, queue } of affected) authoriseOne(principal, method, permission, kind, queue);
}

/** The same, of one thing. */
export function authoriseOne(
  principal: Principal,
  method: Method,
  permission: Permission,
  kind: ObjectKind,
  queue: string,
): void {
  if (principal.may(permission, kind, queue)) return;
  const object = kind === "directory" ? "the directory" : `the ${kind} queue ${show(queue)}`;
  throw new VarveError(
    "ERR_FORBIDDEN",
    `${show(principal.name)} may not ${method.name}: it takes the permission to ${permission} on ${object}`,
    { details: { permission, ...(kind === "directory" ? {} : { kind, queue }) } },
  );
}
