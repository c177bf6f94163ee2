/** Logins over each kind of listener: certificates, another token, a user that is taken out, Unix sockets. */

import assert from "node:assert/strict";
import { linkSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import test from "node:test";
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from "node:tls";
import { Access } from "../../src/auth/access.js";
import { parseRule } from "../../src/auth/rules.js";
import { makeToken } from "../../src/auth/token.js";
import { NO_USERS, type User } from "../../src/auth/users.js";
import { open } from "../../src/index.js";
import { NativeServer } from "../../src/native/server.js";
import { PREAMBLE } from "../../src/wire/frame.js";
import { Methods } from "../../src/wire/methods.js";
import { writeValue } from "../../src/wire/value.js";
import { fingerprintOf, makeCertificate } from "../support/certificates.js";
import { withDirectory } from "../support/directories.js";
import { eventually, rejectsWith } from "../support/expect.js";
import { scaled } from "../support/scale.js";
import { codeOf, RawNative, type TestNative, withNative } from "./raw-native.js";

const AUTHORITY = makeCertificate("authority", { authority: true });
const SERVER = makeCertificate("localhost", { issuer: AUTHORITY });
const CLIENT = makeCertificate("ada", { issuer: AUTHORITY });
const PINNED = makeCertificate("somebody", { issuer: AUTHORITY });
const NOBODY = makeCertificate("nobody", { issuer: AUTHORITY });
/** Says that it is ada, by its own authority. */
const STRANGER = makeCertificate("ada");

const ALL = [parseRule("read,write,admin:*", "")];
const ADA: User = { name: "ada", token: undefined, certificate: { commonName: "ada" }, allow: ALL };
const BOB: User = { name: "bob", token: undefined, certificate: { fingerprint256: fingerprintOf(PINNED) }, allow: ALL };

function tlsEndpoint(clientAuth: boolean) {
  return {
    target: { scheme: "tls", host: "127.0.0.1", port: 0 },
    tls: { cert: SERVER.cert, key: SERVER.key, ca: AUTHORITY.cert, requestCert: true, rejectUnauthorized: clientAuth },
  } as const;
}

/** What comes of a login over TLS: the name of the error, or undefined. */
async function loginOver({ target }: TestNative, options: ConnectionOptions, token = ""): Promise<string | undefined> {
  const port = "port" in target ? target.port : 0;
  const socket: TLSSocket = connectTls({ port, host: "127.0.0.1", ca: AUTHORITY.cert, ...options });
  const client = new RawNative(socket);
  try {
    return codeOf(await client.enter(token));
  } finally {
    client.destroy();
  }
}

test("a certificate lets its user in, by name or fingerprint, and nobody else", async () => {
  const { token, hash } = makeToken("eve");
  const eve: User = { name: "eve", token: hash, certificate: undefined, allow: ALL };
  const authenticator = new Access({ ...NO_USERS, users: [ADA, BOB, eve] });
  await withNative({ native: { authenticator }, endpoint: tlsEndpoint(false) }, async (native) => {
    assert.equal(await loginOver(native, withKey(CLIENT)), undefined);
    assert.equal(await loginOver(native, withKey(PINNED)), undefined);
    assert.equal(await loginOver(native, {}, token), undefined);
    assert.equal(await loginOver(native, withKey(CLIENT), token), undefined);
    assert.equal(await loginOver(native, withKey(NOBODY)), "ERR_UNAUTHENTICATED");
    assert.equal(await loginOver(native, withKey(STRANGER)), "ERR_UNAUTHENTICATED");
    assert.equal(await loginOver(native, {}), "ERR_UNAUTHENTICATED");
    assert.equal(await loginOver(native, withKey(CLIENT), makeToken("eve").token), "ERR_UNAUTHENTICATED");
  });
});

test("where clients must show a certificate, those without a good one do not get as far as the protocol", async () => {
  const { token, hash } = makeToken("eve");
  const eve: User = { name: "eve", token: hash, certificate: undefined, allow: ALL };
  const authenticator = new Access({ ...NO_USERS, users: [ADA, eve] });
  await withNative({ native: { authenticator }, endpoint: tlsEndpoint(true) }, async (native) => {
    assert.equal(await loginOver(native, withKey(CLIENT)), undefined);
    assert.equal(await loginOver(native, {}, token), "ended");
    assert.equal(await loginOver(native, withKey(STRANGER), token), "ended");
    assert.equal(native.server.connections, 0);
  });
});

test("TLS below 1.2 is refused", async () => {
  const authenticator = new Access({ ...NO_USERS, users: [ADA] });
  await withNative({ native: { authenticator }, endpoint: tlsEndpoint(false) }, async (native) => {
    const old = { ...withKey(CLIENT), minVersion: "TLSv1", ciphers: "DEFAULT@SECLEVEL=0" } as const;
    assert.equal(await loginOver(native, { ...old, maxVersion: "TLSv1.1" }), "ended");
    assert.equal(await loginOver(native, { ...old, maxVersion: "TLSv1.2" }), undefined);
  });
});

test("bad TLS hellos leave nothing open, and the listener goes on", {
  skip: process.platform !== "linux",
}, async () => {
  const authenticator = new Access({ ...NO_USERS, users: [ADA] });
  await withNative({ native: { authenticator, helloTimeoutMs: 500 }, endpoint: tlsEndpoint(false) }, async (native) => {
    assert.equal(await loginOver(native, withKey(CLIENT)), undefined);
    await eventually("the first has gone", () => native.server.connections === 0);
    const descriptors = () => readdirSync("/proc/self/fd").length;
    const before = descriptors();
    const plain = { scheme: "tcp", host: "127.0.0.1", port: "port" in native.target ? native.target.port : 0 } as const;
    const bad = [
      "junk\r\n",
      PREAMBLE,
      Buffer.from("160301020001000001fc0303", "hex"),
      Buffer.from("16030100020100", "hex"),
      Buffer.from("80", "hex"),
      "",
    ];
    for (let round = 0; round < scaled(5); round++) {
      const clients = await Promise.all(Array.from({ length: 60 }, () => RawNative.connect(plain)));
      for (const [index, client] of clients.entries()) {
        client.socket.removeAllListeners("data");
        client.socket.resume();
        client.send(bad[index % bad.length]!);
      }
      await Promise.all(clients.map((client) => client.toEnd()));
      for (const client of clients) client.destroy();
    }
    await eventually("all descriptors are given back", () => descriptors() <= before);
    assert.equal(await loginOver(native, withKey(CLIENT)), undefined);
  });
});

test("another certificate is shown from its renewal on", async () => {
  const authenticator = new Access({ ...NO_USERS, users: [ADA] });
  await withNative({ native: { authenticator }, endpoint: tlsEndpoint(false) }, async (native) => {
    const other = makeCertificate("authority of others", { authority: true });
    const renewed = makeCertificate("localhost", { issuer: other });
    native.server.renewTls({ cert: renewed.cert, key: renewed.key, ca: AUTHORITY.cert });
    assert.equal(await loginOver(native, withKey(CLIENT)), "ended");
    assert.equal(await loginOver(native, { ...withKey(CLIENT), ca: other.cert }), undefined);
  });
});

test("a user that is taken out of the file, or may less, is cut off from what was under way", async () => {
  const { token, hash } = makeToken("eve");
  const eve: User = { name: "eve", token: hash, certificate: undefined, allow: ALL };
  const access = new Access({ ...NO_USERS, users: [eve, ADA] });
  await withNative({ native: { authenticator: access } }, async (native) => {
    for (const after of [
      [],
      [{ ...eve, allow: [parseRule("read:other", "")] }],
      [{ ...eve, token: makeToken("eve").hash }],
    ]) {
      access.replace({ ...NO_USERS, users: [eve] });
      const client = await native.connect();
      assert.equal(codeOf(await client.enter(token)), undefined);
      await client.call(Methods.openLog, 1, ["log"]);
      const tail = client.ask(Methods.batches, 1, (output) => {
        writeValue(output, { follow: true });
        output.u32(2 ** 31);
      });
      access.replace({ ...NO_USERS, users: after });
      assert.equal(codeOf(await tail), "ERR_UNAUTHENTICATED");
      await client.toEnd();
    }
    access.replace({ ...NO_USERS, users: [eve, ADA] });
    const client = await native.connect();
    assert.equal(codeOf(await client.enter(token)), undefined);
    access.replace({ ...NO_USERS, users: [{ ...eve }] });
    assert.equal(codeOf(await client.call(Methods.openLog, 1, ["log"])), undefined, "nothing of this user has changed");
  });
});

test(
  "a Unix socket is its user's alone; a stale one is replaced, anything else is left alone",
  {
    skip: process.platform === "win32",
  },
  () =>
    withDirectory(async (directory) => {
      const mq = await open(join(directory, "data"), { durability: "async" });
      const path = join(directory, "socket");
      const target = { scheme: "unix", path } as const;
      const first = new NativeServer(mq);
      await first.listen({ target });
      assert.equal(statSync(path).mode & 0o777, 0o600);
      const second = new NativeServer(mq);
      await rejectsWith("ERR_OPTION", second.listen({ target }), /a daemon listens on .* already/);
      const client = await RawNative.connect(target);
      assert.equal(codeOf(await client.enter()), undefined);
      client.destroy();
      await first.close(1000);

      // As a kill leaves it.
      const stale = createServer().listen(path);
      await new Promise((resolve) => stale.once("listening", resolve));
      const kept = join(directory, "kept");
      linkSync(path, kept);
      await new Promise((resolve) => stale.close(resolve));
      await second.listen({ target: { scheme: "unix", path: kept } });
      await second.close(1000);

      const file = join(directory, "file");
      writeFileSync(file, "precious");
      const third = new NativeServer(mq);
      await rejectsWith("ERR_OPTION", third.listen({ target: { scheme: "unix", path: file } }), /is no socket/);
      assert.equal(statSync(file).size, 8);
      const long = join(directory, "x".repeat(120));
      await rejectsWith("ERR_OPTION", third.listen({ target: { scheme: "unix", path: long } }), /at most 103 bytes/);
      await third.close(1000);
      await mq.close();
    }),
);

function withKey({ cert, key }: { readonly cert: string; readonly key: string }): ConnectionOptions {
  return { cert, key };
}
