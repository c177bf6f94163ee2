import assert from "node:assert/strict";
import test from "node:test";
import { rejectsWith } from "../../test/support/expect.js";
import { Access } from "./access.js";
import { fits, isPattern } from "./pattern.js";
import { allows, formatRule, PERMISSIONS, parseRule, type Rule } from "./rules.js";
import { isUserName, makeToken, parseToken } from "./token.js";
import { formatUsers, NO_USERS, parseUsers, USERS_BYTES_MAX, type User } from "./users.js";

const FINGERPRINT = Array.from({ length: 32 }, (_, index) => (index + 160).toString(16).toUpperCase()).join(":");

const EVERYTHING: Rule = { queues: "*", kind: undefined, permissions: PERMISSIONS };

function user(name: string, more: Partial<User> = {}): User {
  return { name, token: undefined, certificate: undefined, allow: [], ...more };
}

test("a pattern fits a name, with one star for any characters", () => {
  const cases: [pattern: string, fitting: string[], others: string[]][] = [
    ["orders", ["orders"], ["order", "orders.", "Orders", ""]],
    ["orders.*", ["orders.", "orders.eu"], ["orders", "xorders.eu", "orders:eu"]],
    ["*.dead", [".dead", "a.dead", "a.dead.dead"], ["dead", "a.dead2"]],
    ["ab*ba", ["abba", "abxba"], ["aba", "ab", "ba", "abbax"]],
    ["*", ["", "a", "__proto__"], []],
    ["a.b", ["a.b"], ["axb"]],
  ];
  for (const [pattern, fitting, others] of cases) {
    assert.ok(isPattern(pattern), pattern);
    for (const name of fitting) assert.ok(fits(pattern, name), `${pattern} fits ${name}`);
    for (const name of others) assert.ok(!fits(pattern, name), `${pattern} does not fit ${name}`);
  }
  for (const text of ["", "**", "a*b*c", "a/b", "a b", "[ab]", "a?", "(a+)+", "\n", "a".repeat(202)]) {
    assert.ok(!isPattern(text), text);
  }
});

test("a rule allows what it names, on the queues that fit, and nothing else", () => {
  const rules = [parseRule("read,write:orders.*", "allow"), parseRule("admin:task/jobs", "allow")];
  const answers: [
    expected: boolean,
    ...question: Parameters<typeof allows> extends [unknown, ...infer R] ? R : never,
  ][] = [
    [true, "read", "log", "orders.eu"],
    [true, "write", "task", "orders.eu"],
    [false, "admin", "task", "orders.eu"],
    [false, "read", "log", "order"],
    [true, "admin", "task", "jobs"],
    [false, "admin", "log", "jobs"],
    [false, "read", "task", "jobs"],
    [false, "read", "directory", ""],
    [false, "admin", "directory", "jobs"],
  ];
  for (const [expected, ...question] of answers) assert.equal(allows(rules, ...question), expected, question.join(" "));

  // The directory as a whole takes a rule about everything.
  for (const [rule, expected] of [
    ["read:*", true],
    ["write:*", false],
    ["read:log/*", false],
    ["read:a*", false],
  ] as const) {
    assert.equal(allows([parseRule(rule, "allow")], "read", "directory", ""), expected, rule);
  }
});

test("rules as text come back as they were, and what is no rule is refused", async () => {
  for (const text of ["read:*", "read,write,admin:a.b:c", "write:log/__proto__", "admin:task/*.dead"]) {
    assert.equal(formatRule(parseRule(text, "allow")), text);
  }
  for (const text of [
    "",
    "read",
    "read:",
    ":a",
    "rd:a",
    "read,:a",
    "read,read:a",
    "read:a/b",
    "read:queue/a",
    "read:**",
  ]) {
    const error = await rejectsWith("ERR_OPTION", () => parseRule(text, "--allow"), /--allow must be permissions/);
    assert.deepEqual(error.details, { option: "--allow" });
  }
});

test("a token lets its user in, and nothing that differs from it does", () => {
  const { token, hash } = makeToken("ada");
  const access = new Access({
    ...NO_USERS,
    users: [user("ada", { token: hash }), user("bob", { token: makeToken("bob").hash })],
  });
  assert.match(token, /^varve_ada\.[A-Za-z0-9_-]{43}$/);
  assert.equal(access.authenticate({ token })?.name, "ada");
  const secret = token.slice("varve_ada.".length);
  for (let at = 0; at < secret.length; at++) {
    const other = secret[at] === "A" ? "B" : "A";
    const changed = `varve_ada.${secret.slice(0, at)}${other}${secret.slice(at + 1)}`;
    assert.equal(access.authenticate({ token: changed }), undefined, changed);
  }
  for (const wrong of [
    "",
    secret,
    `varve_bob.${secret}`,
    `varve_eve.${secret}`,
    `varve_.${secret}`,
    `varve___proto__.${secret}`,
    `${token}=`,
    `${token}A`,
    ` ${token}`,
    token.toUpperCase(),
    token.slice(0, -1),
    "x".repeat(100_000),
  ]) {
    assert.equal(access.authenticate({ token: wrong }), undefined, wrong.slice(0, 80));
  }
  assert.equal(access.authenticate({}), undefined);
});

test("a user without a token is not let in by one", () => {
  const access = new Access({ ...NO_USERS, users: [user("ada", { certificate: { commonName: "ada" } })] });
  const zeros = `varve_ada.${Buffer.alloc(32).toString("base64url")}`;
  assert.equal(access.authenticate({ token: zeros }), undefined);
  assert.equal(access.authenticate({ token: makeToken("ada").token }), undefined);
});

test("two hashes of one secret differ, and two tokens too", () => {
  const [one, two] = [makeToken("ada"), makeToken("ada")];
  assert.notEqual(one.token, two.token);
  assert.notDeepEqual(one.hash.salt, two.hash.salt);
  assert.equal(parseToken(one.token)?.name, "ada");
  for (const name of ["", "a.b", "a b", "a/b", "a".repeat(65), 5, undefined])
    assert.ok(!isUserName(name), String(name));
});

test("a certificate is known by its fingerprint, else by its only common name; a wrong token is not made good by one", () => {
  const access = new Access({
    ...NO_USERS,
    users: [
      user("pinned", { certificate: { fingerprint256: FINGERPRINT } }),
      user("named", { certificate: { commonName: "named.example.com" } }),
    ],
  });
  const who = (fingerprint256: string, CN?: string | string[]) =>
    access.authenticate({ certificate: { fingerprint256, subject: { CN } } })?.name;
  assert.equal(who(FINGERPRINT), "pinned");
  assert.equal(who(FINGERPRINT, "named.example.com"), "pinned");
  assert.equal(who("00:11", "named.example.com"), "named");
  assert.equal(who("00:11", ["named.example.com", "other"]), undefined);
  assert.equal(who("00:11", FINGERPRINT), undefined);
  assert.equal(who("CN=named.example.com"), undefined);
  assert.equal(who(FINGERPRINT.slice(3)), undefined);
  assert.equal(access.authenticate({ certificate: { fingerprint256: "", subject: undefined } }), undefined);
  const certificate = { fingerprint256: FINGERPRINT, subject: undefined };
  assert.equal(access.authenticate({ token: makeToken("pinned").token, certificate }), undefined);
});

test("another users file holds for logins that are there already", () => {
  const { token, hash } = makeToken("ada");
  const before = user("ada", { token: hash, allow: [parseRule("read:a", "")] });
  const access = new Access({ ...NO_USERS, users: [before] });
  const login = access.authenticate({ token });
  const seen = () => [login?.may("read", "log", "a"), login?.may("write", "log", "a"), login?.current];
  assert.deepEqual(seen(), [true, false, true]);

  access.replace({ ...NO_USERS, users: [{ ...before, allow: [parseRule("read:a", "")] }] });
  assert.deepEqual(seen(), [true, false, true], "nothing that matters has changed");
  access.replace({ ...NO_USERS, users: [{ ...before, allow: [parseRule("write:a", "")] }] });
  assert.deepEqual(seen(), [false, true, false]);
  access.replace({ ...NO_USERS, users: [{ ...before, token: makeToken("ada").hash }] });
  assert.deepEqual(seen(), [false, false, false], "the token is another one");
  access.replace(NO_USERS);
  assert.deepEqual(seen(), [false, false, false], "the user has gone");
  assert.equal(access.authenticate({ token }), undefined);
});

test("a login by certificate ends with that certificate", () => {
  const before = user("ada", { certificate: { commonName: "ada" }, allow: [EVERYTHING] });
  const access = new Access({ ...NO_USERS, users: [before] });
  const login = access.authenticate({ certificate: { fingerprint256: "00", subject: { CN: "ada" } } });
  assert.equal(login?.may("admin", "directory", ""), true);
  access.replace({ ...NO_USERS, users: [{ ...before, certificate: { fingerprint256: FINGERPRINT } }] });
  assert.equal(login?.may("admin", "directory", ""), false);
  assert.equal(login?.current, false);
});

test("Kestrel connections may what the file says of them, and nothing if it says nothing", () => {
  const access = new Access(NO_USERS);
  const { kestrel } = access;
  assert.equal(kestrel.may("read", "task", "a"), false);
  access.replace({ ...NO_USERS, kestrel: { allow: [parseRule("read:a", "")] } });
  assert.equal(kestrel.may("read", "task", "a"), true);
  assert.equal(kestrel.may("write", "task", "a"), false);
});

test("a users file comes back as it was written", () => {
  const users = {
    users: [
      user("ada", { token: makeToken("ada").hash, allow: [parseRule("read,write:__proto__", "")] }),
      user("bob", { certificate: { fingerprint256: FINGERPRINT }, allow: [parseRule("admin:log/a*", "")] }),
      user("eve", { certificate: { commonName: "eve \u2028 <img>" } }),
    ],
    kestrel: { allow: [EVERYTHING] },
  };
  assert.deepEqual(parseUsers(formatUsers(users), "users.json"), users);
  assert.deepEqual(parseUsers(formatUsers(NO_USERS), "users.json"), NO_USERS);
});

test("whatever does not belong into a users file is refused, with its path", async () => {
  const token = { salt: Buffer.alloc(16).toString("base64"), sha256: Buffer.alloc(32).toString("base64") };
  const allow: unknown[] = [];
  const ada = { name: "ada", token, allow };
  const rule = { queues: "a", permissions: ["read"] };
  const cases: [path: string, value: unknown][] = [
    ["$", []],
    ["$", null],
    ["$.users", {}],
    ["$.users", { users: {} }],
    ['$["user"]', { users: [], user: [] }],
    ["$.kestrel", { users: [], kestrel: [] }],
    ["$.kestrel.allow", { users: [], kestrel: {} }],
    ["$.users[0]", { users: ["ada"] }],
    ['$.users[1]["admin"]', { users: [ada, { ...ada, name: "bob", admin: true }] }],
    ["$.users[0]", { users: [{ name: "ada", allow }] }],
    ["$.users[0].name", { users: [{ ...ada, name: "a.b" }] }],
    ["$.users[0].name", { users: [{ ...ada, name: 5 }] }],
    ["$.users[1].name", { users: [ada, ada] }],
    ["$.users[0].token", { users: [{ ...ada, token: { ...token, salt: "" } }] }],
    ["$.users[0].token", { users: [{ ...ada, token: { ...token, sha256: `${token.sha256}=` } }] }],
    ['$.users[0].token["plain"]', { users: [{ ...ada, token: { ...token, plain: "x" } }] }],
    ["$.users[0].token", { users: [{ ...ada, token: "secret" }] }],
    ["$.users[0].certificate", { users: [{ ...ada, certificate: {} }] }],
    ["$.users[0].certificate", { users: [{ ...ada, certificate: { commonName: "a", fingerprint256: FINGERPRINT } }] }],
    ["$.users[0].certificate.commonName", { users: [{ ...ada, certificate: { commonName: "" } }] }],
    ["$.users[0].certificate.fingerprint256", { users: [{ ...ada, certificate: { fingerprint256: "00:11" } }] }],
    [
      "$.users[1].certificate",
      {
        users: [
          { ...ada, certificate: { commonName: "a" } },
          { ...ada, name: "bob", certificate: { commonName: "a" } },
        ],
      },
    ],
    ["$.users[0].allow", { users: [{ ...ada, allow: undefined }] }],
    ["$.users[0].allow[0].queues", { users: [{ ...ada, allow: [{ ...rule, queues: "a/b" }] }] }],
    ["$.users[0].allow[0].queues", { users: [{ ...ada, allow: [{ permissions: ["read"] }] }] }],
    ["$.users[0].allow[0].kind", { users: [{ ...ada, allow: [{ ...rule, kind: "queue" }] }] }],
    ["$.users[0].allow[0].permissions", { users: [{ ...ada, allow: [{ ...rule, permissions: [] }] }] }],
    ["$.users[0].allow[0].permissions", { users: [{ ...ada, allow: [{ ...rule, permissions: ["write", "all"] }] }] }],
    ["$.users[0].allow[0].permissions", { users: [{ ...ada, allow: [{ ...rule, permissions: ["read", "read"] }] }] }],
    ['$.users[0].allow[1]["quues"]', { users: [{ ...ada, allow: [rule, { ...rule, quues: "a" }] }] }],
  ];
  for (const [path, value] of cases) {
    const text = JSON.stringify(value);
    const error = await rejectsWith("ERR_OPTION", () => parseUsers(text, "users.json"), /^users\.json: /);
    assert.equal(error.details.path, path, text);
  }
});

test("a member called __proto__ is a member like any other: unknown", async () => {
  const error = await rejectsWith("ERR_OPTION", () => parseUsers('{"users":[],"__proto__":{"users":[]}}', "u"));
  assert.equal(error.details.path, '$["__proto__"]');
});

test("a users file that is large, deep or no JSON is refused before anything is built, and not quoted", async () => {
  const secret = "c2VjcmV0";
  for (const [text, message] of [
    [`{"users":[${" ".repeat(USERS_BYTES_MAX)}]}`, /larger than 65536 bytes/],
    [`{"users":[${"\u00e9".repeat(USERS_BYTES_MAX / 2)}]}`, /larger than 65536 bytes/],
    ["[".repeat(60_000), /nested more than 32 levels/],
    [`{"users":${"[".repeat(32)}${"]".repeat(32)}}`, /nested more than 32 levels/],
    ["", /is not JSON/],
    [`{"users":[{"token":"${secret}"`, /is not JSON/],
  ] as const) {
    const error = await rejectsWith("ERR_OPTION", () => parseUsers(text, "users.json"), message);
    assert.ok(!error.message.includes(secret));
  }
  // Brackets in strings nest nothing.
  const name = "[".repeat(40);
  await rejectsWith("ERR_OPTION", () => parseUsers(JSON.stringify({ users: [{ name: `"\\${name}` }] }), "u"), /\.name/);
});
