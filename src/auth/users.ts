/**
 * The users file: who may log in, how, and what they may do then.
 *
 *   {
 *     "users": [
 *       {
 *         "name": "orders-service",
 *         "token": { "salt": "<base64>", "sha256": "<base64>" },
 *         "certificate": { "commonName": "orders.example.com" },
 *         "allow": [{ "queues": "orders.*", "permissions": ["read", "write"] }]
 *       },
 *       {
 *         "name": "operator",
 *         "certificate": { "fingerprint256": "9A:0B:..." },
 *         "allow": [{ "queues": "*", "permissions": ["read", "write", "admin"] }]
 *       }
 *     ],
 *     "kestrel": { "allow": [{ "queues": "mail", "kind": "task", "permissions": ["write"] }] }
 *   }
 *
 * A user has a token, a certificate, or both; either of them is enough. A certificate is known by the SHA-256 of all of it,
 * or by its common name, whoever of the accepted authorities issued it. "kestrel" is what connections of that protocol may,
 * which has no login.
 *
 * The file decides who gets in, so nothing in it is passed over: a member that is not known is refused, with its path, as
 * is a second user of one name or certificate.
 */

import type { QueueKind } from "../api/contract.js";
import { VarveError } from "../api/errors.js";
import { show } from "../api/show.js";
import { isPattern } from "./pattern.js";
import { isPermission, PERMISSIONS, type Permission, type Rule } from "./rules.js";
import { isUserName, parseHash, type TokenHash } from "./token.js";

export const USERS_BYTES_MAX = 64 * 1024;
const DEPTH_MAX = 32;
const COMMON_NAME_CHARS_MAX = 200;

export type CertificateName = { readonly commonName: string } | { readonly fingerprint256: string };

export interface User {
  readonly name: string;
  readonly token: TokenHash | undefined;
  readonly certificate: CertificateName | undefined;
  readonly allow: readonly Rule[];
}

export interface Users {
  readonly users: readonly User[];
  /** undefined: the Kestrel protocol is not spoken. */
  readonly kestrel: { readonly allow: readonly Rule[] } | undefined;
}

export const NO_USERS: Users = Object.freeze({ users: Object.freeze([]), kestrel: undefined });

/**
 * @param file for messages
 * @throws VarveError `ERR_OPTION`, naming the path of what is wrong
 */
export function parseUsers(text: string, file: string): Users {
  const wrong = (path: string, what: string): VarveError =>
    new VarveError("ERR_OPTION", `${file}: ${path} ${what}`, { details: { path } });

  if (Buffer.byteLength(text) > USERS_BYTES_MAX) throw wrong("$", `is larger than ${USERS_BYTES_MAX} bytes`);
  if (depthOf(text) > DEPTH_MAX) throw wrong("$", `is nested more than ${DEPTH_MAX} levels deep`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // The parser's own message quotes the text, and with it hashes.
    throw wrong("$", "is not JSON");
  }

  const object = (given: unknown, path: string, members: readonly string[]): Record<string, unknown> => {
    if (typeof given !== "object" || given === null || Array.isArray(given)) throw wrong(path, "must be an object");
    for (const member of Object.keys(given)) {
      if (!members.includes(member)) {
        throw wrong(`${path}[${show(member)}]`, `is not known; ${path} takes ${members.join(", ")}`);
      }
    }
    return given as Record<string, unknown>;
  };
  const array = (given: unknown, path: string): readonly unknown[] => {
    if (!Array.isArray(given)) throw wrong(path, "must be an array");
    return given;
  };

  const rule = (given: unknown, path: string): Rule => {
    const { queues, kind, permissions } = object(given, path, ["queues", "kind", "permissions"]);
    if (typeof queues !== "string" || !isPattern(queues)) {
      throw wrong(`${path}.queues`, 'must be the name of a queue, with one "*" at most for any characters');
    }
    if (kind !== undefined && kind !== "log" && kind !== "task") throw wrong(`${path}.kind`, 'must be "log" or "task"');
    const list = array(permissions, `${path}.permissions`);
    if (list.length === 0 || !list.every(isPermission) || new Set(list).size !== list.length) {
      throw wrong(`${path}.permissions`, `must be some of ${PERMISSIONS.map((name) => `"${name}"`).join(", ")}`);
    }
    return { queues, kind: kind as QueueKind | undefined, permissions: list as readonly Permission[] };
  };
  const rules = (given: unknown, path: string): Rule[] =>
    array(given, path).map((item, index) => rule(item, `${path}[${index}]`));

  const token = (given: unknown, path: string): TokenHash | undefined => {
    if (given === undefined) return undefined;
    const { salt, sha256 } = object(given, path, ["salt", "sha256"]);
    const hash = parseHash(salt, sha256);
    if (hash === undefined) throw wrong(path, "must hold the salt and sha256 that `varve token create` wrote");
    return hash;
  };
  const certificate = (given: unknown, path: string): CertificateName | undefined => {
    if (given === undefined) return undefined;
    const { commonName, fingerprint256 } = object(given, path, ["commonName", "fingerprint256"]);
    if ((commonName === undefined) === (fingerprint256 === undefined)) {
      throw wrong(path, "must have either commonName or fingerprint256");
    }
    if (fingerprint256 !== undefined) {
      const hex = typeof fingerprint256 === "string" ? fingerprint256.toUpperCase() : "";
      if (!/^[0-9A-F]{2}(?::[0-9A-F]{2}){31}$/.test(hex)) {
        throw wrong(`${path}.fingerprint256`, "must be 32 bytes in hexadecimal, with colons between them");
      }
      return { fingerprint256: hex };
    }
    if (typeof commonName !== "string" || commonName === "" || commonName.length > COMMON_NAME_CHARS_MAX) {
      throw wrong(`${path}.commonName`, `must be a string of 1 to ${COMMON_NAME_CHARS_MAX} characters`);
    }
    return { commonName };
  };

  const known = new Set<string>();
  /** Refuses a second one. */
  const once = (key: string, path: string): void => {
    if (known.has(key)) throw wrong(path, "is another user's already");
    known.add(key);
  };
  const user = (given: unknown, path: string): User => {
    const members = object(given, path, ["name", "token", "certificate", "allow"]);
    const { name } = members;
    if (!isUserName(name)) throw wrong(`${path}.name`, "must be 1 to 64 characters of A-Z a-z 0-9 _ -");
    once(`name ${name}`, `${path}.name`);
    const parsed: User = {
      name,
      token: token(members.token, `${path}.token`),
      certificate: certificate(members.certificate, `${path}.certificate`),
      allow: rules(members.allow, `${path}.allow`),
    };
    if (parsed.token === undefined && parsed.certificate === undefined) {
      throw wrong(path, "has neither a token nor a certificate");
    }
    if (parsed.certificate !== undefined)
      once(`certificate ${certificateKey(parsed.certificate)}`, `${path}.certificate`);
    return parsed;
  };

  const { users, kestrel } = object(value, "$", ["users", "kestrel"]);
  return {
    users: array(users, "$.users").map((given, index) => user(given, `$.users[${index}]`)),
    kestrel:
      kestrel === undefined
        ? undefined
        : { allow: rules(object(kestrel, "$.kestrel", ["allow"]).allow, "$.kestrel.allow") },
  };
}

/** The text of a users file. */
export function formatUsers({ users, kestrel }: Users): string {
  const rule = ({ queues, kind, permissions }: Rule) => ({ queues, kind, permissions });
  const value = {
    users: users.map(({ name, token, certificate, allow }) => ({
      name,
      token: token && { salt: token.salt.toString("base64"), sha256: token.sha256.toString("base64") },
      certificate,
      allow: allow.map(rule),
    })),
    kestrel: kestrel && { allow: kestrel.allow.map(rule) },
  };
  return `${JSON.stringify(value, undefined, 2)}\n`;
}

/** Says which certificate is meant; the two ways of naming one never collide. */
export function certificateKey(certificate: CertificateName): string {
  return "commonName" in certificate ? `CN=${certificate.commonName}` : certificate.fingerprint256;
}

/** How deep brackets nest, strings aside. One pass, and no more than a counter, before anything is built. */
function depthOf(text: string): number {
  let depth = 0;
  let deepest = 0;
  let quoted = false;
  for (let index = 0; index < text.length; index++) {
    const character = text[index];
    if (quoted) {
      if (character === "\\") index++;
      else if (character === '"') quoted = false;
    } else if (character === '"') quoted = true;
    else if (character === "{" || character === "[") deepest = Math.max(deepest, ++depth);
    else if (character === "}" || character === "]") depth--;
  }
  return deepest;
}
