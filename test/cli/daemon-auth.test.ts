import assert from "node:assert/strict";
import { chmodSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { connect as connectTls } from "node:tls";
import { parseRule, type Rule } from "../../src/auth/rules.js";
import { formatUsers, NO_USERS } from "../../src/auth/users.js";
import { RawClient } from "../kestrel/front.js";
import { codeOf, RawNative } from "../native/raw-native.js";
import { type Certificate, makeCertificate } from "../support/certificates.js";
import { withDirectory } from "../support/directories.js";
import { eventually } from "../support/expect.js";
import { jsonLines, startVarve, varve } from "./program.js";

function writeUsers(file: string, ...allow: readonly string[]): void {
  const rules: Rule[] = allow.map((text) => parseRule(text, ""));
  writeFileSync(file, formatUsers({ ...NO_USERS, kestrel: { allow: rules } }), { mode: 0o600 });
}

test("a daemon that would be open to others, or whose users file is no good, does not start, and makes nothing", () =>
  withDirectory(async (directory) => {
    const data = join(directory, "data");
    const users = join(directory, "users.json");
    const silent = join(directory, "silent.json");
    writeUsers(users, "read:*");
    writeFileSync(silent, formatUsers(NO_USERS), { mode: 0o600 });
    const cases: [args: string[], message: RegExp][] = [
      [["--kestrel", "0.0.0.0:0"], /0\.0\.0\.0:0 can be reached from other machines.*say --insecure/],
      [["--kestrel", "[::]:0"], /can be reached from other machines/],
      [["--kestrel", "0.0.0.0:0", "--auth", users], /can be reached from other machines/],
      [["--kestrel", "127.0.0.1:0", "--auth", silent], /has no login.*"kestrel"/],
      [["--kestrel", "0.0.0.0:0", "--auth", silent, "--insecure"], /has no login/],
      [["--auth", users], /nothing to listen on/],
      [["--auth", join(directory, "none.json")], /none\.json cannot be read/],
    ];
    for (const [args, message] of cases) {
      const { code, stdout, stderr } = await varve(["daemon", "-d", data, ...args]);
      assert.deepEqual([code, stdout], [2, ""], args.join(" "));
      assert.match(stderr, message);
    }
    if (process.platform !== "win32") {
      chmodSync(users, 0o644);
      const { code, stderr } = await varve(["daemon", "-d", data, "--kestrel", "127.0.0.1:0", "--auth", users]);
      assert.equal(code, 2);
      assert.match(stderr, /may be used by others/);
    }
    assert.ok(!existsSync(data));
  }));

test("the native protocol is spoken to others only with TLS and users, and never with a key that does not fit", () =>
  withDirectory(async (directory) => {
    const data = join(directory, "data");
    const at = (name: string, text: string): string => {
      const file = join(directory, name);
      writeFileSync(file, text, { mode: 0o600 });
      return file;
    };
    const server = makeCertificate("localhost");
    const cert = at("server.pem", server.cert);
    const tls = ["--tls-cert", cert, "--tls-key", at("server.key", server.key)];
    const other = at("other.key", makeCertificate("other").key);
    const auth = ["--auth", at("users.json", formatUsers(NO_USERS))];
    const refused: [args: string[], message: RegExp][] = [
      [["--target", "tcp://0.0.0.0:0"], /without a login \(--auth\) and encryption/],
      [["--target", "tcp://0.0.0.0:0", ...auth, ...tls], /without encryption/],
      [["--target", "tls://0.0.0.0:0", ...tls], /without a login/],
      [["--target", "tls://127.0.0.1:0", ...auth], /--tls-cert and --tls-key/],
      [["--target", "tcp://127.0.0.1:0", "--target", "tcp://[::]:0"], /tcp:\/\/\[::\]:0 can be reached/],
      [["--target", "udp://127.0.0.1:0"], /--target must be tcp:/],
      [["--target", "tls://127.0.0.1:0", "--tls-cert", cert], /go together/],
      [["--target", "tcp://127.0.0.1:0", "--tls-client-auth"], /go with --tls-cert/],
      [["--target", "tls://127.0.0.1:0", ...tls, "--tls-client-auth"], /needs --tls-ca/],
      [["--target", "tls://127.0.0.1:0", "--tls-cert", cert, "--tls-key", other], /is not the key of the certificate/],
      [["--target", "tls://127.0.0.1:0", "--tls-cert", cert, "--tls-key", cert], /holds no private key/],
    ];
    for (const [args, message] of refused) {
      const { code, stdout, stderr } = await varve(["daemon", "-d", data, ...args]);
      assert.deepEqual([code, stdout], [2, ""], args.join(" "));
      assert.match(stderr, message);
    }
    assert.ok(!existsSync(data));
    for (const args of [
      ["--target", "tls://0.0.0.0:0", ...tls, ...auth],
      ["--target", "tcp://0.0.0.0:0", "--insecure"],
    ]) {
      const running = startVarve(["daemon", "-d", data, ...args]);
      assert.match(await running.printed(/pid/), /0\.0\.0\.0:[1-9]/);
      running.child.kill("SIGTERM");
      if (process.platform !== "win32") assert.equal((await running.ended).code, 0);
    }
  }));

test(
  "a token logs in over TLS until it is revoked, and the certificate can be renewed meanwhile",
  { skip: process.platform === "win32" },
  () =>
    withDirectory(async (directory) => {
      const users = join(directory, "users.json");
      const [cert, key] = [join(directory, "server.pem"), join(directory, "server.key")];
      const show = (certificate: Certificate): void => {
        writeFileSync(cert, certificate.cert);
        writeFileSync(key, certificate.key, { mode: 0o600 });
      };
      const first = makeCertificate("localhost");
      show(first);
      const created = await varve(["token", "create", "ada", "--allow", "read:*", "--file", users]);
      const token = created.stdout.trim();
      const running = startVarve([
        ...["daemon", "-d", join(directory, "data"), "--json", "--target", "tls://127.0.0.1:0"],
        ...["--auth", users, "--tls-cert", cert, "--tls-key", key],
      ]);
      let logged = "";
      running.child.stderr.on("data", (chunk) => {
        logged += String(chunk);
      });
      const reload = async (): Promise<void> => {
        const from = logged.length;
        running.child.kill("SIGHUP");
        await eventually("both are read again", () => (logged.slice(from).match(/read again/g) ?? []).length === 2);
      };
      try {
        const [{ targets, kestrel }] = jsonLines(await running.printed(/\n/));
        assert.equal(kestrel, null);
        const login = async (ca: Certificate): Promise<string | undefined> => {
          const socket = connectTls({ port: Number(/\d+$/.exec(targets[0])![0]), host: "127.0.0.1", ca: ca.cert });
          const client = new RawNative(socket);
          const answer = await client.enter(token);
          client.destroy();
          return codeOf(answer);
        };
        assert.equal(await login(first), undefined);
        const second = makeCertificate("localhost");
        show(second);
        await reload();
        assert.equal(await login(first), "ended");
        assert.equal(await login(second), undefined);
        await varve(["token", "revoke", "ada", "--file", users]);
        await reload();
        assert.equal(await login(second), "ERR_UNAUTHENTICATED");
        assert.ok(!logged.includes(token.slice("varve_ada.".length)), "the log holds no token");
      } finally {
        running.child.kill("SIGTERM");
      }
      assert.equal((await running.ended).code, 0);
    }),
);

test(
  "SIGHUP has the users file read again; one that is wrong changes nothing, and is logged",
  {
    skip: process.platform === "win32",
  },
  () =>
    withDirectory(async (directory) => {
      const file = join(directory, "users.json");
      writeUsers(file, "write:a");
      const running = startVarve([
        ...["daemon", "-d", join(directory, "data"), "--json"],
        ...["--kestrel", "127.0.0.1:0", "--auth", file],
      ]);
      let logged = "";
      running.child.stderr.on("data", (chunk) => {
        logged += String(chunk);
      });
      try {
        const [{ kestrel }] = jsonLines(await running.printed(/\n/));
        const ask = async (request: string): Promise<string> => {
          const client = await RawClient.connect(Number(/\d+$/.exec(kestrel)![0]));
          const reply = await client.ask(request);
          client.destroy();
          return reply;
        };
        const set = "set a 0 0 1\r\nx\r\n";
        assert.equal(await ask(set), "STORED\r\n");
        assert.match(await ask("get a\r\n"), /ERR_FORBIDDEN/);

        const right = readFileSync(file, "utf8");
        writeFileSync(file, right.replace("write", "wriggle"));
        running.child.kill("SIGHUP");
        await eventually("it is logged", () => logged.includes("what was read before still holds"));
        assert.match(logged, /\$\.kestrel\.allow\[0\]\.permissions/);
        assert.equal(await ask(set), "STORED\r\n");

        writeUsers(file, "read:a");
        running.child.kill("SIGHUP");
        await eventually("it is logged", () => logged.includes("read again: the users file"));
        assert.match(await ask("get a\r\n"), /^VALUE a/);
        assert.match(await ask(set), /ERR_FORBIDDEN/);
      } finally {
        running.child.kill("SIGTERM");
      }
      assert.equal((await running.ended).code, 0);
    }),
);
