/**
 * Login tokens: `varve_NAME.SECRET`, with 32 random bytes as base64url for the secret. The prefix is there for programs
 * that look for secrets in places where none should be.
 *
 * Only a hash is kept, SHA-256 over salt and secret. A slow hash such as scrypt is for passwords, which can be guessed;
 * 2^256 secrets cannot, however fast each try is. And one hash is done for each connection, before anybody has logged in:
 * a slow one would let strangers keep the daemon busy. The salt makes the hashes of two files that hold one secret differ,
 * so a stolen file does not tell which tokens are in use elsewhere too.
 */

import { createHash, randomBytes, timingSafeEqual } from "node:crypto";

const PREFIX = "varve_";
const SECRET_BYTES = 32;
const SALT_BYTES = 16;
const HASH_BYTES = 32;
/** Longer ones are no tokens; none is hashed that is. */
const TOKEN_CHARS_MAX = 256;
const USER_NAME = /^[A-Za-z0-9_-]{1,64}$/;

export interface TokenHash {
  readonly salt: Buffer;
  readonly sha256: Buffer;
}

export interface ParsedToken {
  readonly name: string;
  readonly secret: Buffer;
}

/** Names of users: 1 to 64 of A-Z a-z 0-9 _ -. */
export function isUserName(value: unknown): value is string {
  return typeof value === "string" && USER_NAME.test(value);
}

/** A new token for a user, and what is kept of it. */
export function makeToken(name: string): { readonly token: string; readonly hash: TokenHash } {
  const secret = randomBytes(SECRET_BYTES);
  const salt = randomBytes(SALT_BYTES);
  return { token: `${PREFIX}${name}.${secret.toString("base64url")}`, hash: { salt, sha256: digest(salt, secret) } };
}

/** undefined when the text is no token. */
export function parseToken(token: string): ParsedToken | undefined {
  if (token.length > TOKEN_CHARS_MAX || !token.startsWith(PREFIX)) return undefined;
  const dot = token.indexOf(".");
  const name = token.slice(PREFIX.length, dot);
  const text = token.slice(dot + 1);
  const secret = Buffer.from(text, "base64url");
  // One spelling for each secret.
  if (dot < 0 || !isUserName(name) || secret.length !== SECRET_BYTES || secret.toString("base64url") !== text) {
    return undefined;
  }
  return { name, secret };
}

/** Whether a secret is the one that was hashed; takes as long whichever byte differs. */
export function isSecretOf({ salt, sha256 }: TokenHash, secret: Buffer): boolean {
  return timingSafeEqual(digest(salt, secret), sha256);
}

/** What no secret hashes to, to compare with when there is no such user. */
export function makeDecoy(): TokenHash {
  return { salt: randomBytes(SALT_BYTES), sha256: randomBytes(HASH_BYTES) };
}

/** @return undefined when the texts are no salt and hash in base64 */
export function parseHash(salt: unknown, sha256: unknown): TokenHash | undefined {
  const parsed = { salt: base64(salt, SALT_BYTES), sha256: base64(sha256, HASH_BYTES) };
  return parsed.salt === undefined || parsed.sha256 === undefined ? undefined : (parsed as TokenHash);
}

function base64(value: unknown, bytes: number): Buffer | undefined {
  if (typeof value !== "string" || value.length > 2 * bytes) return undefined;
  const buffer = Buffer.from(value, "base64");
  return buffer.length === bytes && buffer.toString("base64") === value ? buffer : undefined;
}

function digest(salt: Buffer, secret: Buffer): Buffer {
  return createHash("sha256").update(salt).update(secret).digest();
}
