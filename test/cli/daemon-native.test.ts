import assert from "node:assert/strict";
import { existsSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { parseRule } from "../../src/auth/rules.js";
import { makeToken } from "../../src/auth/token.js";
import { formatUsers, NO_USERS, type User } from "../../src/auth/users.js";
import { dial } from "../../src/index.js";
import { makeCertificate } from "../support/certificates.js";
import { withDirectory } from "../support/directories.js";
import { rejectsWith } from "../support/expect.js";
import { jsonLines, type Running, startVarve, varve } from "./program.js";

const WINDOWS = process.platform === "win32";

async function targetsOf(running: Running): Promise<string[]> {
  const [{ targets }] = jsonLines(await running.printed(/\n/));
  return targets;
}

test(
  "a daemon serves several targets, and at SIGTERM answers what is under way and leaves in order",
  { skip: WINDOWS },
  () =>
    withDirectory(async (directory) => {
      const data = join(directory, "data");
      const start = (target: string) =>
        startVarve(["daemon", "-d", data, "--json", "--target", target, `unix://${join(directory, "socket")}`]);
      const running = start("tcp://127.0.0.1:0");
      const [tcp, unix] = (await targetsOf(running)) as [string, string];
      const [one, two] = [await dial(tcp), await dial(unix)];
      const log = await one.openLog("events");
      const waiting = (await two.openTask("jobs")).dequeue({ wait: "1h" });
      const appends = Array.from({ length: 200 }, (_, index) => log.append(`${index}`));
      await appends[0];
      running.child.kill("SIGTERM");
      assert.equal((await running.ended).code, 0);
      const again = start(tcp);
      await targetsOf(again);
      assert.deepEqual(
        await Promise.all(appends),
        Array.from({ length: 200 }, (_, index) => index),
      );
      assert.equal((await log.stats()).count, 200);
      await (await one.openTask("jobs")).enqueue("after the restart");
      assert.equal((await waiting)?.payload.toString(), "after the restart");
      await Promise.all([one.close(), two.close()]);
      again.child.kill("SIGTERM");
      assert.equal((await again.ended).code, 0);
      assert.ok(!existsSync(join(directory, "socket")));
    }),
);

test("a socket file that a killed daemon has left is taken over; one in use is not", { skip: WINDOWS }, () =>
  withDirectory(async (directory) => {
    const target = `unix://${join(directory, "socket")}`;
    const start = (data: string) => startVarve(["daemon", "-d", join(directory, data), "--json", "--target", target]);
    const first = start("a");
    await targetsOf(first);
    const second = await start("b").ended;
    assert.notEqual(second.code, 0);
    assert.match(second.stderr, /a daemon listens on .* already/);
    assert.equal(statSync(join(directory, "socket")).mode & 0o777, 0o600);
    first.child.kill("SIGKILL");
    await first.ended;
    const third = start("a");
    await targetsOf(third);
    await (await dial(target)).close();
    third.child.kill("SIGTERM");
    assert.equal((await third.ended).code, 0);
  }),
);

test("with TLS and a users file, a token opens what its rules say", { skip: WINDOWS }, () =>
  withDirectory(async (directory) => {
    const certificate = makeCertificate("localhost");
    const file = (name: string, text: string): string => {
      writeFileSync(join(directory, name), text, { mode: 0o600 });
      return join(directory, name);
    };
    const { token, hash } = makeToken("reader");
    const user: User = {
      name: "reader",
      token: hash,
      certificate: undefined,
      allow: [parseRule("read,write:log/events", "")],
    };
    const running = startVarve([
      ...["daemon", "-d", join(directory, "data"), "--json", "--target", "tls://localhost:0"],
      ...["--tls-cert", file("cert.pem", certificate.cert), "--tls-key", file("key.pem", certificate.key)],
      ...["--auth", file("users.json", formatUsers({ ...NO_USERS, users: [user] }))],
    ]);
    try {
      const [target] = (await targetsOf(running)) as [string];
      const tls = { ca: certificate.cert };
      await rejectsWith("ERR_UNAUTHENTICATED", dial(target, { tls }));
      await rejectsWith("ERR_DISCONNECTED", dial(target, { token }), /certificate/);
      const mq = await dial(target, { tls, token });
      const log = await mq.openLog("events");
      assert.equal(await log.append("x"), 0);
      await rejectsWith("ERR_FORBIDDEN", log.purge());
      await rejectsWith("ERR_FORBIDDEN", mq.openTask("jobs"));
      await mq.close();
    } finally {
      running.child.kill("SIGTERM");
    }
    assert.equal((await running.ended).code, 0);
  }),
);

test(
  "commands with its directory go through a daemon, and wait for it rather than take its place",
  { skip: WINDOWS },
  () =>
    withDirectory(async (directory) => {
      const data = join(directory, "data");
      const start = () =>
        startVarve([
          "daemon",
          "-d",
          data,
          "--durability",
          "async",
          "--json",
          "--target",
          `unix://${join(directory, "s")}`,
        ]);
      const append = async (text: string) =>
        assert.equal((await varve(["append", "events", text, "-d", data])).code, 0);
      const first = start();
      await targetsOf(first);
      await append("one");
      const tail = startVarve(["tail", "events", "--from", "start", "-d", data]);
      await tail.printed(/one/);
      for (const signal of ["SIGTERM", "SIGKILL"] as const) {
        const running = signal === "SIGTERM" ? first : start();
        if (running !== first) await targetsOf(running);
        await append(signal);
        await tail.printed(new RegExp(signal));
        running.child.kill(signal);
        const { code } = await running.ended;
        assert.equal(code, signal === "SIGTERM" ? 0 : null);
      }
      const last = start();
      await targetsOf(last);
      await append("last");
      await tail.printed(/last/);
      assert.equal((await start().ended).code, 4, "one daemon has the directory");
      tail.child.kill("SIGTERM");
      last.child.kill("SIGTERM");
      assert.equal((await last.ended).code, 0);
      await append("without it");
    }),
);
