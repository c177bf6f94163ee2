/**
 * Who is let in, and what they may do, by the users file as it stands. A login is not a copy of what was allowed when it
 * was made: each question is answered by the file read last, so whoever is taken out of it, or gets another token, may
 * nothing more at once, on connections that are open too.
 */

import { isDeepStrictEqual } from "node:util";
import { allows, type ObjectKind, type Permission, type Rule } from "./rules.js";
import { isSecretOf, makeDecoy, parseToken } from "./token.js";
import { certificateKey, type User, type Users } from "./users.js";

/** The certificate of a client as the TLS layer has verified it; one that it has not must not be passed on. */
export interface ClientCertificate {
  /** As Node writes it: "9A:0B:...". */
  readonly fingerprint256: string;
  readonly subject: { readonly CN?: string | readonly string[] | undefined } | undefined;
}

export interface Credentials {
  /** Empty: none. */
  readonly token?: string | undefined;
  readonly certificate?: ClientCertificate | undefined;
}

/** Somebody who is in. */
export interface Principal {
  /** For logs. */
  readonly name: string;
  /** @param queue empty for the directory as a whole */
  readonly may: (permission: Permission, kind: ObjectKind, queue: string) => boolean;
  /**
   * False once the users file says something else of this user than at the login. What the connection has under way was
   * allowed by the old one: it should end, and the client log in again.
   */
  readonly current: boolean;
}

/** Compared with when there is no such user, so that a name that exists takes no longer than one that does not. */
const DECOY = makeDecoy();
const NO_SECRET = Buffer.alloc(32);
const NOTHING: readonly Rule[] = Object.freeze([]);

/** A users file, looked up by name and certificate. */
class Table {
  readonly byName: ReadonlyMap<string, User>;
  readonly byCertificate: ReadonlyMap<string, User>;
  readonly kestrel: readonly Rule[];

  constructor({ users, kestrel }: Users) {
    this.byName = new Map(users.map((user) => [user.name, user]));
    this.byCertificate = new Map(
      users.flatMap((user) =>
        user.certificate === undefined ? [] : [[certificateKey(user.certificate), user] as const],
      ),
    );
    this.kestrel = kestrel?.allow ?? [];
  }
}

export class Access {
  #table: Table;

  constructor(users: Users) {
    this.#table = new Table(users);
  }

  /** Takes another users file; it holds for logins that are there already, too. */
  replace(users: Users): void {
    this.#table = new Table(users);
  }

  /**
   * Who that is; undefined when nobody. A token that is given decides, whatever certificate comes with it: a wrong one is
   * never made good.
   */
  authenticate({ token, certificate }: Credentials): Principal | undefined {
    if (token !== undefined && token !== "") return this.#login(userOfToken(this.#table, token), isSameToken);
    if (certificate === undefined) return undefined;
    return this.#login(userOfCertificate(this.#table, certificate), isSameCertificate);
  }

  /** What connections of the Kestrel protocol may, which has no login; each question is answered by the file read last. */
  get kestrel(): Principal {
    return { name: "kestrel", current: true, may: (...question) => allows(this.#table.kestrel, ...question) };
  }

  #login(user: User | undefined, stillIn: StillIn): Principal | undefined {
    return user && new Login(user, stillIn, () => this.#table);
  }
}

/** Whether a user as the file has it now would be let in by what let it in before. */
type StillIn = (before: User, now: User) => boolean;

/** Somebody who has logged in. */
class Login implements Principal {
  readonly name: string;
  readonly #before: User;
  readonly #stillIn: StillIn;
  readonly #table: () => Table;
  #seen: Table;
  #rules: readonly Rule[];

  constructor(user: User, stillIn: StillIn, table: () => Table) {
    this.name = user.name;
    this.#before = user;
    this.#stillIn = stillIn;
    this.#table = table;
    this.#seen = table();
    this.#rules = user.allow;
  }

  readonly may = (permission: Permission, kind: ObjectKind, queue: string): boolean => {
    this.#refresh();
    return allows(this.#rules, permission, kind, queue);
  };

  get current(): boolean {
    this.#refresh();
    return this.#rules === this.#before.allow || isDeepStrictEqual(this.#rules, this.#before.allow);
  }

  #refresh(): void {
    const table = this.#table();
    if (table === this.#seen) return;
    this.#seen = table;
    const user = table.byName.get(this.name);
    this.#rules = user !== undefined && this.#stillIn(this.#before, user) ? user.allow : NOTHING;
  }
}

/** One hash and one comparison, whether there is such a user or not. */
function userOfToken(table: Table, token: string): User | undefined {
  const parsed = parseToken(token);
  const user = table.byName.get(parsed?.name ?? "");
  const right = isSecretOf(user?.token ?? DECOY, parsed?.secret ?? NO_SECRET);
  return right && parsed !== undefined && user?.token !== undefined ? user : undefined;
}

function userOfCertificate(table: Table, { fingerprint256, subject }: ClientCertificate): User | undefined {
  const byFingerprint = table.byCertificate.get(certificateKey({ fingerprint256: fingerprint256.toUpperCase() }));
  // Of several common names none is the name.
  const commonName = subject?.CN;
  if (byFingerprint !== undefined || typeof commonName !== "string") return byFingerprint;
  return table.byCertificate.get(certificateKey({ commonName }));
}

function isSameToken(before: User, now: User): boolean {
  return isDeepStrictEqual(before.token, now.token);
}

function isSameCertificate(before: User, now: User): boolean {
  return isDeepStrictEqual(before.certificate, now.certificate);
}
