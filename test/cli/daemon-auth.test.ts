import assert from "node:assert/strict";
import { chmodSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { parseRule, type Rule } from "../../src/auth/rules.js";
import { formatUsers, NO_USERS } from "../../src/auth/users.js";
import { RawClient } from "../kestrel/front.js";
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
        await eventually("it is logged", () => logged.includes("has been read again"));
        assert.match(await ask("get a\r\n"), /^VALUE a/);
        assert.match(await ask(set), /ERR_FORBIDDEN/);
      } finally {
        running.child.kill("SIGTERM");
      }
      assert.equal((await running.ended).code, 0);
    }),
);
