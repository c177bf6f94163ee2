import assert from "node:assert/strict";
import test from "node:test";
import { VarveError } from "../api/errors.js";
import { checkExposure, type Listener, type Protection } from "./exposure.js";

const LOOPBACK = ["127.0.0.1", "127.9.9.9", "::1", "localhost"];
const ELSEWHERE = [
  "0.0.0.0",
  "::",
  "192.168.1.5",
  "10.0.0.1",
  "2001:db8::1",
  "example.com",
  "127.0.0.1.example.com",
  "::ffff:10.0.0.1",
];
const FLAGS = [false, true];

function starts(listener: Omit<Listener, "shown">, protection: Protection): string {
  try {
    checkExposure({ ...listener, shown: "SHOWN" }, protection);
    return "starts";
  } catch (error) {
    assert.ok(error instanceof VarveError && error.code === "ERR_OPTION" && error.message.startsWith("SHOWN"));
    return error.message;
  }
}

/** Every combination of what can protect a listener. */
function* protections(): Generator<Protection> {
  for (const users of FLAGS)
    for (const kestrelUsers of users ? FLAGS : [false])
      for (const tls of FLAGS) for (const insecure of FLAGS) yield { users, kestrelUsers, tls, insecure };
}

test("the whole start matrix", () => {
  let seen = 0;
  for (const protection of protections()) {
    const { users, kestrelUsers, tls, insecure } = protection;
    const expect = (listener: Omit<Listener, "shown">, expected: boolean, message: RegExp): void => {
      seen++;
      const outcome = starts(listener, protection);
      const what = `${JSON.stringify(listener)} ${JSON.stringify(protection)}: ${outcome}`;
      assert.equal(outcome === "starts", expected, what);
      if (!expected) assert.match(outcome, message, what);
    };
    for (const scheme of ["unix", "pipe"] as const) expect({ scheme }, true, /^$/);
    for (const host of LOOPBACK) {
      expect({ scheme: "tcp", host }, true, /^$/);
      expect({ scheme: "tls", host }, tls, /--tls-cert and --tls-key/);
      expect({ scheme: "kestrel", host }, !users || kestrelUsers, /has no login/);
    }
    for (const host of ELSEWHERE) {
      expect({ scheme: "tcp", host }, insecure, users ? /without encryption/ : /without a login .* and encryption/);
      expect({ scheme: "tls", host }, tls && (users || insecure), tls ? /without a login/ : /--tls-cert and --tls-key/);
      expect({ scheme: "kestrel", host }, insecure && (!users || kestrelUsers), /has no login|neither passwords/);
    }
  }
  assert.equal(seen, 12 * (2 + 3 * LOOPBACK.length + 3 * ELSEWHERE.length));
});

test("--insecure lets nothing start that lacks its certificate, or would pass by the users file", () => {
  const all: Protection = { users: true, kestrelUsers: false, tls: false, insecure: true };
  assert.match(starts({ scheme: "tls", host: "127.0.0.1" }, all), /certificate/);
  assert.match(starts({ scheme: "kestrel", host: "127.0.0.1" }, all), /has no login/);
});
